//! Why a job does not run.

use super::group::Holder;
use super::workflow::Step;
use super::{Moment, State};
use qo_core::Reason as Why;
use serde::Serialize;
use utoipa::ToSchema;
use uuid::Uuid;

/// Why a job does not run.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct Explanation {
    /// The job.
    id: Uuid,
    /// Its state.
    state: State,
    /// Everything that keeps it from running now; empty if it runs or has ended.
    reasons: Vec<Reason>,
}

impl From<qo_core::Explanation> for Explanation {
    fn from(explanation: qo_core::Explanation) -> Self {
        Self {
            id: explanation.job.0,
            state: explanation.state.into(),
            reasons: explanation.reasons.into_iter().map(Reason::from).collect(),
        }
    }
}

/// One thing that keeps a job from running. Which other fields it has depends on `reason`.
#[derive(Debug, Default, Serialize, ToSchema)]
struct Reason {
    /// `scheduled_until`, `retry_at`, `expired`, `queue_paused`, `waiting_for_step`, `workflow_halted`,
    /// `claimed_by_prefetch`, `held_by_limit_zero`, `can_never_run`, `group_full`, `reserved_for`, `no_live_worker`,
    /// `workers_busy` or `only_waiting_for_claim`.
    #[schema(value_type = String)]
    reason: &'static str,
    /// `scheduled_until`, `retry_at`: when it may start.
    #[serde(skip_serializing_if = "Option::is_none")]
    run_at: Option<Moment>,
    /// `expired`: until when it was good.
    #[serde(skip_serializing_if = "Option::is_none")]
    good_until: Option<Moment>,
    /// `queue_paused`, `no_live_worker`: its queue.
    #[serde(skip_serializing_if = "Option::is_none")]
    queue: Option<String>,
    /// `no_live_worker`: its task.
    #[serde(skip_serializing_if = "Option::is_none")]
    task: Option<String>,
    /// `waiting_for_step`, `workflow_halted`: its workflow.
    #[serde(skip_serializing_if = "Option::is_none")]
    workflow: Option<String>,
    /// `waiting_for_step`: the step that it waits for.
    #[serde(skip_serializing_if = "Option::is_none")]
    waits_for: Option<Step>,
    /// `workflow_halted`: the step that halts it.
    #[serde(skip_serializing_if = "Option::is_none")]
    halted_by: Option<Step>,
    /// `claimed_by_prefetch`: the worker.
    #[serde(skip_serializing_if = "Option::is_none")]
    worker: Option<String>,
    /// `claimed_by_prefetch`: its session.
    #[serde(skip_serializing_if = "Option::is_none")]
    session: Option<Uuid>,
    /// `claimed_by_prefetch`: when the claim ends unless the job starts.
    #[serde(skip_serializing_if = "Option::is_none")]
    claim_until: Option<Moment>,
    /// The group that lacks room.
    #[serde(skip_serializing_if = "Option::is_none")]
    group: Option<String>,
    /// `can_never_run`, `group_full`: slots it asks for.
    #[serde(skip_serializing_if = "Option::is_none")]
    cost: Option<u32>,
    /// `can_never_run`, `group_full`: the limit.
    #[serde(skip_serializing_if = "Option::is_none")]
    limit: Option<u32>,
    /// `group_full`: slots taken.
    #[serde(skip_serializing_if = "Option::is_none")]
    used: Option<u64>,
    /// `group_full`: what holds them, the oldest, at most ten.
    #[serde(skip_serializing_if = "Option::is_none")]
    holders: Option<Vec<Holder>>,
    /// `group_full`, `only_waiting_for_claim`: its place in line, 1 for the next; counted up to 10,000.
    #[serde(skip_serializing_if = "Option::is_none")]
    position: Option<u32>,
    /// `reserved_for`: the job that comes first.
    #[serde(skip_serializing_if = "Option::is_none")]
    job: Option<Uuid>,
    /// `workers_busy`: workers with less than a tenth of their permits free.
    #[serde(skip_serializing_if = "Option::is_none")]
    saturated: Option<u32>,
    /// `workers_busy`: workers that take no more jobs.
    #[serde(skip_serializing_if = "Option::is_none")]
    draining: Option<u32>,
}

impl From<Why> for Reason {
    fn from(why: Why) -> Self {
        let of = |reason| Self { reason, ..Self::default() };
        let in_group =
            |reason, group: qo_core::GroupRef| Self { group: Some(group.to_string()), ..of(reason) };
        match why {
            Why::ScheduledUntil { run_at } => Self { run_at: Some(run_at.into()), ..of("scheduled_until") },
            Why::RetryAt { run_at } => Self { run_at: Some(run_at.into()), ..of("retry_at") },
            Why::Expired { good_until } => Self { good_until: Some(good_until.into()), ..of("expired") },
            Why::QueuePaused { queue } => Self { queue: Some(queue.to_string()), ..of("queue_paused") },
            Why::WaitingForStep { workflow, waits_for } => Self {
                workflow: Some(workflow.to_string()),
                waits_for: Some(waits_for.into()),
                ..of("waiting_for_step")
            },
            Why::WorkflowHalted { workflow, halted_by } => Self {
                workflow: Some(workflow.to_string()),
                halted_by: Some(halted_by.into()),
                ..of("workflow_halted")
            },
            Why::ClaimedByPrefetch { worker, session, claim_until } => Self {
                worker: Some(worker.to_string()),
                session: Some(session.0),
                claim_until: Some(claim_until.into()),
                ..of("claimed_by_prefetch")
            },
            Why::HeldByLimitZero { group } => in_group("held_by_limit_zero", group),
            Why::CanNeverRun { group, cost, limit } => {
                Self { cost: Some(cost), limit: Some(limit), ..in_group("can_never_run", group) }
            }
            Why::GroupFull { group, used, limit, cost, holders, position } => Self {
                used: Some(used),
                limit: Some(limit),
                cost: Some(cost),
                holders: Some(holders.into_iter().map(Holder::from).collect()),
                position: Some(position),
                ..in_group("group_full", group)
            },
            Why::ReservedFor { group, job } => Self { job: Some(job.0), ..in_group("reserved_for", group) },
            Why::NoLiveWorker { queue, task } => {
                let (queue, task) = (Some(queue.to_string()), Some(task.to_string()));
                Self { queue, task, ..of("no_live_worker") }
            }
            Why::WorkersBusy { saturated, draining } => {
                Self { saturated: Some(saturated), draining: Some(draining), ..of("workers_busy") }
            }
            Why::OnlyWaitingForClaim { position } => {
                Self { position: Some(position), ..of("only_waiting_for_claim") }
            }
            // Of a release that knows more reasons than this interface.
            _ => of("unknown"),
        }
    }
}
