//! The verdict.

mod attempts;
mod jobs;
mod limits;
mod recovery;
#[cfg(test)]
mod tests;
mod workflows;

pub use jobs::Jobs;
pub use limits::{Kept, Phase};
pub use recovery::Recovery;
pub use workflows::Workflows;

use crate::case::{Case, Stop};
use crate::diary::Diary;
use crate::run::{End, Run};
use std::collections::BTreeSet;
use std::fmt::{self, Display};
use std::sync::Arc;

/// Violations that are printed one by one.
const SHOWN: usize = 12;

/// What the records prove, or fail to.
#[derive(Debug, Clone, Default)]
pub struct Verdict {
    /// Runs.
    pub runs: usize,
    /// Workers that ran a job.
    pub workers: usize,
    /// Each limit, and each value that it had.
    pub limits: Vec<Kept>,
    /// How often a job began although a group of it was full.
    pub over_limit: usize,
    /// How often a job began while an older attempt of it still ran, or began after a newer one.
    pub overlaps: usize,
    /// Runs that took a job over from a run that did not end it.
    pub takeovers: usize,
    /// The workflows.
    pub workflows: Workflows,
    /// All jobs.
    pub jobs: Jobs,
    /// The jobs of killed workers.
    pub recovery: Recovery,
    /// Lines that runs of stopped workers wrote afterwards.
    pub written_after_stops: usize,
    /// Longest that a group with work waiting stood still after the last fault.
    pub idle_ns: u64,
    /// Everything that broke a rule.
    pub violations: Vec<Violation>,
}

/// A broken rule.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Violation {
    /// What it is about: a group, a workflow, or a rule.
    pub what: String,
    /// What is wrong.
    pub how: String,
    /// The runs that show it. `{:#}` prints them.
    pub runs: Vec<String>,
}

impl Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.what, self.how)?;
        if f.alternate() && !self.runs.is_empty() {
            write!(f, " [{}]", self.runs.join("; "))?;
        }
        Ok(())
    }
}

impl Verdict {
    /// Judges a diary.
    pub fn of(case: &Case, diary: &Diary) -> Self {
        let recorded = diary.ended(case.open, &case.kills);
        let workers: BTreeSet<&Arc<str>> = recorded.iter().map(|run| &run.worker).collect();
        let mut verdict = Self { runs: recorded.len(), workers: workers.len(), ..Self::default() };
        for how in diary.contradictions() {
            verdict.violates("records", how);
        }
        for how in &case.complaints {
            verdict.violates("seen", how);
        }
        let counted = verdict.end_at_stops(case, &recorded);
        verdict.judge_limits(case, &counted);
        verdict.judge_attempts(&counted);
        verdict.judge_workflows(case, &recorded, &counted);
        verdict.judge_recovery(case, &recorded);
        verdict.judge_jobs(case, &recorded);
        verdict
    }

    /// Whether no rule was broken.
    pub fn holds(&self) -> bool {
        self.violations.is_empty()
    }

    /// Adds a broken rule that the caller found by other means.
    pub fn violates(&mut self, what: impl Display, how: impl Display) {
        self.violates_with(what, how, &[]);
    }

    fn violates_with(&mut self, what: impl Display, how: impl Display, runs: &[&Run]) {
        let runs = runs.iter().map(ToString::to_string).collect();
        self.violations.push(Violation { what: what.to_string(), how: how.to_string(), runs });
    }

    /// The runs as far as they count: those of a stopped worker end when it was stopped.
    fn end_at_stops(&mut self, case: &Case, recorded: &[Run]) -> Vec<Run> {
        let mut counted = recorded.to_vec();
        for stop in &case.stops {
            let Stop { worker, at_ns, until_ns, writes } = stop;
            // Every claim after the worker went on has a higher token than everything that began before.
            let newest = until_ns.map(|until| {
                recorded.iter().filter(|run| run.from_ns < until).map(|run| run.token).max().unwrap_or(0)
            });
            let is_old =
                |run: &Run| *run.worker == **worker && newest.is_none_or(|newest| run.token <= newest);
            let old: Vec<&Run> = recorded.iter().filter(|run| is_old(run) && run.to_ns > *at_ns).collect();
            let written: usize = old.iter().map(|run| written_after(run, *at_ns)).sum();
            self.written_after_stops += written;
            if writes.is_some_and(|most| written > most) {
                let how = format_args!("runs of {worker} wrote {written} lines after it was stopped");
                self.violates_with("stop", how, &old);
            }
            // A run whose first line came later was stopped while it wrote that line.
            counted.retain(|run| !is_old(run) || run.from_ns < *at_ns);
            for run in counted.iter_mut().filter(|run| is_old(run)) {
                run.to_ns = run.to_ns.min(*at_ns);
            }
        }
        counted
    }
}

/// How many lines a run wrote after a moment, other than that it was stopped.
fn written_after(run: &Run, at_ns: u64) -> usize {
    let ended = matches!(run.end, End::Done | End::Failed | End::Retry) && run.to_ns > at_ns;
    let beats = run.beats.iter().filter(|beat| **beat > at_ns).count();
    beats + usize::from(ended) + usize::from(run.from_ns > at_ns)
}

/// A moment, in seconds after the beginning.
fn at(case: &Case, ns: u64) -> String {
    format!("{:.3} s", ns.saturating_sub(case.began_ns) as f64 / 1e9)
}

impl Display for Verdict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // Of each group once, under the highest value that its limit had.
        let mut peaks: Vec<(&str, u32, u32)> = Vec::new();
        for Kept { group, peak, limit, .. } in &self.limits {
            match peaks.iter_mut().find(|(known, ..)| known == group) {
                Some((_, most, highest)) => (*most, *highest) = ((*most).max(*peak), (*highest).max(*limit)),
                None => peaks.push((group, *peak, *limit)),
            }
        }
        let peaks: Vec<String> =
            peaks.iter().map(|(group, peak, limit)| format!("{group} {peak}/{limit}")).collect();
        writeln!(f, "runs {}, takeovers {}, peaks {}", self.runs, self.takeovers, peaks.join(", "))?;
        let Jobs { lost, done_twice, there_twice, stuck, .. } = &self.jobs;
        write!(
            f,
            "over-limit {}, overlaps {}, disorder {}, done twice {done_twice}, there twice {there_twice}, lost {lost}, \
             stuck {stuck}, violations {}",
            self.over_limit,
            self.overlaps,
            self.workflows.disorder,
            self.violations.len()
        )?;
        self.violations.iter().take(SHOWN).try_for_each(|violation| write!(f, "\nVIOLATION {violation:#}"))
    }
}
