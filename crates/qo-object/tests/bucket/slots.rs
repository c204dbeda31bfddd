//! Slots as objects, on servers.

use crate::fixtures::fresh_prefix;
use crate::{SERVER, real_server};
use futures::future::join_all;
use qo_core::{Acquire, ConcurrencyManager, ErrorKind, FenceToken, HeldSlot, Store, Time};
use qo_object::doctor::examine_bucket;
use qo_object::{Bucket, LogStore, Options, SlotObjects};
use qo_testkit::Bucket as Server;
use qo_testkit::bucket::{Conditions, Fault, Kind, NAME};
use std::time::Duration;
use uuid::Uuid;

const LEASE: Duration = Duration::from_secs(30);
/// The shortest.
const SHORT: Duration = Duration::from_secs(5);

fn at(server: &str, prefix: &str) -> Bucket {
    Bucket::parse(&format!("s3://{NAME}/{prefix}?endpoint={server}")).expect("a bucket")
}

fn slots(server: &str, prefix: &str) -> SlotObjects {
    SlotObjects::in_bucket(&at(server, prefix)).expect("a client")
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
    for server in [SERVER.url().to_owned(), real_server()] {
        let prefix = fresh_prefix();
        // Few: a real server takes seconds to decide a race.
        let programs: Vec<_> = (0..8_u128).map(|n| (slots(&server, &prefix), Uuid::from_u128(n))).collect();
        let all = join_all(programs.iter().map(async |(slots, task)| {
            slots.try_acquire(&acquire("gpu", 3, *task, "w")).await.expect("answered")
        }))
        .await;
        let held: Vec<_> = all.into_iter().flatten().collect();
        assert_eq!(held.len(), 3);
        let status = programs[0].0.get_status("gpu").await.expect("answered");
        assert_eq!((status.active, status.slots.len()), (3, 3));
        for slot in held {
            programs[0].0.release(&slot).await.expect("its own");
        }
        assert_eq!(programs[0].0.get_status("gpu").await.expect("answered").active, 0);
    }
}

#[tokio::test]
async fn a_process_takes_over_a_slot_that_it_has_watched_for_a_lease() {
    let server = Server::start(4);
    let (first, second) = (Uuid::from_u128(1), Uuid::from_u128(2));
    let holder = slots(server.url(), "p");
    let held = holder
        .try_acquire(&Acquire { lease_duration: SHORT, ..acquire("g", 1, first, "w") })
        .await
        .expect("answered")
        .expect("free");
    // However late it is by the bucket's dates.
    server.advance(Duration::from_secs(3_600));
    let (begun, next) = (std::time::Instant::now(), slots(server.url(), "p"));
    let mut extended = None;
    let taken = loop {
        if let Some(taken) = next
            .try_acquire(&Acquire { lease_duration: SHORT, ..acquire("g", 1, second, "v") })
            .await
            .expect("answered")
        {
            break taken;
        }
        // The holder extends its lease once more: it is another version, and watched anew.
        if extended.is_none() && begun.elapsed() > SHORT / 4 {
            holder.extend_lease(&held, SHORT).await.expect("its own");
            extended = Some(std::time::Instant::now());
        }
        tokio::task::yield_now().await;
    };
    assert!(extended.is_some_and(|extended| extended.elapsed() >= SHORT), "{:?}", begun.elapsed());
    assert!(taken.token > held.token);
    let error = holder.extend_lease(&held, SHORT).await.expect_err("another's");
    assert_eq!(error.kind(), ErrorKind::Fenced);
}

#[tokio::test]
async fn a_lost_answer_costs_no_slot() {
    let server = Server::start(5);
    let slots = slots(server.url(), "p");
    let task = Uuid::from_u128(1);
    // The process that takes the first slot tries the server out.
    let first = slots.try_acquire(&acquire("g", 1, task, "w")).await.expect("answered").expect("free");
    slots.release(&first).await.expect("its own");
    for fault in [Fault::ResetAfter, Fault::Conflict, Fault::SlowDown, Fault::ResetBefore] {
        server.fail_next(Kind::Put, fault);
        let held = slots.try_acquire(&acquire("g", 1, task, "w")).await.expect("answered").expect("free");
        server.fail_next(Kind::Put, fault);
        slots.release(&held).await.expect("its own");
    }
}

#[tokio::test]
async fn a_server_that_ignores_conditions_gives_no_slot() {
    let server = Server::start(7);
    server.set_conditions(Conditions::Ignored);
    let error = slots(server.url(), "p").try_acquire(&acquire("g", 1, Uuid::from_u128(1), "w")).await;
    assert_eq!(error.expect_err("it is careless").kind(), ErrorKind::Invalid);
}

