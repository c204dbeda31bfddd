//! Jobs that are claimed ahead of time: started, or given back.

use super::state::{Ahead, Counted, Job, Toy};
use super::{Flaw, fenced, settle::is_over};
use qo_core::{ClaimedJob, FenceToken, Granted, JobState, Result, SessionId, Start, Started};
use qo_core::{Stop, StopReason};

impl Toy {
    /// Gives a job to a session, without its slots, under the next token.
    pub fn claim_ahead(&mut self, at: usize, session: SessionId, lease_ms: u64) -> ClaimedJob {
        let token = self.next_token();
        let worker = self.session(session).expect("it claims").new.worker.clone();
        let until = self.now.plus_ms(lease_ms);
        let since = self.now;
        self.jobs[at].ahead = Some(Ahead { session, worker, token, since, until });
        self.jobs[at].state = JobState::Claimed;
        self.as_claimed(at, token)
    }

    /// The claimed jobs of a session, by token.
    pub fn claimed_by(&self, session: SessionId) -> Vec<usize> {
        let token = |at: &usize| {
            let ahead = self.jobs[*at].ahead.as_ref()?;
            (ahead.session == session).then_some(ahead.token)
        };
        let mut claimed: Vec<usize> = (0..self.jobs.len()).filter(|at| token(at).is_some()).collect();
        claimed.sort_by_key(token);
        claimed
    }

    /// Whether a token has claimed a job for a session.
    pub fn has_claimed(&self, at: usize, session: SessionId, token: FenceToken) -> bool {
        let ahead = self.jobs[at].ahead.as_ref();
        ahead.is_some_and(|ahead| ahead.session == session && ahead.token == token)
    }

    pub fn start_claimed(&mut self, session: SessionId, start: &Start) -> Result<Started> {
        let claimed = |at: &usize| self.jobs[*at].new.id == start.job;
        let at =
            (0..self.jobs.len()).find(claimed).filter(|&at| self.may_be_started(at, session, start.token));
        let at = at.ok_or_else(|| fenced(format_args!("token {} of job {}", start.token, start.job)))?;
        let not_now = is_over(self.jobs[at].new.good_until, self.now) || !self.may_start(&self.jobs[at]);
        if not_now {
            self.jobs[at].attempts_used += u32::from(self.flaw == Flaw::ParkedStartUsesAttempt);
            return Ok(Started { then: self.give_back(at), run: None });
        }
        let claim = self.jobs[at].ahead.take().expect("it is claimed");
        let ClaimedJob { mut token, timeout_ms, retry, .. } = self.start(at, session);
        if let (Flaw::StartKeepsToken, Some(holding)) = (self.flaw, &mut self.jobs[at].holding) {
            holding.token = claim.token;
            token = claim.token;
        }
        Ok(Started { then: JobState::Running, run: Some(Granted { token, timeout_ms, retry }) })
    }

    fn may_be_started(&self, at: usize, session: SessionId, token: FenceToken) -> bool {
        let by_session = self.jobs[at].ahead.as_ref().is_some_and(|ahead| ahead.session == session);
        self.has_claimed(at, session, token) || self.flaw == Flaw::StartByJob && by_session
    }

    /// Whether a claimed job may run now by its queue, its workflow and its groups.
    fn may_start(&self, job: &Job) -> bool {
        let has_room = |group, slots| {
            self.flaw == Flaw::StartExceedsLimit || self.has_room(group, slots, Counted::Running)
        };
        let held_back = |group, slots| {
            self.flaw != Flaw::StartOvertakes
                && self.reserved_for(self.claim_order(job), group, slots, Counted::Running).is_some()
        };
        !self.paused.contains(&job.new.queue)
            && self.is_next(job)
            && job.needs().iter().all(|(group, slots)| has_room(group, *slots))
            && !job.needs().iter().any(|(group, slots)| held_back(group, *slots))
    }

    /// Ends a claim without a trace; returns the state of the job after it.
    pub fn give_back(&mut self, at: usize) -> JobState {
        self.jobs[at].ahead = None;
        self.jobs[at].state = JobState::Pending;
        if is_over(self.jobs[at].new.good_until, self.now) {
            self.finish(at, JobState::Expired);
        }
        self.jobs[at].state
    }

    /// Ends the claims that are over, and tells their sessions; returns how many.
    pub fn end_claims(&mut self) -> u64 {
        let over = |at: usize| {
            let ahead = self.jobs[at].ahead.as_ref().filter(|ahead| ahead.until <= self.now)?;
            let ends = match self.flaw {
                Flaw::ExpiredClaimStarts => false,
                Flaw::DeadWorkersClaimsStay => self.session(ahead.session).is_some(),
                _ => true,
            };
            ends.then_some((ahead.until, ahead.token, ahead.session, at))
        };
        let mut over: Vec<_> = (0..self.jobs.len()).filter_map(over).collect();
        over.sort();
        for &(_, token, session, at) in &over {
            let stop = Stop { job: self.jobs[at].new.id, token, reason: StopReason::LeaseEnded };
            self.give_back(at);
            self.tell(session, stop);
        }
        over.len() as u64
    }

    /// What a session's next exchange will tell it to stop.
    pub fn tell(&mut self, session: SessionId, stop: Stop) {
        if let Some(session) = self.session_mut(session) {
            session.stops.insert(stop.token, stop);
        }
    }
}
