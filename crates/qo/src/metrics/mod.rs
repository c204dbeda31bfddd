//! What a worker counts, and shows to a Prometheus.

mod shown;

pub(crate) use shown::endpoint;

use qo_metrics::Waits;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// Upper bounds of the buckets of [`Counts::task_duration_seconds`]; a last bucket takes the rest.
pub const DURATION_BUCKETS_SECONDS: [f64; 12] =
    [0.001, 0.005, 0.01, 0.05, 0.1, 0.5, 1.0, 5.0, 10.0, 60.0, 300.0, 1_800.0];

/// Upper bounds of the buckets of [`Counts::claim_size`]; a last bucket takes the rest.
pub const CLAIM_BUCKETS: [f64; 10] = [1.0, 2.0, 5.0, 10.0, 20.0, 50.0, 100.0, 500.0, 2_000.0, 10_000.0];

/// Most groups of which waits are told apart.
const GROUPS: usize = 1_000;

/// Memory that the worker does not know of.
const UNKNOWN: u64 = u64::MAX;

/// A worker's counters. All of them only grow, except the number in flight.
#[derive(Debug)]
pub struct Metrics {
    permits: u64,
    in_flight: AtomicU64,
    completed: AtomicU64,
    claims: AtomicU64,
    claimed: AtomicU64,
    claim_sizes: [AtomicU64; CLAIM_BUCKETS.len() + 1],
    fenced: AtomicU64,
    durations: [AtomicU64; DURATION_BUCKETS_SECONDS.len() + 1],
    duration_micros: AtomicU64,
    memory_percent: AtomicU64,
    capacity_percent: AtomicU64,
    waits: Waits,
}

/// The counters at one moment, under the names that they are exported by.
#[derive(Debug, Clone, PartialEq)]
pub struct Counts {
    /// `worker_in_flight_tasks`: handlers that run.
    pub in_flight_tasks: u64,
    /// `worker_permits`: jobs that it can run at once.
    pub permits: u64,
    /// `worker_tasks_completed_total`: attempts that have ended, whatever their outcome.
    pub tasks_completed_total: u64,
    /// `worker_claims_total`: exchanges that brought jobs.
    pub claims_total: u64,
    /// `worker_claim_size`: these exchanges by how many jobs they brought, one count for each of [`CLAIM_BUCKETS`] and
    /// one for larger ones.
    pub claim_size: Vec<u64>,
    /// The sum of `worker_claim_size`: jobs that these exchanges brought.
    pub claim_size_sum: u64,
    /// `worker_fenced_total`: settles that came too late and changed nothing.
    pub fenced_total: u64,
    /// `worker_task_duration_seconds`: attempts by how long they took, one count for each of
    /// [`DURATION_BUCKETS_SECONDS`] and one for longer ones.
    pub task_duration_seconds: Vec<u64>,
    /// The sum of `worker_task_duration_seconds`.
    pub task_duration_seconds_sum: f64,
    /// `worker_memory_ratio`: how full the memory was at the last exchange, in percent. None if the worker does not
    /// look.
    pub memory_percent: Option<u64>,
    /// `worker_capacity_factor`: how much of what it could claim it asked for last, in percent; less under pressure.
    pub capacity_percent: u64,
}

impl Counts {
    /// `worker_saturated`: whether fewer than a tenth of its permits are free.
    pub fn is_saturated(&self) -> bool {
        self.permits.saturating_sub(self.in_flight_tasks).saturating_mul(10) < self.permits
    }
}

fn bucket(bounds: &[f64], value: f64) -> usize {
    bounds.partition_point(|&bound| bound < value)
}

impl Metrics {
    pub(crate) fn new(permits: u32) -> Self {
        Self {
            permits: permits.into(),
            in_flight: AtomicU64::default(),
            completed: AtomicU64::default(),
            claims: AtomicU64::default(),
            claimed: AtomicU64::default(),
            claim_sizes: Default::default(),
            fenced: AtomicU64::default(),
            durations: Default::default(),
            duration_micros: AtomicU64::default(),
            memory_percent: UNKNOWN.into(),
            capacity_percent: 100.into(),
            waits: Waits::new(GROUPS),
        }
    }

    /// The counters now.
    pub fn counts(&self) -> Counts {
        let read = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        Counts {
            in_flight_tasks: read(&self.in_flight),
            permits: self.permits,
            tasks_completed_total: read(&self.completed),
            claims_total: read(&self.claims),
            claim_size: self.claim_sizes.iter().map(read).collect(),
            claim_size_sum: read(&self.claimed),
            fenced_total: read(&self.fenced),
            task_duration_seconds: self.durations.iter().map(read).collect(),
            task_duration_seconds_sum: read(&self.duration_micros) as f64 / 1e6,
            memory_percent: Some(read(&self.memory_percent)).filter(|percent| *percent != UNKNOWN),
            capacity_percent: read(&self.capacity_percent),
        }
    }

    pub(crate) fn started(&self) {
        self.in_flight.fetch_add(1, Ordering::Relaxed);
    }

    pub(crate) fn ended(&self, took: Duration) {
        self.in_flight.fetch_sub(1, Ordering::Relaxed);
        self.completed.fetch_add(1, Ordering::Relaxed);
        let bucket = bucket(&DURATION_BUCKETS_SECONDS, took.as_secs_f64());
        self.durations[bucket].fetch_add(1, Ordering::Relaxed);
        let micros = u64::try_from(took.as_micros()).unwrap_or(u64::MAX);
        self.duration_micros.fetch_add(micros, Ordering::Relaxed);
    }

    pub(crate) fn claimed(&self, jobs: usize) {
        if jobs > 0 {
            self.claims.fetch_add(1, Ordering::Relaxed);
            self.claimed.fetch_add(jobs as u64, Ordering::Relaxed);
            self.claim_sizes[bucket(&CLAIM_BUCKETS, jobs as f64)].fetch_add(1, Ordering::Relaxed);
        }
    }

    /// A job of the group was claimed so many milliseconds after it was due.
    pub(crate) fn waited(&self, group: &str, ms: u64) {
        self.waits.waited(group, ms);
    }

    /// The pressure that the worker is under, in percent: its memory, and how much of a claim it asks for.
    pub(crate) fn pressed(&self, memory_percent: Option<u8>, capacity_percent: u8) {
        let memory = memory_percent.map_or(UNKNOWN, u64::from);
        self.memory_percent.store(memory, Ordering::Relaxed);
        self.capacity_percent.store(capacity_percent.into(), Ordering::Relaxed);
    }

    pub(crate) fn fenced(&self) {
        self.fenced.fetch_add(1, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_claim_is_counted_once_and_by_its_size() {
        let metrics = Metrics::new(10);
        [0, 1, 3, 20_000].into_iter().for_each(|jobs| metrics.claimed(jobs));
        let counts = metrics.counts();
        assert_eq!((counts.claims_total, counts.claim_size_sum), (3, 20_004));
        assert_eq!(counts.claim_size, [1, 0, 1, 0, 0, 0, 0, 0, 0, 0, 1]);
    }

    #[test]
    fn a_worker_is_saturated_below_a_tenth_of_its_permits() {
        let metrics = Metrics::new(10);
        (0..9).for_each(|_| metrics.started());
        assert!(!metrics.counts().is_saturated());
        metrics.started();
        assert!(metrics.counts().is_saturated());
    }
}
