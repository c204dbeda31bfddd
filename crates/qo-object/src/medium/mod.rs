//! The medium: what the objects of a namespace lie on. It is the one place that knows whether that is a directory, a
//! bucket or another object store. The rest of the crate asks it for a [`Policy`], or calls it and gets nothing where
//! there is nothing to do.
//!
//! | | directory | bucket | another object store (tests) |
//! |---|---|---|---|
//! | a look at the end of the log | one failed open: before every decision | a request: only when needed | the same |
//! | write order | by locks on files | by records alone | the same |
//! | wake-up | the bell, which the kernel reports | polling | the same |
//! | mark | a file, after every record | objects, now and then | the same |
//! | identity | `stat` before every record | a GET now and then | the same |
//! | store time | stamps of files | dates of answers | stamps of objects |
//! | leases | end by store time | end after they were watched | the same |
//! | requests cost money | no | yes | no |
//!
//! | module | what it holds |
//! |---|---|
//! | `objects` | reading, creating, listing and deleting objects |
//! | `time` | store time |

mod objects;
mod time;

pub(crate) use objects::time_of;

use crate::directory::{Directory, FileLock, WriteLock};
use crate::format::Identity;
use crate::traffic::Traffic;
use notify::RecommendedWatcher;
use object_store::ObjectStore;
use qo_core::Result;
use std::sync::Arc;
use std::time::{Duration, SystemTime};
use tokio::sync::Notify;
use uuid::Uuid;

/// How far a process that has seen one answer of a bucket may lag behind the bucket's time.
pub(crate) const COARSENESS: Duration = Duration::from_millis(1_250);

/// How processes behave on a medium.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Policy {
    /// A look at the end of the log costs next to nothing, so a process makes one before every decision and remembers
    /// no end. Elsewhere a look takes as long as a write, and a process looks only when an answer depends on it.
    pub(crate) looks_are_free: bool,
    /// Several records are asked for in parallel. Elsewhere they are read one after the other.
    pub(crate) reads_ahead: bool,
    /// Writers show by locks that they want to write, and that they write. Elsewhere the write order rests on the
    /// records alone.
    pub(crate) has_locks: bool,
    /// A bell wakes waiting processes. Elsewhere they poll.
    pub(crate) has_bell: bool,
    /// The record that claims offered jobs also admits them, which saves a write. Elsewhere they are admitted first.
    pub(crate) admits_with_claims: bool,
    /// A record sweep deletes in the order of the numbers, so if the record before the end is there, no record behind
    /// the end was deleted. Elsewhere it deletes in batches and in no order.
    pub(crate) sweeps_in_order: bool,
    /// A process that has written a snapshot begins a record sweep at once: there may be no process that lives as long
    /// as the sweep age.
    pub(crate) sweeps_after_snapshots: bool,
    /// Whether the namespace is still the one that was opened must be asked of the store. Elsewhere every write checks.
    pub(crate) asks_for_identity: bool,
    /// Marks are objects, written now and then. Elsewhere every record is marked as it is created.
    pub(crate) marks_by_objects: bool,
    /// A write whose answer was lost may still land. Elsewhere a write that failed never appears later.
    pub(crate) writes_land_late: bool,
    /// Bytes may be damaged on their way, so a damaged record is read once more.
    pub(crate) reads_damage_twice: bool,
    /// Several clocks stamp what is written, so a process ends a lease only after it has watched it.
    pub(crate) watches_leases: bool,
    /// Requests cost money: processes poll with jitter, and share what one of them can do for all.
    pub(crate) requests_cost: bool,
    /// How far behind store time a process may be that has just opened the namespace.
    pub(crate) coarseness: Duration,
}

impl Policy {
    const DIRECTORY: Self = Self {
        looks_are_free: true,
        reads_ahead: false,
        has_locks: true,
        has_bell: true,
        admits_with_claims: false,
        sweeps_in_order: true,
        sweeps_after_snapshots: false,
        asks_for_identity: false,
        marks_by_objects: false,
        writes_land_late: false,
        reads_damage_twice: false,
        watches_leases: false,
        requests_cost: false,
        coarseness: Duration::ZERO,
    };

    /// An object store whose requests cost nothing: for tests.
    const OBJECTS: Self = Self {
        looks_are_free: false,
        reads_ahead: true,
        has_locks: false,
        has_bell: false,
        admits_with_claims: true,
        sweeps_in_order: false,
        sweeps_after_snapshots: true,
        asks_for_identity: true,
        marks_by_objects: true,
        writes_land_late: true,
        reads_damage_twice: true,
        watches_leases: true,
        requests_cost: false,
        coarseness: Duration::ZERO,
    };

