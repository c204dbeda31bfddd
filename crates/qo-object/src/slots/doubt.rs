//! Doubt: a slot that may be taken, because the answer of a write was lost and the object could not be read afterwards
//! either.
//!
//! 1. The caller is told `Unknown`, and holds nothing. If the write landed, the slot would stay taken for a lease,
//!    unused.
//! 2. The process remembers the slot.
//! 3. If the same task asks again, it tries that slot first, so it does not end up with two.
//! 4. Before another task asks, the process gives the slot back, if it is still the version that was written.
//!
//! A process that ends in doubt leaves the slot taken until its lease is over.

use super::SlotObjects;
use super::place::path;
use qo_core::{GroupRef, Result};
use std::sync::{Mutex, MutexGuard, PoisonError};
use tokio::time::Instant;
use uuid::Uuid;

/// A slot that may be taken.
#[derive(Debug, Clone)]
pub(super) struct Doubt {
    pub group: GroupRef,
    pub slot_id: u64,
    pub task_id: Uuid,
    /// The nonce of the version that may have been written.
    pub nonce: Uuid,
    /// The lease is over then in any case.
    pub until: Instant,
}

/// All slots that a process is in doubt about.
#[derive(Debug, Default)]
pub(super) struct Doubts(Mutex<Vec<Doubt>>);

impl Doubts {
    pub fn remember(&self, doubt: Doubt) {
        self.lock().push(doubt);
    }

    fn all(&self) -> Vec<Doubt> {
        self.lock().clone()
    }

    fn forget(&self, nonce: Uuid) {
        self.lock().retain(|doubt| doubt.nonce != nonce);
    }

    fn lock(&self) -> MutexGuard<'_, Vec<Doubt>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl SlotObjects {
    /// Gives back slots that calls for other tasks may have taken. Returns the slot of the group that this task may
    /// have taken.
    ///
    /// Each is remembered until it is settled: a call may be dropped while it waits, and then the next one settles it.
    /// Two calls that settle the same slot do no harm: it is given back only as it was written.
    pub(super) async fn settle_doubts(&self, group: &GroupRef, task_id: Uuid) -> Option<u64> {
        let mut own = None;
        let mut is_reachable = true;
        for doubt in self.doubts.all() {
            if Instant::now() >= doubt.until {
                self.doubts.forget(doubt.nonce);
            } else if doubt.task_id == task_id && doubt.group == *group {
                // Remember it until the task holds it: then it is another version, and no longer in doubt.
                own = Some(doubt.slot_id);
            } else if is_reachable {
                is_reachable = self.give_back(&doubt).await.is_ok();
                if is_reachable {
                    self.doubts.forget(doubt.nonce);
                }
            }
        }
        own
    }

    /// Frees a slot if the lost write took it, and it has not changed since.
    async fn give_back(&self, doubt: &Doubt) -> Result<()> {
        let path = path(&doubt.group, doubt.slot_id);
        match self.read(&path).await? {
            Some((slot, version)) if slot.nonce == doubt.nonce => {
                self.write(&path, &slot.freed(), Some(version)).await.map(drop)
            }
            _ => Ok(()),
        }
    }
}
