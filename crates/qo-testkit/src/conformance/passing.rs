//! Passing over: a full group, a missing handler or a future date delays no other job (G7), and a job that is passed
//! over is not lost.

use super::*;

pub(super) async fn a_full_group_delays_no_other_job(world: &World) {
    world.set("slow", 1).await;
    world.submit_many(2_000, job("slow")).await;
    let fast = world.submit_many(3, job("fast")).await;
    let worker = world.worker("w1", ["slow", "fast"]).await;
    worker.claim_one().await;
    assert_eq!(worker.claim_ids(10).await, fast);
}

pub(super) async fn a_held_group_delays_no_other_job(world: &World) {
    world.set("slow", 0).await;
    world.submit_many(2_000, job("slow")).await;
    let fast = world.submit(job("fast")).await;
    assert_eq!(world.worker("w1", ["slow", "fast"]).await.claim_ids(10).await, [fast]);
}

pub(super) async fn a_full_key_delays_no_other_key(world: &World) {
    world.set("user/*", 1).await;
    world.submit_many(2_000, job("user").key("greedy")).await;
    let modest = world.submit(job("user").key("modest")).await;
    let unkeyed = world.submit(job("user")).await;
    let claimed = world.worker("w1", ["user"]).await.claim_ids(10).await;
    assert_eq!(claimed[1..], [modest, unkeyed]);
}

pub(super) async fn a_full_extra_group_delays_no_other_job(world: &World) {
    world.set("gpu", 1).await;
    world.submit_many(1_500, job("chat").limits([("gpu", 1)])).await;
    let plain = world.submit(job("chat")).await;
    assert_eq!(world.worker("w1", ["chat"]).await.claim_ids(10).await[1..], [plain]);
}

pub(super) async fn a_full_queue_delays_no_other_queue(world: &World) {
    world.set("queue:slow", 1).await;
    world.submit_many(1_500, job("t").queue("slow")).await;
    let fast = world.submit(job("t").queue("fast")).await;
    assert_eq!(world.worker("w1", ["t"]).await.claim_ids(10).await[1..], [fast]);
}

pub(super) async fn a_paused_queue_delays_no_other_queue(world: &World) {
    world.submit_many(1_500, job("t").queue("slow")).await;
    let fast = world.submit(job("t").queue("fast")).await;
    world.pause("slow").await;
    assert_eq!(world.worker("w1", ["t"]).await.claim_ids(10).await, [fast]);
}

pub(super) async fn a_future_date_delays_no_other_job(world: &World) {
    world.submit_many(1_500, job("t").run_at(at(60_000)).priority(-1)).await;
    let now = world.submit(job("t")).await;
    assert_eq!(world.worker("w1", ["t"]).await.claim_ids(10).await, [now]);
}

pub(super) async fn a_missing_handler_delays_no_other_job(world: &World) {
    world.submit_many(1_500, job("unknown").priority(-1)).await;
    let known = world.submit(job("known")).await;
    assert_eq!(world.worker("w1", ["known"]).await.claim_ids(10).await, [known]);
}

pub(super) async fn an_unknown_task_is_left_for_a_worker_that_has_it(world: &World) {
    let id = world.submit(job("unknown")).await;
    let other = world.worker("w1", ["known"]).await;
    assert_eq!(other.claim(10).await, []);
    world.sweep().await;
    let view = world.view(id).await;
    assert_eq!((view.state, view.attempts_used), (JobState::Pending, 0));
    assert_eq!(world.worker("w2", ["known", "unknown"]).await.claim_ids(10).await, [id]);
}

pub(super) async fn a_worker_gets_jobs_of_its_queues_only(world: &World) {
    let mut ids = Vec::new();
    for queue in ["a", "b", "c", "a"] {
        ids.push(world.submit(job("t").queue(queue)).await);
    }
    let some = world.open(serving("w1", ["t"]).queues(["a", "c"])).await;
    assert_eq!(some.claim_ids(10).await, [ids[0], ids[2], ids[3]]);
    let all = world.worker("w2", ["t"]).await;
    assert_eq!(all.claim_ids(10).await, [ids[1]], "a worker that names no queue serves all");
}

pub(super) async fn a_job_passed_over_by_one_worker_is_there_for_the_next(world: &World) {
    let ids = world.submit_all(vec![job("a"), job("b"), job("a"), job("b")]).await;
    let (one, two) = (world.worker("w1", ["a"]).await, world.worker("w2", ["b"]).await);
    assert_eq!(two.claim_ids(10).await, [ids[1], ids[3]]);
    assert_eq!(one.claim_ids(10).await, [ids[0], ids[2]]);
}

pub(super) async fn tasks_of_one_group_do_not_hide_each_other(world: &World) {
    world.set("api", 2).await;
    world.submit_many(3, job("get").group("api")).await;
    let put = world.submit_many(3, job("put").group("api")).await;
    let worker = world.worker("w1", ["put"]).await;
    assert_eq!(worker.claim_ids(10).await, put[..2], "the first in the group's line is not its to run");
}

pub(super) async fn a_job_full_in_one_group_does_not_hide_the_next_of_its_other_group(world: &World) {
    world.set("api", 5).await;
    world.set("gpu", 0).await;
    world.submit_many(3, job("t").group("api").limits([("gpu", 1)])).await;
    let plain = world.submit_many(2, job("t").group("api")).await;
    assert_eq!(world.worker("w1", ["t"]).await.claim_ids(10).await, plain);
}

pub(super) async fn a_job_waiting_for_two_groups_runs_when_both_have_room(world: &World) {
    world.set("api", 0).await;
    world.set("gpu", 0).await;
    let id = world.submit(job("t").group("api").limits([("gpu", 1)])).await;
    let worker = world.worker("w1", ["t"]).await;
    assert_eq!(worker.claim(1).await, []);
    world.set("api", 1).await;
    assert_eq!(worker.claim(1).await, []);
    world.set("gpu", 1).await;
    assert_eq!(worker.claim_ids(1).await, [id]);
}
