//! Sessions in the ledger, and what ends by time.

use super::{ClaimEnd, Fact, Ledger, Tell};
use qo_core::{
    AttemptOutcome, Exchange, ExchangeReply, FenceToken, JobState, Name, NewJob, NewSession, Outcome,
};
use qo_core::{LeaseId, SessionId, SlotsFreedBy, Swept, Time};

/// A session that has not ended.
#[derive(Debug, Clone)]
pub struct Session {
    /// The worker's name.
    pub worker: Name,
    /// When it ends unless it is renewed.
    pub lease_until: Time,
    /// How long each exchange makes it live.
    pub lease_ms: u64,
    /// How many jobs it can run at once.
    pub permits: u32,
    /// How many more it could take when it last said so.
    pub free_permits: u32,
    /// It takes no more jobs.
    pub draining: bool,
    /// The number of its last exchange; 0 before the first.
    pub number: u64,
    /// What that one was answered.
    pub last_reply: Option<Box<ExchangeReply>>,
    tasks: Vec<Name>,
    queues: Vec<Name>,
}

impl Session {
    /// Fewer than a tenth of its permits are free.
    pub fn is_saturated(&self) -> bool {
        u64::from(self.free_permits) * 10 < u64::from(self.permits)
    }

    /// Whether it has a handler for the job and serves its queue.
    pub fn serves(&self, job: &NewJob) -> bool {
        self.tasks.contains(&job.task) && (self.queues.is_empty() || self.queues.contains(&job.queue))
    }
}

/// How a settle's outcome is remembered, and the delay that it asks for.
pub(super) fn attempt_outcome(outcome: &Outcome) -> (AttemptOutcome, Option<u64>) {
    match outcome {
        Outcome::Succeed { .. } => (AttemptOutcome::Succeeded, None),
        Outcome::Retry { delay_ms, .. } => (AttemptOutcome::Retried, Some(*delay_ms)),
        Outcome::Fail { .. } => (AttemptOutcome::Failed, None),
        Outcome::Snooze { delay_ms } => (AttemptOutcome::Snoozed, Some(*delay_ms)),
        Outcome::Release => (AttemptOutcome::Released, None),
        Outcome::Cancelled => (AttemptOutcome::Cancelled, None),
    }
}

impl Ledger {
    /// How many jobs a session owns.
    pub fn owned(&self, session: SessionId) -> u32 {
        let owns = |job: &&usize| self.jobs[**job].holding.is_some_and(|holding| holding.session == session);
        self.running.values().filter(owns).count() as u32
    }

    pub(super) fn open(&mut self, new: &NewSession) {
        if self.sessions.contains_key(&new.id) || self.ended_sessions.contains(&new.id) {
            return;
        }
        let session = Session {
            worker: new.worker.clone(),
            lease_until: self.now.plus_ms(new.lease_ms),
            lease_ms: new.lease_ms,
            permits: new.permits,
            free_permits: new.permits,
            draining: false,
            number: 0,
            last_reply: None,
            tasks: new.tasks.clone(),
            queues: new.queues.clone(),
        };
        self.sessions.insert(new.id, session);
    }

    pub(super) fn renew(&mut self, exchange: &Exchange, reply: &ExchangeReply, tell: &mut Tell<'_>) {
        let is_idle = self.owned(exchange.session) + self.claimed_by(exchange.session) == 0;
        let session = self.sessions.get_mut(&exchange.session).expect("the caller found it");
        let lease_ms = exchange.idle_ms.filter(|_| is_idle).unwrap_or(session.lease_ms);
        session.lease_until = self.now.plus_ms(lease_ms);
        session.number = exchange.number;
        session.draining = exchange.draining;
        let run = reply.started.iter().flatten().filter(|started| started.run.is_some()).count();
        session.free_permits = exchange.free_permits.saturating_sub((run + reply.claimed.len()) as u32);
        session.last_reply = Some(Box::new(reply.clone()));
        if exchange.draining {
            self.give_all_back(exchange.session, ClaimEnd::Drained, tell);
        }
    }

