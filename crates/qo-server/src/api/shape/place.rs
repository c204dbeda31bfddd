//! Queues, workers, schedules, slots of programs, and totals.

use super::{Any, Moment, Wide};
use qo_core::{Missed, QueueStatus, ScheduleStatus, TickOutcome, WorkerStatus};
use serde::Serialize;
use utoipa::ToSchema;
use uuid::Uuid;

/// A queue and its jobs.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct Queue {
    /// The queue.
    queue: String,
    /// Lower goes first.
    priority: u32,
    /// Nothing starts from it.
    paused: bool,
    /// Most of its jobs that run at once.
    #[schema(required)]
    limit: Option<u32>,
    /// Jobs that run.
    running: u64,
    /// Jobs that are claimed ahead of time.
    claimed: u64,
    /// Jobs in line.
    due: u64,
    /// Jobs that wait for their date.
    scheduled: u64,
    /// Steps that wait for an earlier step.
    waiting: u64,
    /// Since when the oldest of the due jobs has been due.
    #[schema(required)]
    oldest_due: Option<Moment>,
}

impl From<QueueStatus> for Queue {
    fn from(status: QueueStatus) -> Self {
        Self {
            queue: status.queue.to_string(),
            priority: status.priority,
            paused: status.paused,
            limit: status.limit,
            running: status.running,
            claimed: status.claimed,
            due: status.due,
            scheduled: status.scheduled,
            waiting: status.waiting,
            oldest_due: status.oldest_due.map(Moment::from),
        }
    }
}

/// Some queues.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct QueuePage {
    /// The queues, by name.
    pub queues: Vec<Queue>,
    /// The cursor of the next page; null if this is the last.
    #[schema(required)]
    pub next: Option<String>,
}

/// Whether a queue is paused.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct Paused {
    /// The queue.
    pub queue: String,
    /// Whether it is paused now.
    pub paused: bool,
}

/// A live worker.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct Worker {
    /// Its name.
    worker: String,
    /// Its session.
    session: Uuid,
    /// The queues it serves; empty means all.
    queues: Vec<String>,
    /// The tasks it has handlers for.
    tasks: Vec<String>,
    /// The id of the token that opened its session.
    #[serde(skip_serializing_if = "Option::is_none")]
    owner: Option<String>,
    /// Jobs it can run at once.
    permits: u32,
    /// How many more it could take when it last said so.
    free_permits: u32,
    /// How full its memory was then.
    #[schema(required)]
    memory_percent: Option<u8>,
    /// Fewer than a tenth of its permits are free.
    saturated: bool,
    /// It takes no more jobs.
    draining: bool,
    /// When its session was opened.
    opened_at: Moment,
    /// When that ends unless it is renewed.
    lease_until: Moment,
    /// Jobs that it runs.
    running: u64,
    /// Jobs that it has claimed ahead of time.
    claimed: u64,
}

impl From<WorkerStatus> for Worker {
    fn from(status: WorkerStatus) -> Self {
        let names = |names: Vec<qo_core::Name>| names.into_iter().map(|name| name.to_string()).collect();
        Self {
            worker: status.worker.to_string(),
            session: status.session.0,
            queues: names(status.queues),
            tasks: names(status.tasks),
            owner: status.owner.map(|owner| owner.to_string()),
            permits: status.permits,
            free_permits: status.free_permits,
            memory_percent: status.memory_percent,
            saturated: status.saturated,
            draining: status.draining,
            opened_at: status.opened_at.into(),
            lease_until: status.lease_until.into(),
            running: status.running,
            claimed: status.claimed,
        }
    }
}

/// Some workers.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct WorkerPage {
    /// The workers, by name, then session.
    pub workers: Vec<Worker>,
    /// The cursor of the next page; null if this is the last.
    #[schema(required)]
    pub next: Option<String>,
}

/// A schedule.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct Schedule {
    /// Its name.
    schedule: String,
    /// As configured.
    spec: Spec,
    /// Whether it fires.
    enabled: bool,
    /// Its next tick.
    #[schema(required)]
    next: Option<Moment>,
    /// The last tick that came.
    #[schema(required)]
    last: Option<Tick>,
    /// The job of the newest tick that had one.
    #[schema(required)]
    last_job: Option<Uuid>,
}

