//! The simplest store: the rule book behind a lock, forgotten with the process. For tests, simulations and
//! trying things out (`memory:`).

use crate::{
    Answer, Change, Changed, Clock, Command, Configuration, Cursor, Error, ErrorKind, Event, Exchange,
};
use crate::{ExchangeReply, Explanation, FenceToken, GroupDetail, GroupPage, GroupRef, JobDetail, JobFilter};
use crate::{
    JobId, JobPage, JobState, LeaseId, Name, NewJob, NewSession, OpenedSession, QueueStatus, Result,
};
use crate::{ScheduleStatus, SessionId, SlotLease, SlotRequest, State, Steer, Store, Submitted, Swept};
use crate::{SystemClock, TaskOptions, Time, WorkerStatus, WorkflowPage, WorkflowStatus, decide};
use async_trait::async_trait;
use std::sync::{Arc, Mutex, MutexGuard};

/// A namespace in memory. No call waits for anything but the lock, so each is done when it is first polled.
pub struct MemoryStore {
    state: Mutex<State>,
    clock: Arc<dyn Clock>,
}

impl MemoryStore {
    /// An empty namespace on the machine's clock.
    pub fn new() -> Self {
        Self::with_clock(Arc::new(SystemClock::new()))
    }

    /// An empty namespace on a clock of your own.
    pub fn with_clock(clock: Arc<dyn Clock>) -> Self {
        Self { state: Mutex::new(State::new()), clock }
    }

    /// Carries out a command: every mutating method is a short form of this.
    pub fn command(&self, command: &Command) -> Result<Answer> {
        let mut state = self.lock()?;
        Ok(decide(&mut state, self.clock.now(), command)?.answer)
    }

    /// What [`State::audit`] finds: counts and indexes that do not follow from the rows.
    pub fn audit(&self) -> Result<Vec<String>> {
        Ok(self.lock()?.audit())
    }

    /// Looks at the state as it is now. Time passes for good: nobody else reads a log of this state, and a look that
    /// took it back would have to let it pass again, with all that became due, at the next one.
    fn look<T>(&self, look: impl FnOnce(&State) -> T) -> Result<T> {
        let mut state = self.lock()?;
        let now = self.clock.now();
        if now > state.now() {
            state.evolve(&Event::Ticked(now));
        }
        Ok(look(&state))
    }

    fn lock(&self) -> Result<MutexGuard<'_, State>> {
        // A poisoned lock means that an assertion of a guarantee failed half-way: nothing here can be trusted.
        self.state
            .lock()
            .map_err(|_| Error::new(ErrorKind::Internal, "the rule book has stopped: a guarantee was broken"))
    }
}

impl Default for MemoryStore {
    fn default() -> Self {
        Self::new()
    }
}

/// Takes the variant that a command answers with.
macro_rules! answer {
    ($answer:expr, $variant:ident) => {
        match $answer? {
            Answer::$variant(value) => Ok(value),
            other => Err(Error::new(ErrorKind::Internal, format!("unexpected answer {other:?}"))),
        }
    };
}

#[async_trait]
impl Store for MemoryStore {
    async fn now(&self) -> Result<Time> {
        Ok(self.clock.now().max(self.lock()?.now()))
    }

    async fn submit(&self, jobs: Vec<NewJob>) -> Result<Vec<Result<Submitted>>> {
        answer!(self.command(&Command::Submit(jobs)), Submitted)
    }

    async fn cancel(&self, jobs: Vec<JobId>) -> Result<Vec<Result<JobState>>> {
        answer!(self.command(&Command::Cancel(jobs)), Cancelled)
    }

    async fn job(&self, job: JobId) -> Result<JobDetail> {
        self.look(|state| state.job(job))?
    }

    async fn jobs(&self, filter: JobFilter, after: Option<Cursor>, limit: usize) -> Result<JobPage> {
        self.look(|state| state.jobs(&filter, after, limit))?
    }

    async fn explain(&self, job: JobId) -> Result<Explanation> {
        self.look(|state| state.explain(job))?
    }

