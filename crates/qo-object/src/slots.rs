//! Slots as objects: a limit for any program on a bare bucket, without a log to read.
//!
//! ```text
//! concurrency/{group}/slots/{i}    { task_id, worker_id, expires_at, token, nonce }
//! ```
//!
//! Each slot of a group is an object of its own, from 0 to the limit. It is taken by a **conditional write**: created if it is
//! absent, else replaced if it is still the version that was read, which said that nobody holds it, or that the lease is
//! over. So of several who want the same slot one gets it. Who gives a slot back writes that it is free; the object stays,
//! because it knows the last fence token, and the next holder's is one higher.
//!
//! These slots keep a count of their own: jobs and [shared slots](qo_core::ConcurrencyManager) of a group of the same name
//! know nothing of them. All who use a group must name the same limit.
//!
//! **Time** is the bucket's: leases are written and judged by the dates that its answers bear, which are whole seconds cut
//! off. So a lease may seem over up to a second early, and whoever holds it must let go by then: trust it until the moment at
//! which it was asked for, plus its length, less a second at least.

use crate::bucket::Bucket;
use crate::clock::StoreClock;
use crate::log::{is_absent, said};
use crate::traffic::Traffic;
use futures::TryStreamExt;
use object_store::{ObjectStore, ObjectStoreExt, PutMode, PutOptions, UpdateVersion, path::Path};
use qo_core::{Clock, Error, ErrorKind, FenceToken, GroupRef, Name, Result, Time};
use serde::{Deserialize, Serialize};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;
use tokio::time::sleep;
use uuid::Uuid;

/// The largest limit in this form: a full group is found to be full by reading each of its slots.
pub const MOST: u32 = 50;
/// The shortest lease: dates are cut off to whole seconds, and clocks differ.
const LEAST_LEASE: Duration = Duration::from_secs(5);
/// How often a write is tried that has come to nothing, and how soon.
const TRIES: u32 = 5;
const PAUSE: Duration = Duration::from_millis(200);

/// What stands in the object of a slot.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
struct Slot {
    /// Who holds it; nobody, if none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    task_id: Option<Uuid>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    worker_id: Option<Name>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    expires_at: Option<Time>,
    /// The token of its last holder.
    token: FenceToken,
    /// Tells this version from any other: a write whose answer was lost is found again by it.
    nonce: Uuid,
}

impl Slot {
    fn is_taken(&self, now: Time) -> bool {
        self.task_id.is_some() && self.expires_at.is_some_and(|end| end > now)
    }

    fn freed(self) -> Self {
        Self { task_id: None, worker_id: None, expires_at: None, nonce: Uuid::new_v4(), ..self }
    }
}

/// A slot that is held.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct HeldSlot {
    /// Which one, from 0.
    pub slot_id: u32,
    /// Grows with every holder of the slot: what is written with an older one comes from somebody who lost it.
    pub token: FenceToken,
    /// When its lease is over unless it is extended, by the bucket's time.
    pub expires_at: Time,
}

/// A group, as its objects show it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SlotsStatus {
    /// The group.
    pub group: GroupRef,
    /// Slots that somebody holds.
    pub active: u32,
    /// Those that have ever been taken, in order.
    pub slots: Vec<SlotObject>,
}

/// One slot of a group.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SlotObject {
    /// Which one, from 0.
    pub slot_id: u32,
    /// Who holds it; none if it is free.
    pub task_id: Option<Uuid>,
    /// On which worker.
    pub worker_id: Option<Name>,
    /// When the lease is, or was, over.
    pub expires_at: Option<Time>,
    /// Whether that has passed: the next who wants it takes it.
    pub is_expired: bool,
    /// The last token.
    pub token: FenceToken,
}