impl From<ScheduleStatus> for Schedule {
    fn from(status: ScheduleStatus) -> Self {
        let tick = |last: qo_core::LastTick| {
            let (outcome, job, error) = match last.outcome {
                TickOutcome::Accepted(job) => ("accepted", Some(job.0), None),
                TickOutcome::Existing(job) => ("existing", Some(job.0), None),
                TickOutcome::Skipped => ("skipped", None, None),
                TickOutcome::Refused(why) => ("refused", None, Some(why)),
            };
            Tick { tick: last.tick.into(), outcome, job, error }
        };
        Self {
            schedule: status.schedule.to_string(),
            spec: status.spec.into(),
            enabled: status.enabled,
            next: status.next.map(Moment),
            last: status.last.map(tick),
            last_job: status.last_job.map(|job| job.0),
        }
    }
}

/// A schedule, as configured.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct Spec {
    /// The cron expression.
    cron: String,
    /// Its time zone.
    timezone: String,
    /// The task.
    task: String,
    /// What its handler gets.
    payload: Any,
    /// The queue.
    queue: String,
    /// Lower runs first.
    priority: i32,
    /// Attempts of each job.
    max_attempts: u32,
    /// How long an attempt may run.
    #[schema(required)]
    timeout_ms: Option<u64>,
    /// `latest`, `all` or `skip`.
    #[schema(value_type = String)]
    missed: Missed,
    /// Whether a tick runs although the last job has not ended.
    overlap: bool,
}

impl From<qo_core::Schedule> for Spec {
    fn from(spec: qo_core::Schedule) -> Self {
        Self {
            cron: spec.cron,
            timezone: spec.timezone,
            task: spec.task.to_string(),
            payload: Any::from(&spec.payload),
            queue: spec.queue.to_string(),
            priority: spec.priority,
            max_attempts: spec.max_attempts,
            timeout_ms: spec.timeout_ms,
            missed: spec.missed,
            overlap: spec.overlap,
        }
    }
}

/// A tick of a schedule.
#[derive(Debug, Serialize, ToSchema)]
struct Tick {
    /// The tick.
    tick: Moment,
    /// `accepted`, `existing` (its job was there already), `skipped` (the last one had not ended) or `refused`.
    #[schema(value_type = String)]
    outcome: &'static str,
    /// `accepted`, `existing`: its job.
    #[serde(skip_serializing_if = "Option::is_none")]
    job: Option<Uuid>,
    /// `refused`: why.
    #[serde(skip_serializing_if = "Option::is_none")]
    error: Option<String>,
}

/// Some schedules.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct SchedulePage {
    /// The schedules, by name.
    pub schedules: Vec<Schedule>,
    /// The cursor of the next page; null if this is the last.
    #[schema(required)]
    pub next: Option<String>,
}

/// Whether a schedule fires.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct Enabled {
    /// The schedule.
    pub schedule: String,
    /// Whether it fires now.
    pub enabled: bool,
}

/// Slots that a program holds.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct SlotLease {
    /// The id of the lease.
    id: Uuid,
    /// Proves that the program holds them.
    token: Wide,
    /// When it took them.
    since: Moment,
    /// When the lease is over unless it is extended before.
    lease_until: Moment,
}

impl SlotLease {
    /// A lease of that id.
    pub fn new(id: qo_core::LeaseId, lease: qo_core::SlotLease) -> Self {
        let qo_core::SlotLease { token, since, lease_until } = lease;
        Self { id: id.0, token: token.into(), since: since.into(), lease_until: lease_until.into() }
    }
}

/// Totals.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct Status {
    /// The release of the server.
    #[schema(value_type = String)]
    pub version: &'static str,
    /// Store time.
    pub now: Moment,
    /// Jobs that have not ended.
    pub jobs: StatusJobs,
    /// Queues that have live jobs, a limit, a priority or a pause.
    pub queues: usize,
    /// How many of them are paused.
    pub paused_queues: usize,
    /// Live workers.
    pub workers: StatusWorkers,
}

/// How many jobs have not ended, over all queues.
#[derive(Debug, Default, Serialize, ToSchema)]
pub(crate) struct StatusJobs {
    /// Jobs that run.
    pub running: u64,
    /// Jobs that are claimed ahead of time.
    pub claimed: u64,
    /// Jobs in line.
    pub due: u64,
    /// Jobs that wait for their date.
    pub scheduled: u64,
    /// Steps that wait for an earlier step.
    pub waiting: u64,
}

/// Live workers, together.
#[derive(Debug, Default, Serialize, ToSchema)]
pub(crate) struct StatusWorkers {
    /// How many there are.
    pub live: u64,
    /// Jobs that they can run at once.
    pub permits: u64,
    /// How many more they could take.
    pub free_permits: u64,
}
