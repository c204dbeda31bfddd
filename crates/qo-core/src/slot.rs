//! Standalone slots: a program that is not a job takes slots of a group, under a lease of its own. They count against
//! the same limit as the jobs of the group.

use crate::{Error, FenceToken, GroupRef, LeaseId, Name, Result, Time, caps, job::within};
use serde::{Deserialize, Serialize};

/// A program's request for slots. It is granted or refused at once: programs do not stand in line.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SlotRequest {
    /// Made by the program. The same id again, while the program holds the slots, is the same request.
    pub id: LeaseId,
    /// `GROUP`, or `GROUP/KEY`, which takes slots of both, as a job with a key does.
    pub group: GroupRef,
    /// How many slots. Defaults to 1.
    #[serde(default = "one")]
    pub slots: u32,
    /// The program's name: a label for operators.
    pub holder: Name,
    /// How long it holds them, unless it extends the lease or returns them.
    pub lease_ms: u64,
    /// A limit for the group where no other source sets one. Defaults to none.
    #[serde(default)]
    pub limit: Option<u32>,
}

fn one() -> u32 {
    1
}

impl SlotRequest {
    /// A request for one slot, with every option at its default.
    pub fn new(id: LeaseId, group: GroupRef, holder: Name, lease_ms: u64) -> Self {
        Self { id, group, slots: 1, holder, lease_ms, limit: None }
    }

    /// Checks every rule that needs no state. A store calls it before anything else.
    pub fn check(&self) -> Result<()> {
        if !matches!(self.group, GroupRef::Group(_) | GroupRef::Key(..)) {
            return Err(Error::invalid("group", &self.group, "must be GROUP or GROUP/KEY"));
        }
        within("slots", self.slots.into(), 1, caps::LIMIT.into())?;
        check_lease(self.lease_ms)?;
        self.limit.map_or(Ok(()), |limit| within("limit", limit.into(), 0, caps::LIMIT.into()))
    }
}

pub(crate) fn check_lease(lease_ms: u64) -> Result<()> {
    within("lease_ms", lease_ms, caps::LEASE_MIN_MS, caps::LEASE_MAX_MS)
}

/// Slots that a program holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct SlotLease {
    /// Proves that the program holds them. Operators name the slots by it.
    pub token: FenceToken,
    /// Store time at which they were taken.
    pub since: Time,
    /// Store time at which the lease is over unless it is extended before.
    pub lease_until: Time,
}

/// Why a program's slots are free again.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum SlotsFreedBy {
    /// The program returned them.
    Holder,
    /// The lease was over.
    LeaseEnd,
    /// An operator took them away.
    Operator,
}
