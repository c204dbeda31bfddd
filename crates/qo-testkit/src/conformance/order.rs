//! Claim order: queue priority, job priority, `run_at`, acceptance.

use super::*;

async fn claimed_in_order(world: &World, expected: &[JobId]) {
    let worker = world.worker("w1", ["t"]).await;
    assert_eq!(worker.claim_ids(caps::CLAIM).await, expected);
}

pub(super) async fn jobs_run_in_the_order_of_their_acceptance(world: &World) {
    let mut ids = Vec::new();
    for _ in 0..5 {
        ids.push(world.submit(job("t")).await);
    }
    claimed_in_order(world, &ids).await;
}

pub(super) async fn acceptance_counts_and_not_the_id(world: &World) {
    let (low, high) = (world.job_id(), world.job_id());
    world.submit_all(vec![job("t").id(high), job("t").id(low)]).await;
    claimed_in_order(world, &[high, low]).await;
}

pub(super) async fn a_lower_priority_runs_first(world: &World) {
    let mut by_priority = Vec::new();
    for priority in [0, 5, -5, i32::MAX, i32::MIN, 1, -1] {
        by_priority.push((priority, world.submit(job("t").priority(priority)).await));
    }
    by_priority.sort_unstable();
    let ids: Vec<_> = by_priority.into_iter().map(|(_, id)| id).collect();
    claimed_in_order(world, &ids).await;
}

pub(super) async fn an_earlier_run_at_runs_first(world: &World) {
    let late = world.submit(job("t").run_at(at(20))).await;
    let early = world.submit(job("t").run_at(at(10))).await;
    let now = world.submit(job("t")).await;
    let past = world.submit(job("t").run_at(Time::from_millis(5))).await;
    world.advance(30).await;
    claimed_in_order(world, &[past, now, early, late]).await;
}

pub(super) async fn priority_comes_before_run_at(world: &World) {
    let later = world.submit(job("t").run_at(at(10))).await;
    let urgent = world.submit(job("t").run_at(at(20)).priority(-1)).await;
    world.advance(20).await;
    claimed_in_order(world, &[urgent, later]).await;
}

pub(super) async fn queue_priority_comes_before_job_priority(world: &World) {
    world.prioritize([("first", 1), ("last", 1_000)]).await;
    let last = world.submit(job("t").queue("last").priority(-9)).await;
    let unnamed = world.submit(job("t").queue("unnamed").priority(-8)).await;
    let first = world.submit(job("t").queue("first").priority(9)).await;
    claimed_in_order(world, &[first, unnamed, last]).await;
}

pub(super) async fn queues_of_one_priority_share_one_line(world: &World) {
    let mut ids = Vec::new();
    for queue in ["b", "a", "c", "a", "b"] {
        ids.push(world.submit(job("t").queue(queue)).await);
    }
    claimed_in_order(world, &ids).await;
}

pub(super) async fn a_new_queue_priority_counts_for_jobs_in_line(world: &World) {
    let a = world.submit(job("t").queue("a")).await;
    let b = world.submit(job("t").queue("b")).await;
    world.prioritize([("b", 50)]).await;
    claimed_in_order(world, &[b, a]).await;
}

pub(super) async fn a_configuration_without_a_queue_gives_it_the_default_again(world: &World) {
    let a = world.submit(job("t").queue("a")).await;
    let b = world.submit(job("t").queue("b")).await;
    world.prioritize([("b", 1)]).await;
    world.prioritize([]).await;
    assert_eq!(world.queue("b").await.priority, DEFAULT_QUEUE_PRIORITY);
    claimed_in_order(world, &[a, b]).await;
}

pub(super) async fn lanes_of_different_groups_merge_in_order(world: &World) {
    world.set("a", 2).await;
    world.set("b", 3).await;
    let mut ids = Vec::new();
    for group in ["a", "b", "a", "c", "b", "a", "c", "b", "b", "c"] {
        ids.push(world.submit(job("t").group(group)).await);
    }
    let expected: Vec<_> = [0, 1, 2, 3, 4, 6, 7, 9].map(|place| ids[place]).into();
    claimed_in_order(world, &expected).await;
}

pub(super) async fn a_passed_over_job_keeps_its_place(world: &World) {
    world.set("a", 0).await;
    let held = world.submit(job("t").group("a")).await;
    let other = world.submit_many(2, job("t")).await;
    let worker = world.worker("w1", ["t"]).await;
    assert_eq!(worker.claim_ids(1).await, other[..1]);
    world.set("a", 1).await;
    assert_eq!(worker.claim_ids(5).await, [held, other[1]]);
}

pub(super) async fn a_released_job_keeps_its_place(world: &World) {
    let ids = world.submit_many(3, job("t")).await;
    let worker = world.worker("w1", ["t"]).await;
    let first = worker.claim_one().await;
    world.advance(1_000).await;
    worker.settle(&first, Outcome::Release).await.expect("it owns the job");
    assert_eq!(worker.claim_ids(5).await, ids);
}

