//! History: what is remembered of finished jobs and of workflows, and for how long.

use super::*;

/// The same time for every outcome.
pub(super) fn for_ms(ms: u64) -> Retention {
    Retention { succeeded_ms: ms, failed_ms: ms, cancelled_ms: ms, expired_ms: ms }
}

/// A worker whose session outlives every retention of a case, if it renews now and then.
pub(super) async fn patient(world: &World) -> Worker {
    world.open(serving("w1", ["t", "step"]).lease(caps::LEASE_MAX_MS)).await
}

/// A job that has ended this way and is remembered.
pub(super) async fn ended(world: &World, worker: &Worker, spec: JobSpec, outcome: Outcome) -> JobId {
    let id = world.submit(spec).await;
    let claimed = worker.claim_one().await;
    assert_eq!(claimed.id, id);
    worker.settle(&claimed, outcome).await.expect("it owns the job");
    id
}

pub(super) async fn every_attempt_shows_its_worker_duration_and_error(world: &World) {
    let id = world.submit(job("t")).await;
    let one = world.worker("w1", ["t"]).await;
    let claimed = one.claim_one().await;
    world.advance(100).await;
    one.settle(&claimed, retry(0)).await.expect("it owns the job");
    world.worker("w2", ["t"]).await.claim_one().await;
    world.advance(30_000).await;
    let three = world.worker("w3", ["t"]).await;
    let claimed = three.claim_one().await;
    world.advance(300).await;
    three.settle(&claimed, failure()).await.expect("it owns the job");
    let attempts = world.detail(id).await.attempts;
    let shown: Vec<_> =
        attempts.iter().map(|a| (a.number, &*a.worker, a.duration_ms(), a.outcome, a.then)).collect();
    let expected = [
        (1, "w1", 100, AttemptOutcome::Retried, JobState::Pending),
        (2, "w2", 30_000, AttemptOutcome::LeaseEnded, JobState::Pending),
        (3, "w3", 300, AttemptOutcome::Failed, JobState::Failed),
    ];
    assert_eq!(shown, expected);
    for (attempt, words) in attempts.iter().zip(["try again", "lease ended", "no use"]) {
        let error = attempt.error.as_ref().map(ToString::to_string).unwrap_or_default();
        assert!(error.contains(words), "{attempt:?}");
    }
}

pub(super) async fn each_outcome_has_its_own_retention(world: &World) {
    let worker = patient(world).await;
    let retention =
        Retention { succeeded_ms: 1_000, failed_ms: 2_000, cancelled_ms: 3_000, expired_ms: 4_000 };
    world.remember(retention).await;
    let mut ids = Vec::new();
    for outcome in [success(), failure(), Outcome::Cancelled] {
        ids.push(ended(world, &worker, job("t"), outcome).await);
    }
    ids.push(world.submit(job("t").good_until(START)).await);
    assert_eq!(world.sweep().await.expired, 1);
    for id in ids {
        world.advance(999).await;
        assert_eq!(world.sweep().await.forgotten, 0);
        world.advance(1).await;
        assert_eq!(world.sweep().await.forgotten, 1);
        refused(world.store.job(id).await, ErrorKind::NotFound);
    }
}

pub(super) async fn the_retention_in_force_counts_for_what_finished_before(world: &World) {
    let worker = patient(world).await;
    let short = ended(world, &worker, job("t"), success()).await;
    world.advance(2_000).await;
    assert_eq!(world.sweep().await.forgotten, 0);
    world.remember(for_ms(1_000)).await;
    assert_eq!(world.state(short).await, JobState::Succeeded, "only a sweep forgets");
    assert_eq!(world.sweep().await.forgotten, 1);
    world.remember(for_ms(5 * DAY_MS)).await;
    ended(world, &worker, job("t"), success()).await;
    world.advance(2 * DAY_MS).await;
    assert_eq!(world.sweep().await.forgotten, 0);
    world.configure([]).await;
    assert_eq!(world.sweep().await.forgotten, 1, "a configuration without retention has the default");
}

pub(super) async fn a_retention_of_nothing_forgets_at_the_next_sweep(world: &World) {
    world.remember(for_ms(0)).await;
    let worker = patient(world).await;
    let id = ended(world, &worker, job("t"), success()).await;
    worker.renew().await;
    assert_eq!(world.state(id).await, JobState::Succeeded, "an exchange forgets nothing");
    assert_eq!((world.sweep().await.forgotten, world.all_jobs().await), (1, vec![]));
}

