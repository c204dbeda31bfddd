//! The fleet: many workers at once, crashes in between. Limits hold (G1), nothing is lost (G3), nothing is stuck (G5).

use super::*;

pub(super) async fn concurrent_claims_reach_a_limit_and_do_not_exceed_it(world: &World) {
    world.set("t", 7).await;
    world.submit_many(40, job("t")).await;
    let mut workers = Vec::new();
    for place in 0..10 {
        workers.push(world.worker(&format!("w{place}"), ["t"]).await);
    }
    let claims = join_all(workers.iter().map(|worker| worker.claim(3))).await;
    let claimed: Vec<_> = claims.into_iter().flatten().collect();
    assert_eq!((claimed.len(), world.used("t").await), (7, 7));
    let distinct: BTreeSet<_> = claimed.iter().map(|job| job.token).collect();
    assert_eq!(distinct.len(), 7, "no token is given twice");
}

pub(super) async fn every_tenant_gets_its_own_slots(world: &World) {
    world.set("tenant/*", 2).await;
    world.submit_many(500, job("tenant").key("t0")).await;
    for tenant in 1..50 {
        world.submit_many(3, job("tenant").key(&format!("t{tenant}"))).await;
    }
    let worker = world.worker("w1", ["tenant"]).await;
    assert_eq!(worker.claim(caps::CLAIM).await.len(), 100);
    for tenant in 0..50 {
        assert_eq!(world.used(&format!("tenant/t{tenant}")).await, 2);
    }
}

pub(super) async fn five_levels_of_limits_hold_at_once(world: &World) {
    for (group, limit) in [("cluster", 6), ("queue:a", 4), ("api", 5), ("api/*", 2), ("gpu", 3)] {
        world.set(group, limit).await;
    }
    for place in 0..40 {
        let queue = if place % 2 == 0 { "a" } else { "b" };
        let spec = job("t").group("api").key(&format!("k{}", place % 5)).queue(queue);
        world.submit(if place % 3 == 0 { spec.limits([("gpu", 1)]) } else { spec }).await;
    }
    let worker = world.worker("w1", ["t"]).await;
    let mut done = 0;
    loop {
        let claimed = worker.claim(100).await;
        if claimed.is_empty() {
            break;
        }
        for (group, limit) in [("cluster", 6), ("queue:a", 4), ("api", 5), ("gpu", 3)] {
            assert!(world.used(group).await <= limit, "{group}");
        }
        for key in 0..5 {
            assert!(world.used(&format!("api/k{key}")).await <= 2);
        }
        done += claimed.len();
        worker.succeed_all(&claimed).await;
    }
    assert_eq!(done, 40, "and every job runs");
}

pub(super) async fn workers_that_keep_dying_lose_no_job_and_leak_no_slot(world: &World) {
    world.set("t", 3).await;
    let ids = world.submit_many(12, job("t").attempts(1_000)).await;
    let mut finished = 0;
    for round in 0..50 {
        let worker = world.worker(&format!("w{round}"), ["t"]).await;
        let claimed = worker.claim(3).await;
        assert_eq!(claimed.len(), 3.min(ids.len() - finished), "the limit is reached in every round");
        if round % 2 == 0 {
            world.advance(30_000).await;
        } else {
            worker.succeed_all(&claimed).await;
            finished += claimed.len();
            worker.close().await;
        }
        if finished == ids.len() {
            break;
        }
    }
    for id in ids {
        assert_eq!(world.state(id).await, JobState::Succeeded);
    }
    assert_eq!(world.used("t").await, 0);
}

pub(super) async fn every_job_reaches_exactly_one_end(world: &World) {
    world.set("t", 4).await;
    let ids = world.submit_many(30, job("t").attempts(2).good_until(at(60_000))).await;
    let worker = world.worker("w1", ["t"]).await;
    let outcomes = [success(), retry(10), failure(), snooze(20), Outcome::Release, Outcome::Cancelled];
    for round in 0..40 {
        let claimed = worker.claim(10).await;
        assert!(world.used("t").await <= 4);
        for (place, job) in claimed.iter().enumerate() {
            let outcome = outcomes[(round + place) % outcomes.len()].clone();
            worker.settle(job, outcome).await.expect("it owns the job");
        }
        world.advance(7).await;
    }
    world.advance(60_000).await;
    world.sweep().await;
    for id in ids {
        let detail = world.detail(id).await;
        assert!(detail.view.state.is_terminal(), "{detail:?}");
        let ends = detail.attempts.iter().filter(|attempt| attempt.then.is_terminal()).count();
        assert_eq!(ends, usize::from(detail.view.state != JobState::Expired), "{detail:?}");
    }
    assert_eq!((world.used("t").await, world.status("t").await.live), (0, 0));
}

