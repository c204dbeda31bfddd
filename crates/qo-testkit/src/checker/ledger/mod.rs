//! The books that the checkers keep, from the history alone.
//!
//! A [`Ledger`] reads the calls and answers in the store's order and works out who holds which slots. It
//! chooses nothing: which job is granted comes from the answers. What answers do not say (leases and
//! timeouts that ended, jobs that expired) follows from `docs/rules.md`, written down here a second time,
//! naively, so that the store's own bookkeeping is never asked to confirm itself.
//!
//! Everything it finds out is told as a [`Fact`], *before* the books are changed.

mod groups;
mod jobs;
mod leases;

pub use groups::{GroupIndex, Groups};
pub use jobs::{Holding, Job};
pub use leases::Session;

use qo_core::{
    Answer, AttemptOutcome, ClaimedJob, Command, Exchange, ExchangeReply, FenceToken, GroupRef, JobId,
};
use qo_core::{JobState, Key, Name, NewJob, Result, SessionId, Settle, Submitted, Swept, TaskOptions, Time};
use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};

/// What a ledger found out, told before it is written down.
#[derive(Debug)]
pub enum Fact<'a> {
    /// A job of a submit, and what became of it.
    Submitted(&'a NewJob, &'a Result<Submitted>),
    /// A settle, its answer, and what the rules say about it.
    Settled(SessionId, &'a Settle, &'a Result<JobState>, Verdict),
    /// An attempt is over.
    Ended {
        /// Index of the job.
        job: usize,
        /// The claim that is over.
        token: FenceToken,
        /// How it ended.
        outcome: AttemptOutcome,
        /// Where that leaves the job.
        then: JobState,
    },
    /// A job was given to a session. The index is missing if nobody ever submitted it.
    Granted(SessionId, &'a ClaimedJob, Option<usize>),
    /// The last number of a session was answered again; whether the answer was the same.
    Repeated(&'a Exchange, bool),
    /// A session with that number was answered although it is none, or the number is wrong.
    Unfenced(&'a Exchange),
    /// An exchange is through. This one is told *after* its settles, ends and grants.
    Exchanged(&'a Exchange, &'a ExchangeReply),
    /// A sweep's own count, and what was over by the books.
    Swept(Swept, Swept),
    /// A running or pending job was called off, or not; and what the rules say.
    Cancelled(JobId, &'a Result<JobState>, Option<JobState>),
    /// An operator took a slot; whether that token held it by the books. Whether `GROUP/*` may stand for the
    /// holder's `GROUP/KEY` is left open (none).
    Released(&'a GroupRef, FenceToken, &'a Result<Answer>, Option<bool>),
    /// A pending job reached a terminal state.
    Dropped(usize, JobState),
}

/// What the rules say about a settle.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Verdict {
    /// The token owns the job; this is where the job goes.
    Owner(JobState),
    /// The token settled the job before: the recorded state. A new session of the same worker may be
    /// refused.
    Again(JobState, SessionId),
    /// The token owns nothing.
    Stale,
}

/// Told of every fact, with the books as they were before it.
pub type Tell<'a> = dyn FnMut(&Ledger, &Fact<'_>) + 'a;

/// Who holds what, recomputed.
#[derive(Debug, Default)]
pub struct Ledger {
    /// Store time of the last entry.
    pub now: Time,
    /// Every job that was accepted, in that order.
    pub jobs: Vec<Job>,
    /// Groups, their limits and their slots.
    pub groups: Groups,
    /// Indices of pending jobs.
    pub pending: BTreeSet<usize>,
    /// Indices of running jobs, by the token that owns each.
    pub running: BTreeMap<FenceToken, usize>,
    /// Sessions that have not ended.
    pub sessions: BTreeMap<SessionId, Session>,
    /// Queues that give no jobs.
    pub paused: HashSet<Name>,
    /// Priorities of queues that have one.
    pub priorities: HashMap<Name, u32>,
    ended_sessions: HashSet<SessionId>,
    tasks: HashMap<Name, TaskOptions>,
    by_id: HashMap<JobId, usize>,
    by_idempotency_key: HashMap<Key, usize>,
}

impl Ledger {
    /// Reads one call and its true answer.
    pub fn apply(&mut self, command: &Command, answer: &Result<Answer>, tell: &mut Tell<'_>) {
        match (command, answer) {
            (Command::ReleaseSlot(group, slot), answer) => self.release(group, *slot, answer, tell),
            (Command::Exchange(exchange), Ok(Answer::Exchanged(reply))) => {
                self.exchange(exchange, reply, tell)
            }
            (Command::Submit(jobs), Ok(Answer::Submitted(results))) => {
                for (job, result) in jobs.iter().zip(results) {
                    tell(self, &Fact::Submitted(job, result));
                    if let Ok(Submitted::Accepted(_)) = result {
                        self.accept(job);
                    }
                }
            }
            (Command::Cancel(jobs), Ok(Answer::Cancelled(results))) => {
                for (&job, result) in jobs.iter().zip(results) {
                    self.cancel(job, result, tell);
                }
            }
            (Command::OpenSession(new), Ok(Answer::Opened(_))) => self.open(new),
            (Command::CloseSession(session), Ok(_)) => self.end_session(*session, tell),
            (Command::Sweep, Ok(Answer::Swept(swept))) => {
                let mut over = Swept { forgotten: swept.forgotten, ..Swept::default() };
                self.end_what_is_over(&mut over, tell);
                tell(self, &Fact::Swept(*swept, over));
            }
            (Command::PauseQueue(queue, true), Ok(_)) => drop(self.paused.insert(queue.clone())),
            (Command::PauseQueue(queue, false), Ok(_)) => drop(self.paused.remove(queue)),
            (Command::SetLimit(group, limit), Ok(_)) => self.groups.set_operator(group, Some(*limit)),
            (Command::UnsetLimit(group), Ok(_)) => self.groups.set_operator(group, None),
            (Command::Configure(configuration), Ok(_)) => {
                self.groups.configure(&configuration.limits);
                self.priorities =
                    configuration.queue_priorities.iter().map(|(queue, &p)| (queue.clone(), p)).collect();
            }
            (Command::Register(tasks), Ok(_)) => {
                for task in tasks {
                    self.groups.register(&task.task, task.group(), task.limit);
                    self.tasks.insert(task.task.clone(), task.clone());
                }
            }
            _ => {}
        }
    }

    /// The index of a job.
    pub fn find(&self, job: JobId) -> Option<usize> {
        self.by_id.get(&job).copied()
    }

    /// The index of the job that took an idempotency key.
    pub fn find_idempotency_key(&self, key: &Key) -> Option<usize> {
        self.by_idempotency_key.get(key).copied()
    }

    fn exchange(&mut self, exchange: &Exchange, reply: &ExchangeReply, tell: &mut Tell<'_>) {
        match self.sessions.get(&exchange.session) {
            Some(session) if session.number == exchange.number => {
                let same = session.last_reply.as_deref() == Some(reply);
                return tell(self, &Fact::Repeated(exchange, same));
            }
            Some(session) if session.number + 1 == exchange.number => {}
            _ => return tell(self, &Fact::Unfenced(exchange)),
        }
        for (settle, result) in exchange.settles.iter().zip(&reply.settled) {
            self.settle(exchange.session, settle, result, tell);
        }
        self.renew(exchange, reply);
        self.end_what_is_over(&mut Swept::default(), tell);
        for claimed in &reply.claimed {
            let job = self.find(claimed.id);
            tell(self, &Fact::Granted(exchange.session, claimed, job));
            if let Some(job) = job {
                self.grant(job, exchange.session, claimed);
            }
        }
        tell(self, &Fact::Exchanged(exchange, reply));
    }

    fn settle(
        &mut self,
        session: SessionId,
        settle: &Settle,
        result: &Result<JobState>,
        tell: &mut Tell<'_>,
    ) {
        let verdict = self.verdict(session, settle);
        tell(self, &Fact::Settled(session, settle, result, verdict));
        if let (Verdict::Owner(then), Ok(_)) = (verdict, result) {
            let (outcome, delay_ms) = leases::attempt_outcome(&settle.outcome);
            let job = self.by_id[&settle.job];
            tell(self, &Fact::Ended { job, token: settle.token, outcome, then });
            self.jobs[job].settled.push((settle.token, session, then));
            self.end_attempt(job, settle.token, outcome, then);
            if let Some(delay_ms) = delay_ms {
                self.jobs[job].run_at = self.now.plus_ms(delay_ms);
            }
        }
    }

    fn verdict(&self, session: SessionId, settle: &Settle) -> Verdict {
        let Some(job) = self.find(settle.job).map(|index| &self.jobs[index]) else { return Verdict::Stale };
        if let Some(&(_, by, state)) = job.settled.iter().find(|(token, ..)| *token == settle.token) {
            return Verdict::Again(state, by);
        }
        match &job.holding {
            Some(holding) if holding.token == settle.token && holding.session == session => {
                Verdict::Owner(job.state_after(leases::attempt_outcome(&settle.outcome).0, self.now))
            }
            _ => Verdict::Stale,
        }
    }

    fn cancel(&mut self, id: JobId, result: &Result<JobState>, tell: &mut Tell<'_>) {
        let job = self.find(id);
        let expected = job.map(|index| match self.jobs[index].state {
            JobState::Pending => JobState::Cancelled,
            other => other,
        });
        tell(self, &Fact::Cancelled(id, result, expected));
        match job {
            Some(index) if self.jobs[index].state == JobState::Pending => {
                self.drop_pending(index, JobState::Cancelled, tell);
            }
            Some(index) if self.jobs[index].state == JobState::Running => {
                self.jobs[index].cancel_requested = true
            }
            _ => {}
        }
    }

    fn release(&mut self, group: &GroupRef, slot: FenceToken, answer: &Result<Answer>, tell: &mut Tell<'_>) {
        let index = self.groups.index(group);
        let within = |taken: usize| taken == index || self.groups.every_key(taken) == Some(index);
        let holder = self.running.get(&slot).copied();
        let holds = holder.filter(|&job| self.jobs[job].needs.iter().any(|&(taken, _)| within(taken)));
        let open = holds.is_some() && matches!(group, GroupRef::EveryKey(_));
        tell(self, &Fact::Released(group, slot, answer, (!open).then_some(holds.is_some())));
        if let (Some(job), Ok(_)) = (holds, answer) {
            self.take_away(job, slot, AttemptOutcome::ReleasedByOperator, tell);
        }
    }
}
