//! Standalone slots: programs that are not jobs share a group's limit with its jobs, under leases of their own.

use super::*;

pub(super) async fn programs_and_jobs_share_one_limit(world: &World) {
    world.set("gpu", 3).await;
    world.submit_many(5, job("gpu")).await;
    let worker = world.worker("w1", ["gpu"]).await;
    let held = world.hold(program("gpu").slots(2)).await;
    let running = worker.claim(10).await;
    assert_eq!((running.len(), world.used("gpu").await), (1, 3));
    assert!(world.is_full(program("gpu")).await);
    assert_eq!(held.give_back().await, Ok(()));
    assert_eq!(worker.claim(10).await.len(), 2);
    worker.succeed(&running[0]).await;
    world.hold(program("gpu")).await;
    assert_eq!(world.used("gpu").await, 3);
}

pub(super) async fn a_program_gives_back_its_own_slots_and_no_others(world: &World) {
    let mut held = Vec::new();
    for slots in 1..=3 {
        held.push(world.hold(program("gpu").slots(slots)).await);
    }
    assert_eq!(held[1].give_back().await, Ok(()));
    let left = world.group("gpu").await.expect("two hold slots").holders;
    let left: Vec<_> = left.iter().map(|holder| (holder.token, holder.slots)).collect();
    assert_eq!(left, [(held[0].lease.token, 1), (held[2].lease.token, 3)]);
}

pub(super) async fn a_program_that_finds_no_room_gets_nothing_at_once(world: &World) {
    world.set("gpu", 1).await;
    world.hold(program("gpu")).await;
    let before = world.snapshot().await;
    assert!(world.is_full(program("gpu")).await);
    assert_eq!(world.snapshot().await, before, "programs do not stand in line");
    world.set("held", 0).await;
    assert!(world.is_full(program("held").slots(7)).await, "0 holds programs too");
}

pub(super) async fn a_program_takes_slots_of_its_key_and_group_and_of_nothing_else(world: &World) {
    world.set("cluster", 0).await;
    world.set("queue:default", 0).await;
    world.hold(program("gpu/a").slots(2)).await;
    world.hold(program("gpu").slots(3)).await;
    let mut used = Vec::new();
    for group in ["gpu", "gpu/a", "gpu/*", "cluster", "queue:default"] {
        used.push(world.used(group).await);
    }
    assert_eq!(used, [5, 2, 2, 0, 0]);
    let status = world.status("gpu").await;
    assert_eq!((status.limit, status.live), (None, 5), "without a limit there is always room");
}

pub(super) async fn a_program_takes_all_its_slots_or_none(world: &World) {
    world.set("gpu", 2).await;
    world.set("gpu/*", 5).await;
    world.hold(program("gpu")).await;
    assert!(world.is_full(program("gpu/a").slots(2)).await);
    assert_eq!((world.used("gpu").await, world.used("gpu/a").await), (1, 0));
    world.set("gpu", 9).await;
    world.set("gpu/a", 1).await;
    world.hold(program("gpu/a")).await;
    assert!(world.is_full(program("gpu/a")).await, "the group has room, the key has not");
    assert_eq!((world.used("gpu").await, world.used("gpu/a").await), (2, 1));
}

pub(super) async fn a_programs_lease_is_over_at_its_time_and_not_before(world: &World) {
    let program = world.hold(program("gpu")).await;
    assert_eq!((program.lease.since, program.lease.lease_until), (START, at(10_000)));
    world.advance(9_999).await;
    assert_eq!((world.sweep().await, world.used("gpu").await), (Swept::default(), 1));
    world.advance(1).await;
    assert_eq!(world.sweep().await, Swept { slots: 1, ..Swept::default() });
    assert_eq!(world.group("gpu").await, None);
    refused(program.extend(10_000).await, ErrorKind::Fenced);
    refused(program.give_back().await, ErrorKind::Fenced);
}

