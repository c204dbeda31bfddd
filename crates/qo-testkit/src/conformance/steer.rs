//! Steering: what operators do to a workflow, and what happens to its steps.

use super::workflow::{nothing_to_do, settle_next};
use super::*;

/// A workflow of three steps whose first one has failed.
async fn halted(world: &World) -> (Worker, Vec<JobId>) {
    let ids = world.submit_many(3, step("w")).await;
    let worker = world.worker("w1", ["step"]).await;
    settle_next(&worker, failure()).await;
    assert_eq!(world.workflow("w").await.state, WorkflowState::Halted);
    (worker, ids)
}

pub(super) async fn a_halted_workflow_goes_on_when_its_step_is_retried(world: &World) {
    let (worker, ids) = halted(world).await;
    world.steer("w", Steer::Retry).await.expect("it is halted");
    let head = StepStatus { step: 1, job: ids[0], state: JobState::Pending };
    let status = world.workflow("w").await;
    assert_eq!((status.state, status.head), (WorkflowState::Active, Some(head)));
    assert_eq!(settle_next(&worker, success()).await.id, ids[0]);
    assert_eq!(worker.claim_ids(10).await, ids[1..2]);
}

pub(super) async fn a_halted_workflow_goes_on_when_its_job_is_retried(world: &World) {
    let (worker, ids) = halted(world).await;
    assert_eq!(world.retry(ids[0]).await, Ok(JobState::Pending));
    assert_eq!(world.view(ids[0]).await.step, Some(1));
    assert_eq!(settle_next(&worker, success()).await.id, ids[0]);
    assert_eq!(worker.claim_ids(10).await, ids[1..2]);
}

pub(super) async fn a_halted_workflow_goes_on_when_its_step_is_skipped(world: &World) {
    let (worker, ids) = halted(world).await;
    world.steer("w", Steer::Skip).await.expect("it is halted");
    let view = world.view(ids[0]).await;
    assert_eq!((view.state, view.skipped), (JobState::Failed, true));
    assert_eq!(world.workflow("w").await.head.map(|head| head.step), Some(2));
    for id in &ids[1..] {
        assert_eq!(settle_next(&worker, success()).await.id, *id);
    }
    assert_eq!(world.workflow("w").await.state, WorkflowState::Finished);
}

pub(super) async fn a_workflow_halts_again_at_the_next_step_that_fails(world: &World) {
    let (worker, ids) = halted(world).await;
    world.steer("w", Steer::Skip).await.expect("it is halted");
    assert_eq!(settle_next(&worker, failure()).await.id, ids[1]);
    nothing_to_do(&worker).await;
    let head = StepStatus { step: 2, job: ids[1], state: JobState::Failed };
    assert_eq!(world.workflow("w").await.head, Some(head));
}

pub(super) async fn a_skipped_step_that_is_reopened_is_the_head_again(world: &World) {
    let (worker, ids) = halted(world).await;
    world.steer("w", Steer::Skip).await.expect("it is halted");
    assert_eq!(world.retry(ids[0]).await, Ok(JobState::Pending));
    assert!(!world.view(ids[0]).await.skipped);
    assert_eq!(settle_next(&worker, failure()).await.id, ids[0]);
    nothing_to_do(&worker).await;
}

pub(super) async fn a_reopened_step_waits_for_the_one_that_runs(world: &World) {
    let first = step("w").on_failure(OnFailure::Continue);
    let ids = world.submit_all(vec![first, step("w"), step("w")]).await;
    let worker = world.worker("w1", ["step"]).await;
    settle_next(&worker, failure()).await;
    let second = worker.claim_one().await;
    assert_eq!(world.retry(ids[0]).await, Ok(JobState::Pending));
    nothing_to_do(&worker).await;
    assert_eq!(world.state(ids[1]).await, JobState::Running, "what runs goes on");
    worker.succeed(&second).await;
    assert_eq!(settle_next(&worker, success()).await.id, ids[0], "the head, before the third step");
    assert_eq!(worker.claim_ids(10).await, ids[2..]);
}

