//! Big costs: free slots are kept for a job that needs many, so that it is neither starved nor able to deadlock; a job
//! that no worker can run keeps nothing.

use super::*;

/// A group `api` of 4 slots, 3 of them taken by small jobs of `w`; then a job of cost 3 and small ones.
async fn a_waiting_giant(world: &World) -> (Worker, Vec<ClaimedJob>, JobId, Vec<JobId>) {
    world.set("api", 4).await;
    let worker = world.worker("w", ["small", "big", "other"]).await;
    world.submit_many(3, job("small").group("api")).await;
    let running = worker.claim(3).await;
    let big = world.submit(job("big").group("api").cost(3)).await;
    let small = world.submit_many(5, job("small").group("api")).await;
    (worker, running, big, small)
}

pub(super) async fn a_big_job_is_not_starved_by_small_ones(world: &World) {
    let (worker, running, big, small) = a_waiting_giant(world).await;
    assert_eq!(worker.claim(10).await, [], "the free slot is kept");
    worker.succeed(&running[0]).await;
    assert_eq!(worker.claim(10).await, [], "so are two");
    let reply = worker.exchange(vec![settled(&running[1], success())], 10).await;
    assert_eq!(worker::ids(&reply.claimed), [big], "three are free: it runs, and one slot is not left");
    worker.succeed(&running[2]).await;
    assert_eq!(worker.claim_ids(10).await, small[..1]);
}

pub(super) async fn jobs_before_the_big_one_take_slots(world: &World) {
    let (worker, ..) = a_waiting_giant(world).await;
    let urgent = world.submit(job("small").group("api").priority(-1)).await;
    assert_eq!(worker.claim_ids(10).await, [urgent]);
}

pub(super) async fn a_reservation_delays_no_other_group(world: &World) {
    let (worker, ..) = a_waiting_giant(world).await;
    let other = world.submit_many(2, job("other")).await;
    assert_eq!(worker.claim_ids(10).await, other);
}

pub(super) async fn a_reservation_ends_with_a_cancel(world: &World) {
    let (worker, _, big, small) = a_waiting_giant(world).await;
    assert_eq!(world.cancel(big).await, Ok(JobState::Cancelled));
    assert_eq!(worker.claim_ids(10).await, small[..1]);
}

pub(super) async fn a_reservation_ends_with_the_date_of_the_job(world: &World) {
    world.set("api", 2).await;
    let worker = world.worker("w", ["small", "big"]).await;
    world.submit(job("small").group("api")).await;
    worker.claim_one().await;
    world.submit(job("big").group("api").cost(2).good_until(at(1_000))).await;
    let small = world.submit(job("small").group("api")).await;
    assert_eq!(worker.claim(10).await, []);
    world.advance(1_000).await;
    assert_eq!(worker.claim_ids(10).await, [small]);
}

pub(super) async fn a_worker_that_lacks_the_big_task_leaves_it_room(world: &World) {
    world.set("api", 10).await;
    world.submit(job("big").group("api").cost(4)).await;
    let small = world.submit_many(10, job("small").group("api")).await;
    let heavy = world.worker("heavy", ["big"]).await;
    let light = world.worker("light", ["small"]).await;
    assert_eq!(light.claim_ids(20).await, small[..6], "as many as leave four");
    assert_eq!(light.claim(20).await, []);
    assert_eq!(heavy.claim(1).await.len(), 1);
}

pub(super) async fn a_big_job_that_no_worker_serves_reserves_nothing(world: &World) {
    world.set("api", 3).await;
    world.submit(job("big").group("api").cost(2)).await;
    let small = world.submit_many(5, job("small").group("api")).await;
    let light = world.worker("light", ["small"]).await;
    assert_eq!(light.claim_ids(1).await, small[..1]);
    assert_eq!(light.claim_ids(1).await, small[1..2]);
    world.worker("heavy", ["big"]).await;
    assert_eq!(light.claim(1).await, [], "from now on a worker serves it");
}

pub(super) async fn a_big_job_whose_only_worker_drains_or_dies_reserves_nothing(world: &World) {
    world.set("api", 2).await;
    world.submit(job("big").group("api").cost(2)).await;
    let small = world.submit_many(5, job("small").group("api")).await;
    let light = world.open(serving("light", ["small"]).lease(90_000)).await;
    let heavy = world.worker("heavy", ["big"]).await;
    assert_eq!(light.claim(1).await, []);
    heavy.send(Exchange { draining: true, ..heavy.next() }).await.expect("the session is live");
    let first = light.claim(1).await;
    assert_eq!(worker::ids(&first), small[..1]);
    light.succeed(&first[0]).await;
    heavy.renew().await;
    assert_eq!(light.claim(1).await, [], "it does not drain any more");
    world.advance(30_000).await;
    assert_eq!(light.claim_ids(1).await, small[1..2], "its session is over");
}

