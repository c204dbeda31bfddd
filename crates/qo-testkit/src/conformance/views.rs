//! Views: jobs, groups, workers; page by page, and consistent with each other.

use super::*;

async fn listed(world: &World, filter: JobFilter) -> Vec<JobId> {
    let page = world.store.jobs(filter, None, 100).await.expect("a page of jobs");
    assert_eq!(page.next, None);
    page.jobs.into_iter().map(|view| view.id).collect()
}

pub(super) async fn a_job_that_is_not_there_is_not_found(world: &World) {
    refused(world.store.job(world.job_id()).await, ErrorKind::NotFound);
}

pub(super) async fn an_empty_store_shows_nothing(world: &World) {
    let snapshot = world.snapshot().await;
    assert_eq!((snapshot.jobs.len(), snapshot.workers.len()), (0, 0));
    assert_eq!((snapshot.queues.len(), snapshot.groups.len()), (0, 0));
}

pub(super) async fn jobs_are_listed_in_the_order_of_acceptance_page_by_page(world: &World) {
    let (low, high) = (world.job_id(), world.job_id());
    let mut ids = world.submit_all(vec![job("t").id(high), job("t").id(low).priority(-9)]).await;
    ids.extend(world.submit_many(8, job("t")).await);
    let (mut seen, mut after) = (Vec::new(), None);
    loop {
        let page = world.store.jobs(JobFilter::default(), after, 3).await.expect("a page of jobs");
        assert!(page.jobs.len() <= 3);
        seen.extend(page.jobs.into_iter().map(|view| view.id));
        after = page.next;
        if after.is_none() {
            break;
        }
    }
    assert_eq!(seen, ids);
}

pub(super) async fn a_listing_goes_on_where_it_was_while_jobs_move(world: &World) {
    let ids = world.submit_many(6, job("t")).await;
    let page = world.store.jobs(JobFilter::default(), None, 3).await.expect("a page of jobs");
    let worker = world.worker("w1", ["t"]).await;
    worker.succeed_all(&worker.claim(4).await).await;
    world.submit(job("t").priority(-1)).await;
    let rest = world.store.jobs(JobFilter::default(), page.next, 3).await.expect("a page of jobs");
    assert_eq!(rest.jobs.into_iter().map(|view| view.id).collect::<Vec<_>>(), ids[3..]);
}

pub(super) async fn a_listing_shows_the_same_as_the_job_itself(world: &World) {
    let id = world.submit(job("t").key("k").cost(2)).await;
    world.worker("w1", ["t"]).await.claim_one().await;
    assert_eq!(world.all_jobs().await, [world.view(id).await]);
}

pub(super) async fn a_filter_shows_jobs_that_match_every_field(world: &World) {
    let specs = vec![
        job("a").queue("q").group("g").key("k"),
        job("b").queue("q").group("g").key("k"),
        job("a").group("g").key("k"),
        job("a").queue("q").key("k"),
        job("a").queue("q").group("g"),
    ];
    let ids = world.submit_all(specs).await;
    let of = |places: &[usize]| places.iter().map(|&place| ids[place]).collect::<Vec<_>>();
    let none = JobFilter::default();
    let task = JobFilter { task: Some(name("a")), ..none.clone() };
    let queue = JobFilter { queue: Some(name("q")), ..none.clone() };
    let group = JobFilter { group: Some(name("g")), ..none.clone() };
    let by_key = JobFilter { key: Some(key("k")), ..none.clone() };
    let all = JobFilter { queue: queue.queue.clone(), group: group.group.clone(), ..task.clone() };
    let all = JobFilter { key: by_key.key.clone(), ..all };
    assert_eq!(listed(world, none).await, ids);
    assert_eq!(listed(world, task).await, of(&[0, 2, 3, 4]));
    assert_eq!(listed(world, queue).await, of(&[0, 1, 3, 4]));
    assert_eq!(listed(world, group).await, of(&[0, 1, 2, 4]));
    assert_eq!(listed(world, by_key).await, of(&[0, 1, 2, 3]));
    assert_eq!(listed(world, all).await, of(&[0]));
}