pub(super) async fn only_a_halted_workflow_is_retried_or_skipped(world: &World) {
    let ids = world.submit_many(2, step("w")).await;
    let worker = world.worker("w1", ["step"]).await;
    let conflict = |result| refused(result, ErrorKind::Conflict);
    for _ in 0..2 {
        let before = world.snapshot().await;
        world.steer("w", Steer::Retry).await.expect("it is open: there is nothing to do");
        conflict(world.steer("w", Steer::Skip).await);
        assert_eq!(world.snapshot().await, before);
        settle_next(&worker, success()).await;
    }
    conflict(world.steer("w", Steer::Retry).await);
    conflict(world.steer("w", Steer::Skip).await);
    world.submit(step("off")).await;
    settle_next(&worker, failure()).await;
    world.cancel_workflow("off").await.expect("it is there");
    let before = world.snapshot().await;
    conflict(world.steer("off", Steer::Retry).await);
    conflict(world.steer("off", Steer::Skip).await);
    assert_eq!(world.snapshot().await, before);
    assert_eq!(world.state(ids[1]).await, JobState::Succeeded);
}

pub(super) async fn a_repeated_steer_does_nothing_to_the_next_step(world: &World) {
    world.submit_many(3, step("w")).await;
    let worker = world.worker("w1", ["step"]).await;
    let steer = |steer| world.store.steer_workflow(name("w"), steer);
    settle_next(&worker, failure()).await;
    for other in [Steer::Skip(2), Steer::Skip(9), Steer::Retry(9)] {
        refused(steer(other).await, ErrorKind::Conflict);
    }
    steer(Steer::Skip(1)).await.expect("it halts the workflow");
    settle_next(&worker, failure()).await;
    // The second step halts it now; the repeated call still names the first step.
    steer(Steer::Skip(1)).await.expect("that is so already");
    assert_eq!(world.workflow("w").await.state, WorkflowState::Halted);
    steer(Steer::Retry(2)).await.expect("it halts the workflow");
    steer(Steer::Retry(2)).await.expect("that is so already");
    assert_eq!(
        world.workflow("w").await.head.map(|head| (head.step, head.state)),
        Some((2, JobState::Pending))
    );
}

pub(super) async fn a_workflow_that_is_not_there_is_not_found(world: &World) {
    world.submit(job("w")).await;
    refused(world.store.workflow(name("w")).await, ErrorKind::NotFound);
    for steer in [Steer::Retry(1), Steer::Skip(1), Steer::Cancel] {
        refused(world.store.steer_workflow(name("w"), steer).await, ErrorKind::NotFound);
    }
}

pub(super) async fn cancelling_a_workflow_cancels_what_waits_and_stops_what_runs(world: &World) {
    let ids = world.submit_many(3, step("w")).await;
    let worker = world.worker("w1", ["step"]).await;
    let claimed = worker.claim_one().await;
    world.cancel_workflow("w").await.expect("it is there");
    assert_eq!(world.workflow("w").await.state, WorkflowState::Cancelled);
    assert_eq!(
        (world.state(ids[1]).await, world.state(ids[2]).await),
        (JobState::Cancelled, JobState::Cancelled)
    );
    assert!(world.view(ids[0]).await.cancel_requested);
    let stop = Stop { job: ids[0], token: claimed.token, reason: StopReason::Cancelled };
    assert_eq!(worker.renew().await.stop, [stop]);
    worker.succeed(&claimed).await;
    let status = world.workflow("w").await;
    assert_eq!((status.state, status.head, status.live), (WorkflowState::Cancelled, None, 0));
}