pub(super) async fn an_exchange_takes_the_slots_of_a_dead_program(world: &World) {
    world.set("gpu", 1).await;
    world.hold(program("gpu")).await;
    let id = world.submit(job("gpu")).await;
    let worker = world.worker("w1", ["gpu"]).await;
    assert_eq!(worker.claim(1).await, []);
    world.advance(10_000).await;
    assert_eq!(worker.claim_ids(1).await, [id], "without a sweep, in the same step");
}

pub(super) async fn a_request_ends_what_is_over_first(world: &World) {
    world.set("gpu", 2).await;
    world.submit_all(vec![job("gpu"), job("late").good_until(at(1_000))]).await;
    world.worker("dead", ["gpu"]).await.claim_one().await;
    world.hold(program("gpu").lease(30_000)).await;
    assert!(world.is_full(program("gpu")).await);
    world.advance(30_000).await;
    world.hold(program("gpu").slots(2)).await;
    assert_eq!((world.used("gpu").await, world.store.workers().await), (2, Ok(vec![])));
    let late = world.all_jobs().await[1].state;
    assert_eq!((late, world.sweep().await), (JobState::Expired, Swept::default()));
}

pub(super) async fn a_refused_request_ends_what_is_over_too(world: &World) {
    world.set("gpu", 0).await;
    let id = world.submit(job("t")).await;
    world.worker("dead", ["t"]).await.claim_one().await;
    world.advance(30_000).await;
    assert!(world.is_full(program("gpu")).await);
    assert_eq!((world.state(id).await, world.used("t").await), (JobState::Pending, 0));
}

pub(super) async fn until_the_event_a_late_program_may_extend_and_give_back(world: &World) {
    let (one, two) = (world.hold(program("gpu")).await, world.hold(program("gpu")).await);
    world.advance(20_000).await;
    assert_eq!(one.extend(5_000).await.map(|lease| lease.lease_until), Ok(at(25_000)));
    assert_eq!(two.give_back().await, Ok(()));
    assert_eq!((world.sweep().await.slots, world.used("gpu").await), (0, 1));
}

pub(super) async fn a_lease_is_extended_from_now_and_may_end_sooner(world: &World) {
    let program = world.hold(program("gpu")).await;
    world.advance(4_000).await;
    let extended = program.extend(10_000).await.expect("it holds the slot");
    assert_eq!((extended.token, extended.since, extended.lease_until), (program.token(), START, at(14_000)));
    assert_eq!(program.extend(1_000).await.map(|lease| lease.lease_until), Ok(at(5_000)));
    let holders = world.group("gpu").await.expect("it is held").holders;
    assert_eq!(holders[0].lease_until, at(5_000));
    world.advance(1_000).await;
    assert_eq!(world.sweep().await.slots, 1);
}

pub(super) async fn a_wrong_token_or_id_frees_and_extends_nothing(world: &World) {
    let (one, two) = (world.hold(program("gpu")).await, world.hold(program("gpu")).await);
    let before = world.snapshot().await;
    let unknown = world.lease_id();
    for (id, token) in [(one.id, two.token()), (unknown, one.token()), (one.id, FenceToken(u64::MAX))] {
        refused(world.store.return_slots(id, token).await, ErrorKind::Fenced);
        refused(world.store.extend_slots(id, token, 60_000).await, ErrorKind::Fenced);
    }
    assert_eq!(world.snapshot().await, before);
}

pub(super) async fn a_programs_slots_are_not_freed_twice(world: &World) {
    world.set("gpu", 2).await;
    let (old, _) = (world.hold(program("gpu")).await, world.hold(program("gpu")).await);
    assert_eq!(old.give_back().await, Ok(()));
    let new = world.hold(program("gpu").id(old.id)).await;
    assert!(new.token() > old.token(), "the same id, another hold");
    refused(old.give_back().await, ErrorKind::Fenced);
    refused(old.extend(60_000).await, ErrorKind::Fenced);
    assert_eq!(world.used("gpu").await, 2);
}

