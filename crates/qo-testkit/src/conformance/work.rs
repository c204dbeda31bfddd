//! Work: what an exchange would bring, and when that may change. It only looks.

use super::*;

fn wanting(max: u32) -> Claim {
    Claim { max, ..Claim::default() }
}

async fn look(world: &World, worker: &Worker, claim: Claim) -> Work {
    world.store.work(worker.session, claim).await.expect("the session is live")
}

/// Whether a worker that wants a job would get something.
async fn is_work(world: &World, worker: &Worker) -> bool {
    look(world, worker, wanting(1)).await.now
}

/// When that may change by itself.
async fn next(world: &World, worker: &Worker) -> Option<Time> {
    look(world, worker, wanting(1)).await.next
}

pub(super) async fn there_is_work_when_a_job_could_be_claimed(world: &World) {
    let worker = world.worker("w", ["t"]).await;
    assert!(!is_work(world, &worker).await, "there is no job");
    world.submit(job("t")).await;
    assert!(is_work(world, &worker).await);
    assert!(look(world, &worker, wanting(50)).await.now, "however many it wants");
    assert!(!look(world, &worker, wanting(0)).await.now, "it wants none");
    let held = worker.claim_one().await;
    assert!(!is_work(world, &worker).await, "it has it");
    worker.settle(&held, retry(0)).await.expect("it is its owner");
    assert!(is_work(world, &worker).await, "there it is again");
}

pub(super) async fn there_is_no_work_in_what_cannot_run(world: &World) {
    let worker = world.open(serving("w", ["t"]).queues(["default", "slow"])).await;
    let other = world.worker("v", ["t"]).await;
    world.set("full", 1).await;
    world.submit(job("t").group("full")).await;
    other.claim_one().await;
    world.set("held", 0).await;
    world.pause("slow").await;
    let cannot = [
        job("t").group("full"),
        job("t").group("held"),
        job("t").queue("slow"),
        job("t").queue("elsewhere"),
        job("lacking"),
        job("t").run_at(at(60_000)),
    ];
    world.submit_all(cannot.to_vec()).await;
    let steps = world.submit_many(2, job("t").workflow("flow")).await;
    assert!(is_work(world, &worker).await, "the first step");
    assert_eq!(worker.claim_ids(9).await, steps[..1]);
    assert!(!is_work(world, &worker).await);
    world.set("full", 2).await;
    assert!(is_work(world, &worker).await, "the limit was raised");
    world.set("full", 1).await;
    world.resume("slow").await;
    assert!(is_work(world, &worker).await, "the queue was resumed");
}

pub(super) async fn jobs_of_a_full_key_are_no_work_however_many_wait(world: &World) {
    world.set("t/*", 1).await;
    world.set("disk/a", 1).await;
    let (by_key, by_extra) = (job("t").key("a"), job("t").limits([("disk/a", 1)]));
    world.submit_all(vec![by_key.clone(), by_extra.clone()]).await;
    let (worker, other) = (world.worker("w", ["t"]).await, world.worker("v", ["t"]).await);
    assert_eq!(other.claim(2).await.len(), 2);
    world.submit_many(250, by_key).await;
    assert!(!is_work(world, &worker).await, "their key is full");
    world.submit_many(250, by_extra).await;
    assert!(!is_work(world, &worker).await, "both keys are full");
    let free = world.submit(job("t").key("b")).await;
    assert!(is_work(world, &worker).await, "a job of a third key, behind all others");
    assert_eq!(worker.claim_ids(1).await, [free]);
    assert!(!is_work(world, &worker).await, "it has it");
}

pub(super) async fn the_word_that_a_job_must_stop_is_work(world: &World) {
    let id = world.submit(job("t")).await;
    let worker = world.worker("w", ["t"]).await;
    worker.claim_one().await;
    world.cancel(id).await.expect("it is there");
    assert!(look(world, &worker, wanting(0)).await.now, "even if it wants none");
    assert_eq!(worker.renew().await.stop.len(), 1);
    assert!(!look(world, &worker, wanting(0)).await.now, "it has been told");
}

pub(super) async fn what_could_be_claimed_ahead_of_time_is_work(world: &World) {
    world.submit_many(2, job("t")).await;
    let worker = world.worker("w", ["t"]).await;
    let ahead = |buffer| {
        let prefetch = Some(Prefetch { buffer, lease_ms: CLAIM_MS });
        Claim { prefetch, ..Claim::default() }
    };
    assert!(look(world, &worker, ahead(1)).await.now);
    worker.ahead_one().await;
    assert!(!look(world, &worker, ahead(1)).await.now, "it holds as many as it wants");
    assert!(look(world, &worker, ahead(2)).await.now);
}

