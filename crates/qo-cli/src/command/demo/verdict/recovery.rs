//! What happened to the jobs of the killed worker.

use super::Verdict;
use crate::command::demo::evidence::{End, Evidence, Run};

/// How long beyond its lease a dead worker may hold its slots: a sweep, and a poll of a worker that was not woken up
/// (G5).
const BEYOND_LEASE_MS: u64 = 6_000;

/// What happened to the killed worker's jobs.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Recovery {
    /// The worker, if one was killed.
    pub worker: Option<String>,
    /// Jobs that it owned when it was killed.
    pub held: usize,
    /// Of these, jobs that were done, but too late for the worker to settle them.
    pub unsaid: usize,
    /// Of these, jobs that began again elsewhere.
    pub again: usize,
    /// How long it took until the first of them began again.
    pub first_ms: u64,
    /// How long it took until all of them had begun again.
    pub all_ms: u64,
}

impl Verdict {
    /// A worker was killed, owned jobs, and all of them began again elsewhere.
    pub(super) fn judge_recovery(&mut self, evidence: &Evidence, runs: &[Run]) {
        let Some(kill) = &evidence.kill else {
            return self.violates("kill -9", "no worker was killed, so nothing came back");
        };
        let next = |killed: &Run| {
            let again = runs
                .iter()
                .find(|run| run.record.job == killed.record.job && run.record.token > killed.record.token)?;
            Some(again.began_ns().saturating_sub(kill.at_ns) / 1_000_000)
        };
        let of_it = runs.iter().filter(|run| run.worker == kill.worker);
        let held: Vec<&Run> = of_it
            .filter(|run| run.end == End::Killed || (run.end == End::Done && next(run).is_some()))
            .collect();
        let back: Vec<u64> = held.iter().filter_map(|run| next(run)).collect();
        self.recovery = Recovery {
            worker: Some(kill.worker.clone()),
            held: held.len(),
            unsaid: held.iter().filter(|run| run.end == End::Done).count(),
            again: back.len(),
            first_ms: back.iter().copied().min().unwrap_or(0),
            all_ms: back.iter().copied().max().unwrap_or(0),
        };
        let (worker, all_ms) = (&kill.worker, self.recovery.all_ms);
        if held.is_empty() {
            self.violates(
                "kill -9",
                format_args!("{worker} held no job when it was killed: nothing was shown"),
            );
        }
        if back.len() < held.len() {
            let stuck = held.len() - back.len();
            self.violates("kill -9", format_args!("{stuck} jobs of {worker} never began again"));
        }
        let most_ms = evidence.lease_ms + BEYOND_LEASE_MS;
        if all_ms > most_ms {
            self.violates(
                "kill -9",
                format_args!("slots of {worker} came back after {all_ms} ms, not {most_ms} ms"),
            );
        }
    }
}
