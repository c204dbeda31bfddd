//! Queues: each has a priority, and may be paused (G8) and limited.

use super::*;

pub(super) async fn nothing_is_claimed_from_a_paused_queue(world: &World) {
    let ids = world.submit_many(3, job("t").queue("q")).await;
    let worker = world.worker("w1", ["t"]).await;
    assert_eq!(worker.claim_ids(1).await, ids[..1]);
    world.pause("q").await;
    assert_eq!(worker.claim(10).await, []);
    world.resume("q").await;
    assert_eq!(worker.claim_ids(10).await, ids[1..]);
}

pub(super) async fn a_paused_queue_accepts_jobs_and_lets_running_ones_finish(world: &World) {
    world.submit_many(2, job("t").queue("q")).await;
    let worker = world.worker("w1", ["t"]).await;
    let running = worker.claim(2).await;
    world.pause("q").await;
    world.submit(job("t").queue("q")).await;
    let settles = vec![settled(&running[0], success()), settled(&running[1], retry(0))];
    let reply = worker.exchange(settles, 10).await;
    assert_eq!(reply.settled, [Ok(JobState::Succeeded), Ok(JobState::Pending)]);
    assert_eq!(reply.claimed, [], "no job takes its slots, its retry waits");
    world.resume("q").await;
    assert_eq!(worker.claim(10).await.len(), 2);
}

pub(super) async fn a_queue_may_be_paused_before_its_first_job(world: &World) {
    world.pause("q").await;
    assert!(world.queue("q").await.paused);
    world.submit(job("t").queue("q")).await;
    assert_eq!(world.worker("w1", ["t"]).await.claim(10).await, []);
}

pub(super) async fn pausing_or_resuming_twice_is_the_same_as_once(world: &World) {
    world.submit(job("t").queue("q")).await;
    world.pause("q").await;
    world.pause("q").await;
    world.resume("q").await;
    assert!(!world.queue("q").await.paused);
    world.resume("q").await;
    assert_eq!(world.worker("w1", ["t"]).await.claim(10).await.len(), 1);
}

pub(super) async fn a_pause_survives_a_configuration(world: &World) {
    world.submit(job("t").queue("q")).await;
    world.pause("q").await;
    world.prioritize([("q", 1)]).await;
    assert_eq!(world.worker("w1", ["t"]).await.claim(10).await, []);
}

pub(super) async fn a_paused_queue_expires_and_cancels_like_any_other(world: &World) {
    let ids = world.submit_many(2, job("t").queue("q").good_until(at(10))).await;
    world.pause("q").await;
    assert_eq!(world.cancel(ids[0]).await, Ok(JobState::Cancelled));
    world.advance(10).await;
    world.sweep().await;
    assert_eq!(world.state(ids[1]).await, JobState::Expired);
}

pub(super) async fn a_queue_shows_what_stands_in_it(world: &World) {
    world.submit_many(3, job("t").queue("q")).await;
    world.submit_many(2, job("t").queue("q").run_at(at(9_000))).await;
    world.set("queue:q", 4).await;
    let worker = world.worker("w1", ["t"]).await;
    worker.claim_one().await;
    world.pause("q").await;
    let status = world.queue("q").await;
    assert_eq!((status.running, status.due, status.scheduled), (1, 2, 2));
    assert_eq!((status.limit, status.paused, status.priority), (Some(4), true, DEFAULT_QUEUE_PRIORITY));
    world.advance(9_000).await;
    worker.renew().await;
    let status = world.queue("q").await;
    assert_eq!((status.due, status.scheduled), (4, 0));
}

pub(super) async fn queues_are_listed_by_name(world: &World) {
    for queue in ["b", "c", "a"] {
        world.submit(job("t").queue(queue)).await;
    }
    world.prioritize([("z", 7)]).await;
    world.set("queue:y", 1).await;
    world.pause("x").await;
    let queues = world.store.queues().await.expect("queues");
    let names: Vec<_> = queues.iter().map(|status| &*status.queue).collect();
    assert_eq!(names, ["a", "b", "c", "x", "y", "z"]);
    assert_eq!((queues[5].priority, queues[4].limit, queues[3].paused), (7, Some(1), true));
}

pub(super) async fn a_queue_counts_steps_that_are_not_next_as_waiting(world: &World) {
    let later = || step("later").queue("q");
    let specs = vec![
        step("now").queue("q"),
        step("now").queue("q"),
        step("now").queue("q").run_at(at(9_000)),
        later().run_at(at(5_000)),
        later(),
        job("step").queue("q").run_at(at(5_000)),
    ];
    world.submit_all(specs).await;
    let counts =
        |status: qo_core::QueueStatus| (status.due, status.scheduled, status.waiting, status.running);
    assert_eq!(counts(world.queue("q").await), (1, 2, 3, 0));
    let worker = world.worker("w1", ["step"]).await;
    let first = worker.claim_one().await;
    assert_eq!(counts(world.queue("q").await), (0, 2, 3, 1));
    worker.succeed(&first).await;
    assert_eq!(counts(world.queue("q").await), (1, 2, 2, 0), "the one after it is next");
    world.advance(5_000).await;
    assert_eq!(counts(world.queue("q").await), (3, 0, 2, 0), "and so have two dates");
}
