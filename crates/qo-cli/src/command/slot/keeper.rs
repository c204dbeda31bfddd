//! Where slots come from: the namespace, which shares them with jobs, or objects in a bucket, which know of no jobs.

use qo::core::{FenceToken, GroupRef, SlotRequest, StoreSlots};
use qo::{Acquire, ConcurrencyManager, ErrorKind, HeldSlot, Result, SlotObjects, Store};
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
    pub async fn acquire(&self, request: &SlotRequest) -> Result<Option<HeldSlot>> {
        match self {
            // Not by the manager: a program may take several slots at once, and name no limit.
            Self::Namespace(store) => {
                let lease = store.acquire_slots(request.clone()).await?;
                Ok(lease.map(|lease| HeldSlot {
                    group: request.group.clone(),
                    slot_id: lease.token.0,
                    task_id: request.id.0,
                    token: lease.token,
                    expires_at: lease.lease_until,
                }))
            }
            Self::Objects(slots) => {
                let acquire = Acquire {
                    group: &request.group.to_string(),
                    limit: request.limit.unwrap_or(1),
                    task_id: request.id.0,
                    worker_id: &request.holder,
                    lease_duration: Duration::from_millis(request.lease_ms),
                };
                slots.try_acquire(&acquire).await
            }
        }
    }

    /// The five calls for slots that are held.
    pub fn manager(&self) -> Arc<dyn ConcurrencyManager> {
        match self {
            Self::Namespace(store) => Arc::new(StoreSlots::new(Arc::clone(store))),
            Self::Objects(slots) => Arc::new(slots.clone()),
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
