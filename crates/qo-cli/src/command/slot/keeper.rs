//! Where slots come from: the namespace, which shares them with jobs, or objects in a bucket, which know of no jobs.

use qo::core::{FenceToken, GroupRef, SlotRequest};
use qo::{ErrorKind, Result, SlotObjects, Store};
use std::future::pending;
use std::sync::Arc;
use std::time::Duration;

/// How often to look at a full group again: where the store does not report changes, where it does, and where every
/// look costs a request for each slot.
const POLL: Duration = Duration::from_millis(200);
const POLL_WITH_CHANGES: Duration = Duration::from_secs(2);
const POLL_OF_OBJECTS: Duration = Duration::from_secs(1);

/// What grants slots.
#[derive(Clone)]
pub enum Keeper {
    /// The namespace.
    Namespace(Arc<dyn Store>),
    /// Objects in a bucket.
    Objects(SlotObjects),
}

/// Slots that were granted.
#[derive(Debug, Clone, Copy)]
pub struct Grant {
    /// The fence token.
    pub token: FenceToken,
    /// The number of the object; 0 in a namespace.
    slot_id: u32,
}

impl Keeper {
    /// How often to ask again for slots of a full group.
    pub fn poll(&self) -> Duration {
        match self {
            Self::Namespace(store) if store.tells_changes() => POLL_WITH_CHANGES,
            Self::Namespace(_) => POLL,
            Self::Objects(_) => POLL_OF_OBJECTS,
        }
    }

    /// How much earlier than agreed other processes may see a lease as over.
    pub fn coarseness(&self) -> Duration {
        match self {
            Self::Namespace(store) => store.coarseness(),
            Self::Objects(slots) => slots.coarseness(),
        }
    }

    /// Takes slots. None if there is no room.
    pub async fn acquire(&self, request: &SlotRequest) -> Result<Option<Grant>> {
        match self {
            Self::Namespace(store) => {
                let lease = store.acquire_slots(request.clone()).await?;
                Ok(lease.map(|lease| Grant { token: lease.token, slot_id: 0 }))
            }
            Self::Objects(slots) => {
                let (group, limit) = (request.group.to_string(), request.limit.unwrap_or(1));
                let held =
                    slots.try_acquire(&group, limit, request.id.0, &request.holder, lease(request)).await?;
                Ok(held.map(|held| Grant { token: held.token, slot_id: held.slot_id }))
            }
        }
    }

    /// Renews the lease.
    pub async fn extend(&self, request: &SlotRequest, grant: Grant) -> Result<()> {
        match self {
            Self::Namespace(store) => {
                store.extend_slots(request.id, grant.token, request.lease_ms).await.map(drop)
            }
            Self::Objects(slots) => {
                let group = request.group.to_string();
                slots.extend_lease(&group, grant.slot_id, request.id.0, lease(request)).await.map(drop)
            }
        }
    }

    /// Gives them back.
    pub async fn give_back(&self, request: &SlotRequest, grant: Grant) -> Result<()> {
        match self {
            Self::Namespace(store) => store.return_slots(request.id, grant.token).await,
            Self::Objects(slots) => {
                slots.release(&request.group.to_string(), grant.slot_id, request.id.0).await
            }
        }
    }

    /// The store's change counter, if it reports changes.
    pub async fn seen(&self) -> Option<u64> {
        match self {
            Self::Namespace(store) => store.changed(None).await.ok(),
            Self::Objects(_) => None,
        }
    }

    /// Waits for the next change. Where the store reports none, this never ends.
    pub async fn change(&self, seen: Option<u64>) -> Option<u64> {
        match (self, seen) {
            (Self::Namespace(store), Some(seen)) => match store.changed(Some(seen)).await {
                Ok(now) => Some(now),
                Err(_) => pending().await,
            },
            _ => pending().await,
        }
    }

    /// Whether the token still holds slots. For objects the answer is always yes: their renewal checks it.
    pub async fn is_held(&self, group: &GroupRef, token: FenceToken) -> bool {
        let Self::Namespace(store) = self else { return true };
        match store.group(group.clone()).await {
            Ok(group) => group.holders.iter().any(|holder| holder.token == token),
            Err(error) => error.kind() != ErrorKind::NotFound,
        }
    }
}

fn lease(request: &SlotRequest) -> Duration {
    Duration::from_millis(request.lease_ms)
}
