//! The ledger that the checkers keep, from the history alone.
//!
//! A [`Ledger`] reads the calls and answers in the store's order and derives which job or program holds which slots. It
//! decides nothing: which job is granted comes from the answers. What answers do not say (leases and timeouts that
//! ended, jobs that expired) follows from `docs/rules.md`. The ledger implements that a second time, naively, so that
//! the store's own bookkeeping is never asked to confirm itself.
//!
//! Watches get everything that it derives as a [`Fact`], *before* the ledger changes.

mod bulk;
mod claims;
mod facts;
mod groups;
mod jobs;
mod leases;
mod programs;
mod schedules;
mod workflows;

pub use claims::Claimed;
pub use facts::{AcquireVerdict, ClaimEnd, Fact, Grant, StartVerdict, Tell, Verdict, Walked};
pub use groups::{GroupIndex, Groups};
pub use jobs::{Counted, Holding, Job, Order};
pub use leases::Session;
pub use programs::Program;
pub use schedules::Planned;
pub use workflows::Workflow;

use qo_core::{
    Answer, AttemptOutcome, Command, Configuration, Cursor, Exchange, ExchangeReply, FenceToken, GroupRef,
    JobId,
};
use qo_core::{JobState, Key, LeaseId, Name, Outcome, Result, Retention, SessionId, Settle, SlotsFreedBy};
use qo_core::{Submitted, Swept, TaskOptions, Time};
use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};

/// Which job or program holds what, recomputed.
#[derive(Debug, Clone, Default)]
pub struct Ledger {
    /// Store time of the last entry.
    pub now: Time,
    /// The latest store time of any entry so far: differs from `now` only if calls were concurrent.
    pub latest: Time,
    /// Whether several processes called at once, instead of one call after another.
    pub concurrent: bool,
    /// Every job that was accepted, in that order.
    pub jobs: Vec<Job>,
    /// Groups, their limits and their slots.
    pub groups: Groups,
    /// Indices of pending jobs.
    pub pending: BTreeSet<usize>,
    /// Indices of running jobs, by the token that owns each.
    pub running: BTreeMap<FenceToken, usize>,
    /// Indices of claimed jobs that have not started, by the token that claims each.
    pub claims: BTreeMap<FenceToken, usize>,
    /// Programs that hold slots.
    pub programs: BTreeMap<LeaseId, Program>,
    /// Workflows that are remembered.
    pub workflows: BTreeMap<Name, Workflow>,
    /// Schedules that are configured.
    pub schedules: BTreeMap<Name, Planned>,
    /// Indices of finished jobs that are remembered.
    pub finished: BTreeSet<usize>,
    /// Sessions that have not ended.
    pub sessions: BTreeMap<SessionId, Session>,
    /// Queues that give no jobs.
    pub paused: HashSet<Name>,
    /// Priorities of queues that have one.
    pub priorities: HashMap<Name, u32>,
    /// Jobs whose time to be remembered is over.
    pub forgotten: HashSet<JobId>,
    retention: Retention,
    cursors: BTreeMap<Cursor, usize>,
    ended_sessions: HashSet<SessionId>,
    tasks: HashMap<Name, TaskOptions>,
    /// By app and task.
    registered: HashMap<(Name, Name), TaskOptions>,
    /// What each app's configuration says, the newest push last.
    apps: Vec<Configuration>,
    by_id: HashMap<JobId, usize>,
    by_idempotency_key: HashMap<Key, usize>,
}