pub(super) async fn a_retried_job_goes_behind_jobs_that_waited_longer(world: &World) {
    let ids = world.submit_many(2, job("t")).await;
    let worker = world.worker("w1", ["t"]).await;
    let first = worker.claim_one().await;
    world.advance(1_000).await;
    worker.settle(&first, retry(0)).await.expect("it owns the job");
    let later = world.submit(job("t")).await;
    assert_eq!(worker.claim_ids(5).await, [ids[1], ids[0], later]);
}

pub(super) async fn a_job_that_lost_its_lease_keeps_its_place(world: &World) {
    let ids = world.submit_many(3, job("t")).await;
    let dead = world.worker("dead", ["t"]).await;
    dead.claim_one().await;
    world.advance(30_000).await;
    claimed_in_order(world, &ids).await;
}

pub(super) async fn a_claim_takes_at_most_as_many_as_it_asks_for(world: &World) {
    world.submit_many(5, job("t")).await;
    let worker = world.worker("w1", ["t"]).await;
    assert_eq!(worker.claim(0).await.len(), 0);
    assert_eq!(worker.claim(2).await.len(), 2);
    assert_eq!(worker.claim(9).await.len(), 3);
}

pub(super) async fn max_claim_batch_spreads_a_claim_over_queues(world: &World) {
    let a = world.submit_many(4, job("t").queue("a")).await;
    let b = world.submit_many(4, job("t").queue("b")).await;
    let worker = world.worker("w1", ["t"]).await;
    let claim = Claim { max: 7, max_claim_batch: Some(2), prefetch: None };
    let reply = worker.send(Exchange { claim, ..worker.next() }).await.expect("the session is live");
    assert_eq!(worker::ids(&reply.claimed), [a[0], a[1], b[0], b[1]]);
    let reply = worker.send(Exchange { claim, ..worker.next() }).await.expect("the session is live");
    assert_eq!(worker::ids(&reply.claimed), [a[2], a[3], b[2], b[3]], "it counts each claim by itself");
}

pub(super) async fn a_full_key_leaves_its_queue_its_share_of_a_claim(world: &World) {
    world.set("t/*", 2).await;
    let full = world.submit_many(3, job("t").queue("a").key("ann")).await;
    let a = world.submit_many(45, job("u").queue("a")).await;
    let b = world.submit(job("t").queue("b")).await;
    let worker = world.worker("w1", ["t", "u"]).await;
    let claim = Claim { max: 51, max_claim_batch: Some(45), prefetch: None };
    let reply = worker.send(Exchange { claim, ..worker.next() }).await.expect("the session is live");
    // The third job of the full key is passed over. The next job of its queue gets its place, before the other queue's.
    let expected: Vec<_> = full[..2].iter().chain(&a[..43]).chain([&b]).copied().collect();
    assert_eq!(worker::ids(&reply.claimed), expected);
}

pub(super) async fn keys_do_not_change_the_order(world: &World) {
    world.set("t/*", 2).await;
    let mut ids = Vec::new();
    for key in ["a", "b", "a", "c", "a", "b", "b", "c", "c"] {
        ids.push(world.submit(job("t").key(key)).await);
    }
    let expected: Vec<_> = [0, 1, 2, 3, 5, 7].map(|place| ids[place]).into();
    claimed_in_order(world, &expected).await;
}

pub(super) async fn a_job_whose_slot_came_free_is_where_it_was_in_line(world: &World) {
    world.set("t/*", 1).await;
    let worker = world.worker("w1", ["t"]).await;
    world.submit(job("t").key("a")).await;
    let running = worker.claim_one().await;
    let waiting = world.submit(job("t").key("a")).await;
    let others = world.submit_many(3, job("t")).await;
    assert_eq!(worker.claim_ids(1).await, others[..1]);
    let reply = worker.exchange(vec![settled(&running, success())], 2).await;
    assert_eq!(worker::ids(&reply.claimed), [waiting, others[1]]);
}

pub(super) async fn a_group_of_many_tasks_costs_and_keys_has_one_line(world: &World) {
    world.set("api", 2).await;
    let mut ids = Vec::new();
    for place in 0..24 {
        let spec = job(["t", "u", "v"][place % 3]).group("api").cost(2 - (place / 3 % 2) as u32);
        ids.push(
            world.submit(if place % 5 == 0 { spec } else { spec.key(&format!("k{}", place % 4)) }).await,
        );
    }
    let worker = world.worker("w1", ["t", "u", "v"]).await;
    let mut seen = Vec::new();
    loop {
        let claimed = worker.claim(10).await;
        if claimed.is_empty() {
            break;
        }
        seen.extend(worker::ids(&claimed));
        worker.succeed_all(&claimed).await;
    }
    assert_eq!(seen, ids, "big ones reserve, so no job overtakes another");
}

pub(super) async fn priorities_hold_inside_and_across_keys(world: &World) {
    world.set("t/*", 1).await;
    let mut ids = Vec::new();
    for (key, priority) in [("a", 0), ("a", -1), ("b", 1), ("b", -2), ("c", 0), ("d", -1)] {
        ids.push(world.submit(job("t").key(key).priority(priority)).await);
    }
    claimed_in_order(world, &[ids[3], ids[1], ids[5], ids[4]]).await;
}
