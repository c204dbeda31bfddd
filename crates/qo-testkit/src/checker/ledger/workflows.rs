//! Workflows in the ledger: steps in the order of acceptance, the head, and which step is next.

use super::{ClaimEnd, Fact, Ledger, Tell};
use qo_core::WorkflowState;
use qo_core::{Answer, ErrorKind, JobState, Name, NewJob, OnFailure, Result, Steer, StepStatus};

/// A workflow that is remembered.
#[derive(Debug, Clone)]
pub struct Workflow {
    /// What any end but success does to the steps behind it.
    pub on_failure: OnFailure,
    /// It was cancelled.
    pub cancelled: bool,
    /// Steps that were ever accepted.
    pub accepted: u32,
    /// Indices of the steps that are remembered, by number.
    pub steps: Vec<usize>,
}

impl Ledger {
    /// Whether a step is passed.
    pub fn is_passed(&self, workflow: &Workflow, index: usize) -> bool {
        let job = &self.jobs[index];
        let any_end = job.skipped || workflow.cancelled || workflow.on_failure == OnFailure::Continue;
        job.state == JobState::Succeeded || job.state.is_terminal() && any_end
    }

    /// The first step that is not passed.
    pub fn head(&self, workflow: &Workflow) -> Option<usize> {
        workflow.steps.iter().copied().find(|&step| !self.is_passed(workflow, step))
    }

    /// The step that halts a workflow.
    pub fn halted_by(&self, workflow: &Workflow) -> Option<usize> {
        self.head(workflow).filter(|&head| self.jobs[head].state.is_terminal())
    }

    /// A step that runs.
    pub fn running_step(&self, workflow: &Workflow) -> Option<usize> {
        workflow.steps.iter().copied().find(|&step| self.jobs[step].state == JobState::Running)
    }

    /// Steps that have not ended.
    pub fn live_steps(&self, workflow: &Workflow) -> u32 {
        workflow.steps.iter().filter(|&&step| !self.jobs[step].state.is_terminal()).count() as u32
    }

    /// A step as the store shows it.
    pub fn step_status(&self, index: usize) -> StepStatus {
        let job = &self.jobs[index];
        StepStatus { step: job.step.unwrap_or(0), job: job.new.id, state: job.state }
    }

    /// The workflow that a job is a step of.
    pub fn workflow_of(&self, index: usize) -> Option<&Workflow> {
        self.workflows.get(self.jobs[index].new.workflow.as_ref()?)
    }

    /// Whether a job that does not run is no step, or the head while no other step runs.
    pub fn is_next(&self, index: usize) -> bool {
        self.workflow_of(index).is_none_or(|workflow| {
            self.head(workflow) == Some(index) && self.running_step(workflow).is_none_or(|step| step == index)
        })
    }

    /// How a workflow is doing.
    pub fn workflow_state(&self, workflow: &Workflow) -> WorkflowState {
        match self.head(workflow) {
            _ if workflow.cancelled => WorkflowState::Cancelled,
            Some(head) if self.jobs[head].state.is_terminal() => WorkflowState::Halted,
            Some(_) => WorkflowState::Active,
            None => WorkflowState::Finished,
        }
    }

    /// Whether a job's workflow refuses it.
    pub fn workflow_refuses(&self, new: &NewJob) -> bool {
        let workflow = new.workflow.as_ref().and_then(|name| self.workflows.get(name));
        workflow.is_some_and(|workflow| {
            workflow.cancelled || new.on_failure.is_some_and(|given| given != workflow.on_failure)
        })
    }

    /// The number of a step that is accepted now.
    pub(super) fn add_step(&mut self, new: &NewJob, index: usize) -> Option<u32> {
        let workflow = self.workflows.entry(new.workflow.clone()?).or_insert_with(|| Workflow {
            on_failure: new.on_failure.unwrap_or_default(),
            cancelled: false,
            accepted: 0,
            steps: Vec::new(),
        });
        workflow.accepted += 1;
        workflow.steps.push(index);
        Some(workflow.accepted)
    }

    pub(super) fn steer(&mut self, name: &Name, steer: Steer, answer: &Result<Answer>, tell: &mut Tell<'_>) {
        let halted_by = self.workflows.get(name).map(|workflow| self.halted_by(workflow));
        let step_of = |index: usize| self.jobs[index].step;
        let named = |number: u32| {
            let mut steps = self.workflows.get(name).into_iter().flat_map(|workflow| &workflow.steps);
            steps.find(|&&index| step_of(index) == Some(number)).map(|&index| &self.jobs[index])
        };
        let done = match steer {
            Steer::Retry(number) => named(number).is_some_and(|job| !job.state.is_terminal()),
            Steer::Skip(number) => named(number).is_some_and(|job| job.skipped),
            Steer::Cancel => false,
        };
        let halts = |number: u32| halted_by.flatten().is_some_and(|head| step_of(head) == Some(number));
        let due = match (halted_by, steer) {
            (None, _) => Err(ErrorKind::NotFound),
            (_, Steer::Retry(number) | Steer::Skip(number)) if !done && !halts(number) => {
                Err(ErrorKind::Conflict)
            }
            _ => Ok(()),
        };
        tell(self, &Fact::Steered(name, steer, answer, due));
        if due.is_err() || answer.is_err() || done {
            return;
        }
        match (halted_by.flatten(), steer) {
            (Some(head), Steer::Retry(_)) => self.reopen(head, tell),
            (Some(head), Steer::Skip(_)) => self.jobs[head].skipped = true,
            (_, Steer::Cancel) => {
                let steps = self.workflows[name].steps.clone();
                steps.into_iter().for_each(|step| self.call_off(step, tell));
                self.workflows.get_mut(name).expect("it was just looked at").cancelled = true;
            }
            _ => {}
        }
    }

    /// Cancels a job, as far as it goes.
    pub(super) fn call_off(&mut self, index: usize, tell: &mut Tell<'_>) {
        match self.jobs[index].state {
            JobState::Pending => self.drop_pending(index, JobState::Cancelled, tell),
            JobState::Claimed => self.give_back(index, ClaimEnd::Cancelled, tell),
            JobState::Running if !self.jobs[index].cancel_requested => {
                tell(self, &Fact::StopAsked(index));
                self.jobs[index].cancel_requested = true;
            }
            _ => {}
        }
    }

    /// What the rules say about retrying a job.
    pub(super) fn retry_due(&self, index: usize) -> Result<JobState, ErrorKind> {
        match self.jobs[index].state {
            JobState::Succeeded => Err(ErrorKind::Conflict),
            state if !state.is_terminal() => Ok(state),
            _ if self.workflow_of(index).is_some_and(|workflow| workflow.cancelled) => {
                Err(ErrorKind::Conflict)
            }
            _ => Ok(JobState::Pending),
        }
    }

    pub(super) fn reopen(&mut self, index: usize, tell: &mut Tell<'_>) {
        tell(self, &Fact::Reopened(index));
        let now = self.now;
        let job = &mut self.jobs[index];
        job.good_until = job.good_until.filter(|until| *until > now);
        (job.run_at, job.finished_at) = (now, None);
        (job.attempts_used, job.skipped, job.reopened, job.cancel_requested) = (0, false, true, false);
        self.finished.remove(&index);
        self.groups.enter(&self.jobs[index].needs);
        self.bring_limit(index);
        self.go_to(index, JobState::Pending);
    }
}