    /// A process that has just opened a bucket knows its time by one date, cut off to a whole second, of an answer that
    /// was on its way for a while, so other processes may see a lease that it grants as over up to that much sooner.
    const BUCKET: Self = Self { requests_cost: true, coarseness: COARSENESS, ..Self::OBJECTS };
}

/// What the objects of one namespace lie on.
#[derive(Debug, Clone)]
pub(crate) struct Medium {
    policy: Policy,
    objects: Arc<dyn ObjectStore>,
    /// The same objects, written without waiting for the disk: for objects that may be lost if the machine crashes.
    unsynced: Arc<dyn ObjectStore>,
    directory: Option<Arc<Directory>>,
    /// The requests to a bucket, and the dates of its answers.
    traffic: Option<Arc<Traffic>>,
    /// The bucket and the prefix, for people.
    place: Option<Arc<str>>,
}

impl Medium {
    /// An object store.
    pub(crate) fn objects(objects: Arc<dyn ObjectStore>) -> Self {
        let (unsynced, policy) = (Arc::clone(&objects), Policy::OBJECTS);
        Self { policy, objects, unsynced, directory: None, traffic: None, place: None }
    }

    /// A bucket.
    pub(crate) fn bucket(objects: Arc<dyn ObjectStore>, traffic: Arc<Traffic>) -> Self {
        Self { policy: Policy::BUCKET, traffic: Some(traffic), ..Self::objects(objects) }
    }

    /// A directory.
    pub(crate) fn directory(
        objects: Arc<dyn ObjectStore>,
        unsynced: Arc<dyn ObjectStore>,
        directory: Directory,
    ) -> Self {
        let (policy, directory) = (Policy::DIRECTORY, Some(Arc::new(directory)));
        Self { policy, unsynced, directory, ..Self::objects(objects) }
    }

    /// The same medium, which says where it is when something is wrong.
    pub(crate) fn at(self, place: impl std::fmt::Display) -> Self {
        Self { place: Some(place.to_string().into()), ..self }
    }

    pub(crate) fn policy(&self) -> &Policy {
        &self.policy
    }

    pub(crate) fn object_store(&self) -> &Arc<dyn ObjectStore> {
        &self.objects
    }

    /// The requests to a bucket, and the dates of its answers.
    pub(crate) fn traffic(&self) -> Option<&Arc<Traffic>> {
        self.traffic.as_ref()
    }

    /// Wakes every process that listens to the bell.
    pub(crate) fn ring(&self) {
        if let Some(directory) = &self.directory {
            directory.ring();
        }
    }

    /// Listens to the bell, as long as the returned watcher lives. None where there is no bell: the caller polls.
    pub(crate) fn listen(&self, rung: Arc<Notify>) -> Option<RecommendedWatcher> {
        self.directory.as_ref()?.listen(rung)
    }

    /// Shows that a writer wants to write, until the lock is dropped. None where there are no locks.
    pub(crate) fn lock_intent(&self, writer: Uuid) -> Option<FileLock> {
        self.directory.as_ref()?.lock_intent(writer)
    }

    /// Whether a writer may want to write: where there are no locks, every writer may.
    pub(crate) fn may_have_intent(&self, writer: Uuid) -> bool {
        self.directory.as_ref().is_none_or(|directory| directory.has_intent(writer))
    }

    /// A writer ends, and wants to write no more.
    pub(crate) fn forget_intent(&self, writer: Uuid) {
        if let Some(directory) = &self.directory {
            directory.forget_intent(writer);
        }
    }

    /// Takes the write lock, if no other writer holds it.
    pub(crate) fn try_write_lock(&self) -> WriteLock {
        self.directory.as_ref().map_or(WriteLock::Unsupported, |directory| directory.try_write_lock())
    }

    /// The record that the log has reached, as the mark file says; 0 where there is none.
    pub(crate) fn marked(&self) -> u64 {
        self.directory.as_ref().map_or(0, |directory| directory.marked())
    }

    /// When the mark file was last written, if files of other processes may show late; none elsewhere.
    pub(crate) fn marked_late(&self) -> Option<SystemTime> {
        self.directory.as_ref().and_then(|directory| directory.marked_late())
    }

    /// The namespace that was opened lies here. From now on [`still_there`](Self::still_there) notices another one.
    pub(crate) fn moved_into(&self, identity: Identity) -> Result<()> {
        self.directory.as_ref().map_or(Ok(()), |directory| directory.moved_into(identity))
    }

    /// Fails if the directory is no longer the one that was opened. Elsewhere it never fails.
    pub(crate) fn still_there(&self) -> Result<()> {
        self.directory.as_ref().map_or(Ok(()), |directory| directory.still_there())
    }
}
