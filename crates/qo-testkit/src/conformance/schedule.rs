//! Schedules: jobs that the clock submits, once across the fleet, and not while the last one is live unless they may
//! overlap.

use super::*;

pub(super) const MINUTE_MS: u64 = 60_000;

/// A moment of UTC, counted from the day on which the world starts, 15 January 2027: a Friday, at 8 o'clock.
pub(super) fn on(day: u64, hour: u64, minute: u64) -> Time {
    let midnight = START.as_millis() - 8 * 3_600_000;
    Time::from_millis(midnight).plus_ms(day * DAY_MS + hour * 3_600_000 + minute * MINUTE_MS)
}

pub(super) async fn until(world: &World, time: Time) {
    let now = world.store.now().await.expect("the time");
    world.advance(time.ms_since(now)).await;
}

/// A schedule for every minute.
pub(super) fn every_minute() -> Schedule {
    cron("* * * * *", "report")
}

/// What became of the last tick.
pub(super) async fn last(world: &World, schedule: &str) -> (Time, TickOutcome) {
    let last = world.schedule(schedule).await.last.expect("a tick came");
    (last.tick, last.outcome)
}

pub(super) async fn a_schedule_submits_its_job_at_its_tick(world: &World) {
    let payload = Json::parse("payload", "[7]").expect("JSON");
    let (queue, spec) = (name("q"), every_minute());
    let spec = Schedule { payload, queue, priority: -3, max_attempts: 7, timeout_ms: Some(900), ..spec };
    world.plan([("nightly", spec.clone())]).await;
    let status = world.schedule("nightly").await;
    assert_eq!((status.spec, status.enabled), (spec, true));
    assert_eq!((status.next, status.last), (Some(at(MINUTE_MS)), None));
    world.advance(MINUTE_MS - 1).await;
    assert_eq!(world.sweep().await, Swept::default());
    world.advance(1).await;
    assert_eq!(world.sweep().await, Swept { fired: 1, ..Swept::default() });
    let claimed = world.worker("w1", ["report"]).await.claim_one().await;
    let view = world.view(claimed.id).await;
    assert_eq!(last(world, "nightly").await, (at(MINUTE_MS), TickOutcome::Accepted(claimed.id)));
    assert_eq!(world.schedule("nightly").await.next, Some(at(2 * MINUTE_MS)));
    assert_eq!(
        (view.key, view.idempotency_key),
        (Some(key("nightly")), Some(key("nightly:2027-01-15T08:01:00Z")))
    );
    assert_eq!((&*view.queue, view.priority, view.max_attempts, view.run_at), ("q", -3, 7, at(MINUTE_MS)));
    assert_eq!((&*view.group, claimed.payload.as_str(), claimed.timeout_ms), ("report", "[7]", Some(900)));
    assert_eq!(claimed.id.0.get_version_num(), 7);
}

pub(super) async fn a_schedule_has_the_documented_defaults(world: &World) {
    world.plan([("nightly", cron("0 9 * * *", "report"))]).await;
    until(world, on(0, 9, 0)).await;
    assert_eq!(world.sweep().await.fired, 1);
    let detail = world.detail(world.all_jobs().await[0].id).await;
    let view = &detail.view;
    assert_eq!((&*view.queue, view.priority, view.max_attempts, view.cost), ("default", 0, 3, 1));
    assert_eq!((detail.payload.as_str(), view.good_until, view.workflow.clone()), ("null", None, None));
    assert_eq!(world.limit("report/nightly").await, Some(1));
}

pub(super) async fn a_tick_runs_once_across_the_fleet(world: &World) {
    let mut workers = Vec::new();
    for place in 0..5 {
        world.plan([("nightly", every_minute())]).await;
        workers.push(world.open(serving(&format!("w{place}"), ["report"]).lease(MINUTE_MS * 2)).await);
    }
    world.advance(MINUTE_MS).await;
    let claims = join_all(workers.iter().map(|worker| worker.claim(3))).await;
    assert_eq!(claims.concat().len(), 1);
    assert_eq!((world.sweep().await.fired, world.all_jobs().await.len()), (0, 1));
    for (worker, claimed) in workers.iter().zip(&claims) {
        for job in claimed {
            worker.succeed(job).await;
        }
    }
    assert_eq!((world.sweep().await.fired, world.all_jobs().await.len()), (0, 1), "its end brings no second");
}

