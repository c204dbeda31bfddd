//! The fence: an old token changes nothing, ever (G2), and attempts of a job never overlap (G4).

use super::*;

/// A job that `w1` held until its lease ended, and that `w2` holds now.
async fn a_zombie(world: &World) -> (SessionSpec, ClaimedJob, Worker, ClaimedJob) {
    world.set("t", 1).await;
    world.submit(job("t")).await;
    let zombie = serving("w1", ["t"]).id(world.session_id());
    let old = world.open(zombie.clone()).await.claim_one().await;
    world.advance(30_000).await;
    let owner = world.worker("w2", ["t"]).await;
    let new = owner.claim_one().await;
    (zombie, old, owner, new)
}

pub(super) async fn a_fenced_worker_cannot_settle(world: &World) {
    let (zombie, old, _, new) = a_zombie(world).await;
    let before = world.snapshot().await;
    let session = zombie.id.expect("it has an id");
    let settles = vec![settled(&old, success())];
    let exchange = Exchange { settles, number: 2, ..Exchange::renew(session, 2) };
    refused(world.store.exchange(exchange).await, ErrorKind::Fenced);
    assert_eq!(world.snapshot().await, before);
    assert!(new.token > old.token);
}

pub(super) async fn a_zombie_that_comes_back_with_a_new_session_settles_nothing(world: &World) {
    let (_, old, owner, new) = a_zombie(world).await;
    let reborn = world.worker("w1", ["t"]).await;
    let before = world.view(old.id).await;
    for outcome in [success(), failure(), retry(0), snooze(0), Outcome::Release, Outcome::Cancelled] {
        refused(reborn.settle(&old, outcome).await, ErrorKind::Fenced);
    }
    assert_eq!((world.view(old.id).await, world.used("t").await), (before, 1));
    owner.succeed(&new).await;
}

pub(super) async fn a_slot_is_not_released_twice(world: &World) {
    let (_, old, owner, new) = a_zombie(world).await;
    world.submit_many(20, job("t")).await;
    let reborn = world.worker("w1", ["t"]).await;
    for _ in 0..11 {
        let reply = reborn.exchange(vec![settled(&old, success())], 5).await;
        refused(reply.settled[0].clone(), ErrorKind::Fenced);
        assert_eq!(reply.claimed, [], "limit 1 stays 1, however often a zombie releases");
    }
    owner.succeed(&new).await;
    assert_eq!(owner.settle(&new, success()).await, Ok(JobState::Succeeded));
    assert_eq!(owner.settle(&new, Outcome::Release).await, Ok(JobState::Succeeded));
    assert_eq!(owner.claim(5).await.len(), 1);
    assert_eq!(world.used("t").await, 1);
}

pub(super) async fn a_worker_that_claims_its_own_lost_job_again_has_a_new_token(world: &World) {
    world.submit(job("t")).await;
    let worker = world.worker("w1", ["t"]).await;
    let old = worker.claim_one().await;
    world.store.release_slot(group_ref("t"), old.token).await.expect("it holds a slot");
    let new = worker.claim_one().await;
    assert_eq!((new.id, new.attempt), (old.id, 2));
    refused(worker.settle(&old, success()).await, ErrorKind::Fenced);
    assert_eq!(world.state(new.id).await, JobState::Running);
    worker.succeed(&new).await;
}

pub(super) async fn a_settle_is_matched_by_attempt_and_not_by_job(world: &World) {
    world.submit(job("t").timeout(1_000)).await;
    let worker = world.worker("w1", ["t"]).await;
    let old = worker.claim_one().await;
    world.advance(11_000).await;
    let new = worker.claim_one().await;
    assert_eq!(new.id, old.id);
    refused(worker.settle(&old, failure()).await, ErrorKind::Fenced);
    assert_eq!(world.state(new.id).await, JobState::Running);
    worker.succeed(&new).await;
    refused(worker.settle(&old, failure()).await, ErrorKind::Fenced);
    assert_eq!(world.state(new.id).await, JobState::Succeeded);
}

pub(super) async fn another_session_cannot_use_a_live_token(world: &World) {
    world.submit(job("t")).await;
    let (owner, thief) = (world.worker("w1", ["t"]).await, world.worker("w1", ["t"]).await);
    let claimed = owner.claim_one().await;
    refused(thief.settle(&claimed, success()).await, ErrorKind::Fenced);
    assert_eq!(world.state(claimed.id).await, JobState::Running);
    owner.succeed(&claimed).await;
}

pub(super) async fn a_token_of_another_job_or_of_the_future_is_fenced(world: &World) {
    let ids = world.submit_many(3, job("t")).await;
    let worker = world.worker("w1", ["t"]).await;
    let claimed = worker.claim(2).await;
    worker.renew().await;
    let before = world.snapshot().await;
    let tokens = [claimed[1].token, FenceToken(0), FenceToken(claimed[1].token.0 + 1), FenceToken(u64::MAX)];
    for token in tokens {
        let settle = Settle { job: ids[0], token, outcome: success() };
        refused(worker.exchange(vec![settle], 0).await.settled.remove(0), ErrorKind::Fenced);
        let settle = Settle { job: ids[2], token, outcome: success() };
        refused(worker.exchange(vec![settle], 0).await.settled.remove(0), ErrorKind::Fenced);
    }
    assert_eq!(world.snapshot().await, before);
}

