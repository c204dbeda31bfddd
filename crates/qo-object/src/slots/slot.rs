//! A slot: what stands in its object, and what is shown of it.

use qo_core::{FenceToken, GroupRef, Name, Time};
use serde::{Deserialize, Serialize};
use uuid::Uuid;

/// An object with no more bytes than this is a free slot: who holds one is not said in so few. So a listing tells which
/// ones need not be read.
pub(super) const FREE_BYTES: u64 = 100;

/// What stands in the object of a slot.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Slot {
    /// Who holds it; nobody, if none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub task_id: Option<Uuid>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub worker_id: Option<Name>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub expires_at: Option<Time>,
    /// How long its lease is: whoever takes the slot over has watched it for that long.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub lease_ms: Option<u64>,
    /// The token of its last holder.
    pub token: FenceToken,
    /// Tells this version from any other: a write whose answer was lost is found again by it.
    pub nonce: Uuid,
}

impl Slot {
    pub fn is_taken(&self, now: Time) -> bool {
        self.task_id.is_some() && self.expires_at.is_some_and(|end| end > now)
    }

    /// Somebody held it, and his lease is over.
    pub fn is_expired(&self, now: Time) -> bool {
        self.task_id.is_some() && !self.is_taken(now)
    }

    pub fn freed(self) -> Self {
        let (task_id, worker_id, expires_at, lease_ms) = (None, None, None, None);
        Self { task_id, worker_id, expires_at, lease_ms, nonce: Uuid::new_v4(), ..self }
    }
}

/// A slot that is held.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct HeldSlot {
    /// Which one, from 0.
    pub slot_id: u32,
    /// Grows with every holder of the slot: what is written with an older one comes from somebody who lost it.
    pub token: FenceToken,
    /// When its lease is over unless it is extended, by the bucket's time.
    pub expires_at: Time,
}

/// A group, as its objects show it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SlotsStatus {
    /// The group.
    pub group: GroupRef,
    /// Slots that somebody holds.
    pub active: u32,
    /// Those that have ever been taken, in order.
    pub slots: Vec<SlotObject>,
}

/// One slot of a group.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SlotObject {
    /// Which one, from 0.
    pub slot_id: u32,
    /// Who holds it; none if it is free.
    pub task_id: Option<Uuid>,
    /// On which worker.
    pub worker_id: Option<Name>,
    /// When the lease is, or was, over.
    pub expires_at: Option<Time>,
    /// Whether that has passed, by the bucket's dates: a process that wants it takes it, after it has watched it for a lease.
    pub is_expired: bool,
    /// The last token.
    pub token: FenceToken,
}

impl SlotObject {
    pub(super) fn new(slot_id: u32, slot: Slot, now: Time) -> Self {
        let is_expired = slot.is_expired(now);
        let Slot { task_id, worker_id, expires_at, token, .. } = slot;
        Self { slot_id, task_id, worker_id, expires_at, is_expired, token }
    }
}

/// Slots whose lease is over.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ExpiredSlots {
    /// When it was looked, by the bucket's time; none if there was nothing to judge by it.
    pub at: Option<Time>,
    /// By group and slot.
    pub slots: Vec<ExpiredSlot>,
    /// Objects in the place of slots that are none, and what is wrong with them. Nobody gets past one.
    pub unreadable: Vec<String>,
}

/// A slot whose lease is over.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ExpiredSlot {
    /// The group.
    pub group: GroupRef,
    /// The slot.
    #[serde(flatten)]
    pub slot: SlotObject,
}