pub(super) async fn an_exchange_fires_and_gets_the_job_in_the_same_step(world: &World) {
    world.plan([("nightly", every_minute())]).await;
    let worker = world.open(serving("w1", ["report"]).lease(MINUTE_MS * 2)).await;
    assert_eq!(worker.claim(1).await, []);
    world.advance(MINUTE_MS).await;
    assert_eq!(worker.claim(1).await.len(), 1);
}

pub(super) async fn only_exchanges_and_sweeps_fire(world: &World) {
    world.plan([("nightly", every_minute())]).await;
    world.advance(MINUTE_MS).await;
    world.hold(program("gpu")).await;
    world.submit(job("t")).await;
    world.worker("w1", ["t"]).await.close().await;
    assert_eq!((world.all_jobs().await.len(), world.schedule("nightly").await.last), (1, None));
    assert_eq!(world.sweep().await.fired, 1);
}

pub(super) async fn a_schedule_never_overlaps_itself(world: &World) {
    world.plan([("nightly", every_minute())]).await;
    let worker = world.open(serving("w1", ["report"]).lease(MINUTE_MS * 9)).await;
    let mut fired = Vec::new();
    for minute in 1..=4 {
        world.advance(MINUTE_MS).await;
        fired.push(world.sweep().await.fired);
        match minute {
            2 => drop(worker.claim_one().await),
            3 => {
                let running = world.all_jobs().await[0].running.clone().expect("it runs");
                let settle =
                    Settle { job: world.all_jobs().await[0].id, token: running.token, outcome: success() };
                assert_eq!(last(world, "nightly").await, (at(3 * MINUTE_MS), TickOutcome::Skipped));
                worker.exchange(vec![settle], 0).await;
            }
            _ => {}
        }
    }
    assert_eq!(fired, [1, 0, 0, 1], "while it waits, while it runs, and when it has ended");
}

pub(super) async fn no_limit_of_a_key_lets_a_schedule_overlap_itself(world: &World) {
    world.set("report/*", 5).await;
    world.plan([("nightly", every_minute())]).await;
    let mut fired = Vec::new();
    for _ in 0..3 {
        world.advance(MINUTE_MS).await;
        fired.push(world.sweep().await.fired);
    }
    assert_eq!(fired, [1, 0, 0]);
    let status = world.schedule("nightly").await;
    let job = world.all_jobs().await[0].id;
    assert_eq!(
        (status.last_job, status.last.map(|last| last.outcome)),
        (Some(job), Some(TickOutcome::Skipped))
    );
    world.cancel(job).await.expect("it is there");
    world.advance(MINUTE_MS).await;
    assert_eq!(world.sweep().await.fired, 1);
}

pub(super) async fn schedules_do_not_wait_for_each_other(world: &World) {
    world.plan([("a", every_minute()), ("b", every_minute())]).await;
    world.advance(MINUTE_MS).await;
    assert_eq!(world.sweep().await.fired, 2, "the same task, but each has its own key");
}

pub(super) async fn a_schedule_may_overlap_itself(world: &World) {
    world.plan([("nightly", Schedule { overlap: true, ..every_minute() })]).await;
    for _ in 0..3 {
        world.advance(MINUTE_MS).await;
        assert_eq!(world.sweep().await.fired, 1);
    }
    assert_eq!(world.limit("report/nightly").await, None);
    assert_eq!(world.worker("w1", ["report"]).await.claim(10).await.len(), 3);
}

pub(super) async fn an_operators_limit_counts_instead_of_the_schedules_own(world: &World) {
    world.plan([("nightly", every_minute())]).await;
    world.set("report/nightly", 2).await;
    let mut fired = Vec::new();
    for _ in 0..2 {
        world.advance(MINUTE_MS).await;
        fired.push(world.sweep().await.fired);
    }
    assert_eq!(fired, [1, 0], "its ticks do not overlap all the same");
    assert!(
        matches!(world.trigger("nightly").await, Ok(Submitted::Accepted(_))),
        "but there is room for two"
    );
    refused(world.trigger("nightly").await, ErrorKind::LimitReached);
}