pub(super) async fn a_filter_shows_jobs_in_any_of_its_states(world: &World) {
    let ids = world.submit_many(4, job("t")).await;
    let worker = world.worker("w1", ["t"]).await;
    let claimed = worker.claim(3).await;
    worker.succeed(&claimed[0]).await;
    worker.settle(&claimed[1], failure()).await.expect("it owns the job");
    let of = |states: &[JobState]| JobFilter { states: states.to_vec(), ..JobFilter::default() };
    assert_eq!(listed(world, of(&[JobState::Succeeded])).await, ids[..1]);
    assert_eq!(listed(world, of(&[JobState::Failed, JobState::Pending])).await, [ids[1], ids[3]]);
    assert_eq!(listed(world, of(&[JobState::Running])).await, [ids[2]]);
    assert_eq!(listed(world, of(&[JobState::Expired])).await, []);
}

pub(super) async fn jobs_are_listed_newest_first_page_by_page(world: &World) {
    let mut ids = world.submit_many(8, job("t")).await;
    let worker = world.worker("w1", ["t"]).await;
    let claimed = worker.claim(5).await;
    worker.succeed_all(&claimed[..3]).await;
    ids.reverse();
    let newest = JobFilter { newest_first: true, ..JobFilter::default() };
    assert_eq!(listed(world, newest.clone()).await, ids);
    let first = world.store.jobs(newest.clone(), None, 3).await.expect("a page of jobs");
    world.submit(job("t")).await;
    let second = world.store.jobs(newest.clone(), first.next, 3).await.expect("a page of jobs");
    let third = world.store.jobs(newest, second.next, 3).await.expect("a page of jobs");
    let pages = [first, second, third];
    assert_eq!(pages.each_ref().map(|page| page.jobs.len()), [3, 3, 2]);
    let seen: Vec<_> = pages.iter().flat_map(|page| &page.jobs).map(|view| view.id).collect();
    assert_eq!(seen, ids, "what is submitted meanwhile moves no page");
    assert_eq!(pages[2].next, None);
}

pub(super) async fn the_steps_of_a_workflow_are_listed_newest_first(world: &World) {
    let mut ids = world.submit_many(3, job("t").workflow("w")).await;
    world.submit(job("t").workflow("other")).await;
    ids.reverse();
    let of = JobFilter { workflow: Some(name("w")), newest_first: true, ..JobFilter::default() };
    assert_eq!(listed(world, of).await, ids);
}

pub(super) async fn jobs_are_found_by_when_they_were_submitted(world: &World) {
    let mut ids = Vec::new();
    for _ in 0..4 {
        ids.push(world.submit(job("t")).await);
        world.advance(1_000).await;
    }
    let (from, before) = (Some(at(1_000)), Some(at(3_000)));
    let since = JobFilter { submitted_from: from, ..JobFilter::default() };
    let until = JobFilter { submitted_before: before, ..JobFilter::default() };
    let between = JobFilter { submitted_before: before, ..since.clone() };
    assert_eq!(listed(world, since).await, ids[1..]);
    assert_eq!(listed(world, until).await, ids[..3], "the end is not part of it");
    assert_eq!(listed(world, between).await, ids[1..3]);
}

pub(super) async fn jobs_are_found_by_how_their_id_begins(world: &World) {
    let id = |text: &str| JobId(text.parse().expect("an id"));
    let all = [
        id("019a8a5e-7c1b-7a10-9d43-3e2a6f0c9b11"),
        id("019a8a5e-7c1b-7a10-9d43-3e2a6f0c9b22"),
        id("019a8a5f-0000-7a10-9d43-3e2a6f0c9b11"),
        id("ffffffff-ffff-7fff-bfff-ffffffffffff"),
    ];
    for one in all {
        world.submit(job("t").id(one)).await;
    }
    let worker = world.worker("w1", ["t"]).await;
    worker.succeed(&worker.claim_one().await).await;
    for (text, found) in [
        ("0", &all[..3]),
        ("019a8a5e", &all[..2]),
        ("019A8A5E-7C1B-7A10-9D43-3E2A6F0C9B1", &all[..1]),
        ("019a8a5f-0000-7a10-9d43-3e2a6f0c9b11", &all[2..3]),
        ("f", &all[3..]),
        ("ffffffff-ffff-7fff-bfff-ffffffffffff", &all[3..]),
        ("1", &[]),
        ("019a8a5e-8", &[]),
    ] {
        let id_prefix = Some(IdPrefix::parse("id_prefix", text).expect("a prefix"));
        assert_eq!(listed(world, JobFilter { id_prefix, ..JobFilter::default() }).await, found, "{text}");
    }
}

