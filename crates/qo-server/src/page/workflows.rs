//! `/workflows`: jobs that run one after another; `/workflows/NAME`: its steps as a line.

use super::action::Action;
use super::frame::{After, Answer, Frame, Section};
use super::moment::Now;
use super::text::number;
use super::{bar, link, piece};
use crate::caller::{Caller, Scope};
use crate::shared::Shared;
use axum::extract::{Path, Query, State};
use maud::{Markup, html};
use qo_core::words::counted;
use qo_core::{Cursor, JobFilter, JobView, Name, Steer, WorkflowState, WorkflowStatus};
use serde::Deserialize;

/// Workflows of one page, and steps of one page.
const PAGE: usize = 100;
const STEPS: usize = 60;

/// Where the list begins.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub struct Asked {
    after: String,
}

pub(crate) async fn list(
    State(shared): State<Shared>,
    caller: Caller,
    Query(asked): Query<Asked>,
    Query(done): Query<After>,
) -> Answer {
    shared.history.wake(&shared);
    let after = Some(asked.after).filter(|after| !after.is_empty());
    let is_first = after.is_none();
    let after = after.map(|after| Name::parse("after", &after)).transpose()?;
    let page = caller.store.workflows(after, PAGE).await?;
    let halted = page.workflows.iter().filter(|workflow| workflow.state == WorkflowState::Halted).count();
    let title = if halted > 0 { format!("Workflows, {halted} halted") } else { "Workflows".into() };
    let content = html! {
        h1 { "Workflows" }
        p.lead { "A workflow is a line of jobs. Each one starts when the one before it has succeeded." }
        @if page.workflows.is_empty() && is_first {
            (piece::nothing("No workflow is remembered.", Some("The first step makes one."), Some("qo submit fetch --workflow import-42\nqo submit store --workflow import-42")))
        } @else { (table(&page.workflows)) }
        (piece::pager(
            (!is_first).then(|| "/workflows".into()),
            page.next.map(|next| link::query("/workflows", [("after", &*next)])),
        ))
    };
    Ok(Frame::new(&caller, Section::Workflows, title).after(done).around(content))
}

fn table(workflows: &[WorkflowStatus]) -> Markup {
    html! {
        div.scroll role="region" aria-label="Workflows" tabindex="0" {
            table {
                thead {
                    tr {
                        th scope="col" { "Workflow" }
                        th scope="col" { "State" }
                        th scope="col" { "Steps that have ended" }
                        th.wide scope="col" { "At" }
                    }
                }
                tbody {
                    @for workflow in workflows {
                        @let passed = workflow.steps.saturating_sub(workflow.live);
                        tr id={"workflow-" (workflow.workflow)} {
                            td.name { a href=(link::workflow(&workflow.workflow)) { (workflow.workflow) } }
                            td { (state(workflow.state)) }
                            td {
                                span.meter {
                                    (bar::drawn(passed.into(), workflow.steps.into(), "steps have ended"))
                                    span.figures { b { (passed) } " / " (workflow.steps) }
                                }
                            }
                            td.wide { @if let Some(head) = &workflow.head { "step " (head.step) " " (piece::state(head.state)) } }
                        }
                    }
                }
            }
        }
    }
}

fn state(state: WorkflowState) -> Markup {
    let (class, said) = match state {
        WorkflowState::Active => ("running", "active"),
        WorkflowState::Halted => ("failed", "halted"),
        WorkflowState::Finished => ("succeeded", "finished"),
        WorkflowState::Cancelled => ("cancelled", "cancelled"),
    };
    html! { span class={"state " (class)} { (said) } }
}

/// Where the line begins.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub struct Begin {
    after: Option<u64>,
}

pub(crate) async fn one(
    State(shared): State<Shared>,
    caller: Caller,
    Path(workflow): Path<String>,
    Query(from): Query<Begin>,
    Query(done): Query<After>,
) -> Answer {
    shared.history.wake(&shared);
    let name = Name::parse("workflow", &workflow)?;
    let filter = JobFilter { workflow: Some(name.clone()), ..JobFilter::default() };
    let store = &caller.store;
    let (now, status, steps) = tokio::try_join!(
        store.now(),
        store.workflow(name.clone()),
        store.jobs(filter, from.after.map(Cursor), STEPS)
    )?;
    let now = Now(now);
    let (_, said) = (state(status.state), state_said(status.state));
    let here = link::workflow(&name);
    let content = html! {
        p.up { a href="/workflows" { "Workflows" } }
        h1 { (name) " " (state(status.state)) }
        p.lead {
            (counted(status.steps.into(), "step")) ", " (number(status.live)) " of them live. "
            "When a step does not succeed, the others " (if status.on_failure == qo_core::OnFailure::Halt { "wait." } else { "go on." })
        }
        @if caller.may(Scope::Admin) { (actions(&status)) }
        section aria-labelledby="line" {
            h2 id="line" { "Steps" }
            (line(&steps.jobs, &status))
            (piece::pager(
                from.after.map(|_| here.clone()),
                steps.next.map(|Cursor(next)| link::query(&here, [("after", next.to_string())])),
            ))
        }
        section aria-labelledby="jobs" {
            h2 id="jobs" { "Their jobs" }
            (piece::jobs(&steps.jobs, now, "The jobs of its steps"))
        }
    };
    Ok(Frame::new(&caller, Section::Workflows, format!("{name} {said}")).after(done).around(content))
}

fn state_said(state: WorkflowState) -> &'static str {
    match state {
        WorkflowState::Active => "active",
        WorkflowState::Halted => "halted",
        WorkflowState::Finished => "finished",
        WorkflowState::Cancelled => "cancelled",
    }
}

fn actions(status: &WorkflowStatus) -> Markup {
    let halted_by = status.head.filter(|_| status.state == WorkflowState::Halted).map(|head| head.step);
    let name = &status.workflow;
    let may_cancel = matches!(status.state, WorkflowState::Active | WorkflowState::Halted);
    html! {
        @if halted_by.is_some() || may_cancel {
            div.actions {
                @if let Some(step) = halted_by {
                    (piece::button(&Action::SteerWorkflow(name.clone(), Steer::Retry(step)), &format!("Retry step {step}")))
                    (piece::button(&Action::SteerWorkflow(name.clone(), Steer::Skip(step)), &format!("Skip step {step}")))
                }
                @if may_cancel { (piece::danger(&Action::SteerWorkflow(name.clone(), Steer::Cancel), "Cancel the workflow")) }
            }
        }
    }
}

fn line(steps: &[JobView], status: &WorkflowStatus) -> Markup {
    let head = status.head.map(|head| head.step);
    html! {
        div.scroll role="region" aria-label="Steps" tabindex="0" {
            ol.line {
                @for step in steps {
                    @let class = qo_core::words::state_name(step.state);
                    @let is_head = step.step.is_some() && step.step == head;
                    li id={"step-" (step.step.unwrap_or_default())} class=(class) aria-current=[is_head.then_some("step")] {
                        span.dot aria-hidden="true" {}
                        a href=(link::job(step.id)) { (step.step.unwrap_or_default()) " " (step.task) }
                        (piece::state_of(step))
                    }
                }
            }
        }
    }
}
