//! Apps: services that share a namespace keep their own configuration.

use super::*;

fn says<const N: usize>(app: &str, limits: [(&str, u32); N]) -> Configuration {
    let limits = limits.into_iter().map(|(group, limit)| (group_ref(group), limit)).collect();
    Configuration { limits, ..Configuration::of(name(app)) }
}

fn plans(app: &str, schedule: &str, spec: Schedule) -> Configuration {
    Configuration { schedules: [(name(schedule), spec)].into(), ..Configuration::of(name(app)) }
}

fn registers(app: &str, text: &str, limit: Option<u32>) -> TaskOptions {
    TaskOptions { app: name(app), max_concurrent: limit, ..task(text) }
}

fn change(setting: Setting, name: &str, old: Option<&str>, new: Option<&str>) -> SettingChange {
    SettingChange { setting, name: name.into(), old: old.map(Into::into), new: new.map(Into::into) }
}

pub(super) async fn a_push_replaces_nothing_of_another_app(world: &World) {
    let shop = Configuration {
        queue_priorities: [(name("q"), 7)].into(),
        schedules: [(name("nightly"), cron("0 3 * * *", "report"))].into(),
        ..says("shop", [("api", 3), ("user/*", 1), ("cluster", 9)])
    };
    world.push(shop.clone()).await;
    world.push(says("billing", [("mail", 2)])).await;
    world.push(says("billing", [])).await;
    for (group, limit) in [("api", Some(3)), ("user/*", Some(1)), ("cluster", Some(9)), ("mail", None)] {
        assert_eq!(world.limit(group).await, limit, "{group}");
    }
    let queues = world.store.queues().await.expect("queues");
    assert_eq!(queues.iter().find(|queue| &*queue.queue == "q").map(|queue| queue.priority), Some(7));
    assert_eq!(world.schedule("nightly").await.spec, shop.schedules[&name("nightly")]);
    assert_eq!(world.store.configurations().await, Ok(vec![shop]));
}

pub(super) async fn a_push_replaces_what_its_app_said_as_a_whole(world: &World) {
    world.push(says("shop", [("api", 3), ("mail", 2)])).await;
    world.push(says("billing", [("pdf", 4)])).await;
    world.push(says("shop", [("api", 5)])).await;
    let limits = [world.limit("api").await, world.limit("mail").await, world.limit("pdf").await];
    assert_eq!(limits, [Some(5), None, Some(4)]);
}

pub(super) async fn of_two_apps_the_newest_push_counts(world: &World) {
    world.submit_many(9, job("api")).await;
    let worker = world.worker("w1", ["api"]).await;
    world.push(says("shop", [("api", 1)])).await;
    world.push(says("billing", [("api", 3)])).await;
    let sources = world.status("api").await.sources;
    assert_eq!((sources.config, sources.config_app), (Some(3), Some(name("billing"))));
    assert_eq!(worker.claim(10).await.len(), 3);
    world.push(says("shop", [("api", 5)])).await;
    assert_eq!(world.status("api").await.sources.config_app, Some(name("shop")));
    assert_eq!(worker.claim(10).await.len(), 2);
}

pub(super) async fn what_the_newest_app_drops_the_other_app_says_again(world: &World) {
    let shop = Configuration { queue_priorities: [(name("q"), 7)].into(), ..says("shop", [("api", 2)]) };
    let billing =
        Configuration { queue_priorities: [(name("q"), 8)].into(), ..says("billing", [("api", 5)]) };
    world.push(shop).await;
    world.push(billing).await;
    let priority = async || world.store.queues().await.expect("queues")[0].priority;
    assert_eq!((world.limit("api").await, priority().await), (Some(5), 8));
    world.push(says("billing", [("mail", 1)])).await;
    assert_eq!((world.limit("api").await, priority().await), (Some(2), 7));
}

