//! Why a job is not running.

use super::{all, built, group, job_id, messages, name, needed, number, session_id, state, text};
use crate::pb;
use qo_core::{Error, Explanation, Reason, Result, StepStatus, Time};
use serde_json::json as parts;

impl From<Explanation> for pb::Explanation {
    fn from(explanation: Explanation) -> Self {
        Self {
            job: explanation.job.to_string(),
            state: number::<pb::JobState, _>(explanation.state),
            reasons: messages(explanation.reasons),
        }
    }
}

impl TryFrom<pb::Explanation> for Explanation {
    type Error = Error;

    fn try_from(explanation: pb::Explanation) -> Result<Self> {
        // A newer server may have reasons that this release does not know.
        let known = explanation.reasons.into_iter().filter(|reason| reason.reason.is_some()).collect();
        let reasons: Vec<Reason> = all(known, "reasons")?;
        let state = state("state", explanation.state)?;
        built(parts!({ "job": explanation.job, "state": state, "reasons": reasons }))
    }
}

impl From<Reason> for pb::Reason {
    fn from(reason: Reason) -> Self {
        use pb::reason::Reason as Wire;
        let reason = match reason {
            Reason::ScheduledUntil { run_at } => {
                Wire::ScheduledUntil(pb::ScheduledUntil { run_at_ms: run_at.as_millis() })
            }
            Reason::RetryAt { run_at } => Wire::RetryAt(pb::RetryAt { run_at_ms: run_at.as_millis() }),
            Reason::Expired { good_until } => {
                Wire::Expired(pb::Expired { good_until_ms: good_until.as_millis() })
            }
            Reason::QueuePaused { queue } => Wire::QueuePaused(pb::QueuePaused { queue: text(queue) }),
            Reason::WaitingForStep { workflow, waits_for } => Wire::WaitingForStep(pb::WaitingForStep {
                workflow: text(workflow),
                waits_for: Some(waits_for.into()),
            }),
            Reason::WorkflowHalted { workflow, halted_by } => Wire::WorkflowHalted(pb::WorkflowHalted {
                workflow: text(workflow),
                halted_by: Some(halted_by.into()),
            }),
            Reason::ClaimedByPrefetch { worker, session, claim_until } => {
                Wire::ClaimedByPrefetch(pb::ClaimedByPrefetch {
                    worker: text(worker),
                    session: session.to_string(),
                    claim_until_ms: claim_until.as_millis(),
                })
            }
            Reason::HeldByLimitZero { group } => {
                Wire::HeldByLimitZero(pb::HeldByLimitZero { group: group.to_string() })
            }
            Reason::CanNeverRun { group, cost, limit } => {
                Wire::CanNeverRun(pb::CanNeverRun { group: group.to_string(), cost, limit })
            }
            Reason::GroupFull { group, used, limit, cost, holders, position } => {
                let (group, holders) = (group.to_string(), messages(holders));
                Wire::GroupFull(pb::GroupFull { group, used, limit, cost, holders, position })
            }
            Reason::ReservedFor { group, job } => {
                Wire::ReservedFor(pb::ReservedFor { group: group.to_string(), job: job.to_string() })
            }
            Reason::NoLiveWorker { queue, task } => {
                Wire::NoLiveWorker(pb::NoLiveWorker { queue: text(queue), task: text(task) })
            }
            Reason::WorkersBusy { saturated, draining } => {
                Wire::WorkersBusy(pb::WorkersBusy { saturated, draining })
            }
            Reason::OnlyWaitingForClaim { position } => {
                Wire::OnlyWaitingForClaim(pb::OnlyWaitingForClaim { position })
            }
            // The enumeration of qo-core may grow; a test compares it with the one of the protocol.
            _ => return Self { reason: None },
        };
        Self { reason: Some(reason) }
    }
}

fn step(status: Option<pb::StepStatus>) -> Result<StepStatus> {
    needed("step", status)?.try_into()
}

impl TryFrom<pb::Reason> for Reason {
    type Error = Error;

    fn try_from(reason: pb::Reason) -> Result<Self> {
        use pb::reason::Reason as Wire;
        Ok(match needed("reason", reason.reason)? {
            Wire::ScheduledUntil(pb::ScheduledUntil { run_at_ms }) => {
                Self::ScheduledUntil { run_at: Time::from_millis(run_at_ms) }
            }
            Wire::RetryAt(pb::RetryAt { run_at_ms }) => {
                Self::RetryAt { run_at: Time::from_millis(run_at_ms) }
            }
            Wire::Expired(pb::Expired { good_until_ms }) => {
                Self::Expired { good_until: Time::from_millis(good_until_ms) }
            }
            Wire::QueuePaused(pb::QueuePaused { queue }) => {
                Self::QueuePaused { queue: name("queue", &queue)? }
            }
            Wire::WaitingForStep(pb::WaitingForStep { workflow, waits_for }) => {
                Self::WaitingForStep { workflow: name("workflow", &workflow)?, waits_for: step(waits_for)? }
            }
            Wire::WorkflowHalted(pb::WorkflowHalted { workflow, halted_by }) => {
                Self::WorkflowHalted { workflow: name("workflow", &workflow)?, halted_by: step(halted_by)? }
            }
            Wire::ClaimedByPrefetch(by) => Self::ClaimedByPrefetch {
                worker: name("worker", &by.worker)?,
                session: session_id("session", &by.session)?,
                claim_until: Time::from_millis(by.claim_until_ms),
            },
            Wire::HeldByLimitZero(held) => Self::HeldByLimitZero { group: group("group", &held.group)? },
            Wire::CanNeverRun(pb::CanNeverRun { group: reference, cost, limit }) => {
                Self::CanNeverRun { group: group("group", &reference)?, cost, limit }
            }
            Wire::GroupFull(full) => Self::GroupFull {
                group: group("group", &full.group)?,
                used: full.used,
                limit: full.limit,
                cost: full.cost,
                holders: all(full.holders, "holders")?,
                position: full.position,
            },
            Wire::ReservedFor(pb::ReservedFor { group: reference, job }) => {
                Self::ReservedFor { group: group("group", &reference)?, job: job_id("job", &job)? }
            }
            Wire::NoLiveWorker(pb::NoLiveWorker { queue, task }) => {
                Self::NoLiveWorker { queue: name("queue", &queue)?, task: name("task", &task)? }
            }
            Wire::WorkersBusy(pb::WorkersBusy { saturated, draining }) => {
                Self::WorkersBusy { saturated, draining }
            }
            Wire::OnlyWaitingForClaim(pb::OnlyWaitingForClaim { position }) => {
                Self::OnlyWaitingForClaim { position }
            }
        })
    }
}
