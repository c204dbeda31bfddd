//! Slots on objects in memory, with a clock of the test.

use super::slot::FREE_BYTES;
use super::*;
use async_trait::async_trait;
use futures::FutureExt;
use futures::future::{join, join_all};
use futures::stream::BoxStream;
use object_store::memory::InMemory;
use object_store::{
    CopyOptions, GetOptions, GetResult, ListResult, MultipartUpload, ObjectMeta, ObjectStoreExt,
    PutMultipartOptions, PutOptions, PutPayload, PutResult, Result as Stored,
};
use qo_core::ManualClock;
use qo_testkit::objects::{FaultyObjects, ObjectFaults};
use std::sync::Mutex;
use tokio::time::sleep;

const NOON: Time = Time::from_millis(1_800_000_000_000);
const LEASE: Duration = Duration::from_secs(30);

fn slots() -> (SlotObjects, Arc<ManualClock>) {
    let clock = Arc::new(ManualClock::new(NOON));
    (SlotObjects::new(Arc::new(InMemory::new()), clock.clone()), clock)
}

fn task(number: u128) -> Uuid {
    Uuid::from_u128(number)
}

fn acquire<'a>(group: &'a str, limit: u32, task_id: Uuid, worker_id: &'a str) -> Acquire<'a> {
    Acquire { group, limit, task_id, worker_id, lease_duration: LEASE }
}

/// A slot, as a task that claims to hold it names it.
fn held(group: &str, slot_id: u64, task_id: Uuid) -> HeldSlot {
    let (group, token) = (group.parse().expect("a group"), FenceToken(0));
    HeldSlot { group, slot_id, task_id, token, expires_at: Time::default() }
}

