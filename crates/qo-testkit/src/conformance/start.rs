//! The start of a job that was claimed ahead of time: it takes the slots, or gives the job back as it was.

use super::prefetch::untouched;
use super::*;

/// The answer to a start that finds no room.
const GIVEN_BACK: Started = Started { then: JobState::Pending, run: None };

pub(super) async fn a_start_takes_every_slot_with_a_new_token(world: &World) {
    let id = world.submit(job("t").key("k").cost(2).queue("q").limits([("gpu", 3)])).await;
    let worker = world.worker("w1", ["t"]).await;
    let claimed = worker.ahead_one().await;
    world.set("t", 5).await;
    world.advance(1_000).await;
    let running = worker.run(&claimed).await;
    assert!(running.token > claimed.token, "{running:?} after {claimed:?}");
    let mut used = Vec::new();
    for group in ["t", "t/k", "gpu", "queue:q", "cluster"] {
        used.push(world.used(group).await);
    }
    assert_eq!(used, [2, 2, 3, 1, 1]);
    let view = world.view(id).await;
    let owner = view.running.expect("it runs");
    assert_eq!((view.state, view.claimed), (JobState::Running, None));
    assert_eq!((owner.token, owner.since), (running.token, at(1_000)));
    refused(worker.settle(&claimed, success()).await, ErrorKind::Fenced);
    worker.succeed(&running).await;
    let attempts = world.detail(id).await.attempts;
    assert_eq!((attempts.len(), attempts[0].number, attempts[0].started_at), (1, 1, at(1_000)));
}

pub(super) async fn a_claimed_job_keeps_no_slot_from_one_that_could_run(world: &World) {
    world.set("t", 1).await;
    let ids = world.submit_many(2, job("t")).await;
    let (soft, hard) = (world.worker("soft", ["t"]).await, world.worker("hard", ["t"]).await);
    let before = world.view(ids[0]).await;
    let claimed = soft.ahead_one().await;
    assert_eq!(hard.claim_ids(10).await, ids[1..]);
    assert_eq!(soft.start(&claimed).await, Ok(GIVEN_BACK));
    untouched(world, &before).await;
    assert_eq!(world.used("t").await, 1);
}

pub(super) async fn a_start_that_finds_no_room_goes_back_to_its_place(world: &World) {
    world.set("t", 2).await;
    let ids = world.submit_many(3, job("t")).await;
    let worker = world.worker("w1", ["t"]).await;
    let before = world.view(ids[0]).await;
    let claimed = worker.ahead(2).await;
    world.advance(1_000).await;
    world.set("t", 0).await;
    assert_eq!(worker.start(&claimed[0]).await, Ok(GIVEN_BACK), "the limit fell while it was claimed");
    untouched(world, &before).await;
    refused(worker.start(&claimed[0]).await, ErrorKind::Fenced);
    world.set("t", 1).await;
    assert_eq!(worker.claim_ids(10).await, ids[..1], "before the third one");
    assert_eq!(worker.start(&claimed[1]).await, Ok(GIVEN_BACK));
}

pub(super) async fn a_start_from_a_queue_that_was_paused_is_given_back(world: &World) {
    let ids = world.submit_many(2, job("t").queue("q")).await;
    let worker = world.worker("w1", ["t"]).await;
    let before = world.view(ids[0]).await;
    let claimed = worker.ahead(2).await;
    world.pause("q").await;
    assert_eq!(world.state(ids[0]).await, JobState::Claimed, "a pause takes no claim away");
    assert_eq!(worker.start(&claimed[0]).await, Ok(GIVEN_BACK));
    untouched(world, &before).await;
    world.resume("q").await;
    worker.run(&claimed[1]).await;
}

pub(super) async fn a_start_does_not_overtake_a_big_job(world: &World) {
    world.set("t", 4).await;
    world.submit_many(3, job("t")).await;
    let worker = world.worker("w1", ["t"]).await;
    let running = worker.claim(2).await;
    let claimed = worker.ahead_one().await;
    let big = world.submit(job("t").cost(3).priority(-1)).await;
    assert_eq!(worker.start(&claimed).await, Ok(GIVEN_BACK), "two slots are free, and kept");
    let reply = worker.exchange(vec![settled(&running[0], success())], 10).await;
    assert_eq!(worker::ids(&reply.claimed), [big]);
}

