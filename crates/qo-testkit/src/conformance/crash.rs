//! Crashes: a lease ends by an event, the job goes back at once, and no slot is held without a live holder (G5).

use super::*;

pub(super) async fn a_slot_is_back_after_one_lease_and_a_sweep(world: &World) {
    world.set("t", 1).await;
    world.set("cluster", 1).await;
    let ids = world.submit_many(2, job("t").key("k").limits([("gpu", 2)])).await;
    let dead = world.worker("dead", ["t"]).await;
    dead.claim_one().await;
    world.advance(29_999).await;
    assert_eq!((world.sweep().await.attempts, world.used("t").await), (0, 1));
    world.advance(1).await;
    let swept = world.sweep().await;
    assert_eq!((swept.sessions, swept.attempts), (1, 1));
    for group in ["t", "t/k", "gpu", "queue:default", "cluster"] {
        assert_eq!(world.used(group).await, 0, "{group}");
    }
    assert_eq!(world.worker("w2", ["t"]).await.claim_ids(10).await, ids[..1]);
}

pub(super) async fn the_next_claim_of_any_worker_takes_the_slot_of_a_dead_one(world: &World) {
    world.set("t", 1).await;
    let id = world.submit(job("t")).await;
    world.worker("dead", ["t"]).await.claim_one().await;
    let alive = world.open(serving("alive", ["t"]).lease(90_000)).await;
    world.advance(30_000).await;
    let claimed = alive.claim(10).await;
    assert_eq!((claimed[0].id, claimed[0].attempt), (id, 2), "without a sweep, in the same step");
}

pub(super) async fn a_lost_lease_uses_an_attempt_and_says_so(world: &World) {
    let id = world.submit(job("t")).await;
    let dead = world.worker("dead", ["t"]).await;
    let claimed = dead.claim_one().await;
    world.advance(31_000).await;
    world.sweep().await;
    let detail = world.detail(id).await;
    assert_eq!((detail.view.state, detail.view.attempts_used), (JobState::Pending, 1));
    assert_eq!((detail.view.run_at, detail.view.running), (START, None));
    let attempt = &detail.attempts[0];
    assert_eq!((attempt.outcome, attempt.token), (AttemptOutcome::LeaseEnded, claimed.token));
    assert_eq!(attempt.ended_at, at(31_000), "a lease ends by an event, at the event's time");
    let error = attempt.error.as_ref().map(ToString::to_string).unwrap_or_default();
    assert!(error.contains("lease ended"), "{error:?}");
}

pub(super) async fn a_job_that_loses_its_last_lease_fails(world: &World) {
    let id = world.submit(job("t").attempts(2)).await;
    for expected in [JobState::Pending, JobState::Failed] {
        world.worker("dead", ["t"]).await.claim_one().await;
        world.advance(30_000).await;
        world.sweep().await;
        assert_eq!(world.state(id).await, expected);
    }
    assert_eq!(world.view(id).await.finished_at, Some(at(60_000)));
    assert_eq!(world.worker("w", ["t"]).await.claim(1).await, []);
}

pub(super) async fn a_cancelled_job_that_loses_its_lease_is_cancelled(world: &World) {
    let id = world.submit(job("t")).await;
    world.worker("dead", ["t"]).await.claim_one().await;
    assert_eq!(world.cancel(id).await, Ok(JobState::Running));
    world.advance(30_000).await;
    world.sweep().await;
    assert_eq!(world.state(id).await, JobState::Cancelled);
}

pub(super) async fn a_job_too_old_to_start_again_expires_with_its_lease(world: &World) {
    let id = world.submit(job("t").good_until(at(10_000))).await;
    world.worker("dead", ["t"]).await.claim_one().await;
    world.advance(30_000).await;
    world.sweep().await;
    assert_eq!(world.state(id).await, JobState::Expired);
}

pub(super) async fn a_kill_between_grant_and_dispatch_loses_nothing(world: &World) {
    let ids = world.submit_many(50, job("t")).await;
    let dead = world.worker("dead", ["t"]).await;
    assert_eq!(dead.claim(50).await.len(), 50, "granted, but the reply is lost");
    world.advance(30_000).await;
    let heir = world.worker("heir", ["t"]).await;
    assert_eq!(heir.claim_ids(100).await, ids);
}

