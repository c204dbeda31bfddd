//! Slots for programs that are not jobs, in five calls. They share the group's limit with the jobs of the group, on
//! every store.
//!
//! ```
//! # use qo_core::{ConcurrencyManager, MemoryStore, Result};
//! # use std::{sync::Arc, time::Duration};
//! # async fn example() -> Result<()> {
//! let manager = ConcurrencyManager::new(Arc::new(MemoryStore::new()));
//! let me = uuid::Uuid::from_u128(1);
//! if let Some(slot) = manager.try_acquire("gpu", 2, me, "render-7", Duration::from_secs(30)).await? {
//!     // … work, and call `extend_lease` now and then …
//!     manager.release("gpu", slot.token, me).await?;
//! }
//! # Ok(())
//! # }
//! ```

use crate::{
    ErrorKind, FenceToken, GroupRef, HeldBy, Holder, LeaseId, Name, Result, SlotLease, SlotRequest, Store,
    Time,
};
use serde::{Deserialize, Serialize};
use std::{fmt, sync::Arc, time::Duration};
use uuid::Uuid;

/// Takes and returns slots of groups, over any store.
#[derive(Clone)]
pub struct ConcurrencyManager {
    store: Arc<dyn Store>,
}

impl fmt::Debug for ConcurrencyManager {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ConcurrencyManager").finish_non_exhaustive()
    }
}

impl ConcurrencyManager {
    /// A manager of the slots in a store.
    pub fn new(store: Arc<dyn Store>) -> Self {
        Self { store }
    }

    /// Takes a slot of a group (`GROUP` or `GROUP/KEY`). None if there is no room.
    ///
    /// Returns the slot's id and until when it is held. `limit` counts where no other source sets one. `task_id` is the
    /// caller's own: the same id again gets the same slot until the same time, so a caller may repeat a call whose
    /// answer was lost.
    pub async fn try_acquire(
        &self,
        group: &str,
        limit: u32,
        task_id: Uuid,
        worker_id: &str,
        lease_duration: Duration,
    ) -> Result<Option<SlotLease>> {
        let (id, holder) = (LeaseId(task_id), Name::parse("worker_id", worker_id)?);
        let request = SlotRequest::new(id, GroupRef::parse("group", group)?, holder, millis(lease_duration));
        self.store.acquire_slots(SlotRequest { limit: Some(limit), ..request }).await
    }

    /// Returns a slot. `Fenced` if it is not held any more; no slot is freed twice.
    ///
    /// The slot is found by its id and the caller's, whatever group it is of.
    pub async fn release(&self, group: &str, slot_id: FenceToken, task_id: Uuid) -> Result<()> {
        GroupRef::parse("group", group)?;
        self.store.return_slots(LeaseId(task_id), slot_id).await
    }

    /// Extends a slot's lease to `lease_duration` from now, and returns its end. `Fenced` if the slot is not held any
    /// more: stop what it was for.
    pub async fn extend_lease(
        &self,
        group: &str,
        slot_id: FenceToken,
        task_id: Uuid,
        lease_duration: Duration,
    ) -> Result<Time> {
        GroupRef::parse("group", group)?;
        let lease = self.store.extend_slots(LeaseId(task_id), slot_id, millis(lease_duration)).await?;
        Ok(lease.lease_until)
    }

    /// Ends every lease that is over, of programs and of jobs. Returns how many leases of programs it ended.
    ///
    /// Every claim does the same, so a fleet with busy workers or programs need not call it.
    pub async fn cleanup_expired(&self) -> Result<u64> {
        Ok(self.store.sweep().await?.slots)
    }

    /// The limit of a group and the holders of its slots, jobs and programs. A group without limit and holders is
    /// empty.
    pub async fn get_status(&self, group: &str) -> Result<ConcurrencyStatus> {
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

fn millis(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}

/// A group: its limit and the slots that are taken.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ConcurrencyStatus {
    /// The group.
    pub group: GroupRef,
    /// The effective limit. None means unlimited.
    pub limit: Option<u32>,
    /// Slots that are taken.
    pub active: u64,
    /// The holders, oldest first.
    pub slots: Vec<SlotInfo>,
}

/// Slots of a group that one job or program holds.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SlotInfo {
    /// The holder's fence token, by which `release` and operators name the slots.
    pub slot_id: FenceToken,
    /// How many slots.
    pub slots: u32,
    /// The job, or the id that the program gave.
    pub task_id: Uuid,
    /// The worker that runs the job, or the program.
    pub worker_id: Name,
    /// When they were taken.
    pub acquired_at: Time,
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
            slot_id: holder.token,
            slots: holder.slots,
            task_id,
            worker_id: holder.worker,
            acquired_at: holder.since,
            expires_at: holder.lease_until,
        }
    }
}