pub(super) async fn a_worker_of_another_queue_does_not_serve_the_big_job(world: &World) {
    world.set("api", 2).await;
    world.submit(job("big").group("api").cost(2).queue("a")).await;
    let small = world.submit(job("small").group("api")).await;
    world.open(serving("elsewhere", ["big"]).queues(["b"])).await;
    assert_eq!(world.worker("light", ["small"]).await.claim_ids(1).await, [small]);
}

pub(super) async fn a_big_job_of_a_paused_queue_reserves_nothing(world: &World) {
    world.set("api", 2).await;
    world.pause("slow").await;
    world.submit(job("big").group("api").cost(2).queue("slow")).await;
    let small = world.submit_many(2, job("small").group("api")).await;
    let worker = world.worker("w", ["small", "big"]).await;
    assert_eq!(worker.claim_ids(1).await, small[..1]);
    world.resume("slow").await;
    assert_eq!(worker.claim(1).await, []);
}

pub(super) async fn a_big_job_of_a_future_date_reserves_nothing(world: &World) {
    world.set("api", 2).await;
    world.submit(job("big").group("api").cost(2).priority(-1).run_at(at(1_000))).await;
    let small = world.submit_many(2, job("small").group("api")).await;
    let worker = world.worker("w", ["small", "big"]).await;
    assert_eq!(worker.claim_ids(1).await, small[..1]);
    world.advance(1_000).await;
    assert_eq!(worker.claim(1).await, []);
}

pub(super) async fn a_big_job_that_misses_two_groups_reserves_nothing(world: &World) {
    world.set("api", 2).await;
    world.set("gpu", 0).await;
    world.submit(job("big").group("api").cost(2).limits([("gpu", 1)])).await;
    let small = world.submit_many(2, job("small").group("api")).await;
    let worker = world.worker("w", ["small", "big"]).await;
    assert_eq!(worker.claim_ids(1).await, small[..1]);
    world.set("gpu", 1).await;
    assert_eq!(worker.claim(1).await, [], "now it misses one group only");
}

pub(super) async fn a_big_job_that_can_never_run_reserves_nothing(world: &World) {
    world.set("api", 5).await;
    world.submit(job("big").group("api").cost(5)).await;
    world.set("api", 3).await;
    let small = world.submit_many(4, job("small").group("api")).await;
    let worker = world.worker("w", ["small", "big"]).await;
    assert_eq!(worker.claim_ids(10).await, small[..3]);
}

pub(super) async fn a_job_of_one_slot_reserves_nothing(world: &World) {
    world.set("api", 1).await;
    world.submit(job("first").group("api")).await;
    let second = world.submit(job("second").group("api")).await;
    world.worker("w1", ["first"]).await;
    assert_eq!(world.worker("w2", ["second"]).await.claim_ids(10).await, [second]);
}

pub(super) async fn slots_of_a_key_are_reserved_too(world: &World) {
    world.set("user/*", 2).await;
    let worker = world.worker("w", ["user"]).await;
    world.submit(job("user").key("joe")).await;
    worker.claim_one().await;
    world.submit(job("user").key("joe").cost(2)).await;
    world.submit(job("user").key("joe")).await;
    let other = world.submit_many(2, job("user").key("ann")).await;
    assert_eq!(worker.claim_ids(10).await, other, "of joe's slots one is kept; ann's are free");
}

pub(super) async fn slots_of_an_extra_group_are_reserved_too(world: &World) {
    world.set("gpu", 2).await;
    let worker = world.worker("w", ["chat"]).await;
    world.submit(job("chat").limits([("gpu", 1)])).await;
    worker.claim_one().await;
    world.submit(job("chat").limits([("gpu", 2)])).await;
    world.submit(job("chat").limits([("gpu", 1)])).await;
    let plain = world.submit(job("chat")).await;
    assert_eq!(worker.claim_ids(10).await, [plain]);
}

pub(super) async fn big_jobs_run_one_after_another_in_order(world: &World) {
    world.set("api", 4).await;
    let ids = world.submit_many(3, job("big").group("api").cost(3)).await;
    let worker = world.worker("w", ["big"]).await;
    for id in ids {
        let claimed = worker.claim(10).await;
        assert_eq!(worker::ids(&claimed), [id], "the first one is never held back by the next");
        worker.succeed(&claimed[0]).await;
    }
}

