//! The core's views as JSON for programs. Payloads and outputs are JSON values, not strings of JSON.

use qo::core::{
    Attempt, Explanation, GroupDetail, GroupStatus, Holder, JobDetail, JobId, JobState, JobView, Json,
    LastTick, Name, Reason, Schedule, ScheduleStatus, Submitted, TickOutcome, Time,
};
use serde::Serialize;
use serde_json::value::RawValue;

/// A JSON text as a JSON value. Its numbers stay as they were written.
fn value(json: &Json) -> Box<RawValue> {
    let text =
        || serde_json::value::to_raw_value(json.as_str()).unwrap_or_else(|_| RawValue::NULL.to_owned());
    // A stored text that is no JSON, or has a number that programs cannot read, is shown as a string.
    match json.check("json") {
        Ok(()) => RawValue::from_string(json.as_str().trim().to_owned()).unwrap_or_else(|_| text()),
        Err(_) => text(),
    }
}

/// What became of a submit: `outcome`, and the job's `id` unless it was skipped.
#[derive(Debug, Clone, Copy, Serialize)]
pub struct Outcome {
    outcome: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    id: Option<JobId>,
}

impl From<Submitted> for Outcome {
    fn from(submitted: Submitted) -> Self {
        let (outcome, id) = match submitted {
            Submitted::Accepted(id) => ("accepted", Some(id)),
            Submitted::Existing(id) => ("existing", Some(id)),
            Submitted::Skipped => ("skipped", None),
        };
        Self { outcome, id }
    }
}

impl Outcome {
    /// The outcome of a job that the store refused.
    pub const REFUSED: Self = Self { outcome: "refused", id: None };
}

/// A job that was submitted and has ended: what became of the submit, and the whole job.
pub fn ended(submitted: Submitted, job: &JobDetail) -> impl Serialize {
    #[derive(Serialize)]
    struct Ended<T> {
        outcome: &'static str,
        #[serde(flatten)]
        job: T,
    }
    Ended { outcome: Outcome::from(submitted).outcome, job: detail(job) }
}

/// Why a job does not run.
pub fn explanation(explanation: &Explanation) -> impl Serialize {
    #[derive(Serialize)]
    struct Explained<'a> {
        id: JobId,
        state: JobState,
        reasons: &'a [Reason],
    }
    Explained { id: explanation.job, state: explanation.state, reasons: &explanation.reasons }
}

/// A job, whole.
pub fn detail(detail: &JobDetail) -> impl Serialize {
    #[derive(Serialize)]
    struct Detail<'a> {
        #[serde(flatten)]
        view: &'a JobView,
        payload: Box<RawValue>,
        output: Option<Box<RawValue>>,
        attempts: &'a [Attempt],
    }
    Detail {
        view: &detail.view,
        payload: value(&detail.payload),
        output: detail.output.as_ref().map(value),
        attempts: &detail.attempts,
    }
}

/// A group and what holds its slots: the fields of a listing, and `holders`.
pub fn group(detail: &GroupDetail) -> impl Serialize {
    #[derive(Serialize)]
    struct Group<'a> {
        #[serde(flatten)]
        status: &'a GroupStatus,
        holders: &'a [Holder],
    }
    Group { status: &detail.status, holders: &detail.holders }
}

/// A schedule.
pub fn schedule<'a>(status: &'a ScheduleStatus) -> impl Serialize + use<'a> {
    #[derive(Serialize)]
    struct Status<'a> {
        schedule: &'a Name,
        spec: Spec<'a>,
        enabled: bool,
        next: Option<Time>,
        last: Option<Tick<'a>>,
        last_job: Option<JobId>,
    }
    #[derive(Serialize)]
    struct Tick<'a> {
        tick: Time,
        outcome: &'static str,
        #[serde(skip_serializing_if = "Option::is_none")]
        job: Option<JobId>,
        #[serde(skip_serializing_if = "Option::is_none")]
        error: Option<&'a str>,
    }
    #[derive(Serialize)]
    struct Spec<'a> {
        cron: &'a str,
        timezone: &'a str,
        task: &'a Name,
        payload: Box<RawValue>,
        queue: &'a Name,
        priority: i32,
        max_attempts: u32,
        timeout_ms: Option<u64>,
        missed: qo::core::Missed,
        overlap: bool,
    }
    let tick = |LastTick { tick, outcome, .. }: &'a LastTick| {
        let (outcome, job, error) = match outcome {
            TickOutcome::Accepted(job) => ("accepted", Some(*job), None),
            TickOutcome::Existing(job) => ("existing", Some(*job), None),
            TickOutcome::Skipped => ("skipped", None, None),
            TickOutcome::Refused(why) => ("refused", None, Some(why.as_str())),
        };
        Tick { tick: *tick, outcome, job, error }
    };
    let Schedule {
        cron,
        timezone,
        task,
        payload,
        queue,
        priority,
        max_attempts,
        timeout_ms,
        missed,
        overlap,
    } = &status.spec;
    Status {
        schedule: &status.schedule,
        spec: Spec {
            cron,
            timezone,
            task,
            payload: value(payload),
            queue,
            priority: *priority,
            max_attempts: *max_attempts,
            timeout_ms: *timeout_ms,
            missed: *missed,
            overlap: *overlap,
        },
        enabled: status.enabled,
        next: status.next,
        last: status.last.as_ref().map(tick),
        last_job: status.last_job,
    }
}
