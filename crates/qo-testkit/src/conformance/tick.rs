//! Ticks: when a schedule's ticks come, by which clock, and what happens to missed ones.

use super::schedule::{MINUTE_MS, every_minute, last, on, until};
use super::*;

fn in_zone(expression: &str, zone: &str) -> Schedule {
    Schedule { timezone: zone.into(), overlap: true, ..cron(expression, "report") }
}

/// The next ticks of a schedule that is pushed now, as they come.
async fn ticks(world: &World, schedule: Schedule, count: usize) -> Vec<Time> {
    world.plan([("s", schedule)]).await;
    let mut ticks = Vec::new();
    for _ in 0..count {
        let next = world.schedule("s").await.next.expect("another tick");
        until(world, next).await;
        assert_eq!(world.sweep().await.fired, 1);
        let last = world.schedule("s").await.last.expect("a tick came");
        assert_eq!(last.tick, next);
        ticks.push(next);
    }
    ticks
}

pub(super) async fn five_fields_are_minutes_and_six_begin_with_seconds(world: &World) {
    let expected = [on(0, 8, 30), on(0, 9, 0), on(0, 9, 30)];
    assert_eq!(ticks(world, in_zone("*/30 * * * *", "UTC"), 3).await, expected);
    let now = on(0, 9, 30);
    let expected = [now.plus_ms(10_000), now.plus_ms(30_000), now.plus_ms(70_000)];
    assert_eq!(ticks(world, in_zone("10,30 * * * * *", "UTC"), 3).await, expected);
}

pub(super) async fn days_months_and_weekdays_count(world: &World) {
    assert_eq!(ticks(world, in_zone("0 3 * * MON", "UTC"), 2).await, [on(3, 3, 0), on(10, 3, 0)]);
    assert_eq!(ticks(world, in_zone("15 12 1 3 *", "UTC"), 1).await, [on(45, 12, 15)], "the first of March");
}

pub(super) async fn a_schedule_keeps_the_time_of_its_zone(world: &World) {
    world
        .plan([
            ("berlin", in_zone("0 3 * * *", "Europe/Berlin")),
            ("new_york", in_zone("0 9 * * *", "America/New_York")),
            ("utc", cron("0 3 * * *", "report")),
        ])
        .await;
    let mut next = Vec::new();
    for schedule in ["berlin", "new_york", "utc"] {
        next.extend(world.schedule(schedule).await.next);
    }
    assert_eq!(next, [on(1, 2, 0), on(0, 14, 0), on(1, 3, 0)]);
}

pub(super) async fn a_fixed_time_that_does_not_exist_fires_once_after_the_jump(world: &World) {
    // 28 March 2027: 02:00 in Berlin is 03:00.
    until(world, on(71, 12, 0)).await;
    let expected = [on(72, 1, 0), on(73, 0, 30)];
    assert_eq!(ticks(world, in_zone("30 2 * * *", "Europe/Berlin"), 2).await, expected);
}

pub(super) async fn a_fixed_time_that_comes_twice_fires_once_the_first_time(world: &World) {
    // 31 October 2027: 03:00 in Berlin is 02:00 again.
    until(world, on(288, 12, 0)).await;
    let expected = [on(289, 0, 30), on(290, 1, 30)];
    assert_eq!(ticks(world, in_zone("30 2 * * *", "Europe/Berlin"), 2).await, expected);
}

pub(super) async fn a_schedule_for_every_so_often_goes_on_through_both_changes(world: &World) {
    until(world, on(72, 0, 15)).await;
    let spring = [on(72, 0, 30), on(72, 1, 0), on(72, 1, 30), on(72, 2, 0)];
    assert_eq!(ticks(world, in_zone("*/30 * * * *", "Europe/Berlin"), 4).await, spring);
    world.plan([]).await;
    until(world, on(289, 0, 15)).await;
    let autumn = [on(289, 0, 30), on(289, 1, 0), on(289, 1, 30), on(289, 2, 0)];
    assert_eq!(ticks(world, in_zone("*/30 * * * *", "Europe/Berlin"), 4).await, autumn);
}

pub(super) async fn a_tick_whose_job_was_there_before_is_that_job(world: &World) {
    world.plan([("nightly", every_minute())]).await;
    let by_hand = world.submit(job("report").once("nightly:2027-01-15T08:01:00Z")).await;
    world.advance(MINUTE_MS).await;
    assert_eq!(world.sweep().await.fired, 0);
    assert_eq!(last(world, "nightly").await, (at(MINUTE_MS), TickOutcome::Existing(by_hand)));
    assert_eq!(world.all_jobs().await.len(), 1);
}

pub(super) async fn a_tick_whose_key_another_job_has_is_refused_and_remembered(world: &World) {
    world.plan([("nightly", every_minute())]).await;
    world.submit(job("report").payload("1").once("nightly:2027-01-15T08:01:00Z")).await;
    world.advance(MINUTE_MS).await;
    assert_eq!(world.sweep().await.fired, 0);
    let (tick, outcome) = last(world, "nightly").await;
    assert!(matches!(outcome, TickOutcome::Refused(_)), "{outcome:?}");
    assert_eq!((tick, world.schedule("nightly").await.next), (at(MINUTE_MS), Some(at(2 * MINUTE_MS))));
}