pub(super) async fn the_same_request_again_is_the_same_lease(world: &World) {
    world.set("gpu", 1).await;
    let id = world.lease_id();
    let first = world.hold(program("gpu").id(id)).await;
    world.advance(4_000).await;
    let before = world.snapshot().await;
    let again = world.hold(program("gpu").id(id).lease(60_000).limit(5)).await;
    assert_eq!(again.lease, first.lease, "unchanged, though the group is full");
    refused(world.acquire(program("gpu").id(id).slots(2)).await, ErrorKind::Conflict);
    refused(world.acquire(program("cpu").id(id)).await, ErrorKind::Conflict);
    refused(world.acquire(program("gpu/k").id(id)).await, ErrorKind::Conflict);
    assert_eq!(world.snapshot().await, before);
}

pub(super) async fn the_same_id_after_its_lease_is_over_is_a_new_hold(world: &World) {
    world.set("gpu", 2).await;
    let id = world.lease_id();
    let first = world.hold(program("gpu").id(id)).await;
    world.advance(10_000).await;
    let second = world.hold(program("gpu").id(id).slots(2)).await;
    assert!(second.token() > first.token());
    assert_eq!((second.lease.since, world.used("gpu").await), (at(10_000), 2));
}

pub(super) async fn a_dropped_request_may_be_made_again(world: &World) {
    world.set("gpu", 3).await;
    let spec = program("gpu").id(world.lease_id());
    // Polled once and dropped: the call took effect or it did not, and the program does not know which.
    let _ = world.acquire(spec.clone()).now_or_never();
    world.hold(spec).await;
    assert_eq!(world.used("gpu").await, 1);
}

pub(super) async fn concurrent_requests_reach_a_limit_and_do_not_exceed_it(world: &World) {
    world.set("gpu", 3).await;
    world.submit_many(5, job("gpu")).await;
    let worker = world.worker("w1", ["gpu"]).await;
    let asked = join_all((0..5).map(|_| world.acquire(program("gpu"))));
    let (held, claimed) = futures::future::join(asked, worker.claim(2)).await;
    let held = held.iter().filter(|lease| matches!(lease, Ok(Some(_)))).count();
    assert_eq!((held + claimed.len(), world.used("gpu").await), (3, 3));
}

pub(super) async fn a_need_above_the_limit_is_invalid_unless_that_is_zero(world: &World) {
    world.set("gpu", 2).await;
    world.set("gpu/*", 1).await;
    let before = world.snapshot().await;
    invalid(world.acquire(program("gpu").slots(3)).await, "slots", "3");
    invalid(world.acquire(program("gpu/k").slots(2)).await, "slots", "2");
    invalid(world.acquire(program("new").slots(4).limit(3)).await, "slots", "4");
    assert_eq!(world.snapshot().await, before);
    world.set("gpu", 0).await;
    assert!(world.is_full(program("gpu").slots(3)).await);
    assert!(world.is_full(program("new").slots(3).limit(0)).await);
}

pub(super) async fn a_program_never_takes_what_a_big_job_waits_for(world: &World) {
    world.set("gpu", 4).await;
    world.submit_many(2, job("gpu")).await;
    let worker = world.worker("w1", ["gpu"]).await;
    let running = worker.claim(2).await;
    let big = world.submit(job("gpu").cost(3).priority(99)).await;
    assert!(world.is_full(program("gpu")).await, "whatever the big job's priority is");
    let reply = worker.exchange(vec![settled(&running[0], success())], 1).await;
    assert_eq!(worker::ids(&reply.claimed), [big]);
    worker.succeed(&running[1]).await;
    world.hold(program("gpu")).await;
}

pub(super) async fn a_big_job_runs_when_programs_give_their_slots_back(world: &World) {
    world.set("gpu", 3).await;
    let (one, two) = (world.hold(program("gpu")).await, world.hold(program("gpu")).await);
    let ids = world.submit_all(vec![job("gpu").cost(3), job("gpu")]).await;
    let worker = world.worker("w1", ["gpu"]).await;
    assert_eq!(worker.claim(10).await, [], "it keeps the free slot");
    assert_eq!(one.give_back().await, Ok(()));
    assert_eq!(worker.claim(10).await, []);
    assert_eq!(two.give_back().await, Ok(()));
    assert_eq!(worker.claim_ids(10).await, ids[..1]);
}

