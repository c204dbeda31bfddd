//! The same job again: by id or idempotency key an unacknowledged submit happened 0 or 1 times (G3).

use super::*;

pub(super) async fn the_same_id_again_is_the_same_job(world: &World) {
    let id = world.job_id();
    assert_eq!(world.offer(job("pay").id(id)).await, Ok(Submitted::Accepted(id)));
    assert_eq!(world.offer(job("pay").id(id)).await, Ok(Submitted::Existing(id)));
    assert_eq!(world.all_jobs().await.len(), 1);
}

pub(super) async fn the_same_id_with_another_task_or_payload_is_a_conflict(world: &World) {
    let id = world.submit(job("pay").payload("1")).await;
    let before = world.snapshot().await;
    refused(world.offer(job("pay").payload("2").id(id)).await, ErrorKind::Conflict);
    refused(world.offer(job("refund").payload("1").id(id)).await, ErrorKind::Conflict);
    assert_eq!(world.snapshot().await, before);
}

pub(super) async fn the_same_idempotency_key_again_is_the_first_job(world: &World) {
    let first = world.submit(job("pay").once("order-1")).await;
    assert_eq!(world.offer(job("pay").once("order-1")).await, Ok(Submitted::Existing(first)));
    assert_eq!(world.all_jobs().await.len(), 1);
}

pub(super) async fn an_idempotency_key_with_another_task_or_payload_is_a_conflict(world: &World) {
    world.submit(job("pay").payload("1").once("order-1")).await;
    let before = world.snapshot().await;
    refused(world.offer(job("pay").payload("2").once("order-1")).await, ErrorKind::Conflict);
    refused(world.offer(job("refund").payload("1").once("order-1")).await, ErrorKind::Conflict);
    assert_eq!(world.snapshot().await, before);
}

pub(super) async fn idempotency_keys_are_namespace_wide(world: &World) {
    let first = world.submit(job("pay").queue("a").key("x").once("order-1")).await;
    let again = job("pay").queue("b").group("other").key("y").once("order-1");
    assert_eq!(world.offer(again).await, Ok(Submitted::Existing(first)));
}

pub(super) async fn a_second_submit_changes_nothing_of_the_first(world: &World) {
    let id = world.submit(job("pay").once("order-1")).await;
    let before = world.snapshot().await;
    let again = job("pay").once("order-1").priority(-5).cost(2).key("k").limit(1).run_at(at(99));
    assert_eq!(world.offer(again).await, Ok(Submitted::Existing(id)));
    assert_eq!(world.snapshot().await, before, "no field changes and its limit is not kept");
}

pub(super) async fn the_key_is_looked_up_before_the_id(world: &World) {
    let by_key = world.submit(job("pay").once("order-1")).await;
    let by_id = world.submit(job("pay")).await;
    assert_eq!(world.offer(job("pay").id(by_id).once("order-1")).await, Ok(Submitted::Existing(by_key)));
}

pub(super) async fn the_key_is_looked_up_before_on_limit(world: &World) {
    let id = world.submit(job("pay").once("order-1")).await;
    world.set("pay", 0).await;
    assert_eq!(world.offer(job("pay").once("order-1").or_reject()).await, Ok(Submitted::Existing(id)));
    assert_eq!(world.offer(job("pay").once("order-1").or_skip()).await, Ok(Submitted::Existing(id)));
    assert_eq!(world.offer(job("pay").id(id).or_reject()).await, Ok(Submitted::Existing(id)));
}

pub(super) async fn the_key_is_looked_up_before_the_rules_of_groups(world: &World) {
    let id = world.submit(job("pay").cost(5).once("order-1")).await;
    world.set("pay", 3).await;
    assert_eq!(world.offer(job("pay").cost(5).once("order-1")).await, Ok(Submitted::Existing(id)));
    assert_eq!(world.offer(job("pay").cost(5).id(id)).await, Ok(Submitted::Existing(id)));
    let own_group = job("pay").limits([("pay", 1)]).once("order-1");
    assert_eq!(world.offer(own_group).await, Ok(Submitted::Existing(id)));
}

pub(super) async fn jobs_of_one_call_find_each_other(world: &World) {
    let outcomes = world.offer_all(vec![job("pay").once("order-1"); 3]).await.expect("a valid call");
    let Ok(Submitted::Accepted(first)) = outcomes[0] else { panic!("{outcomes:?}") };
    assert_eq!(outcomes[1..], [Ok(Submitted::Existing(first)), Ok(Submitted::Existing(first))]);
}

pub(super) async fn a_finished_job_is_still_the_same_job(world: &World) {
    let id = world.submit(job("pay").once("order-1")).await;
    let worker = world.worker("w1", ["pay"]).await;
    worker.succeed(&worker.claim_one().await).await;
    assert_eq!(world.offer(job("pay").once("order-1")).await, Ok(Submitted::Existing(id)));
    assert_eq!(world.offer(job("pay").id(id)).await, Ok(Submitted::Existing(id)));
    assert_eq!(worker.claim(1).await, [], "it does not run a second time");
}

