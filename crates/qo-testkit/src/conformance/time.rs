//! Dates: `run_at`, `good_until`, and how long finished jobs are remembered.

use super::*;

pub(super) async fn a_job_does_not_start_before_its_date(world: &World) {
    let id = world.submit(job("t").run_at(at(5_000))).await;
    let worker = world.worker("w1", ["t"]).await;
    world.advance(4_999).await;
    assert_eq!(worker.claim(1).await, []);
    world.advance(1).await;
    assert_eq!(worker.claim_ids(1).await, [id]);
}

pub(super) async fn a_date_in_the_past_is_due_at_once(world: &World) {
    let id = world.submit(job("t").run_at(Time::from_millis(0))).await;
    assert_eq!(world.worker("w1", ["t"]).await.claim_ids(1).await, [id]);
}

pub(super) async fn many_jobs_become_due_in_the_order_of_their_dates(world: &World) {
    let specs = (0..100).map(|place| job("t").run_at(at(1_000 - place * 10))).collect();
    let mut ids = world.submit_all(specs).await;
    ids.reverse();
    let worker = world.worker("w1", ["t"]).await;
    world.advance(500).await;
    assert_eq!(worker.claim_ids(200).await, ids[..50]);
    world.advance(500).await;
    assert_eq!(worker.claim_ids(200).await, ids[50..]);
}

pub(super) async fn a_waiting_job_expires_at_good_until_and_not_before(world: &World) {
    let id = world.submit(job("t").good_until(at(5_000))).await;
    world.advance(4_999).await;
    assert_eq!((world.sweep().await.expired, world.state(id).await), (0, JobState::Pending));
    world.advance(1).await;
    assert_eq!((world.sweep().await.expired, world.state(id).await), (1, JobState::Expired));
    let view = world.view(id).await;
    assert_eq!((view.finished_at, view.attempts_used), (Some(at(5_000)), 0));
}

pub(super) async fn a_job_may_start_until_just_before_good_until(world: &World) {
    let id = world.submit(job("t").good_until(at(5_000))).await;
    world.advance(4_999).await;
    assert_eq!(world.worker("w1", ["t"]).await.claim_ids(1).await, [id]);
}

pub(super) async fn good_until_is_checked_at_claim(world: &World) {
    let id = world.submit(job("t").good_until(at(5_000))).await;
    let worker = world.worker("w1", ["t"]).await;
    world.advance(5_000).await;
    assert_eq!(worker.claim(1).await, []);
    assert_eq!(world.state(id).await, JobState::Expired);
}

pub(super) async fn good_until_is_never_checked_during_a_run(world: &World) {
    let id = world.submit(job("t").good_until(at(5_000))).await;
    let worker = world.worker("w1", ["t"]).await;
    let claimed = worker.claim_one().await;
    world.advance(20_000).await;
    assert_eq!(world.sweep().await.expired, 0);
    assert_eq!((worker.renew().await.stop, world.state(id).await), (vec![], JobState::Running));
    worker.succeed(&claimed).await;
}

pub(super) async fn good_until_is_checked_at_retry_snooze_and_release(world: &World) {
    let worker = world.worker("w1", ["t"]).await;
    world.submit_many(3, job("t").good_until(at(5_000))).await;
    let claimed = worker.claim(3).await;
    world.advance(5_000).await;
    for (job, outcome) in claimed.iter().zip([retry(0), snooze(0), Outcome::Release]) {
        assert_eq!(worker.settle(job, outcome).await, Ok(JobState::Expired));
        assert_eq!(world.view(job.id).await.finished_at, Some(at(5_000)));
    }
}

pub(super) async fn the_last_attempt_fails_though_good_until_is_over(world: &World) {
    world.submit(job("t").attempts(1).good_until(at(5_000))).await;
    let worker = world.worker("w1", ["t"]).await;
    let claimed = worker.claim_one().await;
    world.advance(5_000).await;
    assert_eq!(worker.settle(&claimed, retry(0)).await, Ok(JobState::Failed));
}

pub(super) async fn a_retry_whose_delay_passes_good_until_expires(world: &World) {
    let id = world.submit(job("t").good_until(at(5_000))).await;
    let worker = world.worker("w1", ["t"]).await;
    let claimed = worker.claim_one().await;
    assert_eq!(worker.settle(&claimed, retry(9_000)).await, Ok(JobState::Pending));
    world.advance(5_000).await;
    assert_eq!((world.sweep().await.expired, world.state(id).await), (1, JobState::Expired));
}

pub(super) async fn an_expired_job_is_never_claimed(world: &World) {
    world.set("t", 0).await;
    world.submit_many(3, job("t").good_until(at(5_000))).await;
    world.advance(5_000).await;
    world.set("t", 9).await;
    assert_eq!(world.worker("w1", ["t"]).await.claim(10).await, []);
}

