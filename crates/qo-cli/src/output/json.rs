//! The core's views as JSON for programs. Payloads and outputs are JSON values, not strings of JSON.

use qo::core::{Attempt, GroupDetail, GroupStatus, Holder, JobDetail, JobId, JobView, Json, LastTick, Name};
use qo::core::{Schedule, ScheduleStatus, Time};
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
pub fn schedule(status: &ScheduleStatus) -> impl Serialize {
    #[derive(Serialize)]
    struct Status<'a> {
        schedule: &'a Name,
        spec: Spec<'a>,
        enabled: bool,
        next: Option<Time>,
        last: &'a Option<LastTick>,
        last_job: Option<JobId>,
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
        last: &status.last,
        last_job: status.last_job,
    }
}
