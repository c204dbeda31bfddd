//! When this process writes a mark: see [`format`](crate::format) for what a mark is.

use super::Task;
use crate::format::{self, MARK_AFTER};
use crate::log::Log;
use object_store::path::Path;
use tokio::time::Instant;

/// A process that opens the namespace and finds the log so far ahead of its mark writes one: light clients leave few.
const AHEAD: u64 = 10;
/// So many old marks are deleted by the next process that opens the namespace: commands that end at once leave one
/// each, and there may be no process that lives long enough to sweep.
const MANY: usize = 8;

/// Whether there are so many old marks that the process that found them deletes them.
pub(super) fn are_many(old: &[Path]) -> bool {
    old.len() >= MANY
}

/// What this process knows of the mark, where marks are objects.
pub(super) struct Marks {
    /// The record that a mark names …
    marked: u64,
    /// … and when this process last wrote one, or had none to write.
    marked_at: Instant,
    /// The last record that this process wrote, or found without a mark.
    wrote: u64,
    /// That record is marked in any case.
    is_owed: bool,
    writing: Task,
}

impl Marks {
    pub(super) fn new(marked: u64) -> Self {
        Self { marked, marked_at: Instant::now(), wrote: 0, is_owed: false, writing: Task::default() }
    }

    /// A record of this process is there.
    pub(super) fn wrote(&mut self, number: u64) {
        self.wrote = number;
        self.is_owed |= format::is_marked(number);
    }

    /// The log that was opened ends here.
    pub(super) fn found_end(&mut self, end: u64) {
        if end >= self.marked + AHEAD {
            (self.wrote, self.is_owed) = (end, true);
        }
    }

    pub(super) fn write_if_due(&mut self, log: &Log) {
        if self.is_owed || self.marked_at.elapsed() >= MARK_AFTER {
            self.write(log);
        }
    }

    /// Begins to mark the last record that this process wrote, if it is not marked. Where marks are no objects, every
    /// record is marked as it is created.
    pub(super) fn write(&mut self, log: &Log) {
        if !log.medium().policy().marks_by_objects || self.writing.is_under_way() {
            return;
        }
        (self.is_owed, self.marked_at) = (false, Instant::now());
        if self.wrote <= self.marked {
            return;
        }
        self.marked = self.wrote;
        let (log, number) = (log.clone(), self.wrote);
        self.writing.start(async move {
            if !format::mark(&log, number).await {
                tracing::debug!("record {number} was not marked");
            }
        });
    }

    /// The mark that is being written.
    pub(super) fn task(&mut self) -> &mut Task {
        &mut self.writing
    }
}