/// Slots that were copied to another server do not show that it was tried out.
#[tokio::test]
async fn slots_copied_to_a_careless_server_are_refused() {
    let server = Server::start(12);
    let task = Uuid::from_u128(1);
    let first = slots(server.url(), "p").try_acquire(&acquire("g", 1, task, "w")).await;
    let held = first.expect("answered").expect("free");
    assert!(server.remove("p/concurrency/tried_out"));
    server.set_conditions(Conditions::Ignored);
    let later = slots(server.url(), "p");
    server.take_requests();
    assert_eq!(later.try_acquire(&acquire("g", 1, Uuid::from_u128(2), "w")).await, Ok(None));
    assert_eq!(server.take_requests().total(), 1, "a refusal writes nothing");
    slots(server.url(), "p").release(&held).await.expect("its own");
    let error =
        later.try_acquire(&acquire("g", 1, Uuid::from_u128(2), "w")).await.expect_err("it is careless");
    assert_eq!(error.kind(), ErrorKind::Invalid);
    let error = examine_bucket(&at(server.url(), "p")).await.expect_err("it is careless");
    assert_eq!(error.kind(), ErrorKind::Invalid);
}

/// The doctor tries out replacing too, although `tried_out` is missing.
#[tokio::test]
async fn the_doctor_tries_a_server_out_where_slots_were_copied() {
    let server = Server::start(13);
    let bucket = at(server.url(), "p");
    let examined = async || {
        server.take_requests();
        examine_bucket(&bucket).await.map(|_| server.take_requests().put)
    };
    let for_a_log = examined().await.expect("it is fine");
    slots(server.url(), "p").try_acquire(&acquire("g", 1, Uuid::from_u128(1), "w")).await.expect("answered");
    assert!(server.remove("p/concurrency/tried_out"));
    assert!(examined().await.expect("it is fine") > for_a_log);
}

