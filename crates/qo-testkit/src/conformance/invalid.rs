//! Bad input: each refusal names field, value and rule, loses nothing and panics nowhere; and the caps are exactly as
//! documented.

use super::*;

/// Checks that each of these jobs is `Invalid` for the field and value, and that nothing changed.
async fn refuse_jobs<const N: usize>(world: &World, bad: [(JobSpec, &str, &str); N]) {
    world.submit(job("before").limit(3)).await;
    let before = world.snapshot().await;
    for (spec, field, value) in bad {
        let id = world.job_id();
        let result = world.offer_all(vec![job("fine"), spec.id(id)]).await;
        let error = refused(result.clone(), ErrorKind::Invalid);
        assert!(error.message().starts_with("jobs[1]"), "{error}");
        invalid(result, field, value);
        refused(world.store.job(id).await, ErrorKind::NotFound);
    }
    assert_eq!(world.snapshot().await, before);
}

pub(super) fn json_of(bytes: usize) -> String {
    format!("\"{}\"", "x".repeat(bytes - 2))
}

pub(super) async fn a_bad_cost_is_invalid(world: &World) {
    let bad = [
        (job("t").cost(0), "cost", "0"),
        (job("t").cost(caps::LIMIT + 1), "cost", "1000001"),
        (job("t").cost(u32::MAX), "cost", "4294967295"),
    ];
    refuse_jobs(world, bad).await;
}

pub(super) async fn a_bad_number_of_attempts_is_invalid(world: &World) {
    let bad =
        [(job("t").attempts(0), "max_attempts", "0"), (job("t").attempts(1_001), "max_attempts", "1001")];
    refuse_jobs(world, bad).await;
    world.submit(job("t").attempts(caps::ATTEMPTS)).await;
}

pub(super) async fn a_bad_limit_of_a_job_is_invalid(world: &World) {
    refuse_jobs(world, [(job("t").limit(caps::LIMIT + 1), "limit", "1000001")]).await;
    refuse_jobs(world, [(job("t").limit(1).clears_limit(), "clear_limit", "true")]).await;
    world.submit(job("t").limit(caps::LIMIT)).await;
}

pub(super) async fn a_bad_timeout_is_invalid(world: &World) {
    let too_long = caps::DURATION_MS + 1;
    let bad = [
        (job("t").timeout(0), "timeout_ms", "0"),
        (job("t").timeout(too_long), "timeout_ms", "315360000001"),
    ];
    refuse_jobs(world, bad).await;
    world.submit(job("t").timeout(caps::DURATION_MS)).await;
}

pub(super) async fn a_bad_date_is_invalid(world: &World) {
    let (before, after) = (Time::from_millis(-1), Time::from_millis(caps::TIME_MS + 1));
    let bad = [
        (job("t").run_at(before), "run_at", "-1"),
        (job("t").run_at(after), "run_at", "253402300800000"),
        (job("t").good_until(before), "good_until", "-1"),
        (job("t").good_until(after), "good_until", "253402300800000"),
    ];
    refuse_jobs(world, bad).await;
    world.submit(job("t").run_at(Time::from_millis(caps::TIME_MS))).await;
}

pub(super) async fn a_good_until_that_is_not_after_run_at_is_invalid(world: &World) {
    let bad = [
        (job("t").run_at(at(50)).good_until(at(50)), "good_until", "2027-01-15T08:00:00.05Z"),
        (job("t").run_at(at(50)).good_until(at(49)), "good_until", "2027-01-15T08:00:00.049Z"),
    ];
    refuse_jobs(world, bad).await;
    world.submit(job("t").run_at(at(50)).good_until(at(51))).await;
}

pub(super) async fn a_bad_backoff_is_invalid(world: &World) {
    let fine = RetryPolicy::default();
    let bad = [
        (job("t").backoff(RetryPolicy { factor_percent: 99, ..fine }), "retry.factor_percent", "99"),
        (job("t").backoff(RetryPolicy { jitter_percent: 101, ..fine }), "retry.jitter_percent", "101"),
        (job("t").backoff(RetryPolicy { max_ms: 999, ..fine }), "retry.max_ms", "999"),
    ];
    refuse_jobs(world, bad).await;
}

