//! What a store that keeps the rule book's own [`State`] needs: to decide a command, and to look at the state. The
//! other methods of [`Store`] follow from these two.

use crate::{Answer, Change, Changed, Claim, Command, Configuration, Cursor, Error, ErrorKind, Exchange};
use crate::{AuditEntry, AuditText, Deed, NewToken, Token, TokenId};
use crate::{ExchangeReply, Explanation, FenceToken, GroupDetail, GroupPage, GroupRef, JobDetail, JobFilter};
use crate::{
    JobId, JobPage, JobState, LeaseId, Name, NewJob, NewSession, OpenedSession, Over, Push, Pushed,
    QueueStatus, Result,
};
use crate::{ScheduleStatus, SessionId, SlotLease, SlotRequest, State, Steer, Store, Submitted, Swept};
use crate::{TaskOptions, Time, Work, WorkerStatus, WorkflowPage, WorkflowStatus, caps};
use async_trait::async_trait;
use std::time::Duration;

/// Takes the variant that a command answers with.
macro_rules! answer {
    ($self:ident, $command:expr, $variant:ident) => {
        match $self.decide($command).await? {
            Answer::$variant(value) => Ok(value),
            other => Err(Error::new(ErrorKind::Internal, format!("unexpected answer {other:?}"))),
        }
    };
}

/// A place where the rule book is kept. Every `Book` is a [`Store`].
#[async_trait]
pub trait Book: Send + Sync + 'static {
    /// Decides a command. The decision is durable before the call is answered.
    async fn decide(&self, command: Command) -> Result<Answer>;

    /// Looks at the state at store time.
    ///
    /// The look may suppose changes ([`State::at`], [`State::foresee`]). It leaves none.
    async fn look<T, F>(&self, look: F) -> Result<T>
    where
        T: Send + 'static,
        F: FnOnce(&mut State, Time) -> T + Send + 'static;

    /// What an exchange would find: [`State::work`], as of now. See [`Store::work`].
    async fn work(&self, session: SessionId, claim: Claim) -> Result<Work>;

    /// See [`Store::fetch`].
    async fn fetch(&self, exchange: Exchange) -> Result<Option<ExchangeReply>> {
        let reply: Box<ExchangeReply> = answer!(self, Command::Exchange(exchange), Exchanged)?;
        Ok(Some(*reply))
    }

    /// See [`Store::changed`].
    async fn changed(&self, seen: Option<u64>) -> Result<u64>;

    /// A job that has left the state and is still remembered, for stores that archive jobs. Defaults to none.
    async fn archived(&self, job: JobId) -> Result<Option<JobDetail>> {
        let _ = job;
        Ok(None)
    }

    /// See [`Store::finish`].
    async fn finish(&self) {}

    /// See [`Store::renewals_cost`].
    fn renewals_cost(&self) -> bool {
        false
    }

    /// See [`Store::coarseness`].
    fn coarseness(&self) -> Duration {
        Duration::ZERO
    }

    /// See [`Store::keep_log`].
    async fn keep_log(&self, token: FenceToken, log: String) -> Result<()>;

    /// See [`Store::log`].
    async fn log(&self, token: FenceToken) -> Result<Option<String>>;
}

#[async_trait]
impl<B: Book> Store for B {
    async fn now(&self) -> Result<Time> {
        self.look(|state, now| now.max(state.now())).await
    }

    async fn submit(&self, jobs: Vec<NewJob>) -> Result<Vec<Result<Submitted>>> {
        answer!(self, Command::Submit(jobs), Submitted)
    }

    async fn cancel(&self, jobs: Vec<JobId>) -> Result<Vec<Result<JobState>>> {
        answer!(self, Command::Cancel(jobs), Cancelled)
    }

    async fn retry(&self, jobs: Vec<JobId>) -> Result<Vec<Result<JobState>>> {
        answer!(self, Command::Retry(jobs), Retried)
    }

    async fn change_matching(
        &self,
        change: Change,
        filter: JobFilter,
        after: Option<Cursor>,
        limit: usize,
    ) -> Result<Changed> {
        answer!(self, Command::ChangeMatching { change, filter, after, limit }, Changed)
    }

    async fn job(&self, job: JobId) -> Result<JobDetail> {
        match self.look(move |state, now| state.at(now, |state| state.job(job))).await? {
            Err(error) if error.kind() == ErrorKind::NotFound => self.archived(job).await?.ok_or(error),
            found => found,
        }
    }

    async fn jobs(&self, filter: JobFilter, after: Option<Cursor>, limit: usize) -> Result<JobPage> {
        self.look(move |state, now| state.at(now, |state| state.jobs(&filter, after, limit))).await?
    }

    async fn explain(&self, job: JobId) -> Result<Explanation> {
        match self.look(move |state, now| state.explain_at(now, job)).await? {
            Err(error) if error.kind() == ErrorKind::NotFound => {
                let archived = self.archived(job).await?.ok_or(error)?;
                Ok(Explanation { job, state: archived.view.state, reasons: Vec::new() })
            }
            explained => explained,
        }
    }

    async fn workflows(&self, after: Option<Name>, limit: usize) -> Result<WorkflowPage> {
        self.look(move |state, now| state.at(now, |state| state.workflows(after.as_ref(), limit))).await?
    }

    async fn workflow(&self, workflow: Name) -> Result<WorkflowStatus> {
        self.look(move |state, now| state.at(now, |state| state.workflow(&workflow))).await?
    }

    async fn steer_workflow(&self, workflow: Name, steer: Steer) -> Result<()> {
        self.decide(Command::SteerWorkflow(workflow, steer)).await.map(drop)
    }