pub(super) async fn an_operator_may_trigger_a_schedule(world: &World) {
    world.plan([("nightly", every_minute())]).await;
    let before = world.schedule("nightly").await;
    let id = world.job_id();
    assert_eq!(world.store.trigger_schedule(name("nightly"), id).await, Ok(Submitted::Accepted(id)));
    assert_eq!(world.store.trigger_schedule(name("nightly"), id).await, Ok(Submitted::Existing(id)));
    assert_eq!(world.schedule("nightly").await, before, "its ticks stay as they are");
    let view = world.view(id).await;
    assert_eq!((view.key, view.idempotency_key, view.run_at), (Some(key("nightly")), None, START));
    refused(world.trigger("nightly").await, ErrorKind::LimitReached);
    world.advance(MINUTE_MS).await;
    world.sweep().await;
    assert_eq!(last(world, "nightly").await.1, TickOutcome::Skipped, "it has not ended");
    refused(world.trigger("unknown").await, ErrorKind::NotFound);
}

pub(super) async fn a_disabled_or_an_overlapping_schedule_may_be_triggered(world: &World) {
    world.plan([("nightly", Schedule { overlap: true, ..every_minute() })]).await;
    world.enable("nightly", false).await;
    for _ in 0..3 {
        world.trigger("nightly").await.expect("it may overlap");
    }
    assert_eq!((world.all_jobs().await.len(), world.schedule("nightly").await.next), (3, None));
}

pub(super) async fn a_disabled_schedule_does_not_fire_and_makes_up_for_nothing(world: &World) {
    world.plan([("nightly", Schedule { missed: Missed::All, ..every_minute() })]).await;
    world.enable("nightly", false).await;
    let status = world.schedule("nightly").await;
    assert_eq!((status.enabled, status.next), (false, None));
    world.advance(2 * MINUTE_MS + 1).await;
    assert_eq!(world.sweep().await.fired, 0);
    world.enable("nightly", true).await;
    assert_eq!(world.schedule("nightly").await.next, Some(at(3 * MINUTE_MS)));
    assert_eq!(world.sweep().await.fired, 0);
    refused(world.store.enable_schedule(name("unknown"), true).await, ErrorKind::NotFound);
    refused(world.store.enable_schedule(name("unknown"), false).await, ErrorKind::NotFound);
}

pub(super) async fn enabling_or_disabling_twice_is_the_same_as_once(world: &World) {
    world.plan([("on", every_minute()), ("off", every_minute())]).await;
    world.enable("off", false).await;
    world.advance(MINUTE_MS + 1).await;
    let before = world.snapshot().await;
    world.enable("on", true).await;
    world.enable("off", false).await;
    assert_eq!(world.snapshot().await, before, "the tick that came is still to run");
    assert_eq!(world.sweep().await.fired, 1);
}

pub(super) async fn a_configuration_that_names_a_schedule_again_keeps_its_ticks(world: &World) {
    world.plan([("nightly", every_minute())]).await;
    world.advance(MINUTE_MS + 500).await;
    let payload = Json::parse("payload", "2").expect("JSON");
    world.plan([("nightly", Schedule { payload, ..every_minute() })]).await;
    assert_eq!(world.schedule("nightly").await.next, Some(at(MINUTE_MS)), "it came, and is not lost");
    assert_eq!(world.sweep().await.fired, 1);
    assert_eq!(world.detail(world.all_jobs().await[0].id).await.payload.as_str(), "2");
    let before = world.schedule("nightly").await;
    world.plan([("nightly", before.spec.clone()), ("other", every_minute())]).await;
    assert_eq!(world.schedule("nightly").await, before);
}

