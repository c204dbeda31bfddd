//! What happened to the jobs of killed workers.

use super::Verdict;
use crate::case::Case;
use crate::run::{End, Run};

/// What happened to the jobs of killed workers.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Recovery {
    /// Jobs that they owned when they were killed.
    pub held: usize,
    /// Of these, jobs that were done, but too late for the worker to settle them.
    pub unsettled: usize,
    /// Of these, jobs that began again elsewhere.
    pub again: usize,
    /// Longest that it took until such a job began again.
    pub all_ms: u64,
}

impl Verdict {
    /// Killed workers owned jobs, and all of these began again elsewhere, in time.
    pub(super) fn judge_recovery(&mut self, case: &Case, recorded: &[Run]) {
        if case.kills.is_empty() && case.recovered_within_ns.is_some() {
            self.violates("kill -9", "no worker was killed, so nothing came back");
            return;
        }
        for (worker, killed_ns) in &case.kills {
            self.judge_kill(case, recorded, worker, *killed_ns);
        }
        if let (0, Some(_)) = (self.recovery.held, case.recovered_within_ns) {
            let workers: Vec<&str> = case.kills.keys().map(String::as_str).collect();
            let how =
                format_args!("{} held no job when it was killed: nothing was shown", workers.join(", "));
            self.violates("kill -9", how);
        }
    }

    fn judge_kill(&mut self, case: &Case, recorded: &[Run], worker: &str, killed_ns: u64) {
        let next = |killed: &Run| {
            let again = recorded.iter().find(|run| run.job == killed.job && run.token > killed.token)?;
            Some(again.from_ns.saturating_sub(killed_ns) / 1_000_000)
        };
        let of_it = recorded.iter().filter(|run| *run.worker == *worker);
        let held: Vec<&Run> = of_it
            .filter(|run| run.end == End::Killed || (run.end == End::Done && next(run).is_some()))
            .collect();
        let back: Vec<u64> = held.iter().filter_map(|run| next(run)).collect();
        let all_ms = back.iter().copied().max().unwrap_or(0);
        self.recovery.held += held.len();
        self.recovery.unsettled += held.iter().filter(|run| run.end == End::Done).count();
        self.recovery.again += back.len();
        self.recovery.all_ms = self.recovery.all_ms.max(all_ms);
        let Some(most_ns) = case.recovered_within_ns else { return };
        if back.len() < held.len() {
            let stuck = held.len() - back.len();
            self.violates_with("kill -9", format_args!("{stuck} jobs of {worker} never began again"), &held);
        }
        let most_ms = most_ns / 1_000_000;
        if all_ms > most_ms {
            let how = format_args!("slots of {worker} came back after {all_ms} ms, not {most_ms} ms");
            self.violates_with("kill -9", how, &held);
        }
    }
}
