//! Housekeeping: snapshots, so that a reader has little to replay; jobs that leave the state for history; sweeping, also of
//! slots that are objects beside the log.
//!
//! **Who writes a snapshot.** The one whose record says so: a writer that finds, as it commits, that a reader would have much
//! to replay. Everybody who reads the record leaves it to him. So a fleet writes one snapshot and not one each, and if he
//! is killed on the way somebody else does it when there is as much again.

use crate::format::{self, MARK_AFTER, MARK_AHEAD, MARKS_PILED};
use crate::history;
use crate::request::Asked;
use crate::slots::SlotObjects;
use crate::snapshot;
use crate::sweep::{sweep, sweep_old};
use crate::writer::Writer;
use object_store::path::Path;
use qo_core::Command;
use std::time::Duration;
use tokio::task::JoinHandle;
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
    /// Writes the snapshot that this process owes, and sweeps now and then. Everybody has been answered: nobody waits for
    /// it.
    pub(crate) async fn keep_house(&mut self) {
        // What leaves the state leaves it in steps, and others are served in between; the snapshot is of what stays.
        if self.owes_snapshot && !self.is_snapshotting() && !self.archive().await {
            self.snapshot();
        }
        if !is_under_way(&self.sweeping) && self.last_sweep.elapsed() >= self.options.sweep_age / 2 {
            self.sweep();
        }
        self.sweep_slots();
        if self.owes_mark || self.marked_at.elapsed() >= MARK_AFTER {
            self.mark();
        }
        if !self.finished.is_empty() {
            self.finish().await;
        }
    }

    /// Waits until nothing goes on on the side. A look at slots is dropped: it may take minutes, and nothing rests on it.
    pub(crate) async fn finish(&mut self) {
        while self.owes_snapshot && self.archive().await {}
        self.snapshot();
        self.mark();
        // One sweep goes on at a time: the one that began last.
        if self.monitor.has_looked_since(self.last_sweep)
            && let Some(of_slots) = &self.sweeping
        {
            of_slots.abort();
        }
        let under_way = [self.snapshotting.take(), self.sweeping.take(), self.marking.take()];
        for under_way in under_way.into_iter().flatten() {
            under_way.await.ok();
        }
        self.finished.drain(..).for_each(|done| {
            done.send(()).ok();
        });
    }

    /// The namespace was opened: marks the end of a bucket's log, if the mark is far behind it, and deletes needless marks, if
    /// they have piled up. No caller waits for it.
    pub(crate) fn tidy_marks(&mut self, old: Vec<Path>) {
        if self.log.directory().is_some() {
            return;
        }
        if self.end.number >= self.marked + MARK_AHEAD {
            (self.wrote, self.owes_mark) = (self.end.number, true);
        }
        if old.len() >= MARKS_PILED {
            let log = self.log.clone();
            self.sweeping = Some(tokio::spawn(async move {
                if let Err(error) = log.delete_all(old).await {
                    tracing::debug!("old marks stay: {error}");
                }
            }));
        }
    }

    /// Marks the last record that this process wrote, if it is not marked: in a bucket. In a directory every record is.
    fn mark(&mut self) {
        if self.log.directory().is_some() || is_under_way(&self.marking) {
            return;
        }
        (self.owes_mark, self.marked_at) = (false, Instant::now());
        if self.wrote <= self.marked {
            return;
        }
        self.marked = self.wrote;
        let (log, number) = (self.log.clone(), self.wrote);
        self.marking = Some(tokio::spawn(async move {
            if !format::mark(&log, number).await {
                tracing::debug!("record {number} was not marked");
            }
        }));
    }

    fn is_snapshotting(&self) -> bool {
        is_under_way(&self.snapshotting)
    }

    /// Begins to write the snapshot that this process owes, if it can be written now.
    fn snapshot(&mut self) {
        // With offers that nobody has decided about, the state is not all that the records say.
        if !self.owes_snapshot || !self.offers.is_empty() {
            return;
        }
        let Some((number, bytes)) = self.encode_snapshot() else { return };
        let (log, options) = (self.log.clone(), self.options.clone());
        let known = self.watched.known_for(options.sweep_age);
        self.snapshotting = Some(tokio::spawn(async move {
            if !snapshot::write(&log, number, bytes).await {
                tracing::warn!("snapshot {number} was not written: the records say the same, and are kept");
                return;
            }
            // In a bucket there may be no process that lives long enough for a sweep of its own.
            if log.directory().is_none()
                && let Err(error) = sweep(&log, &options, known).await
            {
                tracing::debug!("sweeping was cut short: {error}");
            }
        }));
    }

    fn sweep(&mut self) {
        self.last_sweep = Instant::now();
        let long_sweep_is_due = self.last_long_sweep.is_none_or(|last| last.elapsed() >= LONG_SWEEP);
        if long_sweep_is_due {
            self.last_long_sweep = Some(self.last_sweep);
        }
        let (log, options) = (self.log.clone(), self.options.clone());
        let known = self.watched.known_for(options.sweep_age);
        let remembered_ms = self.state.retention().succeeded_ms;
        self.sweeping = Some(tokio::spawn(async move {
            if let Err(error) = sweep(&log, &options, known).await {
                tracing::debug!("sweeping was cut short: {error}");
            }
            if long_sweep_is_due && let Err(error) = sweep_old(&log, remembered_ms).await {
                tracing::debug!("sweeping was cut short: {error}");
            }
        }));
    }

    /// Frees slots that are objects and whose lease is over, if it is this process's turn to look for them.
    fn sweep_slots(&mut self) {
        let is_in_a_bucket = self.log.traffic().is_some();
        if !is_in_a_bucket
            || is_under_way(&self.sweeping)
            || !self.monitor.is_due(|| self.state.workers().len())
        {
            return;
        }
        // One for the life of the process: it remembers since when it has watched which slot.
        let slots = self.slots.get_or_insert_with(|| SlotObjects::beside(&self.log)).clone();
        let Some(slots) = slots else { return };
        self.sweeping = Some(tokio::spawn(async move {
            match slots.sweep().await {
                Ok(0) => {}
                Ok(freed) => tracing::info!("{freed} slots whose lease was over are free again"),
                Err(error) => tracing::debug!("sweeping slots was cut short: {error}"),
            }
        }));
    }

    /// Whether the record that is about to be written should bring a snapshot. One costs what it has rows, so a large one is
    /// due when there is more to replay.
    pub(crate) fn is_snapshot_due(&self) -> bool {
        let Pile { records, bytes, snapshot_bytes, .. } = self.pile;
        let much = records + 1 >= self.options.snapshot_every || bytes >= self.options.snapshot_bytes;
        let is_at_it = self.owes_snapshot || self.is_snapshotting();
        much && bytes >= snapshot_bytes / 2 && self.pile.is_affordable() && !is_at_it
    }

    /// Lets jobs that succeeded some time ago leave the state, a segment of them. False if there were none, or it failed.
    async fn archive(&mut self) -> bool {
        let leaving = history::leaving(&self.state, self.time.now(self.state.now()));
        if leaving.is_empty() {
            return false;
        }
        let jobs = leaving.iter().map(|job| job.id).collect();
        // If the segment is written and the record is not, the jobs are in both places, which hurts nobody.
        if !matches!(history::write(&self.log, self.end.number, leaving).await, Ok(true)) {
            return false;
        }
        let archived = self.commit(&[Asked::new(Command::Archive { jobs }, ())]).await;
        archived.inspect_err(|error| tracing::debug!("nothing left the state: {error}")).is_ok()
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

fn is_under_way(task: &Option<JoinHandle<()>>) -> bool {
    task.as_ref().is_some_and(|task| !task.is_finished())
}