pub(super) async fn another_cron_expression_or_zone_finds_its_ticks_anew(world: &World) {
    world.plan([("a", every_minute()), ("b", cron("0 3 * * *", "report"))]).await;
    world.advance(MINUTE_MS + 500).await;
    world
        .plan([
            ("a", cron("*/2 * * * *", "report")),
            ("b", Schedule { timezone: "Europe/Berlin".into(), ..cron("0 3 * * *", "report") }),
        ])
        .await;
    let next = (world.schedule("a").await.next, world.schedule("b").await.next);
    assert_eq!(next, (Some(at(2 * MINUTE_MS)), Some(on(1, 2, 0))));
    assert_eq!(world.sweep().await.fired, 0);
}

pub(super) async fn a_schedule_that_a_configuration_does_not_name_is_gone(world: &World) {
    world.plan([("nightly", every_minute())]).await;
    world.advance(MINUTE_MS).await;
    world.sweep().await;
    world.enable("nightly", false).await;
    world.configure([("api", 3)]).await;
    assert_eq!(world.store.schedules().await, Ok(vec![]));
    world.advance(MINUTE_MS).await;
    assert_eq!(world.sweep().await.fired, 0);
    refused(world.trigger("nightly").await, ErrorKind::NotFound);
    assert_eq!(world.all_jobs().await.len(), 1, "its jobs stay");
    world.plan([("nightly", every_minute())]).await;
    let status = world.schedule("nightly").await;
    assert_eq!(
        (status.enabled, status.next, status.last),
        (true, Some(at(3 * MINUTE_MS)), None),
        "a new one"
    );
}

pub(super) async fn a_disabled_schedule_stays_disabled_through_configurations(world: &World) {
    world.plan([("nightly", every_minute())]).await;
    world.enable("nightly", false).await;
    world.plan([("nightly", every_minute())]).await;
    world.plan([("nightly", cron("*/5 * * * *", "report"))]).await;
    let status = world.schedule("nightly").await;
    assert_eq!((status.enabled, status.next, &*status.spec.cron), (false, None, "*/5 * * * *"));
    world.enable("nightly", true).await;
    assert_eq!(world.schedule("nightly").await.next, Some(at(5 * MINUTE_MS)));
}

pub(super) async fn schedules_fire_by_tick_then_by_name(world: &World) {
    world.plan([("b", every_minute()), ("a", every_minute()), ("c", cron("*/30 * * * * *", "report"))]).await;
    world.advance(MINUTE_MS).await;
    assert_eq!(world.sweep().await.fired, 3);
    let jobs = world.all_jobs().await;
    let keys: Vec<_> = jobs.iter().filter_map(|view| view.key.as_deref()).collect();
    assert_eq!(keys, ["c", "a", "b"]);
    let names: Vec<_> =
        world.store.schedules().await.expect("schedules").iter().map(|s| s.schedule.clone()).collect();
    assert_eq!(names, [name("a"), name("b"), name("c")], "but they are listed by name");
}

pub(super) async fn a_schedules_job_is_a_job_like_any_other(world: &World) {
    world.register(TaskOptions { group: Some(name("heavy")), ..task("report") }).await;
    world.set("heavy", 0).await;
    world.plan([("nightly", every_minute())]).await;
    world.advance(MINUTE_MS).await;
    assert_eq!(world.sweep().await.fired, 1);
    let worker = world.worker("w1", ["report"]).await;
    assert_eq!(worker.claim(1).await, [], "its group holds it");
    world.set("heavy", 1).await;
    let claimed = worker.claim_one().await;
    assert_eq!(&*claimed.group, "heavy");
    assert_eq!(worker.settle(&claimed, retry(0)).await, Ok(JobState::Pending));
    worker.succeed(&worker.claim_one().await).await;
}

pub(super) async fn a_schedule_whose_key_is_held_neither_fires_nor_is_triggered(world: &World) {
    world.plan([("nightly", every_minute())]).await;
    world.set("report/nightly", 0).await;
    world.advance(MINUTE_MS).await;
    assert_eq!(world.sweep().await.fired, 0);
    assert_eq!(last(world, "nightly").await, (at(MINUTE_MS), TickOutcome::Skipped));
    refused(world.trigger("nightly").await, ErrorKind::LimitReached);
    world.unset("report/nightly").await;
    world.trigger("nightly").await.expect("nothing holds it");
}
