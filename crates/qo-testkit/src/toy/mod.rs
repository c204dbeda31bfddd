//! A second store, written from `docs/rules.md` and not from the rule book: plain, slow, and small enough to be read in
//! one go. It shares the types and their stateless `check`s with `qo-core` and nothing else, so where the two disagree,
//! one of them is wrong.
//!
//! Every rule is in one place, and a [`Flaw`] can break exactly one of them. So the museum tests whether the suite
//! notices.

mod apps;
mod claim;
mod explain;
mod flaw;
mod history;
mod limits;
mod over;
mod prefetch;
mod schedule;
mod session;
mod settle;
mod slot;
mod state;
mod submit;
mod token;
mod views;
mod work;
mod workflow;

pub use flaw::Flaw;

use crate::{Fixture, Fixtures, START};
use async_trait::async_trait;
use qo_core::{AuditEntry, AuditText, Deed, NewToken, Token, TokenId};
use qo_core::{
    Change, Changed, Claim, Clock, Configuration, Cursor, Error, ErrorKind, Exchange, ExchangeReply, Push,
    Pushed,
};
use qo_core::{
    Explanation, FenceToken, GroupDetail, GroupPage, GroupRef, JobDetail, JobFilter, JobId, JobPage,
};
use qo_core::{
    JobState, LeaseId, ManualClock, Name, NewJob, NewSession, OpenedSession, Over, QueueStatus, Result,
};
use qo_core::{
    ScheduleStatus, SessionId, SlotLease, SlotRequest, Steer, Store, Submitted, Swept, TaskOptions,
};
use qo_core::{Time, Work, WorkerStatus, WorkflowPage, WorkflowStatus};
use state::Toy;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// The naive store.
pub struct ToyStore {
    clock: Arc<dyn Clock>,
    toy: Mutex<Toy>,
}

impl ToyStore {
    /// An empty toy that reads `clock` and has one flaw, or [`Flaw::None`].
    pub fn new(clock: Arc<dyn Clock>, flaw: Flaw) -> Self {
        Self { clock, toy: Mutex::new(Toy { flaw, ..Toy::default() }) }
    }

    /// The state, at the time now. A poisoned lock is taken all the same: the panic of the other test says why.
    fn toy(&self) -> MutexGuard<'_, Toy> {
        let mut toy = self.toy.lock().unwrap_or_else(PoisonError::into_inner);
        toy.now = toy.now.max(self.clock.now());
        toy
    }
}

/// Makes toys with one flaw.
#[derive(Debug, Clone, Copy, Default)]
pub struct ToyFixtures(pub Flaw);

#[async_trait]
impl Fixtures for ToyFixtures {
    async fn fresh(&self) -> Fixture {
        let clock = Arc::new(ManualClock::new(START));
        Fixture { store: Arc::new(ToyStore::new(clock.clone(), self.0)), clock }
    }
}

fn not_found(what: impl std::fmt::Display) -> Error {
    Error::new(ErrorKind::NotFound, format!("{what} is not here"))
}

fn fenced(what: impl std::fmt::Display) -> Error {
    Error::new(ErrorKind::Fenced, format!("{what} owns nothing"))
}

fn conflict(what: impl std::fmt::Display) -> Error {
    Error::new(ErrorKind::Conflict, what.to_string())
}

fn at_most(field: &str, value: usize, most: usize) -> Result<()> {
    if value <= most {
        Ok(())
    } else {
        Err(Error::invalid(field, value, format_args!("must be at most {most}")))
    }
}

#[async_trait]
impl Store for ToyStore {
    async fn now(&self) -> Result<Time> {
        Ok(self.toy().now)
    }

    async fn submit(&self, jobs: Vec<NewJob>) -> Result<Vec<Result<Submitted>>> {
        self.toy().submit(jobs)
    }

    async fn cancel(&self, jobs: Vec<JobId>) -> Result<Vec<Result<JobState>>> {
        self.toy().cancel(&jobs)
    }

    async fn job(&self, job: JobId) -> Result<JobDetail> {
        self.toy().job(job)
    }

    async fn jobs(&self, filter: JobFilter, after: Option<Cursor>, limit: usize) -> Result<JobPage> {
        self.toy().jobs(&filter, after, limit)
    }

    async fn explain(&self, job: JobId) -> Result<Explanation> {
        self.toy().explain(job)
    }

    async fn register(&self, tasks: Vec<TaskOptions>) -> Result<Pushed> {
        self.toy().register(tasks)
    }

    async fn configure(&self, configuration: Configuration) -> Result<Pushed> {
        self.toy().configure(configuration)
    }

    async fn configurations(&self) -> Result<Vec<Configuration>> {
        Ok(self.toy().apps.clone())
    }

