//! `explain`: "why is my job not running?" always has an answer.

use super::*;

async fn has(world: &World, id: JobId, reason: &Reason) {
    let reasons = world.reasons(id).await;
    assert!(reasons.contains(reason), "{reason:?} is not among {reasons:?}");
}

pub(super) async fn a_job_with_a_date_is_scheduled(world: &World) {
    world.worker("w1", ["t"]).await;
    let id = world.submit(job("t").run_at(at(9_000))).await;
    assert_eq!(world.reasons(id).await, [Reason::ScheduledUntil { run_at: at(9_000) }]);
}

pub(super) async fn a_job_between_two_attempts_retries_at(world: &World) {
    let worker = world.worker("w1", ["t"]).await;
    for outcome in [retry(9_000), snooze(9_000)] {
        let id = world.submit(job("t")).await;
        worker.settle(&worker.claim_one().await, outcome).await.expect("it owns the job");
        assert_eq!(world.reasons(id).await, [Reason::RetryAt { run_at: at(9_000) }]);
    }
}

pub(super) async fn a_job_past_good_until_is_explained_as_expired_before_a_sweep(world: &World) {
    let id = world.submit(job("t").good_until(at(10))).await;
    world.advance(10).await;
    has(world, id, &Reason::Expired { good_until: at(10) }).await;
    assert_eq!(world.state(id).await, JobState::Pending, "looking changes nothing");
}

pub(super) async fn a_paused_queue_is_a_reason(world: &World) {
    let id = world.submit(job("t").queue("q")).await;
    world.pause("q").await;
    has(world, id, &Reason::QueuePaused { queue: name("q") }).await;
}

pub(super) async fn a_limit_of_zero_is_a_reason_in_every_group(world: &World) {
    let id = world.submit(job("t").key("k").queue("q").limits([("gpu", 1)])).await;
    world.worker("w1", ["t"]).await;
    let groups = ["cluster", "queue:q", "t", "t/k", "gpu"];
    for group in groups {
        world.set(group, 0).await;
    }
    for group in groups {
        has(world, id, &Reason::HeldByLimitZero { group: group_ref(group) }).await;
    }
    assert_eq!(world.reasons(id).await.len(), groups.len());
}

pub(super) async fn a_cost_above_a_fallen_limit_can_never_run(world: &World) {
    world.worker("w1", ["t"]).await;
    let id = world.submit(job("t").cost(5)).await;
    world.set("t", 3).await;
    let reason = Reason::CanNeverRun { group: group_ref("t"), cost: 5, limit: 3 };
    assert_eq!(world.reasons(id).await, [reason]);
}

pub(super) async fn a_full_group_shows_its_holders_and_the_place_in_line(world: &World) {
    world.set("t", 3).await;
    let ids = world.submit_many(4, job("t").cost(2)).await;
    let claimed = world.worker("w1", ["t"]).await.claim_one().await;
    let reasons = world.reasons(ids[3]).await;
    let full = reasons.iter().find_map(|reason| match reason {
        Reason::GroupFull { group, used, limit, cost, holders, position } => {
            Some((group.to_string(), *used, *limit, *cost, holders.clone(), *position))
        }
        _ => None,
    });
    let (group, used, limit, cost, holders, position) = full.unwrap_or_else(|| panic!("{reasons:?}"));
    assert_eq!((group.as_str(), used, limit, cost, position), ("t", 2, 3, 2, 3));
    assert_eq!(holders.len(), 1);
    assert_eq!((holders[0].job(), holders[0].slots), (Some(ids[0]), 2));
    assert_eq!((&*holders[0].worker, holders[0].token), ("w1", claimed.token));
}

pub(super) async fn a_full_group_shows_its_ten_oldest_holders(world: &World) {
    world.set("t", 12).await;
    let ids = world.submit_many(13, job("t")).await;
    world.worker("w1", ["t"]).await.claim(20).await;
    let reasons = world.reasons(ids[12]).await;
    let [Reason::GroupFull { holders, used: 12, position: 1, .. }] = &reasons[..] else {
        panic!("{reasons:?}")
    };
    assert_eq!(holders.iter().filter_map(|holder| holder.job()).collect::<Vec<_>>(), ids[..10]);
}

pub(super) async fn a_reserved_slot_names_the_big_job(world: &World) {
    world.set("t", 3).await;
    let worker = world.worker("w1", ["t"]).await;
    world.submit_many(2, job("t")).await;
    worker.claim(2).await;
    let big = world.submit(job("t").cost(2)).await;
    let small = world.submit(job("t")).await;
    assert_eq!(world.reasons(small).await, [Reason::ReservedFor { group: group_ref("t"), job: big }]);
}

