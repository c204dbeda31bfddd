//! Slots as objects, on servers.

use crate::fixtures::fresh_prefix;
use crate::{SERVER, real_server};
use futures::future::join_all;
use qo_core::ErrorKind;
use qo_object::{Bucket, SlotObjects};
use qo_testkit::Bucket as Server;
use qo_testkit::bucket::{Conditions, Fault, Kind, NAME};
use std::time::Duration;
use uuid::Uuid;

const LEASE: Duration = Duration::from_secs(30);

fn slots(server: &str, prefix: &str) -> SlotObjects {
    let bucket = Bucket::parse(&format!("s3://{NAME}/{prefix}?endpoint={server}")).expect("a bucket");
    SlotObjects::in_bucket(&bucket).expect("a client")
}

#[tokio::test]
async fn of_many_who_want_a_slot_as_many_as_the_limit_get_one() {
    for server in [SERVER.url().to_owned(), real_server()] {
        let prefix = fresh_prefix();
        // Fewer than the slots on a real one, which takes seconds to decide a race.
        let programs: Vec<_> = (0..8_u128).map(|n| (slots(&server, &prefix), Uuid::from_u128(n))).collect();
        let all = join_all(programs.iter().map(async |(slots, task)| {
            slots.try_acquire("gpu", 3, *task, "w", LEASE).await.expect("answered").map(|held| (held, task))
        }))
        .await;
        let held: Vec<_> = all.into_iter().flatten().collect();
        assert_eq!(held.len(), 3);
        let status = programs[0].0.get_status("gpu").await.expect("answered");
        assert_eq!((status.active, status.slots.len()), (3, 3));
        for (slot, task) in held {
            programs[0].0.release("gpu", slot.slot_id, *task).await.expect("his");
        }
        assert_eq!(programs[0].0.get_status("gpu").await.expect("answered").active, 0);
    }
}

#[tokio::test]
async fn a_lease_ends_by_the_servers_clock() {
    let server = Server::start(4);
    let (first, second) = (Uuid::from_u128(1), Uuid::from_u128(2));
    let slots = slots(server.url(), "p");
    let held = slots.try_acquire("g", 1, first, "w", LEASE).await.expect("answered").expect("free");
    assert_eq!(slots.try_acquire("g", 1, second, "v", LEASE).await, Ok(None));
    server.advance(LEASE + Duration::from_secs(1));
    // A date that is far ahead is believed when it is heard twice.
    slots.get_status("g").await.expect("answered");
    let next = slots.try_acquire("g", 1, second, "v", LEASE).await.expect("answered").expect("over");
    assert!(next.token > held.token);
    let error = slots.extend_lease("g", 0, first, LEASE).await.expect_err("another's");
    assert_eq!(error.kind(), ErrorKind::Fenced);
}

#[tokio::test]
async fn an_answer_that_is_lost_costs_no_slot() {
    let server = Server::start(5);
    let slots = slots(server.url(), "p");
    let task = Uuid::from_u128(1);
    // Whoever makes the first slot tries the server out.
    let first = slots.try_acquire("g", 1, task, "w", LEASE).await.expect("answered").expect("free");
    slots.release("g", first.slot_id, task).await.expect("his");
    for fault in [Fault::ResetAfter, Fault::Conflict, Fault::SlowDown, Fault::ResetBefore] {
        server.fail_next(Kind::Put, fault);
        let held = slots.try_acquire("g", 1, task, "w", LEASE).await.expect("answered").expect("free");
        server.fail_next(Kind::Put, fault);
        slots.release("g", held.slot_id, task).await.expect("his");
    }
}

#[tokio::test]
async fn a_server_that_replaces_carelessly_gives_no_slot() {
    let server = Server::start(7);
    server.set_conditions(Conditions::Ignored);
    let error = slots(server.url(), "p").try_acquire("g", 1, Uuid::from_u128(1), "w", LEASE).await;
    assert_eq!(error.expect_err("it is careless").kind(), ErrorKind::Invalid);
}

/// What it costs, as the server counts it.
#[tokio::test]
async fn a_free_slot_costs_four_requests_and_a_full_group_one_for_each_slot() {
    let server = Server::start(6);
    let slots = slots(server.url(), "p");
    let task = Uuid::from_u128(1);
    // Whoever makes the first slot tries the server out.
    let first = slots.try_acquire("other", 1, task, "w", LEASE).await.expect("answered").expect("free");
    slots.release("other", first.slot_id, task).await.expect("his");
    for _ in 0..2 {
        server.take_requests();
        let held = slots.try_acquire("g", 10, task, "w", LEASE).await.expect("answered").expect("free");
        slots.release("g", held.slot_id, task).await.expect("his");
        assert_eq!(server.take_requests().total(), 4);
    }
    for n in 0..10 {
        slots
            .try_acquire("g", 10, Uuid::from_u128(10 + n), "w", LEASE)
            .await
            .expect("answered")
            .expect("free");
    }
    server.take_requests();
    assert_eq!(slots.try_acquire("g", 10, task, "w", LEASE).await, Ok(None));
    assert_eq!(server.take_requests().total(), 10);
}
