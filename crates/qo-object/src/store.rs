//! A store over the log.

use crate::log::Log;
use crate::writer::{Request, Writer};
use async_trait::async_trait;
use object_store::{ObjectStore, local::LocalFileSystem};
use qo_core::{Answer, Change, Changed, Clock, Command, Configuration, Cursor, Error, ErrorKind, Exchange};
use qo_core::{
    ExchangeReply, Explanation, FenceToken, GroupDetail, GroupPage, GroupRef, JobDetail, JobFilter,
};
use qo_core::{
    JobId, JobPage, JobState, LeaseId, Name, NewJob, NewSession, OpenedSession, QueueStatus, Result,
};
use qo_core::{ScheduleStatus, SessionId, SlotLease, SlotRequest, State, Steer, Store, Submitted, Swept};
use qo_core::{SystemClock, TaskOptions, Time, WorkerStatus, WorkflowPage, WorkflowStatus};
use std::{path::Path, sync::Arc, time::Duration};
use tokio::sync::{mpsc, oneshot};

/// How a namespace is kept.
#[derive(Debug, Clone)]
pub struct Options {
    /// How often a write is tried whose outcome is not known. Defaults to 10.
    pub attempts: u32,
    /// How long to wait between two such tries. Defaults to 100 ms.
    pub pause: Duration,
    /// A snapshot is written after every so many records. Defaults to 1,000.
    pub snapshot_every: u64,
}

impl Default for Options {
    fn default() -> Self {
        Self { attempts: 10, pause: Duration::from_millis(100), snapshot_every: 1_000 }
    }
}

/// A namespace on objects. Several processes may open the same one.
#[derive(Debug, Clone)]
pub struct LogStore {
    requests: mpsc::Sender<Request>,
    clock: Arc<ClockOf>,
}

#[derive(Clone)]
struct ClockOf(Arc<dyn Clock>);

impl std::fmt::Debug for ClockOf {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Clock")
    }
}

impl LogStore {
    /// Opens the namespace in a directory, which is made if it is not there. Everything is on the disk before it is
    /// acknowledged.
    pub async fn open_directory(directory: impl AsRef<Path>, options: Options) -> Result<Self> {
        let directory = directory.as_ref();
        let shown = directory.display().to_string();
        let unusable = |error: String| Error::new(ErrorKind::Unavailable, format!("store {shown}: {error}"));
        std::fs::create_dir_all(directory).map_err(|error| unusable(error.to_string()))?;
        let objects =
            LocalFileSystem::new_with_prefix(directory).map_err(|error| unusable(error.to_string()))?;
        let objects = Arc::new(objects.with_fsync(true));
        Self::open(objects, Arc::new(SystemClock::new()), options).await
    }

    /// Opens the namespace in an object store, with a clock of its own.
    pub async fn open(
        objects: Arc<dyn ObjectStore>,
        clock: Arc<dyn Clock>,
        options: Options,
    ) -> Result<Self> {
        let (requests, inbox) = mpsc::channel(1_000);
        let (opened, result) = oneshot::channel();
        let shown = Arc::new(ClockOf(Arc::clone(&clock)));
        // A thread of its own: what the caller's event loop does, or does not do, must not hold up a commit that others
        // wait for, and dropping a call must not leave a commit half done.
        let writer = move || {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build();
            let runtime = match runtime {
                Ok(runtime) => runtime,
                Err(error) => {
                    let error = Error::new(ErrorKind::Unavailable, format!("no runtime: {error}"));
                    opened.send(Err(error)).ok();
                    return;
                }
            };
            runtime.block_on(async {
                match Writer::open(Log::new(objects), clock, options).await {
                    Ok(writer) => {
                        opened.send(Ok(())).ok();
                        writer.run(inbox).await;
                    }
                    Err(error) => {
                        opened.send(Err(error)).ok();
                    }
                }
            });
        };
        let thread = std::thread::Builder::new().name("qo-log".into()).spawn(writer);
        thread.map_err(|error| Error::new(ErrorKind::Unavailable, format!("no thread: {error}")))?;
        result.await.unwrap_or_else(|_| Err(stopped()))?;
        Ok(Self { requests, clock: shown })
    }

    async fn command(&self, command: Command) -> Result<Answer> {
        let (answer, answered) = oneshot::channel();
        let sent = self.requests.send(Request::Decide(Box::new(command), answer)).await;
        sent.map_err(|_| stopped())?;
        // The thread stopped while it had the command: the record may be there.
        let unknown = |_| Err(Error::new(ErrorKind::Unknown, stopped().message()));
        answered.await.unwrap_or_else(unknown)
    }

    async fn look<T: Send + 'static>(&self, look: impl FnOnce(&State) -> T + Send + 'static) -> Result<T> {
        let (seen, shown) = oneshot::channel();
        let clock = Arc::clone(&self.clock.0);
        let look = move |state: Result<&mut State>| {
            seen.send(state.map(|state| state.at(clock.now(), look))).ok();
        };
        let sent = self.requests.send(Request::Look(Box::new(look))).await;
        sent.map_err(|_| stopped())?;
        shown.await.unwrap_or_else(|_| Err(stopped()))
    }
}

