//! Jobs, their attempts and logs.

use super::{Any, Moment, Wide};
use qo_core::{AttemptOutcome, JobDetail, JobProgress, JobState, JobView, RetryPolicy, Running};
use serde::Serialize;
use std::collections::BTreeMap;
use utoipa::ToSchema;
use uuid::Uuid;

/// The state of a job.
#[derive(Debug, Clone, Copy, Serialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub(crate) enum State {
    /// It waits.
    Pending,
    /// A worker has claimed it ahead of time.
    Claimed,
    /// A worker runs it.
    Running,
    /// It has ended well.
    Succeeded,
    /// It has ended, and has no attempt left.
    Failed,
    /// It was cancelled.
    Cancelled,
    /// It had not started by `good_until`.
    Expired,
}

impl From<JobState> for State {
    fn from(state: JobState) -> Self {
        match state {
            JobState::Pending => Self::Pending,
            JobState::Claimed => Self::Claimed,
            JobState::Running => Self::Running,
            JobState::Succeeded => Self::Succeeded,
            JobState::Failed => Self::Failed,
            JobState::Cancelled => Self::Cancelled,
            JobState::Expired => Self::Expired,
        }
    }
}

/// A job, without its payload.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct Job {
    /// The job.
    id: Uuid,
    /// Its state.
    state: State,
    /// Its queue.
    queue: String,
    /// Its task.
    task: String,
    /// Its group.
    group: String,
    /// Its key.
    #[schema(required)]
    key: Option<String>,
    /// Slots it takes in its group and key.
    cost: u32,
    /// Slots it takes in further groups.
    limits: BTreeMap<String, u32>,
    /// Lower runs first.
    priority: i32,
    /// When it was accepted.
    submitted_at: Moment,
    /// It does not start before.
    run_at: Moment,
    /// It expires if it has not started by then.
    #[schema(required)]
    good_until: Option<Moment>,
    /// How long an attempt may run, as submitted; null leaves it to the task.
    #[schema(required)]
    timeout_ms: Option<u64>,
    /// Its backoff, as submitted; null leaves it to the task.
    #[schema(required)]
    retry: Option<Backoff>,
    /// The limit that it brought for its group or key.
    #[schema(required)]
    limit: Option<u32>,
    /// Its idempotency key.
    #[schema(required)]
    idempotency_key: Option<String>,
    /// The trace that it belongs to, as W3C Trace Context writes it.
    #[schema(required)]
    traceparent: Option<String>,
    /// Attempts used so far.
    attempts_used: u32,
    /// Attempts it may use.
    max_attempts: u32,
    /// It runs, and was asked to stop.
    cancel_requested: bool,
    /// What runs it.
    #[schema(required)]
    running: Option<Run>,
    /// What has claimed it ahead of time.
    #[schema(required)]
    claimed: Option<Run>,
    /// The workflow that it is a step of.
    #[schema(required)]
    workflow: Option<String>,
    /// Its number there, 1 for the first.
    #[schema(required)]
    step: Option<u32>,
    /// It ended without success, and its workflow passed over it.
    skipped: bool,
    /// When it ended.
    #[schema(required)]
    finished_at: Option<Moment>,
    /// What of it is stored and cannot be read; a stand-in is shown for that.
    #[serde(skip_serializing_if = "Option::is_none")]
    unreadable: Option<String>,
}

impl From<JobView> for Job {
    fn from(view: JobView) -> Self {
        let limits = view.limits.into_iter().map(|(group, slots)| (group.to_string(), slots));
        Self {
            id: view.id.0,
            state: view.state.into(),
            queue: view.queue.to_string(),
            task: view.task.to_string(),
            group: view.group.to_string(),
            key: view.key.map(|key| key.to_string()),
            cost: view.cost,
            limits: limits.collect(),
            priority: view.priority,
            submitted_at: view.submitted_at.into(),
            run_at: view.run_at.into(),
            good_until: view.good_until.map(Moment),
            timeout_ms: view.timeout_ms,
            retry: view.retry.map(Backoff::from),
            limit: view.limit,
            idempotency_key: view.idempotency_key.map(|key| key.to_string()),
            traceparent: view.traceparent.map(|trace| trace.to_string()),
            attempts_used: view.attempts_used,
            max_attempts: view.max_attempts,
            cancel_requested: view.cancel_requested,
            running: view.running.map(Run::from),
            claimed: view.claimed.map(Run::from),
            workflow: view.workflow.map(|workflow| workflow.to_string()),
            step: view.step,
            skipped: view.skipped,
            finished_at: view.finished_at.map(Moment),
            unreadable: view.unreadable,
        }
    }
}

