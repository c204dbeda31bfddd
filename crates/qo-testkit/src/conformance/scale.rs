//! Scale: the rules for one job hold for very many. These cases take the longest and come last.

use super::*;

pub(super) async fn a_full_call_of_ten_thousand_jobs_is_accepted_whole(world: &World) {
    let ids = world.submit_many(caps::SUBMIT_JOBS, job("resize")).await;
    assert_eq!(ids.len(), 10_000);
    assert_eq!(world.status("resize").await.live, 10_000);
    let worker = world.worker("w1", ["resize"]).await;
    assert_eq!(worker.claim_ids(200).await, ids[..200]);
}

pub(super) async fn unlimited_costs_add_up_without_overflow(world: &World) {
    world.submit_many(4_300, job("mail").cost(caps::LIMIT)).await;
    let worker = world.worker("w1", ["mail"]).await;
    assert_eq!(worker.claim(4_300).await.len(), 4_300);
    assert_eq!(world.used("mail").await, 4_300_000_000);
}

pub(super) async fn a_raised_limit_of_every_key_wakes_very_many_keys(world: &World) {
    world.set("user/*", 0).await;
    let specs = (0..2_000).map(|user| job("user").key(&format!("u{user}"))).collect();
    let ids = world.submit_all(specs).await;
    let worker = world.worker("w1", ["user"]).await;
    assert_eq!(worker.claim(caps::CLAIM).await, []);
    world.set("user/*", 1).await;
    assert_eq!(worker.claim_ids(caps::CLAIM).await, ids);
}

pub(super) async fn very_many_full_keys_delay_no_other_key(world: &World) {
    world.set("user/*", 1).await;
    let users: Vec<_> = (0..1_500).map(|user| job("user").key(&format!("u{user}"))).collect();
    world.submit_all(users.clone()).await;
    let worker = world.worker("w1", ["user"]).await;
    assert_eq!(worker.claim(caps::CLAIM).await.len(), 1_500);
    world.submit_all(users).await;
    let fresh = world.submit(job("user").key("fresh")).await;
    assert_eq!(worker.claim_ids(10).await, [fresh]);
}

pub(super) async fn one_sweep_ends_any_backlog_of_jobs(world: &World) {
    world.submit_many(2_500, job("t")).await;
    world.worker("dead", ["t"]).await.claim(2_500).await;
    world.advance(30_000).await;
    assert_eq!(world.sweep().await.attempts, 2_500);
    assert_eq!(world.used("t").await, 0);
}

pub(super) async fn a_sweep_forgets_a_thousand_jobs_and_the_next_goes_on(world: &World) {
    let ids = world.submit_many(1_500, job("t")).await;
    // The jobs that were accepted last end first.
    world.store.cancel(ids[1_000..].to_vec()).await.expect("a valid call");
    world.advance(1).await;
    world.store.cancel(ids[..1_000].to_vec()).await.expect("a valid call");
    world.advance(DAY_MS).await;
    assert_eq!(world.sweep().await.forgotten, 1_000);
    let left: Vec<_> = world.all_jobs().await.iter().map(|view| view.id).collect();
    assert_eq!(left, ids[500..1_000], "what was over first goes first");
    assert_eq!(world.sweep().await.forgotten, 500);
    assert_eq!(world.sweep().await.forgotten, 0);
}

pub(super) async fn a_sweep_forgets_a_thousand_ended_sessions_and_the_next_goes_on(world: &World) {
    let ids: Vec<_> = (0..1_100).map(|_| world.session_id()).collect();
    for &id in &ids {
        world.open(serving("w", ["t"]).id(id)).await.close().await;
    }
    world.advance(DAY_MS).await;
    world.sweep().await;
    let session = |id| serving("w", ["t"]).id(id).new;
    let again = |id| world.store.open_session(NewSession { id, ..session(id) });
    assert!(again(ids[999]).await.is_ok(), "its id is free again");
    refused(again(ids[1_000]).await, ErrorKind::Fenced);
    world.sweep().await;
    assert!(again(ids[1_000]).await.is_ok());
}

pub(super) async fn one_sweep_ends_any_backlog_of_sessions(world: &World) {
    // More than one call changes elsewhere; the last of them have claimed a job.
    const SESSIONS: u64 = 1_100;
    world.submit_many(100, job("t")).await;
    for session in 0..SESSIONS {
        let worker = world.worker("dead", ["t"]).await;
        if session >= SESSIONS - 100 {
            worker.claim_one().await;
        }
    }
    world.advance(30_000).await;
    let swept = world.sweep().await;
    assert_eq!((swept.sessions, swept.attempts), (SESSIONS, 100));
    assert_eq!(world.store.workers().await, Ok(vec![]));
}

