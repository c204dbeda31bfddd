//! Cancel: a pending job ends at once; the worker of a running job is told, the job keeps its slots until it is
//! settled, and a success stays a success.

use super::*;

async fn one_cancelled(world: &World) -> (Worker, ClaimedJob) {
    world.set("t", 1).await;
    world.submit(job("t")).await;
    let worker = world.worker("w1", ["t"]).await;
    let claimed = worker.claim_one().await;
    assert_eq!(world.cancel(claimed.id).await, Ok(JobState::Running));
    (worker, claimed)
}

pub(super) async fn a_pending_job_is_cancelled_at_once(world: &World) {
    let ids = world.submit_all(vec![job("t"), job("t").run_at(at(9_000))]).await;
    world.advance(10).await;
    for id in ids {
        assert_eq!(world.cancel(id).await, Ok(JobState::Cancelled));
        let view = world.view(id).await;
        assert_eq!((view.state, view.finished_at), (JobState::Cancelled, Some(at(10))));
        assert_eq!(view.attempts_used, 0);
    }
    world.advance(9_000).await;
    assert_eq!(world.worker("w1", ["t"]).await.claim(10).await, []);
}

pub(super) async fn a_job_that_waits_for_its_retry_is_cancelled_at_once(world: &World) {
    let id = world.submit(job("t")).await;
    let worker = world.worker("w1", ["t"]).await;
    worker.settle(&worker.claim_one().await, retry(1_000)).await.expect("it owns the job");
    assert_eq!(world.cancel(id).await, Ok(JobState::Cancelled));
    world.advance(1_000).await;
    assert_eq!(worker.claim(1).await, []);
}

pub(super) async fn a_running_job_keeps_its_slots_until_settled(world: &World) {
    let (worker, claimed) = one_cancelled(world).await;
    world.submit(job("t")).await;
    let view = world.view(claimed.id).await;
    assert_eq!((view.state, view.cancel_requested), (JobState::Running, true));
    assert_eq!((worker.claim(5).await, world.used("t").await), (vec![], 1));
    let reply = worker.exchange(vec![settled(&claimed, Outcome::Cancelled)], 5).await;
    assert_eq!((reply.settled, reply.claimed.len()), (vec![Ok(JobState::Cancelled)], 1));
}

pub(super) async fn a_running_job_is_told_once_at_the_next_exchange(world: &World) {
    let (worker, claimed) = one_cancelled(world).await;
    let stop = Stop { job: claimed.id, token: claimed.token, reason: StopReason::Cancelled };
    let reply = worker.renew().await;
    assert_eq!(reply.stop, [stop]);
    assert_eq!(worker.repeat().await, Ok(reply), "the reply can be asked for again");
    assert_eq!(worker.renew().await.stop, []);
}

pub(super) async fn only_the_owner_of_a_job_is_told_to_stop(world: &World) {
    let other = world.worker("other", ["t"]).await;
    let (worker, _) = one_cancelled(world).await;
    assert_eq!(other.renew().await.stop, []);
    assert_eq!(worker.renew().await.stop.len(), 1);
}

pub(super) async fn a_job_settled_in_the_same_exchange_is_not_told(world: &World) {
    let (worker, claimed) = one_cancelled(world).await;
    assert_eq!(worker.exchange(vec![settled(&claimed, success())], 0).await.stop, []);
    assert_eq!(worker.renew().await.stop, []);
}

pub(super) async fn stops_are_told_in_the_order_of_their_tokens(world: &World) {
    let ids = world.submit_many(4, job("t")).await;
    let worker = world.worker("w1", ["t"]).await;
    let claimed = worker.claim(4).await;
    for place in [2, 0, 3] {
        world.cancel(ids[place]).await.expect("it is there");
    }
    world.store.release_slot(group_ref("t"), claimed[1].token).await.expect("it holds a slot");
    let stops: Vec<_> = worker.renew().await.stop.into_iter().map(|stop| (stop.token, stop.reason)).collect();
    let reasons =
        [StopReason::Cancelled, StopReason::LeaseEnded, StopReason::Cancelled, StopReason::Cancelled];
    let expected: Vec<_> = claimed.iter().map(|job| job.token).zip(reasons).collect();
    assert_eq!(stops, expected);
}

