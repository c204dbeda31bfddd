//! Which limit counts: pattern first (exact, else `*`), then operator > config > code > submit.

use super::*;

fn limited(text: &str, limit: u32) -> TaskOptions {
    TaskOptions { max_concurrent: Some(limit), ..task(text) }
}

fn in_group(text: &str, group: &str, limit: Option<u32>) -> TaskOptions {
    TaskOptions { group: Some(name(group)), max_concurrent: limit, ..task(text) }
}

pub(super) async fn operator_beats_config_beats_code_beats_submit(world: &World) {
    world.submit(job("api").limit(1)).await;
    let mut in_force = vec![world.status("api").await];
    world.register(limited("api", 2)).await;
    in_force.push(world.status("api").await);
    world.configure([("api", 3)]).await;
    in_force.push(world.status("api").await);
    world.set("api", 4).await;
    in_force.push(world.status("api").await);
    let in_force: Vec<_> = in_force.into_iter().map(|status| (status.limit, status.source)).collect();
    let sources = [LimitSource::Submit, LimitSource::Code, LimitSource::Config, LimitSource::Operator];
    let expected: Vec<_> = (1..=4).zip(sources).map(|(limit, source)| (Some(limit), Some(source))).collect();
    assert_eq!(in_force, expected);
}

pub(super) async fn a_lower_source_that_speaks_later_does_not_win(world: &World) {
    world.set("api", 4).await;
    world.configure([("api", 3)]).await;
    world.register(limited("api", 2)).await;
    world.submit(job("api").limit(1)).await;
    assert_eq!(world.limit("api").await, Some(4));
    world.unset("api").await;
    assert_eq!(world.limit("api").await, Some(3));
    world.configure([]).await;
    assert_eq!(world.limit("api").await, Some(2));
    world.register(task("api")).await;
    assert_eq!(world.limit("api").await, Some(1));
}

pub(super) async fn claims_obey_the_limit_in_force(world: &World) {
    world.set("api", 1).await;
    world.configure([("api", 3)]).await;
    world.submit_many(9, job("api")).await;
    let worker = world.worker("w1", ["api"]).await;
    assert_eq!(worker.claim(10).await.len(), 1);
    world.unset("api").await;
    assert_eq!(worker.claim(10).await.len(), 2);
    world.configure([]).await;
    assert_eq!(worker.claim(10).await.len(), 6);
}

pub(super) async fn an_exact_limit_of_any_source_beats_every_key(world: &World) {
    world.set("user/*", 1).await;
    world.configure([("user/vip", 5)]).await;
    world.submit_many(6, job("user").key("vip")).await;
    world.submit_many(6, job("user").key("joe")).await;
    assert_eq!((world.limit("user/vip").await, world.limit("user/joe").await), (Some(5), Some(1)));
    assert_eq!(world.worker("w1", ["user"]).await.claim(100).await.len(), 6);
}

pub(super) async fn every_key_has_sources_too(world: &World) {
    world.submit(job("user").key("joe")).await;
    world.configure([("user/*", 3)]).await;
    assert_eq!(world.limit("user/joe").await, Some(3));
    world.set("user/*", 2).await;
    let status = world.status("user/joe").await;
    assert_eq!((status.limit, status.source), (Some(2), Some(LimitSource::Operator)));
    world.unset("user/*").await;
    assert_eq!(world.limit("user/joe").await, Some(3));
}

pub(super) async fn a_submit_side_limit_only_fills_a_gap(world: &World) {
    world.configure([("user/*", 1)]).await;
    world.submit_many(4, job("user").key("joe").limit(3)).await;
    assert_eq!(world.limit("user/joe").await, Some(1));
    let worker = world.worker("w1", ["user"]).await;
    assert_eq!(worker.claim(10).await.len(), 1);
    world.configure([]).await;
    assert_eq!(worker.claim(10).await.len(), 2, "the gap is there now");
}

pub(super) async fn a_submit_side_limit_is_of_the_key_if_there_is_one(world: &World) {
    world.submit(job("user").key("joe").limit(3)).await;
    assert_eq!((world.limit("user/joe").await, world.limit("user").await), (Some(3), None));
    world.submit(job("user").limit(7)).await;
    assert_eq!((world.limit("user/joe").await, world.limit("user").await), (Some(3), Some(7)));
}

pub(super) async fn a_submit_side_limit_is_of_the_group_and_not_of_the_task(world: &World) {
    world.submit(job("get").group("api").limit(3)).await;
    assert_eq!((world.limit("api").await, world.limit("get").await), (Some(3), None));
}

