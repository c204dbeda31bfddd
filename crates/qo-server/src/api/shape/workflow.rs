//! Workflows and their steps.

use super::{Job, State, Wide};
use qo_core::{OnFailure, StepStatus, WorkflowState, WorkflowStatus};
use serde::Serialize;
use utoipa::ToSchema;
use uuid::Uuid;

/// A workflow.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct Workflow {
    /// Its name.
    workflow: String,
    /// `active`, `halted`, `finished` or `cancelled`.
    #[schema(value_type = String)]
    state: WorkflowState,
    /// `halt` or `continue`.
    #[schema(value_type = String)]
    on_failure: OnFailure,
    /// Steps that were ever accepted.
    steps: u32,
    /// Steps that have not ended.
    live: u32,
    /// The step that runs or is next, or the one that halts the rest.
    #[schema(required)]
    head: Option<Step>,
}

impl From<WorkflowStatus> for Workflow {
    fn from(status: WorkflowStatus) -> Self {
        Self {
            workflow: status.workflow.to_string(),
            state: status.state,
            on_failure: status.on_failure,
            steps: status.steps,
            live: status.live,
            head: status.head.map(Step::from),
        }
    }
}

/// A step of a workflow.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct Step {
    /// Its number, 1 for the first.
    step: u32,
    /// Its job.
    job: Uuid,
    /// The job's state.
    state: State,
}

impl From<StepStatus> for Step {
    fn from(step: StepStatus) -> Self {
        Self { step: step.step, job: step.job.0, state: step.state.into() }
    }
}

/// Some workflows.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct WorkflowPage {
    /// The workflows, by name.
    workflows: Vec<Workflow>,
    /// The cursor of the next page; null if this is the last.
    #[schema(required)]
    next: Option<String>,
}

impl From<qo_core::WorkflowPage> for WorkflowPage {
    fn from(page: qo_core::WorkflowPage) -> Self {
        Self {
            workflows: page.workflows.into_iter().map(Workflow::from).collect(),
            next: page.next.map(|workflow| workflow.to_string()),
        }
    }
}

/// A workflow and its steps.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct WholeWorkflow {
    #[serde(flatten)]
    pub workflow: Workflow,
    /// Its steps, in their order.
    pub jobs: Vec<Job>,
    /// The cursor of the next page of steps; null if this is the last.
    #[schema(required)]
    pub next: Option<Wide>,
}
