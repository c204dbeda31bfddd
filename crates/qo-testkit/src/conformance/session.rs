//! Sessions: a worker's registration and the lease that it renews, on store time alone (G9).

use super::*;

async fn session_of(world: &World, worker: &Worker) -> WorkerStatus {
    let workers = world.store.workers().await.expect("workers");
    workers.into_iter().find(|status| status.session == worker.session).expect("the session is live")
}

pub(super) async fn opening_a_session_tells_the_end_of_its_lease(world: &World) {
    world.advance(500).await;
    let spec = serving("w1", ["t"]).lease(20_000);
    let session = NewSession { id: world.session_id(), ..spec.new };
    let opened = world.store.open_session(session).await.expect("a session");
    assert_eq!((opened.now, opened.lease_until), (at(500), at(20_500)));
}

pub(super) async fn opening_a_session_again_changes_nothing(world: &World) {
    let spec = serving("w1", ["t"]).id(world.session_id());
    let worker = world.open(spec.clone()).await;
    worker.renew().await;
    world.advance(9_000).await;
    let before = world.snapshot().await;
    let again = NewSession { id: worker.session, ..spec.new };
    let opened = world.store.open_session(again).await.expect("the same session");
    assert_eq!((opened.now, opened.lease_until), (START, at(30_000)), "when it was opened, and its end");
    assert_eq!(world.snapshot().await, before);
    assert_eq!(worker.renew().await.number, 2, "its numbers go on");
}

pub(super) async fn a_session_that_ended_cannot_be_opened_again(world: &World) {
    let spec = serving("w1", ["t"]).id(world.session_id());
    let worker = world.open(spec.clone()).await;
    let session = NewSession { id: worker.session, ..spec.new };
    world.advance(30_000).await;
    world.sweep().await;
    refused(world.store.open_session(session).await, ErrorKind::Fenced);
    let closed = world.worker("w2", ["t"]).await;
    closed.close().await;
    let session = NewSession { id: closed.session, ..serving("w2", ["t"]).new };
    refused(world.store.open_session(session).await, ErrorKind::Fenced);
    assert_eq!(world.store.workers().await, Ok(vec![]));
}

pub(super) async fn a_session_of_another_owner_cannot_be_opened_again(world: &World) {
    let owned = |owner: Option<&str>| NewSession {
        id: SessionId(uuid::Uuid::from_u128(77)),
        owner: owner.map(|owner| owner.parse().expect("an id")),
        ..serving("w1", ["t"]).new
    };
    let opened = world.store.open_session(owned(Some("aaaaaaa1"))).await.expect("a session");
    assert_eq!(world.store.open_session(owned(Some("aaaaaaa1"))).await, Ok(opened), "the same one again");
    for other in [Some("bbbbbbb2"), None] {
        refused(world.store.open_session(owned(other)).await, ErrorKind::Conflict);
    }
    let shown = world.store.workers().await.expect("workers");
    assert_eq!(shown.iter().map(|status| status.owner).collect::<Vec<_>>(), [owned(Some("aaaaaaa1")).owner]);
    // A session without an owner is not to be taken over either.
    let free = world.worker("w2", ["t"]).await;
    let taken = NewSession { id: free.session, owner: "bbbbbbb2".parse().ok(), ..serving("w2", ["t"]).new };
    refused(world.store.open_session(taken).await, ErrorKind::Conflict);
}

pub(super) async fn every_exchange_renews_its_session(world: &World) {
    world.submit(job("t")).await;
    let worker = world.worker("w1", ["t"]).await;
    let claimed = worker.claim_one().await;
    for round in 1..=5 {
        world.advance(20_000).await;
        assert_eq!(worker.renew().await.lease_until, at(round * 20_000 + 30_000));
        assert_eq!(world.sweep().await, Swept::default());
    }
    let lease_until = world.view(claimed.id).await.running.map(|running| running.lease_until);
    assert_eq!(lease_until, Some(at(130_000)), "a job's lease is its session's");
    worker.succeed(&claimed).await;
}

pub(super) async fn a_session_that_holds_nothing_may_be_renewed_for_longer(world: &World) {
    world.submit(job("t")).await;
    let worker = world.worker("w1", ["t"]).await;
    let idle = async || {
        let exchange = Exchange { idle_ms: Some(300_000), ..worker.next() };
        worker.send(exchange).await.expect("the next number").lease_until
    };
    assert_eq!(idle().await, at(300_000));
    world.advance(200_000).await;
    assert_eq!(world.sweep().await, Swept::default(), "it lives");
    let claimed = worker.claim_one().await;
    assert_eq!(session_of(world, &worker).await.lease_until, at(230_000), "what it holds is under its lease");
    assert_eq!(idle().await, at(230_000), "it holds a job");
    worker.succeed(&claimed).await;
    assert_eq!(idle().await, at(500_000), "and now it does not");
}

