//! Prefetch: jobs that are claimed ahead of time hold no slot; the start takes the slots, or gives the job back.
//! What runs never exceeds a limit in either mode.

use super::*;

/// Checks that a job stands in line as if no worker had ever claimed it.
pub(super) async fn untouched(world: &World, before: &JobView) {
    let detail = world.detail(before.id).await;
    assert_eq!((&detail.view, detail.attempts), (before, vec![]));
}

pub(super) async fn without_prefetch_claiming_is_starting(world: &World) {
    let id = world.submit_many(2, job("t")).await[0];
    let worker = world.worker("w1", ["t"]).await;
    let reply = worker.exchange(Vec::new(), 1).await;
    assert_eq!((reply.claimed.len(), reply.prefetched), (1, vec![]));
    assert_eq!((world.state(id).await, world.used("t").await), (JobState::Running, 1));
}

pub(super) async fn a_claimed_job_holds_no_slot_and_uses_no_attempt(world: &World) {
    world.set("t", 5).await;
    let id = world.submit(job("t").key("k").limits([("gpu", 2)])).await;
    let worker = world.worker("w1", ["t"]).await;
    let reply = worker.prefetch(0, 3).await;
    let [ahead] = &reply.prefetched[..] else { panic!("{reply:?}") };
    assert_eq!((ahead.job.id, ahead.job.attempt, ahead.claim_until), (id, 1, at(CLAIM_MS)));
    let detail = world.detail(id).await;
    assert_eq!((detail.view.state, detail.view.attempts_used), (JobState::Claimed, 0));
    assert_eq!((detail.view.running, detail.attempts), (None, vec![]));
    for group in ["t", "t/k", "gpu", "queue:default", "cluster"] {
        assert_eq!(world.used(group).await, 0, "{group}");
    }
    assert_eq!(world.status("t").await.live, 1, "but it lives");
}

pub(super) async fn no_more_is_claimed_than_there_is_room_for(world: &World) {
    world.set("t", 3).await;
    world.set("t/*", 2).await;
    let ids = world.submit_all(["a", "a", "a", "b", "b"].map(|key| job("t").key(key)).into()).await;
    let (one, two) = (world.worker("w1", ["t"]).await, world.worker("w2", ["t"]).await);
    assert_eq!(worker::ids(&one.ahead(1).await), ids[..1]);
    assert_eq!(worker::ids(&two.ahead(10).await), [ids[1], ids[3]], "claims of every session count");
    assert_eq!(one.ahead(10).await, []);
}

pub(super) async fn running_jobs_and_programs_leave_less_to_claim(world: &World) {
    world.set("t", 4).await;
    let ids = world.submit_many(6, job("t")).await;
    let worker = world.worker("w1", ["t"]).await;
    worker.claim_one().await;
    world.hold(program("t")).await;
    assert_eq!(worker::ids(&worker.ahead(10).await), ids[1..3]);
}

pub(super) async fn what_runs_never_exceeds_a_limit_in_either_mode(world: &World) {
    for (group, limit) in [("cluster", 6), ("t", 5), ("t/*", 2)] {
        world.set(group, limit).await;
    }
    for place in 0..40_u32 {
        world.submit(job("t").key(&format!("k{}", place % 4)).cost(1 + place % 2)).await;
    }
    let (soft, hard) = (world.worker("soft", ["t"]).await, world.worker("hard", ["t"]).await);
    let (mut running, mut claimed, mut done) = (Vec::new(), Vec::new(), 0);
    for _ in 0..200 {
        claimed.extend(soft.ahead(6).await);
        running.extend(hard.claim(2).await);
        for (group, limit) in [("cluster", 6), ("t", 5), ("t/k0", 2), ("t/k1", 2), ("t/k2", 2), ("t/k3", 2)] {
            assert!(world.used(group).await <= limit, "{group}");
        }
        hard.succeed_all(&std::mem::take(&mut running)).await;
        for job in std::mem::take(&mut claimed) {
            let started = soft.start(&job).await.expect("the claim is not over");
            if let Some(run) = started.run {
                soft.succeed(&ClaimedJob { token: run.token, ..job }).await;
            }
        }
        done = world.all_jobs().await.iter().filter(|view| view.state == JobState::Succeeded).count();
        if done == 40 {
            break;
        }
    }
    assert_eq!(done, 40, "and every job runs");
}

