//! The backlog: what a reader would have to replay after the newest snapshot, and what a new snapshot would cost.

use std::time::Duration;
use tokio::time::Instant;

/// Snapshots take at most this fraction of the time …
const SNAPSHOT_SHARE: f64 = 30.0;
/// … unless a reader would have this much to replay.
const MOST_BYTES: usize = 64 << 20;
/// Seconds that a byte of a snapshot costs, until the first one is measured.
const COST_PER_BYTE: f64 = 1e-8;
/// The time of a smaller snapshot says nothing about its bytes: a pause of the process is most of it. Spread over the
/// few bytes, one pause would make the next snapshots seem to cost minutes.
const TELLING_BYTES: usize = 1 << 20;

/// Records since the newest snapshot.
pub(super) struct Backlog {
    records: u64,
    bytes: usize,
    /// The size of the last snapshot.
    snapshot_bytes: usize,
    /// When this process, or another one, took that. None for a process that has just opened the namespace: it need not
    /// wait.
    since: Option<Instant>,
    /// Seconds that a byte of a snapshot costs.
    cost_per_byte: f64,
}

impl Backlog {
    pub(super) fn new(snapshot_bytes: usize) -> Self {
        Self { records: 0, bytes: 0, snapshot_bytes, since: None, cost_per_byte: COST_PER_BYTE }
    }

    /// No backlog: this process encoded a snapshot of this size in this time.
    pub(super) fn after_snapshot(bytes: usize, took: Duration) -> Self {
        let cost_per_byte = took.as_secs_f64() / bytes.max(TELLING_BYTES) as f64;
        Self { cost_per_byte, since: Some(Instant::now()), ..Self::new(bytes) }
    }

    /// The backlog of the same process after it reopened from a snapshot of this size.
    pub(super) fn begun_again(&self, snapshot_bytes: usize) -> Self {
        Self { cost_per_byte: self.cost_per_byte, ..Self::new(snapshot_bytes) }
    }

    /// One more record.
    pub(super) fn add(&mut self, bytes: usize) {
        self.records += 1;
        self.bytes += bytes;
    }

    /// Another process announced a snapshot.
    pub(super) fn is_taken_care_of(&mut self) {
        (self.records, self.bytes, self.since) = (0, 0, Some(Instant::now()));
    }

    /// Whether a snapshot is due with the next record: after so many records or bytes, if these are at least half as
    /// large as the last snapshot.
    pub(super) fn is_due(&self, records: u64, bytes: usize) -> bool {
        let much = self.records + 1 >= records || self.bytes >= bytes;
        much && self.bytes >= self.snapshot_bytes / 2 && self.is_affordable()
    }

    /// The writer serves no call while it encodes a snapshot: one that costs a tenth of a second may come every three.
    fn is_affordable(&self) -> bool {
        let cost = self.cost_per_byte * (self.snapshot_bytes + self.bytes) as f64;
        let passed = self.since.map_or(f64::INFINITY, |since| since.elapsed().as_secs_f64());
        passed >= cost * SNAPSHOT_SHARE || self.bytes >= MOST_BYTES
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_pause_during_a_small_snapshot_puts_off_the_next_by_moments() {
        let mut backlog = Backlog::after_snapshot(500, Duration::from_secs(1));
        (0..1_000).for_each(|_| backlog.add(200));
        tokio::time::advance(Duration::from_secs(10)).await;
        assert!(backlog.is_due(5, 1), "it comes within seconds, not after 64 MiB");
    }

    #[tokio::test(start_paused = true)]
    async fn a_snapshot_that_costs_a_tenth_of_a_second_comes_every_three() {
        let mut backlog = Backlog::after_snapshot(10 << 20, Duration::from_millis(100));
        backlog.add(6 << 20);
        tokio::time::advance(Duration::from_secs(3)).await;
        assert!(!backlog.is_due(5, 1));
        tokio::time::advance(Duration::from_secs(2)).await;
        assert!(backlog.is_due(5, 1));
    }
}
