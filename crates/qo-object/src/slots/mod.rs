//! Slots as objects: a limit for any program on a bare bucket, without a log to read.
//!
//! ```text
//! concurrency/{group}/slots/{i}    { task_id, worker_id, expires_at, lease_ms, token, nonce }
//! concurrency/tried_out            the bucket's server was tried out, before the first slot was taken
//! ```
//!
//! Each slot of a group is an object of its own, from 0 to the limit.
//!
//! 1. A program reads the slots of a group in an order by chance, until it finds one that is absent or free, or whose
//!    lease is over.
//! 2. It takes that slot by a **conditional write**: it creates the object if it is absent, else it replaces the
//!    version that it read. Of several programs that want the same slot one succeeds.
//! 3. It extends its lease by replacing the version that it read.
//! 4. It gives the slot back by writing that it is free. The object stays, because it has the last fence token, and the
//!    next holder's is one higher.
//!
//! Invariants:
//!
//! - **A lease is over** for a process that has itself seen the same version of the slot for a whole lease, by its own
//!   monotonic clock: its holder would have extended it. Another process has to watch it for as long. The dates of a
//!   bucket's answers end no lease, because they may be wrong.
//! - A holder trusts its lease until the time at which it asked for it, plus its length, less a second at least.
//! - These slots have a count of their own: jobs and [shared slots](qo_core::StoreSlots) of a group of the same name do
//!   not count. All programs that use a group must name the same limit.
//!
//! The end of a lease is written, and shown, by the dates of the bucket's answers, in whole seconds, cut off.
//!
//! | module | what it holds |
//! |---|---|
//! | `slot` | the content of an object, and what is shown of it |
//! | `place` | the names of the objects |
//! | `object` | reading, and replacing the version that was read |
//! | `time` | how late it is |
//! | `trial` | whether the server can be relied upon, tried out once for each bucket |
//! | `doubt` | slots that a lost write may have taken |
//! | `watched` | which version of a slot this process has seen, and since when |
//! | `expired` | slots whose lease is over: shown, and freed |
//! | `monitor` | when a process that holds a namespace in the bucket looks for those |

mod doubt;
mod expired;
mod monitor;
mod object;
mod place;
mod slot;
#[cfg(test)]
mod tests;
mod time;
mod trial;
mod watched;

pub(crate) use monitor::Monitor;
pub use slot::{ExpiredSlot, ExpiredSlots, SlotObject};
pub(crate) use trial::{are_used, try_out};

use crate::bucket::Bucket;
use crate::jitter::Jitter;
use crate::log::Log;
use crate::medium::COARSENESS;
use crate::object_error::said;
use crate::traffic::Traffic;
use async_trait::async_trait;
use doubt::{Doubt, Doubts};
use futures::TryStreamExt;
use object_store::{ObjectStore, UpdateVersion, path::Path};
use place::{ROOT, folder, path};
use qo_core::{Acquire, Clock, ConcurrencyManager, ConcurrencyStatus, HeldSlot};
use qo_core::{Error, ErrorKind, FenceToken, GroupRef, Name, Result, Time, caps};
use slot::Slot;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Duration;
use time::SlotTime;
use tokio::time::Instant;
use uuid::Uuid;
use watched::Watched;

/// The largest limit: a full group is found to be full by reading each of its slots.
pub const MOST: u32 = 50;
/// The shortest lease: dates are cut off to whole seconds, and clocks differ.
const LEAST_LEASE: Duration = Duration::from_secs(5);

/// Slots of groups on objects. See the [module](self).
#[derive(Clone)]
pub struct SlotObjects {
    objects: Arc<dyn ObjectStore>,
    time: SlotTime,
    /// The bucket, whose server is tried out before a slot in it is taken.
    bucket: Option<Arc<Bucket>>,
    is_tried_out: Arc<AtomicBool>,
    doubts: Arc<Doubts>,
    watched: Arc<Watched>,
}

impl std::fmt::Debug for SlotObjects {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("SlotObjects").finish_non_exhaustive()
    }
}

impl SlotObjects {
    /// The slots in a bucket. No request is sent before the first call.
    pub fn in_bucket(bucket: &Bucket) -> Result<Self> {
        let traffic = Arc::new(Traffic::default());
        let objects = bucket.objects(&traffic)?;
        let time = SlotTime::Answers(traffic);
        Ok(Self { bucket: Some(Arc::new(bucket.clone())), ..Self::over(objects, time) })
    }

    /// The requests to the bucket, and the dates of its answers; none if this is not in one.
    pub fn traffic(&self) -> Option<&Arc<Traffic>> {
        match &self.time {
            SlotTime::Given(_) => None,
            SlotTime::Answers(traffic) => Some(traffic),
        }
    }