    async fn register(&self, tasks: Vec<TaskOptions>) -> Result<()> {
        self.command(&Command::Register(tasks)).map(drop)
    }

    async fn configure(&self, configuration: Configuration) -> Result<()> {
        self.command(&Command::Configure(configuration)).map(drop)
    }

    async fn set_limit(&self, group: GroupRef, limit: u32) -> Result<()> {
        self.command(&Command::SetLimit(group, limit)).map(drop)
    }

    async fn unset_limit(&self, group: GroupRef) -> Result<()> {
        self.command(&Command::UnsetLimit(group)).map(drop)
    }

    async fn pause_queue(&self, queue: Name, paused: bool) -> Result<()> {
        self.command(&Command::PauseQueue(queue, paused)).map(drop)
    }

    async fn groups(&self, after: Option<GroupRef>, limit: usize) -> Result<GroupPage> {
        self.look(|state| state.groups(after.as_ref(), limit))?
    }

    async fn group(&self, group: GroupRef) -> Result<GroupDetail> {
        self.look(|state| state.group(&group))?
    }

    async fn release_slot(&self, group: GroupRef, slot: FenceToken) -> Result<()> {
        self.command(&Command::ReleaseSlot(group, slot)).map(drop)
    }

    async fn queues(&self) -> Result<Vec<QueueStatus>> {
        self.look(State::queues)
    }

    async fn workers(&self) -> Result<Vec<WorkerStatus>> {
        self.look(State::workers)
    }

    async fn open_session(&self, session: NewSession) -> Result<OpenedSession> {
        answer!(self.command(&Command::OpenSession(session)), Opened)
    }

    async fn exchange(&self, exchange: Exchange) -> Result<ExchangeReply> {
        let reply: Box<ExchangeReply> = answer!(self.command(&Command::Exchange(exchange)), Exchanged)?;
        Ok(*reply)
    }

    async fn close_session(&self, session: SessionId) -> Result<()> {
        self.command(&Command::CloseSession(session)).map(drop)
    }

    async fn sweep(&self) -> Result<Swept> {
        answer!(self.command(&Command::Sweep), Swept)
    }

    async fn retry(&self, jobs: Vec<JobId>) -> Result<Vec<Result<JobState>>> {
        answer!(self.command(&Command::Retry(jobs)), Retried)
    }

    async fn change_matching(
        &self,
        change: Change,
        filter: JobFilter,
        after: Option<Cursor>,
        limit: usize,
    ) -> Result<Changed> {
        answer!(self.command(&Command::ChangeMatching { change, filter, after, limit }), Changed)
    }

    async fn workflows(&self, after: Option<Name>, limit: usize) -> Result<WorkflowPage> {
        self.look(|state| state.workflows(after.as_ref(), limit))?
    }

    async fn workflow(&self, workflow: Name) -> Result<WorkflowStatus> {
        self.look(|state| state.workflow(&workflow))?
    }

    async fn steer_workflow(&self, workflow: Name, steer: Steer) -> Result<()> {
        self.command(&Command::SteerWorkflow(workflow, steer)).map(drop)
    }

    async fn acquire_slots(&self, request: SlotRequest) -> Result<Option<SlotLease>> {
        answer!(self.command(&Command::AcquireSlots(request)), Acquired)
    }

    async fn extend_slots(&self, lease: LeaseId, token: FenceToken, lease_ms: u64) -> Result<SlotLease> {
        answer!(self.command(&Command::ExtendSlots { lease, token, lease_ms }), Extended)
    }

    async fn return_slots(&self, lease: LeaseId, token: FenceToken) -> Result<()> {
        self.command(&Command::ReturnSlots(lease, token)).map(drop)
    }

    async fn schedules(&self) -> Result<Vec<ScheduleStatus>> {
        self.look(State::schedules)
    }

    async fn enable_schedule(&self, schedule: Name, enabled: bool) -> Result<()> {
        self.command(&Command::EnableSchedule(schedule, enabled)).map(drop)
    }

    async fn trigger_schedule(&self, schedule: Name, job: JobId) -> Result<Submitted> {
        answer!(self.command(&Command::TriggerSchedule(schedule, job)), Triggered)
    }
}
