//! Workflows: which step is next, and what operators do about a step that did not succeed.

use super::state::{Job, Toy};
use super::views::check_page;
use super::{Flaw, conflict, not_found};
use qo_core::{JobState, Name, NewJob, OnFailure, Result, Steer, StepStatus, WorkflowPage, WorkflowState};
use qo_core::{WorkflowStatus, caps};

/// What is kept of a workflow beside its jobs.
#[derive(Clone)]
pub(super) struct Workflow {
    pub on_failure: OnFailure,
    pub cancelled: bool,
    /// Steps that were ever accepted.
    pub steps: u32,
}

impl Toy {
    /// The steps that are live or remembered, by number: the jobs are in the order of their acceptance.
    fn steps(&self, workflow: &Name) -> std::vec::IntoIter<&Job> {
        let steps = self.jobs.iter().filter(|job| job.new.workflow.as_ref() == Some(workflow));
        steps.collect::<Vec<_>>().into_iter()
    }

    pub fn is_passed(&self, step: &Job) -> bool {
        let Some(workflow) = step.new.workflow.as_ref().and_then(|name| self.workflows.get(name)) else {
            return false;
        };
        match self.flaw {
            Flaw::HaltedGoesOn if step.state.is_terminal() => return true,
            Flaw::RetryPassesStep if step.state == JobState::Pending && step.attempts_used > 0 => {
                return true;
            }
            _ => {}
        }
        let goes_on = step.skipped || workflow.on_failure == OnFailure::Continue || workflow.cancelled;
        step.state == JobState::Succeeded || step.state.is_terminal() && goes_on
    }

    /// The first step that is not passed.
    pub fn head(&self, workflow: &Name) -> Option<&Job> {
        let mut steps = self.steps(workflow).filter(|step| !self.is_passed(step));
        match self.flaw {
            Flaw::StepsById => steps.min_by_key(|step| step.new.id),
            _ => steps.next(),
        }
    }

    pub fn is_halted(&self, workflow: &Name) -> bool {
        self.head(workflow).is_some_and(|head| head.state.is_terminal())
    }

    /// The step that runs, if it is not the given one.
    fn other_that_runs(&self, workflow: &Name, job: &Job) -> Option<&Job> {
        self.steps(workflow).find(|step| step.is_running() && step.new.id != job.new.id)
    }

    /// Whether its workflow does not hold a job back; true of a job that is no step.
    pub fn is_next(&self, job: &Job) -> bool {
        let Some(workflow) = &job.new.workflow else { return true };
        let is_head = self.head(workflow).is_some_and(|head| head.new.id == job.new.id);
        is_head && (self.flaw == Flaw::TwoStepsAtOnce || self.other_that_runs(workflow, job).is_none())
    }

    /// The step that a pending one waits for.
    pub fn waits_for(&self, job: &Job) -> Option<StepStatus> {
        let workflow = job.new.workflow.as_ref()?;
        self.other_that_runs(workflow, job).or_else(|| self.head(workflow)).map(step_status)
    }

    /// Why a job may not be a step of the workflow that it names.
    pub fn check_workflow(&self, new: &NewJob) -> Result<()> {
        let Some(name) = &new.workflow else { return Ok(()) };
        let Some(workflow) = self.workflows.get(name) else { return Ok(()) };
        if workflow.cancelled {
            return Err(conflict(format_args!("workflow {name} is cancelled")));
        }
        if let Some(other) = new.on_failure.filter(|&other| other != workflow.on_failure) {
            let known = workflow.on_failure;
            return Err(conflict(format_args!("workflow {name} says {known} on failure, not {other}")));
        }
        Ok(())
    }

    /// The number of a job that was just accepted; it may be the first of its workflow.
    pub fn next_step(&mut self, new: &NewJob) -> Option<u32> {
        let on_failure = new.on_failure.unwrap_or_default();
        let workflow = self.workflows.entry(new.workflow.clone()?).or_insert(Workflow {
            on_failure,
            cancelled: false,
            steps: 0,
        });
        workflow.steps += 1;
        Some(workflow.steps)
    }

