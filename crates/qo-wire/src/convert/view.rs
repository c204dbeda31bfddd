//! Jobs, queues and workers as people see them.

use super::{all, built, enumeration, messages, millis, needed, number, slots, state, text, texts};
use crate::pb;
use qo_core::{Attempt, AttemptOutcome, Cursor, Error, ErrorKind, JobDetail, JobPage, JobProgress, JobView};
use qo_core::{Holder, WorkerStatus};
use qo_core::{LeaseOver, LimitSource, Over, QueueStatus, Result, RetryPolicy, Running, SessionOver, Time};
use serde_json::json as parts;

enumeration!(LimitSource, pb::LimitSource, "source", { Operator, Config, Code, Submit });

impl From<JobView> for pb::JobView {
    fn from(view: JobView) -> Self {
        Self {
            id: view.id.to_string(),
            state: number::<pb::JobState, _>(view.state),
            queue: text(view.queue),
            task: text(view.task),
            group: text(view.group),
            key: view.key.map(text),
            cost: view.cost,
            limits: slots(&view.limits),
            priority: view.priority,
            submitted_at_ms: view.submitted_at.as_millis(),
            run_at_ms: view.run_at.as_millis(),
            good_until_ms: millis(view.good_until),
            timeout_ms: view.timeout_ms,
            retry: view.retry.map(pb::RetryPolicy::from),
            limit: view.limit,
            idempotency_key: view.idempotency_key.map(text),
            traceparent: view.traceparent.map(String::from),
            attempts_used: view.attempts_used,
            max_attempts: view.max_attempts,
            cancel_requested: view.cancel_requested,
            running: view.running.map(pb::Running::from),
            claimed: view.claimed.map(pb::Running::from),
            workflow: view.workflow.map(text),
            step: view.step,
            skipped: view.skipped,
            finished_at_ms: millis(view.finished_at),
            unreadable: view.unreadable,
        }
    }
}

impl TryFrom<pb::JobView> for JobView {
    type Error = Error;

    fn try_from(view: pb::JobView) -> Result<Self> {
        let running = |running: Option<pb::Running>| running.map(Running::try_from).transpose();
        built(parts!({
            "id": view.id,
            "state": state("state", view.state)?,
            "queue": view.queue,
            "task": view.task,
            "group": view.group,
            "key": view.key,
            "cost": view.cost,
            "limits": view.limits,
            "priority": view.priority,
            "submitted_at": view.submitted_at_ms,
            "run_at": view.run_at_ms,
            "good_until": view.good_until_ms,
            "timeout_ms": view.timeout_ms,
            "retry": view.retry.map(RetryPolicy::from),
            "limit": view.limit,
            "idempotency_key": view.idempotency_key,
            "traceparent": view.traceparent,
            "attempts_used": view.attempts_used,
            "max_attempts": view.max_attempts,
            "cancel_requested": view.cancel_requested,
            "running": running(view.running)?,
            "claimed": running(view.claimed)?,
            "workflow": view.workflow,
            "step": view.step,
            "skipped": view.skipped,
            "finished_at": view.finished_at_ms,
            "unreadable": view.unreadable,
        }))
    }
}

impl From<Running> for pb::Running {
    fn from(running: Running) -> Self {
        Self {
            worker: text(running.worker),
            session: running.session.to_string(),
            token: running.token.0,
            since_ms: running.since.as_millis(),
            lease_until_ms: running.lease_until.as_millis(),
            progress: running.progress.map(|progress| pb::JobProgress {
                percent: progress.percent.into(),
                note: progress.note.into(),
                at_ms: progress.at.as_millis(),
            }),
        }
    }
}

impl TryFrom<pb::Running> for Running {
    type Error = Error;

    fn try_from(running: pb::Running) -> Result<Self> {
        let progress = |progress: pb::JobProgress| {
            let pb::JobProgress { percent, note, at_ms } = progress;
            built::<JobProgress>(parts!({ "percent": percent, "note": note, "at": at_ms }))
        };
        built(parts!({
            "worker": running.worker,
            "session": running.session,
            "token": running.token,
            "since": running.since_ms,
            "lease_until": running.lease_until_ms,
            "progress": running.progress.map(progress).transpose()?,
        }))
    }
}

