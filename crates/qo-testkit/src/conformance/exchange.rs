//! The exchange: settle, renew and claim in one step, numbered, so that a lost reply loses no grant.

use super::*;

pub(super) async fn a_lost_reply_gives_the_same_answer_again(world: &World) {
    world.submit_many(5, job("t")).await;
    let worker = world.worker("w1", ["t"]).await;
    let done = worker.claim_one().await;
    let reply = worker.exchange(vec![settled(&done, success())], 2).await;
    let before = world.snapshot().await;
    assert_eq!(worker.repeat().await, Ok(reply.clone()));
    assert_eq!(worker.repeat().await, Ok(reply));
    assert_eq!(world.snapshot().await, before, "and nothing happens twice");
}

pub(super) async fn a_repeated_exchange_answers_alike_however_the_world_changed(world: &World) {
    let ids = world.submit_many(3, job("t")).await;
    let worker = world.worker("w1", ["t"]).await;
    let reply = worker.exchange(Vec::new(), 2).await;
    world.advance(5_000).await;
    world.cancel(ids[0]).await.expect("it is there");
    world.cancel(ids[2]).await.expect("it is there");
    world.set("t", 0).await;
    let before = world.snapshot().await;
    assert_eq!(worker.repeat().await, Ok(reply));
    assert_eq!(world.snapshot().await, before, "it does not even renew the session");
}

pub(super) async fn a_repeated_exchange_is_known_by_its_number_alone(world: &World) {
    world.submit_many(3, job("t")).await;
    let worker = world.worker("w1", ["t"]).await;
    let reply = worker.exchange(Vec::new(), 1).await;
    let same_number = Exchange { number: 1, claim: Claim { max: 2, ..Claim::default() }, ..worker.next() };
    assert_eq!(world.store.exchange(same_number).await, Ok(reply));
}

pub(super) async fn an_older_number_is_a_conflict(world: &World) {
    let worker = world.worker("w1", ["t"]).await;
    worker.renew().await;
    worker.renew().await;
    world.submit(job("t")).await;
    let before = world.snapshot().await;
    let old = Exchange { number: 1, claim: Claim { max: 2, ..Claim::default() }, ..worker.next() };
    refused(world.store.exchange(old).await, ErrorKind::Conflict);
    assert_eq!(world.snapshot().await, before);
}

pub(super) async fn a_number_too_far_is_invalid(world: &World) {
    let worker = world.worker("w1", ["t"]).await;
    worker.renew().await;
    world.submit(job("t")).await;
    let before = world.snapshot().await;
    let next = Exchange { number: 3, claim: Claim { max: 2, ..Claim::default() }, ..worker.next() };
    invalid(world.store.exchange(next).await, "number", "3");
    assert_eq!(world.snapshot().await, before);
    worker.renew().await;
}

pub(super) async fn the_first_number_of_each_session_is_one(world: &World) {
    let (one, two) = (world.worker("w1", ["t"]).await, world.worker("w2", ["t"]).await);
    for number in 1..=3 {
        assert_eq!((one.renew().await.number, two.renew().await.number), (number, number));
    }
    let third = world.worker("w3", ["t"]).await;
    invalid(world.store.exchange(Exchange { number: 2, ..third.next() }).await, "number", "2");
}

pub(super) async fn a_refused_exchange_uses_no_number_and_renews_nothing(world: &World) {
    let worker = world.worker("w1", ["t"]).await;
    world.advance(10_000).await;
    let before = world.snapshot().await;
    let claim = Claim { max: caps::CLAIM + 1, ..Claim::default() };
    refused(world.store.exchange(Exchange { claim, ..worker.next() }).await, ErrorKind::Invalid);
    assert_eq!(world.snapshot().await, before);
    assert_eq!(worker.renew().await.number, 1);
}

pub(super) async fn each_settle_has_its_own_result_in_order(world: &World) {
    let ids = world.submit_many(4, job("t").attempts(1)).await;
    let worker = world.worker("w1", ["t"]).await;
    let claimed = worker.claim(4).await;
    let stranger = Settle { job: ids[1], token: claimed[0].token, outcome: success() };
    let settles = vec![
        settled(&claimed[2], Outcome::Release),
        stranger,
        settled(&claimed[0], success()),
        settled(&claimed[3], retry(caps::DURATION_MS + 1)),
        settled(&claimed[1], retry(0)),
    ];
    let reply = worker.exchange(settles, 0).await;
    let results: Vec<_> = reply.settled.into_iter().map(|result| result.map_err(|e| e.kind())).collect();
    let expected = [
        Ok(JobState::Pending),
        Err(ErrorKind::Fenced),
        Ok(JobState::Succeeded),
        Err(ErrorKind::Invalid),
        Ok(JobState::Failed),
    ];
    assert_eq!(results, expected);
    assert_eq!(world.state(ids[3]).await, JobState::Running, "a bad settle changes nothing");
}

