//! What is over: sessions, timeouts, claims, leases of programs, `good_until`.

use super::Flaw;
use super::state::{Session, Toy};
use qo_core::{AttemptOutcome, JobState, SessionId, Swept, Time, caps};

/// The page of the flaws `SweepStopsAfterPage` and `SweepStarved`.
const FLAWED_PAGE: usize = 100;

impl Toy {
    pub fn sweep(&mut self) -> Swept {
        let mut swept = self.end_what_is_over();
        swept.fired = self.fire_schedules();
        swept.forgotten = self.forget();
        self.forget_sessions();
        swept
    }

    /// Forgets the ids of sessions that ended long ago.
    fn forget_sessions(&mut self) {
        let ended =
            self.ended_sessions.iter().map(|(&id, &ended)| (ended.plus_ms(caps::RETAIN_SESSION_MS), id));
        let mut over: Vec<(Time, SessionId)> = ended.filter(|(at, _)| *at <= self.now).collect();
        over.sort();
        for (_, id) in over.into_iter().take(caps::FORGOTTEN) {
            self.ended_sessions.remove(&id);
        }
    }

    /// Ends sessions, timeouts, claims, leases of programs and `good_until`, in this order.
    pub fn end_what_is_over(&mut self) -> Swept {
        self.end_over(usize::MAX)
    }

    /// The namespace as a claim would find it now: what is over has ended, but of jobs that expire in line only the
    /// first thousand.
    pub fn foresee(&self) -> Self {
        let mut foreseen = self.clone();
        if self.flaw != Flaw::ViewsCountTheDead {
            foreseen.end_over(1_000);
        }
        foreseen
    }

    fn end_over(&mut self, most_expired: usize) -> Swept {
        let mut swept = Swept::default();
        for session in self.sessions_over() {
            swept.sessions += 1;
            let (attempts, claims) = self.end_session(session);
            swept.attempts += attempts;
            swept.claims += claims;
        }
        swept.attempts += self.end_timeouts();
        swept.claims += self.end_claims();
        swept.slots = self.end_leases();
        swept.expired = self.expire(most_expired);
        swept
    }

    fn sessions_over(&self) -> Vec<SessionId> {
        let is_over = |session: &&Session| {
            let ahead_ms = if self.flaw == Flaw::FastClock { session.new.lease_ms / 2 } else { 0 };
            session.lease_until <= self.now.plus_ms(ahead_ms)
        };
        let over = self.sessions.iter().filter(is_over);
        let mut sessions: Vec<(Time, SessionId)> =
            over.map(|session| (session.lease_until, session.new.id)).collect();
        if self.flaw == Flaw::SweepStarved {
            let owners = self.owners_by_token();
            let page = &owners[..owners.len().min(FLAWED_PAGE)];
            sessions.retain(|(_, id)| page.contains(id) || !owners.contains(id));
        }
        sessions.sort();
        if self.flaw == Flaw::SweepStopsAfterPage {
            sessions.truncate(FLAWED_PAGE);
        }
        sessions.into_iter().map(|(_, id)| id).collect()
    }

    /// The owner of every running job, the oldest claim first.
    fn owners_by_token(&self) -> Vec<SessionId> {
        let mut holdings: Vec<_> = self.jobs.iter().filter_map(|job| job.holding.as_ref()).collect();
        holdings.sort_by_key(|holding| holding.token);
        holdings.into_iter().map(|holding| holding.session).collect()
    }

    /// Ends a session with its attempts and its claims; returns how many claims.
    pub fn end_session(&mut self, session: SessionId) -> (u64, u64) {
        let held = |at: &usize| self.jobs[*at].holding.as_ref().is_some_and(|h| h.session == session);
        let mut held: Vec<usize> = (0..self.jobs.len()).filter(held).collect();
        held.sort_by_key(|&at| self.jobs[at].holding.as_ref().map(|h| h.token));
        for &at in &held {
            self.end_attempt(at, AttemptOutcome::LeaseEnded, Some("lease ended".into()), None, None);
        }
        let mut claimed = self.claimed_by(session);
        claimed.retain(|_| self.flaw != Flaw::DeadWorkersClaimsStay);
        for &at in &claimed {
            self.give_back(at);
        }
        self.sessions.retain(|s| s.new.id != session);
        self.ended_sessions.insert(session, self.now);
        (held.len() as u64, claimed.len() as u64)
    }

    fn end_timeouts(&mut self) -> u64 {
        if self.flaw == Flaw::TimeoutNeverEnforced {
            return 0;
        }
        let over = |at: usize| {
            let holding = self.jobs[at].holding.as_ref()?;
            Some((holding.timeout_at().filter(|&moment| moment <= self.now)?, holding.token, at))
        };
        let mut over: Vec<_> = (0..self.jobs.len()).filter_map(over).collect();
        over.sort();
        for &(_, _, at) in &over {
            self.take_away(at, AttemptOutcome::TimedOut, "timed out");
        }
        over.len() as u64
    }

    fn expire(&mut self, most: usize) -> u64 {
        let running_too = self.flaw == Flaw::GoodUntilEndsRunning;
        let over = |at: usize| {
            let job = &self.jobs[at];
            let waits = job.state == JobState::Pending || running_too && job.is_running();
            let until = job.new.good_until.filter(|&until| waits && until <= self.now)?;
            Some((until, job.acceptance, at))
        };
        let mut over: Vec<_> = (0..self.jobs.len()).filter_map(over).collect();
        over.sort();
        over.truncate(most);
        for &(_, _, at) in &over {
            self.jobs[at].holding = None;
            self.finish(at, JobState::Expired);
        }
        over.len() as u64
    }
}