pub(super) async fn a_key_lives_as_long_as_its_job_waits(world: &World) {
    let id = world.submit(job("pay").once("order-1")).await;
    world.advance(30 * DAY_MS).await;
    world.sweep().await;
    assert_eq!(world.offer(job("pay").once("order-1")).await, Ok(Submitted::Existing(id)));
}

pub(super) async fn a_key_lives_a_day_after_its_job_succeeded(world: &World) {
    let id = world.submit(job("pay").once("order-1")).await;
    world.advance(7_000).await;
    let worker = world.worker("w1", ["pay"]).await;
    worker.succeed(&worker.claim_one().await).await;
    world.advance(DAY_MS - 1).await;
    world.sweep().await;
    assert_eq!(world.offer(job("pay").once("order-1")).await, Ok(Submitted::Existing(id)));
    world.advance(1).await;
    assert_eq!(world.sweep().await.forgotten, 1);
    let again = world.submit(job("pay").payload("2").once("order-1")).await;
    assert_ne!(again, id);
}

pub(super) async fn a_refused_job_keeps_no_key(world: &World) {
    world.set("pay", 0).await;
    refused(world.offer(job("pay").once("a").or_reject()).await, ErrorKind::LimitReached);
    assert_eq!(world.offer(job("pay").once("b").or_skip()).await, Ok(Submitted::Skipped));
    world.set("pay", 9).await;
    world.submit(job("pay").payload("2").once("a").or_reject()).await;
    world.submit(job("pay").payload("2").once("b").or_skip()).await;
}

pub(super) async fn an_invalid_call_keeps_no_key(world: &World) {
    let id = world.job_id();
    let specs = vec![job("pay").id(id).once("order-1"), job("pay").cost(0)];
    refused(world.offer_all(specs).await, ErrorKind::Invalid);
    assert_eq!(world.offer(job("refund").id(id).once("order-1")).await, Ok(Submitted::Accepted(id)));
}

pub(super) async fn concurrent_submits_of_one_key_store_one_job(world: &World) {
    let submits = (0..8).map(|_| world.offer(job("pay").once("order-1").priority(1)));
    let outcomes = join_all(submits).await;
    let accepted = outcomes.iter().filter(|outcome| matches!(outcome, Ok(Submitted::Accepted(_)))).count();
    assert_eq!(accepted, 1, "{outcomes:?}");
    assert!(outcomes.iter().all(Result::is_ok), "{outcomes:?}");
    assert_eq!(world.all_jobs().await.len(), 1);
}

pub(super) async fn a_dropped_submit_may_be_made_again(world: &World) {
    let jobs = vec![world.new_job(job("pay")), world.new_job(job("pay").once("order-1"))];
    // Polled once and dropped: the call took effect or it did not, and the client does not know which.
    let _ = world.store.submit(jobs.clone()).now_or_never();
    let outcomes = world.store.submit(jobs.clone()).await.expect("a valid call");
    for (outcome, job) in outcomes.iter().zip(&jobs) {
        let same = [Ok(Submitted::Accepted(job.id)), Ok(Submitted::Existing(job.id))];
        assert!(same.contains(outcome), "{outcome:?}");
    }
    assert_eq!(world.all_jobs().await.len(), 2);
}

pub(super) async fn the_same_id_with_another_key_is_a_conflict(world: &World) {
    let first = world.submit(job("pay")).await;
    refused(world.offer(job("pay").id(first).once("order-1")).await, ErrorKind::Conflict);
    let second = world.submit(job("pay").once("order-1")).await;
    assert_ne!(first, second, "the key was not taken by a job that does not have it");
    assert_eq!(
        world.offer(job("pay").id(second)).await,
        Ok(Submitted::Existing(second)),
        "no key is no claim"
    );
    refused(world.offer(job("pay").id(second).once("order-2")).await, ErrorKind::Conflict);
}

pub(super) async fn the_key_is_looked_up_before_the_workflow(world: &World) {
    let id = world.submit(step("w").once("a")).await;
    world.cancel_workflow("w").await.expect("it is there");
    let again = step("w").once("a").on_failure(OnFailure::Continue);
    assert_eq!(world.offer(again).await, Ok(Submitted::Existing(id)));
}

pub(super) async fn a_reopened_job_still_has_its_key(world: &World) {
    let id = world.submit(job("t").once("a")).await;
    world.cancel(id).await.expect("it is there");
    world.retry(id).await.expect("it was cancelled");
    assert_eq!(world.offer(job("t").once("a")).await, Ok(Submitted::Existing(id)));
    refused(world.offer(job("t").payload("1").once("a")).await, ErrorKind::Conflict);
}
