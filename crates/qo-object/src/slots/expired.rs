//! Slots whose lease is over. Whoever wants a slot takes such a one anyway: to free them is to tidy up, for those who look.

use super::place::{self, ROOT};
use super::slot::{ExpiredSlot, ExpiredSlots, FREE_BYTES, Slot, SlotObject};
use super::{SlotObjects, unavailable};
use futures::TryStreamExt;
use object_store::{UpdateVersion, path::Path};
use qo_core::{ErrorKind, GroupRef, Result, Time};

/// How long a lease must be over before the slot is swept: who comes a little late to extend it has it again until then.
const LATE_MS: u64 = 60_000;

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

/// Slots that somebody took, and objects that are none though they have the name of one.
struct Found {
    taken: Vec<Taken>,
    unreadable: Vec<String>,
}

impl SlotObjects {
    /// Frees every slot of a group whose lease is over, and returns how many there were. Whoever wants a slot takes such a one
    /// anyway; this is for those who look at the objects.
    pub async fn cleanup_expired(&self, group: &str) -> Result<u32> {
        let mut freed = 0;
        for (path, slot, version) in self.slots(&GroupRef::parse("group", group)?).await? {
            let is_expired = slot.is_expired(self.time.now()?);
            if is_expired && self.write(&path, &slot.freed(), Some(version)).await? {
                freed += 1;
            }
        }
        Ok(freed)
    }

    /// The slots of all groups whose lease is over. It changes nothing. It costs a listing for a thousand slots, and a request
    /// for each that is not free.
    pub async fn expired(&self) -> Result<ExpiredSlots> {
        let Found { taken, unreadable } = self.taken().await?;
        let at = taken.iter().map(|taken| taken.at).max();
        let expired = taken.into_iter().filter(|taken| taken.slot.is_expired(taken.at));
        let slots = expired.map(|Taken { group, slot_id, slot, at, .. }| {
            let slot = SlotObject::new(slot_id, slot, at);
            ExpiredSlot { group, slot }
        });
        let mut slots: Vec<_> = slots.collect();
        slots.sort_by(|a, b| (&a.group, a.slot.slot_id).cmp(&(&b.group, b.slot.slot_id)));
        Ok(ExpiredSlots { at, slots, unreadable })
    }

    /// Frees the slots of all groups whose lease has been over for a while, and returns how many there were. One that was
    /// taken or extended meanwhile is another version, and stays as it is.
    pub async fn sweep(&self) -> Result<u32> {
        let mut freed = 0;
        for Taken { path, slot, version, at, .. } in self.taken().await?.taken {
            let is_long_over = slot.expires_at.is_none_or(|end| end.plus_ms(LATE_MS) <= at);
            if is_long_over && self.write(&path, &slot.freed(), Some(version)).await? {
                freed += 1;
            }
        }
        Ok(freed)
    }

    async fn taken(&self) -> Result<Found> {
        let root = Path::from(ROOT);
        let listed = self.objects.list(Some(&root)).try_collect::<Vec<_>>().await;
        let listed = listed.map_err(|error| unavailable(&root, &error))?;
        let mut found = Found { taken: Vec::new(), unreadable: Vec::new() };
        let slots = listed.into_iter().filter(|meta| meta.size > FREE_BYTES);
        for path in slots.map(|meta| meta.location) {
            let Some((group, slot_id)) = place::slot(&path) else { continue };
            let before = self.time.heard()?;
            match self.read(&path).await {
                Ok(Some((slot, version))) if slot.task_id.is_some() => {
                    // By the earlier of two dates: one that is far ahead must not end anybody's lease.
                    let at = before.min(self.time.heard()?);
                    found.taken.push(Taken { group, slot_id, path, slot, version, at });
                }
                Ok(_) => {}
                Err(error) if error.kind() == ErrorKind::Data => {
                    found.unreadable.push(error.message().to_owned());
                }
                Err(error) => return Err(error),
            }
        }
        Ok(found)
    }
}
