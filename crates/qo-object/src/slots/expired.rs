//! Slots whose lease is over. A process that waits for a slot takes such a one anyway: to free them is to tidy up, for those who
//! look.
//!
//! What is shown goes by the bucket's dates. What is freed was also watched, for a whole lease, by the process that frees it
//! ([`super::watched`]): the look reads each slot, waits, and then writes over the version that it read, if it is still there.

use super::place::{self, ROOT, folder};
use super::slot::{ExpiredSlot, ExpiredSlots, FREE_BYTES, Slot, SlotObject};
use super::{SlotObjects, unavailable};
use crate::jitter::Jitter;
use futures::TryStreamExt;
use object_store::{UpdateVersion, path::Path};
use qo_core::{Error, ErrorKind, GroupRef, Result, Time};
use std::time::Duration;
use tokio::time::sleep;

/// How long a lease must be over before the slot is swept: who comes a little late to extend it has it again until then.
const LATE_MS: u64 = 60_000;
/// A look does not wait longer than this for a lease to be over; the next look of the same process goes on.
const WAIT: Duration = Duration::from_secs(600);
/// So many requests that come to nothing end a look: the server is away. As slots are looked at in an order by chance, a few
/// that always fail do not keep the others from being swept by and by.
const FAILURES: usize = 3;

/// A slot that somebody took.
struct Taken {
    group: GroupRef,
    slot_id: u32,
    path: Path,
    slot: Slot,
    version: UpdateVersion,
    /// When it was read.
    at: Time,
}

/// Slots that somebody took, objects that are none though they have the name of one, and what could not be looked at.
struct Found {
    taken: Vec<Taken>,
    unreadable: Vec<String>,
    failed: Vec<Error>,
}

impl SlotObjects {
    /// Frees every slot of a group whose lease is over, and returns how many there were. A process that waits for a slot takes
    /// such a one anyway; this is for those who look at the objects. It takes as long as the longest of those leases: each is
    /// watched.
    pub async fn cleanup_expired(&self, group: &str) -> Result<u32> {
        let found = self.taken(&folder(&GroupRef::parse("group", group)?)).await?;
        self.free(found, |taken| taken.slot.is_expired(taken.at)).await
    }

    /// The slots of all groups whose lease is over. It changes nothing. It costs a listing for a thousand slots, and a request
    /// for each that is not free.
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

    /// Frees the slots of all groups whose lease has been over for a while, and returns how many there were. One that was
    /// taken or extended meanwhile is another version, and stays as it is. One that fails does not keep the others from being
    /// freed: it is an error at the end, which says how many were freed.
    pub async fn sweep(&self) -> Result<u32> {
        let found = self.taken(&Path::from(ROOT)).await?;
        self.free(found, |Taken { slot, at, .. }| {
            slot.expires_at.is_none_or(|end| end.plus_ms(LATE_MS) <= *at)
        })
        .await
    }

    /// Frees those that are over, and returns how many there were.
    async fn free(&self, found: Found, is_over: impl Fn(&Taken) -> bool) -> Result<u32> {
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
                Ok(is_freed) => freed += u32::from(is_freed),
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
        let mut listed = listed.map_err(|error| unavailable(root, &error))?;
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