pub(super) async fn finished_jobs_are_remembered_a_day_and_failed_ones_two_weeks(world: &World) {
    let worker = world.open(serving("w1", ["t"]).lease(caps::LEASE_MAX_MS)).await;
    let ids = world.submit_many(3, job("t")).await;
    let claimed = worker.claim(3).await;
    worker.succeed(&claimed[0]).await;
    worker.settle(&claimed[1], failure()).await.expect("it owns the job");
    worker.settle(&claimed[2], Outcome::Cancelled).await.expect("it owns the job");
    let expired = world.submit(job("t").good_until(at(1))).await;
    world.advance(1).await;
    world.sweep().await;
    world.advance(DAY_MS - 2).await;
    assert_eq!(world.sweep().await.forgotten, 0);
    world.advance(1).await;
    assert_eq!(world.sweep().await.forgotten, 2, "the succeeded and the cancelled one");
    world.advance(1).await;
    assert_eq!(world.sweep().await.forgotten, 1, "the expired one");
    for id in [ids[0], ids[2], expired] {
        refused(world.store.job(id).await, ErrorKind::NotFound);
        refused(world.store.explain(id).await, ErrorKind::NotFound);
    }
    assert_eq!(world.state(ids[1]).await, JobState::Failed);
    world.advance(13 * DAY_MS - 2).await;
    assert_eq!(world.sweep().await.forgotten, 0);
    world.advance(1).await;
    assert_eq!(world.sweep().await.forgotten, 1);
    assert_eq!(world.all_jobs().await, []);
}

pub(super) async fn live_jobs_are_never_forgotten(world: &World) {
    let id = world.submit(job("t").run_at(at(400 * DAY_MS))).await;
    world.advance(399 * DAY_MS).await;
    assert_eq!(world.sweep().await.forgotten, 0);
    assert_eq!(world.state(id).await, JobState::Pending);
}

pub(super) async fn a_settle_of_a_forgotten_job_is_fenced(world: &World) {
    world.submit(job("t")).await;
    let worker = world.open(serving("w1", ["t"]).lease(caps::LEASE_MAX_MS)).await;
    let claimed = worker.claim_one().await;
    worker.succeed(&claimed).await;
    world.advance(DAY_MS - 1).await;
    worker.renew().await;
    world.advance(1).await;
    world.sweep().await;
    refused(worker.settle(&claimed, success()).await, ErrorKind::Fenced);
}

pub(super) async fn a_job_submitted_after_its_good_until_expires_at_the_next_claim(world: &World) {
    world.advance(10).await;
    let id = world.submit(job("t").good_until(at(5))).await;
    assert_eq!(world.worker("w1", ["t"]).await.claim(1).await, []);
    assert_eq!(world.state(id).await, JobState::Expired);
}

pub(super) async fn good_until_is_checked_at_start(world: &World) {
    let ids = world.submit_many(2, job("t").good_until(at(2_000))).await;
    let worker = world.worker("w1", ["t"]).await;
    let claimed = worker.ahead(2).await;
    world.advance(1_999).await;
    worker.run(&claimed[0]).await;
    world.advance(1).await;
    assert_eq!(worker.start(&claimed[1]).await, Ok(Started { then: JobState::Expired, run: None }));
    let view = world.view(ids[1]).await;
    assert_eq!((view.state, view.finished_at, view.attempts_used), (JobState::Expired, Some(at(2_000)), 0));
}

pub(super) async fn good_until_does_not_end_a_claimed_job_by_itself(world: &World) {
    let id = world.submit(job("t").good_until(at(2_000))).await;
    let worker = world.worker("w1", ["t"]).await;
    worker.ahead_one().await;
    world.advance(2_000).await;
    assert_eq!((world.sweep().await, world.state(id).await), (Swept::default(), JobState::Claimed));
    world.advance(CLAIM_MS - 2_000).await;
    assert_eq!(world.sweep().await, Swept { claims: 1, ..Swept::default() }, "it expires with its claim");
    assert_eq!(world.state(id).await, JobState::Expired);
}

pub(super) async fn a_claim_that_is_given_back_too_late_expires(world: &World) {
    let ids = world.submit_many(2, job("t").good_until(at(2_000))).await;
    let worker = world.worker("w1", ["t"]).await;
    let claimed = worker.ahead(2).await;
    world.advance(2_000).await;
    assert_eq!(worker.settle(&claimed[0], Outcome::Release).await, Ok(JobState::Expired));
    worker.drain().await;
    assert_eq!(world.state(ids[1]).await, JobState::Expired);
}