pub(super) async fn of_missed_ticks_the_latest_one_runs(world: &World) {
    world.plan([("nightly", every_minute())]).await;
    world.advance(10 * MINUTE_MS + 30_000).await;
    assert_eq!((world.sweep().await.fired, world.sweep().await.fired), (1, 0));
    let status = world.schedule("nightly").await;
    let tick = status.last.expect("a tick came").tick;
    assert_eq!((tick, status.next), (at(10 * MINUTE_MS), Some(at(11 * MINUTE_MS))));
    assert_eq!(world.all_jobs().await[0].idempotency_key, Some(key("nightly:2027-01-15T08:10:00Z")));
    world.plan([("hourly", cron("0 * * * *", "report"))]).await;
    until(world, on(3, 8, 59)).await;
    assert_eq!(world.sweep().await.fired, 1, "however late it is");
    assert_eq!(world.schedule("hourly").await.last.map(|last| last.tick), Some(on(3, 8, 0)));
}

pub(super) async fn all_missed_ticks_run_one_after_another(world: &World) {
    world.plan([("nightly", Schedule { missed: Missed::All, ..every_minute() })]).await;
    world.advance(3 * MINUTE_MS + 30_000).await;
    assert_eq!((world.sweep().await.fired, world.sweep().await.fired), (3, 0));
    let worker = world.worker("w1", ["report"]).await;
    for minute in 1..=3 {
        let claimed = worker.claim(10).await;
        assert_eq!(claimed.len(), 1, "one at a time");
        let expected = key(&format!("nightly:2027-01-15T08:0{minute}:00Z"));
        assert_eq!(world.view(claimed[0].id).await.idempotency_key, Some(expected));
        worker.succeed(&claimed[0]).await;
    }
}

pub(super) async fn a_step_makes_up_for_a_hundred_missed_ticks_and_the_next_goes_on(world: &World) {
    world.plan([("s", Schedule { missed: Missed::All, ..cron("* * * * * *", "report") })]).await;
    world.advance(250_500).await;
    let mut fired = Vec::new();
    for next in [101, 201, 251, 251] {
        fired.push(world.sweep().await.fired);
        assert_eq!(world.schedule("s").await.next, Some(at(next * 1_000)));
    }
    assert_eq!(fired, [100, 100, 50, 0]);
}

pub(super) async fn a_tick_more_than_a_minute_late_may_be_skipped(world: &World) {
    world.plan([("hourly", Schedule { missed: Missed::Skip, ..cron("0 * * * *", "report") })]).await;
    until(world, on(0, 9, 1)).await;
    assert_eq!(world.sweep().await.fired, 1, "a minute late is not more than a minute late");
    let seen = world.schedule("hourly").await;
    until(world, on(0, 12, 1)).await;
    world.advance(1).await;
    assert_eq!(world.sweep().await.fired, 0);
    let status = world.schedule("hourly").await;
    assert_eq!((status.next, status.last), (Some(on(0, 13, 0)), seen.last), "no tick ran");
}

pub(super) async fn of_missed_ticks_one_that_is_on_time_runs_though_others_are_skipped(world: &World) {
    world.plan([("hourly", Schedule { missed: Missed::Skip, ..cron("0 * * * *", "report") })]).await;
    until(world, on(0, 12, 0)).await;
    assert_eq!(world.sweep().await.fired, 1);
    let job = world.all_jobs().await[0].id;
    assert_eq!(last(world, "hourly").await, (on(0, 12, 0), TickOutcome::Accepted(job)));
}

pub(super) async fn a_tick_sees_what_has_just_ended(world: &World) {
    world.plan([("nightly", Schedule { max_attempts: 1, ..every_minute() })]).await;
    world.advance(MINUTE_MS).await;
    world.open(serving("dead", ["report"]).lease(MINUTE_MS)).await.claim_one().await;
    world.advance(MINUTE_MS).await;
    let swept = world.sweep().await;
    assert_eq!((swept.attempts, swept.fired), (1, 1), "the last job has failed in the same step");
}

pub(super) async fn a_tick_that_ran_is_not_run_again_by_a_schedule_of_that_name(world: &World) {
    world.plan([("nightly", every_minute())]).await;
    world.advance(MINUTE_MS).await;
    assert_eq!(world.sweep().await.fired, 1);
    world.plan([]).await;
    world.plan([("nightly", every_minute())]).await;
    assert_eq!(
        (world.sweep().await.fired, world.schedule("nightly").await.next),
        (0, Some(at(2 * MINUTE_MS)))
    );
}

pub(super) async fn a_tick_that_was_opened_again_keeps_the_next_one_from_running(world: &World) {
    world.plan([("nightly", every_minute())]).await;
    world.advance(MINUTE_MS).await;
    world.sweep().await;
    let job = world.all_jobs().await[0].id;
    assert_eq!(world.cancel(job).await, Ok(JobState::Cancelled));
    assert_eq!(world.retry(job).await, Ok(JobState::Pending));
    refused(world.trigger("nightly").await, ErrorKind::LimitReached);
    world.advance(MINUTE_MS).await;
    assert_eq!(world.sweep().await.fired, 0);
    assert_eq!(last(world, "nightly").await, (at(2 * MINUTE_MS), TickOutcome::Skipped));
}