    async fn register(&self, tasks: Vec<TaskOptions>) -> Result<Pushed> {
        answer!(self, Command::Register(tasks), Pushed)
    }

    async fn configure(&self, configuration: Configuration) -> Result<Pushed> {
        answer!(self, Command::Configure(configuration), Pushed)
    }

    async fn configurations(&self) -> Result<Vec<Configuration>> {
        self.look(|state, _| state.configurations()).await
    }

    async fn pushes(&self) -> Result<Vec<Push>> {
        self.look(|state, _| state.pushes()).await
    }

    async fn set_limit(&self, group: GroupRef, limit: u32) -> Result<()> {
        self.decide(Command::SetLimit(group, limit)).await.map(drop)
    }

    async fn unset_limit(&self, group: GroupRef) -> Result<()> {
        self.decide(Command::UnsetLimit(group)).await.map(drop)
    }

    async fn pause_queue(&self, queue: Name, paused: bool) -> Result<()> {
        self.decide(Command::PauseQueue(queue, paused)).await.map(drop)
    }

    async fn groups(&self, after: Option<GroupRef>, limit: usize) -> Result<GroupPage> {
        self.look(move |state, now| state.foresee(now, |state| state.groups(after.as_ref(), limit))).await?
    }

    async fn group(&self, group: GroupRef) -> Result<GroupDetail> {
        self.look(move |state, now| state.foresee(now, |state| state.group(&group))).await?
    }

    async fn release_slot(&self, group: GroupRef, slot: FenceToken) -> Result<()> {
        self.decide(Command::ReleaseSlot(group, slot)).await.map(drop)
    }

    async fn acquire_slots(&self, request: SlotRequest) -> Result<Option<SlotLease>> {
        answer!(self, Command::AcquireSlots(request), Acquired)
    }

    async fn extend_slots(&self, lease: LeaseId, token: FenceToken, lease_ms: u64) -> Result<SlotLease> {
        answer!(self, Command::ExtendSlots { lease, token, lease_ms }, Extended)
    }

    async fn return_slots(&self, lease: LeaseId, token: FenceToken) -> Result<()> {
        self.decide(Command::ReturnSlots(lease, token)).await.map(drop)
    }

    async fn schedules(&self) -> Result<Vec<ScheduleStatus>> {
        self.look(|state, now| state.at(now, State::schedules)).await
    }

    async fn enable_schedule(&self, schedule: Name, enabled: bool) -> Result<()> {
        self.decide(Command::EnableSchedule(schedule, enabled)).await.map(drop)
    }

    async fn trigger_schedule(&self, schedule: Name, job: JobId) -> Result<Submitted> {
        answer!(self, Command::TriggerSchedule(schedule, job), Triggered)?
    }

    async fn create_token(&self, token: NewToken, by: AuditText) -> Result<()> {
        self.decide(Command::CreateToken(token, by)).await.map(drop)
    }

    async fn revoke_token(&self, token: TokenId, by: AuditText) -> Result<()> {
        self.decide(Command::RevokeToken(token, by)).await.map(drop)
    }

    async fn tokens(&self) -> Result<Vec<Token>> {
        self.look(|state, now| state.at(now, State::tokens)).await
    }

    async fn record(&self, deed: Deed) -> Result<()> {
        self.decide(Command::Record(deed)).await.map(drop)
    }

    async fn audit(&self, before: Option<u64>, limit: usize) -> Result<Vec<AuditEntry>> {
        self.look(move |state, _| state.audit_page(before, limit)).await?
    }

    async fn queues(&self) -> Result<Vec<QueueStatus>> {
        self.look(|state, now| state.foresee(now, State::queues)).await
    }

    async fn workers(&self) -> Result<Vec<WorkerStatus>> {
        self.look(|state, now| state.foresee(now, State::workers)).await
    }

    async fn over(&self) -> Result<Over> {
        self.look(|state, now| state.at(now, State::over)).await
    }

    async fn open_session(&self, session: NewSession) -> Result<OpenedSession> {
        answer!(self, Command::OpenSession(session), Opened)
    }

    async fn exchange(&self, exchange: Exchange) -> Result<ExchangeReply> {
        let reply: Box<ExchangeReply> = answer!(self, Command::Exchange(exchange), Exchanged)?;
        Ok(*reply)
    }

    async fn close_session(&self, session: SessionId) -> Result<()> {
        self.decide(Command::CloseSession(session)).await.map(drop)
    }

    async fn sweep(&self) -> Result<Swept> {
        answer!(self, Command::Sweep, Swept)
    }

    async fn fetch(&self, exchange: Exchange) -> Result<Option<ExchangeReply>> {
        Book::fetch(self, exchange).await
    }

    async fn work(&self, session: SessionId, claim: Claim) -> Result<Work> {
        Book::work(self, session, claim).await
    }

    async fn changed(&self, seen: Option<u64>) -> Result<u64> {
        Book::changed(self, seen).await
    }

    fn tells_changes(&self) -> bool {
        true
    }

    fn renewals_cost(&self) -> bool {
        Book::renewals_cost(self)
    }

    fn coarseness(&self) -> Duration {
        Book::coarseness(self)
    }

    async fn finish(&self) {
        Book::finish(self).await;
    }

    async fn keep_log(&self, token: FenceToken, mut log: String) -> Result<()> {
        let cut = log.len().saturating_sub(caps::LOG_BYTES);
        log.drain(..log.ceil_char_boundary(cut));
        Book::keep_log(self, token, log).await
    }

    async fn log(&self, token: FenceToken) -> Result<Option<String>> {
        Book::log(self, token).await
    }
}