pub(super) async fn a_worker_keeps_jobs_it_never_saw_only_until_it_asks_again(world: &World) {
    let ids = world.submit_many(2, job("t")).await;
    let worker = world.worker("w1", ["t"]).await;
    let lost = worker.exchange(Vec::new(), 2).await;
    world.advance(20_000).await;
    let again = worker.repeat().await.expect("the session is live");
    assert_eq!((worker::ids(&again.claimed), again), (ids, lost.clone()));
    worker.succeed_all(&lost.claimed).await;
}

pub(super) async fn a_sweep_with_nothing_to_end_changes_nothing(world: &World) {
    world.submit_many(3, job("t").good_until(at(60_000))).await;
    let worker = world.worker("w1", ["t"]).await;
    worker.claim_one().await;
    world.advance(20_000).await;
    let before = world.snapshot().await;
    assert_eq!(world.sweep().await, Swept::default());
    assert_eq!(world.snapshot().await, before);
}

pub(super) async fn a_swept_world_has_nothing_left_to_sweep(world: &World) {
    world.submit_all(vec![job("t"), job("t").timeout(1_000)]).await;
    world.worker("dead", ["t"]).await.claim(2).await;
    world.submit(job("t").good_until(at(9_000))).await;
    world.advance(30_000).await;
    let swept = world.sweep().await;
    assert_eq!((swept.sessions, swept.attempts, swept.expired), (1, 2, 1));
    assert_eq!(world.sweep().await, Swept::default());
}

pub(super) async fn a_session_that_is_over_ends_before_its_timeouts(world: &World) {
    let id = world.submit(job("t").timeout(1_000)).await;
    world.worker("dead", ["t"]).await.claim_one().await;
    world.advance(30_000).await;
    assert_eq!(world.sweep().await.attempts, 1);
    let attempts = world.detail(id).await.attempts;
    assert_eq!((attempts.len(), attempts[0].outcome), (1, AttemptOutcome::LeaseEnded));
}

pub(super) async fn only_claims_and_sweeps_end_a_lease(world: &World) {
    world.set("t", 1).await;
    let ids = world.submit_many(2, job("t")).await;
    let late = world.worker("late", ["t"]).await;
    let claimed = late.claim_one().await;
    world.advance(30_000).await;
    world.cancel(ids[1]).await.expect("it is there");
    world.submit(job("t")).await;
    world.worker("other", ["t"]).await.close().await;
    world.set("t", 2).await;
    world.pause("q").await;
    world.register(task("t")).await;
    world.configure([]).await;
    assert_eq!((world.state(ids[0]).await, world.used("t").await), (JobState::Pending, 0), "it is over");
    late.succeed(&claimed).await;
}

pub(super) async fn one_sweep_ends_every_session_that_is_over(world: &World) {
    world.submit_many(9, job("t")).await;
    let mut alive = Vec::new();
    for place in 0..9 {
        let lease = if place % 3 == 0 { 90_000 } else { 1_000 };
        let worker = world.open(serving(&format!("w{place}"), ["t"]).lease(lease)).await;
        worker.claim_one().await;
        alive.extend((lease > 1_000).then_some(worker.session));
    }
    world.advance(1_000).await;
    let swept = world.sweep().await;
    assert_eq!((swept.sessions, swept.attempts), (6, 6));
    let left: Vec<_> = world.store.workers().await.expect("workers").iter().map(|w| w.session).collect();
    assert_eq!((left, world.used("t").await), (alive, 3));
}

