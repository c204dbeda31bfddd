//! How long jobs waited for a worker, by group.

use crate::labels::Labels;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::histogram::Histogram;
use prometheus_client::registry::Registry;

/// Upper bounds of the buckets, in seconds.
pub const BUCKETS_SECONDS: [f64; 14] =
    [0.001, 0.005, 0.01, 0.05, 0.1, 0.5, 1.0, 5.0, 10.0, 30.0, 60.0, 300.0, 1_800.0, 3_600.0];

/// `qo_concurrency_wait_seconds`: from the moment at which a job was runnable to its claim.
#[derive(Debug)]
pub struct Waits {
    by_group: Family<[(&'static str, String); 1], Histogram>,
    groups: Labels,
}

impl Waits {
    /// None yet, of at most so many groups.
    pub fn new(groups: usize) -> Self {
        let histogram: fn() -> Histogram = || Histogram::new(BUCKETS_SECONDS);
        Self { by_group: Family::new_with_constructor(histogram), groups: Labels::new(groups) }
    }

    /// A job of the group was claimed so many milliseconds after it was runnable.
    pub fn waited(&self, group: &str, ms: u64) {
        let group = self.groups.value(group).to_owned();
        self.by_group.get_or_create(&[("group", group)]).observe(ms as f64 / 1e3);
    }

    /// Shows them.
    pub fn register(&self, registry: &mut Registry) {
        registry.register(
            "qo_concurrency_wait_seconds",
            "From the moment at which a job was runnable to its claim, by group",
            self.by_group.clone(),
        );
    }
}