impl From<JobPage> for pb::JobPage {
    fn from(page: JobPage) -> Self {
        Self { jobs: messages(page.jobs), next: page.next.map(|Cursor(next)| next) }
    }
}

impl TryFrom<pb::JobPage> for JobPage {
    type Error = Error;

    fn try_from(page: pb::JobPage) -> Result<Self> {
        let jobs: Vec<JobView> = all(page.jobs, "jobs")?;
        built(parts!({ "jobs": jobs, "next": page.next }))
    }
}

impl From<JobDetail> for pb::JobDetail {
    fn from(detail: JobDetail) -> Self {
        Self {
            view: Some(detail.view.into()),
            payload: detail.payload.into(),
            output: detail.output.map(String::from),
            attempts: messages(detail.attempts),
        }
    }
}

impl TryFrom<pb::JobDetail> for JobDetail {
    type Error = Error;

    fn try_from(detail: pb::JobDetail) -> Result<Self> {
        let view = JobView::try_from(needed("view", detail.view)?)?;
        let attempts: Vec<Attempt> = all(detail.attempts, "attempts")?;
        // The view is part of the detail, not in it.
        let mut whole = serde_json::to_value(view)
            .map_err(|error| Error::new(ErrorKind::Internal, format!("view: {error}")))?;
        whole["payload"] = parts!(detail.payload);
        whole["output"] = parts!(detail.output);
        whole["attempts"] = parts!(attempts);
        built(whole)
    }
}

impl From<AttemptOutcome> for pb::AttemptOutcome {
    fn from(outcome: AttemptOutcome) -> Self {
        match outcome {
            AttemptOutcome::Succeeded => Self::Succeeded,
            AttemptOutcome::Retried => Self::Retried,
            AttemptOutcome::Failed => Self::Failed,
            AttemptOutcome::Snoozed => Self::Snoozed,
            AttemptOutcome::Released => Self::Released,
            AttemptOutcome::Cancelled => Self::Cancelled,
            AttemptOutcome::LeaseEnded => Self::LeaseEnded,
            AttemptOutcome::TimedOut => Self::TimedOut,
            AttemptOutcome::ReleasedByOperator => Self::ReleasedByOperator,
            // The enumeration of qo-core may grow; a test compares it with the one of the protocol.
            _ => Self::Unspecified,
        }
    }
}

impl TryFrom<pb::AttemptOutcome> for AttemptOutcome {
    type Error = Error;

    fn try_from(outcome: pb::AttemptOutcome) -> Result<Self> {
        Ok(match outcome {
            pb::AttemptOutcome::Unspecified => return Err(super::unknown("outcome", 0)),
            pb::AttemptOutcome::Succeeded => Self::Succeeded,
            pb::AttemptOutcome::Retried => Self::Retried,
            pb::AttemptOutcome::Failed => Self::Failed,
            pb::AttemptOutcome::Snoozed => Self::Snoozed,
            pb::AttemptOutcome::Released => Self::Released,
            pb::AttemptOutcome::Cancelled => Self::Cancelled,
            pb::AttemptOutcome::LeaseEnded => Self::LeaseEnded,
            pb::AttemptOutcome::TimedOut => Self::TimedOut,
            pb::AttemptOutcome::ReleasedByOperator => Self::ReleasedByOperator,
        })
    }
}

impl From<Attempt> for pb::Attempt {
    fn from(attempt: Attempt) -> Self {
        Self {
            number: attempt.number,
            token: attempt.token.0,
            worker: text(attempt.worker),
            session: attempt.session.to_string(),
            started_at_ms: attempt.started_at.as_millis(),
            ended_at_ms: attempt.ended_at.as_millis(),
            outcome: number::<pb::AttemptOutcome, _>(attempt.outcome),
            error: attempt.error.map(String::from),
            then: number::<pb::JobState, _>(attempt.then),
        }
    }
}

impl TryFrom<pb::Attempt> for Attempt {
    type Error = Error;

    fn try_from(attempt: pb::Attempt) -> Result<Self> {
        let outcome: AttemptOutcome = super::value::<pb::AttemptOutcome, _>("outcome", attempt.outcome)?;
        built(parts!({
            "number": attempt.number,
            "token": attempt.token,
            "worker": attempt.worker,
            "session": attempt.session,
            "started_at": attempt.started_at_ms,
            "ended_at": attempt.ended_at_ms,
            "outcome": outcome,
            "error": attempt.error,
            "then": state("then", attempt.then)?,
        }))
    }
}