pub(super) async fn what_starts_at_once_comes_first_in_line(world: &World) {
    let ids = world.submit_many(6, job("t")).await;
    let worker = world.worker("w1", ["t"]).await;
    let reply = worker.prefetch(2, 3).await;
    let ahead: Vec<_> = reply.prefetched.iter().map(|ahead| ahead.job.id).collect();
    assert_eq!((worker::ids(&reply.claimed), ahead), (ids[..2].to_vec(), ids[2..5].to_vec()));
    let tokens = reply.claimed.iter().chain(reply.prefetched.iter().map(|ahead| &ahead.job));
    assert!(tokens.map(|job| job.token).is_sorted_by(|a, b| a < b));
}

pub(super) async fn an_exchange_tops_up_what_the_session_holds(world: &World) {
    let ids = world.submit_many(9, job("t")).await;
    let (one, two) = (world.worker("w1", ["t"]).await, world.worker("w2", ["t"]).await);
    let held = one.ahead(3).await;
    assert_eq!((worker::ids(&held), one.ahead(3).await), (ids[..3].to_vec(), vec![]));
    assert_eq!(worker::ids(&two.ahead(2).await), ids[3..5], "each session has its own");
    one.run(&held[0]).await;
    assert_eq!(worker::ids(&one.ahead(3).await), ids[5..6]);
    assert_eq!(one.ahead(2).await, [], "it holds more than that already");
}

pub(super) async fn both_walks_count_for_the_share_of_a_queue(world: &World) {
    let specs = [("a", 5), ("b", 1)].map(|(queue, count)| vec![job("t").queue(queue); count]);
    let ids = world.submit_all(specs.concat()).await;
    let worker = world.worker("w1", ["t"]).await;
    let prefetch = Some(Prefetch { buffer: 9, lease_ms: CLAIM_MS });
    let claim = Claim { max: 2, max_claim_batch: Some(3), prefetch };
    let reply = worker.send(Exchange { claim, ..worker.next() }).await.expect("the session is live");
    let ahead: Vec<_> = reply.prefetched.iter().map(|ahead| ahead.job.id).collect();
    assert_eq!((worker::ids(&reply.claimed), ahead), (ids[..2].to_vec(), vec![ids[2], ids[5]]));
}

pub(super) async fn both_walks_fill_one_message(world: &World) {
    let megabyte = format!("\"{}\"", "x".repeat(caps::PAYLOAD_BYTES - 2));
    for _ in 0..4 {
        world.submit_many(5, job("bulk").payload(&megabyte)).await;
    }
    let worker = world.worker("w1", ["bulk"]).await;
    let reply = worker.prefetch(5, 10).await;
    assert_eq!((reply.claimed.len(), reply.prefetched.len()), (5, 3));
    let reply = worker.prefetch(10, 10).await;
    assert_eq!((reply.claimed.len(), reply.prefetched.len()), (8, 0), "the first walk has filled it");
}

pub(super) async fn a_worker_claims_ahead_only_what_it_could_run(world: &World) {
    world.submit_all(vec![job("other"), job("t").queue("far"), job("t").run_at(at(9_000))]).await;
    world.submit(job("t").queue("paused")).await;
    world.pause("paused").await;
    let id = world.submit(job("t").queue("near")).await;
    let worker = world.open(serving("w1", ["t"]).queues(["near", "paused", "default"])).await;
    assert_eq!(worker::ids(&worker.ahead(10).await), [id]);
}

pub(super) async fn a_claimed_job_does_not_keep_a_big_one_from_running(world: &World) {
    world.set("t", 4).await;
    world.submit_many(2, job("t")).await;
    let worker = world.worker("w1", ["t"]).await;
    assert_eq!(worker.ahead(2).await.len(), 2);
    let big = world.submit(job("t").cost(3)).await;
    assert_eq!(worker.ahead(9).await, [], "two claimed and three are more than four");
    assert_eq!(worker.claim_ids(10).await, [big], "but nothing runs yet");
}

