//! Costs: how many slots a job takes, and which jobs are refused because they could never run.

use super::*;

pub(super) async fn a_cost_is_taken_in_group_and_key_and_one_slot_elsewhere(world: &World) {
    world.submit(job("api").key("k").cost(4).queue("q")).await;
    world.worker("w1", ["api"]).await.claim_one().await;
    let mut used = Vec::new();
    for group in ["api", "api/k", "queue:q", "cluster"] {
        world.set(group, 9).await;
        used.push(world.used(group).await);
    }
    assert_eq!(used, [4, 4, 1, 1]);
}

pub(super) async fn a_cost_that_equals_the_limit_runs_alone(world: &World) {
    world.set("api", 4).await;
    let ids = world.submit_many(2, job("api").cost(4)).await;
    let worker = world.worker("w1", ["api"]).await;
    let first = worker.claim(10).await;
    assert_eq!(worker::ids(&first), ids[..1]);
    let reply = worker.exchange(vec![settled(&first[0], success())], 10).await;
    assert_eq!(worker::ids(&reply.claimed), ids[1..]);
}

pub(super) async fn costs_fill_a_limit_exactly(world: &World) {
    world.set("api", 10).await;
    world.submit_many(9, job("api").cost(3)).await;
    assert_eq!(world.worker("w1", ["api"]).await.claim(10).await.len(), 3);
    assert_eq!(world.used("api").await, 9);
}

pub(super) async fn a_cost_above_the_limit_is_invalid_in_any_group(world: &World) {
    world.set("api", 3).await;
    world.set("user/*", 3).await;
    world.set("mail/x", 3).await;
    world.set("gpu", 3).await;
    let before = world.snapshot().await;
    invalid(world.offer(job("api").cost(4)).await, "cost", "4");
    invalid(world.offer(job("get").group("api").cost(4)).await, "cost", "4");
    invalid(world.offer(job("user").key("joe").cost(4)).await, "cost", "4");
    invalid(world.offer(job("mail").key("x").cost(4)).await, "cost", "4");
    invalid(world.offer(job("chat").limits([("gpu", 4)])).await, "gpu", "4");
    assert_eq!(world.snapshot().await, before);
    world.submit(job("user").cost(4)).await;
    world.submit(job("chat").cost(4).limits([("gpu", 3)])).await;
}

pub(super) async fn a_cost_above_the_limit_is_invalid_whatever_on_limit_says(world: &World) {
    world.set("api", 3).await;
    refused(world.offer(job("api").cost(4).or_reject()).await, ErrorKind::Invalid);
    refused(world.offer(job("api").cost(4).or_skip()).await, ErrorKind::Invalid);
}

pub(super) async fn a_cost_above_the_jobs_submit_side_limit_is_invalid(world: &World) {
    invalid(world.offer(job("api").cost(4).limit(3)).await, "cost", "4");
    assert_eq!(world.limit("api").await, None, "and the limit is not kept");
    invalid(world.offer(job("api").key("k").cost(4).limit(3)).await, "cost", "4");
    world.set("api", 5).await;
    world.submit(job("api").cost(4).limit(3)).await;
}

pub(super) async fn a_limit_of_zero_makes_no_cost_invalid(world: &World) {
    world.set("api", 0).await;
    world.set("gpu", 0).await;
    let id = world.submit(job("api").cost(4).limits([("gpu", 7)])).await;
    let worker = world.worker("w1", ["api"]).await;
    assert_eq!(worker.claim(10).await, []);
    world.set("api", 4).await;
    world.set("gpu", 7).await;
    assert_eq!(worker.claim_ids(10).await, [id]);
}

pub(super) async fn a_limit_that_comes_with_a_call_does_not_refuse_its_other_jobs(world: &World) {
    let ids = world.submit_all(vec![job("api").limit(2), job("api").cost(3)]).await;
    let worker = world.worker("w1", ["api"]).await;
    assert_eq!(worker.claim_ids(10).await, ids[..1]);
    refused(world.offer(job("api").cost(3)).await, ErrorKind::Invalid);
}

pub(super) async fn a_job_whose_limit_fell_below_its_cost_waits_and_is_not_lost(world: &World) {
    world.set("api", 4).await;
    let id = world.submit(job("api").cost(4)).await;
    world.set("api", 3).await;
    let worker = world.worker("w1", ["api"]).await;
    assert_eq!(worker.claim(10).await, []);
    assert_eq!(world.state(id).await, JobState::Pending);
    world.set("api", 5).await;
    assert_eq!(worker.claim_ids(10).await, [id]);
}

pub(super) async fn a_cost_is_checked_against_the_newest_submit_side_limit(world: &World) {
    world.submit(job("api").limit(3)).await;
    refused(world.offer(job("api").cost(4)).await, ErrorKind::Invalid);
    world.submit(job("api").cost(4).limit(5)).await;
    invalid(world.offer(job("api").cost(4).limit(3)).await, "cost", "4");
    assert_eq!(world.limit("api").await, Some(5));
}
