//! `qo workflows`

use super::argument::{self, state_name};
use super::jobs::style;
use crate::by_hand::by_hand;
use crate::cli::Format;
use crate::output::{Array, Screen, Style, Table};
use crate::place::{Place, did_you_mean, times};
use crate::trouble::{Done, Trouble};
use clap::{Args, Subcommand};
use qo::core::{JobFilter, JobView, Name, Steer, StepStatus, WorkflowState, WorkflowStatus, caps};
use qo::{Error, ErrorKind, Store};
use std::sync::Arc;

/// See workflows: jobs that run strictly one after another. Retry or skip a step that failed.
#[derive(Debug, Args)]
#[command(args_conflicts_with_subcommands = true)]
#[command(after_help = "\
Examples:
  qo workflows
  qo workflows show order-7
  qo workflows retry order-7      the step that halts it runs again
  qo workflows skip order-7       the step that halts it is skipped
  qo workflows cancel order-7")]
pub struct Workflows {
    #[command(subcommand)]
    action: Option<Action>,
    /// Show at most this many.
    #[arg(long, value_name = "N", default_value = "100", conflicts_with = "all", value_parser = argument::count)]
    limit: usize,
    /// Show all, however many.
    #[arg(long)]
    all: bool,
    #[command(flatten)]
    format: Format,
}

#[derive(Debug, Subcommand)]
enum Action {
    /// Show a workflow and its steps.
    #[command(after_help = "Example:\n  qo workflows show order-7 --json")]
    Show {
        /// The workflow.
        #[arg(value_parser = argument::name)]
        name: Name,
        #[command(flatten)]
        format: Format,
    },
    /// Run the step that halts a workflow once more.
    #[command(after_help = "Example:\n  qo workflows retry order-7")]
    Retry(Which),
    /// Pass over the step that halts a workflow.
    #[command(after_help = "Example:\n  qo workflows skip order-7 --step 3")]
    Skip(Which),
    /// Cancel every step that has not ended; nothing more can be submitted to it.
    #[command(after_help = "Example:\n  qo workflows cancel order-7")]
    Cancel {
        /// The workflow.
        #[arg(value_parser = argument::name)]
        name: Name,
        #[command(flatten)]
        format: Format,
    },
}

#[derive(Debug, Args)]
struct Which {
    /// The workflow.
    #[arg(value_parser = argument::name)]
    name: Name,
    /// The step; if another one halts it nothing happens [default: the one that halts it].
    #[arg(long, value_name = "N")]
    step: Option<u32>,
    #[command(flatten)]
    format: Format,
}

impl Workflows {
    /// Lists workflows, or changes one.
    pub async fn run(self, place: &Place, screen: &mut Screen) -> Done {
        let store = place.open_existing().await?;
        match self.action {
            None => {
                let most = if self.all || self.format.json { usize::MAX } else { self.limit };
                list(&store, screen, self.format, most).await
            }
            Some(Action::Show { name, format }) => show(&store, screen, name, format).await,
            Some(Action::Retry(which)) => {
                let step = halting(&store, &which).await?;
                steer(&store, which.name.clone(), Steer::Retry(step.step)).await?;
                if which.format.json {
                    return screen.json(&find(&store, &which.name).await?);
                }
                screen.line(format_args!("workflow {}: step {} runs again", which.name, step.step))
            }
            Some(Action::Skip(which)) => {
                let step = halting(&store, &which).await?;
                steer(&store, which.name.clone(), Steer::Skip(step.step)).await?;
                if which.format.json {
                    return screen.json(&find(&store, &which.name).await?);
                }
                screen.line(format_args!("workflow {}: step {} is skipped", which.name, step.step))
            }
            Some(Action::Cancel { name, format }) => {
                steer(&store, name.clone(), Steer::Cancel).await?;
                if format.json {
                    return screen.json(&find(&store, &name).await?);
                }
                screen.line(format_args!("workflow {name} is cancelled"))
            }
        }
    }
}

async fn find(store: &Arc<dyn Store>, name: &Name) -> Done<WorkflowStatus> {
    match store.workflow(name.clone()).await {
        Ok(status) => Ok(status),
        Err(error) => Err(with_names(store, error, name).await?),
    }
}

async fn steer(store: &Arc<dyn Store>, name: Name, steer: Steer) -> Done {
    match by_hand(&**store).steer_workflow(name.clone(), steer).await {
        Ok(()) => Ok(()),
        Err(error) => Err(with_names(store, error, &name).await?),
    }
}

async fn with_names(store: &Arc<dyn Store>, error: Error, name: &Name) -> Done<Trouble> {
    let known = store.workflows(None, caps::PAGE).await?.workflows;
    let known = known.into_iter().map(|status| status.workflow.to_string());
    Ok(did_you_mean(error.into(), name, known))
}

