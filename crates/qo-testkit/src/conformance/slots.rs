//! The life of a slot: how long it is held, what frees it, and what a changed limit does to it (G5, G8).

use super::*;

pub(super) async fn every_outcome_frees_the_slots_at_once(world: &World) {
    world.set("api", 2).await;
    let worker = world.worker("w1", ["api"]).await;
    let outcomes =
        [success(), retry(60_000), failure(), snooze(60_000), Outcome::Cancelled, Outcome::Release];
    for outcome in outcomes {
        world.submit(job("api").cost(2).key("k").queue("q").limits([("gpu", 3)])).await;
        let claimed = worker.claim_one().await;
        assert_eq!(world.used("api").await, 2);
        worker.settle(&claimed, outcome.clone()).await.expect("it owns the job");
        for group in ["api", "api/k", "queue:q", "gpu", "cluster"] {
            assert_eq!(world.used(group).await, 0, "{group} after {outcome:?}");
        }
    }
}

pub(super) async fn a_freed_slot_goes_to_the_next_job_in_the_same_exchange(world: &World) {
    world.set("api", 1).await;
    let ids = world.submit_many(3, job("api")).await;
    let worker = world.worker("w1", ["api"]).await;
    let first = worker.claim_one().await;
    let reply = worker.exchange(vec![settled(&first, success())], 5).await;
    assert_eq!(worker::ids(&reply.claimed), [ids[1]]);
    assert_eq!(world.used("api").await, 1);
}

pub(super) async fn a_slot_freed_by_one_worker_is_there_for_another(world: &World) {
    world.set("api", 1).await;
    let ids = world.submit_many(2, job("api")).await;
    let (one, two) = (world.worker("w1", ["api"]).await, world.worker("w2", ["api"]).await);
    let first = one.claim_one().await;
    assert_eq!(two.claim(5).await, []);
    one.succeed(&first).await;
    assert_eq!(two.claim_ids(5).await, [ids[1]]);
}

pub(super) async fn a_lowered_limit_stops_no_running_job(world: &World) {
    world.set("api", 3).await;
    world.submit_many(6, job("api")).await;
    let worker = world.worker("w1", ["api"]).await;
    let running = worker.claim(10).await;
    world.set("api", 1).await;
    assert_eq!((world.used("api").await, world.status("api").await.limit), (3, Some(1)));
    assert_eq!(worker.claim(10).await, [], "nothing starts while three run");
    worker.succeed_all(&running[..2]).await;
    assert_eq!(worker.claim(10).await, [], "nothing starts while one runs");
    worker.succeed(&running[2]).await;
    assert_eq!(worker.claim(10).await.len(), 1);
}

pub(super) async fn a_limit_lowered_to_zero_lets_running_jobs_finish(world: &World) {
    world.submit_many(3, job("api")).await;
    let worker = world.worker("w1", ["api"]).await;
    let running = worker.claim(2).await;
    world.set("api", 0).await;
    worker.succeed(&running[0]).await;
    assert_eq!(worker.settle(&running[1], retry(0)).await, Ok(JobState::Pending));
    assert_eq!(worker.claim(10).await, []);
    world.unset("api").await;
    assert_eq!(worker.claim(10).await.len(), 2);
}

pub(super) async fn a_raised_limit_lets_waiting_jobs_go_at_once(world: &World) {
    world.set("api", 1).await;
    let ids = world.submit_many(5, job("api")).await;
    let worker = world.worker("w1", ["api"]).await;
    assert_eq!(worker.claim_ids(10).await, ids[..1]);
    world.set("api", 4).await;
    assert_eq!(worker.claim_ids(10).await, ids[1..4]);
}

pub(super) async fn a_limit_binds_workers_that_were_there_before_it(world: &World) {
    let old = world.worker("old", ["api"]).await;
    old.renew().await;
    world.submit_many(5, job("api")).await;
    world.set("api", 2).await;
    assert_eq!(old.claim(10).await.len(), 2);
}

pub(super) async fn a_retry_holds_slots_like_any_run(world: &World) {
    world.set("api", 1).await;
    let ids = world.submit_many(2, job("api")).await;
    let worker = world.worker("w1", ["api"]).await;
    let first = worker.claim_one().await;
    worker.settle(&first, retry(0)).await.expect("it owns the job");
    let second = worker.claim(10).await;
    assert_eq!(worker::ids(&second), [ids[0]], "its run_at is not later than the other's, it was first");
    assert_eq!((second[0].attempt, world.used("api").await), (2, 1));
    assert_eq!(worker.claim(10).await, []);
}

pub(super) async fn a_job_that_waits_for_its_retry_holds_nothing(world: &World) {
    world.set("api", 1).await;
    let ids = world.submit_many(2, job("api")).await;
    let worker = world.worker("w1", ["api"]).await;
    let first = worker.claim_one().await;
    worker.settle(&first, retry(60_000)).await.expect("it owns the job");
    assert_eq!(worker.claim_ids(10).await, [ids[1]]);
}

pub(super) async fn a_key_stays_through_retries(world: &World) {
    world.set("user/*", 1).await;
    world.submit(job("user").key("a")).await;
    let worker = world.worker("w1", ["user"]).await;
    let first = worker.claim_one().await;
    worker.settle(&first, retry(0)).await.expect("it owns the job");
    assert_eq!(worker.claim_one().await.key, Some(key("a")));
    world.submit(job("user").key("a")).await;
    assert_eq!(worker.claim(10).await, [], "the second try holds the key");
}

pub(super) async fn a_limit_comes_and_goes_without_losing_count(world: &World) {
    world.submit_many(9, job("api")).await;
    let worker = world.worker("w1", ["api"]).await;
    world.set("api", 2).await;
    let mut running = worker.claim(10).await;
    world.unset("api").await;
    running.extend(worker.claim(3).await);
    world.set("api", 6).await;
    assert_eq!(worker.claim(10).await.len(), 1, "five ran already");
    worker.succeed_all(&running).await;
    assert_eq!(world.used("api").await, 1);
}

pub(super) async fn an_unset_limit_lets_waiting_jobs_go_at_once(world: &World) {
    world.set("api/*", 0).await;
    world.set("api", 0).await;
    world.submit_many(3, job("api").key("k")).await;
    let worker = world.worker("w1", ["api"]).await;
    assert_eq!(worker.claim(10).await, []);
    world.unset("api").await;
    assert_eq!(worker.claim(10).await, []);
    world.unset("api/*").await;
    assert_eq!(worker.claim(10).await.len(), 3);
}

pub(super) async fn a_raised_limit_lets_jobs_programs_and_starts_go_at_once(world: &World) {
    world.set("api", 0).await;
    world.submit_many(4, job("api")).await;
    let worker = world.worker("w1", ["api"]).await;
    assert_eq!((worker.ahead(9).await, worker.claim(9).await), (vec![], vec![]));
    world.set("api", 3).await;
    let claimed = worker.ahead_one().await;
    world.hold(program("api")).await;
    worker.run(&claimed).await;
    assert_eq!((worker.claim(9).await.len(), world.used("api").await), (1, 3));
}
