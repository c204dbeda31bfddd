//! Whether each workflow ran step by step.

use super::{Verdict, at};
use crate::command::demo::evidence::{End, Evidence, Run};
use qo::core::Name;
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
    pub disorder: u32,
}

impl Verdict {
    /// Each step began after every run of every step before it had ended, and one of those runs was done.
    pub(super) fn judge_workflows(&mut self, evidence: &Evidence, runs: &[Run]) {
        let mut steps: BTreeMap<&Name, u32> = BTreeMap::new();
        for workflow in evidence.jobs.iter().filter_map(|job| job.workflow.as_ref()) {
            *steps.entry(workflow).or_default() += 1;
        }
        self.workflows.count = steps.len();
        for (workflow, steps) in steps {
            let of_it = |run: &&Run| run.record.workflow.as_ref() == Some(workflow);
            let runs: Vec<&Run> = runs.iter().filter(of_it).collect();
            let workers: BTreeSet<&str> = runs.iter().map(|run| run.worker.as_str()).collect();
            self.workflows.steps += usize::try_from(steps).unwrap_or(usize::MAX);
            self.workflows.across_workers += usize::from(workers.len() > 1);
            self.judge_order(evidence, workflow, &runs);
        }
    }

    fn judge_order(&mut self, evidence: &Evidence, workflow: &Name, runs: &[&Run]) {
        for run in runs {
            let step = run.record.step.unwrap_or(0);
            let began = run.began_ns();
            let too_early = |before: u32| {
                let mut earlier = runs.iter().filter(|run| run.record.step == Some(before)).peekable();
                let was_done = earlier.clone().any(|run| run.end == End::Done && run.ended_ns <= began);
                earlier.peek().is_none() || !was_done || earlier.any(|run| run.ended_ns > began)
            };
            if step == 0 {
                self.violates(workflow, format_args!("job {} does not say which step it is", run.record.job));
            }
            if let Some(before) = (1..step).find(|&before| too_early(before)) {
                self.workflows.disorder += 1;
                let when = at(evidence, began);
                self.violates(
                    workflow,
                    format_args!("step {step} began at {when}, before step {before} was over"),
                );
            }
        }
    }
}
