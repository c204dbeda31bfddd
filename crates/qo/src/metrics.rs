//! What a worker counts, for an exporter.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// Upper bounds of the buckets of [`Counts::task_duration_seconds`]; a last bucket takes the rest.
pub const DURATION_BUCKETS_SECONDS: [f64; 12] =
    [0.001, 0.005, 0.01, 0.05, 0.1, 0.5, 1.0, 5.0, 10.0, 60.0, 300.0, 1_800.0];

/// A worker's counters. All of them only grow, except the number in flight.
#[derive(Debug, Default)]
pub struct Metrics {
    in_flight: AtomicU64,
    completed: AtomicU64,
    claims: AtomicU64,
    claimed: AtomicU64,
    fenced: AtomicU64,
    durations: [AtomicU64; DURATION_BUCKETS_SECONDS.len() + 1],
    duration_micros: AtomicU64,
}

/// The counters at one moment, under the names that they are exported by.
#[derive(Debug, Clone, PartialEq)]
pub struct Counts {
    /// `worker_in_flight_tasks`: handlers that run.
    pub in_flight_tasks: u64,
    /// `worker_tasks_completed_total`: attempts that have ended, whatever their outcome.
    pub tasks_completed_total: u64,
    /// `worker_claims_total`: exchanges that brought jobs.
    pub claims_total: u64,
    /// The sum of `worker_claim_size`: jobs that these exchanges brought.
    pub claim_size_sum: u64,
    /// Settles that came too late and changed nothing.
    pub fenced_total: u64,
    /// `worker_task_duration_seconds`: attempts by how long they took, one count for each of
    /// [`DURATION_BUCKETS_SECONDS`] and one for longer ones.
    pub task_duration_seconds: Vec<u64>,
    /// The sum of `worker_task_duration_seconds`.
    pub task_duration_seconds_sum: f64,
}

impl Metrics {
    /// The counters now.
    pub fn counts(&self) -> Counts {
        let read = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        Counts {
            in_flight_tasks: read(&self.in_flight),
            tasks_completed_total: read(&self.completed),
            claims_total: read(&self.claims),
            claim_size_sum: read(&self.claimed),
            fenced_total: read(&self.fenced),
            task_duration_seconds: self.durations.iter().map(read).collect(),
            task_duration_seconds_sum: read(&self.duration_micros) as f64 / 1e6,
        }
    }

    pub(crate) fn started(&self) {
        self.in_flight.fetch_add(1, Ordering::Relaxed);
    }

    pub(crate) fn ended(&self, took: Duration) {
        self.in_flight.fetch_sub(1, Ordering::Relaxed);
        self.completed.fetch_add(1, Ordering::Relaxed);
        let seconds = took.as_secs_f64();
        let bucket = DURATION_BUCKETS_SECONDS.partition_point(|&bound| bound < seconds);
        self.durations[bucket].fetch_add(1, Ordering::Relaxed);
        let micros = u64::try_from(took.as_micros()).unwrap_or(u64::MAX);
        self.duration_micros.fetch_add(micros, Ordering::Relaxed);
    }

    pub(crate) fn claimed(&self, jobs: usize) {
        if jobs > 0 {
            self.claims.fetch_add(1, Ordering::Relaxed);
            self.claimed.fetch_add(jobs as u64, Ordering::Relaxed);
        }
    }

    pub(crate) fn fenced(&self) {
        self.fenced.fetch_add(1, Ordering::Relaxed);
    }
}