/// Slots of groups on objects. See the [module](self).
#[derive(Clone)]
pub struct SlotObjects {
    objects: Arc<dyn ObjectStore>,
    time: TimeSource,
    /// The bucket, whose server is tried out by whoever makes a slot in it.
    bucket: Option<Arc<Bucket>>,
    is_tried_out: Arc<AtomicBool>,
}

/// Where it is known from how late it is.
#[derive(Clone)]
enum TimeSource {
    /// From the dates that a bucket's answers bear: none before the first.
    Answers(Arc<Traffic>, Arc<OnceLock<StoreClock>>),
    /// From a clock of the caller's.
    Given(Arc<dyn Clock>),
}

impl std::fmt::Debug for SlotObjects {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("SlotObjects").finish_non_exhaustive()
    }
}

impl TimeSource {
    fn now(&self) -> Result<Time> {
        let (traffic, clock) = match self {
            Self::Given(clock) => return Ok(clock.now()),
            Self::Answers(traffic, clock) => (traffic, clock),
        };
        let missing =
            || Error::new(ErrorKind::Unavailable, "the bucket's answers bear no date: a proxy between?");
        let dated = traffic.date().ok_or_else(missing)?;
        let clock = clock.get_or_init(|| StoreClock::of(&dated));
        clock.hear(&dated);
        Ok(clock.now())
    }
}

impl SlotObjects {
    /// The slots in a bucket. Nothing is asked of it before a slot is.
    pub fn in_bucket(bucket: &Bucket) -> Result<Self> {
        let traffic = Arc::new(Traffic::default());
        let objects = bucket.objects(&traffic)?;
        let time = TimeSource::Answers(traffic, Arc::default());
        Ok(Self { objects, time, bucket: Some(Arc::new(bucket.clone())), is_tried_out: Arc::default() })
    }

    /// What goes to the bucket and comes back; none if this is not in one.
    pub fn traffic(&self) -> Option<&Arc<Traffic>> {
        match &self.time {
            TimeSource::Given(_) => None,
            TimeSource::Answers(traffic, _) => Some(traffic),
        }
    }

    /// The slots in an object store, by a clock of the caller's.
    pub fn new(objects: Arc<dyn ObjectStore>, clock: Arc<dyn Clock>) -> Self {
        Self { objects, time: TimeSource::Given(clock), bucket: None, is_tried_out: Arc::default() }
    }

    /// Makes sure that the server can be relied upon, before the first slot is made here.
    async fn try_out(&self) -> Result<()> {
        let Some(bucket) = self.bucket.as_ref().filter(|_| !self.is_tried_out.load(Ordering::SeqCst)) else {
            return Ok(());
        };
        bucket.probe(&*self.objects).await?;
        bucket.probe_replacing(&*self.objects).await?;
        self.is_tried_out.store(true, Ordering::SeqCst);
        Ok(())
    }

