//! Workflows.

use super::{all, built, enumeration, messages, number, state, text, value};
use crate::pb;
use qo_core::{Error, OnFailure, Result, Steer, StepStatus, WorkflowPage, WorkflowState, WorkflowStatus};
use serde_json::json as parts;

enumeration!(WorkflowState, pb::WorkflowState, "state", { Active, Halted, Finished, Cancelled });

/// The action and the step that it names.
pub(crate) fn steering(steer: Steer) -> (pb::SteerAction, u32) {
    match steer {
        Steer::Retry(step) => (pb::SteerAction::Retry, step),
        Steer::Skip(step) => (pb::SteerAction::Skip, step),
        Steer::Cancel => (pb::SteerAction::Cancel, 0),
    }
}

impl TryFrom<&pb::SteerWorkflowRequest> for Steer {
    type Error = Error;

    fn try_from(request: &pb::SteerWorkflowRequest) -> Result<Self> {
        match pb::SteerAction::try_from(request.action) {
            Ok(pb::SteerAction::Retry) => Ok(Self::Retry(request.step)),
            Ok(pb::SteerAction::Skip) => Ok(Self::Skip(request.step)),
            Ok(pb::SteerAction::Cancel) => Ok(Self::Cancel),
            Ok(pb::SteerAction::Unspecified) | Err(_) => Err(super::unknown("action", request.action)),
        }
    }
}

impl From<StepStatus> for pb::StepStatus {
    fn from(status: StepStatus) -> Self {
        Self {
            step: status.step,
            job: status.job.to_string(),
            state: number::<pb::JobState, _>(status.state),
        }
    }
}

impl TryFrom<pb::StepStatus> for StepStatus {
    type Error = Error;

    fn try_from(status: pb::StepStatus) -> Result<Self> {
        let pb::StepStatus { step, job, state: number } = status;
        built(parts!({ "step": step, "job": job, "state": state("state", number)? }))
    }
}

impl From<WorkflowStatus> for pb::WorkflowStatus {
    fn from(status: WorkflowStatus) -> Self {
        Self {
            workflow: text(status.workflow),
            state: number::<pb::WorkflowState, _>(status.state),
            on_failure: number::<pb::OnFailure, _>(status.on_failure),
            steps: status.steps,
            live: status.live,
            head: status.head.map(pb::StepStatus::from),
        }
    }
}

impl TryFrom<pb::WorkflowStatus> for WorkflowStatus {
    type Error = Error;

    fn try_from(status: pb::WorkflowStatus) -> Result<Self> {
        let pb::WorkflowStatus { workflow, state, on_failure, steps, live, head } = status;
        let state: WorkflowState = value::<pb::WorkflowState, _>("state", state)?;
        let on_failure: OnFailure = value::<pb::OnFailure, _>("on_failure", on_failure)?;
        built(parts!({
            "workflow": workflow,
            "state": state,
            "on_failure": on_failure,
            "steps": steps,
            "live": live,
            "head": head.map(StepStatus::try_from).transpose()?,
        }))
    }
}

impl From<WorkflowPage> for pb::WorkflowPage {
    fn from(page: WorkflowPage) -> Self {
        Self { workflows: messages(page.workflows), next: page.next.map(text) }
    }
}

impl TryFrom<pb::WorkflowPage> for WorkflowPage {
    type Error = Error;

    fn try_from(page: pb::WorkflowPage) -> Result<Self> {
        let workflows: Vec<WorkflowStatus> = all(page.workflows, "workflows")?;
        built(parts!({ "workflows": workflows, "next": page.next }))
    }
}