pub(super) async fn big_jobs_that_need_each_others_groups_do_not_deadlock(world: &World) {
    world.set("a", 3).await;
    world.set("b", 3).await;
    let worker = world.worker("w", ["a", "b", "x", "y"]).await;
    world.submit_all(vec![job("a").cost(2), job("b").cost(2)]).await;
    let running = worker.claim(10).await;
    let x = world.submit(job("x").group("a").cost(2).limits([("b", 2)])).await;
    let y = world.submit(job("y").group("b").cost(2).limits([("a", 2)])).await;
    let reply = worker.exchange(vec![settled(&running[0], success())], 10).await;
    assert_eq!(reply.claimed, [], "each misses b still");
    let reply = worker.exchange(vec![settled(&running[1], success())], 10).await;
    assert_eq!(worker::ids(&reply.claimed), [x]);
    let reply = worker.exchange(vec![settled(&reply.claimed[0], success())], 10).await;
    assert_eq!(worker::ids(&reply.claimed), [y]);
}

pub(super) async fn a_later_big_job_is_held_back_by_an_earlier_one(world: &World) {
    world.set("api", 5).await;
    let worker = world.worker("w", ["big"]).await;
    world.submit(job("big").group("api").cost(2)).await;
    let running = worker.claim_one().await;
    let first = world.submit(job("big").group("api").cost(4)).await;
    let second = world.submit(job("big").group("api").cost(2)).await;
    assert_eq!(worker.claim(10).await, [], "three are free, but four are asked for first");
    let reply = worker.exchange(vec![settled(&running, success())], 10).await;
    assert_eq!(worker::ids(&reply.claimed), [first]);
    worker.succeed(&reply.claimed[0]).await;
    assert_eq!(worker.claim_ids(10).await, [second]);
}

pub(super) async fn a_big_job_whose_queue_or_key_is_full_reserves_nothing(world: &World) {
    world.set("api", 3).await;
    world.set("queue:q", 0).await;
    let worker = world.worker("w", ["small", "big"]).await;
    world.submit(job("big").group("api").cost(2).queue("q")).await;
    world.submit(job("big").group("api").cost(2).key("held")).await;
    world.set("api/held", 0).await;
    let small = world.submit_many(4, job("small").group("api")).await;
    assert_eq!(worker.claim_ids(1).await, small[..1]);
    assert_eq!(worker.claim_ids(1).await, small[1..2]);
    world.set("api/held", 2).await;
    assert_eq!(worker.claim(1).await, [], "now it misses one group only");
}

pub(super) async fn a_big_job_behind_one_that_cannot_run_reserves(world: &World) {
    world.set("api", 5).await;
    world.set("api/a", 3).await;
    let worker = world.worker("w", ["small", "big"]).await;
    world.submit(job("big").group("api").key("a").cost(3)).await;
    worker.claim_one().await;
    world.submit(job("big").group("api").key("a").cost(3)).await;
    let second = world.submit(job("big").group("api").key("b").cost(3)).await;
    let small = world.submit_many(2, job("small").group("api")).await;
    assert_eq!(worker.claim(10).await, [], "the first misses its key too, the second misses api only");
    world.cancel(second).await.expect("it is there");
    assert_eq!(worker.claim_ids(10).await, small);
}

pub(super) async fn a_big_job_beyond_the_share_of_its_queue_reserves(world: &World) {
    world.set("api", 4).await;
    let worker = world.worker("w", ["small", "big", "other"]).await;
    let other = world.submit(job("other").queue("a")).await;
    let big = world.submit(job("big").group("api").cost(4).queue("a")).await;
    world.submit(job("small").group("api").queue("b")).await;
    let claim = Claim { max: 9, max_claim_batch: Some(1), prefetch: None };
    let reply = worker.send(Exchange { claim, ..worker.next() }).await.expect("the session is live");
    assert_eq!(worker::ids(&reply.claimed), [other]);
    assert_eq!(worker.claim_ids(9).await, [big]);
}

pub(super) async fn a_worker_that_stops_draining_keeps_slots_from_that_exchange_on(world: &World) {
    world.set("api", 2).await;
    let worker = world.worker("w", ["small", "big"]).await;
    world.submit(job("small").group("api")).await;
    worker.claim_one().await;
    world.submit(job("big").group("api").cost(2)).await;
    world.submit(job("small").group("api")).await;
    worker.send(Exchange { draining: true, ..worker.next() }).await.expect("the session is live");
    assert_eq!(worker.claim(1).await, [], "its report counts before its claim");
}