pub(super) async fn a_task_that_no_live_worker_has_is_a_reason(world: &World) {
    let no_worker = [Reason::NoLiveWorker { queue: name("q"), task: name("t") }];
    let id = world.submit(job("t").queue("q")).await;
    world.worker("w1", ["other"]).await;
    world.open(serving("w2", ["t"]).queues(["other"])).await;
    assert_eq!(world.reasons(id).await, no_worker);
    let worker = world.worker("w3", ["t"]).await;
    assert_eq!(world.reasons(id).await, [Reason::OnlyWaitingForClaim { position: 1 }]);
    worker.close().await;
    assert_eq!(world.reasons(id).await, no_worker);
}

pub(super) async fn workers_that_are_saturated_or_draining_are_a_reason(world: &World) {
    let id = world.submit(job("t")).await;
    let (one, two) = (world.worker("w1", ["t"]).await, world.worker("w2", ["t"]).await);
    one.send(Exchange { free_permits: 9, ..one.next() }).await.expect("the session is live");
    assert_eq!(world.reasons(id).await, [Reason::OnlyWaitingForClaim { position: 1 }], "w2 is free");
    two.send(Exchange { draining: true, ..two.next() }).await.expect("the session is live");
    assert_eq!(world.reasons(id).await, [Reason::WorkersBusy { saturated: 1, draining: 1 }]);
    one.send(Exchange { free_permits: 10, ..one.next() }).await.expect("the session is live");
    assert_eq!(world.reasons(id).await, [Reason::OnlyWaitingForClaim { position: 1 }], "a tenth is free");
}

pub(super) async fn a_job_that_could_run_only_waits_for_a_claim(world: &World) {
    let ids = world.submit_many(3, job("t")).await;
    world.submit_many(3, job("other").priority(-1)).await;
    world.worker("w1", ["t"]).await;
    for (place, id) in (1..).zip(ids) {
        assert_eq!(world.reasons(id).await, [Reason::OnlyWaitingForClaim { position: place }]);
    }
}

pub(super) async fn everything_that_keeps_a_job_back_is_named_at_once(world: &World) {
    let id = world.submit(job("t").queue("q").limits([("gpu", 1)])).await;
    world.pause("q").await;
    world.set("t", 0).await;
    world.set("gpu", 0).await;
    has(world, id, &Reason::QueuePaused { queue: name("q") }).await;
    has(world, id, &Reason::HeldByLimitZero { group: group_ref("t") }).await;
    has(world, id, &Reason::HeldByLimitZero { group: group_ref("gpu") }).await;
    has(world, id, &Reason::NoLiveWorker { queue: name("q"), task: name("t") }).await;
}

pub(super) async fn a_job_that_runs_or_finished_has_no_reasons(world: &World) {
    let id = world.submit(job("t")).await;
    let worker = world.worker("w1", ["t"]).await;
    let claimed = worker.claim_one().await;
    let explanation = world.store.explain(id).await.expect("the job is there");
    assert_eq!((explanation.job, explanation.state, explanation.reasons), (id, JobState::Running, vec![]));
    worker.succeed(&claimed).await;
    let explanation = world.store.explain(id).await.expect("the job is there");
    assert_eq!((explanation.state, explanation.reasons), (JobState::Succeeded, vec![]));
}

pub(super) async fn a_job_that_is_not_there_is_not_found(world: &World) {
    refused(world.store.explain(world.job_id()).await, ErrorKind::NotFound);
}

pub(super) async fn a_job_is_explained_exactly_as_long_as_it_waits(world: &World) {
    world.set("t", 1).await;
    let ids = world.submit_many(4, job("t")).await;
    let worker = world.worker("w1", ["t"]).await;
    for place in 0..ids.len() {
        let claimed = worker.claim_one().await;
        assert_eq!(claimed.id, ids[place]);
        for (ahead, id) in ids[place + 1..].iter().enumerate() {
            let reasons = world.reasons(*id).await;
            let [Reason::GroupFull { position, .. }] = &reasons[..] else { panic!("{reasons:?}") };
            assert_eq!(*position as usize, ahead + 1);
        }
        worker.succeed(&claimed).await;
    }
}

pub(super) async fn a_full_group_is_named_whatever_kind_it_is(world: &World) {
    let groups = ["cluster", "queue:q", "t", "t/k", "gpu"];
    let ids = world.submit_many(2, job("t").key("k").queue("q").limits([("gpu", 1)])).await;
    for group in groups {
        world.set(group, 1).await;
    }
    world.worker("w1", ["t"]).await.claim(5).await;
    let reasons = world.reasons(ids[1]).await;
    assert_eq!(reasons.len(), groups.len());
    for expected in groups {
        let full = |reason: &Reason| match reason {
            Reason::GroupFull { group, used: 1, limit: 1, cost: 1, holders, position: 1 } => {
                group.to_string() == expected && holders.len() == 1 && holders[0].job() == Some(ids[0])
            }
            _ => false,
        };
        assert!(reasons.iter().any(full), "{expected} is not among {reasons:?}");
    }
}