/// A look takes as long as the server does, and a process that ends does not wait for it.
#[tokio::test]
async fn a_process_that_ends_does_not_wait_for_a_look_at_slots() {
    let server = Server::start(14);
    let slots = slots(server.url(), "p");
    slots.try_acquire(&acquire("g", 1, Uuid::from_u128(1), "w")).await.expect("answered").expect("free");
    let store = LogStore::open_bucket(&at(server.url(), "p"), watchful()).await.expect("it opens");
    server.take_requests();
    server.fail_next(Kind::List, Fault::Delay(Duration::from_secs(20)));
    let look_begins = async {
        while server.take_requests().list == 0 {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    tokio::time::timeout(Duration::from_secs(30), look_begins).await.expect("a look begins");
    let begun = std::time::Instant::now();
    store.finish().await;
    assert!(begun.elapsed() < Duration::from_secs(10), "{:?}", begun.elapsed());
}

/// A later process learns by one request that the server was tried out.
#[tokio::test]
async fn a_server_is_tried_out_by_the_first_process_alone() {
    let server = Server::start(8);
    let task = Uuid::from_u128(1);
    let first = slots(server.url(), "p").try_acquire(&acquire("g", 2, task, "w")).await;
    assert!(first.expect("answered").is_some());
    assert!(server.take_requests().total() > 15, "it was tried out");
    assert_eq!(server.names("p/probe/"), Vec::<String>::new());
    // In a group that no program has used.
    let later = slots(server.url(), "p");
    let held = later.try_acquire(&acquire("h", 2, task, "w")).await.expect("answered").expect("free");
    assert_eq!(server.take_requests().total(), 3, "the slot, `tried_out`, and the write");
    later.release(&held).await.expect("its own");
    let held = later.try_acquire(&acquire("i", 2, task, "w")).await.expect("answered").expect("free");
    later.release(&held).await.expect("its own");
    assert_eq!(server.take_requests().total(), 2 + 4);
    let groups: Vec<_> = later.groups().await.expect("listed").iter().map(ToString::to_string).collect();
    assert_eq!(groups, ["g", "h", "i"], "`tried_out` is no group");

    // An object of an older trial, or a damaged one, does not count.
    for (group, bytes) in [("j", ""), ("k", "{\"trial\":0}"), ("l", "x")] {
        server.write("p/concurrency/tried_out", bytes);
        server.take_requests();
        slots(server.url(), "p").try_acquire(&acquire(group, 2, task, "w")).await.expect("answered");
        assert!(server.take_requests().total() > 15, "{bytes:?}: it was tried out");
    }
}

/// `tried_out` may have been copied with everything else.
#[tokio::test]
async fn the_doctor_tries_a_server_out_where_there_are_slots() {
    let server = Server::start(9);
    let bucket = at(server.url(), "p");
    let examined = async || {
        server.take_requests();
        examine_bucket(&bucket).await.map(|_| server.take_requests().put)
    };
    let for_a_log = examined().await.expect("it is fine");
    slots(server.url(), "p").try_acquire(&acquire("g", 1, Uuid::from_u128(1), "w")).await.expect("answered");
    assert!(examined().await.expect("it is fine") > for_a_log);
    server.set_conditions(Conditions::Ignored);
    assert_eq!(examined().await.expect_err("it is careless").kind(), ErrorKind::Invalid);
}

/// Options of a process that looks at slots all the time.
fn watchful() -> Options {
    let pause = Duration::from_millis(20);
    Options { slots_every: Duration::ZERO, poll: pause, poll_without_bell: pause, ..Options::bucket() }
}

#[tokio::test]
async fn a_process_with_a_namespace_frees_expired_slots_and_no_others() {
    let server = Server::start(10);
    let slots = slots(server.url(), "p");
    let [dead, living, late] = [1, 2, 3].map(Uuid::from_u128);
    for (group, task) in [("a", dead), ("b", living), ("c", late)] {
        slots
            .try_acquire(&Acquire { lease_duration: SHORT, ..acquire(group, 1, task, "w") })
            .await
            .expect("answered")
            .expect("free");
    }
    server.advance(SHORT + Duration::from_secs(61));
    let store = LogStore::open_bucket(&at(server.url(), "p"), watchful()).await.expect("it opens");
    let holders = async || {
        let mut holders = Vec::new();
        for group in ["a", "b", "c"] {
            holders.push(slots.slots(group).await.expect("answered")[0].task_id);
        }
        holders
    };
    let freed = async {
        while holders().await != [None, Some(living), None] {
            slots.extend_lease(&held("b", 0, living), SHORT).await.expect("no other task has taken it");
            tokio::task::yield_now().await;
        }
    };
    tokio::time::timeout(Duration::from_secs(30), freed).await.expect("they are swept");
    let error = slots.extend_lease(&held("c", 0, late), LEASE).await.expect_err("it is free");
    assert_eq!(error.kind(), ErrorKind::Fenced);
    let next = slots.try_acquire(&acquire("a", 1, late, "v")).await.expect("answered").expect("free");
    assert_eq!(next.token.0, 2, "the object knows the last token");
    drop(store);
}

/// A look costs one listing, and nothing for free slots.
#[tokio::test]
async fn a_look_costs_a_listing_and_a_request_per_taken_slot() {
    let server = Server::start(11);
    let slots = slots(server.url(), "p");
    for n in 0..12 {
        let held = slots.try_acquire(&acquire("g", 12, Uuid::from_u128(n), "w")).await;
        let held = held.expect("answered").expect("free");
        if n >= 2 {
            slots.release(&held).await.expect("its own");
        }
    }
    let taken = slots.get_status("g").await.expect("answered").active;
    server.take_requests();
    assert_eq!(slots.sweep().await, Ok(0));
    let requests = server.take_requests();
    assert_eq!((requests.list, requests.get, requests.total()), (1, taken, 1 + taken));
    assert_eq!(slots.expired().await.expect("listed").slots, []);
    server.take_requests();
    // In a namespace that has none.
    self::slots(server.url(), "q").sweep().await.expect("listed");
    assert_eq!(server.take_requests().total(), 1);
}

/// What slots cost, as the server counts it.
#[tokio::test]
async fn a_free_slot_costs_four_requests_a_full_group_one_per_slot() {
    let server = Server::start(6);
    let slots = slots(server.url(), "p");
    let task = Uuid::from_u128(1);
    // The process that takes the first slot tries the server out.
    let first = slots.try_acquire(&acquire("other", 1, task, "w")).await.expect("answered").expect("free");
    slots.release(&first).await.expect("its own");
    for _ in 0..2 {
        server.take_requests();
        let held = slots.try_acquire(&acquire("g", 10, task, "w")).await.expect("answered").expect("free");
        slots.release(&held).await.expect("its own");
        assert_eq!(server.take_requests().total(), 4);
    }
    for n in 0..10 {
        slots
            .try_acquire(&acquire("g", 10, Uuid::from_u128(10 + n), "w"))
            .await
            .expect("answered")
            .expect("free");
    }
    server.take_requests();
    assert_eq!(slots.try_acquire(&acquire("g", 10, task, "w")).await, Ok(None));
    assert_eq!(server.take_requests().total(), 10);
}