pub(super) async fn a_refused_settle_does_not_stop_the_claim(world: &World) {
    world.submit_many(2, job("t")).await;
    let worker = world.worker("w1", ["t"]).await;
    let first = worker.claim_one().await;
    let wrong = Settle { token: FenceToken(first.token.0 + 9), ..settled(&first, success()) };
    let reply = worker.exchange(vec![wrong], 5).await;
    assert_eq!((reply.settled[0].is_err(), reply.claimed.len()), (true, 1));
}

pub(super) async fn a_job_settled_as_released_may_be_claimed_in_the_same_exchange(world: &World) {
    let id = world.submit(job("t")).await;
    let worker = world.worker("w1", ["t"]).await;
    let first = worker.claim_one().await;
    let reply = worker.exchange(vec![settled(&first, Outcome::Release)], 5).await;
    assert_eq!((reply.claimed[0].id, reply.claimed[0].attempt), (id, 1));
    assert!(reply.claimed[0].token > first.token);
}

pub(super) async fn tokens_grow_with_every_claim_of_the_namespace(world: &World) {
    world.submit_many(12, job("t")).await;
    let (one, two) = (world.worker("w1", ["t"]).await, world.worker("w2", ["t"]).await);
    let mut tokens = Vec::new();
    for worker in [&one, &two, &one, &two] {
        tokens.extend(worker.claim(3).await.into_iter().map(|job| job.token));
    }
    assert_eq!(tokens.len(), 12);
    assert!(tokens.is_sorted_by(|a, b| a < b), "{tokens:?}");
}

pub(super) async fn a_claimed_job_carries_what_its_handler_needs(world: &World) {
    let backoff = RetryPolicy { base_ms: 7, ..RetryPolicy::default() };
    let spec = job("t").queue("q").group("g").key("k").payload("[1]").attempts(5).timeout(9).backoff(backoff);
    let id = world.submit(spec).await;
    let claimed = world.worker("w1", ["t"]).await.claim_one().await;
    assert_eq!((claimed.id, claimed.attempt, claimed.max_attempts), (id, 1, 5));
    assert_eq!((&*claimed.queue, &*claimed.task, &*claimed.group), ("q", "t", "g"));
    assert_eq!((claimed.key, claimed.payload.as_str()), (Some(key("k")), "[1]"));
    assert_eq!((claimed.timeout_ms, claimed.retry), (Some(9), backoff));
}

pub(super) async fn timeout_and_backoff_are_the_jobs_else_the_tasks_at_claim(world: &World) {
    let worker = world.worker("w1", ["t"]).await;
    let (of_job, of_task) = (5, 7);
    let backoff = |base_ms| RetryPolicy { base_ms, ..RetryPolicy::default() };
    world.submit_all(vec![job("t"), job("t"), job("t").timeout(of_job).backoff(backoff(of_job))]).await;
    let plain = worker.claim_one().await;
    assert_eq!((plain.timeout_ms, plain.retry), (None, RetryPolicy::default()));
    let registered = TaskOptions { timeout_ms: Some(of_task), retry: Some(backoff(of_task)), ..task("t") };
    world.register(registered).await;
    let tasks = worker.claim_one().await;
    assert_eq!((tasks.timeout_ms, tasks.retry), (Some(of_task), backoff(of_task)));
    let own = worker.claim_one().await;
    assert_eq!((own.timeout_ms, own.retry), (Some(of_job), backoff(of_job)));
}

pub(super) async fn a_reply_tells_store_time_and_the_end_of_the_lease(world: &World) {
    let worker = world.open(serving("w1", ["t"]).lease(20_000)).await;
    world.advance(7_000).await;
    let reply = worker.renew().await;
    assert_eq!((reply.now, reply.lease_until), (at(7_000), at(27_000)));
}

pub(super) async fn a_draining_worker_settles_and_renews(world: &World) {
    world.submit(job("t")).await;
    let worker = world.worker("w1", ["t"]).await;
    let claimed = worker.claim_one().await;
    let settles = vec![settled(&claimed, success())];
    let reply = worker.send(Exchange { draining: true, settles, ..worker.next() }).await;
    assert_eq!(reply.map(|reply| reply.settled), Ok(vec![Ok(JobState::Succeeded)]));
    assert!(world.store.workers().await.expect("workers")[0].draining);
}

