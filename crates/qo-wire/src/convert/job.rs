//! Jobs as clients submit them, and what becomes of them.

use super::{all, enumeration, job_id, json, json_if, key_if, messages, millis, moment, name, name_if};
use super::{needed, slots, slots_by_group, text, traceparent_if, value};
use crate::pb;
use qo_core::{
    Change, Changed, Cursor, Error, IdPrefix, JobFilter, NewJob, OnFailure, OnLimit, Result, RetryPolicy,
    Submitted,
};

enumeration!(qo_core::JobState, pb::JobState, "state", {
    Pending, Claimed, Running, Succeeded, Failed, Cancelled, Expired,
});
enumeration!(OnFailure, pb::OnFailure, "on_failure", { Halt, Continue });
enumeration!(Change, pb::Change, "change", { Cancel, Retry });

impl From<OnLimit> for pb::OnLimit {
    fn from(on_limit: OnLimit) -> Self {
        match on_limit {
            OnLimit::Wait => Self::Wait,
            OnLimit::Reject => Self::Reject,
            OnLimit::Skip => Self::Skip,
        }
    }
}

impl From<pb::OnLimit> for OnLimit {
    fn from(on_limit: pb::OnLimit) -> Self {
        match on_limit {
            pb::OnLimit::Unspecified | pb::OnLimit::Wait => Self::Wait,
            pb::OnLimit::Reject => Self::Reject,
            pb::OnLimit::Skip => Self::Skip,
        }
    }
}

impl From<RetryPolicy> for pb::RetryPolicy {
    fn from(retry: RetryPolicy) -> Self {
        let RetryPolicy { base_ms, factor_percent, max_ms, jitter_percent } = retry;
        Self { base_ms, factor_percent, max_ms, jitter_percent }
    }
}

impl From<pb::RetryPolicy> for RetryPolicy {
    fn from(retry: pb::RetryPolicy) -> Self {
        let pb::RetryPolicy { base_ms, factor_percent, max_ms, jitter_percent } = retry;
        Self { base_ms, factor_percent, max_ms, jitter_percent }
    }
}

impl From<NewJob> for pb::NewJob {
    fn from(job: NewJob) -> Self {
        let NewJob {
            id,
            task,
            payload,
            queue,
            priority,
            run_at,
            good_until,
            max_attempts,
            retry,
            timeout_ms,
            group,
            key,
            cost,
            limits,
            limit,
            clear_limit,
            idempotency_key,
            on_limit,
            workflow,
            on_failure,
            traceparent,
        } = job;
        Self {
            id: id.to_string(),
            task: text(task),
            payload: json_if(&payload),
            queue: Some(text(queue)),
            priority,
            run_at_ms: millis(run_at),
            good_until_ms: millis(good_until),
            max_attempts: Some(max_attempts),
            retry: retry.map(pb::RetryPolicy::from),
            timeout_ms,
            group: group.map(text),
            key: key.map(text),
            cost: Some(cost),
            limits: slots(&limits),
            limit,
            clear_limit,
            idempotency_key: idempotency_key.map(text),
            on_limit: pb::OnLimit::from(on_limit).into(),
            workflow: workflow.map(text),
            on_failure: on_failure.map_or(pb::OnFailure::Unspecified, pb::OnFailure::from).into(),
            traceparent: traceparent.map(String::from),
        }
    }
}

impl TryFrom<pb::NewJob> for NewJob {
    type Error = Error;

    fn try_from(job: pb::NewJob) -> Result<Self> {
        let usual = Self::new(job_id("id", &job.id)?, name("task", &job.task)?);
        Ok(Self {
            id: usual.id,
            task: usual.task,
            payload: json(job.payload.as_deref()),
            queue: match job.queue.as_deref() {
                Some(queue) if queue != &*usual.queue => name("queue", queue)?,
                Some(_) | None => usual.queue,
            },
            priority: job.priority,
            run_at: moment(job.run_at_ms),
            good_until: moment(job.good_until_ms),
            max_attempts: job.max_attempts.unwrap_or(usual.max_attempts),
            retry: job.retry.map(RetryPolicy::from),
            timeout_ms: job.timeout_ms,
            group: name_if("group", job.group)?,
            key: key_if("key", job.key)?,
            cost: job.cost.unwrap_or(usual.cost),
            limits: slots_by_group("limits", job.limits)?,
            limit: job.limit,
            clear_limit: job.clear_limit,
            idempotency_key: key_if("idempotency_key", job.idempotency_key)?,
            on_limit: pb::OnLimit::try_from(job.on_limit)
                .map_err(|_| super::unknown("on_limit", job.on_limit))?
                .into(),
            workflow: name_if("workflow", job.workflow)?,
            on_failure: on_failure(job.on_failure)?,
            traceparent: traceparent_if(job.traceparent)?,
        })
    }
}