    async fn pushes(&self) -> Result<Vec<Push>> {
        Ok(self.toy().pushes.iter().rev().cloned().collect())
    }

    async fn set_limit(&self, group: GroupRef, limit: u32) -> Result<()> {
        self.toy().set_limit(group, limit)
    }

    async fn unset_limit(&self, group: GroupRef) -> Result<()> {
        self.toy().unset_limit(&group)
    }

    async fn pause_queue(&self, queue: Name, paused: bool) -> Result<()> {
        self.toy().pause_queue(queue, paused);
        Ok(())
    }

    async fn groups(&self, after: Option<GroupRef>, limit: usize) -> Result<GroupPage> {
        self.toy().foresee().groups(after.as_ref(), limit)
    }

    async fn group(&self, group: GroupRef) -> Result<GroupDetail> {
        self.toy().foresee().group(&group)
    }

    async fn release_slot(&self, group: GroupRef, slot: FenceToken) -> Result<()> {
        self.toy().release_slot(&group, slot)
    }

    async fn queues(&self) -> Result<Vec<QueueStatus>> {
        Ok(self.toy().foresee().queues())
    }

    async fn workers(&self) -> Result<Vec<WorkerStatus>> {
        Ok(self.toy().foresee().workers())
    }

    async fn over(&self) -> Result<Over> {
        Ok(self.toy().over())
    }

    async fn open_session(&self, session: NewSession) -> Result<OpenedSession> {
        self.toy().open_session(session)
    }

    async fn exchange(&self, exchange: Exchange) -> Result<ExchangeReply> {
        self.toy().exchange(&exchange)
    }

    async fn close_session(&self, session: SessionId) -> Result<()> {
        self.toy().close_session(session);
        Ok(())
    }

    async fn sweep(&self) -> Result<Swept> {
        Ok(self.toy().sweep())
    }

    async fn retry(&self, jobs: Vec<JobId>) -> Result<Vec<Result<JobState>>> {
        self.toy().retry(&jobs)
    }

    async fn change_matching(
        &self,
        change: Change,
        filter: JobFilter,
        after: Option<Cursor>,
        limit: usize,
    ) -> Result<Changed> {
        self.toy().change_matching(change, &filter, after, limit)
    }

    async fn workflows(&self, after: Option<Name>, limit: usize) -> Result<WorkflowPage> {
        self.toy().workflows(after.as_ref(), limit)
    }

    async fn workflow(&self, workflow: Name) -> Result<WorkflowStatus> {
        self.toy().workflow(&workflow)
    }

    async fn steer_workflow(&self, workflow: Name, steer: Steer) -> Result<()> {
        self.toy().steer(&workflow, steer)
    }

    async fn acquire_slots(&self, request: SlotRequest) -> Result<Option<SlotLease>> {
        self.toy().acquire(&request)
    }

    async fn extend_slots(&self, lease: LeaseId, token: FenceToken, lease_ms: u64) -> Result<SlotLease> {
        self.toy().extend(lease, token, lease_ms)
    }

    async fn return_slots(&self, lease: LeaseId, token: FenceToken) -> Result<()> {
        self.toy().give_slots_back(lease, token)
    }

    async fn schedules(&self) -> Result<Vec<ScheduleStatus>> {
        Ok(self.toy().schedules.values().cloned().collect())
    }

    async fn enable_schedule(&self, schedule: Name, enabled: bool) -> Result<()> {
        self.toy().enable_schedule(&schedule, enabled)
    }

    async fn trigger_schedule(&self, schedule: Name, job: JobId) -> Result<Submitted> {
        self.toy().trigger_schedule(&schedule, job)
    }

    async fn create_token(&self, token: NewToken, by: AuditText) -> Result<()> {
        self.toy().create_token(token, by)
    }

    async fn revoke_token(&self, token: TokenId, by: AuditText) -> Result<()> {
        self.toy().revoke_token(token, by)
    }

    async fn tokens(&self) -> Result<Vec<Token>> {
        Ok(self.toy().tokens())
    }

    async fn record(&self, deed: Deed) -> Result<()> {
        self.toy().record(deed);
        Ok(())
    }

    async fn audit(&self, before: Option<u64>, limit: usize) -> Result<Vec<AuditEntry>> {
        self.toy().audit(before, limit)
    }

    async fn work(&self, session: SessionId, claim: Claim) -> Result<Work> {
        self.toy().work(session, claim)
    }

    async fn keep_log(&self, token: FenceToken, log: String) -> Result<()> {
        self.toy().keep_log(token, &log);
        Ok(())
    }

    async fn log(&self, token: FenceToken) -> Result<Option<String>> {
        Ok(self.toy().logs.get(&token).cloned())
    }
}
