//! Whether every job was done, and how often.

use super::Verdict;
use crate::command::demo::evidence::{End, Evidence, Run};
use qo::core::JobId;
use std::collections::BTreeMap;

/// The outcomes of all jobs.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Jobs {
    /// Jobs that were acknowledged.
    pub all: usize,
    /// Jobs that ran once.
    pub once: usize,
    /// Jobs that ran again because their worker was killed.
    pub again: usize,
    /// Jobs that ran again because their worker no longer trusted its lease, stopped them and recorded that.
    pub given_back: usize,
    /// Jobs that never were done.
    pub lost: usize,
    /// Jobs that were done more than once without a kill or a stop.
    pub twice: usize,
}

impl Verdict {
    /// Every job was done once, or again because its worker was killed.
    pub(super) fn judge_jobs(&mut self, evidence: &Evidence, runs: &[Run]) {
        let mut by_job: BTreeMap<JobId, Vec<&Run>> = BTreeMap::new();
        for run in runs {
            by_job.entry(run.record.job).or_default().push(run);
        }
        self.jobs.all = evidence.jobs.len();
        for job in &evidence.jobs {
            let runs = by_job.remove(&job.id).unwrap_or_default();
            let is_another = |run: &&Run| {
                let record = &run.record;
                (&record.task, &record.queue, &record.key, &record.workflow)
                    != (&job.task, &job.queue, &job.key, &job.workflow)
            };
            if runs.iter().any(is_another) {
                self.violates("jobs", format_args!("job {} did not run as it was submitted", job.id));
            }
            self.judge_owners(job.id, &runs);
            self.judge_job(evidence, job.id, &runs);
        }
        for (job, runs) in by_job {
            let worker = runs.first().map_or("", |run| &run.worker);
            self.violates("jobs", format_args!("{worker} ran job {job}, which was never submitted"));
        }
    }

    /// The runs of a job follow one another, under tokens that grow.
    fn judge_owners(&mut self, job: JobId, runs: &[&Run]) {
        for pair in runs.windows(2) {
            let [one, other] = pair else { continue };
            if other.began_ns() < one.ended_ns {
                let (one, other) = (&one.worker, &other.worker);
                self.violates("one owner", format_args!("job {job} ran on {one} and on {other} at once"));
            }
            if other.record.token <= one.record.token {
                self.violates("fence", format_args!("job {job} began again, and its token did not grow"));
            }
        }
        if let Some(run) = runs.iter().find(|run| run.end == End::Never) {
            self.violates("jobs", format_args!("job {job} began on {} and never ended", run.worker));
        }
    }

    fn judge_job(&mut self, evidence: &Evidence, job: JobId, runs: &[&Run]) {
        let last_is_done = |(last, _): &(&&Run, _)| last.end == End::Done;
        let Some((_, earlier)) = runs.split_last().filter(last_is_done) else {
            self.jobs.lost += 1;
            return self.violates("jobs lost", format_args!("job {job} was acknowledged and never done"));
        };
        // It may have been done just before the kill, too late for the worker to settle it.
        let unsaid = |run: &Run| {
            evidence.kill.as_ref().is_some_and(|kill| {
                let lease_ns = evidence.lease_ms * 1_000_000;
                kill.worker == run.worker && run.ended_ns.saturating_add(lease_ns) >= kill.at_ns
            })
        };
        let given_back = earlier.iter().filter(|run| run.end == End::Stopped).count();
        let again =
            earlier.iter().filter(|run| run.end == End::Killed || (run.end == End::Done && unsaid(run)));
        let again = again.count();
        if again + given_back < earlier.len() {
            self.jobs.twice += 1;
            self.violates("jobs", format_args!("job {job} was done again although it had been done"));
        } else if again > 0 {
            self.jobs.again += 1;
        } else if given_back > 0 {
            self.jobs.given_back += 1;
        } else {
            self.jobs.once += 1;
        }
    }
}
