//! Housekeeping: snapshots, sweeping, marks. All of it runs beside the calls: no caller waits for it.
//!
//! **Snapshots.** One process of a fleet writes a snapshot, not each of them.
//!
//! 1. A writer that is about to create a record finds that a reader would have much to replay
//!    ([`Housekeeping::is_snapshot_due`]). Its record announces a snapshot.
//! 2. Every process that reads the record forgets its [backlog](Backlog), so none of them announces another.
//! 3. The writer encodes its state, and a task beside the log writes it.
//! 4. If the writer is killed before that, the backlog grows once more, and another writer announces.
//!
//! A process that opens the namespace does not trust announcements in old records: it found no snapshot.
//!
//! **Sweeping** begins every half sweep age, and where the policy says so after a snapshot. One sweep runs at a time,
//! be it of records or of slots.

mod backlog;
mod marks;

use crate::log::Log;
use crate::record::Record;
use crate::replica::Replica;
use crate::slots::{Monitor, SlotObjects};
use crate::snapshot;
use crate::store::Options;
use crate::sweep::{sweep, sweep_old};
use backlog::Backlog;
use marks::Marks;
use object_store::path::Path;
use std::time::Duration;
use tokio::task::JoinHandle;
use tokio::time::Instant;
use uuid::Uuid;

/// How often objects that are kept for hours or days are swept.
const LONG_SWEEP: Duration = Duration::from_secs(3_600);

/// What this process does for the namespace beside its calls.
pub(crate) struct Housekeeping {
    me: Uuid,
    log: Log,
    options: Options,
    backlog: Backlog,
    /// A record announced that this process writes a snapshot.
    owes_snapshot: bool,
    snapshotting: Task,
    sweeping: Task,
    last_sweep: Instant,
    last_long_sweep: Option<Instant>,
    marks: Marks,
    /// When to sweep slots that are objects beside the log.
    monitor: Monitor,
    /// Those slots, once they were looked at; none where there can be none. They live as long as the process, because
    /// they remember since when it has watched which slot.
    slots: Option<Option<SlotObjects>>,
}

/// A task beside the log.
#[derive(Default)]
pub(super) struct Task(Option<JoinHandle<()>>);

impl Task {
    fn start(&mut self, work: impl Future<Output = ()> + Send + 'static) {
        self.0 = Some(tokio::spawn(work));
    }

    fn is_under_way(&self) -> bool {
        self.0.as_ref().is_some_and(|task| !task.is_finished())
    }

    fn abort(&self) {
        if let Some(task) = &self.0 {
            task.abort();
        }
    }

    async fn end(&mut self) {
        if let Some(task) = self.0.take() {
            task.await.ok();
        }
    }
}

impl Housekeeping {
    /// `marked` is the record that the mark of the namespace names.
    pub(crate) fn new(me: Uuid, log: &Log, options: &Options, marked: u64) -> Self {
        Self {
            me,
            log: log.clone(),
            options: options.clone(),
            backlog: Backlog::new(0),
            owes_snapshot: false,
            snapshotting: Task::default(),
            sweeping: Task::default(),
            last_sweep: Instant::now(),
            last_long_sweep: None,
            marks: Marks::new(marked),
            monitor: Monitor::new(options.slots_every),
            slots: None,
        }
    }

    /// The replica was reopened from a snapshot of this size.
    pub(crate) fn reopened(&mut self, snapshot_bytes: usize) {
        self.backlog = self.backlog.begun_again(snapshot_bytes);
        self.owes_snapshot = false;
    }

    /// A record was read.
    pub(crate) fn saw(&mut self, record: &Record, bytes: usize, is_old: bool) {
        self.backlog.add(bytes);
        if record.snapshot && record.writer == self.me {
            // This process wrote it, and learns so only now.
            self.owes_snapshot = true;
        } else if record.snapshot && !is_old {
            self.backlog.is_taken_care_of();
        }
    }

    /// A record of this process is there.
    pub(crate) fn wrote(&mut self, record: &Record, bytes: usize) {
        self.backlog.add(bytes);
        self.owes_snapshot |= record.snapshot;
        self.marks.wrote(record.number);
    }

    /// Whether the record that is about to be created announces a snapshot. A snapshot costs what it has rows, so a
    /// large one is due when there is more to replay.
    pub(crate) fn is_snapshot_due(&self) -> bool {
        let is_at_it = self.owes_snapshot || self.snapshotting.is_under_way();
        self.backlog.is_due(self.options.snapshot_every, self.options.snapshot_bytes) && !is_at_it
    }