pub(super) async fn a_sweep_is_not_starved_by_leases_that_it_may_not_end(world: &World) {
    world.submit_many(2_501, job("t").timeout(3_600_000)).await;
    let alive = world.open(serving("alive", ["t"]).lease(60_000)).await;
    alive.claim(2_500).await;
    let dead = world.worker("dead", ["t"]).await;
    let lost = dead.claim_one().await;
    world.advance(30_000).await;
    assert_eq!(world.sweep().await.attempts, 1);
    assert_eq!(world.state(lost.id).await, JobState::Pending);
}

pub(super) async fn one_sweep_expires_any_backlog(world: &World) {
    world.submit_many(5_000, job("t").good_until(at(1_000))).await;
    world.advance(1_000).await;
    assert_eq!(world.sweep().await.expired, 5_000);
    assert_eq!(world.sweep().await.expired, 0);
}

pub(super) async fn a_rare_job_is_found_behind_many_others(world: &World) {
    world.submit_many(3_000, job("common")).await;
    let rare = world.submit(job("rare")).await;
    let filter = JobFilter { task: Some(name("rare")), ..JobFilter::default() };
    let (mut seen, mut after) = (Vec::new(), None);
    loop {
        let page = world.store.jobs(filter.clone(), after, 2).await.expect("a page of jobs");
        seen.extend(page.jobs.into_iter().map(|view| view.id));
        after = page.next;
        if after.is_none() {
            break;
        }
    }
    assert_eq!(seen, [rare]);
}

pub(super) async fn a_place_in_line_is_counted_to_ten_thousand(world: &World) {
    world.set("t", 0).await;
    world.submit_many(10_000, job("t")).await;
    let last = world.submit(job("t")).await;
    world.set("t", 1).await;
    let worker = world.worker("w1", ["t"]).await;
    assert_eq!(world.reasons(last).await, [Reason::OnlyWaitingForClaim { position: caps::POSITION }]);
    worker.claim_one().await;
    world.submit(job("t")).await;
    let end = world.submit(job("t")).await;
    let reasons = world.reasons(end).await;
    assert!(matches!(reasons[..], [Reason::GroupFull { position: caps::POSITION, .. }]), "{reasons:?}");
}

pub(super) async fn very_many_workflows_give_one_step_each(world: &World) {
    let specs = (0..6_000).map(|place| step(&format!("w{}", place % 2_000))).collect();
    let ids = world.submit_all(specs).await;
    let worker = world.worker("w1", ["step"]).await;
    for round in 0..3 {
        let claimed = worker.claim(caps::CLAIM).await;
        assert_eq!(worker::ids(&claimed), ids[round * 2_000..(round + 1) * 2_000]);
        worker.succeed_all(&claimed).await;
    }
}

pub(super) async fn a_very_long_workflow_delays_no_other_job(world: &World) {
    let ids = world.submit_many(5_000, step("long")).await;
    let other = world.submit(job("step")).await;
    let worker = world.worker("w1", ["step"]).await;
    assert_eq!(worker.claim_ids(10).await, [ids[0], other]);
    assert_eq!(world.workflow("long").await.live, 5_000);
}

pub(super) async fn one_sweep_ends_any_backlog_of_claims_and_leases(world: &World) {
    world.submit_many(2_500, job("t")).await;
    let worker = world.worker("w1", ["t"]).await;
    assert_eq!(worker.ahead(2_500).await.len(), 2_500);
    for _ in 0..1_500 {
        world.hold(program("gpu").lease(CLAIM_MS)).await;
    }
    world.advance(CLAIM_MS).await;
    let swept = world.sweep().await;
    assert_eq!((swept.claims, swept.slots), (2_500, 1_500));
    assert_eq!(worker.renew().await.stop.len(), 2_500);
}

pub(super) async fn a_long_workflow_is_forgotten_step_by_step(world: &World) {
    world.submit_many(2_500, step("w")).await;
    world.cancel_workflow("w").await.expect("it is there");
    world.advance(DAY_MS).await;
    assert_eq!(world.sweep().await.forgotten, 1_000);
    assert_eq!(world.workflow("w").await.steps, 2_500, "a workflow is there as long as one of its jobs is");
    assert_eq!(world.sweep().await.forgotten, 1_000);
    assert_eq!(world.sweep().await.forgotten, 500);
    assert_eq!((world.all_jobs().await, world.all_workflows().await), (vec![], vec![]));
}