/// A job with its payload, output and attempts.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct WholeJob {
    #[serde(flatten)]
    job: Job,
    /// What its handler gets.
    payload: Any,
    /// What its handler returned; `{"base64": "…"}` if a program wrote bytes that are not UTF-8.
    // Any value may be null, so it is not `Any` or null.
    #[schema(required, value_type = serde_json::Value)]
    output: Option<Any>,
    /// Its attempts, oldest first, the last 100.
    attempts: Vec<Attempt>,
}

impl From<JobDetail> for WholeJob {
    fn from(detail: JobDetail) -> Self {
        Self {
            payload: Any::from(&detail.payload),
            output: detail.output.as_ref().map(Any::from),
            attempts: detail.attempts.into_iter().map(Attempt::from).collect(),
            job: detail.view.into(),
        }
    }
}

/// Some jobs.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct JobPage {
    /// The jobs.
    pub jobs: Vec<Job>,
    /// The cursor of the next page; null if this is the last.
    #[schema(required)]
    pub next: Option<Wide>,
}

impl From<qo_core::JobPage> for JobPage {
    fn from(page: qo_core::JobPage) -> Self {
        Self {
            jobs: page.jobs.into_iter().map(Job::from).collect(),
            next: page.next.map(|cursor| Wide(cursor.0)),
        }
    }
}

/// What runs a job, or has claimed it.
#[derive(Debug, Serialize, ToSchema)]
struct Run {
    /// The worker's name.
    worker: String,
    /// Its session.
    session: Uuid,
    /// The fence token that owns the job.
    token: Wide,
    /// Since when.
    since: Moment,
    /// When its lease ends unless it is renewed.
    lease_until: Moment,
    /// How far it says that it is.
    #[schema(required)]
    progress: Option<Progress>,
}

impl From<Running> for Run {
    fn from(run: Running) -> Self {
        Self {
            worker: run.worker.to_string(),
            session: run.session.0,
            token: run.token.into(),
            since: run.since.into(),
            lease_until: run.lease_until.into(),
            progress: run.progress.map(Progress::from),
        }
    }
}

/// How far a job says that it is.
#[derive(Debug, Serialize, ToSchema)]
struct Progress {
    /// 0 to 100.
    percent: u8,
    /// In words.
    note: String,
    /// Since when it says this.
    at: Moment,
}

impl From<JobProgress> for Progress {
    fn from(progress: JobProgress) -> Self {
        Self { percent: progress.percent, note: progress.note.as_str().into(), at: progress.at.into() }
    }
}

/// How long a job waits between attempts.
#[derive(Debug, Serialize, ToSchema)]
struct Backoff {
    /// Delay after the first attempt.
    base_ms: u64,
    /// Growth from one attempt to the next, in hundredths.
    factor_percent: u32,
    /// Longest delay, before jitter.
    max_ms: u64,
    /// The delay is moved by up to this share, either way.
    jitter_percent: u32,
}

impl From<RetryPolicy> for Backoff {
    fn from(policy: RetryPolicy) -> Self {
        let RetryPolicy { base_ms, factor_percent, max_ms, jitter_percent } = policy;
        Self { base_ms, factor_percent, max_ms, jitter_percent }
    }
}

/// One attempt of a job.
#[derive(Debug, Serialize, ToSchema)]
struct Attempt {
    /// 1 for the first; one that was snoozed or released does not count, and its number comes again.
    number: u32,
    /// The fence token of this attempt.
    token: Wide,
    /// The worker's name.
    worker: String,
    /// Its session.
    session: Uuid,
    /// When it was claimed.
    started_at: Moment,
    /// When it ended.
    ended_at: Moment,
    /// `succeeded`, `retried`, `failed`, `snoozed`, `released`, `cancelled`, `lease_ended`, `timed_out` or
    /// `released_by_operator`.
    #[schema(value_type = String)]
    outcome: AttemptOutcome,
    /// What the handler, or the rule that ended it, said.
    #[serde(skip_serializing_if = "Option::is_none")]
    error: Option<String>,
    /// The job's state after it.
    then: State,
}

impl From<qo_core::Attempt> for Attempt {
    fn from(attempt: qo_core::Attempt) -> Self {
        Self {
            number: attempt.number,
            token: attempt.token.into(),
            worker: attempt.worker.to_string(),
            session: attempt.session.0,
            started_at: attempt.started_at.into(),
            ended_at: attempt.ended_at.into(),
            outcome: attempt.outcome,
            error: attempt.error.map(String::from),
            then: attempt.then.into(),
        }
    }
}

/// The log of one attempt.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct Log {
    /// Which attempt.
    pub attempt: u32,
    /// Its fence token.
    pub token: Wide,
    /// It has not ended: this is the log so far.
    pub running: bool,
    /// The last 64 KiB of what it logged.
    #[schema(required)]
    pub log: Option<String>,
}
