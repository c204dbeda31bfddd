//! Submitting: a job's defaults, and the answer to a call of many jobs.

use super::*;

pub(super) async fn a_job_has_the_documented_defaults(world: &World) {
    let id = world.submit(job("resize")).await;
    let detail = world.detail(id).await;
    let view = detail.view;
    assert_eq!((view.id, view.state, &*view.queue), (id, JobState::Pending, "default"));
    assert_eq!((&*view.task, &*view.group, view.key), ("resize", "resize", None));
    assert_eq!((view.cost, view.limits.len(), view.priority), (1, 0, 0));
    assert_eq!((view.submitted_at, view.run_at, view.good_until), (START, START, None));
    assert_eq!((view.attempts_used, view.max_attempts, view.cancel_requested), (0, 3, false));
    assert_eq!((view.running, view.finished_at, view.idempotency_key), (None, None, None));
    assert_eq!((view.timeout_ms, view.retry, view.limit), (None, None, None));
    assert_eq!((detail.payload.as_str(), detail.output, detail.attempts.len()), ("null", None, 0));
}

pub(super) async fn a_job_keeps_every_field_that_was_given(world: &World) {
    let spec = job("resize").queue("images").priority(-7).run_at(at(5)).good_until(at(9)).attempts(4);
    let spec = spec
        .group("api")
        .key("u:1/x")
        .cost(2)
        .limits([("gpu", 3)])
        .limits([("openai/eu", 1)])
        .once("order-1");
    let own = RetryPolicy { base_ms: 77, ..RetryPolicy::default() };
    let spec = spec.timeout(1_234).backoff(own).limit(5);
    let view = world.view(world.submit(spec).await).await;
    assert_eq!((view.timeout_ms, view.retry, view.limit), (Some(1_234), Some(own), Some(5)));
    assert_eq!(
        (&*view.queue, view.priority, view.run_at, view.good_until),
        ("images", -7, at(5), Some(at(9)))
    );
    assert_eq!((view.max_attempts, &*view.group, view.key), (4, "api", Some(key("u:1/x"))));
    assert_eq!((view.cost, view.idempotency_key), (2, Some(key("order-1"))));
    let extra: Vec<_> = view.limits.into_iter().collect();
    assert_eq!(extra, [(group_ref("gpu"), 3), (group_ref("openai/eu"), 1)]);
}

pub(super) async fn a_job_shows_what_was_submitted_and_not_what_its_task_says(world: &World) {
    let retry = Some(RetryPolicy { base_ms: 77, ..RetryPolicy::default() });
    world
        .register(TaskOptions { timeout_ms: Some(9), max_concurrent: Some(4), retry, ..task("resize") })
        .await;
    let id = world.submit(job("resize").timeout(5)).await;
    let worker = world.worker("w1", ["resize"]).await;
    let held = worker.claim_one().await;
    assert_eq!(
        (held.timeout_ms, Some(held.retry)),
        (Some(5), retry),
        "what its task says counts for the rest"
    );
    let view = world.view(id).await;
    assert_eq!((view.timeout_ms, view.retry, view.limit), (Some(5), None, None));
    worker.succeed(&held).await;
    assert_eq!(world.view(id).await.timeout_ms, Some(5));
}

pub(super) async fn a_payload_reaches_the_handler_as_it_was_sent(world: &World) {
    let text = r#"{"ключ": [1, 2.50,  null], "a/b": "\u0041\n", "big": 12345678901234567890}"#;
    let id = world.submit(job("resize").payload(text)).await;
    let worker = world.worker("w1", ["resize"]).await;
    assert_eq!(worker.claim_one().await.payload.as_str(), text);
    assert_eq!(world.detail(id).await.payload.as_str(), text);
}

pub(super) async fn a_given_group_beats_the_registered_one_which_beats_the_task(world: &World) {
    let plain = world.submit(job("resize")).await;
    world.register(TaskOptions { group: Some(name("cpu")), ..task("resize") }).await;
    let registered = world.submit(job("resize")).await;
    let given = world.submit(job("resize").group("gpu")).await;
    let mut groups = Vec::new();
    for id in [plain, registered, given] {
        groups.push(world.view(id).await.group.to_string());
    }
    assert_eq!(groups, ["resize", "cpu", "gpu"]);
}

pub(super) async fn a_jobs_group_is_fixed_at_submit(world: &World) {
    world.register(TaskOptions { group: Some(name("old")), ..task("resize") }).await;
    let id = world.submit(job("resize")).await;
    world.register(TaskOptions { group: Some(name("new")), ..task("resize") }).await;
    world.set("old", 0).await;
    let worker = world.worker("w1", ["resize"]).await;
    assert_eq!(&*world.view(id).await.group, "old");
    assert_eq!(worker.claim(1).await, [], "the limit of its group at submit holds it");
    world.unset("old").await;
    world.set("new", 0).await;
    let claimed = worker.claim_one().await;
    assert_eq!((claimed.id, &*claimed.group), (id, "old"));
}

