//! Slots as objects: a limit for any program on a bare bucket, without a log to read.
//!
//! ```text
//! concurrency/{group}/slots/{i}    { task_id, worker_id, expires_at, lease_ms, token, nonce }
//! concurrency/tried_out            the bucket's server was tried out, before the first slot was taken
//! ```
//!
//! Each slot of a group is an object of its own, from 0 to the limit. It is taken by a **conditional write**: created if it is
//! absent, else replaced if it is still the version that was read, which said that nobody holds it, or whose lease is
//! over. So of several who want the same slot one gets it. Who gives a slot back writes that it is free; the object stays,
//! because it knows the last fence token, and the next holder's is one higher.
//!
//! **A lease is over** for a process that has itself seen the same version of the slot for a whole lease, by its own monotonic
//! clock: its holder would have extended it. So the slot of a dead holder is free for a process that has waited for it that
//! long, and for no other. The dates of a bucket's answers end no lease, because they may be wrong.
//!
//! These slots keep a count of their own: jobs and [shared slots](qo_core::ConcurrencyManager) of a group of the same name
//! know nothing of them. All who use a group must name the same limit.
//!
//! **Time**: when a lease ends is written, and shown, by the dates that the bucket's answers bear, which are whole seconds cut
//! off. A holder trusts its lease until the moment at which it was asked for, plus its length, less a second at least.
//!
//! | module | what it holds |
//! |---|---|
//! | `slot` | what stands in an object, and what is shown of it |
//! | `place` | the names of the objects |
//! | `object` | reading, and writing over what was read |
//! | `time` | how late it is |
//! | `trial` | whether the server can be relied upon, tried out once for each bucket |
//! | `doubt` | slots of which nobody knows whether they were taken |
//! | `watched` | which version of a slot this process has seen, and since when |
//! | `expired` | slots whose lease is over: shown, and freed |
//! | `monitor` | when somebody who holds a namespace in the bucket looks for those |

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
pub use slot::{ExpiredSlot, ExpiredSlots, HeldSlot, SlotObject, SlotsStatus};
pub(crate) use trial::{are_used, try_out};

use crate::bucket::Bucket;
use crate::jitter::Jitter;
use crate::log::Log;
use crate::medium::COARSENESS;
use crate::object_error::said;
use crate::traffic::Traffic;
use doubt::{Doubt, Doubts};
use futures::TryStreamExt;
use object_store::{ObjectStore, UpdateVersion, path::Path};
use place::{ROOT, folder, path};
use qo_core::{Clock, Error, ErrorKind, FenceToken, GroupRef, Name, Result, Time, caps};
use slot::Slot;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Duration;
use time::SlotTime;
use tokio::time::Instant;
use uuid::Uuid;
use watched::Watched;

/// The largest limit in this form: a full group is found to be full by reading each of its slots.
pub const MOST: u32 = 50;
/// The shortest lease: dates are cut off to whole seconds, and clocks differ.
const LEAST_LEASE: Duration = Duration::from_secs(5);

/// Slots of groups on objects. See the [module](self).
#[derive(Clone)]
pub struct SlotObjects {
    objects: Arc<dyn ObjectStore>,
    time: SlotTime,
    /// The bucket, whose server is tried out by whoever takes a slot in it.
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
    /// The slots in a bucket. Nothing is asked of it before a slot is.
    pub fn in_bucket(bucket: &Bucket) -> Result<Self> {
        let traffic = Arc::new(Traffic::default());
        let objects = bucket.objects(&traffic)?;
        let time = SlotTime::Answers(traffic);
        Ok(Self { bucket: Some(Arc::new(bucket.clone())), ..Self::over(objects, time) })
    }

    /// What goes to the bucket and comes back; none if this is not in one.
    pub fn traffic(&self) -> Option<&Arc<Traffic>> {
        match &self.time {
            SlotTime::Given(_) => None,
            SlotTime::Answers(traffic) => Some(traffic),
        }
    }

    /// How much earlier than agreed a lease may be over for others: dates are cut off to whole seconds.
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

    /// The slots beside a log in a bucket, for whoever looks after them; none beside any other. No slot is taken there.
    pub(crate) fn beside(log: &Log) -> Option<Self> {
        let time = SlotTime::Answers(Arc::clone(log.medium().traffic()?));
        Some(Self::over(Arc::clone(log.medium().object_store()), time))
    }

    fn over(objects: Arc<dyn ObjectStore>, time: SlotTime) -> Self {
        let (is_tried_out, doubts, watched) = (Arc::default(), Arc::default(), Arc::default());
        Self { objects, time, bucket: None, is_tried_out, doubts, watched }
    }

