//! Whether every job was done, and how often.

use super::Verdict;
use crate::case::{Case, Job, OpenRuns, Promise};
use crate::run::{End, Run};
use std::collections::{BTreeMap, BTreeSet};

/// The outcomes of all jobs.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Jobs {
    /// Jobs that were sent.
    pub all: usize,
    /// Jobs that were acknowledged.
    pub acknowledged: usize,
    /// Jobs that ran once.
    pub once: usize,
    /// Jobs that ran again because their worker was killed, or because they asked for it.
    pub again: usize,
    /// Jobs that ran again because their worker no longer trusted its lease, stopped them and recorded that.
    pub given_back: usize,
    /// Jobs that have to end and have not.
    pub lost: usize,
    /// Jobs that were done again although they had been done.
    pub done_twice: usize,
    /// Jobs that were submitted once and that the store holds twice.
    pub there_twice: usize,
    /// Jobs that had not ended when the time was up.
    pub stuck: usize,
}

impl Verdict {
    /// Every job ran as it was submitted, and as often as it had to.
    pub(super) fn judge_jobs(&mut self, case: &Case, recorded: &[Run]) {
        let mut by_name: BTreeMap<&str, Vec<&Run>> = BTreeMap::new();
        recorded.iter().for_each(|run| by_name.entry(&run.planned).or_default().push(run));
        self.jobs.all = case.jobs.len();
        for (name, job) in &case.jobs {
            let runs = by_name.remove(&**name).unwrap_or_default();
            self.jobs.acknowledged += usize::from(job.promise == Promise::Ends);
            self.judge_identity(name, job, &runs);
            if let (OpenRuns::GoOn, Some(run)) = (case.open, runs.iter().find(|run| run.end == End::Open)) {
                self.violates_with(
                    "jobs",
                    format_args!("job {name} began on {} and never ended", run.worker),
                    &runs,
                );
            }
            if !job.is_many {
                self.judge_end(case, name, job, &runs);
            }
        }
        for (name, runs) in by_name {
            let worker = runs.first().map_or("", |run| &run.worker);
            self.violates_with(
                "jobs",
                format_args!("{worker} ran job {name}, which was never submitted"),
                &runs,
            );
        }
        self.jobs.stuck = case.stuck.len();
        for job in &case.stuck {
            self.violates("jobs stuck", format_args!("job {job} had not ended when the time was up"));
        }
    }

    /// The runs are those of the job that was submitted, and the store holds it once.
    fn judge_identity(&mut self, name: &str, job: &Job, runs: &[&Run]) {
        let is_another = |run: &&&Run| job.says.as_ref().is_some_and(|says| **says != *run.says);
        if let Some(other) = runs.iter().find(is_another) {
            let how = format_args!("job {name} did not run as it was submitted: it says {:?}", other.says);
            self.violates_with("jobs", how, runs);
        }
        let ids: BTreeSet<&str> = runs.iter().map(|run| &*run.job).collect();
        if ids.len() > 1 && !job.is_many {
            self.jobs.there_twice += 1;
            self.violates_with(
                "jobs",
                format_args!("job {name} was submitted once and is there twice"),
                runs,
            );
        }
        if job.promise == Promise::NeverBegins && !runs.is_empty() {
            self.violates_with("jobs", format_args!("job {name} was refused and ran"), runs);
        }
    }

    /// The newest run has ended the job, and each run before it had a reason not to be the last.
    fn judge_end(&mut self, case: &Case, name: &str, job: &Job, runs: &[&Run]) {
        let must_end = match job.promise {
            Promise::Ends => true,
            Promise::EndsIfBegun => !runs.is_empty(),
            Promise::NeverBegins | Promise::Nothing => false,
        };
        let is_ended = |(last, _): &(&&Run, _)| last.end.is_final();
        let Some((_, earlier)) = runs.split_last().filter(is_ended) else {
            if must_end && case.is_over {
                self.jobs.lost += 1;
                self.violates_with(
                    "jobs lost",
                    format_args!("job {name} has to end and was never done"),
                    runs,
                );
            }
            return;
        };
        // A run may have been done just before a kill, too late for its worker to settle it.
        let is_unsettled = |run: &Run| {
            let killed = case.kills.get(&*run.worker);
            killed.is_some_and(|killed_ns| run.to_ns.saturating_add(case.lease_ns) >= *killed_ns)
        };
        if case.done_once && earlier.iter().any(|run| run.end.is_final() && !is_unsettled(run)) {
            self.jobs.done_twice += 1;
            self.violates_with(
                "jobs",
                format_args!("job {name} was done again although it had been done"),
                runs,
            );
        } else if earlier.is_empty() {
            self.jobs.once += 1;
        } else if earlier.iter().all(|run| run.end == End::Stopped) {
            self.jobs.given_back += 1;
        } else {
            self.jobs.again += 1;
        }
    }
}