pub(super) async fn attempts_of_a_job_never_overlap(world: &World) {
    let id = world.submit(job("t").attempts(50)).await;
    for round in 0..10 {
        let worker = world.worker(&format!("w{round}"), ["t"]).await;
        let claimed = worker.claim_one().await;
        world.advance(1_000).await;
        match round % 3 {
            0 => drop(worker.settle(&claimed, retry(0)).await),
            1 => worker.close().await,
            _ => world.advance(30_000).await,
        }
    }
    world.sweep().await;
    let attempts = world.detail(id).await.attempts;
    assert_eq!(attempts.len(), 10);
    for pair in attempts.windows(2) {
        assert!(pair[0].ended_at <= pair[1].started_at && pair[0].token < pair[1].token, "{pair:?}");
    }
}

pub(super) async fn a_limit_with_work_waiting_is_reached_after_every_change(world: &World) {
    world.submit_many(200, job("t")).await;
    let worker = world.worker("w1", ["t"]).await;
    let mut running: Vec<ClaimedJob> = Vec::new();
    for limit in [3, 10, 1, 0, 5, 5, 20, 2] {
        world.set("t", limit).await;
        running.extend(worker.claim(100).await);
        assert!(running.len() >= limit as usize, "limit {limit}, {} run", running.len());
        let room = world.used("t").await <= u64::from(limit);
        assert!(room || running.len() > limit as usize, "limit {limit}");
        worker.succeed_all(&std::mem::take(&mut running)).await;
        let claimed = worker.claim(100).await;
        assert_eq!(claimed.len(), limit as usize, "limit {limit}");
        worker.succeed_all(&claimed).await;
    }
}

pub(super) async fn workflows_keep_their_order_through_retries_and_crashes(world: &World) {
    world.set("step", 3).await;
    for place in 0..40 {
        world.submit(step(&format!("w{}", place % 4)).attempts(1_000)).await;
    }
    let mut ended: Vec<(String, u32)> = Vec::new();
    for round in 0..200_u32 {
        let worker = world.worker(&format!("w{round}"), ["step"]).await;
        let reply = worker.prefetch(2, 2).await;
        assert!(world.used("step").await <= 3);
        let mut running = reply.claimed;
        for ahead in reply.prefetched {
            if let Some(run) = worker.start(&ahead.job).await.expect("the claim is not over").run {
                running.push(ClaimedJob { token: run.token, ..ahead.job });
            }
        }
        world.audit().await;
        for (place, job) in running.iter().enumerate() {
            let outcome =
                [success(), retry(100), snooze(50), Outcome::Release][(round as usize + place) % 4].clone();
            if worker.settle(job, outcome).await == Ok(JobState::Succeeded) {
                let view = world.view(job.id).await;
                ended.push((view.workflow.expect("a step").to_string(), view.step.expect("a step")));
            }
            if round % 5 == 4 {
                break;
            }
        }
        // Every fifth worker dies with running jobs; the others settle and close their sessions.
        if round % 5 == 4 {
            world.advance(30_000).await
        } else {
            worker.close().await
        }
        world.advance(100).await;
    }
    for workflow in ["w0", "w1", "w2", "w3"] {
        let steps: Vec<_> = ended.iter().filter(|(of, _)| of == workflow).map(|(_, step)| *step).collect();
        assert_eq!(steps, (1..=10).collect::<Vec<_>>(), "{workflow}");
    }
}

pub(super) async fn every_kind_of_holder_shares_five_levels_of_limits(world: &World) {
    let limits = [("cluster", 8), ("queue:q", 5), ("api", 6), ("api/*", 3), ("gpu", 4)];
    for (group, limit) in limits {
        world.set(group, limit).await;
    }
    for place in 0..30_u32 {
        let spec = job("t").group("api").key(&format!("k{}", place % 3)).limits([("gpu", 1 + place % 2)]);
        world.submit(if place % 2 == 0 { spec.queue("q") } else { spec }).await;
    }
    let (soft, hard) = (world.worker("soft", ["t"]).await, world.worker("hard", ["t"]).await);
    let mut done = 0;
    for round in 0..200_u64 {
        let mut programs = Vec::new();
        for group in ["gpu", "api/k0", "api"] {
            programs.extend(world.acquire(program(group)).await.expect("a valid request"));
        }
        let ahead = soft.ahead(4).await;
        let running = hard.claim(2).await;
        for started in soft.start_all(&ahead).await.into_iter().zip(ahead) {
            if let (Ok(Started { run: Some(run), .. }), job) = started {
                soft.succeed(&ClaimedJob { token: run.token, ..job }).await;
                done += 1;
            }
        }
        world.audit().await;
        for (group, limit) in limits.into_iter().filter(|(group, _)| *group != "api/*") {
            assert!(world.used(group).await <= u64::from(limit), "{group} in round {round}");
        }
        done += running.len();
        hard.succeed_all(&running).await;
        for program in programs {
            assert_eq!(program.give_back().await, Ok(()));
        }
        if done == 30 {
            return;
        }
    }
    panic!("{done} of 30 jobs ran");
}