pub(super) async fn the_newest_submit_side_limit_stays(world: &World) {
    for limit in [2, 5, 1] {
        world.submit(job("api").limit(limit)).await;
        assert_eq!(world.limit("api").await, Some(limit));
    }
    world.submit(job("api")).await;
    assert_eq!(world.limit("api").await, Some(1), "a job without one takes nothing back");
}

pub(super) async fn a_submit_that_clears_the_limit_lets_all_jobs_run(world: &World) {
    world.submit_many(3, job("api").limit(1)).await;
    let worker = world.worker("w1", ["api"]).await;
    assert_eq!(worker.claim(10).await.len(), 1);
    world.submit(job("api").clears_limit()).await;
    assert_eq!(world.limit("api").await, None);
    assert_eq!(worker.claim(10).await.len(), 3, "the jobs that waited for a slot, too");
    world.submit(job("api").limit(2)).await;
    assert_eq!(world.limit("api").await, Some(2), "the next one sets it again");
}

pub(super) async fn clearing_a_limit_that_is_not_there_changes_nothing(world: &World) {
    world.submit(job("api").clears_limit()).await;
    assert_eq!(world.limit("api").await, None);
    assert_eq!(world.worker("w1", ["api"]).await.claim(10).await.len(), 1);
}

pub(super) async fn a_submit_clears_the_limit_of_its_key_only(world: &World) {
    world.submit(job("user").limit(7)).await;
    world.submit(job("user").key("ann").limit(2)).await;
    world.submit(job("user").key("joe").limit(3)).await;
    world.submit(job("user").key("joe").clears_limit()).await;
    let limits = (world.limit("user/joe").await, world.limit("user/ann").await, world.limit("user").await);
    assert_eq!(limits, (None, Some(2), Some(7)));
    world.submit(job("user").clears_limit()).await;
    let limits = (world.limit("user/ann").await, world.limit("user").await);
    assert_eq!(limits, (Some(2), None));
}

pub(super) async fn a_submit_clears_no_limit_of_another_source(world: &World) {
    world.submit(job("api").limit(3)).await;
    world.set("api", 2).await;
    world.submit(job("api").clears_limit()).await;
    assert_eq!(world.limit("api").await, Some(2));
    world.unset("api").await;
    assert_eq!(world.limit("api").await, None, "that of the submit is gone");
}

pub(super) async fn a_job_that_is_not_stored_clears_no_limit(world: &World) {
    world.set("cluster", 1).await;
    let first = world.new_job(job("api").limit(3));
    world.store.submit(vec![first.clone()]).await.expect("it is stored");
    let skipped = world.offer_all(vec![job("api").clears_limit().or_skip()]).await;
    assert_eq!(skipped, Ok(vec![Ok(Submitted::Skipped)]));
    let refused = world.offer_all(vec![job("api").clears_limit().or_reject()]).await;
    assert_eq!(refused.expect("one answer")[0].as_ref().map_err(|e| e.kind()), Err(ErrorKind::LimitReached));
    let again = qo_core::NewJob { limit: None, clear_limit: true, ..first.clone() };
    assert_eq!(world.store.submit(vec![again]).await, Ok(vec![Ok(Submitted::Existing(first.id))]));
    assert_eq!(world.limit("api").await, Some(3));
}

pub(super) async fn the_limit_that_a_submit_clears_does_not_refuse_it(world: &World) {
    world.submit(job("api").limit(1)).await;
    let skipped = world.offer_all(vec![job("api").or_skip()]).await;
    assert_eq!(skipped, Ok(vec![Ok(Submitted::Skipped)]));
    let big = job("api").clears_limit().cost(5).or_skip();
    world.submit(big).await;
    assert_eq!(world.limit("api").await, None);
}

pub(super) async fn a_reopened_job_does_not_clear_the_limit_again(world: &World) {
    let cleared = world.submit(job("api").clears_limit()).await;
    world.cancel(cleared).await.expect("it is there");
    world.submit(job("api").limit(1)).await;
    world.retry(cleared).await.expect("it is reopened");
    assert_eq!(world.limit("api").await, Some(1));
}

pub(super) async fn a_submit_side_limit_of_zero_holds(world: &World) {
    world.submit(job("api").limit(0)).await;
    assert_eq!(world.worker("w1", ["api"]).await.claim(10).await, []);
}