/// The step that halts a workflow. The calls that follow name it, so that they cannot hit the next step.
async fn halting(store: &Arc<dyn Store>, which: &Which) -> Done<StepStatus> {
    let status = find(store, &which.name).await?;
    match status.head.filter(|_| status.state == WorkflowState::Halted) {
        Some(mut head) => {
            head.step = which.step.unwrap_or(head.step);
            Ok(head)
        }
        None => {
            let state = state_of(status.state).0;
            let message = format!("workflow {} is {state}: no step halts it", which.name);
            let trouble = Trouble::from(Error::new(ErrorKind::Conflict, message));
            Err(trouble.hint(format!("qo workflows show {}", which.name)))
        }
    }
}

fn state_of(state: WorkflowState) -> (&'static str, Style) {
    match state {
        WorkflowState::Active => ("active", Style::Plain),
        WorkflowState::Halted => ("halted", Style::Bad),
        WorkflowState::Finished => ("finished", Style::Good),
        WorkflowState::Cancelled => ("cancelled", Style::Warn),
    }
}

fn head_of(head: Option<&StepStatus>) -> String {
    head.map_or_else(|| "-".into(), |head| format!("step {} {}", head.step, state_name(head.state)))
}

async fn list(store: &Arc<dyn Store>, screen: &mut Screen, format: Format, most: usize) -> Done {
    let mut table = Table::new(&["WORKFLOW", "STATE", "STEPS", "LIVE", "ON FAILURE", "NOW"]);
    let mut array = if format.json { Some(Array::begin(screen)?) } else { None };
    let (mut after, mut shown) = (None, 0);
    while shown < most {
        let page = store.workflows(after, caps::PAGE.min(most - shown)).await?;
        shown += page.workflows.len();
        for status in &page.workflows {
            if let Some(array) = &mut array {
                array.add(screen, status)?;
                continue;
            }
            let (state, style) = state_of(status.state);
            table.row([
                (status.workflow.to_string(), Style::Strong),
                (state.to_owned(), style),
                (status.steps.to_string(), Style::Plain),
                (status.live.to_string(), Style::Plain),
                (status.on_failure.to_string(), Style::Dim),
                (head_of(status.head.as_ref()), Style::Plain),
            ]);
        }
        after = page.next;
        if after.is_none() {
            break;
        }
    }
    if let Some(array) = array {
        return array.end(screen);
    }
    if table.is_empty() {
        screen.say("no workflows");
        screen.hint("the first step makes one: qo submit TASK JSON --workflow NAME");
        return Ok(());
    }
    screen.table(table)?;
    if after.is_some() {
        screen.say(format_args!("… the first {shown}; --limit N or --all shows more"));
    }
    Ok(())
}

async fn show(store: &Arc<dyn Store>, screen: &mut Screen, name: Name, format: Format) -> Done {
    let status = find(store, &name).await?;
    let filter = JobFilter { workflow: Some(name.clone()), ..JobFilter::default() };
    let (mut steps, mut after): (Vec<JobView>, _) = (Vec::new(), None);
    loop {
        let page = store.jobs(filter.clone(), after, caps::PAGE).await?;
        steps.extend(page.jobs);
        after = page.next;
        if after.is_none() {
            break;
        }
    }
    if format.json {
        #[derive(serde::Serialize)]
        struct Whole {
            #[serde(flatten)]
            status: WorkflowStatus,
            jobs: Vec<JobView>,
        }
        return screen.json(&Whole { status, jobs: steps });
    }
    let times = times(store).await?;
    let (state, _) = state_of(status.state);
    screen.line(format_args!(
        "workflow {name} is {state}: {} steps, {} live, on failure {}\n",
        status.steps, status.live, status.on_failure
    ))?;
    let mut table = Table::new(&["STEP", "STATE", "TASK", "JOB", "TRIES", "AGE"]);
    for step in &steps {
        let skipped = if step.skipped { ", skipped" } else { "" };
        table.row([
            (step.step.map(|step| step.to_string()).unwrap_or_default(), Style::Strong),
            (format!("{}{skipped}", state_name(step.state)), style(step.state)),
            (step.task.to_string(), Style::Plain),
            (step.id.to_string(), Style::Plain),
            (format!("{}/{}", step.attempts_used, step.max_attempts), Style::Plain),
            (times.age(step.submitted_at), Style::Plain),
        ]);
    }
    screen.table(table)?;
    if status.state == WorkflowState::Halted {
        screen.hint(format_args!("go on with qo workflows retry {name}, or qo workflows skip {name}"));
    }
    Ok(())
}
