//! Workflows: which step is next follows from the steps. A step that is not next is in no lane and in no timer of due
//! dates, so waiting and halted workflows cost a claim nothing.

use super::journal::Undo;
use super::row::{At, Job, Membership, Phase, Workflow, WorkflowRow};
use super::{State, Vacant, table::Ix};
use crate::{Name, OnFailure};

impl State {
    /// A workflow that has a job, live or remembered.
    pub(crate) fn find_workflow(&self, name: &Name) -> Option<Ix<Workflow>> {
        let ix = self.workflow_by_name.get(name).copied();
        ix.filter(|&ix| !self.workflows[ix].steps.is_empty())
    }

    /// The place of the next job of a workflow. Makes the workflow if there is none.
    pub(crate) fn next_step(&mut self, name: &Name, on_failure: OnFailure) -> Membership {
        let fresh = WorkflowRow { on_failure, cancelled: false, accepted: 0 };
        let workflow = match self.workflow_by_name.get(name) {
            Some(&ix) => ix,
            None => {
                let ix = self.workflows.insert(Workflow::new(name.clone(), fresh));
                self.workflow_by_name.insert(name.clone(), ix);
                // If the job that it is made for is taken back, the workflow goes too.
                self.vacant.push(Vacant::Workflow(ix));
                ix
            }
        };
        let row = &self.workflows[workflow];
        let row = if row.steps.is_empty() { fresh } else { row.row };
        let step = row.accepted + 1;
        self.change_workflow(workflow, WorkflowRow { accepted: step, ..row });
        Membership { workflow, step }
    }

    pub(crate) fn change_workflow(&mut self, ix: Ix<Workflow>, row: WorkflowRow) {
        let old = self.put_workflow(ix, row);
        self.note(|| Undo::Workflow(ix, old));
    }

    pub(super) fn put_workflow(&mut self, ix: Ix<Workflow>, row: WorkflowRow) -> WorkflowRow {
        let workflow = &mut self.workflows[ix];
        let old = std::mem::replace(&mut workflow.row, row);
        if (old.on_failure, old.cancelled) != (row.on_failure, row.cancelled) {
            // Which ended steps are passed has changed: count all steps again.
            let steps = std::mem::take(&mut workflow.steps);
            if workflow.live > 0 {
                self.retain_open(ix, true);
            }
            self.workflows[ix].open.clear();
            self.workflows[ix].live = 0;
            for (step, at) in steps {
                self.enroll(Some(Membership { workflow: ix, step }), at);
            }
            self.seat_workflow(ix);
        }
        old
    }

    /// Counts a job among the steps of its workflow.
    pub(super) fn enroll(&mut self, membership: Option<Membership>, at: At) {
        let Some(Membership { workflow, step }) = membership else { return };
        let row = &self.workflows[workflow];
        let passed = match at {
            At::Live(_) => false,
            At::Past(past) => row.passes(&self.past[past]),
        };
        let row = &mut self.workflows[workflow];
        row.steps.insert(step, at);
        if !passed {
            row.open.insert(step, at);
        }
        match at {
            At::Live(_) => {
                row.live += 1;
                if row.live == 1 {
                    self.retain_open(workflow, false);
                }
            }
            At::Past(past) if !passed && row.live > 0 => self.retain(past, false),
            At::Past(_) => {}
        }
    }

    /// Lets the ended steps that are not passed be forgotten (`retain`), or not. While the workflow has live steps,
    /// they stay: otherwise the steps behind them would run as if no step had failed.
    fn retain_open(&mut self, ix: Ix<Workflow>, retain: bool) {
        let ended = self.workflows[ix].open.values().filter_map(|at| match at {
            At::Live(_) => None,
            At::Past(past) => Some(*past),
        });
        for past in ended.collect::<Vec<_>>() {
            self.retain(past, retain);
        }
    }

    /// Removes a job from the steps of its workflow. It has left every other index before. `seat_workflow` then finds
    /// the next step.
    pub(super) fn dismiss(&mut self, membership: Option<Membership>, at: At) {
        let Some(Membership { workflow, step }) = membership else { return };
        let row = &mut self.workflows[workflow];
        row.steps.remove(&step);
        let was_open = row.open.remove(&step).is_some();
        match at {
            At::Live(job) => {
                row.live -= 1;
                row.next.take_if(|next| *next == job);
                if row.live == 0 {
                    self.retain_open(workflow, true);
                }
            }
            At::Past(past) if was_open && row.live > 0 => self.retain(past, true),
            At::Past(_) => {}
        }
        if self.workflows[workflow].steps.is_empty() {
            self.vacant.push(Vacant::Workflow(workflow));
        }
    }

    pub(super) fn seat_workflow_of(&mut self, ix: Ix<Job>) {
        self.seat_workflow_at(self.jobs[ix].membership());
    }

    pub(super) fn seat_workflow_at(&mut self, membership: Option<Membership>) {
        if let Some(at) = membership {
            self.seat_workflow(at.workflow);
        }
    }

    /// Finds out which step is next, and moves the steps that this concerns in or out of line.
    fn seat_workflow(&mut self, ix: Ix<Workflow>) {
        let row = &self.workflows[ix];
        let next = match row.head() {
            Some((step, At::Live(job))) if row.running.is_none_or(|running| running == step) => Some(job),
            Some(_) | None => None,
        };
        if row.next != next {
            let concerned =
                [row.next, next].map(|job| job.filter(|&job| *self.jobs[job].phase() == Phase::Pending));
            concerned.into_iter().flatten().for_each(|job| self.unlink_job(job));
            self.workflows[ix].next = next;
            concerned.into_iter().flatten().for_each(|job| self.link_job(job));
        }
    }
}
