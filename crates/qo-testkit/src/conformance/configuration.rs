//! Configurations and registrations: refused as a whole, with every mistake named, or accepted as a whole.

use super::invalid::json_of;
use super::*;

pub(super) async fn a_bad_configuration_is_invalid_as_a_whole(world: &World) {
    world.configure([("api", 3)]).await;
    let before = world.snapshot().await;
    let limits = [(group_ref("api"), 5), (group_ref("big"), caps::LIMIT + 1)].into();
    let configuration = Configuration { limits, ..Configuration::default() };
    invalid(world.store.configure(configuration).await, "limits[big]", "1000001");
    let limits = (0..=caps::CONFIGURED).map(|place| (group_ref(&format!("g{place}")), 1)).collect();
    let configuration = Configuration { limits, ..Configuration::default() };
    invalid(world.store.configure(configuration).await, "limits", "10001");
    for (priority, value) in [(0, "0"), (caps::QUEUE_PRIORITY + 1, "1001")] {
        let queue_priorities = [(name("a"), 1), (name("q"), priority)].into();
        let configuration = Configuration { queue_priorities, ..Configuration::default() };
        invalid(world.store.configure(configuration).await, "queue_priorities[q]", value);
    }
    assert_eq!(world.snapshot().await, before);
}

pub(super) async fn a_bad_registration_is_invalid_as_a_whole(world: &World) {
    let fine = TaskOptions { max_concurrent: Some(1), ..task("fine") };
    let retry = RetryPolicy { factor_percent: 99, ..RetryPolicy::default() };
    let bad = [
        (TaskOptions { max_concurrent: Some(caps::LIMIT + 1), ..task("bad") }, "max_concurrent", "1000001"),
        (TaskOptions { timeout_ms: Some(0), ..task("bad") }, "timeout_ms", "0"),
        (TaskOptions { retry: Some(retry), ..task("bad") }, "retry.factor_percent", "99"),
    ];
    for (options, field, value) in bad {
        invalid(world.store.register(vec![fine.clone(), options]).await, field, value);
        assert_eq!(world.limit("fine").await, None);
    }
    let many = (0..=caps::SERVED).map(|place| task(&format!("t{place}"))).collect();
    invalid(world.store.register(many).await, "tasks", "10001");
}

pub(super) async fn a_bad_schedule_is_invalid_as_a_whole_configuration(world: &World) {
    world.plan([("nightly", cron("* * * * *", "report"))]).await;
    let before = world.snapshot().await;
    let fine = cron("0 3 * * *", "report");
    let payload = Json::parse("payload", &json_of(caps::PAYLOAD_BYTES + 1)).expect("JSON");
    let bad = [
        (cron("* * * *", "t"), "schedules[bad].cron", "* * * *"),
        (cron("61 * * * *", "t"), "schedules[bad].cron", "61 * * * *"),
        (cron("", "t"), "schedules[bad].cron", ""),
        (cron("every day", "t"), "schedules[bad].cron", "every day"),
        (cron("0 0 30 2 *", "t"), "schedules[bad].cron", "0 0 30 2 *"),
        (Schedule { timezone: "Mars/Base".into(), ..fine.clone() }, "schedules[bad].timezone", "Mars/Base"),
        (Schedule { timezone: String::new(), ..fine.clone() }, "schedules[bad].timezone", ""),
        (Schedule { max_attempts: 0, ..fine.clone() }, "schedules[bad].max_attempts", "0"),
        (Schedule { max_attempts: 1_001, ..fine.clone() }, "schedules[bad].max_attempts", "1001"),
        (Schedule { timeout_ms: Some(0), ..fine.clone() }, "schedules[bad].timeout_ms", "0"),
        (Schedule { payload, ..fine.clone() }, "schedules[bad].payload", "1048577"),
    ];
    for (schedule, field, value) in bad {
        let schedules = [(name("fine"), fine.clone()), (name("bad"), schedule)].into();
        let configuration = Configuration { schedules, ..Configuration::default() };
        invalid(world.store.configure(configuration).await, field, value);
    }
    let schedules = (0..=caps::CONFIGURED).map(|place| (name(&format!("s{place}")), fine.clone())).collect();
    let configuration = Configuration { schedules, ..Configuration::default() };
    invalid(world.store.configure(configuration).await, "schedules", "10001");
    assert_eq!(world.snapshot().await, before);
}

pub(super) async fn a_bad_retention_is_invalid_as_a_whole_configuration(world: &World) {
    world.configure([("api", 3)]).await;
    let before = world.snapshot().await;
    let (fine, long) = (Retention::default(), caps::DURATION_MS + 1);
    let bad = [
        (Retention { succeeded_ms: long, ..fine }, "retention.succeeded_ms"),
        (Retention { failed_ms: long, ..fine }, "retention.failed_ms"),
        (Retention { cancelled_ms: long, ..fine }, "retention.cancelled_ms"),
        (Retention { expired_ms: long, ..fine }, "retention.expired_ms"),
    ];
    for (retention, field) in bad {
        let configuration = Configuration { retention: retention.into(), ..Configuration::default() };
        invalid(world.store.configure(configuration).await, field, "315360000001");
    }
    assert_eq!(world.snapshot().await, before);
}

pub(super) async fn every_mistake_of_a_configuration_is_named(world: &World) {
    let configuration = Configuration {
        limits: [(group_ref("big"), caps::LIMIT + 1)].into(),
        queue_priorities: [(name("q"), 0)].into(),
        schedules: [(name("s"), cron("nonsense", "t"))].into(),
        retention: Retention { failed_ms: u64::MAX, ..Retention::default() }.into(),
        ..Configuration::default()
    };
    let error = refused(world.store.configure(configuration).await, ErrorKind::Invalid);
    for part in ["limits[big]", "queue_priorities[q]", "schedules[s].cron", "retention.failed_ms"] {
        assert!(error.message().contains(part), "{part} is not named: {error}");
    }
}
