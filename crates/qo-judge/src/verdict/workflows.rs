//! Whether each workflow ran step by step.

use super::{Verdict, at};
use crate::case::{Case, Promise};
use crate::run::Run;
use std::collections::{BTreeMap, BTreeSet};

/// How the workflows went.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Workflows {
    /// Workflows.
    pub count: usize,
    /// Their steps, all together.
    pub steps: usize,
    /// Workflows whose steps more than one worker ran.
    pub across_workers: usize,
    /// How often a step began too early.
    pub disorder: usize,
}

/// The runs of one step.
#[derive(Default)]
struct Step<'a> {
    /// As they were recorded: a run of a stopped worker may have ended the step before it was stopped.
    recorded: Vec<&'a Run>,
    /// As far as they count.
    counted: Vec<&'a Run>,
    /// Whether it must have run before the next step.
    is_due: bool,
}

impl Step<'_> {
    /// Whether one run had ended the step by then, and none still ran.
    fn is_over_at(&self, ns: u64) -> bool {
        self.recorded.iter().any(|run| run.end.is_final() && run.to_ns <= ns)
            && self.counted.iter().all(|run| run.to_ns <= ns)
    }
}

impl Verdict {
    /// Each step began after every run of every step before it had ended, and one of those runs was done.
    pub(super) fn judge_workflows(&mut self, case: &Case, recorded: &[Run], counted: &[Run]) {
        let mut workflows: BTreeMap<&str, BTreeMap<u64, Step<'_>>> = BTreeMap::new();
        for job in case.jobs.values() {
            if let Some((workflow, number)) = &job.step {
                let step = workflows.entry(workflow).or_default().entry(*number).or_default();
                step.is_due = job.promise == Promise::Ends;
            }
        }
        let step_of = |run: &Run| case.jobs.get(&*run.planned).and_then(|job| job.step.as_ref());
        for (runs, is_counted) in [(recorded, false), (counted, true)] {
            for run in runs {
                let step = step_of(run)
                    .and_then(|(workflow, number)| workflows.get_mut(&**workflow)?.get_mut(number));
                match step {
                    Some(step) if is_counted => step.counted.push(run),
                    Some(step) => step.recorded.push(run),
                    None => {}
                }
            }
        }
        self.workflows.count = workflows.len();
        for (workflow, steps) in &workflows {
            let runs = steps.values().flat_map(|step| &step.recorded);
            let workers: BTreeSet<&str> = runs.map(|run| &*run.worker).collect();
            self.workflows.steps += steps.len();
            self.workflows.across_workers += usize::from(workers.len() > 1);
            self.judge_order(case, workflow, steps);
        }
    }

    fn judge_order(&mut self, case: &Case, workflow: &str, steps: &BTreeMap<u64, Step<'_>>) {
        for (number, step) in steps {
            for run in &step.counted {
                let mut before = steps.range(..number);
                let is_early = |step: &Step<'_>| {
                    (step.is_due || !step.recorded.is_empty()) && !step.is_over_at(run.from_ns)
                };
                if let Some((earlier, open)) = before.find(|(_, step)| is_early(step)) {
                    self.workflows.disorder += 1;
                    let when = at(case, run.from_ns);
                    let how = format_args!("step {number} began at {when}, before step {earlier} was over");
                    let runs: Vec<&Run> = open.recorded.iter().copied().chain([*run]).collect();
                    self.violates_with(workflow, how, &runs);
                }
            }
        }
    }
}