pub(super) async fn nothing_only_waits_for_a_claim_after_a_claim(world: &World) {
    for (group, limit) in [("cluster", 9), ("api", 5), ("api/*", 2), ("gpu", 3), ("held", 0)] {
        world.set(group, limit).await;
    }
    let worker = world.worker("w1", ["t", "u"]).await;
    for place in 0..60_u32 {
        let spec = job(if place % 4 == 0 { "u" } else { "t" }).cost(1 + place % 7 / 5);
        let spec = if place % 3 == 0 { spec.limits([("gpu", 1 + place % 2)]) } else { spec };
        let spec = if place % 2 == 0 { spec.group("api").key(&format!("k{}", place % 5)) } else { spec };
        world.submit(if place % 11 == 0 { spec.limits([("held", 1)]) } else { spec }).await;
    }
    loop {
        let free = waiting_only_for_a_claim(world).await;
        let claimed = worker.claim(100).await;
        assert_eq!(free.is_empty(), claimed.is_empty(), "{free:?} only waited");
        assert_eq!(waiting_only_for_a_claim(world).await, [], "these were not claimed for no reason");
        if claimed.is_empty() {
            break;
        }
        worker.succeed_all(&claimed).await;
    }
    let left: Vec<_> = world.all_jobs().await.into_iter().filter(|v| v.state == JobState::Pending).collect();
    assert!(left.iter().all(|view| view.limits.contains_key(&group_ref("held"))), "{left:?}");
}

async fn waiting_only_for_a_claim(world: &World) -> Vec<JobId> {
    let mut waiting = Vec::new();
    for view in world.all_jobs().await.into_iter().filter(|view| view.state == JobState::Pending) {
        if let [Reason::OnlyWaitingForClaim { .. }] = world.reasons(view.id).await[..] {
            waiting.push(view.id);
        }
    }
    waiting
}

/// The step of a job, as reasons name it.
async fn step_of(world: &World, id: JobId) -> StepStatus {
    let view = world.view(id).await;
    StepStatus { step: view.step.expect("it is a step"), job: id, state: view.state }
}

pub(super) async fn a_step_that_is_not_next_names_the_one_it_waits_for(world: &World) {
    let ids = world.submit_many(3, step("w")).await;
    let worker = world.worker("w1", ["step"]).await;
    assert_eq!(world.reasons(ids[0]).await, [Reason::OnlyWaitingForClaim { position: 1 }]);
    for state in [JobState::Pending, JobState::Claimed, JobState::Running] {
        match state {
            JobState::Claimed => drop(worker.ahead_one().await),
            JobState::Running => {
                let token = world.view(ids[0]).await.claimed.expect("it is claimed").token;
                let starts = vec![Start { job: ids[0], token }];
                worker.send(Exchange { starts, ..worker.next() }).await.expect("the session is live");
            }
            _ => {}
        }
        let waits_for = StepStatus { step: 1, job: ids[0], state };
        for id in &ids[1..] {
            assert_eq!(world.reasons(*id).await, [Reason::WaitingForStep { workflow: name("w"), waits_for }]);
        }
    }
}

pub(super) async fn a_reopened_step_names_the_one_that_still_runs(world: &World) {
    let first = step("w").on_failure(OnFailure::Continue);
    let ids = world.submit_all(vec![first, step("w"), step("w")]).await;
    let worker = world.worker("w1", ["step"]).await;
    worker.settle(&worker.claim_one().await, failure()).await.expect("it owns the job");
    let second = worker.claim_one().await;
    world.retry(ids[0]).await.expect("it failed");
    let running = Reason::WaitingForStep { workflow: name("w"), waits_for: step_of(world, ids[1]).await };
    assert_eq!(world.reasons(ids[0]).await, std::slice::from_ref(&running), "the head");
    assert_eq!(world.reasons(ids[2]).await, [running], "and the one behind it");
    worker.succeed(&second).await;
    let head = Reason::WaitingForStep { workflow: name("w"), waits_for: step_of(world, ids[0]).await };
    assert_eq!(world.reasons(ids[2]).await, [head]);
}

pub(super) async fn a_halted_workflow_names_the_step_that_halts_it(world: &World) {
    let ids = world.submit_many(3, step("w")).await;
    let worker = world.worker("w1", ["step"]).await;
    worker.settle(&worker.claim_one().await, failure()).await.expect("it owns the job");
    let halted_by = StepStatus { step: 1, job: ids[0], state: JobState::Failed };
    for id in &ids[1..] {
        assert_eq!(world.reasons(*id).await, [Reason::WorkflowHalted { workflow: name("w"), halted_by }]);
    }
    assert_eq!(world.reasons(ids[0]).await, [], "it has ended");
    world.steer("w", Steer::Skip).await.expect("it is halted");
    assert_eq!(world.reasons(ids[1]).await, [Reason::OnlyWaitingForClaim { position: 1 }]);
}

