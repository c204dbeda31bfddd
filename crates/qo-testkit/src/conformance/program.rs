//! A program as cases use it: not a job, but it holds slots of a group, under a lease of its own.

use super::job_spec::{group_ref, name};
use qo_core::{FenceToken, LeaseId, Result, SlotLease, SlotRequest, Store};
use std::sync::Arc;

/// A builder of a request for slots. The world gives it an id unless the case does.
#[derive(Debug, Clone)]
pub struct ProgramSpec {
    pub(super) id: Option<LeaseId>,
    pub(super) request: SlotRequest,
}

/// A program, called `program`, that wants one slot of a group for 10 s.
pub fn program(group: &str) -> ProgramSpec {
    let id = LeaseId(uuid::Uuid::nil());
    ProgramSpec { id: None, request: SlotRequest::new(id, group_ref(group), name("program"), 10_000) }
}

impl ProgramSpec {
    /// With this id instead of the world's next one.
    #[must_use]
    pub fn id(mut self, id: LeaseId) -> Self {
        self.id = Some(id);
        self
    }

    /// So many slots.
    #[must_use]
    pub fn slots(mut self, slots: u32) -> Self {
        self.request.slots = slots;
        self
    }

    /// With a limit of its own.
    #[must_use]
    pub fn limit(mut self, limit: u32) -> Self {
        self.request.limit = Some(limit);
        self
    }

    /// For so long.
    #[must_use]
    pub fn lease(mut self, ms: u64) -> Self {
        self.request.lease_ms = ms;
        self
    }

    /// Under this name.
    #[must_use]
    pub fn called(mut self, holder: &str) -> Self {
        self.request.holder = name(holder);
        self
    }
}

/// A program that was given its slots.
pub struct Program {
    store: Arc<dyn Store>,
    /// The id that it asked with.
    pub id: LeaseId,
    /// What it was given.
    pub lease: SlotLease,
}

impl std::fmt::Debug for Program {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Program").field("id", &self.id).field("lease", &self.lease).finish_non_exhaustive()
    }
}

impl Program {
    pub(super) fn new(store: Arc<dyn Store>, id: LeaseId, lease: SlotLease) -> Self {
        Self { store, id, lease }
    }

    /// Its token.
    pub fn token(&self) -> FenceToken {
        self.lease.token
    }

    /// Holds its slots until so long from now.
    pub async fn extend(&self, ms: u64) -> Result<SlotLease> {
        self.store.extend_slots(self.id, self.lease.token, ms).await
    }

    /// Gives its slots back.
    pub async fn give_back(&self) -> Result<()> {
        self.store.return_slots(self.id, self.lease.token).await
    }
}
