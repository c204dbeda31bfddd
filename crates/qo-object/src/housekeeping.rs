//! Housekeeping: snapshots, so that a reader has little to replay; jobs that leave the state for history; sweeping.
//!
//! **Who writes a snapshot.** The one whose record says so: a writer that finds, as it commits, that a reader would have much
//! to replay. Everybody who reads the record leaves it to him. So a fleet writes one snapshot and not one each, and if he
//! is killed on the way somebody else does it when there is as much again.

use crate::history;
use crate::snapshot;
use crate::sweep::{sweep, sweep_old};
use crate::writer::{Asked, Writer};
use qo_core::Command;
use std::time::Duration;
use tokio::time::Instant;

/// Snapshots take this fraction of the time at most …
const SNAPSHOT_SHARE: f64 = 30.0;
/// … unless a reader would have this much to replay.
const PILE_BYTES: usize = 64 << 20;
/// How often what is kept for hours or days is swept.
const LONG_SWEEP: Duration = Duration::from_secs(3_600);

/// What a reader would have to replay, and what it would cost to spare it that.
pub(crate) struct Pile {
    records: u64,
    bytes: usize,
    /// How large the last snapshot was.
    snapshot_bytes: usize,
    /// When this process took one; whoever finds much to replay when it opens the namespace need not wait.
    since: Option<Instant>,
    /// What a snapshot costs, for each byte of it.
    cost_per_byte: f64,
}

impl Pile {
    pub(crate) fn new(snapshot_bytes: usize) -> Self {
        // A guess, until the first one is measured.
        let cost_per_byte = 1e-8;
        Self { records: 0, bytes: 0, snapshot_bytes, since: None, cost_per_byte }
    }

    /// The same machine, after it began again at a snapshot of this size.
    pub(crate) fn begun_again(&self, snapshot_bytes: usize) -> Self {
        Self { cost_per_byte: self.cost_per_byte, ..Self::new(snapshot_bytes) }
    }

    /// One more record.
    pub(crate) fn add(&mut self, bytes: usize) {
        self.records += 1;
        self.bytes += bytes;
    }

    /// Somebody else writes a snapshot. If he does not, because he was killed, the pile grows once more before somebody does.
    pub(crate) fn is_taken_care_of(&mut self) {
        (self.records, self.bytes, self.since) = (0, 0, Some(Instant::now()));
    }

    /// Nobody is served while a snapshot is put together: one that costs a tenth of a second may come every three.
    fn is_affordable(&self) -> bool {
        let cost = self.cost_per_byte * (self.snapshot_bytes + self.bytes) as f64;
        let passed = self.since.map_or(f64::INFINITY, |since| since.elapsed().as_secs_f64());
        passed >= cost * SNAPSHOT_SHARE || self.bytes >= PILE_BYTES
    }
}

impl Writer {
    /// Writes a snapshot if a reader would have much to replay, and sweeps now and then. Everybody has been answered:
    /// nobody waits for it.
    pub(crate) async fn keep_house(&mut self) {
        if self.is_keeping_house() {
            return;
        }
        if self.owes_snapshot {
            self.archive().await;
        }
        // With offers that nobody has decided about, the state is not all that the records say.
        let snapshot = match self.owes_snapshot && self.offers.is_empty() {
            true => self.encode_snapshot(),
            false => None,
        };
        let sweep_is_due = self.last_sweep.elapsed() >= self.options.sweep_age / 2;
        if snapshot.is_none() && !sweep_is_due {
            return;
        }
        if sweep_is_due {
            self.last_sweep = Instant::now();
        }
        let is_old = self.last_long_sweep.is_none_or(|last| last.elapsed() >= LONG_SWEEP);
        let long_sweep_is_due = sweep_is_due && is_old;
        if long_sweep_is_due {
            self.last_long_sweep = Some(self.last_sweep);
        }
        let (log, age) = (self.log.clone(), self.options.sweep_age);
        let remembered_ms = self.state.retention().succeeded_ms;
        self.housekeeping = Some(tokio::spawn(async move {
            if let Some((number, bytes)) = snapshot
                && !snapshot::write(&log, number, bytes).await
            {
                tracing::debug!("snapshot {number} was not written: the records say the same");
            }
            if sweep_is_due && let Err(error) = sweep(&log, age).await {
                tracing::debug!("sweeping was cut short: {error}");
            }
            if long_sweep_is_due && let Err(error) = sweep_old(&log, remembered_ms).await {
                tracing::debug!("sweeping was cut short: {error}");
            }
        }));
    }

    fn is_keeping_house(&self) -> bool {
        self.housekeeping.as_ref().is_some_and(|running| !running.is_finished())
    }

    /// Whether the record that is about to be written should bring a snapshot. One costs what it has rows, so a large one is
    /// due when there is more to replay.
    pub(crate) fn is_snapshot_due(&self) -> bool {
        let Pile { records, bytes, snapshot_bytes, .. } = self.pile;
        let much = records + 1 >= self.options.snapshot_every || bytes >= self.options.snapshot_bytes;
        let is_at_it = self.owes_snapshot || self.is_keeping_house();
        much && bytes >= snapshot_bytes / 2 && self.pile.is_affordable() && !is_at_it
    }

    /// Lets jobs that succeeded some time ago leave the state.
    async fn archive(&mut self) {
        let leaving = history::leaving(&self.state, self.hands.now(self.state.now()));
        if leaving.is_empty() {
            return;
        }
        let jobs = leaving.iter().map(|job| job.id).collect();
        // If the segment is written and the record is not, the jobs are in both places, which hurts nobody.
        if let Ok(true) = history::write(&self.log, self.end.number, leaving).await
            && let Err(error) = self.commit(&[Asked::new(Command::Archive { jobs }, ())]).await
        {
            tracing::debug!("nothing left the state: {error}");
        }
    }

    fn encode_snapshot(&mut self) -> Option<(u64, Vec<u8>)> {
        self.owes_snapshot = false;
        let begun = Instant::now();
        let encoded = snapshot::encode(self.end, &self.state).ok()?;
        let cost_per_byte = begun.elapsed().as_secs_f64() / encoded.len().max(1) as f64;
        self.pile = Pile { cost_per_byte, since: Some(Instant::now()), ..Pile::new(encoded.len()) };
        Some((self.end.number, encoded))
    }
}
