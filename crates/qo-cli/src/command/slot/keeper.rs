//! Where slots come from: the namespace, which shares them with jobs, or objects in a bucket, which know of no jobs.

use qo::core::{FenceToken, GroupRef, SlotRequest};
use qo::{ErrorKind, Result, SlotObjects, Store};
use std::future::pending;
use std::sync::Arc;
use std::time::Duration;

/// How often a taken group is looked at again: where nothing tells of changes, where something does, and where every look
/// costs a request for each slot.
const POLL: Duration = Duration::from_millis(200);
const POLL_WITH_CHANGES: Duration = Duration::from_secs(2);
const POLL_OF_OBJECTS: Duration = Duration::from_secs(1);

/// Who gives slots.
#[derive(Clone)]
pub enum Keeper {
    /// The namespace.
    Namespace(Arc<dyn Store>),
    /// Objects in a bucket.
    Objects(SlotObjects),
}

/// What was given.
#[derive(Debug, Clone, Copy)]
pub struct Grant {
    /// The fence token.
    pub token: FenceToken,
    /// Which object it is; 0 in a namespace.
    slot_id: u32,
}

impl Keeper {
    /// How often to ask again for what is taken.
    pub fn poll(&self) -> Duration {
        match self {
            Self::Namespace(store) if store.tells_changes() => POLL_WITH_CHANGES,
            Self::Namespace(_) => POLL,
            Self::Objects(_) => POLL_OF_OBJECTS,
        }
    }

    /// How much earlier than agreed a lease may be over for others.
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

    /// Holds them for another while.
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

    /// Where its changes are now, if it tells.
    pub async fn seen(&self) -> Option<u64> {
        match self {
            Self::Namespace(store) => store.changed(None).await.ok(),
            Self::Objects(_) => None,
        }
    }

    /// Waits for the next change. Where nothing tells of one this never ends.
    pub async fn change(&self, seen: Option<u64>) -> Option<u64> {
        match (self, seen) {
            (Self::Namespace(store), Some(seen)) => match store.changed(Some(seen)).await {
                Ok(now) => Some(now),
                Err(_) => pending().await,
            },
            _ => pending().await,
        }
    }

    /// Whether somebody holds slots with this token. Objects are asked when they are renewed.
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
