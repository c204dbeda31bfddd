//! Workflows: their jobs run strictly one after another, across the fleet, however they end (G6).

use super::*;

/// A worker of the steps, which must find nothing to do.
pub(super) async fn nothing_to_do(worker: &Worker) {
    assert_eq!(worker.claim(10).await, []);
}

/// Settles the step that comes next.
pub(super) async fn settle_next(worker: &Worker, outcome: Outcome) -> ClaimedJob {
    let claimed = worker.claim(10).await;
    assert_eq!(claimed.len(), 1, "one step at a time: {claimed:?}");
    worker.settle(&claimed[0], outcome).await.expect("it owns the job");
    claimed[0].clone()
}

pub(super) async fn a_step_waits_for_the_one_before_it_across_the_fleet(world: &World) {
    let ids = world.submit_many(3, step("w")).await;
    let (one, two) = (world.worker("w1", ["step"]).await, world.worker("w2", ["step"]).await);
    let first = one.claim(10).await;
    assert_eq!(worker::ids(&first), ids[..1]);
    nothing_to_do(&two).await;
    nothing_to_do(&one).await;
    one.succeed(&first[0]).await;
    let second = two.claim(10).await;
    assert_eq!(worker::ids(&second), ids[1..2]);
    nothing_to_do(&one).await;
    two.succeed(&second[0]).await;
    assert_eq!(one.claim_ids(10).await, ids[2..]);
}

pub(super) async fn an_exchange_that_ends_a_step_grants_the_next_one(world: &World) {
    let ids = world.submit_many(2, step("w")).await;
    let worker = world.worker("w1", ["step"]).await;
    let first = worker.claim_one().await;
    let reply = worker.exchange(vec![settled(&first, success())], 10).await;
    assert_eq!(worker::ids(&reply.claimed), ids[1..]);
}

pub(super) async fn steps_are_numbered_in_the_order_of_their_acceptance(world: &World) {
    let (high, low) = (world.job_id(), world.job_id());
    let mut ids = world.submit_all(vec![step("w").id(low), step("other"), step("w").id(high)]).await;
    ids.push(world.submit(job("plain")).await);
    ids.push(world.submit(step("w")).await);
    let mut shown = Vec::new();
    for id in ids {
        let view = world.view(id).await;
        shown.push((view.workflow.map(|workflow| workflow.to_string()), view.step));
    }
    let of = |workflow: &str, step| (Some(workflow.to_string()), Some(step));
    assert_eq!(shown, [of("w", 1), of("other", 1), of("w", 2), (None, None), of("w", 3)]);
}

pub(super) async fn no_priority_date_or_queue_overtakes_a_step(world: &World) {
    world.prioritize([("fast", 1)]).await;
    let hurried = step("w").queue("fast").priority(-9).run_at(Time::from_millis(0));
    let ids = world.submit_all(vec![step("w").run_at(at(5_000)).priority(9), hurried]).await;
    let worker = world.worker("w1", ["step"]).await;
    nothing_to_do(&worker).await;
    world.advance(5_000).await;
    assert_eq!(settle_next(&worker, success()).await.id, ids[0]);
    assert_eq!(settle_next(&worker, success()).await.id, ids[1]);
}

pub(super) async fn a_step_waits_through_the_retries_and_delays_of_the_one_before_it(world: &World) {
    let ids = world.submit_many(2, step("w").attempts(3)).await;
    let worker = world.worker("w1", ["step"]).await;
    for outcome in [retry(4_000), snooze(4_000)] {
        assert_eq!(settle_next(&worker, outcome).await.id, ids[0]);
        world.advance(3_999).await;
        nothing_to_do(&worker).await;
        world.advance(1).await;
    }
    assert_eq!(settle_next(&worker, Outcome::Release).await.id, ids[0]);
    assert_eq!(settle_next(&worker, success()).await.id, ids[0]);
    assert_eq!(worker.claim_ids(10).await, ids[1..]);
}

pub(super) async fn the_order_holds_when_workers_die_and_others_go_on(world: &World) {
    let ids = world.submit_many(6, step("w").attempts(9)).await;
    let mut order = Vec::new();
    for round in 0..12 {
        let worker = world.worker(&format!("w{round}"), ["step"]).await;
        let claimed = worker.claim(10).await;
        assert_eq!(worker::ids(&claimed), [ids[round / 2]]);
        if round % 2 == 0 {
            world.advance(30_000).await;
            world.sweep().await;
        } else {
            worker.succeed(&claimed[0]).await;
            order.push(claimed[0].id);
        }
    }
    assert_eq!(order, ids);
    assert_eq!(world.workflow("w").await.state, WorkflowState::Finished);
}

pub(super) async fn concurrent_submits_take_one_place_each(world: &World) {
    join_all((0..10).map(|_| world.offer(step("w")))).await;
    let mut steps: Vec<_> = world.all_jobs().await.iter().map(|view| (view.step, view.id)).collect();
    steps.sort();
    assert_eq!(
        steps.iter().map(|(step, _)| *step).collect::<Vec<_>>(),
        (1..=10).map(Some).collect::<Vec<_>>()
    );
    let worker = world.worker("w1", ["step"]).await;
    for (_, id) in steps {
        assert_eq!(settle_next(&worker, success()).await.id, id);
    }
}