pub(super) async fn a_session_is_over_at_its_end_and_not_before(world: &World) {
    let worker = world.open(serving("w1", ["t"]).lease(1_000)).await;
    world.advance(999).await;
    assert_eq!(world.sweep().await.sessions, 0);
    world.advance(1).await;
    assert_eq!(world.sweep().await.sessions, 1);
    refused(worker.send(worker.next()).await, ErrorKind::Fenced);
}

pub(super) async fn until_the_event_a_late_session_may_renew_and_settle(world: &World) {
    world.submit_many(2, job("t")).await;
    let worker = world.worker("w1", ["t"]).await;
    let claimed = worker.claim_one().await;
    world.advance(3_600_000).await;
    let reply = worker.exchange(vec![settled(&claimed, success())], 1).await;
    assert_eq!(reply.settled, [Ok(JobState::Succeeded)]);
    assert_eq!((reply.claimed.len(), reply.lease_until), (1, at(3_630_000)));
}

pub(super) async fn another_workers_exchange_ends_a_session(world: &World) {
    let late = world.worker("late", ["t"]).await;
    let other = world.open(serving("other", ["t"]).lease(90_000)).await;
    world.advance(30_000).await;
    other.renew().await;
    refused(late.send(late.next()).await, ErrorKind::Fenced);
}

pub(super) async fn a_closed_session_is_fenced(world: &World) {
    let worker = world.worker("w1", ["t"]).await;
    worker.renew().await;
    worker.close().await;
    refused(worker.send(worker.next()).await, ErrorKind::Fenced);
    refused(worker.repeat().await, ErrorKind::Fenced);
}

pub(super) async fn a_closed_session_gives_its_jobs_back(world: &World) {
    world.set("t", 2).await;
    let ids = world.submit_many(3, job("t")).await;
    let worker = world.worker("w1", ["t"]).await;
    worker.claim(2).await;
    worker.close().await;
    assert_eq!(world.used("t").await, 0);
    let attempt = world.detail(ids[0]).await.attempts.remove(0);
    assert_eq!((attempt.outcome, attempt.then), (AttemptOutcome::LeaseEnded, JobState::Pending));
    assert_eq!(world.view(ids[0]).await.attempts_used, 1);
    assert_eq!(world.worker("w2", ["t"]).await.claim_ids(10).await, ids[..2]);
}

pub(super) async fn closing_a_session_that_is_gone_changes_nothing(world: &World) {
    let worker = world.worker("w1", ["t"]).await;
    world.worker("w2", ["t"]).await;
    worker.close().await;
    let before = world.snapshot().await;
    worker.close().await;
    assert_eq!(world.store.close_session(world.session_id()).await, Ok(()));
    assert_eq!(world.snapshot().await, before);
}

pub(super) async fn a_workers_name_is_a_label_and_not_an_identity(world: &World) {
    world.submit_many(2, job("t")).await;
    let (one, two) = (world.worker("same", ["t"]).await, world.worker("same", ["t"]).await);
    let (first, second) = (one.claim_one().await, two.claim_one().await);
    one.close().await;
    assert_eq!(world.state(first.id).await, JobState::Pending);
    assert_eq!(world.state(second.id).await, JobState::Running);
    two.succeed(&second).await;
}

pub(super) async fn store_time_is_what_the_clock_says(world: &World) {
    assert_eq!(world.store.now().await, Ok(START));
    world.advance(1_234).await;
    assert_eq!(world.store.now().await, Ok(at(1_234)));
    assert_eq!(session_of(world, &world.worker("w1", ["t"]).await).await.opened_at, at(1_234));
}

pub(super) async fn the_id_of_an_ended_session_is_remembered_for_a_day(world: &World) {
    let spec = serving("w1", ["t"]).id(world.session_id());
    let worker = world.open(spec.clone()).await;
    worker.close().await;
    let again = NewSession { id: worker.session, ..spec.new };
    world.advance(DAY_MS - 1).await;
    world.sweep().await;
    refused(world.store.open_session(again.clone()).await, ErrorKind::Fenced);
    world.advance(1).await;
    world.sweep().await;
    world.store.open_session(again).await.expect("its id is forgotten");
}

pub(super) async fn a_task_or_queue_named_twice_is_served_once(world: &World) {
    let ids = world.submit_many(3, job("t").queue("q")).await;
    let worker = world.open(serving("w1", ["t", "t"]).queues(["q", "q"])).await;
    assert_eq!(worker.claim_ids(10).await, ids);
}