    pub fn steer(&mut self, name: &Name, steer: Steer) -> Result<()> {
        if !self.workflows.contains_key(name) {
            return Err(not_found(name));
        }
        match steer {
            Steer::Cancel => self.cancel_workflow(name),
            Steer::Retry(number) if self.is_step(name, number, Job::is_live) => {}
            Steer::Skip(number) if self.is_step(name, number, |step| step.skipped) => {}
            Steer::Retry(number) => {
                let at = self.halting(name, number)?;
                self.reopen(at);
            }
            Steer::Skip(number) => {
                let at = self.halting(name, number)?;
                self.jobs[at].skipped = true;
            }
        }
        Ok(())
    }

    fn cancel_workflow(&mut self, name: &Name) {
        let live = self.steps(name).filter(|step| step.is_live()).map(|step| step.new.id);
        for step in live.collect::<Vec<_>>() {
            // The steps are there: no sweep runs in between.
            drop(self.cancel_one(step));
        }
        if let Some(workflow) = self.workflows.get_mut(name) {
            workflow.cancelled = true;
        }
    }

    /// Whether the step of that number is there and needs no change.
    fn is_step(&self, name: &Name, number: u32, is_done: impl Fn(&Job) -> bool) -> bool {
        let done = self.steps(name).any(|step| step.step == Some(number) && is_done(step));
        done && self.flaw != Flaw::SteerHitsTheNext
    }

    /// Where the step of that number is, if it halts the workflow.
    fn halting(&self, name: &Name, number: u32) -> Result<usize> {
        let named = |head: &&Job| head.step == Some(number) || self.flaw == Flaw::SteerHitsTheNext;
        let head = self.head(name).filter(|head| head.state.is_terminal()).filter(named);
        let at = head.and_then(|head| self.jobs.iter().position(|job| job.new.id == head.new.id));
        at.ok_or_else(|| conflict(format_args!("step {number} of {name} does not halt it")))
    }

    pub fn workflow(&self, name: &Name) -> Result<WorkflowStatus> {
        let workflow = self.workflows.get(name).ok_or_else(|| not_found(name))?;
        let head = self.head(name);
        let state = match head {
            _ if workflow.cancelled => WorkflowState::Cancelled,
            Some(head) if head.state.is_terminal() => WorkflowState::Halted,
            Some(_) => WorkflowState::Active,
            None => WorkflowState::Finished,
        };
        Ok(WorkflowStatus {
            workflow: name.clone(),
            state,
            on_failure: workflow.on_failure,
            steps: workflow.steps,
            live: self.live_steps(name),
            head: head.map(|head| self.shown_step(head)),
        })
    }

    /// A step as views show it: pending, if a claim would put it back in line.
    fn shown_step(&self, step: &Job) -> StepStatus {
        let foreseen = self.foresee();
        let at = self.jobs.iter().position(|job| job.new.id == step.new.id);
        step_status(at.map_or(step, |at| &self.shown(&foreseen, at).jobs[at]))
    }

    pub fn live_steps(&self, name: &Name) -> u32 {
        self.steps(name).filter(|step| step.is_live()).count() as u32
    }

    pub fn workflows(&self, after: Option<&Name>, limit: usize) -> Result<WorkflowPage> {
        check_page(limit)?;
        let all = self.workflows.keys().filter(|name| after.is_none_or(|after| *name > after));
        let mut found: Vec<&Name> = all.take(caps::PAGE + 1).collect();
        let more = found.len() > limit;
        found.truncate(limit);
        let next = found.last().filter(|_| more).map(|name| (*name).clone());
        let workflows = found.into_iter().map(|name| self.workflow(name)).collect::<Result<_>>()?;
        Ok(WorkflowPage { workflows, next })
    }
}

pub(super) fn step_status(job: &Job) -> StepStatus {
    StepStatus { step: job.step.unwrap_or(0), job: job.new.id, state: job.state }
}
