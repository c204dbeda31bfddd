//! `on_limit`: wait or refuse at submit, counted in the same step as the insert.

use super::*;

async fn rejected(world: &World, spec: JobSpec) -> bool {
    match world.offer(spec.or_reject()).await {
        Ok(Submitted::Accepted(_)) => false,
        Err(error) if error.kind() == ErrorKind::LimitReached => true,
        other => panic!("neither accepted nor LimitReached: {other:?}"),
    }
}

pub(super) async fn a_submit_waits_for_room_by_default(world: &World) {
    world.set("api", 1).await;
    world.submit_many(5, job("api")).await;
    assert_eq!(world.status("api").await.live, 5);
}

pub(super) async fn reject_is_limit_reached_and_stores_nothing(world: &World) {
    world.set("api", 1).await;
    world.submit(job("api").or_reject()).await;
    let before = world.snapshot().await;
    refused(world.offer(job("api").or_reject()).await, ErrorKind::LimitReached);
    assert_eq!(world.snapshot().await, before);
}

pub(super) async fn skip_returns_nothing_and_stores_nothing(world: &World) {
    world.set("api", 1).await;
    world.submit(job("api").or_skip()).await;
    let before = world.snapshot().await;
    assert_eq!(world.offer(job("api").or_skip()).await, Ok(Submitted::Skipped));
    assert_eq!(world.snapshot().await, before);
}

pub(super) async fn reject_and_skip_both_refuse_at_a_limit_of_zero(world: &World) {
    world.set("api", 0).await;
    refused(world.offer(job("api").or_reject()).await, ErrorKind::LimitReached);
    assert_eq!(world.offer(job("api").or_skip()).await, Ok(Submitted::Skipped));
}

pub(super) async fn without_a_limit_nothing_is_refused(world: &World) {
    world.submit_many(50, job("api").key("k").or_reject()).await;
    world.submit_many(50, job("api").key("k").or_skip()).await;
}

pub(super) async fn all_live_jobs_count(world: &World) {
    world.set("api", 4).await;
    let worker = world.worker("w1", ["api"]).await;
    world.submit(job("api")).await;
    let retried = worker.claim_one().await;
    worker.settle(&retried, retry(60_000)).await.expect("it owns the job");
    world.submit(job("api")).await;
    worker.claim_one().await;
    world.submit(job("api").run_at(at(60_000))).await;
    assert!(!rejected(world, job("api")).await, "one waits for its retry, one runs, one has a date");
    assert!(rejected(world, job("api")).await, "the fourth is in line");
}

pub(super) async fn finished_jobs_do_not_count(world: &World) {
    world.set("api", 1).await;
    let worker = world.worker("w1", ["api"]).await;
    for outcome in [success(), failure(), Outcome::Cancelled] {
        assert!(!rejected(world, job("api")).await);
        let claimed = worker.claim_one().await;
        assert!(rejected(world, job("api")).await);
        worker.settle(&claimed, outcome).await.expect("it owns the job");
    }
    let cancelled = world.submit(job("api").or_reject()).await;
    world.cancel(cancelled).await.expect("it is there");
    world.submit(job("api").good_until(at(10)).or_reject()).await;
    world.advance(10).await;
    world.sweep().await;
    assert!(!rejected(world, job("api")).await);
}

pub(super) async fn live_jobs_count_with_their_costs(world: &World) {
    world.set("api", 5).await;
    assert!(!rejected(world, job("api").cost(3)).await);
    assert!(rejected(world, job("api").cost(3)).await);
    assert!(!rejected(world, job("api").cost(2)).await);
    assert!(rejected(world, job("api")).await);
}

pub(super) async fn the_key_is_asked_first(world: &World) {
    world.set("api/*", 2).await;
    world.set("api", 1).await;
    assert!(!rejected(world, job("api").key("k")).await);
    assert!(!rejected(world, job("api").key("k")).await, "the key has room, though the group has none");
    assert!(rejected(world, job("api").key("k")).await);
    assert!(rejected(world, job("api")).await, "without a key the group is asked");
}

pub(super) async fn the_group_is_asked_before_the_extras(world: &World) {
    world.set("api", 1).await;
    world.set("gpu", 0).await;
    assert!(!rejected(world, job("api").limits([("gpu", 1)])).await);
    assert!(rejected(world, job("api").limits([("gpu", 1)])).await);
}