pub(super) async fn a_repeated_cancel_changes_nothing(world: &World) {
    let (worker, claimed) = one_cancelled(world).await;
    worker.renew().await;
    let before = world.snapshot().await;
    assert_eq!(world.cancel(claimed.id).await, Ok(JobState::Running));
    assert_eq!(world.snapshot().await, before);
    assert_eq!(worker.renew().await.stop, [], "it is not told a second time");
}

pub(super) async fn a_success_stays_a_success(world: &World) {
    let (worker, claimed) = one_cancelled(world).await;
    worker.succeed(&claimed).await;
    assert_eq!(world.state(claimed.id).await, JobState::Succeeded);
}

pub(super) async fn any_other_end_of_a_cancelled_job_is_cancelled(world: &World) {
    let worker = world.worker("w1", ["t"]).await;
    for outcome in [retry(0), snooze(0), Outcome::Release, failure(), Outcome::Cancelled] {
        let id = world.submit(job("t")).await;
        let claimed = worker.claim_one().await;
        world.cancel(id).await.expect("it is there");
        assert_eq!(worker.settle(&claimed, outcome.clone()).await, Ok(JobState::Cancelled), "{outcome:?}");
        assert!(world.view(id).await.finished_at.is_some());
    }
    assert_eq!(worker.claim(10).await, []);
}

pub(super) async fn a_cancelled_job_stays_cancelled_past_its_last_attempt_and_date(world: &World) {
    let id = world.submit(job("t").attempts(1).good_until(at(10))).await;
    let worker = world.worker("w1", ["t"]).await;
    let claimed = worker.claim_one().await;
    world.cancel(id).await.expect("it is there");
    world.advance(10).await;
    assert_eq!(worker.settle(&claimed, retry(0)).await, Ok(JobState::Cancelled));
}

pub(super) async fn a_finished_job_stays_as_it_is(world: &World) {
    let worker = world.worker("w1", ["t"]).await;
    for (outcome, state) in [(success(), JobState::Succeeded), (failure(), JobState::Failed)] {
        let id = world.submit(job("t")).await;
        worker.settle(&worker.claim_one().await, outcome).await.expect("it owns the job");
        let before = world.detail(id).await;
        assert_eq!(world.cancel(id).await, Ok(state));
        assert_eq!(world.detail(id).await, before);
    }
}

pub(super) async fn a_call_answers_for_each_job(world: &World) {
    let id = world.submit(job("t")).await;
    let answers = world.store.cancel(vec![world.job_id(), id, id]).await.expect("a valid call");
    let answers: Vec<_> = answers.into_iter().map(|answer| answer.map_err(|error| error.kind())).collect();
    assert_eq!(answers, [Err(ErrorKind::NotFound), Ok(JobState::Cancelled), Ok(JobState::Cancelled)]);
}

pub(super) async fn a_cancelled_job_no_longer_stands_in_line(world: &World) {
    world.set("t", 1).await;
    let ids = world.submit_many(3, job("t")).await;
    let worker = world.worker("w1", ["t"]).await;
    let first = worker.claim_one().await;
    world.cancel(ids[1]).await.expect("it is there");
    assert_eq!(world.status("t").await.live, 2);
    let reply = worker.exchange(vec![settled(&first, success())], 5).await;
    assert_eq!(worker::ids(&reply.claimed), ids[2..]);
}

pub(super) async fn a_claimed_job_is_cancelled_at_once_and_its_worker_told(world: &World) {
    let ids = world.submit_many(2, job("t")).await;
    let worker = world.worker("w1", ["t"]).await;
    let claimed = worker.ahead_one().await;
    assert_eq!(world.cancel(ids[0]).await, Ok(JobState::Cancelled));
    let view = world.view(ids[0]).await;
    assert_eq!((view.state, view.finished_at, view.claimed), (JobState::Cancelled, Some(START), None));
    let stop = Stop { job: ids[0], token: claimed.token, reason: StopReason::Cancelled };
    assert_eq!((worker.renew().await.stop, worker.renew().await.stop), (vec![stop], vec![]));
    refused(worker.start(&claimed).await, ErrorKind::Fenced);
    refused(worker.settle(&claimed, Outcome::Release).await, ErrorKind::Fenced);
}