pub(super) async fn what_is_over_and_not_ended_yet_is_work(world: &World) {
    world.set("t", 1).await;
    world.submit_many(2, job("t")).await;
    let dead = world.open(serving("dead", ["t"]).lease(1_000)).await;
    dead.claim_one().await;
    let worker = world.worker("w", ["t"]).await;
    world.advance(999).await;
    assert!(!is_work(world, &worker).await);
    world.advance(1).await;
    assert!(is_work(world, &worker).await, "its exchange would end the session, and take the slot");
    assert_eq!(worker.claim(1).await.len(), 1);
}

pub(super) async fn a_tick_that_has_come_is_work(world: &World) {
    world.plan([("often", cron("* * * * *", "t"))]).await;
    let worker = world.open(serving("w", ["t"]).lease(600_000)).await;
    let tick = world.schedule("often").await.next.expect("it has a next tick");
    assert_eq!((is_work(world, &worker).await, next(world, &worker).await), (false, Some(tick)));
    world.advance(tick.ms_since(at(0))).await;
    assert!(is_work(world, &worker).await);
}

pub(super) async fn the_next_date_is_the_first_at_which_something_happens_by_itself(world: &World) {
    let worker = world.worker("w", ["t"]).await;
    assert_eq!(next(world, &worker).await, None, "its own end is none of its dates");
    let later = |seconds: u64| at(seconds * 1_000);
    world.open(serving("other", ["x"]).lease(29_000)).await;
    assert_eq!(next(world, &worker).await, Some(later(29)), "the end of another session");
    world.submit(job("x").good_until(later(28))).await;
    assert_eq!(next(world, &worker).await, Some(later(28)), "a job expires");
    world.submit(job("t").timeout(17_000)).await;
    worker.claim_one().await;
    assert_eq!(next(world, &worker).await, Some(later(27)), "a timeout, ten seconds later");
    world.hold(program("gpu").lease(26_000)).await;
    assert_eq!(next(world, &worker).await, Some(later(26)), "the lease of a program");
    world.submit(job("t").run_at(later(25))).await;
    assert_eq!(next(world, &worker).await, Some(later(25)), "a job's date");
    world.submit(job("t")).await;
    worker.ahead_one().await;
    assert_eq!(next(world, &worker).await, Some(at(CLAIM_MS)), "the end of a claim");
    let Work { next, at: seen_at, .. } = look(world, &worker, wanting(1)).await;
    assert_eq!((seen_at, next), (at(0), Some(at(CLAIM_MS))));
    world.advance(CLAIM_MS).await;
    let Work { next, at: seen_at, .. } = look(world, &worker, wanting(1)).await;
    assert_eq!(
        (seen_at, next),
        (at(CLAIM_MS), Some(later(25))),
        "a date that has passed is not the next one"
    );
}

pub(super) async fn a_look_for_work_changes_nothing(world: &World) {
    world.set("t", 2).await;
    world.submit_many(3, job("t").good_until(at(900))).await;
    world.submit(job("t").run_at(at(500))).await;
    let dead = world.open(serving("dead", ["t"]).lease(1_000)).await;
    let first = dead.claim_one().await;
    world.plan([("often", cron("* * * * * *", "t"))]).await;
    let worker = world.worker("w", ["t"]).await;
    for ms in [0, 700, 400] {
        world.advance(ms).await;
        let before = world.snapshot().await;
        let prefetch = Some(Prefetch { buffer: 3, lease_ms: CLAIM_MS });
        let claim = Claim { max: 3, max_claim_batch: Some(2), prefetch };
        let seen = look(world, &worker, claim).await;
        assert_eq!(Work { seen: 0, ..look(world, &worker, claim).await }, Work { seen: 0, ..seen });
        assert_eq!(world.snapshot().await, before, "after {ms} ms");
    }
    let reply = worker.exchange(vec![], 1).await;
    assert_eq!((reply.number, reply.claimed[0].token.0), (1, first.token.0 + 1), "no number, and no token");
}