pub(super) async fn a_bulk_change_goes_by_time_and_id_and_not_newest_first(world: &World) {
    let old = world.submit(job("t")).await;
    world.advance(1_000).await;
    world.submit(job("t")).await;
    let newest = JobFilter { newest_first: true, ..JobFilter::default() };
    let refused = world.store.change_matching(Change::Cancel, newest, None, 10).await;
    invalid(refused, "filter.newest_first", "true");
    let before = JobFilter { submitted_before: Some(at(1_000)), ..JobFilter::default() };
    let changed = world.store.change_matching(Change::Cancel, before, None, 10).await.expect("a change");
    assert_eq!(changed.jobs, 1);
    assert_eq!(world.view(old).await.state, JobState::Cancelled);
    let id_prefix = IdPrefix::parse("id_prefix", &old.to_string()).ok();
    let same = JobFilter { id_prefix, ..JobFilter::default() };
    let changed = world.store.change_matching(Change::Retry, same, None, 10).await.expect("a change");
    assert_eq!(changed.jobs, 1);
}

pub(super) async fn groups_are_listed_in_order_page_by_page(world: &World) {
    for group in ["zeta", "alpha", "queue:b", "queue:a", "cluster", "alpha/k", "alpha/*", "alpha.b"] {
        world.set(group, 1).await;
    }
    let expected = ["cluster", "queue:a", "queue:b", "alpha", "alpha/*", "alpha/k", "alpha.b", "zeta"];
    let whole: Vec<_> = world.all_groups().await.iter().map(|s| s.group.to_string()).collect();
    assert_eq!(whole, expected);
    let (mut seen, mut after) = (Vec::new(), None);
    loop {
        let page = world.store.groups(after, 3).await.expect("a page of groups");
        assert!(page.groups.len() <= 3);
        seen.extend(page.groups.into_iter().map(|status| status.group.to_string()));
        after = page.next;
        if after.is_none() {
            break;
        }
    }
    assert_eq!(seen, expected);
}

pub(super) async fn a_group_without_a_limit_is_shown_as_such(world: &World) {
    world.submit(job("t").limits([("typo", 2)])).await;
    let status = world.status("typo").await;
    assert_eq!((status.limit, status.source, status.used, status.live), (None, None, 0, 2));
    assert!(world.all_groups().await.contains(&status));
}

pub(super) async fn a_group_without_jobs_and_limit_is_not_found(world: &World) {
    refused(world.store.group(group_ref("t")).await, ErrorKind::NotFound);
    world.submit(job("t").key("k")).await;
    let worker = world.worker("w1", ["t"]).await;
    worker.succeed(&worker.claim_one().await).await;
    for group in ["t", "t/k", "queue:default"] {
        refused(world.store.group(group_ref(group)).await, ErrorKind::NotFound);
    }
    world.set("t", 1).await;
    assert_eq!(world.status("t").await.live, 0);
    world.unset("t").await;
    refused(world.store.group(group_ref("t")).await, ErrorKind::NotFound);
}

pub(super) async fn a_group_counts_used_and_live_slots(world: &World) {
    world.set("t", 10).await;
    world.submit_many(3, job("t").cost(3).key("k")).await;
    world.submit(job("t").run_at(at(9_000))).await;
    world.worker("w1", ["t"]).await.claim(2).await;
    let mut counts = Vec::new();
    for group in ["t", "t/k", "queue:default", "cluster"] {
        world.set(group, 10).await;
        let status = world.status(group).await;
        counts.push((status.used, status.live));
    }
    assert_eq!(counts, [(6, 10), (6, 9), (2, 4), (2, 4)]);
}