pub(super) async fn a_job_that_is_not_there_is_fenced(world: &World) {
    let worker = world.worker("w1", ["t"]).await;
    let settle = Settle { job: world.job_id(), token: FenceToken(1), outcome: success() };
    refused(worker.exchange(vec![settle], 0).await.settled.remove(0), ErrorKind::Fenced);
}

pub(super) async fn a_token_that_lost_its_lease_is_fenced_even_if_the_job_still_waits(world: &World) {
    let id = world.submit(job("t").timeout(1_000)).await;
    let worker = world.worker("w1", ["t"]).await;
    let claimed = worker.claim_one().await;
    world.advance(11_000).await;
    world.sweep().await;
    refused(worker.settle(&claimed, success()).await, ErrorKind::Fenced);
    assert_eq!(world.state(id).await, JobState::Pending);
}

pub(super) async fn tokens_grow_per_job_through_all_its_attempts(world: &World) {
    world.submit(job("t").attempts(20)).await;
    let (one, two) = (world.worker("w1", ["t"]).await, world.worker("w2", ["t"]).await);
    let mut last = FenceToken(0);
    for outcome in [retry(0), snooze(0), Outcome::Release, retry(0)] {
        for worker in [&one, &two] {
            let claimed = worker.claim_one().await;
            assert!(claimed.token > last, "{:?} after {last:?}", claimed.token);
            last = claimed.token;
            worker.settle(&claimed, outcome.clone()).await.expect("it owns the job");
        }
    }
}

pub(super) async fn a_running_job_is_given_to_no_other_worker(world: &World) {
    world.submit(job("t")).await;
    let (one, two) = (world.worker("w1", ["t"]).await, world.worker("w2", ["t"]).await);
    one.claim_one().await;
    assert_eq!(two.claim(10).await, []);
    assert_eq!(one.claim(10).await, []);
}

pub(super) async fn a_claimed_job_is_given_to_no_other_worker(world: &World) {
    world.submit(job("t")).await;
    let (one, two) = (world.worker("w1", ["t"]).await, world.worker("w2", ["t"]).await);
    one.ahead_one().await;
    let reply = two.prefetch(10, 10).await;
    assert_eq!((reply.claimed, reply.prefetched), (vec![], vec![]));
    let reply = one.prefetch(10, 10).await;
    assert_eq!((reply.claimed, reply.prefetched), (vec![], vec![]));
}

pub(super) async fn a_start_with_a_token_that_has_not_claimed_the_job_is_fenced(world: &World) {
    let ids = world.submit_many(3, job("t")).await;
    let (owner, thief) = (world.worker("w1", ["t"]).await, world.worker("w1", ["t"]).await);
    let claimed = owner.ahead(2).await;
    thief.renew().await;
    let before = world.snapshot().await;
    refused(thief.start(&claimed[0]).await, ErrorKind::Fenced);
    let wrong = [
        ClaimedJob { id: ids[1], ..claimed[0].clone() },
        ClaimedJob { id: ids[2], ..claimed[0].clone() },
        ClaimedJob { id: world.job_id(), ..claimed[0].clone() },
        ClaimedJob { token: FenceToken(0), ..claimed[0].clone() },
        ClaimedJob { token: FenceToken(u64::MAX), ..claimed[0].clone() },
    ];
    for result in owner.start_all(&wrong).await {
        refused(result, ErrorKind::Fenced);
    }
    assert_eq!(world.snapshot().await, before);
}

pub(super) async fn a_job_is_started_once(world: &World) {
    world.submit(job("t")).await;
    let worker = world.worker("w1", ["t"]).await;
    let claimed = worker.ahead_one().await;
    let results = worker.start_all(&[claimed.clone(), claimed.clone()]).await;
    assert_eq!(results[0].as_ref().map(|started| started.then), Ok(JobState::Running));
    refused(results[1].clone(), ErrorKind::Fenced);
    refused(worker.start(&claimed).await, ErrorKind::Fenced);
    let run = results[0].clone().expect("it runs").run.expect("it has a token");
    let running = ClaimedJob { token: run.token, ..claimed };
    refused(worker.start(&running).await, ErrorKind::Fenced);
    worker.succeed(&running).await;
}

pub(super) async fn one_counter_gives_the_tokens_of_claims_starts_and_programs(world: &World) {
    world.submit_many(3, job("t")).await;
    let worker = world.worker("w1", ["t"]).await;
    let claimed = worker.ahead_one().await;
    let one = world.hold(program("t")).await;
    let running = worker.claim_one().await;
    let started = worker.run(&claimed).await;
    let two = world.hold(program("gpu")).await;
    let tokens = [claimed.token, one.token(), running.token, started.token, two.token()];
    assert!(tokens.is_sorted_by(|a, b| a < b), "{tokens:?}");
}

pub(super) async fn a_token_of_a_program_settles_and_starts_nothing(world: &World) {
    let id = world.submit(job("t")).await;
    let worker = world.worker("w1", ["t"]).await;
    let held = world.hold(program("t")).await;
    let claimed = ClaimedJob { token: held.token(), ..worker.ahead_one().await };
    refused(worker.settle(&claimed, Outcome::Release).await, ErrorKind::Fenced);
    refused(worker.start(&claimed).await, ErrorKind::Fenced);
    assert_eq!((world.state(id).await, world.used("t").await), (JobState::Claimed, 1));
    refused(world.store.return_slots(held.id, FenceToken(held.token().0 + 1)).await, ErrorKind::Fenced);
}