pub(super) async fn a_big_job_in_line_keeps_slots_from_claims_ahead_of_time(world: &World) {
    world.set("t", 4).await;
    world.submit_many(2, job("t")).await;
    let worker = world.worker("w1", ["t"]).await;
    let running = worker.claim(2).await;
    let big = world.submit(job("t").cost(3)).await;
    let small = world.submit(job("t")).await;
    assert_eq!(worker.ahead(9).await, []);
    world.cancel(big).await.expect("it is there");
    assert_eq!(worker::ids(&worker.ahead(9).await), [small]);
    worker.succeed_all(&running).await;
}

pub(super) async fn a_claim_is_over_at_its_time_and_not_before(world: &World) {
    let id = world.submit(job("t")).await;
    let before = world.view(id).await;
    let worker = world.worker("w1", ["t"]).await;
    let claimed = worker.ahead_one().await;
    world.advance(CLAIM_MS - 1).await;
    assert_eq!((world.sweep().await, world.state(id).await), (Swept::default(), JobState::Claimed));
    world.advance(1).await;
    assert_eq!(world.sweep().await, Swept { claims: 1, ..Swept::default() });
    untouched(world, &before).await;
    let stop = Stop { job: id, token: claimed.token, reason: StopReason::LeaseEnded };
    assert_eq!((worker.renew().await.stop, worker.renew().await.stop), (vec![stop], vec![]));
    refused(worker.start(&claimed).await, ErrorKind::Fenced);
}

pub(super) async fn renewing_the_session_does_not_renew_its_claims(world: &World) {
    world.submit(job("t")).await;
    let worker = world.worker("w1", ["t"]).await;
    let claimed = worker.ahead_one().await;
    world.advance(CLAIM_MS - 1).await;
    worker.renew().await;
    world.advance(1).await;
    let reply = worker.renew().await;
    assert_eq!(reply.stop.iter().map(|stop| stop.token).collect::<Vec<_>>(), [claimed.token]);
}

pub(super) async fn another_workers_exchange_ends_a_claim_and_takes_the_job(world: &World) {
    let id = world.submit(job("t")).await;
    let (slow, other) = (world.worker("slow", ["t"]).await, world.worker("other", ["t"]).await);
    let claimed = slow.ahead_one().await;
    world.advance(CLAIM_MS).await;
    let taken = other.claim(10).await;
    assert_eq!((taken[0].id, taken[0].attempt), (id, 1), "no attempt was used");
    refused(slow.start(&claimed).await, ErrorKind::Fenced);
}

pub(super) async fn a_claim_that_is_released_goes_back_as_it_was(world: &World) {
    let ids = world.submit_many(2, job("t")).await;
    let worker = world.worker("w1", ["t"]).await;
    let before = world.view(ids[0]).await;
    let claimed = worker.ahead_one().await;
    world.advance(1_000).await;
    assert_eq!(worker.settle(&claimed, Outcome::Release).await, Ok(JobState::Pending));
    untouched(world, &before).await;
    refused(worker.settle(&claimed, Outcome::Release).await, ErrorKind::Fenced);
    assert_eq!(worker.claim_ids(10).await, ids);
}

pub(super) async fn a_job_that_has_not_started_has_no_other_outcome(world: &World) {
    let id = world.submit(job("t")).await;
    let worker = world.worker("w1", ["t"]).await;
    let claimed = worker.ahead_one().await;
    for outcome in [success(), failure(), retry(0), snooze(0), Outcome::Cancelled] {
        refused(worker.settle(&claimed, outcome).await, ErrorKind::Invalid);
    }
    assert_eq!(world.state(id).await, JobState::Claimed);
    worker.run(&claimed).await;
}

pub(super) async fn a_claimed_step_is_no_more_than_pending(world: &World) {
    let ids = world.submit_many(2, step("w")).await;
    let (one, two) = (world.worker("w1", ["step"]).await, world.worker("w2", ["step"]).await);
    let claimed = one.ahead(5).await;
    assert_eq!(worker::ids(&claimed), ids[..1]);
    let reply = two.prefetch(5, 5).await;
    assert_eq!((reply.claimed, reply.prefetched), (vec![], vec![]), "it has not ended");
    let running = one.run(&claimed[0]).await;
    assert_eq!(two.claim(5).await, []);
    one.succeed(&running).await;
    assert_eq!(two.claim_ids(5).await, ids[1..]);
}

