//! Totals: how often slots of a group were taken and refused, and since when a job was due.

use super::*;
use qo_core::ExchangeReply;

async fn total(world: &World, group: &str) -> (u64, u64) {
    let status = world.status(group).await;
    (status.acquired, status.rejected)
}

pub(super) async fn a_claim_counts_once_in_each_group_that_has_a_limit(world: &World) {
    for (group, limit) in [("cluster", 9), ("queue:default", 9), ("t", 9), ("t/*", 2), ("gpu", 9)] {
        world.set(group, limit).await;
    }
    world
        .submit_all(vec![job("t").key("a").cost(2).limits([("gpu", 3), ("free", 1)]), job("t").key("b")])
        .await;
    let worker = world.worker("w1", ["t"]).await;
    let reply = worker.exchange(Vec::new(), 9).await;
    assert_eq!(reply.claimed.len(), 2);
    assert_eq!(worker.repeat().await.expect("the recorded reply"), reply);
    for (group, acquired) in [("cluster", 2), ("queue:default", 2), ("t", 2), ("t/*", 2), ("gpu", 1)] {
        assert_eq!(total(world, group).await, (acquired, 0), "{group}");
    }
    assert_eq!(total(world, "t/a").await, (0, 0), "keys are counted together");
    assert_eq!(total(world, "free").await, (0, 0), "it has no limit");
}

pub(super) async fn each_attempt_and_each_program_counts_and_totals_outlive_them(world: &World) {
    world.set("t", 5).await;
    world.submit(job("t")).await;
    let worker = world.worker("w1", ["t"]).await;
    let claimed = worker.claim_one().await;
    let again = worker.exchange(vec![settled(&claimed, retry(0))], 1).await.claimed;
    let program = world.hold(program("t")).await;
    worker.succeed_all(&again).await;
    world.sweep().await;
    drop(program);
    world.advance(DAY_MS * 2).await;
    world.sweep().await;
    assert_eq!(total(world, "t").await, (3, 0));
}

pub(super) async fn a_job_that_is_claimed_ahead_of_time_counts_when_it_starts(world: &World) {
    world.set("t", 5).await;
    world.submit(job("t")).await;
    let worker = world.worker("w1", ["t"]).await;
    let ahead = worker.ahead_one().await;
    assert_eq!(total(world, "t").await, (0, 0));
    worker.run(&ahead).await;
    assert_eq!(total(world, "t").await, (1, 0));
}

pub(super) async fn refused_submits_and_refused_programs_count_as_rejected(world: &World) {
    world.set("t", 1).await;
    world.set("u/*", 1).await;
    world.submit_all(vec![job("t"), job("u").key("a")]).await;
    world.offer(job("t").or_reject()).await.expect_err("the group is full");
    assert_eq!(world.offer(job("t").or_skip()).await, Ok(Submitted::Skipped));
    world.offer(job("u").key("a").or_reject()).await.expect_err("the key is full");
    assert_eq!(world.worker("w1", ["t"]).await.claim(1).await.len(), 1);
    assert!(world.is_full(program("t")).await);
    // A store may count a refusal with its next write.
    world.sweep().await;
    world.pause("other").await;
    assert_eq!(total(world, "t").await, (1, 3));
    assert_eq!(total(world, "u/*").await, (0, 1));
}

pub(super) async fn a_total_goes_with_the_last_limit_of_its_group(world: &World) {
    world.set("t", 1).await;
    world.submit(job("t")).await;
    world.worker("w1", ["t"]).await.claim_one().await;
    world.offer(job("t").or_reject()).await.expect_err("no room");
    world.configure([("t", 2)]).await;
    world.unset("t").await;
    assert_eq!(total(world, "t").await, (1, 1), "another source still limits it");
    world.configure::<0>([]).await;
    assert_eq!(total(world, "t").await, (0, 0));
    world.set("t", 7).await;
    assert_eq!(total(world, "t").await, (0, 0), "it begins anew");
}

pub(super) async fn a_worker_learns_since_when_its_job_was_due(world: &World) {
    world.submit(job("t")).await;
    let worker = world.worker("w1", ["t"]).await;
    world.advance(700).await;
    let reply = worker.exchange(Vec::new(), 1).await;
    let since = |reply: &ExchangeReply| reply.now.ms_since(reply.claimed[0].due_at.expect("it says so"));
    assert!(since(&reply) >= 700);
    let settles = vec![settled(&reply.claimed[0], retry(300))];
    worker.exchange(settles, 1).await;
    world.advance(400).await;
    let reply = worker.exchange(Vec::new(), 1).await;
    assert!((100..700).contains(&since(&reply)), "{}", since(&reply));
    assert_eq!(worker.repeat().await.expect("the recorded reply"), reply);
}

pub(super) async fn a_queue_says_since_when_its_oldest_job_has_been_due(world: &World) {
    world.set("t", 0).await;
    let oldest = world.submit(job("t").priority(5)).await;
    world.advance(500).await;
    let due = world.view(oldest).await.run_at;
    world.submit_all(vec![job("t"), job("t").run_at(due.plus_ms(60_000))]).await;
    assert_eq!(world.queue("default").await.oldest_due, Some(due));
    world.cancel(oldest).await.expect("cancelled");
    assert!(world.queue("default").await.oldest_due.expect("another is due") >= due.plus_ms(500));
    world.set("t", 9).await;
    world.worker("w1", ["t"]).await.claim_one().await;
    assert_eq!(world.queue("default").await.oldest_due, None);
}