    /// The ledger as a claim would find it now: what is over has ended.
    pub fn foresee(&self) -> Self {
        let mut foreseen = self.clone();
        foreseen.end_what_is_over(&mut Swept::default(), &mut |_, _| ());
        foreseen
    }

    /// The ledger that a view of one job must agree with: as a claim would find it, unless the job would end there. A
    /// job has ended only when a command has ended it.
    pub fn shown<'a>(&'a self, foreseen: &'a Self, index: usize) -> &'a Self {
        let would_end = foreseen.jobs[index].state.is_terminal() && !self.jobs[index].state.is_terminal();
        if would_end { self } else { foreseen }
    }

    /// Ends sessions, timeouts, claims, programs' leases and `good_until` that are over now, in this order, and
    /// counts them.
    pub(super) fn end_what_is_over(&mut self, count: &mut Swept, tell: &mut Tell<'_>) {
        let running_before = self.running.len();
        let mut over: Vec<(Time, SessionId)> = self
            .sessions
            .iter()
            .map(|(&id, s)| (s.lease_until, id))
            .filter(|(end, _)| *end <= self.now)
            .collect();
        over.sort_unstable();
        for (_, session) in over {
            count.sessions += 1;
            count.claims += self.end_session(session, tell);
        }
        let mut late: Vec<(Time, FenceToken, usize)> = self
            .running
            .iter()
            .filter_map(|(&token, &job)| Some((self.jobs[job].holding?.timeout_at?, token, job)))
            .filter(|(at, ..)| *at <= self.now)
            .collect();
        late.sort_unstable();
        for (_, token, job) in late {
            self.take_away(job, token, AttemptOutcome::TimedOut, tell);
        }
        count.attempts += (running_before - self.running.len()) as u64;
        let lapsed = |job: &usize| self.jobs[*job].claimed.is_some_and(|claimed| claimed.until <= self.now);
        for job in self.claims.values().copied().filter(lapsed).collect::<Vec<_>>() {
            count.claims += 1;
            self.give_back(job, ClaimEnd::Over, tell);
        }
        let gone = |id: &LeaseId| self.programs[id].lease.lease_until <= self.now;
        for lease in self.programs.keys().copied().filter(gone).collect::<Vec<_>>() {
            count.slots += 1;
            self.free_slots(lease, SlotsFreedBy::LeaseEnd, tell);
        }
        let spoiled = |job: &usize| self.jobs[*job].is_spoiled(self.now);
        for job in self.pending.iter().copied().filter(spoiled).collect::<Vec<_>>() {
            count.expired += 1;
            self.drop_pending(job, JobState::Expired, tell);
        }
    }

    /// Ends a session; how many claims ended with it.
    pub(super) fn end_session(&mut self, session: SessionId, tell: &mut Tell<'_>) -> u64 {
        let owned = |(&token, &job): (&FenceToken, &usize)| {
            self.jobs[job].holding.filter(|holding| holding.session == session).map(|_| (token, job))
        };
        for (token, job) in self.running.iter().filter_map(owned).collect::<Vec<_>>() {
            self.take_away(job, token, AttemptOutcome::LeaseEnded, tell);
        }
        let claims = self.give_all_back(session, ClaimEnd::SessionEnded, tell);
        if self.sessions.remove(&session).is_some() {
            self.ended_sessions.insert(session);
        }
        claims
    }

    pub(super) fn take_away(
        &mut self,
        job: usize,
        token: FenceToken,
        outcome: AttemptOutcome,
        tell: &mut Tell<'_>,
    ) {
        let then = self.jobs[job].state_after(outcome, self.now);
        tell(self, &Fact::Ended { job, token, outcome, then });
        self.end_attempt(job, token, outcome, then);
    }
}