pub(super) async fn a_bad_extra_limit_is_invalid(world: &World) {
    let bad = [
        (job("t").limits([("cluster", 1)]), "limits", "cluster"),
        (job("t").limits([("queue:default", 1)]), "limits", "queue:default"),
        (job("t").limits([("gpu/*", 1)]), "limits", "gpu/*"),
        (job("t").limits([("gpu", 0)]), "limits[gpu]", "0"),
        (job("t").limits([("gpu", caps::LIMIT + 1)]), "limits[gpu]", "1000001"),
    ];
    refuse_jobs(world, bad).await;
}

pub(super) async fn the_jobs_own_group_as_an_extra_limit_is_invalid(world: &World) {
    world.register(TaskOptions { group: Some(name("cpu")), ..task("render") }).await;
    let bad = [
        (job("t").limits([("t", 1)]), "limits", "t"),
        (job("t").limits([("t/k", 1)]), "limits", "t/k"),
        (job("t").group("api").limits([("api", 1)]), "limits", "api"),
        (job("t").group("api").key("k").limits([("api/other", 1)]), "limits", "api/other"),
        (job("render").limits([("cpu", 1)]), "limits", "cpu"),
    ];
    refuse_jobs(world, bad).await;
    world.submit(job("t").group("api").limits([("t", 1)])).await;
    world.submit(job("render").limits([("render", 1)])).await;
}

pub(super) async fn too_many_extra_limits_are_invalid(world: &World) {
    let many =
        |count| (0..count).fold(job("t").key("k"), |spec, place| spec.limits([(&format!("g{place}"), 1)]));
    refuse_jobs(world, [(many(caps::EXTRA_LIMITS + 1), "limits", "13")]).await;
    let id = world.submit(many(caps::EXTRA_LIMITS)).await;
    assert_eq!(world.worker("w1", ["t"]).await.claim_ids(1).await, [id], "16 groups are fine");
}

pub(super) async fn a_payload_too_large_is_invalid(world: &World) {
    let too_large = json_of(caps::PAYLOAD_BYTES + 1);
    refuse_jobs(world, [(job("t").payload(&too_large), "payload", "1048577")]).await;
    let largest = json_of(caps::PAYLOAD_BYTES);
    let id = world.submit(job("t").payload(&largest)).await;
    assert_eq!(world.detail(id).await.payload.as_str().len(), caps::PAYLOAD_BYTES);
}

pub(super) async fn a_payload_that_no_worker_could_read_is_invalid(world: &World) {
    let nested = |deep: usize| format!("{}{}", "[".repeat(deep), "]".repeat(deep));
    let bad = [
        ("1e400", "1e400"),
        ("{", "{"),
        ("", "\"\""),
        ("nan", "nan"),
        ("\"\\ud800\"", "ud800"),
        (&nested(caps::JSON_DEPTH + 1), "[[["),
    ];
    refuse_jobs(world, bad.map(|(text, shown)| (job("t").raw_payload(text), "payload", shown))).await;
    for good in ["1e308", "\"\\u0000\"", &nested(caps::JSON_DEPTH)] {
        let id = world.submit(job("t").raw_payload(good)).await;
        assert_eq!(world.detail(id).await.payload.as_str(), good);
    }
}

pub(super) async fn a_call_with_too_many_bytes_is_invalid(world: &World) {
    let spec = job("t").payload(&json_of(caps::PAYLOAD_BYTES));
    let mut specs = vec![spec; 8];
    specs.push(job("t").payload("1"));
    let error = refused(world.offer_all(specs.clone()).await, ErrorKind::Invalid);
    assert!(error.message().contains("8388609"), "{error}");
    assert_eq!(world.all_jobs().await, []);
    specs.pop();
    world.submit_all(specs).await;
}

pub(super) async fn a_call_with_too_many_jobs_is_invalid(world: &World) {
    let specs = vec![job("t"); caps::SUBMIT_JOBS + 1];
    invalid(world.offer_all(specs).await, "jobs", "10001");
    assert_eq!(world.all_jobs().await, []);
}