pub(super) async fn a_submit_side_limit_of_a_key_goes_with_its_last_live_job(world: &World) {
    world.submit(job("user").key("joe").limit(1)).await;
    world.submit(job("user").key("joe")).await;
    let worker = world.worker("w1", ["user"]).await;
    worker.succeed(&worker.claim_one().await).await;
    assert_eq!(world.limit("user/joe").await, Some(1), "one job still lives");
    worker.succeed(&worker.claim_one().await).await;
    assert_eq!(world.limit("user/joe").await, None);
    world.submit_many(3, job("user").key("joe")).await;
    assert_eq!(worker.claim(10).await.len(), 3);
}

pub(super) async fn a_submit_side_limit_of_a_key_goes_however_its_last_job_ends(world: &World) {
    let spec = || job("user").key("joe").limit(1);
    let worker = world.worker("w1", ["user"]).await;
    let cancelled = world.submit(spec()).await;
    world.cancel(cancelled).await.expect("it is there");
    assert_eq!(world.limit("user/joe").await, None, "cancelled");
    world.submit(spec().good_until(at(10))).await;
    world.advance(10).await;
    world.sweep().await;
    assert_eq!(world.limit("user/joe").await, None, "expired");
    world.submit(spec().attempts(1)).await;
    worker.settle(&worker.claim_one().await, snooze(0)).await.expect("it owns the job");
    assert_eq!(world.limit("user/joe").await, Some(1), "it waits, so it lives");
    worker.claim_one().await;
    worker.close().await;
    assert_eq!(world.limit("user/joe").await, None, "failed with its lease");
}

pub(super) async fn other_limits_of_a_key_outlive_its_jobs(world: &World) {
    world.set("user/a", 1).await;
    world.configure([("user/b", 2)]).await;
    world.submit_all(vec![job("user").key("a"), job("user").key("b")]).await;
    let worker = world.worker("w1", ["user"]).await;
    worker.succeed_all(&worker.claim(2).await).await;
    assert_eq!((world.limit("user/a").await, world.limit("user/b").await), (Some(1), Some(2)));
}

pub(super) async fn a_submit_side_limit_of_a_group_goes_with_its_last_live_job(world: &World) {
    world.submit(job("api").limit(1)).await;
    world.submit(job("api")).await;
    let worker = world.worker("w1", ["api"]).await;
    worker.succeed(&worker.claim_one().await).await;
    assert_eq!(world.limit("api").await, Some(1), "one job still lives");
    worker.succeed(&worker.claim_one().await).await;
    assert_eq!(world.limit("api").await, None);
}

pub(super) async fn a_submit_side_limit_stays_while_another_job_lists_its_group(world: &World) {
    world.submit(job("user").key("joe").limit(2)).await;
    world.submit(job("other").limits([("user/joe", 1)])).await;
    let worker = world.worker("w1", ["user", "other"]).await;
    let claimed = worker.claim(2).await;
    worker.succeed(&claimed[0]).await;
    assert_eq!(world.limit("user/joe").await, Some(2), "one job still takes slots there");
    worker.succeed(&claimed[1]).await;
    assert_eq!(world.limit("user/joe").await, None);
}

pub(super) async fn a_configuration_replaces_the_last_one_whole(world: &World) {
    world.configure([("api", 1), ("cluster", 5), ("queue:q", 2), ("user/*", 3), ("user/x", 4)]).await;
    for (group, limit) in [("api", 1), ("cluster", 5), ("queue:q", 2), ("user/*", 3), ("user/x", 4)] {
        assert_eq!(world.status(group).await.sources.config, Some(limit), "{group}");
    }
    world.configure([("api", 9)]).await;
    assert_eq!(world.limit("api").await, Some(9));
    for group in ["cluster", "queue:q", "user/*", "user/x"] {
        assert_eq!(world.limit(group).await, None, "{group} is no longer in the file");
    }
}

pub(super) async fn a_configuration_leaves_the_other_sources_alone(world: &World) {
    world.set("a", 1).await;
    world.register(limited("b", 2)).await;
    world.submit(job("c").limit(3)).await;
    world.configure([("d", 4)]).await;
    world.configure([]).await;
    let mut limits = Vec::new();
    for group in ["a", "b", "c", "d"] {
        limits.push(world.limit(group).await);
    }
    assert_eq!(limits, [Some(1), Some(2), Some(3), None]);
}

pub(super) async fn the_newest_registration_of_a_task_counts(world: &World) {
    for limit in [2, 5, 1] {
        world.register(limited("api", limit)).await;
        assert_eq!(world.limit("api").await, Some(limit));
    }
}

