//! Joins a job to a workflow, and steers workflows.

use super::Decider;
use crate::state::row::{At, Past, Workflow};
use crate::state::{State, table::Ix};
use crate::{Answer, Error, Event, Name, OnFailure, Result, Steer};

impl Decider<'_> {
    /// The `on_failure` of a workflow, if a job may become its last step.
    pub(super) fn join(&self, name: &Name, on_failure: Option<OnFailure>) -> Result<OnFailure> {
        let Some(ix) = self.state.find_workflow(name) else { return Ok(on_failure.unwrap_or_default()) };
        let row = &self.state.workflows[ix].row;
        if row.cancelled {
            return Err(Error::conflict(format!("workflow {name} was cancelled and takes no more jobs")));
        }
        match on_failure {
            Some(asked) if asked != row.on_failure => Err(Error::conflict(format!(
                "on_failure: {asked}: workflow {name} was begun with {}",
                row.on_failure
            ))),
            Some(_) | None => Ok(row.on_failure),
        }
    }

    pub(super) fn steer_workflow(&mut self, name: &Name, steer: Steer) -> Result<Answer> {
        let ix = self.state.find_workflow(name);
        let ix = ix.ok_or_else(|| Error::not_found(format!("workflow {name}")))?;
        match steer {
            Steer::Cancel => self.cancel_workflow(ix),
            Steer::Retry(step) => {
                let is_open = matches!(self.state.workflows[ix].steps.get(&step), Some(At::Live(_)));
                if !is_open {
                    let past = self.halting(ix, step)?;
                    self.tick();
                    self.reopen(past);
                }
            }
            Steer::Skip(step) => {
                let at = self.state.workflows[ix].steps.get(&step);
                let is_skipped = matches!(at, Some(&At::Past(past)) if self.state.past[past].skipped);
                if !is_skipped {
                    let job = self.state.past[self.halting(ix, step)?].id;
                    self.tick();
                    self.happen(Event::StepSkipped(job));
                }
            }
        }
        Ok(Answer::Done)
    }

    /// The ended job of a step, if that step halts its workflow.
    fn halting(&self, ix: Ix<Workflow>, step: u32) -> Result<Ix<Past>> {
        let workflow = &self.state.workflows[ix];
        let name = &workflow.name;
        match workflow.head() {
            Some((head, At::Past(past))) if head == step => Ok(past),
            Some((head, At::Past(_))) => {
                Err(Error::conflict(format!("workflow {name} is halted by step {head}, not by step {step}")))
            }
            Some((_, At::Live(_))) | None => Err(Error::conflict(format!("workflow {name} is not halted"))),
        }
    }

    fn cancel_workflow(&mut self, ix: Ix<Workflow>) {
        let workflow = &self.state.workflows[ix];
        if workflow.row.cancelled {
            return;
        }
        let (name, steps) = (workflow.name.clone(), workflow.open.values().copied().collect::<Vec<_>>());
        self.tick();
        // From the last step backwards: otherwise each cancelled step could put the following one in line.
        for at in steps.into_iter().rev() {
            if let At::Live(job) = at {
                self.cancel_live(job);
            }
        }
        self.happen(Event::WorkflowCancelled(name));
    }
}

impl State {
    /// The workflow of an ended job, if it was cancelled.
    pub(super) fn cancelled_workflow(&self, past: Ix<Past>) -> Option<&Name> {
        let workflow = &self.workflows[self.past[past].membership()?.workflow];
        workflow.row.cancelled.then_some(&workflow.name)
    }
}
