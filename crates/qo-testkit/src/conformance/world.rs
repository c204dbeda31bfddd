//! The world of a case: a fresh store, its clock, consecutive ids, and helpers for common calls.

use super::job_spec::{JobSpec, group_ref, name};
use super::program::{Program, ProgramSpec};
use super::worker::{SessionSpec, Worker, serving};
use crate::{Fixture, TestClock};
use futures::channel::oneshot;
use futures::future::{Either, select};
use qo_core::{
    Configuration, Error, ErrorKind, GroupDetail, GroupStatus, JobDetail, JobId, JobState, JobView, Pushed,
};
use qo_core::{LeaseId, NewJob, QueueStatus, Reason, Result, Retention, Schedule, ScheduleStatus, SessionId};
use qo_core::{SlotRequest, Steer, Store, Submitted, Swept, TaskOptions, WorkflowStatus};
use std::fmt::Debug;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{self, RecvTimeoutError};
use std::time::Duration;
use uuid::Uuid;

/// A fresh store and everything that a case needs to use it. Nothing in it is random.
pub struct World {
    /// The store under test.
    pub store: Arc<dyn Store>,
    clock: Arc<dyn TestClock>,
    ids: AtomicU64,
}

impl World {
    /// The world of a fresh store.
    pub fn new(fixture: Fixture) -> Self {
        Self { store: fixture.store, clock: fixture.clock, ids: AtomicU64::new(0) }
    }

    fn next_uuid(&self) -> Uuid {
        // The version and variant bits of a UUIDv7, and a counter instead of time and dice.
        let count = self.ids.fetch_add(1, Ordering::SeqCst) + 1;
        Uuid::from_u128(0x7000_8000_0000_0000_0000_u128 | u128::from(count))
    }

    /// An id that no job has.
    pub fn job_id(&self) -> JobId {
        JobId(self.next_uuid())
    }

    /// An id that no session has.
    pub fn session_id(&self) -> SessionId {
        SessionId(self.next_uuid())
    }

    /// An id that no program has.
    pub fn lease_id(&self) -> LeaseId {
        LeaseId(self.next_uuid())
    }

    /// Moves store time forward.
    pub async fn advance(&self, ms: u64) {
        self.clock.advance_ms(ms).await;
    }

    /// Ends what is over.
    pub async fn sweep(&self) -> Swept {
        self.store.sweep().await.expect("a sweep")
    }

    /// The job as it is sent.
    pub fn new_job(&self, spec: JobSpec) -> NewJob {
        NewJob { id: spec.id.unwrap_or_else(|| self.job_id()), ..spec.new }
    }

    /// Submits jobs in one call.
    pub async fn offer_all(&self, specs: Vec<JobSpec>) -> Result<Vec<Result<Submitted>>> {
        let count = specs.len();
        let outcomes = self.store.submit(specs.into_iter().map(|spec| self.new_job(spec)).collect()).await?;
        assert_eq!(outcomes.len(), count, "one outcome per job");
        Ok(outcomes)
    }

    /// Submits one job; it may be refused, as a call or as a job.
    pub async fn offer(&self, spec: JobSpec) -> Result<Submitted> {
        self.offer_all(vec![spec]).await?.remove(0)
    }

    /// Submits jobs in one call, which must all be accepted.
    pub async fn submit_all(&self, specs: Vec<JobSpec>) -> Vec<JobId> {
        let outcomes = self.offer_all(specs).await.expect("a valid call");
        let accepted = |outcome| match outcome {
            Ok(Submitted::Accepted(id)) => id,
            other => panic!("a job was not accepted: {other:?}"),
        };
        outcomes.into_iter().map(accepted).collect()
    }

    /// Submits one job, which must be accepted.
    pub async fn submit(&self, spec: JobSpec) -> JobId {
        self.submit_all(vec![spec]).await.remove(0)
    }

    /// Submits the same job that many times, under different ids.
    pub async fn submit_many(&self, count: usize, spec: JobSpec) -> Vec<JobId> {
        self.submit_all(vec![spec; count]).await
    }

    /// Opens a session of a worker for these tasks.
    pub async fn worker<const N: usize>(&self, worker: &str, tasks: [&str; N]) -> Worker {
        self.open(serving(worker, tasks)).await
    }