fn stopped() -> Error {
    Error::new(ErrorKind::Internal, "the log has stopped: a guarantee was broken, or it contradicts itself")
}

/// Takes the variant that a command answers with.
macro_rules! answer {
    ($self:ident, $command:expr, $variant:ident) => {
        match $self.command($command).await? {
            Answer::$variant(value) => Ok(value),
            other => Err(Error::new(ErrorKind::Internal, format!("unexpected answer {other:?}"))),
        }
    };
}

#[async_trait]
impl Store for LogStore {
    async fn now(&self) -> Result<Time> {
        let clock = Arc::clone(&self.clock.0);
        self.look(move |state| clock.now().max(state.now())).await
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
        self.look(move |state| state.job(job)).await?
    }

    async fn jobs(&self, filter: JobFilter, after: Option<Cursor>, limit: usize) -> Result<JobPage> {
        self.look(move |state| state.jobs(&filter, after, limit)).await?
    }

    async fn explain(&self, job: JobId) -> Result<Explanation> {
        self.look(move |state| state.explain(job)).await?
    }

    async fn workflows(&self, after: Option<Name>, limit: usize) -> Result<WorkflowPage> {
        self.look(move |state| state.workflows(after.as_ref(), limit)).await?
    }

    async fn workflow(&self, workflow: Name) -> Result<WorkflowStatus> {
        self.look(move |state| state.workflow(&workflow)).await?
    }

    async fn steer_workflow(&self, workflow: Name, steer: Steer) -> Result<()> {
        self.command(Command::SteerWorkflow(workflow, steer)).await.map(drop)
    }

    async fn register(&self, tasks: Vec<TaskOptions>) -> Result<()> {
        self.command(Command::Register(tasks)).await.map(drop)
    }

    async fn configure(&self, configuration: Configuration) -> Result<()> {
        self.command(Command::Configure(configuration)).await.map(drop)
    }

    async fn set_limit(&self, group: GroupRef, limit: u32) -> Result<()> {
        self.command(Command::SetLimit(group, limit)).await.map(drop)
    }

    async fn unset_limit(&self, group: GroupRef) -> Result<()> {
        self.command(Command::UnsetLimit(group)).await.map(drop)
    }

    async fn pause_queue(&self, queue: Name, paused: bool) -> Result<()> {
        self.command(Command::PauseQueue(queue, paused)).await.map(drop)
    }

    async fn groups(&self, after: Option<GroupRef>, limit: usize) -> Result<GroupPage> {
        self.look(move |state| state.groups(after.as_ref(), limit)).await?
    }

    async fn group(&self, group: GroupRef) -> Result<GroupDetail> {
        self.look(move |state| state.group(&group)).await?
    }

    async fn release_slot(&self, group: GroupRef, slot: FenceToken) -> Result<()> {
        self.command(Command::ReleaseSlot(group, slot)).await.map(drop)
    }

    async fn acquire_slots(&self, request: SlotRequest) -> Result<Option<SlotLease>> {
        answer!(self, Command::AcquireSlots(request), Acquired)
    }

    async fn extend_slots(&self, lease: LeaseId, token: FenceToken, lease_ms: u64) -> Result<SlotLease> {
        answer!(self, Command::ExtendSlots { lease, token, lease_ms }, Extended)
    }

    async fn return_slots(&self, lease: LeaseId, token: FenceToken) -> Result<()> {
        self.command(Command::ReturnSlots(lease, token)).await.map(drop)
    }

    async fn schedules(&self) -> Result<Vec<ScheduleStatus>> {
        self.look(State::schedules).await
    }

    async fn enable_schedule(&self, schedule: Name, enabled: bool) -> Result<()> {
        self.command(Command::EnableSchedule(schedule, enabled)).await.map(drop)
    }

    async fn trigger_schedule(&self, schedule: Name, job: JobId) -> Result<Submitted> {
        answer!(self, Command::TriggerSchedule(schedule, job), Triggered)
    }

    async fn queues(&self) -> Result<Vec<QueueStatus>> {
        self.look(State::queues).await
    }

    async fn workers(&self) -> Result<Vec<WorkerStatus>> {
        self.look(State::workers).await
    }

    async fn open_session(&self, session: NewSession) -> Result<OpenedSession> {
        answer!(self, Command::OpenSession(session), Opened)
    }

    async fn exchange(&self, exchange: Exchange) -> Result<ExchangeReply> {
        let reply: Box<ExchangeReply> = answer!(self, Command::Exchange(exchange), Exchanged)?;
        Ok(*reply)
    }

    async fn close_session(&self, session: SessionId) -> Result<()> {
        self.command(Command::CloseSession(session)).await.map(drop)
    }

    async fn sweep(&self) -> Result<Swept> {
        answer!(self, Command::Sweep, Swept)
    }
}