    /// Whether this process must write a snapshot.
    pub(crate) fn owes_snapshot(&self) -> bool {
        self.owes_snapshot
    }

    /// Whether this process must write a snapshot, and none is being written.
    pub(crate) fn can_snapshot(&self) -> bool {
        self.owes_snapshot && !self.snapshotting.is_under_way()
    }

    /// Begins to write the snapshot that this process owes. With offers that wait the state is not all that the records
    /// say, and the snapshot waits too.
    pub(crate) fn snapshot(&mut self, replica: &Replica, has_offers: bool) {
        if !self.owes_snapshot || has_offers {
            return;
        }
        self.owes_snapshot = false;
        let begun = Instant::now();
        let (number, known) = (replica.end().number, replica.known());
        let Ok(bytes) = snapshot::encode(replica.end(), replica.state()) else { return };
        self.backlog = Backlog::after_snapshot(bytes.len(), begun.elapsed());
        let (log, options) = (self.log.clone(), self.options.clone());
        self.snapshotting.start(async move {
            if !snapshot::write(&log, number, bytes).await {
                tracing::warn!("snapshot {number} was not written: the records say the same, and are kept");
                return;
            }
            if log.medium().policy().sweeps_after_snapshots {
                said(sweep(&log, &options, known).await);
            }
        });
    }

    /// Begins what is due: a sweep, a look at slots, a mark.
    pub(crate) fn begin_what_is_due(&mut self, replica: &Replica) {
        if !self.sweeping.is_under_way() && self.last_sweep.elapsed() >= self.options.sweep_age / 2 {
            self.sweep(replica);
        }
        self.sweep_slots(replica);
        self.marks.write_if_due(&self.log);
    }

    fn sweep(&mut self, replica: &Replica) {
        self.last_sweep = Instant::now();
        let long_sweep_is_due = self.last_long_sweep.is_none_or(|last| last.elapsed() >= LONG_SWEEP);
        if long_sweep_is_due {
            self.last_long_sweep = Some(self.last_sweep);
        }
        let (log, options, known) = (self.log.clone(), self.options.clone(), replica.known());
        let remembered_ms = replica.state().retention().succeeded_ms;
        self.sweeping.start(async move {
            said(sweep(&log, &options, known).await);
            if long_sweep_is_due {
                said(sweep_old(&log, remembered_ms).await);
            }
        });
    }

    /// Frees slots that are objects and whose lease is over, if this process is the one of the fleet to look for them.
    fn sweep_slots(&mut self, replica: &Replica) {
        let may_have_slots = self.log.medium().policy().requests_cost;
        if !may_have_slots
            || self.sweeping.is_under_way()
            || !self.monitor.is_due(|| replica.state().workers().len())
        {
            return;
        }
        let slots = self.slots.get_or_insert_with(|| SlotObjects::beside(&self.log)).clone();
        let Some(slots) = slots else { return };
        self.sweeping.start(async move {
            match slots.sweep().await {
                Ok(0) => {}
                Ok(freed) => tracing::info!("{freed} slots whose lease was over are free again"),
                Err(error) => tracing::debug!("sweeping slots was cut short: {error}"),
            }
        });
    }

    /// The namespace was opened, and its log ends at `end`: marks that end if the mark is far behind, and deletes old
    /// marks if there are many.
    pub(crate) fn tidy_marks(&mut self, end: u64, old: Vec<Path>) {
        if !self.log.medium().policy().marks_by_objects {
            return;
        }
        self.marks.found_end(end);
        if marks::are_many(&old) {
            let log = self.log.clone();
            self.sweeping.start(async move {
                if let Err(error) = log.medium().delete_all(old).await {
                    tracing::debug!("old marks stay: {error}");
                }
            });
        }
    }

    /// Writes the last snapshot and mark, and waits until nothing is under way. A look at slots is dropped: it may take
    /// minutes, and the next process looks again.
    pub(crate) async fn finish(&mut self, replica: &Replica, has_offers: bool) {
        self.snapshot(replica, has_offers);
        self.marks.write(&self.log);
        // One sweep runs at a time: the one that began last.
        if self.monitor.has_looked_since(self.last_sweep) {
            self.sweeping.abort();
        }
        for task in [&mut self.snapshotting, &mut self.sweeping, self.marks.task()] {
            task.end().await;
        }
    }
}

fn said<T>(swept: qo_core::Result<T>) {
    if let Err(error) = swept {
        tracing::debug!("sweeping was cut short: {error}");
    }
}