pub(super) async fn a_claimed_job_is_explained_by_its_claim_alone(world: &World) {
    world.set("t", 1).await;
    let id = world.submit(job("t").queue("q")).await;
    let worker = world.worker("w1", ["t"]).await;
    world.advance(100).await;
    worker.ahead_one().await;
    world.pause("q").await;
    world.set("t", 0).await;
    let claim_until = at(100 + CLAIM_MS);
    let claimed = Reason::ClaimedByPrefetch { worker: name("w1"), session: worker.session, claim_until };
    assert_eq!(world.reasons(id).await, [claimed]);
    assert_eq!(world.store.explain(id).await.map(|explained| explained.state), Ok(JobState::Claimed));
}

pub(super) async fn a_program_that_holds_the_slots_is_named(world: &World) {
    world.set("t", 2).await;
    let id = world.submit(job("t")).await;
    world.worker("w1", ["t"]).await;
    let held = world.hold(program("t").slots(2).called("render")).await;
    let reasons = world.reasons(id).await;
    let [Reason::GroupFull { used: 2, limit: 2, holders, .. }] = &reasons[..] else { panic!("{reasons:?}") };
    assert_eq!((&*holders[0].worker, holders[0].token, holders[0].slots), ("render", held.token(), 2));
    assert_eq!(holders[0].job(), None);
}

pub(super) async fn claimed_jobs_and_waiting_steps_have_no_place_in_line(world: &World) {
    world.set("t", 1).await;
    let worker = world.worker("w1", ["t"]).await;
    world.submit(job("t")).await;
    worker.claim_one().await;
    world.set("t", 3).await;
    world.submit_many(2, job("t")).await;
    assert_eq!(worker.ahead(1).await.len(), 1);
    world.submit_many(4, job("t").workflow("w").priority(-1)).await;
    world.set("t", 1).await;
    let last = world.submit(job("t")).await;
    let reasons = world.reasons(last).await;
    // Ahead of it: one of the two plain jobs (the other is claimed) and the head, not the steps behind it.
    assert!(matches!(reasons[..], [Reason::GroupFull { position: 3, .. }]), "{reasons:?}");
}

pub(super) async fn reasons_come_in_the_order_of_the_rules(world: &World) {
    world.submit(step("w")).await;
    let id = world.submit(step("w").run_at(at(9_000)).queue("q")).await;
    world.pause("q").await;
    world.set("step", 0).await;
    let kinds: Vec<_> = world.reasons(id).await.iter().map(kind).collect();
    assert_eq!(kinds, ["date", "pause", "workflow", "group", "workers"]);
}

fn kind(reason: &Reason) -> &'static str {
    match reason {
        Reason::ScheduledUntil { .. } => "date",
        Reason::QueuePaused { .. } => "pause",
        Reason::WaitingForStep { .. } => "workflow",
        Reason::HeldByLimitZero { .. } => "group",
        Reason::NoLiveWorker { .. } => "workers",
        _ => "another",
    }
}

pub(super) async fn nothing_only_waits_for_a_claim_among_steps_programs_and_claims(world: &World) {
    for (group, limit) in [("cluster", 7), ("api", 5), ("api/*", 2), ("gpu", 3)] {
        world.set(group, limit).await;
    }
    let (hard, soft) = (world.worker("hard", ["t"]).await, world.worker("soft", ["t"]).await);
    for place in 0..50_u32 {
        let spec = job("t").group("api").key(&format!("k{}", place % 4)).cost(1 + place % 9 / 8);
        let spec = if place % 3 == 0 { spec.workflow(&format!("w{}", place % 2)) } else { spec };
        world.submit(if place % 5 == 0 { spec.limits([("gpu", 1 + place % 2)]) } else { spec }).await;
    }
    for _ in 0..200 {
        let held = world.acquire(program("gpu")).await.expect("a valid request");
        let ahead = soft.ahead(2).await;
        let claimed = hard.claim(100).await;
        assert_eq!(waiting_only_for_a_claim(world).await, [], "these were not claimed for no reason");
        world.audit().await;
        hard.succeed_all(&claimed).await;
        for job in &ahead {
            if let Some(run) = soft.start(job).await.expect("the claim is not over").run {
                soft.succeed(&ClaimedJob { token: run.token, ..job.clone() }).await;
            }
        }
        if let Some(held) = held {
            assert_eq!(held.give_back().await, Ok(()));
        }
        if world.all_jobs().await.iter().all(|view| view.state == JobState::Succeeded) {
            return;
        }
    }
    panic!("not every job ran: {:?}", world.all_jobs().await);
}
