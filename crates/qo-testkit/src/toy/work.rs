//! `work`, tried out on a copy of the whole namespace; and logs of attempts.

use super::state::{Job, Toy};
use super::{Flaw, fenced};
use qo_core::{Claim, Exchange, FenceToken, JobState, Result, SessionId, Time, Work, caps};

impl Toy {
    pub fn work(&mut self, id: SessionId, claim: Claim) -> Result<Work> {
        let session = self.session(id).ok_or_else(|| fenced(id))?;
        let claim = Claim { max: claim.max.min(1), ..claim };
        let number = session.number + 1;
        let exchange = Exchange { claim, free_permits: session.free_permits, ..Exchange::renew(id, number) };
        let mut tried = self.clone();
        let reply = tried.exchange(&exchange)?;
        let now = !(reply.claimed.is_empty() && reply.prefetched.is_empty() && reply.stop.is_empty());
        if self.flaw == Flaw::WorkUsesTokens {
            self.last_token = tried.last_token;
        }
        Ok(Work { now, next: self.next_date(id), at: self.now, seen: 0 })
    }

    pub fn keep_log(&mut self, token: FenceToken, log: &str) {
        let from_its_beginning = self.flaw == Flaw::LogKeepsItsBeginning;
        let cut = if from_its_beginning { 0 } else { log.len().saturating_sub(caps::LOG_BYTES) };
        let kept = log.char_indices().filter(|(at, _)| (cut..cut + caps::LOG_BYTES).contains(at));
        self.logs.insert(token, kept.map(|(_, letter)| letter).collect());
    }

    /// The next moment at which something happens by itself.
    fn next_date(&self, me: SessionId) -> Option<Time> {
        let waits = |job: &&Job| job.state == JobState::Pending;
        let dates = self.jobs.iter().filter(waits).filter(|job| self.is_next(job)).map(|job| job.run_at);
        let expiries = self.jobs.iter().filter(waits).filter_map(|job| job.new.good_until);
        let others = self.sessions.iter().filter(|session| session.new.id != me);
        let sessions = others.map(|session| session.lease_until);
        let timeouts = self.jobs.iter().filter_map(|job| job.holding.as_ref()?.timeout_at());
        let claims = self.jobs.iter().filter_map(|job| Some(job.ahead.as_ref()?.until));
        let programs = self.programs.iter().map(|program| program.lease.lease_until);
        let ticks = self.schedules.values().filter_map(|schedule| schedule.next);
        let all = dates.chain(expiries).chain(sessions).chain(timeouts).chain(claims).chain(programs);
        all.chain(ticks).filter(|&at| at > self.now).min()
    }
}
