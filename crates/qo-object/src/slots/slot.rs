//! A slot: the content of its object, and what is shown of it.

use qo_core::{FenceToken, GroupRef, Name, SlotInfo, Time};
use serde::{Deserialize, Serialize};
use uuid::Uuid;

/// An object with no more bytes than this is a free slot: a holder takes more. So a listing tells which ones need not
/// be read.
pub(super) const FREE_BYTES: u64 = 100;

/// The content of the object of a slot.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Slot {
    /// The holder; none if it is free.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub task_id: Option<Uuid>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub worker_id: Option<Name>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub expires_at: Option<Time>,
    /// The length of its lease: a process that takes the slot over has watched it for that long.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub lease_ms: Option<u64>,
    /// The token of its last holder.
    pub token: FenceToken,
    /// Tells this version from any other, so that a process recognises a write of its own whose answer was lost.
    pub nonce: Uuid,
}

impl Slot {
    pub fn is_taken(&self, now: Time) -> bool {
        self.task_id.is_some() && self.expires_at.is_some_and(|end| end > now)
    }

    /// Whether it has a holder whose lease is over.
    pub fn is_expired(&self, now: Time) -> bool {
        self.task_id.is_some() && !self.is_taken(now)
    }

    pub fn freed(self) -> Self {
        let (task_id, worker_id, expires_at, lease_ms) = (None, None, None, None);
        Self { task_id, worker_id, expires_at, lease_ms, nonce: Uuid::new_v4(), ..self }
    }
}

/// One slot of a group.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SlotObject {
    /// Which one, from 0.
    pub slot_id: u64,
    /// The holder; none if it is free.
    pub task_id: Option<Uuid>,
    /// On which worker.
    pub worker_id: Option<Name>,
    /// When the lease is, or was, over.
    pub expires_at: Option<Time>,
    /// Whether that has passed, by the bucket's dates. A process that wants the slot takes it after it has watched it
    /// for a lease.
    pub is_expired: bool,
    /// The last token.
    pub token: FenceToken,
}

impl SlotObject {
    pub(super) fn new(slot_id: u64, slot: Slot, now: Time) -> Self {
        let is_expired = slot.is_expired(now);
        let Slot { task_id, worker_id, expires_at, token, .. } = slot;
        Self { slot_id, task_id, worker_id, expires_at, is_expired, token }
    }

    /// What every manager of slots shows of it; none if it is free.
    pub(super) fn into_info(self) -> Option<SlotInfo> {
        let Self { slot_id, task_id, worker_id, expires_at, .. } = self;
        let (task_id, worker_id, expires_at) = (task_id?, worker_id?, expires_at?);
        Some(SlotInfo { slot_id, slots: 1, task_id, worker_id, acquired_at: None, expires_at })
    }
}

/// Slots whose lease is over.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ExpiredSlots {
    /// When the slots were read, by the bucket's time; none if no slot was taken.
    pub at: Option<Time>,
    /// By group and slot.
    pub slots: Vec<ExpiredSlot>,
    /// Objects in the place of slots that are none, and what is wrong with them. A program that meets one gets an
    /// error.
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
