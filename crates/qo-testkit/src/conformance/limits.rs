//! Groups and their limits: which jobs count where; no limit is exceeded, and each is reached (G1).

use super::*;

pub(super) async fn no_limit_is_unlimited(world: &World) {
    let ids = world.submit_many(500, job("mail").key("a")).await;
    assert_eq!(world.worker("w1", ["mail"]).await.claim_ids(1_000).await, ids);
    assert_eq!(world.status("mail").await.limit, None);
}

pub(super) async fn a_limit_is_reached_and_not_exceeded(world: &World) {
    world.set("mail", 3).await;
    let ids = world.submit_many(5, job("mail")).await;
    let worker = world.worker("w1", ["mail"]).await;
    assert_eq!(worker.claim_ids(10).await, ids[..3]);
    assert_eq!(worker.claim(10).await, []);
    assert_eq!(world.used("mail").await, 3);
}

pub(super) async fn a_limit_counts_across_the_fleet(world: &World) {
    world.set("mail", 5).await;
    world.submit_many(20, job("mail")).await;
    let mut claimed = Vec::new();
    for worker in ["w1", "w2", "w3", "w4"] {
        claimed.push(world.worker(worker, ["mail"]).await.claim(2).await.len());
    }
    assert_eq!(claimed, [2, 2, 1, 0]);
}

pub(super) async fn a_limit_of_zero_holds_jobs_and_loses_none(world: &World) {
    world.set("mail", 0).await;
    let ids = world.submit_many(3, job("mail")).await;
    let worker = world.worker("w1", ["mail"]).await;
    assert_eq!(worker.claim(10).await, []);
    world.advance(20_000).await;
    assert_eq!(worker.claim(10).await, []);
    assert_eq!(world.state(ids[0]).await, JobState::Pending);
    world.set("mail", 10).await;
    assert_eq!(worker.claim_ids(10).await, ids);
}

pub(super) async fn the_cluster_counts_every_job_as_one(world: &World) {
    world.set("cluster", 3).await;
    world.submit_all(vec![job("a").cost(5), job("b").queue("q"), job("c").key("k"), job("d")]).await;
    let worker = world.worker("w1", ["a", "b", "c", "d"]).await;
    assert_eq!(worker.claim(10).await.len(), 3);
    assert_eq!(world.used("cluster").await, 3);
}

pub(super) async fn a_queue_counts_its_jobs_as_one_each(world: &World) {
    world.set("queue:stripe", 2).await;
    world.submit_many(3, job("pay").queue("stripe").cost(7)).await;
    let other = world.submit(job("pay").queue("paypal")).await;
    let worker = world.worker("w1", ["pay"]).await;
    let claimed = worker.claim_ids(10).await;
    assert_eq!(claimed.len(), 3);
    assert!(claimed.contains(&other));
    assert_eq!((world.used("queue:stripe").await, world.used("pay").await), (2, 15));
}

pub(super) async fn jobs_of_one_group_share_its_slots_whatever_their_task(world: &World) {
    world.set("api", 2).await;
    world.submit_all(vec![job("get").group("api"), job("put").group("api"), job("api"), job("get")]).await;
    let worker = world.worker("w1", ["get", "put", "api"]).await;
    let claimed = worker.claim(10).await;
    let tasks: Vec<_> = claimed.iter().map(|job| &*job.task).collect();
    assert_eq!(tasks, ["get", "put", "get"], "the last one is in a group of its own");
}

pub(super) async fn a_limit_of_every_key_counts_each_key_by_itself(world: &World) {
    world.set("user/*", 2).await;
    for user in ["a", "b", "c"] {
        world.submit_many(3, job("user").key(user)).await;
    }
    let worker = world.worker("w1", ["user"]).await;
    assert_eq!(worker.claim(100).await.len(), 6);
    for group in ["user/a", "user/b", "user/c"] {
        assert_eq!(world.used(group).await, 2, "{group}");
    }
}

pub(super) async fn a_limit_of_every_key_leaves_jobs_without_a_key_alone(world: &World) {
    world.set("user/*", 0).await;
    world.submit(job("user").key("a")).await;
    let free = world.submit_many(2, job("user")).await;
    assert_eq!(world.worker("w1", ["user"]).await.claim_ids(10).await, free);
}

