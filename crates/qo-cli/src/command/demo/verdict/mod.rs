//! The verdict, computed from the jobs' own records.
//!
//! Nothing here asks the store: what it says of itself proves nothing. Every job recorded when it began and when it
//! ended. From that follow how many ran at once, in which order and how often, and what happened to the jobs of the
//! killed worker.

mod job;
mod limit;
mod recovery;
#[cfg(test)]
mod tests;
mod workflow;

pub use job::Jobs;
pub use limit::{Kept, Phase};
pub use recovery::Recovery;
pub use workflow::Workflows;

use super::evidence::{Evidence, Records, runs};
use std::fmt::{self, Display};

/// What the records prove, or fail to.
#[derive(Debug, Clone, Default)]
pub struct Verdict {
    /// Each limit, and each value that it had.
    pub limits: Vec<Kept>,
    /// The workflows.
    pub workflows: Workflows,
    /// The killed worker's jobs.
    pub recovery: Recovery,
    /// Processes that recorded anything.
    pub workers: usize,
    /// All jobs.
    pub jobs: Jobs,
    /// Everything that broke a rule.
    pub violations: Vec<Violation>,
}

/// A broken rule.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Violation {
    /// What it is about.
    pub what: String,
    /// What is wrong.
    pub how: String,
}

impl Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.what, self.how)
    }
}

impl Verdict {
    /// Judges the records.
    pub fn of(evidence: &Evidence, records: &Records) -> Self {
        let (runs, violations) = runs(records, evidence.kill.as_ref());
        let mut verdict = Self { workers: records.len(), ..Self::default() };
        for how in violations {
            verdict.violates("records", how);
        }
        if !evidence.finished {
            verdict.violates("time", "not all jobs had ended when the time was up");
        }
        verdict.judge_limits(evidence, &runs);
        verdict.judge_workflows(evidence, &runs);
        verdict.judge_recovery(evidence, &runs);
        verdict.judge_jobs(evidence, &runs);
        verdict
    }

    /// Whether no rule was broken.
    pub fn holds(&self) -> bool {
        self.violations.is_empty()
    }

    fn violates(&mut self, what: impl Display, how: impl Display) {
        self.violations.push(Violation { what: what.to_string(), how: how.to_string() });
    }
}

/// A moment, in seconds after the beginning.
fn at(evidence: &Evidence, ns: u64) -> String {
    format!("{:.3} s", ns.saturating_sub(evidence.began_ns) as f64 / 1e9)
}