pub(super) async fn a_session_that_ended_or_never_was_has_no_work(world: &World) {
    world.submit(job("t")).await;
    let worker = world.worker("w", ["t"]).await;
    refused(world.store.work(world.session_id(), wanting(1)).await, ErrorKind::Fenced);
    worker.close().await;
    refused(world.store.work(worker.session, wanting(1)).await, ErrorKind::Fenced);
}

/// An exchange that only asks for work.
async fn fetch(world: &World, worker: &Worker, max: u32) -> Option<qo_core::ExchangeReply> {
    world.store.fetch(Exchange { claim: wanting(max), ..worker.next() }).await.expect("the session is live")
}

pub(super) async fn a_fetch_brings_what_an_exchange_would(world: &World) {
    let ids = world.submit_many(3, job("t")).await;
    let worker = world.worker("w", ["t"]).await;
    let asked = Exchange { claim: wanting(2), ..worker.next() };
    let reply = world.store.fetch(asked.clone()).await.expect("live").expect("there is work");
    assert_eq!(reply.claimed.iter().map(|job| job.id).collect::<Vec<_>>(), ids[..2]);
    let again = world.store.exchange(asked.clone()).await.expect("the same number again");
    assert_eq!(again, reply, "the same answer");
    let again = world.store.fetch(asked).await.expect("the same number again");
    assert_eq!(again, Some(reply), "however it is asked for");
}

pub(super) async fn a_fetch_that_is_left_alone_leaves_no_trace(world: &World) {
    let worker = world.open(serving("w", ["t"]).lease(10_000)).await;
    let before = world.store.workers().await;
    world.advance(4_000).await;
    match fetch(world, &worker, 1).await {
        // A store may skip it: then the number is free, and nothing was renewed.
        None => assert_eq!(world.store.workers().await, before),
        // Or make it: then it is an exchange like any other.
        Some(reply) => {
            assert_eq!((reply.number, reply.claimed.len()), (1, 0));
            assert_eq!(reply.lease_until, at(14_000));
            return;
        }
    }
    let id = world.submit(job("t")).await;
    let reply = fetch(world, &worker, 1).await.expect("there is work");
    assert_eq!((reply.number, reply.claimed[0].id, reply.lease_until), (1, id, at(14_000)));
}

pub(super) async fn a_fetch_of_a_session_that_is_gone_is_fenced(world: &World) {
    world.submit(job("t")).await;
    let worker = world.worker("w", ["t"]).await;
    let asked = Exchange { claim: wanting(1), ..worker.next() };
    worker.close().await;
    refused(world.store.fetch(asked).await, ErrorKind::Fenced);
}

pub(super) async fn a_fetch_that_is_wrong_is_refused_even_if_there_is_no_work(world: &World) {
    let worker = world.worker("w", ["t"]).await;
    worker.renew().await;
    worker.renew().await;
    let asked = Exchange { claim: wanting(1), ..worker.next() };
    let refused_as = async |exchange: Exchange, kind| refused(world.store.fetch(exchange).await, kind);
    refused_as(Exchange { number: 1, ..asked.clone() }, ErrorKind::Conflict).await;
    refused_as(Exchange { number: 4, ..asked.clone() }, ErrorKind::Invalid).await;
    refused_as(Exchange { claim: wanting(caps::CLAIM + 1), ..asked }, ErrorKind::Invalid).await;
}

pub(super) async fn a_process_that_waits_for_a_change_is_told_of_it(world: &World) {
    if !world.store.tells_changes() {
        return;
    }
    let worker = world.worker("w", ["t"]).await;
    let mut seen = soon(world.store.changed(None)).await.expect("where its changes are");
    for change in 0..5 {
        match change {
            0 => drop(world.submit(job("t")).await),
            1 => worker.succeed(&worker.claim_one().await).await,
            2 => world.set("t", 3).await,
            3 => world.pause("default").await,
            _ => worker.close().await,
        }
        let now = soon(world.store.changed(Some(seen))).await.expect("where its changes are");
        assert!(now > seen, "change {change}: {now} after {seen}");
        seen = now;
    }
}

pub(super) async fn a_change_after_a_look_for_work_is_not_missed(world: &World) {
    if !world.store.tells_changes() {
        return;
    }
    let worker = world.worker("w", ["t"]).await;
    let Work { now, seen, .. } = look(world, &worker, wanting(1)).await;
    assert!(!now);
    world.submit(job("t")).await;
    soon(world.store.changed(Some(seen))).await.expect("it is told");
    assert!(is_work(world, &worker).await);
}
