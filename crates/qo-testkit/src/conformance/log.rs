//! Logs of attempts: no part of the order of events, found by the attempt's token.

use super::*;

pub(super) async fn a_log_is_kept_by_the_token_of_its_attempt(world: &World) {
    let id = world.submit(job("t")).await;
    let worker = world.worker("w", ["t"]).await;
    let (first, said) = (worker.claim_one().await, "first\n\u{1b}[31mzwölf\0\n");
    world.store.keep_log(first.token, said.into()).await.expect("it is kept");
    worker.settle(&first, retry(0)).await.expect("it is its owner");
    let second = worker.claim_one().await;
    world.store.keep_log(second.token, "second".into()).await.expect("it is kept");
    worker.succeed(&second).await;
    let tokens: Vec<_> = world.detail(id).await.attempts.iter().map(|attempt| attempt.token).collect();
    let mut logs = Vec::new();
    for token in tokens {
        logs.push(world.store.log(token).await.expect("a look"));
    }
    assert_eq!(logs, [Some(said.to_string()), Some("second".to_string())]);
}

pub(super) async fn an_attempt_without_a_log_has_none(world: &World) {
    world.submit(job("t")).await;
    let worker = world.worker("w", ["t"]).await;
    let held = worker.claim_one().await;
    assert_eq!(world.store.log(held.token).await, Ok(None));
    assert_eq!(world.store.log(FenceToken(u64::MAX)).await, Ok(None), "no attempt has this token");
    world.store.keep_log(held.token, String::new()).await.expect("it is kept");
    assert_eq!(world.store.log(held.token).await, Ok(Some(String::new())), "an empty one is one");
}

pub(super) async fn of_a_long_log_the_end_is_kept(world: &World) {
    world.submit_many(3, job("t")).await;
    let worker = world.worker("w", ["t"]).await;
    let held = worker.claim(3).await;
    let whole = "x".repeat(caps::LOG_BYTES);
    world.store.keep_log(held[0].token, whole.clone()).await.expect("it is kept");
    assert_eq!(world.store.log(held[0].token).await, Ok(Some(whole.clone())), "so much is kept whole");
    world.store.keep_log(held[1].token, format!("beginning{whole}!")).await.expect("it is kept");
    assert_eq!(world.store.log(held[1].token).await, Ok(Some(format!("{}!", &whole[1..]))));
    // A character of two bytes across the cut is dropped.
    world.store.keep_log(held[2].token, format!("aü{}", &whole[1..])).await.expect("it is kept");
    assert_eq!(world.store.log(held[2].token).await, Ok(Some(whole[1..].to_string())));
}

pub(super) async fn a_log_that_is_kept_again_replaces_the_one_before(world: &World) {
    world.submit(job("t")).await;
    let worker = world.worker("w", ["t"]).await;
    let held = worker.claim_one().await;
    // While the attempt runs, and once more after its end.
    for said in ["one\n", "one\ntwo\n", "… 4 bytes before this were cut …\ntwo\n", ""] {
        world.store.keep_log(held.token, said.into()).await.expect("it is kept");
        assert_eq!(world.store.log(held.token).await, Ok(Some(said.to_string())));
    }
    worker.succeed(&held).await;
    world.store.keep_log(held.token, "late".into()).await.expect("it is kept");
    assert_eq!(world.store.log(held.token).await, Ok(Some("late".to_string())));
}