#[tokio::test]
async fn as_many_programs_as_the_limit_get_a_slot() {
    let (slots, _) = slots();
    let all = join_all((0..20).map(|n| {
        let slots = slots.clone();
        async move { slots.try_acquire(&acquire("gpu", 7, task(n), "w")).await.expect("answered") }
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
        slots.try_acquire(&acquire("deploy/eu", 1, task(1), "w")).await.expect("answered").expect("free");
    assert_eq!(slots.try_acquire(&acquire("deploy/eu", 1, task(2), "v")).await, Ok(None));
    assert_eq!(
        slots.try_acquire(&acquire("deploy/us", 1, task(2), "v")).await.map(|slot| slot.is_some()),
        Ok(true)
    );
    let stranger = slots.release(&held("deploy/eu", 0, task(2))).await.expect_err("another task holds it");
    assert_eq!(stranger.kind(), ErrorKind::Fenced);
    slots.release(&held("deploy/eu", 0, task(1))).await.expect("its own");
    assert_eq!(
        slots.release(&held("deploy/eu", 0, task(1))).await.expect_err("once").kind(),
        ErrorKind::Fenced
    );
    let next =
        slots.try_acquire(&acquire("deploy/eu", 1, task(2), "v")).await.expect("answered").expect("free");
    assert!(next.token > first.token);
    let groups: Vec<_> = slots.groups().await.expect("listed").iter().map(ToString::to_string).collect();
    assert_eq!(groups, ["deploy/eu", "deploy/us"]);
}

#[tokio::test]
async fn an_expired_slot_goes_to_the_next_and_its_holder_is_fenced() {
    let (slots, clock) = slots();
    let first = slots.try_acquire(&acquire("g", 1, task(1), "w")).await.expect("answered").expect("free");
    clock.advance_ms(20_000);
    let until = slots.extend_lease(&first, LEASE).await.expect("its own");
    assert_eq!(until, NOON.plus_ms(50_000));
    clock.advance_ms(29_000);
    assert_eq!(slots.try_acquire(&acquire("g", 1, task(2), "v")).await, Ok(None), "not over");
    assert_eq!(slots.cleanup_expired().await, Ok(0));
    clock.advance_ms(1_000);
    let next = slots.try_acquire(&acquire("g", 1, task(2), "v")).await.expect("answered").expect("over");
    assert!(next.token > first.token);
    let late = slots.extend_lease(&first, LEASE).await.expect_err("another's");
    assert_eq!(late.kind(), ErrorKind::Fenced);
    clock.advance_ms(40_000);
    assert_eq!(slots.get_status("g").await.expect("answered").active, 0);
    assert_eq!(slots.cleanup_expired().await, Ok(1));
    assert_eq!(slots.cleanup_expired().await, Ok(0));
}

#[tokio::test]
async fn a_limit_of_0_refuses_and_one_above_50_is_invalid() {
    let (slots, _) = slots();
    assert_eq!(slots.try_acquire(&acquire("g", 0, task(1), "w")).await, Ok(None));
    let error = slots.try_acquire(&acquire("g", 51, task(1), "w")).await.expect_err("too large");
    assert!(error.message().contains("limit: \"51\": must be at most 50"), "{error}");
    assert!(error.message().contains("--objects"), "{error}");
}

#[tokio::test]
async fn expired_slots_are_shown_at_once_and_swept_after_a_minute() {
    let (slots, clock) = slots();
    for (group, number) in [("b", 1), ("a/key", 2), ("b", 3)] {
        slots.try_acquire(&acquire(group, 2, task(number), "w")).await.expect("answered").expect("free");
    }
    slots.objects.put(&Path::from("concurrency/tried_out"), vec![b'x'; 200].into()).await.expect("written");
    assert_eq!(slots.expired().await.map(|expired| expired.slots), Ok(Vec::new()));
    clock.advance_ms(29_999);
    let b1 = slots.slots("b").await.expect("answered")[0].clone();
    slots.extend_lease(&held("b", 0, b1.task_id.expect("held")), LEASE).await.expect("its own");
    clock.advance_ms(1);
    let expired = slots.expired().await.expect("listed");
    let shown: Vec<_> =
        expired.slots.iter().map(|slot| (slot.group.to_string(), slot.slot.slot_id)).collect();
    assert_eq!(shown.len(), 2);
    assert_eq!((shown[0].0.as_str(), &shown[1]), ("a/key", &("b".to_owned(), 1)));
    let over = &expired.slots[0].slot;
    assert_eq!((over.task_id, over.expires_at), (Some(task(2)), Some(NOON.plus_ms(30_000))));
    assert_eq!(over.worker_id.as_ref().map(ToString::to_string).as_deref(), Some("w"));
    assert_eq!(expired.at, Some(NOON.plus_ms(30_000)));

    clock.advance_ms(59_999);
    assert_eq!(slots.sweep().await, Ok(0), "its holder may only be a little late");
    clock.advance_ms(1);
    assert_eq!(slots.sweep().await, Ok(2));
    assert_eq!(slots.sweep().await, Ok(0));
    let freed = slots.slots("a/key").await.expect("answered");
    assert!(freed.iter().all(|slot| slot.task_id.is_none() && slot.token == FenceToken(1)));
    let left = slots.slots("b").await.expect("answered");
    assert_eq!(left[0].task_id, b1.task_id, "its lease was extended, and has not been over for long");
}

#[tokio::test]
async fn an_unreadable_slot_is_named_and_others_are_swept() {
    let (slots, clock) = slots();
    let bad = Path::from("concurrency/g/slots/0");
    slots.objects.put(&bad, vec![b'x'; 200].into()).await.expect("written");
    slots.try_acquire(&acquire("h", 1, task(1), "w")).await.expect("answered").expect("free");
    clock.advance_ms(90_000);
    let expired = slots.expired().await.expect("listed");
    assert_eq!(expired.slots.len(), 1);
    assert!(expired.unreadable[0].starts_with("concurrency/g/slots/0: is not a slot"), "{expired:?}");
    assert_eq!(slots.sweep().await, Ok(1));
}

#[test]
fn a_listing_tells_a_free_slot_from_a_taken_one() {
    let bytes = |slot: &Slot| serde_json::to_vec(slot).expect("JSON").len() as u64;
    let taken = Slot {
        task_id: Some(task(0)),
        worker_id: Some(Name::parse("name", "w").expect("a name")),
        expires_at: Some(NOON),
        lease_ms: Some(30_000),
        token: FenceToken(1),
        nonce: Uuid::nil(),
    };
    assert!(bytes(&taken) > FREE_BYTES);
    assert!(bytes(&Slot { token: FenceToken(u64::MAX), ..taken.freed() }) <= FREE_BYTES);
}

/// Takes a slot by a write whose answer is lost; nothing can be read until the call has ended.
async fn asked_in_doubt(slots: &SlotObjects, objects: &FaultyObjects, limit: u32, task_id: Uuid) {
    objects.set_faults(ObjectFaults { after: 100, delay_ms: 1_000, ..ObjectFaults::default() });
    let silence = async {
        while objects.names("concurrency").await.is_empty() {
            sleep(Duration::from_millis(1)).await;
        }
        objects.set_faults(ObjectFaults { before: 100, ..ObjectFaults::default() });
    };
    let (asked, ()) = join(slots.try_acquire(&acquire("g", limit, task_id, "w")), silence).await;
    assert_eq!(asked.expect_err("the outcome is unknown").kind(), ErrorKind::Unknown);
    objects.set_faults(ObjectFaults::default());
}

fn in_doubt(seed: u64) -> (SlotObjects, FaultyObjects) {
    let objects = FaultyObjects::new(seed, ObjectFaults::default());
    let clock = Arc::new(ManualClock::new(NOON));
    (SlotObjects::new(Arc::new(objects.clone()), clock), objects)
}

#[tokio::test(start_paused = true)]
async fn a_slot_in_doubt_is_given_back_before_the_next_task_asks() {
    let (slots, objects) = in_doubt(1);
    asked_in_doubt(&slots, &objects, 1, task(1)).await;
    assert_eq!(slots.get_status("g").await.expect("answered").active, 1, "it was taken");
    // While no answer comes, it stays in doubt.
    objects.set_faults(ObjectFaults { before: 100, ..ObjectFaults::default() });
    slots.try_acquire(&acquire("g", 1, task(2), "w")).await.expect_err("no answer comes");
    objects.set_faults(ObjectFaults::default());
    let next =
        slots.try_acquire(&acquire("g", 1, task(2), "w")).await.expect("answered").expect("given back");
    assert_eq!(next.token, FenceToken(2));
    // The doubt is settled: the slot stays with its new holder.
    assert_eq!(slots.try_acquire(&acquire("g", 1, task(3), "w")).await, Ok(None));
}

#[tokio::test(start_paused = true)]
async fn a_task_that_asks_again_after_unknown_holds_one_slot() {
    for seed in 1..=8 {
        let (slots, objects) = in_doubt(seed);
        asked_in_doubt(&slots, &objects, 4, task(1)).await;
        slots.try_acquire(&acquire("g", 4, task(1), "w")).await.expect("answered").expect("free");
        assert_eq!(slots.get_status("g").await.expect("answered").active, 1, "seed {seed}");
        slots.try_acquire(&acquire("g", 4, task(2), "w")).await.expect("answered").expect("free");
        assert_eq!(slots.get_status("g").await.expect("answered").active, 2, "what it holds is not in doubt");
    }
}

#[tokio::test(start_paused = true)]
async fn a_dropped_call_forgets_no_slot_in_doubt() {
    let (slots, objects) = in_doubt(3);
    asked_in_doubt(&slots, &objects, 1, task(1)).await;
    objects.set_faults(ObjectFaults { always_ms: 1_000, ..ObjectFaults::default() });
    // The call has begun to give the slot back, and waits for the first answer.
    assert!(slots.try_acquire(&acquire("g", 1, task(2), "w")).now_or_never().is_none());
    objects.set_faults(ObjectFaults::default());
    let next = slots.try_acquire(&acquire("g", 1, task(2), "w")).await.expect("answered");
    assert_eq!(next.expect("given back").token, FenceToken(2));
}

#[tokio::test]
async fn a_lease_takes_five_seconds_to_a_day() {
    let (slots, _) = slots();
    let day = Duration::from_millis(caps::LEASE_MAX_MS);
    slots
        .try_acquire(&Acquire { lease_duration: day, ..acquire("g", 1, task(1), "w") })
        .await
        .expect("answered")
        .expect("free");
    for (lease, rule) in [
        (Duration::MAX, "must be at most 86400000"),
        (day + Duration::from_millis(1), "lease_ms: \"86400001\": must be at most 86400000"),
        (Duration::from_millis(4_999), "lease_ms: \"4999\": must be at least 5000"),
    ] {
        let asked = slots
            .try_acquire(&Acquire { lease_duration: lease, ..acquire("h", 1, task(2), "w") })
            .await
            .expect_err("not a lease");
        let extended = slots.extend_lease(&held("g", 0, task(1)), lease).await.expect_err("not a lease");
        for error in [asked, extended] {
            assert_eq!(error.kind(), ErrorKind::Invalid);
            assert!(error.message().contains(rule), "{error}");
        }
    }
    slots.extend_lease(&held("g", 0, task(1)), LEAST_LEASE).await.expect("its own");
}

#[tokio::test]
async fn a_slot_without_a_next_token_is_damaged() {
    let (slots, _) = slots();
    let bytes = format!("{{\"token\":{},\"nonce\":\"{}\"}}", u64::MAX, Uuid::nil());
    slots.objects.put(&Path::from("concurrency/g/slots/0"), bytes.into()).await.expect("written");
    let error = slots.try_acquire(&acquire("g", 1, task(1), "w")).await.expect_err("no token is left");
    assert_eq!(error.kind(), ErrorKind::Data);
    assert!(error.message().starts_with("concurrency/g/slots/0: is not a slot"), "{error}");
}

/// Objects some of which fail.
#[derive(Debug, Default)]
struct Moody {
    inner: InMemory,
    /// An object that cannot be read.
    silent: Mutex<Option<Path>>,
    /// The outcome of the next writes: true if the write is refused, false if its answer is lost.
    refused: Mutex<Vec<bool>>,
}

impl std::fmt::Display for Moody {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Moody")
    }
}

fn broke() -> object_store::Error {
    object_store::Error::Generic { store: "moody", source: "the connection broke".into() }
}

#[async_trait]
impl ObjectStore for Moody {
    async fn put_opts(&self, path: &Path, bytes: PutPayload, options: PutOptions) -> Stored<PutResult> {
        match self.refused.lock().expect("not poisoned").pop() {
            Some(true) => {
                let path = path.to_string();
                return Err(object_store::Error::PermissionDenied { path, source: "not you".into() });
            }
            Some(false) => return Err(broke()),
            None => {}
        }
        self.inner.put_opts(path, bytes, options).await
    }

    async fn put_multipart_opts(
        &self,
        path: &Path,
        options: PutMultipartOptions,
    ) -> Stored<Box<dyn MultipartUpload>> {
        self.inner.put_multipart_opts(path, options).await
    }

    async fn get_opts(&self, path: &Path, options: GetOptions) -> Stored<GetResult> {
        if self.silent.lock().expect("not poisoned").as_ref() == Some(path) {
            return Err(broke());
        }
        self.inner.get_opts(path, options).await
    }

    fn delete_stream(&self, paths: BoxStream<'static, Stored<Path>>) -> BoxStream<'static, Stored<Path>> {
        self.inner.delete_stream(paths)
    }

    fn list(&self, prefix: Option<&Path>) -> BoxStream<'static, Stored<ObjectMeta>> {
        self.inner.list(prefix)
    }

    async fn list_with_delimiter(&self, prefix: Option<&Path>) -> Stored<ListResult> {
        self.inner.list_with_delimiter(prefix).await
    }

    async fn copy_opts(&self, from: &Path, to: &Path, options: CopyOptions) -> Stored<()> {
        self.inner.copy_opts(from, to, options).await
    }
}

fn moody() -> (SlotObjects, Arc<Moody>, Arc<ManualClock>) {
    let (objects, clock) = (Arc::new(Moody::default()), Arc::new(ManualClock::new(NOON)));
    (SlotObjects::new(objects.clone(), clock.clone()), objects, clock)
}

#[tokio::test(start_paused = true)]
async fn a_write_refused_after_a_lost_answer_leaves_doubt() {
    let (slots, objects, _) = moody();
    *objects.refused.lock().expect("not poisoned") = vec![true];
    let error = slots.try_acquire(&acquire("g", 1, task(1), "w")).await.expect_err("refused");
    assert_eq!(error.kind(), ErrorKind::Invalid, "nothing can have happened");
    *objects.refused.lock().expect("not poisoned") = vec![true, true, true, true, false];
    let error = slots.try_acquire(&acquire("g", 1, task(1), "w")).await.expect_err("the outcome is unknown");
    assert_eq!(error.kind(), ErrorKind::Unknown);
    assert_eq!(slots.settle_doubts(&GroupRef::parse("group", "g").expect("a group"), task(1)).await, Some(0));
}

#[tokio::test]
async fn others_are_swept_although_one_slot_always_fails() {
    let (slots, objects, clock) = moody();
    for (n, group) in ["a", "b", "c"].into_iter().enumerate() {
        slots.try_acquire(&acquire(group, 1, task(n as u128), "w")).await.expect("answered").expect("free");
    }
    clock.advance_ms(90_000);
    *objects.silent.lock().expect("not poisoned") = Some(Path::from("concurrency/a/slots/0"));
    let error = slots.sweep().await.expect_err("one failed");
    assert_eq!(error.kind(), ErrorKind::Unavailable);
    assert!(error.message().starts_with("concurrency/a/slots/0: "), "{error}");
    assert!(error.message().ends_with("; 2 others were freed"), "{error}");
    slots.expired().await.expect_err("a look that is not complete fails");
    *objects.silent.lock().expect("not poisoned") = None;
    assert_eq!(slots.sweep().await, Ok(1));
}
