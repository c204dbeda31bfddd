//! `ConcurrencyManager`: standalone slots in five calls, over any store.

use super::*;
use std::{sync::Arc, time::Duration};

pub(super) async fn a_manager_takes_extends_and_gives_back(world: &World) {
    let manager = ConcurrencyManager::new(Arc::clone(&world.store));
    let (id, other, lease) = (world.lease_id().0, world.lease_id().0, Duration::from_secs(10));
    let slot = manager.try_acquire("gpu", 1, id, "w1", lease).await.expect("a valid call").expect("room");
    assert_eq!(manager.try_acquire("gpu", 1, id, "w1", lease).await, Ok(Some(slot)), "the same call again");
    assert_eq!(manager.try_acquire("gpu", 1, other, "w2", lease).await, Ok(None));
    let status = manager.get_status("gpu").await.expect("a valid call");
    assert_eq!((status.limit, status.active, status.slots.len()), (Some(1), 1, 1));
    let info = &status.slots[0];
    assert_eq!((info.slot_id, info.slots, info.task_id, &*info.worker_id), (slot.token, 1, id, "w1"));
    assert_eq!((info.acquired_at, info.expires_at), (START, at(10_000)));
    world.advance(4_000).await;
    assert_eq!(manager.extend_lease("gpu", slot.token, id, lease).await, Ok(at(14_000)));
    assert_eq!(manager.release("gpu", slot.token, id).await, Ok(()));
    refused(manager.release("gpu", slot.token, id).await, ErrorKind::Fenced);
    refused(manager.extend_lease("gpu", slot.token, id, lease).await, ErrorKind::Fenced);
    assert!(manager.try_acquire("gpu", 1, other, "w2", lease).await.expect("a valid call").is_some());
}

pub(super) async fn a_manager_cleans_up_and_shows_jobs_too(world: &World) {
    let manager = ConcurrencyManager::new(Arc::clone(&world.store));
    let empty = manager.get_status("gpu").await.expect("a valid call");
    assert_eq!((empty.limit, empty.active, empty.slots), (None, 0, vec![]), "no job or program has named it");
    let id = world.submit(job("gpu").cost(2)).await;
    world.worker("w1", ["gpu"]).await.claim_one().await;
    for _ in 0..2 {
        let lease = Duration::from_secs(1);
        manager.try_acquire("gpu", 9, world.lease_id().0, "p", lease).await.expect("a valid call");
    }
    let slots = manager.get_status("gpu").await.expect("a valid call").slots;
    assert_eq!((slots.len(), slots[0].task_id, slots[0].slots), (3, id.0, 2));
    world.advance(1_000).await;
    assert_eq!(manager.cleanup_expired().await, Ok(2));
    assert_eq!(manager.cleanup_expired().await, Ok(0));
    assert_eq!(manager.get_status("gpu").await.expect("a valid call").active, 2);
}

pub(super) async fn a_manager_refuses_what_is_not_valid(world: &World) {
    let manager = ConcurrencyManager::new(Arc::clone(&world.store));
    let (id, lease) = (world.lease_id().0, Duration::from_secs(10));
    for (group, limit, worker, lease, field, value) in [
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
        invalid(manager.try_acquire(group, limit, id, worker, lease).await, field, value);
    }
    assert_eq!(world.all_groups().await, []);
}
