//! Wrapping a store: what recording, faulty and sabotaged stores share.
//!
//! The `Store` trait has some forty-five methods, but only two kinds: a method that changes something is a [`Command`]
//! and an [`Answer`], the others only look. An [`Intercept`] sees these two kinds; [`Intercepted`] implements the trait
//! once for all wrappers.

use async_trait::async_trait;
use qo_core::{Answer, AuditEntry, AuditText, Deed, NewToken, Token, TokenId};
use qo_core::{Change, Changed, Claim, Command, Configuration, Cursor, Error, ErrorKind, Exchange};
use qo_core::{
    ExchangeReply, Explanation, FenceToken, GroupDetail, GroupPage, GroupRef, JobDetail, JobFilter,
};
use qo_core::{
    JobId, JobPage, JobState, LeaseId, Name, NewJob, NewSession, OpenedSession, Over, Push, Pushed,
    QueueStatus, Result,
};
use qo_core::{
    ScheduleStatus, SessionId, SlotLease, SlotRequest, Steer, Store, Submitted, Swept, TaskOptions,
};
use qo_core::{Time, Work, WorkerStatus, WorkflowPage, WorkflowStatus};
use std::time::Duration;

/// Decides what happens to the calls to a store.
#[async_trait]
pub trait Intercept: Send + Sync + 'static {
    /// A call that may change something.
    async fn command(&self, command: Command) -> Result<Answer>;

    /// A call that only looks: the store to look into, or why it cannot be reached.
    fn look(&self) -> Result<&dyn Store>;

    /// An exchange that only asks for work. Defaults to skipping it where there is none, and else to the command.
    async fn fetch(&self, exchange: Exchange) -> Result<Option<ExchangeReply>> {
        if !self.work(exchange.session, exchange.claim).await?.now {
            return Ok(None);
        }
        match self.command(Command::Exchange(exchange)).await? {
            Answer::Exchanged(reply) => Ok(Some(*reply)),
            other => Err(Error::new(ErrorKind::Internal, format!("another question's answer: {other:?}"))),
        }
    }

    /// Whether there is work. Defaults to the answer of the store that a worker listens to.
    async fn work(&self, session: SessionId, claim: Claim) -> Result<Work> {
        self.listen()?.work(session, claim).await
    }

    /// Whether a renewal costs something. Defaults to the answer of the store that a worker listens to.
    fn renewals_cost(&self) -> bool {
        self.listen().is_ok_and(|store| store.renewals_cost())
    }

    /// Whether the store was notified of jobs. Defaults to the answer of the store that a worker listens to.
    fn told_of_jobs(&self, seen: u64) -> bool {
        self.listen().is_ok_and(|store| store.told_of_jobs(seen))
    }

    /// The store that a worker listens to. It is always the same one, because the changes that a worker has seen in one
    /// store mean nothing in another. Defaults to the one to look into.
    fn listen(&self) -> Result<&dyn Store> {
        self.look()
    }
}

/// A store whose every call goes through an [`Intercept`].
#[derive(Debug)]
pub struct Intercepted<I>(pub I);

macro_rules! answered {
    ($self:ident, $command:expr, $answer:ident) => {
        match $self.0.command($command).await? {
            Answer::$answer(answer) => Ok(answer),
            other => Err(Error::new(ErrorKind::Internal, format!("another question's answer: {other:?}"))),
        }
    };
}

#[async_trait]
impl<I: Intercept> Store for Intercepted<I> {
    async fn now(&self) -> Result<Time> {
        self.0.look()?.now().await
    }

    async fn submit(&self, jobs: Vec<NewJob>) -> Result<Vec<Result<Submitted>>> {
        answered!(self, Command::Submit(jobs), Submitted)
    }

    async fn cancel(&self, jobs: Vec<JobId>) -> Result<Vec<Result<JobState>>> {
        answered!(self, Command::Cancel(jobs), Cancelled)
    }

    async fn job(&self, job: JobId) -> Result<JobDetail> {
        self.0.look()?.job(job).await
    }

    async fn jobs(&self, filter: JobFilter, after: Option<Cursor>, limit: usize) -> Result<JobPage> {
        self.0.look()?.jobs(filter, after, limit).await
    }

    async fn explain(&self, job: JobId) -> Result<Explanation> {
        self.0.look()?.explain(job).await
    }

    async fn register(&self, tasks: Vec<TaskOptions>) -> Result<Pushed> {
        answered!(self, Command::Register(tasks), Pushed)
    }

    async fn configure(&self, configuration: Configuration) -> Result<Pushed> {
        answered!(self, Command::Configure(configuration), Pushed)
    }

    async fn configurations(&self) -> Result<Vec<Configuration>> {
        self.0.look()?.configurations().await
    }

    async fn pushes(&self) -> Result<Vec<Push>> {
        self.0.look()?.pushes().await
    }

    async fn set_limit(&self, group: GroupRef, limit: u32) -> Result<()> {
        self.0.command(Command::SetLimit(group, limit)).await.map(drop)
    }

    async fn unset_limit(&self, group: GroupRef) -> Result<()> {
        self.0.command(Command::UnsetLimit(group)).await.map(drop)
    }

    async fn pause_queue(&self, queue: Name, paused: bool) -> Result<()> {
        self.0.command(Command::PauseQueue(queue, paused)).await.map(drop)
    }