pub(super) async fn a_call_answers_for_each_job_in_order(world: &World) {
    world.set("full", 0).await;
    let (first, last) = (world.job_id(), world.job_id());
    let specs = vec![
        job("resize").id(first),
        job("full").or_skip(),
        job("full").or_reject(),
        job("resize").id(first),
        job("resize").id(first).payload("1"),
        job("resize").id(last),
    ];
    let outcomes = world.offer_all(specs).await.expect("a valid call");
    let kinds: Vec<_> = outcomes.into_iter().map(|outcome| outcome.map_err(|error| error.kind())).collect();
    let expected = [
        Ok(Submitted::Accepted(first)),
        Ok(Submitted::Skipped),
        Err(ErrorKind::LimitReached),
        Ok(Submitted::Existing(first)),
        Err(ErrorKind::Conflict),
        Ok(Submitted::Accepted(last)),
    ];
    assert_eq!(kinds, expected);
    let stored: Vec<_> = world.all_jobs().await.into_iter().map(|view| view.id).collect();
    assert_eq!(stored, [first, last]);
}

pub(super) async fn an_invalid_job_refuses_the_whole_call_by_its_index(world: &World) {
    let specs = vec![job("a"), job("b"), job("c").cost(0), job("d")];
    let error = refused(world.offer_all(specs).await, ErrorKind::Invalid);
    assert!(error.message().starts_with("jobs[2]"), "{error}");
    assert!(error.message().contains("cost"), "{error}");
    assert_eq!(world.all_jobs().await, [], "nothing of the call is stored");
}

pub(super) async fn a_rule_that_needs_the_state_refuses_the_whole_call_by_its_index(world: &World) {
    world.set("api", 2).await;
    let specs = vec![job("a"), job("api").cost(3), job("b")];
    let error = refused(world.offer_all(specs).await, ErrorKind::Invalid);
    assert!(error.message().starts_with("jobs[1]"), "{error}");
    assert_eq!(world.all_jobs().await, [], "nothing of the call is stored");
}

pub(super) async fn a_refused_call_leaves_no_limit_behind(world: &World) {
    refused(world.offer_all(vec![job("a").limit(1), job("b").cost(0)]).await, ErrorKind::Invalid);
    assert_eq!(world.limit("a").await, None);
}

pub(super) async fn a_pending_job_holds_no_slot(world: &World) {
    world.set("api", 5).await;
    world.submit(job("api").cost(3)).await;
    let status = world.status("api").await;
    assert_eq!((status.used, status.live), (0, 3));
}

pub(super) async fn an_empty_call_does_nothing(world: &World) {
    let before = world.snapshot().await;
    assert_eq!(world.store.submit(vec![]).await, Ok(vec![]));
    assert_eq!(world.store.cancel(vec![]).await, Ok(vec![]));
    assert_eq!(world.store.register(vec![]).await, Ok(Pushed::default()));
    assert_eq!(world.snapshot().await, before);
}

pub(super) async fn names_and_keys_of_every_legal_form_work(world: &World) {
    let long = "n".repeat(caps::NAME_BYTES);
    let names = ["_", "9", "v1.2-x", "queue", "CLUSTER", "a..b--", &long];
    let keys =
        ["a/b:c", "\u{43a}\u{43b}\u{44e}\u{447}", " ", "**", "%2F", "..", &"k".repeat(caps::KEY_BYTES)];
    for (text, part) in names.into_iter().zip(keys) {
        let spec = job(text).queue(text).group(text).key(part).workflow(text).once(part);
        let id = world.submit(spec.limits([(&format!("x{}/{part}", &text[1..]), 1)])).await;
        world.set(&format!("{text}/{part}"), 1).await;
        world.plan([(text, cron("0 0 * * *", text))]).await;
        let worker = world.open(serving(text, [text]).queues([text])).await;
        assert_eq!(worker.claim_ids(9).await, [id]);
        let view = world.view(id).await;
        assert_eq!(
            (view.workflow, view.key, view.idempotency_key),
            (Some(name(text)), Some(key(part)), Some(key(part)))
        );
        assert_eq!((world.used(text).await, world.used(&format!("{text}/{part}")).await), (1, 1));
        assert!(world.is_full(program(&format!("{text}/{part}"))).await);
        assert_eq!(world.schedule(text).await.schedule, name(text));
    }
}