pub(super) async fn a_dropped_exchange_may_be_made_again(world: &World) {
    let ids = world.submit_many(4, job("t")).await;
    let worker = world.worker("w1", ["t"]).await;
    let exchange = Exchange { claim: Claim { max: 2, ..Claim::default() }, ..worker.next() };
    // Polled once and dropped: the call took effect or it did not, and the worker does not know which.
    let _ = world.store.exchange(exchange.clone()).now_or_never();
    let reply = worker.send(exchange).await.expect("the session is live");
    assert_eq!(worker::ids(&reply.claimed), ids[..2]);
    assert_eq!(world.used("t").await, 2);
}

pub(super) async fn an_unknown_session_is_fenced(world: &World) {
    refused(world.store.exchange(Exchange::renew(world.session_id(), 1)).await, ErrorKind::Fenced);
}

pub(super) async fn a_claim_ends_when_its_payloads_fill_a_message(world: &World) {
    let megabyte = format!("\"{}\"", "x".repeat(caps::PAYLOAD_BYTES - 2));
    for _ in 0..2 {
        world.submit_many(6, job("bulk").payload(&megabyte)).await;
    }
    let worker = world.worker("w1", ["bulk"]).await;
    let full = caps::CLAIM_BYTES / caps::PAYLOAD_BYTES;
    assert_eq!(worker.claim(100).await.len(), full, "as many as fill it");
    assert_eq!(worker.claim(100).await.len(), 12 - full, "and then the rest");
}

pub(super) async fn a_lost_reply_with_starts_and_prefetched_jobs_is_given_again(world: &World) {
    world.set("t", 4).await;
    world.submit_many(8, job("t")).await;
    let worker = world.worker("w1", ["t"]).await;
    let ahead = worker.ahead(2).await;
    world.set("t", 3).await;
    let released = settled(&ahead[1], Outcome::Release);
    let starts = vec![starting(&ahead[0]), starting(&ahead[1])];
    let claim =
        Claim { max: 1, prefetch: Some(Prefetch { buffer: 3, lease_ms: CLAIM_MS }), ..Claim::default() };
    let exchange = Exchange { settles: vec![released], starts, claim, ..worker.next() };
    let reply = worker.send(exchange).await.expect("the session is live");
    assert_eq!((reply.claimed.len(), reply.prefetched.len()), (1, 1));
    assert_eq!((reply.started[0].is_ok(), reply.started[1].is_ok()), (true, false));
    world.advance(20_000).await;
    world.set("t", 0).await;
    world.sweep().await;
    let before = world.snapshot().await;
    assert_eq!(worker.repeat().await, Ok(reply));
    assert_eq!(world.snapshot().await, before, "and nothing starts or is claimed twice");
}

pub(super) async fn each_start_has_its_own_result_in_order(world: &World) {
    world.set("t", 3).await;
    world.submit_all(vec![job("t"), job("t").good_until(at(1_000)), job("t")]).await;
    let worker = world.worker("w1", ["t"]).await;
    let ahead = worker.ahead(3).await;
    world.advance(1_000).await;
    world.set("t", 1).await;
    let stranger = ClaimedJob { token: FenceToken(99), ..ahead[0].clone() };
    let order = [ahead[2].clone(), stranger, ahead[1].clone(), ahead[0].clone()];
    let then: Vec<_> =
        worker.start_all(&order).await.into_iter().map(|s| s.map(|s| s.then).map_err(|e| e.kind())).collect();
    let expected =
        [Ok(JobState::Running), Err(ErrorKind::Fenced), Ok(JobState::Expired), Ok(JobState::Pending)];
    assert_eq!(then, expected);
}

pub(super) async fn a_claim_that_is_released_may_be_claimed_in_the_same_exchange(world: &World) {
    let id = world.submit(job("t")).await;
    let worker = world.worker("w1", ["t"]).await;
    let ahead = worker.ahead_one().await;
    let reply = worker.exchange(vec![settled(&ahead, Outcome::Release)], 5).await;
    assert_eq!((reply.claimed[0].id, reply.claimed[0].attempt), (id, 1));
    assert!(reply.claimed[0].token > ahead.token);
}

pub(super) async fn a_dropped_exchange_with_a_start_may_be_made_again(world: &World) {
    world.submit(job("t")).await;
    let worker = world.worker("w1", ["t"]).await;
    let starts = vec![starting(&worker.ahead_one().await)];
    let exchange = Exchange { starts, ..worker.next() };
    // Polled once and dropped: the call took effect or it did not, and the worker does not know which.
    let _ = world.store.exchange(exchange.clone()).now_or_never();
    let reply = worker.send(exchange).await.expect("the session is live");
    assert_eq!(reply.started[0].as_ref().map(|started| started.then), Ok(JobState::Running));
    assert_eq!(world.used("t").await, 1);
}