pub(super) async fn a_registration_without_a_limit_clears_it(world: &World) {
    world.register(limited("api", 1)).await;
    world.submit_many(3, job("api")).await;
    let worker = world.worker("w1", ["api"]).await;
    assert_eq!(worker.claim(10).await.len(), 1);
    world.register(task("api")).await;
    assert_eq!(world.limit("api").await, None);
    assert_eq!(worker.claim(10).await.len(), 2);
}

pub(super) async fn a_registered_limit_is_that_of_the_tasks_group(world: &World) {
    world.register(in_group("get", "api", Some(1))).await;
    world.submit_many(3, job("get")).await;
    assert_eq!((world.limit("api").await, world.limit("get").await), (Some(1), None));
    assert_eq!(world.worker("w1", ["get"]).await.claim(10).await.len(), 1);
}

pub(super) async fn of_several_tasks_of_a_group_the_newest_registration_counts(world: &World) {
    world.register(in_group("get", "api", Some(3))).await;
    world.register(in_group("put", "api", Some(5))).await;
    assert_eq!(world.limit("api").await, Some(5));
    world.register(in_group("get", "api", Some(4))).await;
    assert_eq!(world.limit("api").await, Some(4));
    world.register(in_group("get", "api", None)).await;
    assert_eq!(world.limit("api").await, Some(5), "each task takes back its own word only");
}

pub(super) async fn a_task_that_changes_its_group_takes_its_limit_along(world: &World) {
    world.register(in_group("get", "old", Some(3))).await;
    world.register(in_group("get", "new", Some(4))).await;
    assert_eq!((world.limit("old").await, world.limit("new").await), (None, Some(4)));
}

pub(super) async fn registering_one_task_leaves_the_others_alone(world: &World) {
    world.store.register(vec![limited("a", 1), limited("b", 2)]).await.expect("valid tasks");
    world.store.register(vec![limited("c", 3)]).await.expect("valid tasks");
    let mut limits = Vec::new();
    for group in ["a", "b", "c"] {
        limits.push(world.limit(group).await);
    }
    assert_eq!(limits, [Some(1), Some(2), Some(3)]);
}

pub(super) async fn unset_without_an_operators_limit_is_not_found(world: &World) {
    world.configure([("api", 3)]).await;
    refused(world.store.unset_limit(group_ref("api")).await, ErrorKind::NotFound);
    refused(world.store.unset_limit(group_ref("unlimited")).await, ErrorKind::NotFound);
    world.set("user/*", 3).await;
    refused(world.store.unset_limit(group_ref("user/joe")).await, ErrorKind::NotFound);
    assert_eq!((world.limit("api").await, world.limit("user/*").await), (Some(3), Some(3)));
}

pub(super) async fn the_status_shows_what_each_source_said(world: &World) {
    world.submit(job("api").limit(1)).await;
    world.register(limited("api", 2)).await;
    world.configure([("api", 3)]).await;
    world.set("api", 4).await;
    let sources = world.status("api").await.sources;
    assert_eq!((sources.operator, sources.config, sources.submit), (Some(4), Some(3), Some(1)));
    let code = CodeLimit { task: name("api"), limit: 2, app: default_app() };
    assert_eq!((sources.code, sources.config_app), (vec![code], Some(default_app())));
}

pub(super) async fn setting_the_same_again_changes_nothing(world: &World) {
    world.set("api", 4).await;
    world.configure([("api", 3)]).await;
    world.register(limited("api", 2)).await;
    world.pause("q").await;
    let before = world.snapshot().await;
    world.set("api", 4).await;
    world.configure([("api", 3)]).await;
    world.register(limited("api", 2)).await;
    world.pause("q").await;
    assert_eq!(world.snapshot().await, before);
}

pub(super) async fn a_configured_limit_binds_in_every_kind_of_group(world: &World) {
    let worker = world.worker("w1", ["t"]).await;
    for group in ["cluster", "queue:q", "api", "api/*", "api/k", "gpu", "gpu2/*"] {
        world.configure([(group, 1)]).await;
        world
            .submit_many(
                2,
                job("t").queue("q").group("api").key("k").limits([("gpu", 1)]).limits([("gpu2/x", 1)]),
            )
            .await;
        let first = worker.claim(10).await;
        assert_eq!(first.len(), 1, "{group}");
        let reply = worker.exchange(vec![settled(&first[0], success())], 10).await;
        assert_eq!(reply.claimed.len(), 1, "{group}");
        worker.succeed(&reply.claimed[0]).await;
    }
}