pub(super) async fn a_bad_session_is_invalid(world: &World) {
    let spec = serving("w1", ["t"]);
    let new = NewSession { id: world.session_id(), ..spec.new };
    let many = |count| (0..count).map(|place| name(&format!("n{place}"))).collect::<Vec<_>>();
    let bad = [
        (NewSession { lease_ms: 99, ..new.clone() }, "lease_ms", "99"),
        (NewSession { lease_ms: caps::LEASE_MAX_MS + 1, ..new.clone() }, "lease_ms", "86400001"),
        (NewSession { tasks: vec![], ..new.clone() }, "tasks", "0"),
        (NewSession { tasks: many(caps::SERVED + 1), ..new.clone() }, "tasks", "10001"),
        (NewSession { queues: many(caps::SERVED + 1), ..new.clone() }, "queues", "10001"),
        (NewSession { permits: 0, ..new.clone() }, "permits", "0"),
        (NewSession { permits: caps::LIMIT + 1, ..new.clone() }, "permits", "1000001"),
    ];
    for (session, field, value) in bad {
        invalid(world.store.open_session(session).await, field, value);
    }
    assert_eq!(world.store.workers().await, Ok(vec![]));
    world.store.open_session(new).await.expect("the id is still free");
}

pub(super) async fn a_bad_exchange_is_invalid(world: &World) {
    world.submit(job("t")).await;
    let worker = world.worker("w1", ["t"]).await;
    let before = world.snapshot().await;
    let claim = |max, max_claim_batch| Claim { max, max_claim_batch, prefetch: None };
    let settle = Settle { job: world.job_id(), token: FenceToken(1), outcome: success() };
    let next = worker.next();
    let bad = [
        (Exchange { number: 0, ..next.clone() }, "number", "0"),
        (Exchange { settles: vec![settle; caps::SETTLES + 1], ..next.clone() }, "settles", "10001"),
        (Exchange { claim: claim(caps::CLAIM + 1, None), ..next.clone() }, "claim.max", "10001"),
        (Exchange { claim: claim(1, Some(0)), ..next.clone() }, "claim.max_claim_batch", "0"),
        (Exchange { claim: claim(1, Some(10_001)), ..next.clone() }, "claim.max_claim_batch", "10001"),
        (Exchange { claim: claim(1, None), draining: true, ..next.clone() }, "claim.max", "1"),
        (Exchange { memory_percent: Some(101), ..next.clone() }, "memory_percent", "101"),
        (Exchange { free_permits: caps::LIMIT + 1, ..next.clone() }, "free_permits", "1000001"),
        (Exchange { idle_ms: Some(99), ..next.clone() }, "idle_ms", "99"),
        (Exchange { idle_ms: Some(86_400_001), ..next.clone() }, "idle_ms", "86400001"),
        (Exchange { idle_ms: Some(60_000), claim: claim(1, None), ..next.clone() }, "idle_ms", "60000"),
    ];
    for (exchange, field, value) in bad {
        invalid(world.store.exchange(exchange).await, field, value);
    }
    assert_eq!(world.snapshot().await, before);
    assert_eq!(worker.claim(1).await.len(), 1);
}

pub(super) async fn a_bad_limit_of_the_operator_is_invalid(world: &World) {
    world.set("api", 3).await;
    for group in ["api", "api/*", "api/k", "queue:q", "cluster"] {
        invalid(world.store.set_limit(group_ref(group), caps::LIMIT + 1).await, "limit", "1000001");
    }
    assert_eq!((world.limit("api").await, world.limit("cluster").await), (Some(3), None));
    world.set("api", caps::LIMIT).await;
}

pub(super) async fn too_many_cancels_are_invalid(world: &World) {
    let id = world.submit(job("t")).await;
    invalid(world.store.cancel(vec![id; caps::CANCELS + 1]).await, "jobs", "10001");
    assert_eq!(world.state(id).await, JobState::Pending);
}

pub(super) async fn a_page_without_rows_or_with_too_many_is_invalid(world: &World) {
    world.submit(job("t")).await;
    for (limit, value) in [(0, "0"), (caps::PAGE + 1, "1001")] {
        invalid(world.store.jobs(JobFilter::default(), None, limit).await, "limit", value);
        invalid(world.store.groups(None, limit).await, "limit", value);
    }
}