pub(super) async fn a_group_shows_its_holders_oldest_claim_first(world: &World) {
    world.set("t", 9).await;
    let ids = world.submit_many(3, job("t").cost(2)).await;
    let (one, two) = (world.worker("w1", ["t"]).await, world.worker("w2", ["t"]).await);
    let first = one.claim_one().await;
    world.advance(100).await;
    let second = two.claim_one().await;
    let third = one.claim_one().await;
    let holders = world.group("t").await.expect("the group is there").holders;
    let shown: Vec<_> = holders.iter().map(|h| (h.job(), h.slots, h.token)).collect();
    let expected = [(ids[0], first), (ids[1], second), (ids[2], third)];
    let expected = expected.map(|(job, claimed)| (Some(job), 2, claimed.token));
    assert_eq!(shown, expected);
    assert_eq!((&*holders[1].worker, holders[1].since), ("w2", at(100)));
    assert_eq!(holders[1].by, HeldBy::Job { job: ids[1], task: name("t"), session: two.session });
}

pub(super) async fn every_key_sums_over_the_keys(world: &World) {
    world.set("user/*", 2).await;
    for user in ["a", "b", "c"] {
        world.submit_many(3, job("user").key(user)).await;
    }
    world.submit(job("user")).await;
    world.worker("w1", ["user"]).await.claim(100).await;
    let status = world.status("user/*").await;
    assert_eq!((status.limit, status.used, status.live), (Some(2), 6, 9));
}

pub(super) async fn workers_are_listed_by_name_then_session(world: &World) {
    let spec = |worker| serving(worker, ["t"]);
    let (low, high) = (world.session_id(), world.session_id());
    world.open(spec("b").id(high)).await;
    world.open(spec("b").id(low)).await;
    let a = world.worker("a", ["t"]).await;
    let workers = world.store.workers().await.expect("workers");
    let sessions: Vec<_> = workers.iter().map(|status| status.session).collect();
    assert_eq!(sessions, [a.session, low, high]);
}

pub(super) async fn a_worker_shows_what_it_said_and_what_it_owns(world: &World) {
    world.submit_many(3, job("a")).await;
    world.advance(5).await;
    let worker =
        world.open(serving("w1", ["a", "b"]).queues(["default", "q"]).lease(9_000).permits(50)).await;
    let opened = world.store.workers().await.expect("workers").remove(0);
    assert_eq!((opened.permits, opened.running, opened.draining), (50, 0, false));
    world.advance(5).await;
    let claim = Claim { max: 2, ..Claim::default() };
    let report = Exchange { claim, free_permits: 4, memory_percent: Some(61), ..worker.next() };
    worker.send(report).await.expect("the session is live");
    let shown = world.store.workers().await.expect("workers").remove(0);
    let expected = WorkerStatus {
        worker: name("w1"),
        session: worker.session,
        queues: vec![name("default"), name("q")],
        tasks: vec![name("a"), name("b")],
        owner: None,
        permits: 50,
        free_permits: 2, // 4, and two of them went to the jobs it got
        memory_percent: Some(61),
        saturated: true,
        draining: false,
        opened_at: at(5),
        lease_until: at(9_010),
        running: 2,
        claimed: 0,
    };
    assert_eq!(shown, expected);
    worker.renew().await;
    let shown = world.store.workers().await.expect("workers").remove(0);
    assert_eq!(shown.memory_percent, None, "it does not tell any more");
    let report = Exchange { memory_percent: Some(7), ..worker.next() };
    worker.send(report).await.expect("the session is live");
    let shown = world.store.workers().await.expect("workers").remove(0);
    assert_eq!(shown.memory_percent, Some(7));
}

pub(super) async fn a_view_changes_nothing(world: &World) {
    world.submit_many(3, job("t").good_until(at(20_000)).timeout(1)).await;
    let worker = world.worker("w1", ["t"]).await;
    let claimed = worker.claim(1).await;
    world.advance(40_000).await;
    let before = world.snapshot().await;
    assert_eq!(world.snapshot().await, before, "what is over is ended by an event and not by a look");
    assert_eq!(world.state(claimed[0].id).await, JobState::Running);
    worker.succeed(&claimed[0]).await;
}

pub(super) async fn groups_may_be_listed_from_any_name_on(world: &World) {
    for group in ["a", "c", "c/k"] {
        world.set(group, 1).await;
    }
    let page = world.store.groups(Some(group_ref("b")), 10).await.expect("a page of groups");
    let groups: Vec<_> = page.groups.iter().map(|status| status.group.to_string()).collect();
    assert_eq!((groups, page.next), (vec!["c".to_string(), "c/k".to_string()], None));
    let page = world.store.groups(Some(group_ref("c")), 10).await.expect("a page of groups");
    assert_eq!(page.groups.len(), 1);
}

