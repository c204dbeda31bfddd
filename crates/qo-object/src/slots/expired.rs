//! Slots whose lease is over: shown, and freed. A program that wants a slot takes such a one anyway, so freeing them
//! only tidies up, for people who look at the objects.
//!
//! 1. The process lists the slots, and reads each that is not free.
//! 2. By the bucket's dates it knows which leases are over. These are shown.
//! 3. It watches each of them for a whole lease ([`super::watched`]).
//! 4. It frees the slot by replacing the version that it read. A slot that was taken or extended meanwhile is another
//!    version, and stays.

use super::place::{self, ROOT};
use super::slot::{ExpiredSlot, ExpiredSlots, FREE_BYTES, Slot, SlotObject};
use super::{SlotObjects, unavailable};
use crate::jitter::Jitter;
use futures::TryStreamExt;
use object_store::{UpdateVersion, path::Path};
use qo_core::{Error, ErrorKind, GroupRef, Result, Time};
use std::time::Duration;
use tokio::time::sleep;

/// How long a lease must be over before the slot is swept: a holder that extends it a little late holds it again until
/// then.
const LATE_MS: u64 = 60_000;
/// A look waits no longer than this for a lease; the next look of the same process goes on watching.
const WAIT: Duration = Duration::from_secs(600);
/// So many failed requests end a look: the server is away. Slots are read in an order by chance, so a few that always
/// fail do not keep the others from being swept in time.
const FAILURES: usize = 3;

/// A slot that has a holder.
struct Taken {
    group: GroupRef,
    slot_id: u64,
    path: Path,
    slot: Slot,
    version: UpdateVersion,
    /// When it was read.
    at: Time,
}

/// Slots that have a holder, objects that are no slots though they have the name of one, and errors of requests.
struct Found {
    taken: Vec<Taken>,
    unreadable: Vec<String>,
    failed: Vec<Error>,
}

impl SlotObjects {
    /// Frees the slots of all groups whose lease is over, and returns how many there were. It takes as long as the
    /// longest of those leases: each is watched.
    pub(super) async fn free_expired(&self) -> Result<u64> {
        let found = self.taken(&Path::from(ROOT)).await?;
        self.free(found, |taken| taken.slot.is_expired(taken.at)).await
    }

    /// The slots of all groups whose lease is over. It changes nothing. It costs a listing for a thousand slots, and a
    /// request for each that is not free.
    pub async fn expired(&self) -> Result<ExpiredSlots> {
        let Found { taken, mut unreadable, failed } = self.taken(&Path::from(ROOT)).await?;
        if let Some(error) = failed.into_iter().next() {
            return Err(error);
        }
        let at = taken.iter().map(|taken| taken.at).max();
        let expired = taken.into_iter().filter(|taken| taken.slot.is_expired(taken.at));
        let slots = expired.map(|Taken { group, slot_id, slot, at, .. }| {
            let slot = SlotObject::new(slot_id, slot, at);
            ExpiredSlot { group, slot }
        });
        let mut slots: Vec<_> = slots.collect();
        slots.sort_by(|a, b| (&a.group, a.slot.slot_id).cmp(&(&b.group, b.slot.slot_id)));
        unreadable.sort();
        Ok(ExpiredSlots { at, slots, unreadable })
    }

    /// Frees the slots of all groups whose lease has been over for a while, and returns how many there were. If some
    /// fail, the others are freed all the same; the error says how many.
    pub async fn sweep(&self) -> Result<u64> {
        let found = self.taken(&Path::from(ROOT)).await?;
        self.free(found, |Taken { slot, at, .. }| {
            slot.expires_at.is_none_or(|end| end.plus_ms(LATE_MS) <= *at)
        })
        .await
    }

    /// Frees those that are over, and returns how many there were.
    async fn free(&self, found: Found, is_over: impl Fn(&Taken) -> bool) -> Result<u64> {
        let Found { taken, mut failed, .. } = found;
        let mut freed = 0;
        let mut over: Vec<_> = taken.into_iter().filter(is_over).collect();
        over.sort_by_cached_key(|taken| self.left_to_watch(&taken.path, &taken.slot, taken.at));
        for Taken { path, slot, version, at, .. } in over {
            let left = self.left_to_watch(&path, &slot, at);
            if failed.len() >= FAILURES || left > WAIT {
                break;
            }
            sleep(left).await;
            match self.write(&path, &slot.freed(), Some(version)).await {
                Ok(is_freed) => freed += u64::from(is_freed),
                Err(error) => failed.push(error),
            }
        }
        match failed.first() {
            None => Ok(freed),
            Some(first) => {
                let what = format!("{}; {freed} others were freed", first.message());
                Err(Error::new(first.kind(), what))
            }
        }
    }

    async fn taken(&self, root: &Path) -> Result<Found> {
        let listed = self.objects.list(Some(root)).try_collect::<Vec<_>>().await;
        let mut listed = listed.map_err(|error| unavailable(root, error))?;
        Jitter::new().shuffle(&mut listed);
        let mut found = Found { taken: Vec::new(), unreadable: Vec::new(), failed: Vec::new() };
        let slots = listed.into_iter().filter(|meta| meta.size > FREE_BYTES);
        for path in slots.map(|meta| meta.location) {
            if found.failed.len() >= FAILURES {
                break;
            }
            let Some((group, slot_id)) = place::slot(&path) else { continue };
            match self.read(&path).await {
                Ok(Some((slot, version))) if slot.task_id.is_some() => {
                    let at = self.time.now()?;
                    self.left_to_watch(&path, &slot, at);
                    found.taken.push(Taken { group, slot_id, path, slot, version, at });
                }
                Ok(_) => {}
                Err(error) if error.kind() == ErrorKind::Data => {
                    found.unreadable.push(error.message().to_owned());
                }
                Err(error) => found.failed.push(error),
            }
        }
        Ok(found)
    }
}