pub(super) async fn every_refusal_names_what_it_is_about(world: &World) {
    let says = |error: qo_core::Error, words: &[&str]| {
        for word in words {
            assert!(error.message().contains(word), "{word} is not named: {error}");
        }
    };
    world.set("api", 1).await;
    let id = world.submit(job("api").once("order-1")).await;
    let worker = world.worker("w1", ["api"]).await;
    let unknown = world.job_id();
    let error = refused(world.offer(job("api").or_reject()).await, ErrorKind::LimitReached);
    says(error, &["api"]);
    let error = refused(world.offer(job("api").payload("2").once("order-1")).await, ErrorKind::Conflict);
    says(error, &[&id.to_string()]);
    let error = refused(world.offer(job("api").payload("2").id(id)).await, ErrorKind::Conflict);
    says(error, &[&id.to_string()]);
    says(refused(world.store.job(unknown).await, ErrorKind::NotFound), &[&unknown.to_string()]);
    says(refused(world.cancel(unknown).await, ErrorKind::NotFound), &[&unknown.to_string()]);
    says(refused(world.store.group(group_ref("typo")).await, ErrorKind::NotFound), &["typo"]);
    says(refused(world.store.unset_limit(group_ref("typo")).await, ErrorKind::NotFound), &["typo"]);
    let error =
        refused(world.store.release_slot(group_ref("api"), FenceToken(77)).await, ErrorKind::NotFound);
    says(error, &["77"]);
    let settle = Settle { job: id, token: FenceToken(77), outcome: success() };
    let error = refused(worker.exchange(vec![settle], 0).await.settled.remove(0), ErrorKind::Fenced);
    says(error, &["77"]);
    worker.close().await;
    says(refused(worker.send(worker.next()).await, ErrorKind::Fenced), &[&worker.session.to_string()]);
}

pub(super) async fn an_exchange_with_too_many_bytes_is_invalid(world: &World) {
    let worker = world.worker("w1", ["bulk"]).await;
    let output =
        Json::parse("output", &format!("\"{}\"", "x".repeat(caps::PAYLOAD_BYTES - 2))).expect("JSON");
    let settle = |_| Settle {
        job: world.job_id(),
        token: FenceToken(1),
        outcome: Outcome::Succeed { output: output.clone() },
    };
    let settles = (0..=caps::SETTLE_BYTES / caps::PAYLOAD_BYTES).map(settle).collect();
    let refused = world.store.exchange(Exchange { settles, ..worker.next() }).await;
    invalid(refused, "settles", "");
}

pub(super) async fn on_failure_without_a_workflow_is_invalid(world: &World) {
    let bad = [
        (job("t").on_failure(OnFailure::Continue), "on_failure", "continue"),
        (job("t").on_failure(OnFailure::Halt), "on_failure", "halt"),
    ];
    refuse_jobs(world, bad).await;
}

pub(super) async fn a_bad_prefetch_is_invalid(world: &World) {
    world.submit(job("t")).await;
    let worker = world.worker("w1", ["t"]).await;
    let before = world.snapshot().await;
    let claim =
        |buffer, lease_ms| Claim { prefetch: Some(Prefetch { buffer, lease_ms }), ..Claim::default() };
    let start = Start { job: world.job_id(), token: FenceToken(1) };
    let next = worker.next();
    let bad = [
        (Exchange { claim: claim(0, 5_000), ..next.clone() }, "claim.prefetch.buffer", "0"),
        (Exchange { claim: claim(10_001, 5_000), ..next.clone() }, "claim.prefetch.buffer", "10001"),
        (Exchange { claim: claim(1, 99), ..next.clone() }, "claim.prefetch.lease_ms", "99"),
        (Exchange { claim: claim(1, 86_400_001), ..next.clone() }, "claim.prefetch.lease_ms", "86400001"),
        (Exchange { claim: claim(3, 5_000), draining: true, ..next.clone() }, "claim.prefetch.buffer", "3"),
        (Exchange { starts: vec![start; 10_001], ..next.clone() }, "starts", "10001"),
    ];
    for (exchange, field, value) in bad {
        invalid(world.store.exchange(exchange).await, field, value);
    }
    assert_eq!(world.snapshot().await, before);
    assert_eq!(worker.ahead(1).await.len(), 1);
}