pub(super) async fn one_key_may_have_a_limit_of_its_own(world: &World) {
    world.set("user/*", 1).await;
    world.set("user/vip", 3).await;
    world.set("user/bad", 0).await;
    for user in ["vip", "bad", "joe"] {
        world.submit_many(4, job("user").key(user)).await;
    }
    world.worker("w1", ["user"]).await.claim(100).await;
    let mut used = Vec::new();
    for group in ["user/vip", "user/bad", "user/joe"] {
        used.push(world.used(group).await);
    }
    assert_eq!(used, [3, 0, 1]);
}

pub(super) async fn group_and_key_both_count(world: &World) {
    world.set("user", 3).await;
    world.set("user/*", 2).await;
    world.submit_many(3, job("user").key("a")).await;
    world.submit_many(3, job("user").key("b")).await;
    world.submit_many(3, job("user")).await;
    let worker = world.worker("w1", ["user"]).await;
    let keys: Vec<_> = worker.claim(100).await.into_iter().map(|job| job.key).collect();
    assert_eq!(keys, [Some(key("a")), Some(key("a")), Some(key("b"))]);
}

pub(super) async fn the_same_key_of_another_group_is_another_group(world: &World) {
    world.set("a/x", 1).await;
    world.submit_many(2, job("a").key("x")).await;
    world.submit_many(2, job("b").key("x")).await;
    world.worker("w1", ["a", "b"]).await.claim(10).await;
    assert_eq!((world.used("a/x").await, world.used("b/x").await), (1, 2));
}

pub(super) async fn a_group_and_a_task_of_the_same_name_are_the_same_group(world: &World) {
    world.set("mail", 1).await;
    world.submit_all(vec![job("mail"), job("sms").group("mail")]).await;
    assert_eq!(world.worker("w1", ["mail", "sms"]).await.claim(10).await.len(), 1);
}

pub(super) async fn keys_may_hold_slashes_and_colons(world: &World) {
    world.set("user/a/b:c", 1).await;
    world.submit_many(2, job("user").key("a/b:c")).await;
    world.submit_many(2, job("user").key("a/b")).await;
    world.submit_many(2, job("user").key("Ä %2F")).await;
    world.set("user/Ä %2F", 1).await;
    world.worker("w1", ["user"]).await.claim(10).await;
    assert_eq!((world.used("user/a/b:c").await, world.used("user/a/b").await), (1, 2));
    assert_eq!(world.used("user/Ä %2F").await, 1);
}

pub(super) async fn extra_limits_take_as_many_slots_as_listed(world: &World) {
    world.set("openai", 2).await;
    world.set("gpu", 5).await;
    world.submit_many(3, job("chat").cost(9).limits([("openai", 1)]).limits([("gpu", 2)])).await;
    let worker = world.worker("w1", ["chat"]).await;
    assert_eq!(worker.claim(10).await.len(), 2);
    assert_eq!((world.used("openai").await, world.used("gpu").await), (2, 4));
    assert_eq!(world.used("chat").await, 18);
}

pub(super) async fn an_extra_limit_may_have_a_key(world: &World) {
    world.set("openai/eu", 1).await;
    world.set("gpu/*", 1).await;
    world.submit_many(2, job("chat").limits([("openai/eu", 1)])).await;
    world.submit_many(2, job("chat").limits([("openai/us", 1)])).await;
    world.submit_many(2, job("chat").limits([("gpu/0", 1)])).await;
    world.worker("w1", ["chat"]).await.claim(10).await;
    assert_eq!((world.used("openai/eu").await, world.used("openai/us").await), (1, 2));
    assert_eq!(world.used("gpu/0").await, 1);
}

pub(super) async fn an_extra_group_and_a_jobs_own_group_share_slots(world: &World) {
    world.set("gpu", 2).await;
    world
        .submit_all(vec![
            job("gpu"),
            job("chat").limits([("gpu", 1)]),
            job("gpu"),
            job("chat").limits([("gpu", 1)]),
        ])
        .await;
    assert_eq!(world.worker("w1", ["gpu", "chat"]).await.claim(10).await.len(), 2);
}

pub(super) async fn slots_are_taken_in_all_groups_or_in_none(world: &World) {
    world.set("openai", 5).await;
    world.set("gpu", 0).await;
    world.set("chat", 5).await;
    world.set("chat/*", 5).await;
    world.set("cluster", 5).await;
    world.submit(job("chat").key("k").queue("q").limits([("openai", 1)]).limits([("gpu", 1)])).await;
    assert_eq!(world.worker("w1", ["chat"]).await.claim(10).await, []);
    for group in ["openai", "gpu", "chat", "chat/k", "queue:q", "cluster"] {
        assert_eq!(world.used(group).await, 0, "{group}");
    }
}