fn on_failure(number: i32) -> Result<Option<OnFailure>> {
    match number {
        0 => Ok(None),
        number => value::<pb::OnFailure, _>("on_failure", number).map(Some),
    }
}

impl From<Vec<NewJob>> for pb::SubmitRequest {
    fn from(jobs: Vec<NewJob>) -> Self {
        Self { jobs: messages(jobs) }
    }
}

impl TryFrom<pb::SubmitRequest> for Vec<NewJob> {
    type Error = Error;

    fn try_from(request: pb::SubmitRequest) -> Result<Self> {
        all(request.jobs, "jobs")
    }
}

impl From<Result<Submitted>> for pb::SubmitOutcome {
    fn from(outcome: Result<Submitted>) -> Self {
        use pb::submit_outcome::Outcome;
        let outcome = match outcome {
            Ok(Submitted::Accepted(job)) => Outcome::Accepted(job.to_string()),
            Ok(Submitted::Existing(job)) => Outcome::Existing(job.to_string()),
            Ok(Submitted::Skipped) => Outcome::Skipped(pb::Skipped {}),
            Err(error) => Outcome::Error(error.into()),
        };
        Self { outcome: Some(outcome) }
    }
}

impl TryFrom<pb::SubmitOutcome> for Result<Submitted> {
    type Error = Error;

    fn try_from(outcome: pb::SubmitOutcome) -> Result<Self> {
        use pb::submit_outcome::Outcome;
        Ok(Ok(match needed("outcome", outcome.outcome)? {
            Outcome::Accepted(job) => Submitted::Accepted(job_id("accepted", &job)?),
            Outcome::Existing(job) => Submitted::Existing(job_id("existing", &job)?),
            Outcome::Skipped(pb::Skipped {}) => Submitted::Skipped,
            Outcome::Error(error) => return super::error::outcome(error),
        }))
    }
}

impl From<Vec<Result<Submitted>>> for pb::SubmitReply {
    fn from(outcomes: Vec<Result<Submitted>>) -> Self {
        Self { outcomes: messages(outcomes) }
    }
}

impl TryFrom<pb::SubmitReply> for Vec<Result<Submitted>> {
    type Error = Error;

    fn try_from(reply: pb::SubmitReply) -> Result<Self> {
        all(reply.outcomes, "outcomes")
    }
}

impl From<Vec<qo_core::JobId>> for pb::JobIds {
    fn from(jobs: Vec<qo_core::JobId>) -> Self {
        Self { jobs: jobs.iter().map(ToString::to_string).collect() }
    }
}

impl TryFrom<pb::JobIds> for Vec<qo_core::JobId> {
    type Error = Error;

    fn try_from(request: pb::JobIds) -> Result<Self> {
        let read = |(index, id): (usize, &String)| job_id(&format!("jobs[{index}]"), id);
        request.jobs.iter().enumerate().map(read).collect()
    }
}

impl From<JobFilter> for pb::JobFilter {
    fn from(filter: JobFilter) -> Self {
        let JobFilter {
            states,
            queue,
            task,
            group,
            key,
            workflow,
            submitted_from,
            submitted_before,
            id_prefix,
            newest_first,
        } = filter;
        Self {
            states: states.into_iter().map(super::number::<pb::JobState, _>).collect(),
            queue: queue.map(text),
            task: task.map(text),
            group: group.map(text),
            key: key.map(text),
            workflow: workflow.map(text),
            submitted_from_ms: millis(submitted_from),
            submitted_before_ms: millis(submitted_before),
            id_prefix: id_prefix.map(String::from),
            newest_first,
        }
    }
}

impl TryFrom<pb::JobFilter> for JobFilter {
    type Error = Error;

    fn try_from(filter: pb::JobFilter) -> Result<Self> {
        let pb::JobFilter {
            states,
            queue,
            task,
            group,
            key,
            workflow,
            submitted_from_ms,
            submitted_before_ms,
            id_prefix,
            newest_first,
        } = filter;
        Ok(Self {
            states: states.into_iter().map(|number| super::state("states", number)).collect::<Result<_>>()?,
            queue: name_if("queue", queue)?,
            task: name_if("task", task)?,
            group: name_if("group", group)?,
            key: key_if("key", key)?,
            workflow: name_if("workflow", workflow)?,
            submitted_from: moment(submitted_from_ms),
            submitted_before: moment(submitted_before_ms),
            id_prefix: id_prefix.map(|text| IdPrefix::parse("id_prefix", &text)).transpose()?,
            newest_first,
        })
    }
}

impl From<Changed> for pb::ChangeMatchingReply {
    fn from(changed: Changed) -> Self {
        let Changed { jobs, next } = changed;
        Self { jobs, next: next.map(|Cursor(next)| next) }
    }
}

impl From<pb::ChangeMatchingReply> for Changed {
    fn from(reply: pb::ChangeMatchingReply) -> Self {
        let pb::ChangeMatchingReply { jobs, next } = reply;
        Self { jobs, next: next.map(Cursor) }
    }
}