pub(super) async fn a_bad_request_for_slots_is_invalid(world: &World) {
    world.set("gpu", 5).await;
    let held = world.hold(program("gpu")).await;
    let before = world.snapshot().await;
    let bad = [
        (program("cluster"), "group", "cluster"),
        (program("queue:q"), "group", "queue:q"),
        (program("gpu/*"), "group", "gpu/*"),
        (program("gpu").slots(0), "slots", "0"),
        (program("new").slots(caps::LIMIT + 1), "slots", "1000001"),
        (program("gpu").lease(99), "lease_ms", "99"),
        (program("gpu").lease(caps::LEASE_MAX_MS + 1), "lease_ms", "86400001"),
        (program("gpu").limit(caps::LIMIT + 1), "limit", "1000001"),
        (program("gpu").slots(6), "slots", "6"),
    ];
    for (spec, field, value) in bad {
        invalid(world.acquire(spec).await, field, value);
    }
    for (ms, value) in [(99, "99"), (caps::LEASE_MAX_MS + 1, "86400001")] {
        invalid(held.extend(ms).await, "lease_ms", value);
    }
    assert_eq!(world.snapshot().await, before);
    world.hold(program("new").slots(caps::LIMIT).limit(caps::LIMIT).lease(caps::LEASE_MAX_MS)).await;
}

pub(super) async fn too_many_retries_are_invalid(world: &World) {
    let id = world.submit(job("t")).await;
    world.cancel(id).await.expect("it is there");
    invalid(world.store.retry(vec![id; caps::CANCELS + 1]).await, "jobs", "10001");
    assert_eq!(world.state(id).await, JobState::Cancelled);
}

pub(super) async fn a_bulk_change_or_page_of_no_or_too_many_rows_is_invalid(world: &World) {
    let id = world.submit(step("w")).await;
    for (limit, value) in [(0, "0"), (caps::PAGE + 1, "1001")] {
        for change in [Change::Cancel, Change::Retry] {
            let result = world.store.change_matching(change, JobFilter::default(), None, limit).await;
            invalid(result, "limit", value);
        }
        invalid(world.store.workflows(None, limit).await, "limit", value);
    }
    assert_eq!(world.state(id).await, JobState::Pending);
}

pub(super) async fn every_refusal_about_workflows_programs_and_schedules_names_it(world: &World) {
    let says = |error: qo_core::Error, word: &str| {
        assert!(error.message().contains(word), "{word} is not named: {error}");
    };
    let (unknown, lease) = (world.job_id(), world.lease_id());
    says(refused(world.retry(unknown).await, ErrorKind::NotFound), &unknown.to_string());
    says(refused(world.store.workflow(name("flow")).await, ErrorKind::NotFound), "flow");
    says(refused(world.steer("flow", Steer::Skip).await, ErrorKind::NotFound), "flow");
    says(refused(world.trigger("nightly").await, ErrorKind::NotFound), "nightly");
    says(refused(world.store.enable_schedule(name("nightly"), true).await, ErrorKind::NotFound), "nightly");
    says(refused(world.store.return_slots(lease, FenceToken(77)).await, ErrorKind::Fenced), "77");
    says(refused(world.store.extend_slots(lease, FenceToken(77), 1_000).await, ErrorKind::Fenced), "77");
    world.submit(step("flow")).await;
    says(refused(world.steer("flow", Steer::Skip).await, ErrorKind::Conflict), "flow");
    let other = step("flow").on_failure(OnFailure::Continue);
    says(refused(world.offer(other).await, ErrorKind::Conflict), "flow");
    world.cancel_workflow("flow").await.expect("it is there");
    says(refused(world.offer(step("flow")).await, ErrorKind::Conflict), "flow");
    let worker = world.worker("w1", ["t"]).await;
    let starts = vec![Start { job: unknown, token: FenceToken(77) }];
    let reply = worker.send(Exchange { starts, ..worker.next() }).await.expect("the session is live");
    says(refused(reply.started[0].clone(), ErrorKind::Fenced), "77");
}