pub(super) async fn the_same_push_again_changes_nothing_not_even_the_order(world: &World) {
    world.push(says("shop", [("api", 2)])).await;
    world.push(says("billing", [("api", 5)])).await;
    let before = (world.snapshot().await, world.store.pushes().await);
    world.advance(1_000).await;
    assert_eq!(world.push(says("shop", [("api", 2)])).await, Pushed::default());
    assert_eq!(world.limit("api").await, Some(5), "a worker of shop that restarts does not flap it");
    assert_eq!((world.snapshot().await, world.store.pushes().await), before);
    assert_eq!(world.push(Configuration::of(name("new"))).await, Pushed::default());
    assert_eq!(world.store.configurations().await.expect("configurations").len(), 2);
}

pub(super) async fn a_push_says_by_name_what_it_added_changed_and_removed(world: &World) {
    let first = Configuration {
        queue_priorities: [(name("q"), 7)].into(),
        retention: PartialRetention { failed_ms: Some(5_000), ..PartialRetention::default() },
        ..says("shop", [("api", 3), ("user/*", 1)])
    };
    let added = world.push(first).await;
    assert_eq!(
        added.changes,
        [
            change(Setting::Limit, "api", None, Some("3")),
            change(Setting::Limit, "user/*", None, Some("1")),
            change(Setting::QueuePriority, "q", None, Some("7")),
            change(Setting::Retention, "failed", None, Some("5000")),
        ]
    );
    let schedules = [(name("nightly"), cron("0 3 * * *", "report"))].into();
    let second = Configuration { schedules, ..says("shop", [("api", 4), ("mail", 1)]) };
    let pushed = world.push(second.clone()).await;
    assert_eq!(
        pushed.changes,
        [
            change(Setting::Limit, "api", Some("3"), Some("4")),
            change(Setting::Limit, "mail", None, Some("1")),
            change(Setting::Limit, "user/*", Some("1"), None),
            change(Setting::QueuePriority, "q", Some("7"), None),
            change(Setting::Schedule, "nightly", None, Some("0 3 * * * UTC report")),
            change(Setting::Retention, "failed", Some("5000"), None),
        ]
    );
    let mut third = second;
    third.schedules.values_mut().for_each(|schedule| schedule.priority = 1);
    let text = Some("0 3 * * * UTC report");
    assert_eq!(world.push(third).await.changes, [change(Setting::Schedule, "nightly", text, text)]);
}

pub(super) async fn pushes_are_remembered_with_time_app_and_changes(world: &World) {
    let start = world.store.now().await.expect("time");
    world.push(says("shop", [("api", 3)])).await;
    world.advance(1_000).await;
    world.register(registers("billing", "mail", Some(2))).await;
    world.advance(1_000).await;
    world.push(says("shop", [])).await;
    let pushes = world.store.pushes().await.expect("pushes");
    let push = |ms, app: &str, change| Push::new(start.plus_ms(ms), name(app), vec![change]);
    assert_eq!(
        pushes,
        [
            push(2_000, "shop", change(Setting::Limit, "api", Some("3"), None)),
            push(1_000, "billing", change(Setting::Task, "mail", None, Some("group=mail max_concurrent=2"))),
            push(0, "shop", change(Setting::Limit, "api", None, Some("3"))),
        ]
    );
}

pub(super) async fn what_an_app_changes_at_one_moment_is_one_push(world: &World) {
    world.push(says("shop", [("api", 3)])).await;
    world
        .store
        .register(vec![registers("shop", "a", Some(1)), registers("shop", "b", None)])
        .await
        .expect("fine");
    world.push(says("billing", [("pdf", 3)])).await;
    world.push(says("shop", [("api", 4)])).await;
    let pushes = world.store.pushes().await.expect("pushes");
    let names: Vec<Vec<&str>> =
        pushes.iter().map(|push| push.changes.iter().map(|change| &*change.name).collect()).collect();
    assert_eq!(names, [vec!["api"], vec!["pdf"], vec!["api", "a", "b"]]);
}