    /// Opens a session.
    pub async fn open(&self, mut spec: SessionSpec) -> Worker {
        spec.new.id = spec.id.unwrap_or_else(|| self.session_id());
        self.store.open_session(spec.new.clone()).await.expect("a session");
        Worker::new(Arc::clone(&self.store), &spec.new)
    }

    /// Cancels one job.
    pub async fn cancel(&self, job: JobId) -> Result<JobState> {
        self.store.cancel(vec![job]).await.expect("a valid call").remove(0)
    }

    /// Retries one job.
    pub async fn retry(&self, job: JobId) -> Result<JobState> {
        self.store.retry(vec![job]).await.expect("a valid call").remove(0)
    }

    /// A program asks for slots; it may be refused.
    pub async fn acquire(&self, spec: ProgramSpec) -> Result<Option<Program>> {
        let id = spec.id.unwrap_or_else(|| self.lease_id());
        let lease = self.store.acquire_slots(SlotRequest { id, ..spec.request }).await?;
        Ok(lease.map(|lease| Program::new(Arc::clone(&self.store), id, lease)))
    }

    /// A program asks for slots, which must be free.
    pub async fn hold(&self, spec: ProgramSpec) -> Program {
        self.acquire(spec).await.expect("a valid request").expect("there is room")
    }

    /// Whether a program that asks for slots, and must be allowed to ask, gets none.
    pub async fn is_full(&self, spec: ProgramSpec) -> bool {
        self.acquire(spec).await.expect("a valid request").is_none()
    }

    /// A workflow, which must be there.
    pub async fn workflow(&self, workflow: &str) -> WorkflowStatus {
        self.store.workflow(name(workflow)).await.expect("the workflow is there")
    }

    /// Retries or skips the step that a workflow is at; looks the step up first, as a person would.
    pub async fn steer(&self, workflow: &str, steer: impl FnOnce(u32) -> Steer) -> Result<()> {
        let head = self.store.workflow(name(workflow)).await.ok().and_then(|status| status.head);
        self.store.steer_workflow(name(workflow), steer(head.map_or(1, |head| head.step))).await
    }

    /// Cancels a workflow.
    pub async fn cancel_workflow(&self, workflow: &str) -> Result<()> {
        self.store.steer_workflow(name(workflow), Steer::Cancel).await
    }

    /// Pushes a configuration file with these schedules.
    pub async fn plan<const N: usize>(&self, schedules: [(&str, Schedule); N]) {
        let schedules = schedules.into_iter().map(|(schedule, spec)| (name(schedule), spec)).collect();
        let configuration = Configuration { schedules, ..Configuration::default() };
        self.store.configure(configuration).await.expect("a valid configuration");
    }

    /// Pushes a configuration file with this retention.
    pub async fn remember(&self, retention: Retention) {
        let configuration = Configuration { retention: retention.into(), ..Configuration::default() };
        self.store.configure(configuration).await.expect("a valid configuration");
    }

    /// A schedule, which must be there.
    pub async fn schedule(&self, schedule: &str) -> ScheduleStatus {
        let schedules = self.store.schedules().await.expect("schedules");
        let found = schedules.into_iter().find(|status| &*status.schedule == schedule);
        found.unwrap_or_else(|| panic!("there is no schedule {schedule}"))
    }

    /// Enables or disables a schedule, which must be there.
    pub async fn enable(&self, schedule: &str, enabled: bool) {
        self.store.enable_schedule(name(schedule), enabled).await.expect("the schedule is there");
    }

    /// An operator triggers a schedule.
    pub async fn trigger(&self, schedule: &str) -> Result<Submitted> {
        self.store.trigger_schedule(name(schedule), self.job_id()).await
    }

    /// A job, whole.
    pub async fn detail(&self, job: JobId) -> JobDetail {
        self.store.job(job).await.expect("the job is there")
    }

    /// A job as listings show it.
    pub async fn view(&self, job: JobId) -> JobView {
        self.detail(job).await.view
    }

    /// The state of a job.
    pub async fn state(&self, job: JobId) -> JobState {
        self.view(job).await.state
    }

    /// What keeps a job from running.
    pub async fn reasons(&self, job: JobId) -> Vec<Reason> {
        self.store.explain(job).await.expect("the job is there").reasons
    }

    /// The operator sets a limit.
    pub async fn set(&self, group: &str, limit: u32) {
        self.store.set_limit(group_ref(group), limit).await.expect("a valid limit");
    }

