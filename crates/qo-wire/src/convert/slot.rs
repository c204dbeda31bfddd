//! Slots of programs that are not jobs.

use super::{group, lease_id, name, text};
use crate::pb;
use qo_core::{Error, FenceToken, Result, SlotLease, SlotRequest, Time};

impl From<SlotRequest> for pb::AcquireSlotsRequest {
    fn from(request: SlotRequest) -> Self {
        let SlotRequest { id, group, slots, holder, lease_ms, limit } = request;
        Self {
            lease: id.to_string(),
            group: group.to_string(),
            slots: Some(slots),
            holder: text(holder),
            lease_ms,
            limit,
        }
    }
}

impl TryFrom<pb::AcquireSlotsRequest> for SlotRequest {
    type Error = Error;

    fn try_from(request: pb::AcquireSlotsRequest) -> Result<Self> {
        let pb::AcquireSlotsRequest { lease, group: reference, slots, holder, lease_ms, limit } = request;
        Ok(Self {
            id: lease_id("lease", &lease)?,
            group: group("group", &reference)?,
            slots: slots.unwrap_or(1),
            holder: name("holder", &holder)?,
            lease_ms,
            limit,
        })
    }
}

impl From<SlotLease> for pb::SlotLease {
    fn from(lease: SlotLease) -> Self {
        let SlotLease { token, since, lease_until } = lease;
        Self { token: token.0, since_ms: since.as_millis(), lease_until_ms: lease_until.as_millis() }
    }
}

impl From<pb::SlotLease> for SlotLease {
    fn from(lease: pb::SlotLease) -> Self {
        let pb::SlotLease { token, since_ms, lease_until_ms } = lease;
        Self {
            token: FenceToken(token),
            since: Time::from_millis(since_ms),
            lease_until: Time::from_millis(lease_until_ms),
        }
    }
}