pub(super) async fn a_claimed_big_job_reserves_nothing(world: &World) {
    let (one, two) = (world.worker("w1", ["t"]).await, world.worker("w2", ["t"]).await);
    world.submit(job("t").cost(3)).await;
    let big = one.ahead_one().await;
    // The group had no limit when the job was claimed: otherwise the job would have stayed in line.
    world.set("t", 3).await;
    let small = world.submit(job("t")).await;
    assert_eq!(two.claim_ids(10).await, [small], "it is no longer in line");
    assert_eq!(one.start(&big).await, Ok(GIVEN_BACK));
    world.submit(job("t")).await;
    assert_eq!(two.claim_ids(10).await, [], "now it is");
}

pub(super) async fn until_the_event_a_late_claim_may_start(world: &World) {
    world.submit(job("t")).await;
    let worker = world.worker("w1", ["t"]).await;
    let claimed = worker.ahead_one().await;
    world.advance(CLAIM_MS + 1_000).await;
    let running = worker.run(&claimed).await;
    worker.succeed(&running).await;
}

pub(super) async fn a_draining_worker_gives_its_claims_back_after_its_starts(world: &World) {
    let ids = world.submit_many(3, job("t")).await;
    let (worker, other) = (world.worker("w1", ["t"]).await, world.worker("w2", ["t"]).await);
    let claimed = worker.ahead(3).await;
    let starts = vec![starting(&claimed[1])];
    let exchange = Exchange { starts, draining: true, ..worker.next() };
    let reply = worker.send(exchange).await.expect("the session is live");
    assert_eq!(reply.started[0].as_ref().map(|started| started.then), Ok(JobState::Running));
    assert_eq!(reply.stop, [], "it knows");
    assert_eq!(other.claim_ids(10).await, [ids[0], ids[2]]);
    refused(worker.start(&claimed[0]).await, ErrorKind::Fenced);
}

pub(super) async fn starts_come_after_settles_in_order_and_before_claims(world: &World) {
    let ids = world.submit_many(4, job("t")).await;
    let (worker, other) = (world.worker("w1", ["t"]).await, world.worker("w2", ["t"]).await);
    let claimed = worker.ahead(2).await;
    let running = worker.claim_one().await;
    world.set("t", 1).await;
    let settles = vec![settled(&running, success())];
    let starts = vec![starting(&claimed[1]), starting(&claimed[0])];
    let claim = Claim { max: 9, ..Claim::default() };
    let exchange = Exchange { settles, starts, claim, ..worker.next() };
    let reply = worker.send(exchange).await.expect("the session is live");
    let then: Vec<_> = reply.started.iter().map(|started| started.as_ref().map(|s| s.then)).collect();
    assert_eq!(then, [Ok(JobState::Running), Ok(JobState::Pending)]);
    assert_eq!((reply.claimed, world.state(ids[1]).await), (vec![], JobState::Running));
    assert_eq!(other.claim(9).await, []);
}

pub(super) async fn timeout_and_backoff_are_those_of_the_start(world: &World) {
    world.submit(job("t")).await;
    let worker = world.worker("w1", ["t"]).await;
    let claimed = worker.ahead_one().await;
    assert_eq!((claimed.timeout_ms, claimed.retry), (None, RetryPolicy::default()));
    let backoff = RetryPolicy { base_ms: 7, ..RetryPolicy::default() };
    world.register(TaskOptions { timeout_ms: Some(1_000), retry: Some(backoff), ..task("t") }).await;
    world.advance(3_000).await;
    let running = worker.run(&claimed).await;
    assert_eq!((running.timeout_ms, running.retry), (Some(1_000), backoff));
    world.advance(10_999).await;
    assert_eq!(world.sweep().await.attempts, 0, "it counts from the start");
    world.advance(1).await;
    assert_eq!(world.sweep().await.attempts, 1);
}

pub(super) async fn a_start_of_a_step_that_is_not_next_is_given_back(world: &World) {
    let ids = world.submit_many(2, step("w").on_failure(OnFailure::Continue)).await;
    let worker = world.worker("w1", ["step"]).await;
    worker.settle(&worker.claim_one().await, failure()).await.expect("it owns the job");
    let claimed = worker.ahead_one().await;
    assert_eq!((claimed.id, world.retry(ids[0]).await), (ids[1], Ok(JobState::Pending)));
    assert_eq!(worker.start(&claimed).await, Ok(GIVEN_BACK));
    assert_eq!(worker.claim_ids(5).await, ids[..1]);
}

pub(super) async fn a_worker_that_holds_claims_may_start_others_at_once(world: &World) {
    let ids = world.submit_many(4, job("t")).await;
    let worker = world.worker("w1", ["t"]).await;
    let claimed = worker.ahead(2).await;
    assert_eq!(worker.claim_ids(9).await, ids[2..]);
    assert_eq!(worker.start_all(&claimed).await.iter().filter(|started| started.is_ok()).count(), 2);
    assert_eq!(world.used("t").await, 4);
}