pub(super) async fn any_end_but_success_halts_the_rest(world: &World) {
    let worker = world.open(serving("w1", ["step"]).lease(caps::LEASE_MAX_MS)).await;
    let names = ["failed", "gave_up", "cancelled", "called_off", "expired"];
    let mut ends = Vec::new();
    for workflow in names {
        let first = step(workflow).attempts(1).good_until(at(1_000));
        let ids = world.submit_all(vec![first, step(workflow)]).await;
        match workflow {
            "failed" => drop(settle_next(&worker, failure()).await),
            "gave_up" => drop(settle_next(&worker, retry(0)).await),
            "cancelled" => drop(settle_next(&worker, Outcome::Cancelled).await),
            "called_off" => drop(world.cancel(ids[0]).await),
            _ => world.advance(1_000).await,
        }
        world.sweep().await;
        nothing_to_do(&worker).await;
        let status = world.workflow(workflow).await;
        assert_eq!((status.state, status.live, status.steps), (WorkflowState::Halted, 1, 2), "{workflow}");
        ends.extend(status.head.map(|head| (head.step, head.state)));
    }
    let [failed, cancelled] = [(1, JobState::Failed), (1, JobState::Cancelled)];
    assert_eq!(ends, [failed, failed, cancelled, cancelled, (1, JobState::Expired)]);
}

pub(super) async fn a_workflow_that_continues_goes_on_after_any_end(world: &World) {
    let first = step("w").on_failure(OnFailure::Continue).attempts(1);
    let ids = world.submit_all(vec![first, step("w"), step("w").good_until(at(1_000)), step("w")]).await;
    let worker = world.worker("w1", ["step"]).await;
    assert_eq!(settle_next(&worker, failure()).await.id, ids[0]);
    assert_eq!(world.workflow("w").await.state, WorkflowState::Active);
    assert_eq!(settle_next(&worker, Outcome::Cancelled).await.id, ids[1]);
    world.advance(1_000).await;
    assert_eq!(settle_next(&worker, success()).await.id, ids[3], "the third one expired");
    let status = world.workflow("w").await;
    assert_eq!((status.state, status.head, status.live), (WorkflowState::Finished, None, 0));
    assert!(!world.view(ids[0]).await.skipped, "no operator skipped it");
}

pub(super) async fn the_first_step_says_what_a_failure_does(world: &World) {
    let (halt, go_on) = (OnFailure::Halt, OnFailure::Continue);
    world.submit_all(vec![step("quiet"), step("bold").on_failure(go_on), step("bold")]).await;
    assert_eq!(world.workflow("quiet").await.on_failure, halt, "the default");
    assert_eq!(world.workflow("bold").await.on_failure, go_on);
    world.submit_all(vec![step("quiet").on_failure(halt), step("bold").on_failure(go_on)]).await;
    let before = world.snapshot().await;
    refused(world.offer(step("quiet").on_failure(go_on)).await, ErrorKind::Conflict);
    refused(world.offer(step("bold").on_failure(halt)).await, ErrorKind::Conflict);
    assert_eq!(world.snapshot().await, before, "a refused step takes no place");
    let outcomes = world.offer_all(vec![step("bold"), step("bold").on_failure(halt), step("bold")]).await;
    let accepted: Vec<_> = outcomes.expect("a valid call").iter().map(Result::is_ok).collect();
    assert_eq!(accepted, [true, false, true], "it concerns that job alone");
    let outcomes = world.offer_all(vec![step("new").on_failure(go_on), step("new").on_failure(halt)]).await;
    let accepted: Vec<_> = outcomes.expect("a valid call").iter().map(Result::is_ok).collect();
    assert_eq!(accepted, [true, false], "jobs of one call see each other");
}

pub(super) async fn a_finished_workflow_takes_more_steps(world: &World) {
    world.submit(step("w")).await;
    let worker = world.worker("w1", ["step"]).await;
    settle_next(&worker, success()).await;
    assert_eq!(world.workflow("w").await.state, WorkflowState::Finished);
    let next = world.submit(step("w")).await;
    let status = world.workflow("w").await;
    assert_eq!((status.state, status.steps, status.live), (WorkflowState::Active, 2, 1));
    assert_eq!(settle_next(&worker, success()).await.id, next);
}

pub(super) async fn a_waiting_step_delays_no_other_job(world: &World) {
    world.set("step", 2).await;
    world.submit_many(50, step("w").priority(-1)).await;
    let worker = world.worker("w1", ["step"]).await;
    let first = worker.claim_one().await;
    let others = world.submit_all(vec![step("v"), job("step"), step("u")]).await;
    assert_eq!(worker.claim_ids(10).await, others[..1], "49 steps wait, and hold no slot");
    worker.succeed(&first).await;
    assert_eq!(world.used("step").await, 1);
    let next = worker.claim(10).await;
    assert_eq!(next.len(), 1, "there is one slot");
    assert_eq!(world.view(next[0].id).await.step, Some(2), "and the second step comes first in line");
}

