//! Schedules.

use super::{built, enumeration, job_id, json, json_if, millis, name, needed, text};
use crate::pb;
use qo_core::{Error, LastTick, Missed, Result, Schedule, ScheduleStatus, TickOutcome};
use serde_json::json as parts;

enumeration!(Missed, pb::Missed, "missed", { Latest, All, Skip });

impl From<Schedule> for pb::Schedule {
    fn from(schedule: Schedule) -> Self {
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
        } = schedule;
        Self {
            cron,
            timezone: Some(timezone),
            task: text(task),
            payload: json_if(&payload),
            queue: Some(text(queue)),
            priority,
            max_attempts: Some(max_attempts),
            timeout_ms,
            missed: pb::Missed::from(missed).into(),
            overlap,
        }
    }
}

impl TryFrom<pb::Schedule> for Schedule {
    type Error = Error;

    fn try_from(schedule: pb::Schedule) -> Result<Self> {
        let usual = Self::new(schedule.cron, name("task", &schedule.task)?);
        Ok(Self {
            cron: usual.cron,
            timezone: schedule.timezone.unwrap_or(usual.timezone),
            task: usual.task,
            payload: json(schedule.payload.as_deref()),
            queue: schedule.queue.map_or(Ok(usual.queue), |queue| name("queue", &queue))?,
            priority: schedule.priority,
            max_attempts: schedule.max_attempts.unwrap_or(usual.max_attempts),
            timeout_ms: schedule.timeout_ms,
            missed: match schedule.missed {
                0 => usual.missed,
                number => super::value::<pb::Missed, _>("missed", number)?,
            },
            overlap: schedule.overlap,
        })
    }
}

impl From<ScheduleStatus> for pb::ScheduleStatus {
    fn from(status: ScheduleStatus) -> Self {
        Self {
            schedule: text(status.schedule),
            spec: Some(status.spec.into()),
            enabled: status.enabled,
            next_ms: millis(status.next),
            last: status.last.map(pb::LastTick::from),
            last_job: status.last_job.map(|job| job.to_string()),
        }
    }
}

impl TryFrom<pb::ScheduleStatus> for ScheduleStatus {
    type Error = Error;

    fn try_from(status: pb::ScheduleStatus) -> Result<Self> {
        let pb::ScheduleStatus { schedule, spec, enabled, next_ms, last, last_job } = status;
        let spec = Schedule::try_from(needed("spec", spec)?)?;
        let last = last.map(LastTick::try_from).transpose()?;
        built(parts!({
            "schedule": schedule,
            "spec": spec,
            "enabled": enabled,
            "next": next_ms,
            "last": last,
            "last_job": last_job,
        }))
    }
}

impl From<LastTick> for pb::LastTick {
    fn from(last: LastTick) -> Self {
        use pb::last_tick::Outcome;
        let outcome = match last.outcome {
            TickOutcome::Accepted(job) => Outcome::Accepted(job.to_string()),
            TickOutcome::Existing(job) => Outcome::Existing(job.to_string()),
            TickOutcome::Skipped => Outcome::Skipped(pb::Skipped {}),
            TickOutcome::Refused(why) => Outcome::Refused(why),
        };
        Self { tick_ms: last.tick.as_millis(), outcome: Some(outcome) }
    }
}

impl TryFrom<pb::LastTick> for LastTick {
    type Error = Error;

    fn try_from(last: pb::LastTick) -> Result<Self> {
        use pb::last_tick::Outcome;
        let outcome = match needed("outcome", last.outcome)? {
            Outcome::Accepted(job) => TickOutcome::Accepted(job_id("accepted", &job)?),
            Outcome::Existing(job) => TickOutcome::Existing(job_id("existing", &job)?),
            Outcome::Skipped(pb::Skipped {}) => TickOutcome::Skipped,
            Outcome::Refused(why) => TickOutcome::Refused(why),
        };
        built(parts!({ "tick": last.tick_ms, "outcome": outcome }))
    }
}