pub(super) async fn a_program_may_bring_the_limit(world: &World) {
    let first = world.hold(program("gpu").limit(2)).await;
    let second = world.hold(program("gpu").limit(2)).await;
    assert!(world.is_full(program("gpu").limit(2)).await);
    let status = world.status("gpu").await;
    assert_eq!((status.limit, status.source), (Some(2), Some(LimitSource::Submit)));
    assert!(world.is_full(program("gpu").limit(1)).await);
    assert_eq!(world.limit("gpu").await, Some(2), "one that is refused leaves no limit behind");
    assert_eq!(first.give_back().await, Ok(()));
    assert_eq!(world.limit("gpu").await, Some(2), "one program is left");
    assert_eq!(second.give_back().await, Ok(()));
    assert_eq!(world.limit("gpu").await, None);
    world.hold(program("gpu/k").limit(1)).await;
    assert_eq!((world.limit("gpu/k").await, world.limit("gpu").await), (Some(1), None));
}

pub(super) async fn a_programs_limit_only_fills_a_gap(world: &World) {
    world.configure([("gpu", 1), ("cpu/*", 1)]).await;
    world.hold(program("gpu").limit(5)).await;
    assert!(world.is_full(program("gpu").limit(5)).await);
    world.hold(program("cpu/k").limit(5)).await;
    assert!(world.is_full(program("cpu/k").limit(5)).await);
}

pub(super) async fn a_submit_side_limit_stays_while_a_program_holds_slots(world: &World) {
    let program = world.hold(program("gpu").limit(2)).await;
    world.submit(job("gpu").limit(3)).await;
    let worker = world.worker("w1", ["gpu"]).await;
    worker.succeed(&worker.claim_one().await).await;
    assert_eq!(world.limit("gpu").await, Some(3), "the newest one, of a job or a program");
    world.advance(10_000).await;
    worker.renew().await;
    assert_eq!(world.limit("gpu").await, None, "the last one is gone");
    refused(program.give_back().await, ErrorKind::Fenced);
}

pub(super) async fn slots_of_programs_count_at_submit(world: &World) {
    world.set("gpu/*", 3).await;
    let held = world.hold(program("gpu/k").slots(2)).await;
    world.submit(job("gpu").key("k").or_reject()).await;
    refused(world.offer(job("gpu").key("k").or_reject()).await, ErrorKind::LimitReached);
    assert_eq!(held.give_back().await, Ok(()));
    world.submit(job("gpu").key("k").cost(2).or_reject()).await;
}

pub(super) async fn a_start_finds_the_slots_that_a_program_took(world: &World) {
    world.set("gpu", 1).await;
    world.submit(job("gpu")).await;
    let worker = world.worker("w1", ["gpu"]).await;
    let claimed = worker.ahead_one().await;
    let held = world.hold(program("gpu")).await;
    assert_eq!(worker.start(&claimed).await.map(|started| started.then), Ok(JobState::Pending));
    assert_eq!(held.give_back().await, Ok(()));
    assert_eq!(worker.claim(1).await.len(), 1);
}

pub(super) async fn programs_are_shown_among_the_holders(world: &World) {
    world.set("gpu", 9).await;
    world.submit_many(2, job("gpu")).await;
    let worker = world.worker("w1", ["gpu"]).await;
    let first = worker.claim_one().await;
    world.advance(100).await;
    let render = world.hold(program("gpu/k").slots(2).called("render-7")).await;
    let last = worker.claim_one().await;
    let holders = world.group("gpu").await.expect("it is held").holders;
    let tokens: Vec<_> = holders.iter().map(|holder| holder.token).collect();
    assert_eq!(tokens, [first.token, render.token(), last.token], "by token");
    let shown = &holders[1];
    assert_eq!(
        (&*shown.worker, shown.slots, shown.by.clone()),
        ("render-7", 2, HeldBy::Program { lease: render.id })
    );
    assert_eq!((shown.since, shown.lease_until), (at(100), at(10_100)));
    assert_eq!(world.group("gpu/k").await.expect("it is held").holders, std::slice::from_ref(shown));
}