pub(super) async fn an_idempotency_key_is_remembered_a_day_at_least(world: &World) {
    world.remember(for_ms(0)).await;
    let worker = patient(world).await;
    for outcome in [success(), failure(), Outcome::Cancelled] {
        let id = ended(world, &worker, job("t").once("order-1"), outcome).await;
        world.advance(DAY_MS - 1).await;
        assert_eq!(world.sweep().await.forgotten, 0);
        assert_eq!(world.offer(job("t").once("order-1")).await, Ok(Submitted::Existing(id)));
        worker.renew().await;
        world.advance(1).await;
        assert_eq!(world.sweep().await.forgotten, 1);
    }
    world.submit(job("t").once("order-1")).await;
}

pub(super) async fn an_idempotency_key_lives_as_long_as_its_job(world: &World) {
    let worker = patient(world).await;
    let id = ended(world, &worker, job("t").once("order-1"), failure()).await;
    world.advance(14 * DAY_MS - 1).await;
    world.sweep().await;
    assert_eq!(world.offer(job("t").once("order-1")).await, Ok(Submitted::Existing(id)));
    refused(world.offer(job("t").payload("2").once("order-1")).await, ErrorKind::Conflict);
    world.advance(1).await;
    world.sweep().await;
    world.submit(job("t").payload("2").once("order-1")).await;
}

pub(super) async fn the_step_that_halts_is_not_forgotten_while_others_wait(world: &World) {
    world.remember(for_ms(1_000)).await;
    let worker = patient(world).await;
    let mut waiting = Vec::new();
    for workflow in ["a", "b"] {
        let ids = world.submit_many(2, step(workflow)).await;
        worker.settle(&worker.claim_one().await, failure()).await.expect("it owns the job");
        waiting.push(ids[1]);
    }
    world.advance(9_000).await;
    assert_eq!(world.sweep().await.forgotten, 0);
    assert_eq!(world.workflow("a").await.state, WorkflowState::Halted);
    world.steer("a", Steer::Skip).await.expect("it is halted");
    assert_eq!(world.sweep().await.forgotten, 1, "it was skipped: it halts no workflow");
    assert_eq!(worker.claim_ids(10).await, waiting[..1]);
    assert_eq!(world.cancel(waiting[1]).await, Ok(JobState::Cancelled));
    assert_eq!(world.sweep().await.forgotten, 1, "no step waits for it");
}

pub(super) async fn no_step_that_is_not_passed_is_forgotten_while_others_wait(world: &World) {
    world.remember(for_ms(1_000)).await;
    let worker = patient(world).await;
    let ids = world.submit_many(3, step("w")).await;
    worker.settle(&worker.claim_one().await, failure()).await.expect("it owns the job");
    assert_eq!(world.cancel(ids[1]).await, Ok(JobState::Cancelled));
    world.advance(9_000).await;
    assert_eq!(world.sweep().await.forgotten, 0, "neither the head nor what comes after it");
    world.retry(ids[0]).await.expect("it failed");
    worker.succeed(&worker.claim_one().await).await;
    assert_eq!(worker.claim_ids(10).await, [], "the second step halts the third, as it would have before");
    let head = world.workflow("w").await.head.map(|head| (head.step, head.state));
    assert_eq!(head, Some((2, JobState::Cancelled)));
}

pub(super) async fn a_forgotten_step_changes_no_order(world: &World) {
    world.remember(for_ms(1_000)).await;
    let worker = patient(world).await;
    let ids = world.submit_many(3, step("w")).await;
    worker.succeed(&worker.claim_one().await).await;
    world.advance(1_000).await;
    assert_eq!(world.sweep().await.forgotten, 1);
    let late = world.submit(step("w")).await;
    let status = world.workflow("w").await;
    assert_eq!((world.view(late).await.step, status.steps, status.live), (Some(4), 4, 3));
    for id in [ids[1], ids[2], late] {
        let claimed = worker.claim(10).await;
        assert_eq!(worker::ids(&claimed), [id]);
        worker.succeed(&claimed[0]).await;
    }
}

pub(super) async fn a_workflow_is_forgotten_with_its_last_job(world: &World) {
    world.remember(for_ms(1_000)).await;
    world.submit_many(2, step("w")).await;
    let worker = patient(world).await;
    worker.succeed(&worker.claim_one().await).await;
    world.advance(500).await;
    world.cancel_workflow("w").await.expect("it is there");
    world.advance(500).await;
    assert_eq!(world.sweep().await.forgotten, 1);
    refused(world.offer(step("w")).await, ErrorKind::Conflict);
    world.advance(500).await;
    assert_eq!(world.sweep().await.forgotten, 1);
    refused(world.store.workflow(name("w")).await, ErrorKind::NotFound);
    let id = world.submit(step("w").on_failure(OnFailure::Continue)).await;
    assert_eq!((world.view(id).await.step, world.workflow("w").await.steps), (Some(1), 1), "a new one");
}
