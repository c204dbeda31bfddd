//! Doubt: nobody knows whether a slot was taken, because the answer was lost and nothing could be read afterwards either.
//!
//! Whoever asked is told `Unknown`, and holds nothing until he has asked again. If the slot is taken all the same, it would stay
//! so for a lease, with nobody to use it. So a process remembers it: the same task tries that slot first the next time, and
//! does not end up with two; for any other the slot is given back first, if what stands there is what was written then.
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
    pub slot_id: u32,
    pub task_id: Uuid,
    /// What was written, if it was.
    pub nonce: Uuid,
    /// Then the lease is over in any case.
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
    /// Gives back what others may have taken and do not use. Returns the slot of the group that this task may have taken
    /// itself.
    ///
    /// Each is remembered until it is settled: whoever asks may be dropped while he waits, and then the next one settles it.
    /// Two who settle the same do no harm: it is given back only as it was written.
    pub(super) async fn settle_doubts(&self, group: &GroupRef, task_id: Uuid) -> Option<u32> {
        let mut own = None;
        let mut is_reachable = true;
        for doubt in self.doubts.all() {
            if Instant::now() >= doubt.until {
                self.doubts.forget(doubt.nonce);
            } else if doubt.task_id == task_id && doubt.group == *group {
                // Something may go wrong before he has it; afterwards it is another version, and no longer in doubt.
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

    /// Frees a slot if it was taken by a write whose answer was lost, and nothing has happened to it since.
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