pub(super) async fn a_look_is_at_the_present_though_nothing_happened(world: &World) {
    let id = world.submit(job("t").run_at(at(5_000))).await;
    world.open(serving("w1", ["t"]).lease(90_000)).await;
    world.advance(5_000).await;
    let status = world.queue("default").await;
    assert_eq!((status.due, status.scheduled), (1, 0));
    assert_eq!(world.reasons(id).await, [Reason::OnlyWaitingForClaim { position: 1 }]);
}

pub(super) async fn workflows_are_listed_by_name_page_by_page(world: &World) {
    for workflow in ["c", "a", "b", "a.b", "B"] {
        world.submit_many(2, step(workflow)).await;
    }
    let expected = ["B", "a", "a.b", "b", "c"];
    let (mut seen, mut after) = (Vec::new(), None);
    loop {
        let page = world.store.workflows(after, 2).await.expect("a page of workflows");
        assert!(page.workflows.len() <= 2);
        for status in page.workflows {
            assert_eq!(world.workflow(&status.workflow).await, status, "the listing and the workflow itself");
            seen.push(status.workflow.to_string());
        }
        after = page.next;
        if after.is_none() {
            break;
        }
    }
    assert_eq!(seen, expected);
    let page = world.store.workflows(Some(name("aa")), 10).await.expect("a page of workflows");
    assert_eq!(page.workflows.len(), 2, "from any name on");
}

pub(super) async fn a_workflow_shows_its_steps_and_its_head(world: &World) {
    let ids = world.submit_many(3, step("w")).await;
    let worker = world.worker("w1", ["step"]).await;
    worker.succeed(&worker.claim_one().await).await;
    worker.claim_one().await;
    let expected = qo_core::WorkflowStatus {
        workflow: name("w"),
        state: WorkflowState::Active,
        on_failure: OnFailure::Halt,
        steps: 3,
        live: 2,
        head: Some(StepStatus { step: 2, job: ids[1], state: JobState::Running }),
    };
    assert_eq!(world.workflow("w").await, expected);
}

pub(super) async fn a_filter_shows_the_steps_of_a_workflow(world: &World) {
    let ids = world.submit_all(vec![step("a"), step("b"), job("step"), step("a")]).await;
    let filter = JobFilter { workflow: Some(name("a")), ..JobFilter::default() };
    assert_eq!(listed(world, filter).await, [ids[0], ids[3]]);
    let filter = JobFilter { workflow: Some(name("unknown")), ..JobFilter::default() };
    assert_eq!(listed(world, filter).await, []);
}

pub(super) async fn a_filter_shows_claimed_jobs(world: &World) {
    let ids = world.submit_many(3, job("t")).await;
    world.worker("w1", ["t"]).await.prefetch(1, 1).await;
    let filter = JobFilter { states: vec![JobState::Claimed], ..JobFilter::default() };
    assert_eq!(listed(world, filter).await, ids[1..2]);
}

pub(super) async fn a_worker_and_a_queue_show_what_is_claimed(world: &World) {
    world.submit_many(6, job("t").queue("q")).await;
    let worker = world.worker("w1", ["t"]).await;
    let prefetch = Some(Prefetch { buffer: 3, lease_ms: CLAIM_MS });
    let claim = Claim { max: 1, prefetch, ..Claim::default() };
    let exchange = Exchange { claim, free_permits: 20, ..worker.next() };
    let reply = worker.send(exchange).await.expect("the session is live");
    let shown = world.store.workers().await.expect("workers").remove(0);
    assert_eq!((shown.running, shown.claimed), (1, 3));
    assert_eq!(shown.free_permits, 19, "what is claimed needs no permit yet");
    let queue = world.queue("q").await;
    assert_eq!((queue.running, queue.claimed, queue.due), (1, 3, 2));
    let starts = vec![starting(&reply.prefetched[0].job)];
    let claim = Claim { max: 1, ..Claim::default() };
    let exchange = Exchange { starts, claim, free_permits: 19, ..worker.next() };
    worker.send(exchange).await.expect("the session is live");
    let shown = world.store.workers().await.expect("workers").remove(0);
    assert_eq!((shown.running, shown.claimed, shown.free_permits), (3, 2, 17), "starts need permits");
}