pub(super) async fn queue_priority_decides_which_big_job_is_ahead(world: &World) {
    world.set("api", 2).await;
    world.prioritize([("first", 1), ("last", 500)]).await;
    let worker = world.worker("w", ["small", "big"]).await;
    world.submit(job("small").group("api")).await;
    let running = worker.claim_one().await;
    let last = world.submit(job("big").group("api").cost(2).queue("last")).await;
    let small = world.submit(job("small").group("api")).await;
    let reply = worker.exchange(vec![settled(&running, success())], 1).await;
    assert_eq!(worker::ids(&reply.claimed), [small], "the big job is behind it, though it came before");
    let first = world.submit(job("big").group("api").cost(2).queue("first")).await;
    world.submit(job("small").group("api")).await;
    assert_eq!(worker.claim(10).await, [], "this one is ahead, though it came after");
    let reply = worker.exchange(vec![settled(&reply.claimed[0], success())], 1).await;
    assert_eq!(worker::ids(&reply.claimed), [first]);
    assert_eq!(world.state(last).await, JobState::Pending);
}

pub(super) async fn what_was_kept_stays_kept_for_the_whole_claim(world: &World) {
    world.set("api", 3).await;
    world.set("gpu", 1).await;
    let worker = world.worker("w", ["small", "big", "other"]).await;
    world.submit(job("small").group("api")).await;
    worker.claim_one().await;
    world.submit(job("big").group("api").cost(3).limits([("gpu", 1)])).await;
    let first = world.submit(job("small").group("api")).await;
    let other = world.submit(job("other").limits([("gpu", 1)])).await;
    let second = world.submit(job("small").group("api")).await;
    assert_eq!(worker.claim_ids(10).await, [other], "the second small job does not overtake the first");
    assert_eq!(worker.claim_ids(10).await, [first, second], "by now the big one misses two groups");
}

pub(super) async fn a_big_job_is_not_starved_while_its_workers_are_busy(world: &World) {
    world.set("api", 2).await;
    let light = world.open(serving("light", ["small"]).permits(1)).await;
    let heavy = world.open(serving("heavy", ["big", "filler"]).permits(1)).await;
    world.submit(job("small").group("api")).await;
    let mut small = light.claim(1).await;
    let big = world.submit(job("big").group("api").cost(2)).await;
    world.submit_many(9, job("small").group("api")).await;
    world.submit_many(9, job("filler").priority(1)).await;
    let mut other: Vec<ClaimedJob> = Vec::new();
    for _ in 0..9 {
        // Both settle and claim in one exchange, so neither ever shows a free permit.
        let done = |jobs: &[ClaimedJob]| jobs.iter().map(|job| settled(job, success())).collect();
        other = heavy.exchange(done(&other), 1).await.claimed;
        if worker::ids(&other) == [big] {
            return;
        }
        small = light.exchange(done(&small), 1).await.claimed;
    }
    panic!("the big job was overtaken again and again");
}

pub(super) async fn a_big_job_is_not_starved_by_small_ones_of_its_own_key(world: &World) {
    world.set("api", 2).await;
    world.set("api/*", 2).await;
    let worker = world.worker("w", ["api"]).await;
    world.submit_many(2, job("api").key("u")).await;
    let running = worker.claim(2).await;
    let big = world.submit(job("api").key("u").cost(2)).await;
    world.submit_many(3, job("api").key("u")).await;
    let reply = worker.exchange(vec![settled(&running[0], success())], 10).await;
    assert_eq!(reply.claimed, [], "the key is kept, though the group lacks room too");
    let reply = worker.exchange(vec![settled(&running[1], success())], 10).await;
    assert_eq!(worker::ids(&reply.claimed), [big]);
}

pub(super) async fn a_big_job_that_waits_for_its_key_keeps_nothing_from_other_keys(world: &World) {
    world.set("api", 3).await;
    world.set("api/*", 2).await;
    let worker = world.worker("w", ["api"]).await;
    world.submit_many(2, job("api").key("u")).await;
    worker.claim(2).await;
    world.submit(job("api").key("u").cost(2)).await;
    let other = world.submit_many(2, job("api").key("v")).await;
    assert_eq!(worker.claim_ids(10).await, other[..1], "its key is full, so the group is not kept for it");
}