    /// How much earlier than agreed a lease may be over for other processes: dates are cut off to whole seconds.
    pub fn coarseness(&self) -> Duration {
        match &self.time {
            SlotTime::Given(_) => Duration::ZERO,
            SlotTime::Answers(..) => COARSENESS,
        }
    }

    /// The slots in an object store, by a clock of the caller's.
    pub fn new(objects: Arc<dyn ObjectStore>, clock: Arc<dyn Clock>) -> Self {
        Self::over(objects, SlotTime::Given(clock))
    }

    /// The slots beside a log in a bucket, for a process that sweeps them; none beside another log. No slot is taken by
    /// it.
    pub(crate) fn beside(log: &Log) -> Option<Self> {
        let time = SlotTime::Answers(Arc::clone(log.medium().traffic()?));
        Some(Self::over(Arc::clone(log.medium().object_store()), time))
    }

    fn over(objects: Arc<dyn ObjectStore>, time: SlotTime) -> Self {
        let (is_tried_out, doubts, watched) = (Arc::default(), Arc::default(), Arc::default());
        Self { objects, time, bucket: None, is_tried_out, doubts, watched }
    }

    /// The slots of a group that have ever been taken, by their number.
    pub async fn slots(&self, group: &str) -> Result<Vec<SlotObject>> {
        let folder = folder(&GroupRef::parse("group", group)?);
        let listed = self.objects.list(Some(&folder)).try_collect::<Vec<_>>().await;
        let listed = listed.map_err(|error| unavailable(&folder, error))?;
        let mut found = Vec::new();
        for meta in listed {
            if let Some((slot, _)) = self.read(&meta.location).await? {
                found.push((meta.location, slot));
            }
        }
        let now = self.time.now()?;
        let shown = found
            .into_iter()
            .filter_map(|(path, slot)| Some(SlotObject::new(path.filename()?.parse().ok()?, slot, now)));
        let mut shown: Vec<_> = shown.collect();
        shown.sort_by_key(|slot| slot.slot_id);
        Ok(shown)
    }

    /// Groups that have slots as objects.
    pub async fn groups(&self) -> Result<Vec<GroupRef>> {
        let folder = Path::from(ROOT);
        let listed = self.objects.list_with_delimiter(Some(&folder)).await;
        let listed = listed.map_err(|error| unavailable(&folder, error))?;
        let folders = listed.common_prefixes.iter();
        Ok(folders.filter_map(|path| place::group(path.filename()?)).collect())
    }

    /// Whether a slot that was just read is free, or its lease is over.
    fn may_take(&self, path: &Path, slot: &Slot, now: Time) -> bool {
        slot.task_id.is_none() || self.left_to_watch(path, slot, now).is_zero()
    }

    /// How much longer a slot that was just read has to be watched before its lease is over. A clock of the caller's
    /// tells by itself.
    fn left_to_watch(&self, path: &Path, slot: &Slot, now: Time) -> Duration {
        match &self.time {
            SlotTime::Answers(..) => self.watched.left(path, slot, now),
            SlotTime::Given(_) => Duration::from_millis(slot.expires_at.map_or(0, |end| end.ms_since(now))),
        }
    }

    /// The slot of a program that claims to hold it.
    async fn own(&self, path: &Path, task_id: Uuid) -> Result<(Slot, UpdateVersion)> {
        let slot = self.read(path).await?.filter(|(slot, _)| slot.task_id == Some(task_id));
        slot.ok_or_else(|| lost(path, task_id))
    }
}

#[async_trait]
impl ConcurrencyManager for SlotObjects {
    /// A slot whose holder is gone is taken by a process that has asked for it again and again for a whole lease.
    ///
    /// It costs two requests for a free slot that is met first, and one for each that is not free; and one for each
    /// process, before the first slot that it takes.
    async fn try_acquire(&self, acquire: &Acquire<'_>) -> Result<Option<HeldSlot>> {
        let Acquire { group, limit, task_id, worker_id, lease_duration } = *acquire;
        let (group, worker_id) = (GroupRef::parse("group", group)?, Name::parse("worker_id", worker_id)?);
        check_limit(limit)?;
        check_lease(lease_duration)?;
        let own = self.settle_doubts(&group, task_id).await;
        for slot_id in in_any_order(limit, own) {
            let path = path(&group, slot_id);
            let found = self.read(&path).await?;
            let now = self.time.now()?;
            let (token, version) = match found {
                Some((slot, _)) if slot.task_id != Some(task_id) && !self.may_take(&path, &slot, now) => {
                    continue;
                }
                Some((slot, version)) => (slot.token.0, Some(version)),
                None => (0, None),
            };
            let token = token.checked_add(1).ok_or_else(|| worn_out(&path))?;
            // Also if there are slots: they may have come from another server.
            self.try_out().await?;
            let expires_at = now.plus_ms(millis(lease_duration));
            let held = Slot {
                task_id: Some(task_id),
                worker_id: Some(worker_id.clone()),
                expires_at: Some(expires_at),
                lease_ms: Some(millis(lease_duration)),
                token: FenceToken(token),
                nonce: Uuid::new_v4(),
            };
            let written = self.write(&path, &held, version).await.inspect_err(|error| {
                if error.kind() == ErrorKind::Unknown {
                    let (group, until) = (group.clone(), Instant::now() + lease_duration);
                    self.doubts.remember(Doubt { group, slot_id, task_id, nonce: held.nonce, until });
                }
            });
            if written? {
                return Ok(Some(HeldSlot { group, slot_id, task_id, token: held.token, expires_at }));
            }
        }
        Ok(None)
    }