pub(super) async fn a_group_of_programs_is_shown_while_they_hold_it(world: &World) {
    refused(world.store.group(group_ref("gpu")).await, ErrorKind::NotFound);
    let held = world.hold(program("gpu/k").slots(2)).await;
    let shown: Vec<_> =
        world.all_groups().await.iter().map(|s| (s.group.to_string(), s.used, s.live)).collect();
    assert_eq!(shown, [("gpu".to_string(), 2, 2), ("gpu/k".to_string(), 2, 2)]);
    let status = world.status("gpu/*").await;
    assert_eq!((status.used, status.live), (2, 2), "the sum over the keys");
    assert_eq!(held.give_back().await, Ok(()));
    assert_eq!(world.all_groups().await, []);
}

pub(super) async fn a_view_fires_and_ends_nothing(world: &World) {
    world.plan([("nightly", cron("* * * * *", "report"))]).await;
    world.submit(job("t")).await;
    let worker = world.open(serving("w1", ["t"]).lease(caps::LEASE_MAX_MS)).await;
    let claimed = worker.ahead_one().await;
    let held = world.hold(program("gpu")).await;
    world.advance(60_000).await;
    let before = world.snapshot().await;
    assert_eq!(world.snapshot().await, before);
    assert_eq!((world.state(claimed.id).await, world.used("gpu").await), (JobState::Pending, 0), "are over");
    assert_eq!(held.give_back().await, Ok(()));
    worker.run(&claimed).await;
}

pub(super) async fn a_session_whose_lease_has_passed_is_gone_in_every_view(world: &World) {
    world.set("t", 1).await;
    let ids = world.submit_many(2, job("t").key("k").queue("q")).await;
    let dead = world.worker("dead", ["t"]).await;
    let claimed = dead.claim_one().await;
    let (full, limited) = (world.group("t").await.expect("it has a limit"), world.reasons(ids[1]).await);
    assert_eq!((full.status.used, full.holders.len()), (1, 1));
    assert!(matches!(&limited[..], [Reason::GroupFull { .. }]), "{limited:?}");
    world.advance(30_000).await;
    assert_eq!(world.store.workers().await.expect("workers"), []);
    let free = world.group("t").await.expect("it has a limit");
    assert_eq!((free.status.used, free.status.live, free.holders), (0, 2, vec![]));
    assert_eq!(world.all_groups().await.iter().map(|status| status.used).sum::<u64>(), 0);
    let queue = world.queue("q").await;
    assert_eq!((queue.running, queue.due), (0, 2));
    for &id in &ids {
        assert_eq!(world.reasons(id).await, [Reason::NoLiveWorker { queue: name("q"), task: name("t") }]);
    }
    let detail = world.detail(claimed.id).await;
    assert_eq!((detail.view.state, detail.view.attempts_used), (JobState::Pending, 1));
    assert_eq!((detail.view.running, detail.view.run_at), (None, START));
    assert_eq!(detail.attempts[0].outcome, AttemptOutcome::LeaseEnded);
    let pending = JobFilter { states: vec![JobState::Pending], ..JobFilter::default() };
    assert_eq!(listed(world, pending).await, ids);
    dead.succeed(&claimed).await;
    assert_eq!(world.detail(claimed.id).await.view.attempts_used, 1, "looking has ended nothing");
}

pub(super) async fn a_job_that_would_end_is_shown_as_it_is_until_it_has(world: &World) {
    world.set("t", 1).await;
    let id = world.submit(job("t").attempts(1)).await;
    let late = world.worker("late", ["t"]).await;
    let claimed = late.claim_one().await;
    world.advance(30_000).await;
    assert_eq!((world.state(id).await, world.used("t").await), (JobState::Running, 0));
    let explained = world.store.explain(id).await.expect("the job is there");
    assert_eq!((explained.state, explained.reasons), (JobState::Running, vec![]));
    late.succeed(&claimed).await;
    assert_eq!(world.state(id).await, JobState::Succeeded);
}

