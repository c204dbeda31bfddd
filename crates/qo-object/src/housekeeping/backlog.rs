//! The backlog: what a reader would have to replay after the newest snapshot, and what a new snapshot would cost.

use std::time::Duration;
use tokio::time::Instant;

/// Snapshots take at most this fraction of the time …
const SNAPSHOT_SHARE: f64 = 30.0;
/// … unless a reader would have this much to replay.
const MOST_BYTES: usize = 64 << 20;
/// Seconds that a byte of a snapshot costs, until the first one is measured.
const COST_PER_BYTE: f64 = 1e-8;

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
        let cost_per_byte = took.as_secs_f64() / bytes.max(1) as f64;
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