    /// The operator takes a limit back, which must be there.
    pub async fn unset(&self, group: &str) {
        self.store.unset_limit(group_ref(group)).await.expect("the operator's limit is there");
    }

    /// Pushes a configuration file with these limits.
    pub async fn configure<const N: usize>(&self, limits: [(&str, u32); N]) {
        let limits = limits.into_iter().map(|(group, limit)| (group_ref(group), limit)).collect();
        let configuration = Configuration { limits, ..Configuration::default() };
        self.store.configure(configuration).await.expect("a valid configuration");
    }

    /// Pushes a configuration file with these queue priorities.
    pub async fn prioritize<const N: usize>(&self, queues: [(&str, u32); N]) {
        let queue_priorities = queues.into_iter().map(|(queue, priority)| (name(queue), priority)).collect();
        let configuration = Configuration { queue_priorities, ..Configuration::default() };
        self.store.configure(configuration).await.expect("a valid configuration");
    }

    /// Pushes the configuration of an app, and returns what that changed.
    pub async fn push(&self, configuration: Configuration) -> Pushed {
        self.store.configure(configuration).await.expect("a valid configuration")
    }

    /// Registers one task.
    pub async fn register(&self, task: TaskOptions) {
        self.store.register(vec![task]).await.expect("a valid task");
    }

    /// Pauses a queue.
    pub async fn pause(&self, queue: &str) {
        self.store.pause_queue(name(queue), true).await.expect("any queue may be paused");
    }

    /// Resumes a queue.
    pub async fn resume(&self, queue: &str) {
        self.store.pause_queue(name(queue), false).await.expect("any queue may be resumed");
    }

    /// A group and its holders, if there is such a group.
    pub async fn group(&self, group: &str) -> Option<GroupDetail> {
        match self.store.group(group_ref(group)).await {
            Ok(detail) => Some(detail),
            Err(error) => {
                assert_eq!(error.kind(), ErrorKind::NotFound, "{error}");
                None
            }
        }
    }

    /// A group's status, which must be there.
    pub async fn status(&self, group: &str) -> GroupStatus {
        self.group(group).await.unwrap_or_else(|| panic!("there is no group {group}")).status
    }

    /// Slots of a group that running jobs hold.
    pub async fn used(&self, group: &str) -> u64 {
        self.group(group).await.map_or(0, |detail| detail.status.used)
    }

    /// The limit in force of a group.
    pub async fn limit(&self, group: &str) -> Option<u32> {
        self.group(group).await.and_then(|detail| detail.status.limit)
    }

    /// A queue's status, which must be there.
    pub async fn queue(&self, queue: &str) -> QueueStatus {
        let queues = self.store.queues().await.expect("queues");
        queues.into_iter().find(|q| &*q.queue == queue).unwrap_or_else(|| panic!("there is no queue {queue}"))
    }
}

/// How long a case waits for something that must come: a store that never answers must not block the suite.
const PATIENCE: Duration = Duration::from_secs(60);

/// What must come within that time.
pub(super) async fn soon<T>(what: impl Future<Output = T>) -> T {
    let (give_up, too_late) = oneshot::channel::<()>();
    let (came, waits) = mpsc::channel::<()>();
    std::thread::spawn(move || {
        if waits.recv_timeout(PATIENCE) == Err(RecvTimeoutError::Timeout) {
            give_up.send(()).ok();
        }
    });
    match select(pin!(what), too_late).await {
        Either::Left((value, _)) => {
            drop(came);
            value
        }
        Either::Right(_) => panic!("it did not come within {PATIENCE:?}"),
    }
}

/// The error of a call that must be refused with this kind.
#[track_caller]
pub(super) fn refused<T: Debug>(result: Result<T>, kind: ErrorKind) -> Error {
    match result {
        Ok(value) => panic!("expected {kind:?}, got {value:?}"),
        Err(error) => {
            assert_eq!(error.kind(), kind, "{error}");
            error
        }
    }
}

/// Checks that a call was `Invalid` and its message names the field, the value and a rule.
#[track_caller]
pub(super) fn invalid<T: Debug>(result: Result<T>, field: &str, value: &str) {
    let error = refused(result, ErrorKind::Invalid);
    assert!(error.message().contains(field), "the field {field} is not named: {error}");
    assert!(error.message().contains(value), "the value {value} is not named: {error}");
    assert!(error.message().matches(": ").count() >= 2, "not of the form `field: value: rule`: {error}");
}
