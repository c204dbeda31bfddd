//! Slots for programs that are not jobs, in five calls: [`ConcurrencyManager`].
//!
//! [`StoreSlots`] implements it over any store: its slots share the group's limit with the jobs of the group.
//! `qo-object` implements it over objects in a bare bucket, whose slots are counted apart from jobs.
//!
//! ```
//! # use qo_core::{Acquire, ConcurrencyManager, MemoryStore, Result, StoreSlots};
//! # use std::{sync::Arc, time::Duration};
//! # async fn example() -> Result<()> {
//! let manager = StoreSlots::new(Arc::new(MemoryStore::new()));
//! let acquire = Acquire {
//!     group: "gpu",
//!     limit: 2,
//!     task_id: uuid::Uuid::from_u128(1),
//!     worker_id: "render-7",
//!     lease_duration: Duration::from_secs(30),
//! };
//! if let Some(slot) = manager.try_acquire(&acquire).await? {
//!     // … work, and call `extend_lease` now and then …
//!     manager.release(&slot).await?;
//! }
//! # Ok(())
//! # }
//! ```

use crate::{
    ErrorKind, FenceToken, GroupRef, HeldBy, Holder, LeaseId, Name, Result, SlotRequest, Store, Time, millis,
};
use async_trait::async_trait;
use serde::{Deserialize, Serialize};
use std::{fmt, sync::Arc, time::Duration};
use uuid::Uuid;

/// Takes and gives back slots of groups, for programs that are not jobs.
#[async_trait]
pub trait ConcurrencyManager: Send + Sync {
    /// Takes a slot of a group. None if there is no room. After `Unknown` the caller holds nothing until it has asked
    /// again for the same task.
    async fn try_acquire(&self, acquire: &Acquire<'_>) -> Result<Option<HeldSlot>>;

    /// Gives a slot back. `Fenced` if the caller does not hold it any more; nothing is freed twice.
    async fn release(&self, slot: &HeldSlot) -> Result<()>;

    /// Holds a slot for `lease_duration` from now, and returns the end of its lease. `Fenced` if the caller does not
    /// hold it any more: stop what it was for.
    async fn extend_lease(&self, slot: &HeldSlot, lease_duration: Duration) -> Result<Time>;

    /// Frees the slots of programs whose lease is over, in all groups, and returns how many there were. It only tidies
    /// up: calls that want such a slot take it anyway.
    async fn cleanup_expired(&self) -> Result<u64>;

    /// Who holds the slots of a group. A group without a holder is empty, not an error.
    async fn get_status(&self, group: &str) -> Result<ConcurrencyStatus>;
}

/// A request for a slot.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Acquire<'a> {
    /// `GROUP` or `GROUP/KEY`.
    pub group: &'a str,
    /// How many slots the group has. In a store it counts where no other limit is set.
    pub limit: u32,
    /// The caller's own id. The same id again gets the same slot, so a call whose answer was lost may be made again.
    pub task_id: Uuid,
    /// A label for people.
    pub worker_id: &'a str,
    /// How long the slot is held, unless the lease is extended or the slot is given back.
    pub lease_duration: Duration,
}

/// A slot that a program holds.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct HeldSlot {
    /// The group.
    pub group: GroupRef,
    /// Which slot it is: in a store the number of the token, of objects the number of the object, from 0.
    pub slot_id: u64,
    /// The id that the caller gave.
    pub task_id: Uuid,
    /// Grows with every holder: a write with an older token comes from a program that has lost the slot.
    pub token: FenceToken,
    /// When the lease is over unless it is extended, by store time.
    pub expires_at: Time,
}

/// The slots in a store. They share the limits of their groups with jobs.
#[derive(Clone)]
pub struct StoreSlots {
    store: Arc<dyn Store>,
}

impl fmt::Debug for StoreSlots {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("StoreSlots").finish_non_exhaustive()
    }
}

impl StoreSlots {
    /// The slots in a store.
    pub fn new(store: Arc<dyn Store>) -> Self {
        Self { store }
    }
}

#[async_trait]
impl ConcurrencyManager for StoreSlots {
    async fn try_acquire(&self, acquire: &Acquire<'_>) -> Result<Option<HeldSlot>> {
        let Acquire { group, limit, task_id, worker_id, lease_duration } = *acquire;
        let holder = Name::parse("worker_id", worker_id)?;
        let group = GroupRef::parse("group", group)?;
        let request = SlotRequest::new(LeaseId(task_id), group.clone(), holder, millis(lease_duration));
        let lease = self.store.acquire_slots(SlotRequest { limit: Some(limit), ..request }).await?;
        Ok(lease.map(|lease| HeldSlot {
            group,
            slot_id: lease.token.0,
            task_id,
            token: lease.token,
            expires_at: lease.lease_until,
        }))
    }

    async fn release(&self, slot: &HeldSlot) -> Result<()> {
        self.store.return_slots(LeaseId(slot.task_id), slot.token).await
    }

    async fn extend_lease(&self, slot: &HeldSlot, lease_duration: Duration) -> Result<Time> {
        let lease =
            self.store.extend_slots(LeaseId(slot.task_id), slot.token, millis(lease_duration)).await?;
        Ok(lease.lease_until)
    }

    /// Ends every lease that is over, of jobs too, and counts those of programs. Every claim does the same on its way.
    async fn cleanup_expired(&self) -> Result<u64> {
        Ok(self.store.sweep().await?.slots)
    }

    /// The limit of a group, and the jobs and programs that hold its slots.
    async fn get_status(&self, group: &str) -> Result<ConcurrencyStatus> {
        let group = GroupRef::parse("group", group)?;
        match self.store.group(group.clone()).await {
            Ok(detail) => Ok(ConcurrencyStatus {
                group,
                limit: detail.status.limit,
                active: detail.status.used,
                slots: detail.holders.into_iter().map(SlotInfo::from).collect(),
            }),
            Err(error) if error.kind() == ErrorKind::NotFound => {
                Ok(ConcurrencyStatus { group, limit: None, active: 0, slots: Vec::new() })
            }
            Err(error) => Err(error),
        }
    }
}

/// A group: its limit and the slots that are taken.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ConcurrencyStatus {
    /// The group.
    pub group: GroupRef,
    /// The limit in force. None if the group is unlimited, or if its slots are objects, which know no limit.
    pub limit: Option<u32>,
    /// Slots that are taken.
    pub active: u64,
    /// Who holds them: in a store the oldest first, of objects by their number.
    pub slots: Vec<SlotInfo>,
}

/// Slots of a group that one job or program holds.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SlotInfo {
    /// Which slot it is: see [`HeldSlot::slot_id`].
    pub slot_id: u64,
    /// How many slots it is.
    pub slots: u32,
    /// The job, or the id that the program gave.
    pub task_id: Uuid,
    /// The worker that runs the job, or the program.
    pub worker_id: Name,
    /// Since when; none for an object, which does not tell.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub acquired_at: Option<Time>,
    /// When its lease is over unless it is extended.
    pub expires_at: Time,
}

impl From<Holder> for SlotInfo {
    fn from(holder: Holder) -> Self {
        let task_id = match holder.by {
            HeldBy::Job { job, .. } => job.0,
            HeldBy::Program { lease } => lease.0,
        };
        Self {
            slot_id: holder.token.0,
            slots: holder.slots,
            task_id,
            worker_id: holder.worker,
            acquired_at: Some(holder.since),
            expires_at: holder.lease_until,
        }
    }
}