pub(super) async fn an_attempt_past_its_timeout_holds_no_slot_in_a_view(world: &World) {
    world.set("t", 1).await;
    let ids = world.submit_many(2, job("t").timeout(5_000)).await;
    let slow = world.open(serving("slow", ["t"]).lease(90_000)).await;
    let claimed = slow.claim_one().await;
    world.advance(15_000).await;
    assert_eq!((world.used("t").await, world.state(claimed.id).await), (0, JobState::Pending));
    assert_eq!(world.detail(claimed.id).await.attempts[0].outcome, AttemptOutcome::TimedOut);
    assert_eq!(world.reasons(ids[1]).await, [Reason::OnlyWaitingForClaim { position: 2 }]);
    assert_eq!(world.store.workers().await.expect("workers")[0].running, 0);
    slow.succeed(&claimed).await;
}

pub(super) async fn a_claim_that_is_over_shows_its_job_in_line(world: &World) {
    let id = world.submit(job("t")).await;
    let worker = world.open(serving("w1", ["t"]).lease(90_000)).await;
    let claimed = worker.ahead_one().await;
    world.advance(CLAIM_MS).await;
    let view = world.view(id).await;
    assert_eq!((view.state, view.claimed, view.attempts_used), (JobState::Pending, None, 0));
    assert_eq!(world.reasons(id).await, [Reason::OnlyWaitingForClaim { position: 1 }]);
    let queue = world.queue("default").await;
    assert_eq!((queue.claimed, queue.due), (0, 1));
    worker.run(&claimed).await;
}

pub(super) async fn a_programs_lease_that_has_passed_holds_nothing_in_a_view(world: &World) {
    world.set("gpu", 1).await;
    world.worker("w1", ["gpu"]).await;
    let held = world.hold(program("gpu")).await;
    let id = world.submit(job("gpu")).await;
    world.advance(10_000).await;
    let group = world.group("gpu").await.expect("it has a limit");
    assert_eq!((group.status.used, group.status.live, group.holders), (0, 1, vec![]));
    assert_eq!(world.reasons(id).await, [Reason::OnlyWaitingForClaim { position: 1 }]);
    assert_eq!(held.give_back().await, Ok(()), "looking has ended nothing");
}

pub(super) async fn an_expired_job_keeps_no_place_in_a_view(world: &World) {
    world.worker("w1", ["t"]).await;
    let expired = world.submit(job("t").good_until(at(10))).await;
    let next = world.submit(job("t")).await;
    world.advance(10).await;
    assert_eq!(world.reasons(expired).await, [Reason::Expired { good_until: at(10) }]);
    assert_eq!(world.reasons(next).await, [Reason::OnlyWaitingForClaim { position: 1 }]);
    assert_eq!((world.queue("default").await.due, world.status("t").await.live), (1, 1));
    assert_eq!(world.state(expired).await, JobState::Pending, "it has not ended yet");
}

pub(super) async fn what_is_over_is_told_until_a_sweep_has_ended_it(world: &World) {
    world.set("t", 5).await;
    world.set("cluster", 5).await;
    world.submit_many(2, job("t")).await;
    let dead = world.worker("dead", ["t"]).await;
    dead.claim(2).await;
    let slow = world.open(serving("slow", ["u"]).lease(90_000)).await;
    world.submit(job("u").key("k").timeout(1)).await;
    let late = slow.claim_one().await;
    let held = world.hold(program("gpu").slots(2)).await;
    assert_eq!(world.store.over().await.expect("what is over"), Over::default());
    world.advance(30_000).await;
    for _ in 0..2 {
        let over = world.store.over().await.expect("what is over");
        let sessions: Vec<_> =
            over.sessions.iter().map(|s| (&*s.worker.worker, s.worker.running, s.slots)).collect();
        assert_eq!(sessions, [("dead", 2, 4)]);
        let leases: Vec<_> = over
            .leases
            .iter()
            .map(|lease| (lease.group.to_string(), lease.holder.token, lease.holder.slots))
            .collect();
        assert_eq!(leases, [("u/k".to_string(), late.token, 1), ("gpu".to_string(), held.lease.token, 2)]);
    }
    world.sweep().await;
    assert_eq!(world.store.over().await.expect("what is over"), Over::default());
}