pub(super) async fn a_step_waits_for_its_slots_like_any_job(world: &World) {
    world.set("step", 1).await;
    let plain = world.submit(job("step")).await;
    let ids = world.submit_many(2, step("w")).await;
    let worker = world.worker("w1", ["step"]).await;
    let running = worker.claim(10).await;
    assert_eq!(worker::ids(&running), [plain]);
    let reply = worker.exchange(vec![settled(&running[0], success())], 10).await;
    assert_eq!(worker::ids(&reply.claimed), ids[..1]);
}

pub(super) async fn a_big_step_that_is_not_next_reserves_nothing(world: &World) {
    world.set("step", 3).await;
    world.submit_all(vec![step("w"), step("w").cost(3).priority(-1)]).await;
    let worker = world.worker("w1", ["step"]).await;
    let first = worker.claim_one().await;
    let small = world.submit(job("step")).await;
    assert_eq!(worker.claim_ids(10).await, [small]);
    let next = world.submit(job("step")).await;
    let reply = worker.exchange(vec![settled(&first, success())], 10).await;
    assert_eq!(reply.claimed, [], "now that it is next it keeps what is free: {next} waits");
}

pub(super) async fn steps_may_differ_in_everything_else(world: &World) {
    let specs = vec![
        job("fetch").workflow("w").queue("a").group("net").key("k"),
        job("build").workflow("w").queue("b").cost(2),
        job("fetch").workflow("w").limits([("gpu", 1)]),
    ];
    let ids = world.submit_all(specs).await;
    let (fetch, build) = (world.worker("w1", ["fetch"]).await, world.worker("w2", ["build"]).await);
    nothing_to_do(&build).await;
    assert_eq!(settle_next(&fetch, success()).await.id, ids[0]);
    nothing_to_do(&fetch).await;
    assert_eq!(settle_next(&build, success()).await.id, ids[1]);
    assert_eq!(settle_next(&fetch, success()).await.id, ids[2]);
}

pub(super) async fn what_is_not_stored_takes_no_place_and_makes_no_workflow(world: &World) {
    world.set("held", 0).await;
    refused(world.offer(job("held").workflow("w").or_reject()).await, ErrorKind::LimitReached);
    assert_eq!(world.offer(job("held").workflow("w").or_skip()).await, Ok(Submitted::Skipped));
    refused(world.offer_all(vec![step("w"), job("t").cost(0)]).await, ErrorKind::Invalid);
    refused(world.store.workflow(name("w")).await, ErrorKind::NotFound);
    world.submit(step("w").once("a")).await;
    refused(world.offer(job("held").workflow("w").or_reject()).await, ErrorKind::LimitReached);
    world.offer(step("w").once("a")).await.expect("the same job");
    let second = world.submit(step("w")).await;
    assert_eq!((world.view(second).await.step, world.workflow("w").await.steps), (Some(2), 2));
}

pub(super) async fn a_step_that_ends_before_it_is_next_halts_when_it_is_next(world: &World) {
    let worker = world.worker("w1", ["step"]).await;
    let ids = world.submit_all(vec![step("w"), step("w").good_until(at(1_000)), step("w")]).await;
    let first = worker.claim_one().await;
    world.advance(1_000).await;
    assert_eq!(world.sweep().await.expired, 1, "in line or not");
    assert_eq!(world.workflow("w").await.state, WorkflowState::Active);
    worker.succeed(&first).await;
    nothing_to_do(&worker).await;
    let head = StepStatus { step: 2, job: ids[1], state: JobState::Expired };
    let status = world.workflow("w").await;
    assert_eq!((status.state, status.head), (WorkflowState::Halted, Some(head)));
}

pub(super) async fn waiting_steps_count_at_submit(world: &World) {
    world.set("step", 3).await;
    world.submit_many(3, step("w")).await;
    refused(world.offer(job("step").or_reject()).await, ErrorKind::LimitReached);
}

pub(super) async fn the_workflow_is_checked_after_costs_and_before_limits(world: &World) {
    world.submit(step("off")).await;
    world.cancel_workflow("off").await.expect("it is there");
    world.set("held", 0).await;
    world.set("small", 1).await;
    let to = |task| job(task).workflow("off");
    refused(world.offer(to("held").or_reject()).await, ErrorKind::Conflict);
    refused(world.offer(to("held").or_skip()).await, ErrorKind::Conflict);
    refused(world.offer(to("new").limit(3)).await, ErrorKind::Conflict);
    assert_eq!(world.limit("new").await, None, "a refused job leaves no limit behind");
    refused(world.offer_all(vec![job("t"), to("small").cost(2)]).await, ErrorKind::Invalid);
}