    async fn groups(&self, after: Option<GroupRef>, limit: usize) -> Result<GroupPage> {
        self.0.look()?.groups(after, limit).await
    }

    async fn group(&self, group: GroupRef) -> Result<GroupDetail> {
        self.0.look()?.group(group).await
    }

    async fn release_slot(&self, group: GroupRef, slot: FenceToken) -> Result<()> {
        self.0.command(Command::ReleaseSlot(group, slot)).await.map(drop)
    }

    async fn queues(&self) -> Result<Vec<QueueStatus>> {
        self.0.look()?.queues().await
    }

    async fn workers(&self) -> Result<Vec<WorkerStatus>> {
        self.0.look()?.workers().await
    }

    async fn over(&self) -> Result<Over> {
        self.0.look()?.over().await
    }

    async fn open_session(&self, session: NewSession) -> Result<OpenedSession> {
        answered!(self, Command::OpenSession(session), Opened)
    }

    async fn exchange(&self, exchange: Exchange) -> Result<ExchangeReply> {
        answered!(self, Command::Exchange(exchange), Exchanged).map(|reply| *reply)
    }

    async fn close_session(&self, session: SessionId) -> Result<()> {
        self.0.command(Command::CloseSession(session)).await.map(drop)
    }

    async fn sweep(&self) -> Result<Swept> {
        answered!(self, Command::Sweep, Swept)
    }

    async fn retry(&self, jobs: Vec<JobId>) -> Result<Vec<Result<JobState>>> {
        answered!(self, Command::Retry(jobs), Retried)
    }

    async fn change_matching(
        &self,
        change: Change,
        filter: JobFilter,
        after: Option<Cursor>,
        limit: usize,
    ) -> Result<Changed> {
        answered!(self, Command::ChangeMatching { change, filter, after, limit }, Changed)
    }

    async fn workflows(&self, after: Option<Name>, limit: usize) -> Result<WorkflowPage> {
        self.0.look()?.workflows(after, limit).await
    }

    async fn workflow(&self, workflow: Name) -> Result<WorkflowStatus> {
        self.0.look()?.workflow(workflow).await
    }

    async fn steer_workflow(&self, workflow: Name, steer: Steer) -> Result<()> {
        self.0.command(Command::SteerWorkflow(workflow, steer)).await.map(drop)
    }

    async fn acquire_slots(&self, request: SlotRequest) -> Result<Option<SlotLease>> {
        answered!(self, Command::AcquireSlots(request), Acquired)
    }

    async fn extend_slots(&self, lease: LeaseId, token: FenceToken, lease_ms: u64) -> Result<SlotLease> {
        answered!(self, Command::ExtendSlots { lease, token, lease_ms }, Extended)
    }

    async fn return_slots(&self, lease: LeaseId, token: FenceToken) -> Result<()> {
        self.0.command(Command::ReturnSlots(lease, token)).await.map(drop)
    }

    async fn schedules(&self) -> Result<Vec<ScheduleStatus>> {
        self.0.look()?.schedules().await
    }

    async fn enable_schedule(&self, schedule: Name, enabled: bool) -> Result<()> {
        self.0.command(Command::EnableSchedule(schedule, enabled)).await.map(drop)
    }

    async fn trigger_schedule(&self, schedule: Name, job: JobId) -> Result<Submitted> {
        answered!(self, Command::TriggerSchedule(schedule, job), Triggered)?
    }

    async fn create_token(&self, token: NewToken, by: AuditText) -> Result<()> {
        self.0.command(Command::CreateToken(token, by)).await.map(drop)
    }

    async fn revoke_token(&self, token: TokenId, by: AuditText) -> Result<()> {
        self.0.command(Command::RevokeToken(token, by)).await.map(drop)
    }

    async fn tokens(&self) -> Result<Vec<Token>> {
        self.0.look()?.tokens().await
    }

    async fn record(&self, deed: Deed) -> Result<()> {
        self.0.command(Command::Record(deed)).await.map(drop)
    }

    async fn audit(&self, before: Option<u64>, limit: usize) -> Result<Vec<AuditEntry>> {
        self.0.look()?.audit(before, limit).await
    }

    async fn fetch(&self, exchange: Exchange) -> Result<Option<ExchangeReply>> {
        self.0.fetch(exchange).await
    }

    async fn work(&self, session: SessionId, claim: Claim) -> Result<Work> {
        self.0.work(session, claim).await
    }

    async fn changed(&self, seen: Option<u64>) -> Result<u64> {
        self.0.listen()?.changed(seen).await
    }

    fn told_of_jobs(&self, seen: u64) -> bool {
        self.0.told_of_jobs(seen)
    }

    fn renewals_cost(&self) -> bool {
        self.0.renewals_cost()
    }

    fn coarseness(&self) -> Duration {
        self.0.listen().map_or(Duration::ZERO, |store| store.coarseness())
    }

    fn tells_changes(&self) -> bool {
        self.0.listen().is_ok_and(|store| store.tells_changes())
    }

    async fn keep_log(&self, token: FenceToken, log: String) -> Result<()> {
        self.0.look()?.keep_log(token, log).await
    }

    async fn log(&self, token: FenceToken) -> Result<Option<String>> {
        self.0.look()?.log(token).await
    }
}
