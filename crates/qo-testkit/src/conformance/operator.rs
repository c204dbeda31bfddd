//! `release GROUP SLOT_ID --force`: an operator takes a slot away from its holder.

use super::*;

async fn release(world: &World, group: &str, slot: FenceToken) -> qo_core::Result<()> {
    world.store.release_slot(group_ref(group), slot).await
}

pub(super) async fn a_released_slot_is_free_and_the_job_goes_back(world: &World) {
    world.set("t", 1).await;
    let id = world.submit(job("t").key("k").queue("q").limits([("gpu", 2)])).await;
    let (worker, other) = (world.worker("w1", ["t"]).await, world.worker("w2", ["t"]).await);
    let claimed = worker.claim_one().await;
    assert_eq!(release(world, "t", claimed.token).await, Ok(()));
    for group in ["t", "t/k", "queue:q", "gpu", "cluster"] {
        assert_eq!(world.used(group).await, 0, "{group}");
    }
    let detail = world.detail(id).await;
    assert_eq!((detail.view.state, detail.view.attempts_used), (JobState::Pending, 1));
    let attempt = &detail.attempts[0];
    let error = attempt.error.as_ref().map(ToString::to_string).unwrap_or_default();
    assert_eq!(attempt.outcome, AttemptOutcome::ReleasedByOperator);
    assert!(error.contains("released by operator"), "{error:?}");
    assert_eq!(other.claim_ids(1).await, [id]);
}

pub(super) async fn the_owner_is_told_to_stop_and_is_fenced(world: &World) {
    world.submit(job("t")).await;
    let worker = world.worker("w1", ["t"]).await;
    let claimed = worker.claim_one().await;
    release(world, "t", claimed.token).await.expect("it holds a slot");
    let stop = Stop { job: claimed.id, token: claimed.token, reason: StopReason::LeaseEnded };
    assert_eq!(worker.renew().await.stop, [stop]);
    assert_eq!(worker.renew().await.stop, []);
    refused(worker.settle(&claimed, success()).await, ErrorKind::Fenced);
}

pub(super) async fn a_slot_may_be_released_by_any_group_that_it_is_in(world: &World) {
    let worker = world.worker("w1", ["t"]).await;
    for group in ["g", "g/k", "queue:q", "cluster", "gpu", "api/x"] {
        world
            .submit(
                job("t")
                    .group("g")
                    .key("k")
                    .queue("q")
                    .limits([("gpu", 1)])
                    .limits([("api/x", 1)])
                    .attempts(1),
            )
            .await;
        let claimed = worker.claim_one().await;
        assert_eq!(release(world, group, claimed.token).await, Ok(()), "{group}");
        assert_eq!(world.state(claimed.id).await, JobState::Failed);
    }
}

pub(super) async fn what_no_longer_holds_is_not_found(world: &World) {
    let ids = world.submit_many(2, job("t").key("k").attempts(1)).await;
    let worker = world.worker("w1", ["t"]).await;
    let claimed = worker.claim(2).await;
    release(world, "t", claimed[0].token).await.expect("it holds a slot");
    let before = world.snapshot().await;
    refused(release(world, "t", claimed[0].token).await, ErrorKind::NotFound);
    refused(release(world, "other", claimed[1].token).await, ErrorKind::NotFound);
    refused(release(world, "t/other", claimed[1].token).await, ErrorKind::NotFound);
    refused(release(world, "queue:other", claimed[1].token).await, ErrorKind::NotFound);
    refused(release(world, "t", FenceToken(u64::MAX)).await, ErrorKind::NotFound);
    assert_eq!(world.snapshot().await, before);
    assert_eq!(world.state(ids[1]).await, JobState::Running);
}

pub(super) async fn a_cancelled_job_that_is_released_is_cancelled(world: &World) {
    let id = world.submit(job("t")).await;
    let worker = world.worker("w1", ["t"]).await;
    let claimed = worker.claim_one().await;
    world.cancel(id).await.expect("it is there");
    release(world, "t", claimed.token).await.expect("it holds a slot");
    assert_eq!(world.state(id).await, JobState::Cancelled);
}

pub(super) async fn the_last_attempt_that_is_released_fails(world: &World) {
    let id = world.submit(job("t").attempts(1)).await;
    let claimed = world.worker("w1", ["t"]).await.claim_one().await;
    release(world, "t", claimed.token).await.expect("it holds a slot");
    assert_eq!(world.state(id).await, JobState::Failed);
}

pub(super) async fn a_job_too_old_to_start_again_expires_with_its_slot(world: &World) {
    let id = world.submit(job("t").good_until(at(10))).await;
    let claimed = world.worker("w1", ["t"]).await.claim_one().await;
    world.advance(10).await;
    release(world, "t", claimed.token).await.expect("it holds a slot");
    assert_eq!(world.state(id).await, JobState::Expired);
}

pub(super) async fn the_token_of_a_claim_that_has_not_started_holds_nothing(world: &World) {
    let id = world.submit(job("t")).await;
    let worker = world.worker("w1", ["t"]).await;
    let claimed = worker.ahead_one().await;
    for group in ["t", "queue:default", "cluster"] {
        refused(release(world, group, claimed.token).await, ErrorKind::NotFound);
    }
    assert_eq!(world.state(id).await, JobState::Claimed);
    let running = worker.run(&claimed).await;
    refused(release(world, "t", claimed.token).await, ErrorKind::NotFound);
    assert_eq!(release(world, "t", running.token).await, Ok(()));
}