pub(super) async fn a_cancelled_workflow_takes_nothing_more(world: &World) {
    let ids = world.submit_many(2, step("w")).await;
    world.cancel_workflow("w").await.expect("it is there");
    let before = world.snapshot().await;
    world.cancel_workflow("w").await.expect("again changes nothing");
    refused(world.offer(step("w")).await, ErrorKind::Conflict);
    refused(world.retry(ids[0]).await, ErrorKind::Conflict);
    assert_eq!(
        world.offer(step("w").id(ids[1])).await,
        Ok(Submitted::Existing(ids[1])),
        "it was there before"
    );
    assert_eq!(world.snapshot().await, before);
    let outcomes = world.offer_all(vec![step("w"), job("plain")]).await.expect("a valid call");
    assert_eq!((outcomes[0].is_err(), outcomes[1].is_ok()), (true, true), "it concerns that job alone");
}

pub(super) async fn cancelling_a_halted_workflow_calls_off_the_rest(world: &World) {
    let (worker, ids) = halted(world).await;
    world.cancel_workflow("w").await.expect("it is there");
    let states = [world.state(ids[0]).await, world.state(ids[1]).await, world.state(ids[2]).await];
    assert_eq!(states, [JobState::Failed, JobState::Cancelled, JobState::Cancelled]);
    nothing_to_do(&worker).await;
}

pub(super) async fn a_step_submitted_to_a_halted_workflow_waits(world: &World) {
    let (worker, ids) = halted(world).await;
    let late = world.submit(step("w")).await;
    nothing_to_do(&worker).await;
    world.steer("w", Steer::Skip).await.expect("it is halted");
    for id in [ids[1], ids[2], late] {
        assert_eq!(settle_next(&worker, success()).await.id, id);
    }
}

pub(super) async fn skipping_and_retrying_take_the_step_that_halts_and_no_other(world: &World) {
    let (worker, ids) = halted(world).await;
    world.cancel(ids[2]).await.expect("it is there");
    world.steer("w", Steer::Skip).await.expect("it is halted");
    settle_next(&worker, success()).await;
    let status = world.workflow("w").await;
    assert_eq!((status.state, status.head.map(|head| head.step)), (WorkflowState::Halted, Some(3)));
    world.steer("w", Steer::Retry).await.expect("it is halted");
    assert_eq!((world.state(ids[0]).await, world.state(ids[2]).await), (JobState::Failed, JobState::Pending));
    assert_eq!(settle_next(&worker, success()).await.id, ids[2]);
}

pub(super) async fn a_workflow_whose_last_step_is_skipped_is_finished(world: &World) {
    world.submit(step("w")).await;
    let worker = world.worker("w1", ["step"]).await;
    settle_next(&worker, failure()).await;
    assert_eq!(
        world.workflow("w").await.state,
        WorkflowState::Halted,
        "and so would be what is submitted now"
    );
    world.steer("w", Steer::Skip).await.expect("it is halted");
    let status = world.workflow("w").await;
    assert_eq!((status.state, status.head, status.steps), (WorkflowState::Finished, None, 1));
    let next = world.submit(step("w")).await;
    assert_eq!(settle_next(&worker, success()).await.id, next);
}

pub(super) async fn cancelling_a_workflow_takes_a_claimed_step_away(world: &World) {
    let ids = world.submit_many(2, step("w")).await;
    let worker = world.worker("w1", ["step"]).await;
    let claimed = worker.ahead_one().await;
    world.cancel_workflow("w").await.expect("it is there");
    for id in ids {
        assert_eq!(world.state(id).await, JobState::Cancelled);
    }
    refused(worker.start(&claimed).await, ErrorKind::Fenced);
}

pub(super) async fn a_workflow_in_which_a_step_was_only_asked_to_stop_is_cancelled(world: &World) {
    let ids = world.submit_many(2, step("w")).await;
    let worker = world.worker("w1", ["step"]).await;
    let claimed = worker.claim_one().await;
    world.cancel_workflow("w").await.expect("it is there");
    assert_eq!(worker.settle(&claimed, retry(0)).await, Ok(JobState::Cancelled));
    nothing_to_do(&worker).await;
    refused(world.retry(ids[0]).await, ErrorKind::Conflict);
}