    /// Takes a slot of a group of `limit`, for a while. None if all are held, or the limit is 0. A slot whose holder is gone is
    /// taken by a process that has asked for it again and again for a whole lease.
    ///
    /// They are tried in an order by chance, so that many who come at once do not all want the same one. It costs two requests
    /// for a free slot that is met first, and one for each that is not free; and one for each process, before the first slot
    /// that it takes. After `Unknown` nothing is held: ask again for the same task.
    pub async fn try_acquire(
        &self,
        group: &str,
        limit: u32,
        task_id: Uuid,
        worker_id: &str,
        lease_duration: Duration,
    ) -> Result<Option<HeldSlot>> {
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
            // Whatever was found: it may have come from another server.
            self.try_out().await?;
            let held = Slot {
                task_id: Some(task_id),
                worker_id: Some(worker_id.clone()),
                expires_at: Some(now.plus_ms(millis(lease_duration))),
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
                let expires_at = held.expires_at.unwrap_or(now);
                return Ok(Some(HeldSlot { slot_id, token: held.token, expires_at }));
            }
        }
        Ok(None)
    }

    /// Gives a slot back. `Fenced` if it is another's by now, or free: nothing is freed twice.
    pub async fn release(&self, group: &str, slot_id: u32, task_id: Uuid) -> Result<()> {
        let path = path(&GroupRef::parse("group", group)?, slot_id);
        let (slot, version) = self.own(&path, task_id).await?;
        match self.write(&path, &slot.freed(), Some(version)).await? {
            true => Ok(()),
            false => Err(lost(&path, task_id)),
        }
    }

    /// Holds a slot for `lease_duration` from now, and returns when the lease is over. `Fenced` if it is another's by now:
    /// stop what it was for. One whose lease is over and that nobody has taken is had again.
    pub async fn extend_lease(
        &self,
        group: &str,
        slot_id: u32,
        task_id: Uuid,
        lease_duration: Duration,
    ) -> Result<Time> {
        let path = path(&GroupRef::parse("group", group)?, slot_id);
        check_lease(lease_duration)?;
        let (slot, version) = self.own(&path, task_id).await?;
        let expires_at = self.time.now()?.plus_ms(millis(lease_duration));
        let lease_ms = Some(millis(lease_duration));
        let slot = Slot { expires_at: Some(expires_at), lease_ms, nonce: Uuid::new_v4(), ..slot };
        match self.write(&path, &slot, Some(version)).await? {
            true => Ok(expires_at),
            false => Err(lost(&path, task_id)),
        }
    }

    /// Who holds the slots of a group.
    pub async fn get_status(&self, group: &str) -> Result<SlotsStatus> {
        let group = GroupRef::parse("group", group)?;
        let slots = self.slots(&group).await?;
        let now = self.time.now()?;
        let mut slots: Vec<_> = slots
            .into_iter()
            .filter_map(|(path, slot, _)| Some(SlotObject::new(path.filename()?.parse().ok()?, slot, now)))
            .collect();
        slots.sort_by_key(|slot| slot.slot_id);
        let held = slots.iter().filter(|slot| slot.task_id.is_some() && !slot.is_expired);
        Ok(SlotsStatus { group, active: held.count() as u32, slots })
    }

    /// Groups that have slots as objects.
    pub async fn groups(&self) -> Result<Vec<GroupRef>> {
        let folder = Path::from(ROOT);
        let listed = self.objects.list_with_delimiter(Some(&folder)).await;
        let listed = listed.map_err(|error| unavailable(&folder, &error))?;
        let folders = listed.common_prefixes.iter();
        Ok(folders.filter_map(|path| place::group(path.filename()?)).collect())
    }

    /// Whether a slot that was just read is free, or its lease is over.
    fn may_take(&self, path: &Path, slot: &Slot, now: Time) -> bool {
        slot.task_id.is_none() || self.left_to_watch(path, slot, now).is_zero()
    }

    /// How much longer a slot that was just read has to be watched before its lease is over. Where a clock of the caller's
    /// stamps everything, that clock tells.
    fn left_to_watch(&self, path: &Path, slot: &Slot, now: Time) -> Duration {
        match &self.time {
            SlotTime::Answers(..) => self.watched.left(path, slot, now),
            SlotTime::Given(_) => Duration::from_millis(slot.expires_at.map_or(0, |end| end.ms_since(now))),
        }
    }

    /// The slot of somebody who says that he holds it.
    async fn own(&self, path: &Path, task_id: Uuid) -> Result<(Slot, UpdateVersion)> {
        let slot = self.read(path).await?.filter(|(slot, _)| slot.task_id == Some(task_id));
        slot.ok_or_else(|| lost(path, task_id))
    }

    async fn slots(&self, group: &GroupRef) -> Result<Vec<(Path, Slot, UpdateVersion)>> {
        let folder = folder(group);
        let listed = self.objects.list(Some(&folder)).try_collect::<Vec<_>>().await;
        let listed = listed.map_err(|error| unavailable(&folder, &error))?;
        let mut slots = Vec::new();
        for meta in listed {
            if let Some((slot, version)) = self.read(&meta.location).await? {
                slots.push((meta.location, slot, version));
            }
        }
        Ok(slots)
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

/// A lease that is too short is over before anybody knows, and one that is too long keeps a slot from all others when its
/// holder is gone.
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

/// All slots of a group, in an order by chance, but for one that comes first.
fn in_any_order(limit: u32, first: Option<u32>) -> Vec<u32> {
    let mut slots: Vec<_> = (0..limit).collect();
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

fn unavailable(path: &Path, error: &object_store::Error) -> Error {
    Error::new(ErrorKind::Unavailable, format!("{path}: {}", said(error)))
}
