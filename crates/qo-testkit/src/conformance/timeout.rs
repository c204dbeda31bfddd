//! Timeouts: the store ends the lease 10 s after the timeout, even if the session renews.

use super::*;

pub(super) async fn a_timeout_ends_a_lease_after_ten_seconds_though_its_worker_renews(world: &World) {
    world.set("t", 1).await;
    let id = world.submit(job("t").timeout(5_000)).await;
    let worker = world.worker("w1", ["t"]).await;
    let claimed = worker.claim_one().await;
    world.advance(14_999).await;
    assert_eq!(worker.renew().await.stop, []);
    assert_eq!((world.sweep().await.attempts, world.state(id).await), (0, JobState::Running));
    world.advance(1).await;
    let stop = Stop { job: id, token: claimed.token, reason: StopReason::LeaseEnded };
    assert_eq!(worker.renew().await.stop, [stop]);
    let detail = world.detail(id).await;
    assert_eq!((detail.view.state, detail.view.attempts_used), (JobState::Pending, 1));
    assert_eq!(detail.attempts[0].outcome, AttemptOutcome::TimedOut);
    assert_eq!((detail.view.run_at, world.used("t").await), (START, 0));
}

pub(super) async fn a_worker_may_settle_until_the_timeout_is_enforced(world: &World) {
    world.submit(job("t").timeout(5_000)).await;
    let worker = world.worker("w1", ["t"]).await;
    let claimed = worker.claim_one().await;
    world.advance(20_000).await;
    worker.succeed(&claimed).await;
}

pub(super) async fn a_sweep_enforces_timeouts(world: &World) {
    let id = world.submit(job("t").timeout(5_000)).await;
    let worker = world.open(serving("w1", ["t"]).lease(90_000)).await;
    let claimed = worker.claim_one().await;
    world.advance(15_000).await;
    let swept = world.sweep().await;
    assert_eq!((swept.sessions, swept.attempts), (0, 1));
    refused(worker.settle(&claimed, success()).await, ErrorKind::Fenced);
    assert_eq!(world.state(id).await, JobState::Pending);
}

pub(super) async fn the_slot_of_a_timed_out_job_is_granted_in_the_same_exchange(world: &World) {
    world.set("t", 1).await;
    world.submit(job("t").timeout(1)).await;
    let worker = world.open(serving("w1", ["t"]).lease(90_000)).await;
    worker.claim_one().await;
    let next = world.submit(job("t").priority(-1)).await;
    world.advance(10_001).await;
    assert_eq!(worker.claim_ids(5).await, [next]);
}

pub(super) async fn every_attempt_has_the_whole_timeout(world: &World) {
    world.submit(job("t").timeout(5_000)).await;
    let worker = world.worker("w1", ["t"]).await;
    let first = worker.claim_one().await;
    world.advance(14_000).await;
    worker.settle(&first, retry(0)).await.expect("it owns the job");
    let second = worker.claim_one().await;
    world.advance(14_999).await;
    assert_eq!(worker.renew().await.stop, []);
    worker.succeed(&second).await;
}

pub(super) async fn the_last_attempt_that_times_out_fails(world: &World) {
    let id = world.submit(job("t").timeout(5_000).attempts(1)).await;
    let worker = world.worker("w1", ["t"]).await;
    worker.claim_one().await;
    world.advance(15_000).await;
    worker.renew().await;
    assert_eq!(world.state(id).await, JobState::Failed);
}

pub(super) async fn a_cancelled_job_that_times_out_is_cancelled(world: &World) {
    let id = world.submit(job("t").timeout(5_000)).await;
    let worker = world.worker("w1", ["t"]).await;
    worker.claim_one().await;
    world.cancel(id).await.expect("it is there");
    world.advance(15_000).await;
    worker.renew().await;
    assert_eq!(world.state(id).await, JobState::Cancelled);
}

pub(super) async fn a_job_without_a_timeout_runs_as_long_as_it_renews(world: &World) {
    world.submit(job("t")).await;
    let worker = world.worker("w1", ["t"]).await;
    let claimed = worker.claim_one().await;
    for _ in 0..100 {
        world.advance(25_000).await;
        assert_eq!(worker.renew().await.stop, []);
    }
    worker.succeed(&claimed).await;
}

pub(super) async fn a_task_may_give_the_timeout(world: &World) {
    world.register(TaskOptions { timeout_ms: Some(1_000), ..task("t") }).await;
    let ids = world.submit_all(vec![job("t"), job("t").timeout(9_000)]).await;
    let worker = world.worker("w1", ["t"]).await;
    worker.claim(2).await;
    world.register(task("t")).await;
    world.advance(11_000).await;
    worker.renew().await;
    assert_eq!(world.state(ids[0]).await, JobState::Pending, "the task's timeout at claim counts");
    assert_eq!(world.state(ids[1]).await, JobState::Running, "the job's own timeout counts");
}

pub(super) async fn a_lease_ends_with_the_session_or_the_timeout_whichever_is_first(world: &World) {
    let ids = world.submit_all(vec![job("t").timeout(5_000), job("t").timeout(60_000)]).await;
    world.worker("w1", ["t"]).await.claim(2).await;
    let mut ends = Vec::new();
    for id in ids {
        ends.push(world.view(id).await.running.map(|running| running.lease_until));
    }
    assert_eq!(ends, [Some(at(15_000)), Some(at(30_000))]);
}