pub(super) async fn the_last_pushes_are_remembered_and_large_ones_cut(world: &World) {
    let most = caps::PUSH_CHANGES as u32;
    let many = (0..most + 3).map(|n| (group_ref(&format!("g{n:04}")), 1)).collect();
    let pushed = world.push(Configuration { limits: many, ..Configuration::of(name("big")) }).await;
    assert_eq!(pushed.changes.len(), caps::PUSH_CHANGES + 3, "the answer has every change");
    let pushes = world.store.pushes().await.expect("pushes");
    assert_eq!((pushes[0].changes.len(), pushes[0].unlisted), (caps::PUSH_CHANGES, 3));
    for limit in 0..caps::PUSHES as u32 {
        world.advance(1).await;
        world.push(says("shop", [("api", limit)])).await;
    }
    let pushes = world.store.pushes().await.expect("pushes");
    assert_eq!(pushes.len(), caps::PUSHES);
    let newest = caps::PUSHES - 1;
    assert_eq!(pushes[0].changes[0].new, Some(newest.to_string()));
    assert!(pushes.iter().all(|push| push.app == name("shop")), "the oldest one is forgotten");
}

pub(super) async fn a_registration_is_of_its_app(world: &World) {
    world.register(registers("shop", "api", Some(2))).await;
    world.register(registers("billing", "api", Some(5))).await;
    assert_eq!(world.limit("api").await, Some(5), "the newest counts");
    world.register(registers("shop", "api", Some(2))).await;
    assert_eq!(world.limit("api").await, Some(5), "the same again is not newer");
    world.register(registers("billing", "api", None)).await;
    assert_eq!(world.limit("api").await, Some(2), "an app clears its own limit only");
    world.register(registers("shop", "api", None)).await;
    assert_eq!(world.limit("api").await, None);
}

pub(super) async fn the_newest_registration_of_any_app_gives_group_and_timeout(world: &World) {
    let of = |app: &str, group: &str| TaskOptions { group: Some(name(group)), ..registers(app, "t", None) };
    world.register(of("shop", "old")).await;
    world.register(of("billing", "new")).await;
    world.register(of("shop", "old")).await;
    let job = world.submit(job("t")).await;
    assert_eq!(world.view(job).await.group, name("new"));
}

pub(super) async fn a_schedule_that_two_apps_name_stays_with_the_other(world: &World) {
    world.push(plans("shop", "nightly", cron("0 3 * * *", "report"))).await;
    let next = world.schedule("nightly").await.next;
    world.push(plans("billing", "nightly", cron("0 4 * * *", "invoice"))).await;
    let later = world.schedule("nightly").await;
    assert_eq!((&*later.spec.task, later.next > next), ("invoice", true));
    world.push(Configuration::of(name("billing"))).await;
    let again = world.schedule("nightly").await;
    assert_eq!((&*again.spec.task, again.next), ("report", next));
    world.push(Configuration::of(name("shop"))).await;
    assert_eq!(world.store.schedules().await, Ok(vec![]));
}

pub(super) async fn a_disabled_schedule_stays_so_whichever_app_it_is_of(world: &World) {
    world.push(plans("shop", "nightly", cron("0 3 * * *", "report"))).await;
    world.enable("nightly", false).await;
    world.push(plans("billing", "nightly", cron("0 4 * * *", "invoice"))).await;
    world.push(Configuration::of(name("billing"))).await;
    let schedule = world.schedule("nightly").await;
    assert_eq!((schedule.enabled, schedule.next), (false, None));
}

pub(super) async fn apps_say_each_part_of_the_retention_by_itself(world: &World) {
    let none = PartialRetention::default();
    let retention = PartialRetention { succeeded_ms: Some(1_000), cancelled_ms: Some(1_000), ..none };
    world.push(Configuration { retention, ..Configuration::of(name("shop")) }).await;
    let retention = PartialRetention { cancelled_ms: Some(9_000), ..none };
    world.push(Configuration { retention, ..Configuration::of(name("billing")) }).await;
    let worker = world.worker("w1", ["t"]).await;
    let succeeded = world.submit(job("t")).await;
    worker.succeed(&worker.claim_one().await).await;
    let cancelled = world.submit(job("t")).await;
    world.cancel(cancelled).await.expect("it is there");
    world.advance(1_000).await;
    world.sweep().await;
    refused(world.store.job(succeeded).await, ErrorKind::NotFound);
    assert_eq!(world.state(cancelled).await, JobState::Cancelled, "billing keeps it longer");
    world.push(Configuration::of(name("billing"))).await;
    world.sweep().await;
    refused(world.store.job(cancelled).await, ErrorKind::NotFound);
}
