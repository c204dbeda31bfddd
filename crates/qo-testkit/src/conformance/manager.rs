//! `ConcurrencyManager`: standalone slots in five calls, over any store.

use super::*;
use qo_core::StoreSlots;
use std::{sync::Arc, time::Duration};

pub(super) async fn a_manager_takes_extends_and_gives_back(world: &World) {
    let manager = StoreSlots::new(Arc::clone(&world.store));
    let (id, lease) = (world.lease_id().0, Duration::from_secs(10));
    let first = Acquire { group: "gpu", limit: 1, task_id: id, worker_id: "w1", lease_duration: lease };
    let other = Acquire { task_id: world.lease_id().0, worker_id: "w2", ..first };
    let slot = manager.try_acquire(&first).await.expect("a valid call").expect("room");
    assert_eq!(manager.try_acquire(&first).await, Ok(Some(slot.clone())), "the same call again");
    assert_eq!(manager.try_acquire(&other).await, Ok(None));
    let status = manager.get_status("gpu").await.expect("a valid call");
    assert_eq!((status.limit, status.active, status.slots.len()), (Some(1), 1, 1));
    let info = &status.slots[0];
    assert_eq!((info.slot_id, info.slots, info.task_id, &*info.worker_id), (slot.slot_id, 1, id, "w1"));
    assert_eq!((info.acquired_at, info.expires_at), (Some(START), at(10_000)));
    world.advance(4_000).await;
    assert_eq!(manager.extend_lease(&slot, lease).await, Ok(at(14_000)));
    assert_eq!(manager.release(&slot).await, Ok(()));
    refused(manager.release(&slot).await, ErrorKind::Fenced);
    refused(manager.extend_lease(&slot, lease).await, ErrorKind::Fenced);
    assert!(manager.try_acquire(&other).await.expect("a valid call").is_some());
}

pub(super) async fn a_manager_cleans_up_and_shows_jobs_too(world: &World) {
    let manager = StoreSlots::new(Arc::clone(&world.store));
    let empty = manager.get_status("gpu").await.expect("a valid call");
    assert_eq!((empty.limit, empty.active, empty.slots), (None, 0, vec![]), "no job or program has named it");
    let id = world.submit(job("gpu").cost(2)).await;
    world.worker("w1", ["gpu"]).await.claim_one().await;
    for _ in 0..2 {
        let (task_id, lease_duration) = (world.lease_id().0, Duration::from_secs(1));
        let acquire = Acquire { group: "gpu", limit: 9, task_id, worker_id: "p", lease_duration };
        manager.try_acquire(&acquire).await.expect("a valid call");
    }
    let slots = manager.get_status("gpu").await.expect("a valid call").slots;
    assert_eq!((slots.len(), slots[0].task_id, slots[0].slots), (3, id.0, 2));
    world.advance(1_000).await;
    assert_eq!(manager.cleanup_expired().await, Ok(2));
    assert_eq!(manager.cleanup_expired().await, Ok(0));
    assert_eq!(manager.get_status("gpu").await.expect("a valid call").active, 2);
}

pub(super) async fn a_manager_refuses_what_is_not_valid(world: &World) {
    let manager = StoreSlots::new(Arc::clone(&world.store));
    let (id, lease) = (world.lease_id().0, Duration::from_secs(10));
    for (group, limit, worker_id, lease_duration, field, value) in [
        ("cluster", 1, "w1", lease, "group", "cluster"),
        ("queue:q", 1, "w1", lease, "group", "queue:q"),
        ("gpu/*", 1, "w1", lease, "group", "gpu/*"),
        ("no good", 1, "w1", lease, "group", "no good"),
        ("gpu", 1, "no good", lease, "worker_id", "no good"),
        ("gpu", caps::LIMIT + 1, "w1", lease, "limit", "1000001"),
        ("gpu", 1, "w1", Duration::from_millis(99), "lease_ms", "99"),
        ("gpu", 1, "w1", Duration::from_secs(86_401), "lease_ms", "86401000"),
        ("gpu", 1, "w1", Duration::MAX, "lease_ms", "18446744073709551615"),
    ] {
        let acquire = Acquire { group, limit, task_id: id, worker_id, lease_duration };
        invalid(manager.try_acquire(&acquire).await, field, value);
    }
    assert_eq!(world.all_groups().await, []);
}
