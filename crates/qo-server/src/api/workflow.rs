//! Workflows: jobs that run strictly one after another.

use super::input::{Body, NamePath, NoQuery, Query};
use super::problem::Problem;
use super::shape::{JobPage, WholeWorkflow, Workflow, WorkflowPage};
use crate::caller::Caller;
use axum::Json;
use qo_core::{Error, ErrorKind, JobFilter, Name, Result, Steer, WorkflowState};
use qo_text::fields::number;
use qo_text::word;
use serde::Serialize;
use utoipa::ToSchema;

/// List workflows, by name.
#[utoipa::path(
    get, path = "/api/v1/workflows", tag = "workflows",
    params(
        ("cursor" = Option<String>, Query, description = "`next` of an earlier page: a workflow. Those after it are listed."),
        ("limit" = Option<u32>, Query, minimum = 1, maximum = 1000, description = "Rows of a page. Defaults to 100."),
    ),
    responses((status = 200, description = "The workflows.", body = WorkflowPage))
)]
pub(super) async fn list_workflows(caller: Caller, mut query: Query) -> Result<Json<WorkflowPage>, Problem> {
    let (after, limit) = (query.take("cursor", word::name)?, query.limit()?);
    query.finish()?;
    Ok(Json(caller.store.workflows(after, limit).await?.into()))
}

/// A workflow and its steps.
#[utoipa::path(
    get, path = "/api/v1/workflows/{workflow}", tag = "workflows",
    params(
        ("workflow" = String, Path, description = "The workflow."),
        ("cursor" = Option<String>, Query, description = "`next` of an earlier page of steps."),
        ("limit" = Option<u32>, Query, minimum = 1, maximum = 1000, description = "Steps of a page. Defaults to 100."),
    ),
    responses((status = 200, description = "The workflow.", body = WholeWorkflow))
)]
pub(super) async fn get_workflow(
    caller: Caller,
    NamePath(name): NamePath,
    mut query: Query,
) -> Result<Json<WholeWorkflow>, Problem> {
    let (cursor, limit) = (query.cursor()?, query.limit()?);
    query.finish()?;
    let workflow = caller.store.workflow(name.clone()).await?.into();
    let filter = JobFilter { workflow: Some(name), ..JobFilter::default() };
    let JobPage { jobs, next } = caller.store.jobs(filter, cursor, limit).await?.into();
    Ok(Json(WholeWorkflow { workflow, jobs, next }))
}

/// The step that a change is about.
#[derive(Serialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct WhichStep {
    /// The step, 1 for the first; if another one halts the workflow nothing happens. Defaults to the one that halts it.
    step: Option<u32>,
}

/// Run the step that halts a workflow once more.
#[utoipa::path(
    post, path = "/api/v1/workflows/{workflow}/retry", tag = "workflows", request_body = Option<WhichStep>,
    params(("workflow" = String, Path, description = "The workflow.")),
    responses((status = 200, description = "The workflow now.", body = Workflow))
)]
pub(super) async fn retry_workflow(
    caller: Caller,
    NamePath(name): NamePath,
    _: NoQuery,
    body: Body,
) -> Result<Json<Workflow>, Problem> {
    let step = halting(&caller, &name, &body).await?;
    steer(caller, name, Steer::Retry(step)).await
}

/// Pass over the step that halts a workflow.
#[utoipa::path(
    post, path = "/api/v1/workflows/{workflow}/skip", tag = "workflows", request_body = Option<WhichStep>,
    params(("workflow" = String, Path, description = "The workflow.")),
    responses((status = 200, description = "The workflow now.", body = Workflow))
)]
pub(super) async fn skip_workflow(
    caller: Caller,
    NamePath(name): NamePath,
    _: NoQuery,
    body: Body,
) -> Result<Json<Workflow>, Problem> {
    let step = halting(&caller, &name, &body).await?;
    steer(caller, name, Steer::Skip(step)).await
}

/// Cancel every step that has not ended; nothing more can be submitted to the workflow.
#[utoipa::path(
    post, path = "/api/v1/workflows/{workflow}/cancel", tag = "workflows",
    params(("workflow" = String, Path, description = "The workflow.")),
    responses((status = 200, description = "The workflow now.", body = Workflow))
)]
pub(super) async fn cancel_workflow(
    caller: Caller,
    NamePath(name): NamePath,
    _: NoQuery,
) -> Result<Json<Workflow>, Problem> {
    steer(caller, name, Steer::Cancel).await
}

async fn steer(caller: Caller, name: Name, steer: Steer) -> Result<Json<Workflow>, Problem> {
    caller.store.steer_workflow(name.clone(), steer).await?;
    Ok(Json(caller.store.workflow(name).await?.into()))
}

/// The step that halts a workflow, or the one that the caller names. The change names it, so that a request that is
/// repeated cannot hit the next step.
async fn halting(caller: &Caller, name: &Name, body: &Body) -> Result<u32, Problem> {
    let mut fields = body.fields("a step")?;
    let step = fields.take("step", number::<u32>)?;
    fields.finish()?;
    if let Some(step) = step {
        return Ok(step);
    }
    let status = caller.store.workflow(name.clone()).await?;
    match status.head.filter(|_| status.state == WorkflowState::Halted) {
        Some(head) => Ok(head.step),
        None => Err(Error::new(ErrorKind::Conflict, format!("no step halts workflow {name}")).into()),
    }
}
