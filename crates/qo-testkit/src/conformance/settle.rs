//! Settling: the job's state after each outcome, and what is remembered of the attempt.

use super::*;

async fn one_claimed(world: &World, spec: JobSpec) -> (Worker, ClaimedJob) {
    world.submit(spec).await;
    let worker = world.worker("w1", ["t"]).await;
    let claimed = worker.claim_one().await;
    (worker, claimed)
}

pub(super) async fn a_claimed_job_runs(world: &World) {
    let (worker, claimed) = one_claimed(world, job("t")).await;
    let view = world.view(claimed.id).await;
    let running = view.running.expect("it runs");
    assert_eq!((view.state, view.attempts_used), (JobState::Running, 0));
    assert_eq!((&*running.worker, running.session, running.token), ("w1", worker.session, claimed.token));
    assert_eq!((running.since, running.lease_until), (START, at(30_000)));
}

pub(super) async fn a_job_that_succeeded_keeps_its_output(world: &World) {
    let (worker, claimed) = one_claimed(world, job("t")).await;
    world.advance(250).await;
    let output = Json::parse("output", r#"{"ok": 1}"#).expect("JSON");
    assert_eq!(worker.settle(&claimed, Outcome::Succeed { output }).await, Ok(JobState::Succeeded));
    let detail = world.detail(claimed.id).await;
    assert_eq!((detail.view.state, detail.view.finished_at), (JobState::Succeeded, Some(at(250))));
    assert_eq!((detail.view.running, detail.view.attempts_used), (None, 1));
    assert_eq!(detail.output.as_ref().map(Json::as_str), Some(r#"{"ok": 1}"#));
}

pub(super) async fn an_attempt_is_remembered(world: &World) {
    let (worker, claimed) = one_claimed(world, job("t")).await;
    world.advance(250).await;
    worker.settle(&claimed, failure()).await.expect("it owns the job");
    let attempts = world.detail(claimed.id).await.attempts;
    let expected = Attempt {
        number: 1,
        token: claimed.token,
        worker: name("w1"),
        session: worker.session,
        started_at: START,
        ended_at: at(250),
        outcome: AttemptOutcome::Failed,
        error: Some("no use".into()),
        then: JobState::Failed,
    };
    assert_eq!(attempts, [expected]);
}

pub(super) async fn a_job_that_failed_is_not_retried_though_attempts_are_left(world: &World) {
    let (worker, claimed) = one_claimed(world, job("t").attempts(9)).await;
    assert_eq!(worker.settle(&claimed, failure()).await, Ok(JobState::Failed));
    let view = world.view(claimed.id).await;
    assert_eq!((view.state, view.attempts_used, view.finished_at), (JobState::Failed, 1, Some(START)));
    assert_eq!(worker.claim(1).await, []);
}

pub(super) async fn a_retry_waits_for_its_delay_and_uses_an_attempt(world: &World) {
    let (worker, claimed) = one_claimed(world, job("t")).await;
    world.advance(100).await;
    assert_eq!(worker.settle(&claimed, retry(5_000)).await, Ok(JobState::Pending));
    let view = world.view(claimed.id).await;
    assert_eq!((view.attempts_used, view.run_at, view.running), (1, at(5_100), None));
    world.advance(4_999).await;
    assert_eq!(worker.claim(1).await, []);
    world.advance(1).await;
    assert_eq!(worker.claim_one().await.attempt, 2);
}

pub(super) async fn the_retry_of_the_last_attempt_fails(world: &World) {
    let (worker, mut claimed) = one_claimed(world, job("t").attempts(3)).await;
    for attempt in 1..3 {
        assert_eq!(claimed.attempt, attempt);
        assert_eq!(worker.settle(&claimed, retry(0)).await, Ok(JobState::Pending));
        claimed = worker.claim_one().await;
    }
    assert_eq!(worker.settle(&claimed, retry(0)).await, Ok(JobState::Failed));
    let detail = world.detail(claimed.id).await;
    let outcomes: Vec<_> = detail.attempts.iter().map(|attempt| (attempt.number, attempt.outcome)).collect();
    let expected = [AttemptOutcome::Retried, AttemptOutcome::Retried, AttemptOutcome::Failed];
    assert_eq!(outcomes, [1, 2, 3].into_iter().zip(expected).collect::<Vec<_>>());
    assert_eq!((detail.view.attempts_used, worker.claim(1).await), (3, vec![]));
}

pub(super) async fn a_snooze_waits_for_its_delay_and_uses_no_attempt(world: &World) {
    let (worker, claimed) = one_claimed(world, job("t").attempts(1)).await;
    world.advance(100).await;
    assert_eq!(worker.settle(&claimed, snooze(5_000)).await, Ok(JobState::Pending));
    let view = world.view(claimed.id).await;
    assert_eq!((view.attempts_used, view.run_at), (0, at(5_100)));
    world.advance(4_999).await;
    assert_eq!(worker.claim(1).await, []);
    world.advance(1).await;
    assert_eq!(worker.claim_one().await.attempt, 1);
}

pub(super) async fn a_release_leaves_the_job_as_it_was(world: &World) {
    let (worker, claimed) = one_claimed(world, job("t").attempts(1)).await;
    let before = world.view(claimed.id).await;
    world.advance(100).await;
    assert_eq!(worker.settle(&claimed, Outcome::Release).await, Ok(JobState::Pending));
    let view = world.view(claimed.id).await;
    assert_eq!((view.attempts_used, view.run_at), (0, before.run_at));
    assert_eq!(worker.claim_one().await.attempt, 1);
    assert_eq!(world.detail(claimed.id).await.attempts[0].outcome, AttemptOutcome::Released);
}

pub(super) async fn a_handler_may_say_that_it_was_cancelled(world: &World) {
    let (worker, claimed) = one_claimed(world, job("t")).await;
    assert_eq!(worker.settle(&claimed, Outcome::Cancelled).await, Ok(JobState::Cancelled));
    let view = world.view(claimed.id).await;
    assert_eq!((view.attempts_used, view.finished_at), (1, Some(START)));
    assert_eq!(worker.claim(1).await, []);
}

pub(super) async fn a_repeated_settle_returns_the_record_and_changes_nothing(world: &World) {
    let (worker, claimed) = one_claimed(world, job("t")).await;
    worker.succeed(&claimed).await;
    let before = world.snapshot().await;
    for outcome in [success(), failure(), retry(0), Outcome::Release, Outcome::Cancelled] {
        assert_eq!(worker.settle(&claimed, outcome).await, Ok(JobState::Succeeded));
    }
    assert_eq!(world.snapshot().await, before);
}

pub(super) async fn a_job_settled_twice_in_one_exchange_is_settled_once(world: &World) {
    let (worker, claimed) = one_claimed(world, job("t")).await;
    let reply = worker.exchange(vec![settled(&claimed, failure()), settled(&claimed, success())], 0).await;
    assert_eq!(reply.settled, [Ok(JobState::Failed), Ok(JobState::Failed)]);
    assert_eq!(world.detail(claimed.id).await.attempts.len(), 1);
}

pub(super) async fn the_record_of_a_retry_is_pending_even_when_the_job_went_on(world: &World) {
    let (worker, first) = one_claimed(world, job("t")).await;
    worker.settle(&first, retry(0)).await.expect("it owns the job");
    let second = worker.claim_one().await;
    assert_eq!(worker.settle(&first, success()).await, Ok(JobState::Pending));
    assert_eq!(world.view(first.id).await.running.map(|running| running.token), Some(second.token));
    worker.succeed(&second).await;
    assert_eq!(worker.settle(&first, success()).await, Ok(JobState::Pending));
}

pub(super) async fn a_bad_value_is_invalid_and_the_job_runs_on(world: &World) {
    let (worker, claimed) = one_claimed(world, job("t")).await;
    worker.renew().await;
    let before = world.snapshot().await;
    invalid(worker.settle(&claimed, retry(caps::DURATION_MS + 1)).await, "delay_ms", "315360000001");
    invalid(worker.settle(&claimed, snooze(u64::MAX)).await, "delay_ms", "18446744073709551615");
    let output = Json::parse("output", &format!("{:?}", "x".repeat(caps::PAYLOAD_BYTES))).expect("JSON");
    invalid(worker.settle(&claimed, Outcome::Succeed { output }).await, "output", "1048578");
    assert_eq!(world.snapshot().await, before);
    worker.succeed(&claimed).await;
}

pub(super) async fn a_long_error_text_is_cut_and_not_refused(world: &World) {
    let (worker, claimed) = one_claimed(world, job("t")).await;
    let error = "ü".repeat(caps::ERROR_BYTES).as_str().into();
    assert_eq!(worker.settle(&claimed, Outcome::Fail { error }).await, Ok(JobState::Failed));
    let error = world.detail(claimed.id).await.attempts.remove(0).error.map(String::from);
    assert_eq!(error, Some("ü".repeat(caps::ERROR_BYTES / 2)));
}

pub(super) async fn the_newest_hundred_attempts_are_remembered(world: &World) {
    let (worker, mut claimed) = one_claimed(world, job("t").attempts(caps::ATTEMPTS)).await;
    for _ in 0..105 {
        claimed = worker.exchange(vec![settled(&claimed, retry(0))], 1).await.claimed.remove(0);
    }
    let detail = world.detail(claimed.id).await;
    let numbers: Vec<_> = detail.attempts.iter().map(|attempt| attempt.number).collect();
    assert_eq!(numbers, (6..=105).collect::<Vec<_>>());
    assert_eq!((detail.view.attempts_used, claimed.attempt), (105, 106));
}

pub(super) async fn the_record_is_there_for_the_workers_next_session(world: &World) {
    let (worker, claimed) = one_claimed(world, job("t")).await;
    worker.settle(&claimed, failure()).await.expect("it owns the job");
    let next = world.worker("w1", ["t"]).await;
    assert_eq!(next.settle(&claimed, success()).await, Ok(JobState::Failed));
    assert_eq!(world.detail(claimed.id).await.attempts.len(), 1);
}