pub(super) async fn claimed_jobs_of_a_dead_worker_go_back_and_use_no_attempt(world: &World) {
    let ids = world.submit_many(3, job("t").attempts(1)).await;
    let dead = world.worker("dead", ["t"]).await;
    let prefetch = Some(Prefetch { buffer: 2, lease_ms: caps::LEASE_MAX_MS });
    let claim = Claim { max: 1, prefetch, ..Claim::default() };
    let reply = dead.send(Exchange { claim, ..dead.next() }).await.expect("the session is live");
    assert_eq!((reply.claimed.len(), reply.prefetched.len()), (1, 2));
    world.advance(30_000).await;
    let swept = world.sweep().await;
    assert_eq!((swept.sessions, swept.attempts, swept.claims), (1, 1, 2));
    assert_eq!(world.state(ids[0]).await, JobState::Failed, "it ran, and that was its last attempt");
    for id in &ids[1..] {
        let detail = world.detail(*id).await;
        assert_eq!((detail.view.attempts_used, detail.attempts), (0, vec![]), "they had not started");
    }
    let heir = world.worker("heir", ["t"]).await;
    assert_eq!(heir.claim_ids(10).await, ids[1..]);
}

pub(super) async fn closing_a_session_gives_its_claims_back(world: &World) {
    let ids = world.submit_all(vec![job("t"), job("t").good_until(at(1_000))]).await;
    let worker = world.worker("w1", ["t"]).await;
    assert_eq!(worker.ahead(2).await.len(), 2);
    world.advance(1_000).await;
    worker.close().await;
    assert_eq!(
        (world.state(ids[0]).await, world.state(ids[1]).await),
        (JobState::Pending, JobState::Expired)
    );
    let detail = world.detail(ids[0]).await;
    assert_eq!((detail.view.attempts_used, detail.attempts), (0, vec![]));
}

pub(super) async fn everything_that_is_over_ends_in_one_sweep(world: &World) {
    let ids = world.submit_many(3, job("t").timeout(1_000)).await;
    let alive = world.open(serving("alive", ["t"]).lease(90_000)).await;
    let dead = world.worker("dead", ["t"]).await;
    alive.claim_one().await;
    dead.claim_one().await;
    alive.ahead_one().await;
    world.hold(program("gpu")).await;
    world.submit(job("late").good_until(at(9_000))).await;
    world.plan([("s", cron("*/30 * * * * *", "report"))]).await;
    world.advance(30_000).await;
    let expected =
        Swept { sessions: 1, attempts: 2, claims: 1, slots: 1, fired: 1, expired: 1, forgotten: 0 };
    assert_eq!(world.sweep().await, expected);
    assert_eq!(world.sweep().await, Swept::default());
    for id in ids {
        assert_eq!(world.state(id).await, JobState::Pending);
    }
}

pub(super) async fn a_worker_or_program_that_starts_again_finds_its_slots_held(world: &World) {
    world.set("t", 3).await;
    world.submit_many(9, job("t")).await;
    let worker = world.worker("w1", ["t"]).await;
    let running = worker.claim_one().await;
    world.hold(program("t").called("render")).await;
    assert_eq!(worker.ahead(1).await.len(), 1);
    // What every process does when it starts: it pushes its configuration, and opens a session.
    world.configure([("t", 3)]).await;
    world.register(task("t")).await;
    let reborn = world.worker("w1", ["t"]).await;
    world.hold(program("t").called("render")).await;
    assert_eq!((reborn.claim(9).await, world.used("t").await), (vec![], 3));
    assert!(world.is_full(program("t").called("render")).await);
    worker.succeed(&running).await;
    assert_eq!(reborn.claim(9).await.len(), 1);
}

pub(super) async fn only_exchanges_sweeps_and_requests_end_claims_and_leases(world: &World) {
    let id = world.submit(job("t")).await;
    let worker = world.worker("w1", ["t"]).await;
    let claimed = worker.ahead_one().await;
    let held = world.hold(program("gpu")).await;
    world.advance(20_000).await;
    world.submit(job("t")).await;
    world.set("t", 2).await;
    world.configure([]).await;
    world.pause("q").await;
    world.register(task("t")).await;
    held.extend(10_000).await.expect("it is late, but nothing has ended it");
    assert_eq!(world.state(id).await, JobState::Pending, "the claim is over");
    worker.run(&claimed).await;
    assert_eq!(held.give_back().await, Ok(()));
}