pub(super) async fn claimed_jobs_count_at_submit(world: &World) {
    world.set("t", 2).await;
    world.submit_many(2, job("t")).await;
    world.worker("w1", ["t"]).await.ahead(2).await;
    refused(world.offer(job("t").or_reject()).await, ErrorKind::LimitReached);
}

pub(super) async fn a_claim_does_not_outlive_its_session_in_any_view(world: &World) {
    let id = world.submit(job("t")).await;
    let worker = world.open(serving("w1", ["t"]).lease(2_000)).await;
    let claimed = worker.ahead_one().await;
    let owner = world.view(id).await.claimed.expect("it is claimed");
    assert_eq!((owner.token, owner.lease_until), (claimed.token, at(2_000)), "the session ends first");
    world.advance(1_500).await;
    worker.renew().await;
    world.advance(1_500).await;
    worker.renew().await;
    world.advance(1).await;
    worker.renew().await;
    let owner = world.view(id).await.claimed.expect("it is claimed");
    assert_eq!((owner.since, owner.lease_until), (START, at(CLAIM_MS)), "now the claim does");
}

pub(super) async fn what_the_first_walk_kept_is_forgotten_when_the_second_begins(world: &World) {
    world.set("api", 4).await;
    world.set("gpu", 1).await;
    let worker = world.worker("w", ["small", "big", "other"]).await;
    world.submit_many(2, job("small").group("api")).await;
    worker.claim(2).await;
    world.submit(job("big").group("api").cost(3).limits([("gpu", 1)])).await;
    let first = world.submit(job("small").group("api")).await;
    let other = world.submit(job("other").limits([("gpu", 1)])).await;
    let reply = worker.prefetch(9, 9).await;
    let ahead: Vec<_> = reply.prefetched.iter().map(|ahead| ahead.job.id).collect();
    assert_eq!(worker::ids(&reply.claimed), [other], "while the big one misses one group it keeps slots");
    assert_eq!(ahead, [first], "by now it misses two");
}

pub(super) async fn what_runs_and_what_is_claimed_may_be_more_than_the_limit(world: &World) {
    world.set("t", 2).await;
    world.submit_many(2, job("t")).await;
    let (soft, hard) = (world.worker("soft", ["t"]).await, world.worker("hard", ["t"]).await);
    let claimed = soft.ahead(2).await;
    world.submit_many(2, job("t")).await;
    let running = hard.claim(9).await;
    assert_eq!((claimed.len(), running.len()), (2, 2));
    world.submit_all(vec![job("t").cost(2), job("t")]).await;
    assert_eq!((soft.ahead(9).await, hard.ahead(9).await), (vec![], vec![]));
    hard.succeed_all(&running).await;
    assert_eq!(hard.ahead(9).await, [], "two are claimed, and there is room for two");
    soft.run(&claimed[0]).await;
}

pub(super) async fn what_a_session_did_not_start_in_time_others_may_have_first(world: &World) {
    let id = world.submit(job("t")).await;
    let (busy, idle) = (world.worker("w1", ["t"]).await, world.worker("w2", ["t"]).await);
    let late = busy.ahead_one().await;
    world.advance(CLAIM_MS).await;
    let reply = busy.prefetch(0, 1).await;
    let stop = Stop { job: id, token: late.token, reason: StopReason::LeaseEnded };
    assert_eq!((reply.stop, reply.prefetched), (vec![stop], vec![]), "not again at once");
    refused(busy.start(&late).await, ErrorKind::Fenced);
    assert_eq!(idle.claim_ids(1).await, [id]);
    world.submit(job("t")).await;
    assert_eq!(busy.ahead(1).await.len(), 1, "the next exchange claims ahead of time again");
}

pub(super) async fn a_big_job_is_not_claimed_ahead_of_time(world: &World) {
    world.set("t", 3).await;
    world.set("u/*", 2).await;
    let worker = world.worker("w1", ["t", "u", "v"]).await;
    world.submit_all(vec![job("t").cost(2), job("u").key("k").cost(2), job("v").limits([("t", 2)])]).await;
    let unlimited = world.submit(job("v").cost(2)).await;
    let small = world.submit(job("u").key("k")).await;
    let ahead: Vec<_> = worker.ahead(9).await.iter().map(|job| job.id).collect();
    assert_eq!(ahead, [unlimited], "big jobs keep their slots in line: {small} is behind one");
}