    async fn release(&self, slot: &HeldSlot) -> Result<()> {
        let path = path(&slot.group, slot.slot_id);
        let (found, version) = self.own(&path, slot.task_id).await?;
        match self.write(&path, &found.freed(), Some(version)).await? {
            true => Ok(()),
            false => Err(lost(&path, slot.task_id)),
        }
    }

    /// A slot whose lease is over and that no other program has taken is held again.
    async fn extend_lease(&self, slot: &HeldSlot, lease_duration: Duration) -> Result<Time> {
        let path = path(&slot.group, slot.slot_id);
        check_lease(lease_duration)?;
        let (found, version) = self.own(&path, slot.task_id).await?;
        let expires_at = self.time.now()?.plus_ms(millis(lease_duration));
        let lease_ms = Some(millis(lease_duration));
        let extended = Slot { expires_at: Some(expires_at), lease_ms, nonce: Uuid::new_v4(), ..found };
        match self.write(&path, &extended, Some(version)).await? {
            true => Ok(expires_at),
            false => Err(lost(&path, slot.task_id)),
        }
    }

    /// It takes as long as the longest of those leases: each is watched.
    async fn cleanup_expired(&self) -> Result<u64> {
        self.free_expired().await
    }

    /// Slots whose lease is over by the bucket's dates do not count.
    async fn get_status(&self, group: &str) -> Result<ConcurrencyStatus> {
        let held = self.slots(group).await?.into_iter().filter(|slot| !slot.is_expired);
        let slots: Vec<_> = held.filter_map(SlotObject::into_info).collect();
        let (group, active) = (GroupRef::parse("group", group)?, slots.len() as u64);
        Ok(ConcurrencyStatus { group, limit: None, active, slots })
    }
}

fn check_limit(limit: u32) -> Result<()> {
    if limit <= MOST {
        return Ok(());
    }
    let rule = format!(
        "must be at most {MOST} for slots that are objects; larger ones are kept by the namespace: leave out --objects, \
         or use Client::concurrency"
    );
    Err(Error::invalid("limit", limit, rule))
}

/// A lease that is too short is over before its holder can extend it. One that is too long keeps the slot of a dead
/// holder from all others.
fn check_lease(lease_duration: Duration) -> Result<()> {
    let most = Duration::from_millis(caps::LEASE_MAX_MS);
    let rule = if lease_duration < LEAST_LEASE {
        let least = LEAST_LEASE.as_millis();
        format!("must be at least {least} for slots that are objects: a bucket tells whole seconds")
    } else if lease_duration > most {
        format!("must be at most {}", caps::LEASE_MAX_MS)
    } else {
        return Ok(());
    };
    Err(Error::invalid("lease_ms", lease_duration.as_millis(), rule))
}

/// All slots of a group, in an order by chance, so that programs that come at once do not all want the same one; but
/// `first` comes first.
fn in_any_order(limit: u32, first: Option<u64>) -> Vec<u64> {
    let mut slots: Vec<_> = (0..u64::from(limit)).collect();
    Jitter::new().shuffle(&mut slots);
    slots.sort_by_key(|slot| Some(*slot) != first);
    slots
}

fn millis(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}

fn lost(path: &Path, task_id: Uuid) -> Error {
    Error::new(ErrorKind::Fenced, format!("{path}: {task_id} does not hold it"))
}

fn worn_out(path: &Path) -> Error {
    Error::new(ErrorKind::Data, format!("{path}: is not a slot: there is no token above {}", u64::MAX))
}

fn unavailable(path: &Path, error: object_store::Error) -> Error {
    Error::new(ErrorKind::Unavailable, format!("{path}: {}", said(&error))).with_source(error)
}