pub(super) async fn a_new_limit_counts_the_jobs_that_already_run(world: &World) {
    world.submit_many(3, job("mail").key("a")).await;
    let worker = world.worker("w1", ["mail"]).await;
    let running = worker.claim(3).await;
    world.submit_many(3, job("mail").key("a")).await;
    for group in ["mail", "mail/a", "mail/*", "queue:default", "cluster"] {
        world.set(group, 3).await;
        assert_eq!(worker.claim(10).await, [], "{group} is full of jobs that started before the limit");
        world.unset(group).await;
    }
    world.set("mail/*", 3).await;
    worker.succeed(&running[0]).await;
    assert_eq!(worker.claim(10).await.len(), 1);
}

pub(super) async fn the_largest_limit_and_cost_work(world: &World) {
    world.set("mail", caps::LIMIT).await;
    world.submit_many(2, job("mail").cost(caps::LIMIT)).await;
    assert_eq!(world.worker("w1", ["mail"]).await.claim(10).await.len(), 1);
    assert_eq!(world.used("mail").await, 1_000_000);
}

pub(super) async fn seed_003_table_of_keys_and_limits_holds(world: &World) {
    let specs = [job("plain"), job("n").limit(2), job("key").key("a"), job("both").key("a").limit(2)];
    let worker = world.worker("w1", ["plain", "n", "key", "both"]).await;
    let mut claimed = Vec::new();
    for spec in specs {
        world.submit_many(4, spec).await;
        claimed.push(worker.claim(100).await.len());
    }
    assert_eq!(claimed, [4, 2, 4, 2]);
    world.submit_many(4, job("both").key("b")).await;
    assert_eq!(worker.claim(100).await.len(), 4, "the limit was that of key a alone");
}

pub(super) async fn an_extra_key_takes_nothing_of_its_group(world: &World) {
    world.set("openai", 0).await;
    world.set("openai/eu", 2).await;
    world.submit_many(3, job("chat").limits([("openai/eu", 1)])).await;
    assert_eq!(world.worker("w1", ["chat"]).await.claim(10).await.len(), 2);
    assert_eq!((world.used("openai").await, world.used("openai/eu").await), (0, 2));
}

pub(super) async fn an_extra_key_and_a_jobs_own_key_share_slots(world: &World) {
    world.set("openai/eu", 2).await;
    world.submit_many(2, job("chat").limits([("openai/eu", 1)])).await;
    world.submit(job("openai").key("eu")).await;
    let other = world.submit(job("openai").key("us")).await;
    let claimed = world.worker("w1", ["chat", "openai"]).await.claim_ids(10).await;
    assert_eq!((claimed.len(), claimed[2]), (3, other));
}

pub(super) async fn one_keys_limit_taken_back_leaves_it_to_every_key(world: &World) {
    world.set("user/*", 1).await;
    world.set("user/vip", 3).await;
    world.submit_many(6, job("user").key("vip")).await;
    let worker = world.worker("w1", ["user"]).await;
    let running = worker.claim(10).await;
    assert_eq!(running.len(), 3);
    world.unset("user/vip").await;
    assert_eq!(world.limit("user/vip").await, Some(1));
    worker.succeed_all(&running[..2]).await;
    assert_eq!(worker.claim(10).await, [], "one still runs");
    worker.succeed(&running[2]).await;
    assert_eq!(worker.claim(10).await.len(), 1);
}

pub(super) async fn jobs_that_list_a_group_share_its_slots_with_programs(world: &World) {
    world.set("gpu", 2).await;
    world.set("gpu/*", 1).await;
    world
        .submit_all(vec![
            job("t").limits([("gpu", 2)]),
            job("t").limits([("gpu/a", 1)]),
            job("t").limits([("gpu", 1)]),
        ])
        .await;
    let held = world.hold(program("gpu/a")).await;
    let worker = world.worker("w1", ["t"]).await;
    let kept = worker.claim(9).await;
    assert_eq!(kept, [], "two lack room, and the last slot is kept for the first of them");
    assert_eq!(held.give_back().await, Ok(()));
    assert_eq!(worker.claim(9).await.len(), 2, "the third one finds the group full");
    assert!(world.is_full(program("gpu/b")).await);
}