    /// Takes a slot of a group of `limit`, for a while. None if all are held, or the limit is 0.
    ///
    /// They are tried in an order by chance, so that many who come at once do not all want the same one. It costs two requests
    /// for a free slot that is met first, and one for each that is not free.
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
        if lease_duration < LEAST_LEASE {
            let rule = format!(
                "must be at least {} for slots that are objects: a bucket tells whole seconds",
                LEAST_LEASE.as_millis()
            );
            return Err(Error::invalid("lease_ms", lease_duration.as_millis(), rule));
        }
        for slot_id in in_any_order(limit) {
            let path = path(&group, slot_id);
            let found = self.read(&path).await?;
            let now = self.time.now()?;
            if found.is_none() {
                self.try_out().await?;
            }
            let (token, version) = match found {
                Some((slot, _)) if slot.is_taken(now) && slot.task_id != Some(task_id) => continue,
                Some((slot, version)) => (slot.token.0, Some(version)),
                None => (0, None),
            };
            let held = Slot {
                task_id: Some(task_id),
                worker_id: Some(worker_id.clone()),
                expires_at: Some(now.plus_ms(millis(lease_duration))),
                token: FenceToken(token + 1),
                nonce: Uuid::new_v4(),
            };
            if self.write(&path, &held, version).await? {
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
        let (slot, version) = self.own(&path, task_id).await?;
        let expires_at = self.time.now()?.plus_ms(millis(lease_duration));
        let slot = Slot { expires_at: Some(expires_at), nonce: Uuid::new_v4(), ..slot };
        match self.write(&path, &slot, Some(version)).await? {
            true => Ok(expires_at),
            false => Err(lost(&path, task_id)),
        }
    }

    /// Frees every slot of a group whose lease is over, and returns how many there were. Whoever wants a slot takes such a one
    /// anyway; this is for those who look at the objects.
    pub async fn cleanup_expired(&self, group: &str) -> Result<u32> {
        let mut freed = 0;
        for (path, slot, version) in self.slots(&GroupRef::parse("group", group)?).await? {
            let is_over = slot.task_id.is_some() && !slot.is_taken(self.time.now()?);
            if is_over && self.write(&path, &slot.freed(), Some(version)).await? {
                freed += 1;
            }
        }
        Ok(freed)
    }

    /// Who holds the slots of a group.
    pub async fn get_status(&self, group: &str) -> Result<SlotsStatus> {
        let group = GroupRef::parse("group", group)?;
        let slots = self.slots(&group).await?;
        let now = self.time.now()?;
        let mut slots: Vec<_> = slots
            .into_iter()
            .filter_map(|(path, slot, _)| {
                Some(SlotObject {
                    slot_id: path.filename()?.parse().ok()?,
                    is_expired: slot.task_id.is_some() && !slot.is_taken(now),
                    task_id: slot.task_id,
                    worker_id: slot.worker_id,
                    expires_at: slot.expires_at,
                    token: slot.token,
                })
            })
            .collect();
        slots.sort_by_key(|slot| slot.slot_id);
        let held = slots.iter().filter(|slot| slot.task_id.is_some() && !slot.is_expired);
        Ok(SlotsStatus { group, active: held.count() as u32, slots })
    }

    /// Groups that have slots as objects.
    pub async fn groups(&self) -> Result<Vec<GroupRef>> {
        let folder = Path::from("concurrency");
        let listed = self.objects.list_with_delimiter(Some(&folder)).await;
        let listed = listed.map_err(|error| unavailable(&folder, &error))?;
        let group =
            |path: &Path| path.filename().and_then(|name| GroupRef::parse("group", &decoded(name)).ok());
        Ok(listed.common_prefixes.iter().filter_map(group).collect())
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

    async fn read(&self, path: &Path) -> Result<Option<(Slot, UpdateVersion)>> {
        let found = match self.objects.get(path).await {
            Ok(found) => found,
            Err(error) if is_absent(&error) => return Ok(None),
            Err(error) => return Err(unavailable(path, &error)),
        };
        let version = UpdateVersion { e_tag: found.meta.e_tag.clone(), version: found.meta.version.clone() };
        let bytes = found.bytes().await.map_err(|error| unavailable(path, &error))?;
        let slot = serde_json::from_slice(&bytes)
            .map_err(|error| Error::new(ErrorKind::Data, format!("{path}: is not a slot: {error}")))?;
        Ok(Some((slot, version)))
    }

    /// Writes a slot over the version that was read, or where there was none. False if somebody else was faster.
    ///
    /// Whatever the answer is, what stands there afterwards tells: our nonce, somebody else's, or what stood there before, and
    /// then it is tried again. A try that is still on its way and lands later does no harm: it is the same.
    async fn write(&self, path: &Path, slot: &Slot, over: Option<UpdateVersion>) -> Result<bool> {
        let bytes = serde_json::to_vec(slot)
            .map_err(|error| Error::new(ErrorKind::Internal, format!("{path}: {error}")))?;
        let mode = || over.clone().map_or(PutMode::Create, PutMode::Update);
        let mut why = String::new();
        for attempt in 0..TRIES {
            if attempt > 0 {
                sleep(PAUSE).await;
            }
            let options = PutOptions { mode: mode(), ..PutOptions::default() };
            match self.objects.put_opts(path, bytes.clone().into(), options).await {
                Ok(_) => return Ok(true),
                // It is not allowed, and will not be.
                Err(
                    error @ (object_store::Error::PermissionDenied { .. }
                    | object_store::Error::Unauthenticated { .. }
                    | object_store::Error::NotImplemented { .. }),
                ) => return Err(unavailable(path, &error)),
                Err(error) => why = said(&error),
            }
            match self.read(path).await {
                Ok(Some((found, _))) if found.nonce == slot.nonce => return Ok(true),
                Ok(found) if found.as_ref().map(|(_, version)| version) != over.as_ref() => return Ok(false),
                Ok(_) => {}
                Err(error) if error.kind() == ErrorKind::Data => return Err(error),
                Err(error) => why = error.message().to_owned(),
            }
        }
        Err(Error::new(ErrorKind::Unknown, format!("{path}: {why}")))
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

/// All slots of a group, in an order by chance.
fn in_any_order(limit: u32) -> Vec<u32> {
    // A new id is as good as dice.
    let mut slots: Vec<_> = (0..limit).map(|slot| (Uuid::new_v4(), slot)).collect();
    slots.sort();
    slots.into_iter().map(|(_, slot)| slot).collect()
}

fn folder(group: &GroupRef) -> Path {
    Path::from_iter(["concurrency", &group.to_string(), "slots"])
}

fn path(group: &GroupRef, slot_id: u32) -> Path {
    folder(group).join(slot_id.to_string())
}

/// The group that a part of a path stands for: a path percent-encodes what it cannot hold.
fn decoded(part: &str) -> String {
    let mut bytes = Vec::new();
    let mut rest = part.as_bytes();
    while let [first, after @ ..] = rest {
        let code = after.get(..2).and_then(|code| std::str::from_utf8(code).ok());
        match (first, code.and_then(|code| u8::from_str_radix(code, 16).ok())) {
            (b'%', Some(byte)) => {
                bytes.push(byte);
                rest = &after[2..];
            }
            _ => {
                bytes.push(*first);
                rest = after;
            }
        }
    }
    String::from_utf8_lossy(&bytes).into_owned()
}

fn millis(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}

fn lost(path: &Path, task_id: Uuid) -> Error {
    Error::new(ErrorKind::Fenced, format!("{path}: {task_id} does not hold it"))
}

fn unavailable(path: &Path, error: &object_store::Error) -> Error {
    Error::new(ErrorKind::Unavailable, format!("{path}: {}", said(error)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use futures::future::join_all;
    use object_store::memory::InMemory;
    use qo_core::ManualClock;

    const NOON: Time = Time::from_millis(1_800_000_000_000);
    const LEASE: Duration = Duration::from_secs(30);

    fn slots() -> (SlotObjects, Arc<ManualClock>) {
        let clock = Arc::new(ManualClock::new(NOON));
        (SlotObjects::new(Arc::new(InMemory::new()), clock.clone()), clock)
    }

    fn task(number: u128) -> Uuid {
        Uuid::from_u128(number)
    }

    #[tokio::test]
    async fn as_many_as_the_limit_get_a_slot_and_no_more() {
        let (slots, _) = slots();
        let all = join_all((0..20).map(|n| {
            let slots = slots.clone();
            async move { slots.try_acquire("gpu", 7, task(n), "w", LEASE).await.expect("answered") }
        }))
        .await;
        let mut held: Vec<_> = all.into_iter().flatten().map(|slot| slot.slot_id).collect();
        held.sort();
        assert_eq!(held, [0, 1, 2, 3, 4, 5, 6]);
        let status = slots.get_status("gpu").await.expect("answered");
        assert_eq!((status.active, status.slots.len()), (7, 7));
    }

    #[tokio::test]
    async fn a_slot_is_given_back_once_and_its_token_grows() {
        let (slots, _) = slots();
        let first =
            slots.try_acquire("deploy/eu", 1, task(1), "w", LEASE).await.expect("answered").expect("free");
        assert_eq!(slots.try_acquire("deploy/eu", 1, task(2), "v", LEASE).await, Ok(None));
        assert_eq!(
            slots.try_acquire("deploy/us", 1, task(2), "v", LEASE).await.map(|slot| slot.is_some()),
            Ok(true)
        );
        let stranger = slots.release("deploy/eu", 0, task(2)).await.expect_err("not his");
        assert_eq!(stranger.kind(), ErrorKind::Fenced);
        slots.release("deploy/eu", 0, task(1)).await.expect("his");
        assert_eq!(slots.release("deploy/eu", 0, task(1)).await.expect_err("once").kind(), ErrorKind::Fenced);
        let next =
            slots.try_acquire("deploy/eu", 1, task(2), "v", LEASE).await.expect("answered").expect("free");
        assert!(next.token > first.token);
        let groups: Vec<_> = slots.groups().await.expect("listed").iter().map(ToString::to_string).collect();
        assert_eq!(groups, ["deploy/eu", "deploy/us"]);
    }

    #[tokio::test]
    async fn a_lease_that_is_over_is_taken_by_the_next_and_its_holder_is_fenced() {
        let (slots, clock) = slots();
        let first = slots.try_acquire("g", 1, task(1), "w", LEASE).await.expect("answered").expect("free");
        clock.advance_ms(20_000);
        let until = slots.extend_lease("g", first.slot_id, task(1), LEASE).await.expect("his");
        assert_eq!(until, NOON.plus_ms(50_000));
        clock.advance_ms(29_000);
        assert_eq!(slots.try_acquire("g", 1, task(2), "v", LEASE).await, Ok(None), "not over");
        assert_eq!(slots.cleanup_expired("g").await, Ok(0));
        clock.advance_ms(1_000);
        let next = slots.try_acquire("g", 1, task(2), "v", LEASE).await.expect("answered").expect("over");
        assert!(next.token > first.token);
        let late = slots.extend_lease("g", first.slot_id, task(1), LEASE).await.expect_err("another's");
        assert_eq!(late.kind(), ErrorKind::Fenced);
        clock.advance_ms(40_000);
        assert_eq!(slots.get_status("g").await.expect("answered").active, 0);
        assert_eq!(slots.cleanup_expired("g").await, Ok(1));
        assert_eq!(slots.cleanup_expired("g").await, Ok(0));
    }

    #[tokio::test]
    async fn a_limit_of_none_holds_and_one_that_is_too_large_points_elsewhere() {
        let (slots, _) = slots();
        assert_eq!(slots.try_acquire("g", 0, task(1), "w", LEASE).await, Ok(None));
        let error = slots.try_acquire("g", 51, task(1), "w", LEASE).await.expect_err("too large");
        assert!(error.message().contains("limit: \"51\": must be at most 50"), "{error}");
        assert!(error.message().contains("--objects"), "{error}");
    }

    #[test]
    fn every_group_has_a_path_of_its_own() {
        for text in ["g", "g/key", "g/a/b", "g/ü%2f:", "g/%", "g/ "] {
            let group = GroupRef::parse("group", text).expect("a group");
            let path = path(&group, 3);
            let parts: Vec<_> = path.parts().collect();
            assert_eq!(parts.len(), 4, "{path}");
            assert_eq!(decoded(parts[1].as_ref()), text);
        }
        let group = GroupRef::parse("group", "deploy/eu").expect("a group");
        assert_eq!(path(&group, 0).as_ref(), "concurrency/deploy%2Feu/slots/0");
    }
}