pub(super) async fn a_lowered_limit_takes_nothing_away_from_programs(world: &World) {
    world.set("gpu", 3).await;
    let held = world.hold(program("gpu").slots(3)).await;
    world.set("gpu", 1).await;
    assert_eq!(world.used("gpu").await, 3);
    assert_eq!(held.extend(10_000).await.map(|lease| lease.token), Ok(held.token()));
    assert!(world.is_full(program("gpu")).await);
    assert_eq!(held.give_back().await, Ok(()));
    world.hold(program("gpu")).await;
}

pub(super) async fn an_operator_may_take_a_programs_slots(world: &World) {
    world.set("gpu", 2).await;
    for group in ["gpu/k", "gpu", "gpu/*"] {
        let program = world.hold(program("gpu/k").slots(2)).await;
        refused(world.store.release_slot(group_ref("cluster"), program.token()).await, ErrorKind::NotFound);
        assert_eq!(world.store.release_slot(group_ref(group), program.token()).await, Ok(()), "{group}");
        assert_eq!((world.used("gpu").await, world.used("gpu/k").await), (0, 0));
        refused(program.extend(1_000).await, ErrorKind::Fenced);
        refused(program.give_back().await, ErrorKind::Fenced);
        refused(world.store.release_slot(group_ref(group), program.token()).await, ErrorKind::NotFound);
    }
}

pub(super) async fn a_request_that_is_answered_already_ends_nothing(world: &World) {
    world.set("gpu", 3).await;
    let id = world.lease_id();
    world.hold(program("gpu")).await;
    let long = world.hold(program("gpu").id(id).slots(2).lease(60_000)).await;
    world.advance(20_000).await;
    world.set("gpu", 1).await;
    assert_eq!(
        world.hold(program("gpu").id(id).slots(2)).await.lease,
        long.lease,
        "whatever the limit is now"
    );
    refused(world.acquire(program("gpu").id(id)).await, ErrorKind::Conflict);
    invalid(world.acquire(program("gpu").slots(2)).await, "slots", "2");
    assert_eq!(world.used("gpu").await, 2, "the first one is over");
    assert_eq!(world.sweep().await.slots, 1, "but nothing had ended it");
    assert!(world.is_full(program("gpu")).await);
    assert_eq!(world.used("gpu").await, 2);
}

pub(super) async fn a_program_needs_no_worker_and_outlives_all_of_them(world: &World) {
    world.set("gpu", 1).await;
    world.submit(job("gpu")).await;
    let worker = world.worker("w1", ["gpu"]).await;
    let held = world.hold(program("gpu").lease(90_000)).await;
    world.advance(30_000).await;
    assert_eq!(world.sweep().await, Swept { sessions: 1, ..Swept::default() });
    refused(worker.send(worker.next()).await, ErrorKind::Fenced);
    assert_eq!(held.extend(60_000).await.map(|lease| lease.lease_until), Ok(at(90_000)));
    assert_eq!(world.worker("w2", ["gpu"]).await.claim(1).await, []);
}

pub(super) async fn the_newest_limit_that_a_program_or_job_brings_stays(world: &World) {
    world.hold(program("gpu").limit(1)).await;
    assert!(world.is_full(program("gpu")).await);
    world.hold(program("gpu").slots(2).limit(3)).await;
    assert_eq!((world.limit("gpu").await, world.used("gpu").await), (Some(3), 3), "its own limit makes room");
    world.submit(job("gpu").limit(4)).await;
    assert_eq!(world.worker("w1", ["gpu"]).await.claim(9).await.len(), 1);
    world.hold(program("gpu").limit(5)).await;
    assert!(world.is_full(program("gpu").limit(4)).await);
    assert_eq!((world.limit("gpu").await, world.used("gpu").await), (Some(5), 5));
}