impl Ledger {
    /// The ledger of concurrent calls.
    pub fn concurrent() -> Self {
        Self { concurrent: true, ..Self::default() }
    }

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
                        self.accept(job, None);
                    }
                }
            }
            (Command::Cancel(jobs), Ok(Answer::Cancelled(results))) => {
                for (&job, result) in jobs.iter().zip(results) {
                    self.cancel(job, result, tell);
                }
            }
            (Command::OpenSession(new), Ok(Answer::Opened(_))) => self.open(new),
            (Command::CloseSession(session), Ok(_)) => drop(self.end_session(*session, tell)),
            (Command::Sweep, Ok(Answer::Swept(swept))) => {
                let mut over = Swept::default();
                self.end_what_is_over(&mut over, tell);
                over.fired = self.fire(tell);
                over.forgotten = self.forget(tell);
                tell(self, &Fact::Swept(*swept, over));
            }
            (Command::PauseQueue(queue, true), Ok(_)) => drop(self.paused.insert(queue.clone())),
            (Command::PauseQueue(queue, false), Ok(_)) => drop(self.paused.remove(queue)),
            (Command::SetLimit(group, limit), Ok(_)) => self.groups.set_operator(group, Some(*limit)),
            (Command::UnsetLimit(group), Ok(_)) => self.groups.set_operator(group, None),
            (Command::Configure(configuration), Ok(_)) => {
                self.configure(configuration);
            }
            (Command::Register(tasks), Ok(_)) => {
                for task in tasks {
                    // The same again changes nothing, not even which app is the newest.
                    let said = (task.app.clone(), task.task.clone());
                    if self.registered.insert(said, task.clone()).as_ref() != Some(task) {
                        self.groups.register(task);
                        self.tasks.insert(task.task.clone(), task.clone());
                    }
                }
            }
            (Command::AcquireSlots(request), answer) => self.acquire(request, answer, tell),
            (Command::ExtendSlots { lease, token, lease_ms }, answer) => {
                self.hold(*lease, *token, Some(*lease_ms), answer, tell);
            }
            (Command::ReturnSlots(lease, token), answer) => self.hold(*lease, *token, None, answer, tell),
            (Command::SteerWorkflow(workflow, steer), answer) => self.steer(workflow, *steer, answer, tell),
            (Command::Retry(jobs), Ok(Answer::Retried(results))) => {
                jobs.iter().zip(results).for_each(|(&job, result)| self.retry(job, result, tell));
            }
            (Command::ChangeMatching { change, filter, after, limit }, Ok(Answer::Changed(changed))) => {
                self.change_matching(*change, filter, *after, *limit, *changed, tell);
            }
            (Command::EnableSchedule(schedule, enabled), answer) => {
                self.enable(schedule, *enabled, answer, tell);
            }
            (Command::TriggerSchedule(schedule, job), answer) => self.trigger(schedule, *job, answer, tell),
            _ => {}
        }
    }

    /// A push replaces what its app said; of all that apps say, the newest counts. The same again changes nothing.
    fn configure(&mut self, new: &Configuration) {
        let before = self.apps.iter().find(|said| said.app == new.app);
        if before.map_or(new.is_empty(), |before| before == new) {
            return;
        }
        self.apps.retain(|said| said.app != new.app);
        self.apps.push(new.clone());
        let (mut limits, mut schedules) = (BTreeMap::new(), BTreeMap::new());
        self.priorities.clear();
        self.retention = Retention::default();
        for said in &self.apps {
            limits.extend(said.limits.clone());
            schedules.extend(said.schedules.clone());
            self.priorities.extend(said.queue_priorities.clone());
            let (all, says) = (&mut self.retention, &said.retention);
            all.succeeded_ms = says.succeeded_ms.unwrap_or(all.succeeded_ms);
            all.failed_ms = says.failed_ms.unwrap_or(all.failed_ms);
            all.cancelled_ms = says.cancelled_ms.unwrap_or(all.cancelled_ms);
            all.expired_ms = says.expired_ms.unwrap_or(all.expired_ms);
        }
        self.groups.configure(&limits);
        self.plan(&schedules);
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
        for (start, result) in exchange.starts.iter().zip(&reply.started) {
            self.start(exchange.session, start, result, tell);
        }
        self.report(exchange.session, &exchange.progress);
        self.renew(exchange, reply, tell);
        let held_too_long = self.has_overdue_claims(exchange.session);
        self.end_what_is_over(&mut Swept::default(), tell);
        self.fire(tell);
        let mut granted = Vec::new();
        for claimed in &reply.claimed {
            let (job, token) = (self.find(claimed.id), claimed.token);
            let (session, id) = (exchange.session, claimed.id);
            tell(self, &Fact::Granted(&Grant { session, id, token, job, claimed: Some(claimed) }));
            if let Some(job) = job {
                self.grant(job, session, token, claimed.timeout_ms);
                granted.push(job);
            }
        }
        tell(
            self,
            &Fact::Walked(&Walked { exchange, taken: &granted, before: &[], ahead: false, held_too_long }),
        );
        for prefetched in &reply.prefetched {
            self.prefetch(exchange.session, prefetched, tell);
        }
        let ahead: Vec<usize> = reply.prefetched.iter().filter_map(|claim| self.find(claim.job.id)).collect();
        tell(
            self,
            &Fact::Walked(&Walked { exchange, taken: &ahead, before: &granted, ahead: true, held_too_long }),
        );
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
        if let (Verdict::GivesBack(_), Ok(_)) = (verdict, result) {
            self.give_back(self.by_id[&settle.job], ClaimEnd::Released, tell);
        }
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
        if job.claimed.is_some_and(|claimed| claimed.token == settle.token && claimed.session == session) {
            let then = if job.is_spoiled(self.now) { JobState::Expired } else { JobState::Pending };
            let released = settle.outcome == Outcome::Release;
            return if released { Verdict::GivesBack(then) } else { Verdict::NotStarted };
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
            JobState::Pending | JobState::Claimed => JobState::Cancelled,
            other => other,
        });
        tell(self, &Fact::Cancelled(id, result, expected));
        if let Some(index) = job {
            self.call_off(index, tell);
        }
    }

    fn release(&mut self, group: &GroupRef, slot: FenceToken, answer: &Result<Answer>, tell: &mut Tell<'_>) {
        let index = self.groups.index(group);
        let within = |needs: &[(GroupIndex, u32)]| {
            needs.iter().any(|&(taken, _)| taken == index || self.groups.every_key(taken) == Some(index))
        };
        let job = self.running.get(&slot).copied().filter(|&job| within(&self.jobs[job].needs));
        let program = self.programs.iter().find(|(_, held)| held.lease.token == slot && within(&held.needs));
        let program = program.map(|(&lease, _)| lease);
        tell(self, &Fact::Released(group, slot, answer, job.is_some() || program.is_some()));
        if answer.is_err() {
            return;
        }
        if let Some(job) = job {
            self.take_away(job, slot, AttemptOutcome::ReleasedByOperator, tell);
        }
        if let Some(lease) = program {
            self.free_slots(lease, SlotsFreedBy::Operator, tell);
        }
    }
}
