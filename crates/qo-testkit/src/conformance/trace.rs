//! The trace that a job belongs to: kept with it, shown, and handed to the worker with every attempt.

use super::*;

const TRACE: &str = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";
const OTHER: &str = "00-00000000000000000000000000000001-0000000000000001-00";

pub(super) async fn a_job_without_a_traceparent_has_none(world: &World) {
    let id = world.submit(job("t")).await;
    assert_eq!(world.view(id).await.traceparent, None);
    assert_eq!(world.worker("w1", ["t"]).await.claim_one().await.traceparent, None);
}

pub(super) async fn a_worker_gets_the_traceparent_with_every_attempt(world: &World) {
    let id = world.submit(job("t").trace(TRACE)).await;
    let plain = world.submit(job("t")).await;
    let shown = Some(traceparent(TRACE));
    assert_eq!(world.view(id).await.traceparent, shown);
    let worker = world.worker("w1", ["t"]).await;
    let traces = |jobs: &[ClaimedJob]| jobs.iter().map(|job| (job.id, job.traceparent)).collect::<Vec<_>>();
    let reply = worker.exchange(Vec::new(), 2).await;
    assert_eq!(traces(&reply.claimed), [(id, shown), (plain, None)]);
    assert_eq!(worker.repeat().await.expect("the recorded reply"), reply);
    let settles = vec![settled(&reply.claimed[0], retry(0)), settled(&reply.claimed[1], retry(0))];
    assert_eq!(traces(&worker.exchange(settles, 2).await.claimed), [(id, shown), (plain, None)]);
    assert_eq!(world.view(id).await.traceparent, shown);
}

pub(super) async fn a_job_that_is_claimed_ahead_of_time_brings_its_traceparent(world: &World) {
    world.submit(job("t").trace(TRACE)).await;
    let ahead = world.worker("w1", ["t"]).await.ahead_one().await;
    assert_eq!(ahead.traceparent, Some(traceparent(TRACE)));
}

pub(super) async fn a_job_of_any_options_keeps_its_traceparent(world: &World) {
    let specs = vec![
        job("t").trace(TRACE),
        job("t").trace(TRACE).once("k").limit(9),
        job("t").trace(TRACE).workflow("w"),
        job("t").trace(TRACE).limits([("gpu", 2)]).cost(2),
    ];
    for id in world.submit_all(specs).await {
        assert_eq!(world.view(id).await.traceparent, Some(traceparent(TRACE)));
    }
    let worker = world.worker("w1", ["t"]).await;
    let claimed = worker.claim(9).await;
    assert_eq!(claimed.len(), 4);
    assert!(claimed.iter().all(|job| job.traceparent == Some(traceparent(TRACE))), "{claimed:?}");
}

pub(super) async fn another_traceparent_does_not_make_another_job(world: &World) {
    let first = world.submit(job("t").trace(TRACE).once("order-1")).await;
    for again in [job("t").trace(OTHER), job("t")] {
        assert_eq!(world.offer(again.clone().once("order-1")).await, Ok(Submitted::Existing(first)));
        assert_eq!(world.offer(again.id(first)).await, Ok(Submitted::Existing(first)));
    }
    assert_eq!(
        world.view(first).await.traceparent,
        Some(traceparent(TRACE)),
        "that of the first submit stays"
    );
}

pub(super) async fn a_job_keeps_its_traceparent_when_it_ends_and_is_reopened(world: &World) {
    let id = world.submit(job("t").trace(TRACE)).await;
    let worker = world.worker("w1", ["t"]).await;
    let claimed = worker.claim_one().await;
    worker.exchange(vec![settled(&claimed, failure())], 0).await;
    assert_eq!(world.view(id).await.traceparent, Some(traceparent(TRACE)));
    world.retry(id).await.expect("it is reopened");
    let claimed = worker.claim_one().await;
    assert_eq!((claimed.id, claimed.traceparent), (id, Some(traceparent(TRACE))));
}