pub(super) async fn extras_are_asked_by_name_before_the_queue(world: &World) {
    world.set("b", 5).await;
    world.set("c", 0).await;
    world.set("queue:default", 0).await;
    let listed = || job("api").limits([("c", 1)]).limits([("b", 2)]).limits([("a", 9)]);
    assert!(!rejected(world, listed()).await, "a has no limit, b has room");
    assert!(!rejected(world, listed()).await);
    assert!(rejected(world, listed()).await, "b is full: 2 + 2 + 2 > 5");
}

pub(super) async fn an_extra_is_asked_before_its_own_keys(world: &World) {
    world.set("b", 1).await;
    world.set("b/x", 0).await;
    assert!(!rejected(world, job("api").limits([("b/x", 1)]).limits([("b", 1)])).await);
    assert!(rejected(world, job("api").limits([("b/x", 1)])).await);
}

pub(super) async fn the_queue_is_asked_before_the_cluster(world: &World) {
    world.set("queue:q", 1).await;
    world.set("cluster", 0).await;
    assert!(!rejected(world, job("api").queue("q").cost(7)).await, "a queue counts jobs, not costs");
    assert!(rejected(world, job("api").queue("q")).await);
    assert!(rejected(world, job("api")).await, "another queue has no limit: the cluster is asked");
    world.set("cluster", 2).await;
    assert!(!rejected(world, job("api")).await);
    assert!(rejected(world, job("api")).await);
}

pub(super) async fn a_job_may_bring_the_limit_that_refuses_it(world: &World) {
    let report = || job("report").key("nightly").limit(1);
    assert!(!rejected(world, report()).await);
    assert!(rejected(world, report()).await, "it never overlaps itself");
    let worker = world.worker("w1", ["report"]).await;
    worker.succeed(&worker.claim_one().await).await;
    assert!(!rejected(world, report()).await);
}

pub(super) async fn a_refused_job_does_not_keep_its_limit(world: &World) {
    world.submit_many(2, job("api").limit(5)).await;
    assert!(rejected(world, job("api").limit(2)).await);
    assert_eq!(world.limit("api").await, Some(5));
    assert_eq!(world.offer(job("api").limit(1).or_skip()).await, Ok(Submitted::Skipped));
    assert_eq!(world.limit("api").await, Some(5));
    assert_eq!(world.limit("new").await, None);
    assert!(rejected(world, job("new").limit(0)).await);
    assert_eq!(world.limit("new").await, None);
}

pub(super) async fn jobs_earlier_in_the_call_count(world: &World) {
    world.set("api", 3).await;
    let outcomes = world.offer_all(vec![job("api").or_reject(); 5]).await.expect("a valid call");
    let accepted: Vec<_> = outcomes.iter().map(Result::is_ok).collect();
    assert_eq!(accepted, [true, true, true, false, false]);
    refused(outcomes[4].clone(), ErrorKind::LimitReached);
}

pub(super) async fn a_retry_is_never_asked_again(world: &World) {
    world.set("api", 1).await;
    let id = world.submit(job("api").or_reject()).await;
    let worker = world.worker("w1", ["api"]).await;
    let claimed = worker.claim_one().await;
    world.submit_many(3, job("api")).await;
    world.set("api", 0).await;
    assert_eq!(worker.settle(&claimed, retry(0)).await, Ok(JobState::Pending));
    world.set("api", 1).await;
    assert_eq!(worker.claim_ids(1).await, [id]);
}

pub(super) async fn concurrent_submits_do_not_over_admit(world: &World) {
    world.set("api", 3).await;
    let outcomes = join_all((0..10).map(|_| world.offer(job("api").or_reject()))).await;
    assert_eq!(outcomes.iter().filter(|outcome| outcome.is_ok()).count(), 3, "{outcomes:?}");
    assert_eq!(world.status("api").await.live, 3);
}

pub(super) async fn a_live_slot_counts_for_on_limit_whatever_holds_it(world: &World) {
    world.set("api", 6).await;
    world.submit_all(vec![job("api"), job("api"), job("api").run_at(at(9_000))]).await;
    world.submit_many(2, job("api").workflow("w")).await;
    let worker = world.worker("w1", ["api"]).await;
    worker.prefetch(1, 1).await;
    let held = world.hold(program("api")).await;
    assert!(rejected(world, job("api")).await, "running, claimed, scheduled, a head, a step, a program");
    assert_eq!(held.give_back().await, Ok(()));
    assert!(!rejected(world, job("api")).await);
}

pub(super) async fn a_reopened_job_counts_again(world: &World) {
    world.set("api", 1).await;
    let id = world.submit(job("api")).await;
    world.cancel(id).await.expect("it is there");
    assert_eq!(world.retry(id).await, Ok(JobState::Pending));
    assert!(rejected(world, job("api")).await);
}