impl From<QueueStatus> for pb::QueueStatus {
    fn from(status: QueueStatus) -> Self {
        Self {
            queue: text(status.queue),
            priority: status.priority,
            paused: status.paused,
            limit: status.limit,
            running: status.running,
            claimed: status.claimed,
            due: status.due,
            scheduled: status.scheduled,
            waiting: status.waiting,
            oldest_due_ms: status.oldest_due.map(Time::as_millis),
        }
    }
}

impl TryFrom<pb::QueueStatus> for QueueStatus {
    type Error = Error;

    fn try_from(status: pb::QueueStatus) -> Result<Self> {
        let pb::QueueStatus {
            queue,
            priority,
            paused,
            limit,
            running,
            claimed,
            due,
            scheduled,
            waiting,
            oldest_due_ms,
        } = status;
        built(parts!({
            "queue": queue,
            "priority": priority,
            "paused": paused,
            "limit": limit,
            "running": running,
            "claimed": claimed,
            "due": due,
            "scheduled": scheduled,
            "waiting": waiting,
            "oldest_due": oldest_due_ms,
        }))
    }
}

impl From<WorkerStatus> for pb::WorkerStatus {
    fn from(status: WorkerStatus) -> Self {
        Self {
            worker: text(status.worker),
            session: status.session.to_string(),
            queues: texts(&status.queues),
            tasks: texts(&status.tasks),
            permits: status.permits,
            free_permits: status.free_permits,
            saturated: status.saturated,
            draining: status.draining,
            opened_at_ms: status.opened_at.as_millis(),
            lease_until_ms: status.lease_until.as_millis(),
            running: status.running,
            claimed: status.claimed,
            memory_percent: status.memory_percent.map(u32::from),
            owner: status.owner.map(String::from),
        }
    }
}

impl TryFrom<pb::WorkerStatus> for WorkerStatus {
    type Error = Error;

    fn try_from(status: pb::WorkerStatus) -> Result<Self> {
        built(parts!({
            "worker": status.worker,
            "session": status.session,
            "queues": status.queues,
            "tasks": status.tasks,
            "permits": status.permits,
            "free_permits": status.free_permits,
            "memory_percent": status.memory_percent,
            "owner": status.owner,
            "saturated": status.saturated,
            "draining": status.draining,
            "opened_at": status.opened_at_ms,
            "lease_until": status.lease_until_ms,
            "running": status.running,
            "claimed": status.claimed,
        }))
    }
}

/// What is over, one message for each.
pub(crate) fn items_of(over: Over) -> impl Iterator<Item = pb::OverItem> {
    use pb::over_item::Over as Item;
    let session = |session: SessionOver| {
        Item::Session(pb::SessionOver { worker: Some(session.worker.into()), slots: session.slots })
    };
    let lease = |lease: LeaseOver| {
        Item::Lease(pb::LeaseOver { group: lease.group.to_string(), holder: Some(lease.holder.into()) })
    };
    let sessions = over.sessions.into_iter().map(session);
    sessions.chain(over.leases.into_iter().map(lease)).map(|item| pb::OverItem { over: Some(item) })
}

/// What is over, of one message for each.
pub(crate) fn over_of(items: Vec<pb::OverItem>) -> Result<Over> {
    let mut over = Over::default();
    for item in items {
        match needed("over", item.over)? {
            pb::over_item::Over::Session(session) => {
                let worker = WorkerStatus::try_from(needed("worker", session.worker)?)?;
                let mut whole = serde_json::to_value(worker)
                    .map_err(|error| Error::new(ErrorKind::Internal, format!("worker: {error}")))?;
                whole["slots"] = parts!(session.slots);
                over.sessions.push(built(whole)?);
            }
            pb::over_item::Over::Lease(lease) => {
                let holder = Holder::try_from(needed("holder", lease.holder)?)?;
                over.leases.push(built(parts!({ "group": lease.group, "holder": holder }))?);
            }
        }
    }
    Ok(over)
}
