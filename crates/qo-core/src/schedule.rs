//! Schedules: jobs that the clock submits, once across the fleet.
//!
//! A crate does the arithmetic of cron expressions and time zones. The rule book decides when a schedule fires, and
//! what becomes of ticks that passed while no process swept. The time zones are compiled in, so every machine agrees on
//! them.
//!
//! | on a day when | a schedule that names hours, `30 2,14 * * *` | an interval, `*/15 * * * *` |
//! |---|---|---|
//! | 02:30 does not exist | fires once, when the clock has jumped | goes on by the clock that is shown |
//! | 02:30 comes twice | fires the first time only | fires both times |

use crate::{Error, ErrorKind, JobId, Json, Key, Name, NewJob, OnLimit, Result, Time, caps, job::within};
use croner::errors::CronError;
use croner::parser::{CronParser, Seconds, Year};
use jiff::civil::DateTime;
use jiff::tz::{AmbiguousOffset, TimeZone};
use jiff::{Timestamp, Zoned};
use serde::{Deserialize, Serialize};
use std::fmt;

/// What becomes of ticks that passed while no worker exchanged and no process swept.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Missed {
    /// The latest one runs.
    #[default]
    Latest,
    /// Each of them runs, one after another.
    All,
    /// Only a tick that is at most a minute late runs ([`TICK_GRACE_MS`](caps::TICK_GRACE_MS)).
    Skip,
}

/// A schedule, as configured.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Schedule {
    /// When it fires.
    ///
    /// Five fields (minute, hour, day of month, month, day of week), or six with seconds first, or one of `@hourly`,
    /// `@daily`, `@weekly`, `@monthly`, `@yearly`.
    pub cron: String,
    /// A name of the time-zone database, such as `Europe/Berlin`. Defaults to `UTC`.
    #[serde(default = "utc")]
    pub timezone: String,
    /// The handler that runs its jobs.
    pub task: Name,
    /// What the handler gets. Defaults to `null`.
    #[serde(default = "Json::null")]
    pub payload: Json,
    /// The queue of its jobs. Defaults to `default`.
    #[serde(default = "crate::job::default_queue")]
    pub queue: Name,
    /// The priority of its jobs. Lower runs first. Defaults to 0.
    #[serde(default)]
    pub priority: i32,
    /// How many attempts each job has. Defaults to 3.
    #[serde(default = "crate::job::default_max_attempts")]
    pub max_attempts: u32,
    /// How long one attempt may run. Defaults to the task's, else no limit.
    #[serde(default)]
    pub timeout_ms: Option<u64>,
    /// What becomes of missed ticks. Defaults to `latest`.
    #[serde(default)]
    pub missed: Missed,
    /// Whether a tick runs while the job of an earlier tick is live. Defaults to false.
    #[serde(default)]
    pub overlap: bool,
}

fn utc() -> String {
    "UTC".into()
}

impl Schedule {
    /// A schedule with every option at its default.
    pub fn new(cron: impl Into<String>, task: Name) -> Self {
        Self {
            cron: cron.into(),
            timezone: utc(),
            task,
            payload: Json::null(),
            queue: crate::job::default_queue(),
            priority: 0,
            max_attempts: crate::job::default_max_attempts(),
            timeout_ms: None,
            missed: Missed::Latest,
            overlap: false,
        }
    }

    /// Checks every rule that needs no state.
    pub fn check(&self) -> Result<()> {
        if self.first_after(Time::from_millis(0))?.is_none() {
            return Err(Error::invalid(
                "cron",
                &self.cron,
                "must name a moment that comes; this one never does",
            ));
        }
        self.payload.check("payload")?;
        within("max_attempts", self.max_attempts.into(), 1, caps::ATTEMPTS.into())?;
        self.timeout_ms.map_or(Ok(()), |ms| within("timeout_ms", ms, 1, caps::DURATION_MS))
    }

    /// The first tick after a moment. None if there is no tick before the end of the year 9999.
    pub fn first_after(&self, after: Time) -> Result<Option<Time>> {
        self.parsed()?.first_after(after)
    }

    /// The last tick from `from` on that is not later than `now`.
    pub fn last_until(&self, from: Time, now: Time) -> Result<Option<Time>> {
        let ticks = self.parsed()?;
        let first_from = |moment: i64| ticks.first_after(Time::from_millis(moment - 1));
        let Some(mut last) = first_from(from.as_millis())?.filter(|tick| *tick <= now) else {
            return Ok(None);
        };
        // Nearly always there is only one. Otherwise halve the remaining time at each step, because a schedule for
        // every second has a million ticks in a fortnight.
        let mut first_without = now.as_millis() + 1;
        if ticks.first_after(last)?.is_none_or(|tick| tick > now) {
            return Ok(Some(last));
        }
        while last.as_millis() + 1 < first_without {
            let middle = last.as_millis() + 1 + (first_without - last.as_millis() - 1) / 2;
            match first_from(middle)?.filter(|tick| *tick <= now) {
                Some(tick) => last = tick,
                None => first_without = middle,
            }
        }
        Ok(Some(last))
    }

    /// The job of one tick.
    ///
    /// Its idempotency key makes it run once across the fleet. Its key and limit prevent two at once (unless
    /// `overlap`).
    pub fn job(&self, schedule: &Name, tick: Time) -> Result<NewJob> {
        let idempotency_key = Some(Key::parse("idempotency_key", &tick_key(schedule, tick)?)?);
        // With `all`, a missed tick waits for the one before it. Otherwise a tick that finds an earlier job live is
        // skipped.
        let on_limit = if self.overlap || self.missed == Missed::All { OnLimit::Wait } else { OnLimit::Skip };
        Ok(NewJob { idempotency_key, on_limit, ..self.triggered(schedule, tick_id(schedule, tick))? })
    }

    /// The job that an operator triggers. `LimitReached` if the last one is live.
    pub fn triggered(&self, schedule: &Name, id: JobId) -> Result<NewJob> {
        Ok(NewJob {
            payload: self.payload.clone(),
            queue: self.queue.clone(),
            priority: self.priority,
            max_attempts: self.max_attempts,
            timeout_ms: self.timeout_ms,
            key: Some(Key::parse("key", schedule)?),
            limit: (!self.overlap).then_some(1),
            on_limit: if self.overlap { OnLimit::Wait } else { OnLimit::Reject },
            ..NewJob::new(id, self.task.clone())
        })
    }

    fn parsed(&self) -> Result<Ticks> {
        for (field, text) in [("cron", &self.cron), ("timezone", &self.timezone)] {
            if text.is_empty() || text.len() > caps::CRON_BYTES {
                let rule = format_args!("must be 1 to {} bytes", caps::CRON_BYTES);
                return Err(Error::invalid(field, text, rule));
            }
        }
        if self.cron.split_whitespace().flat_map(|field| field.split(',')).any(str::is_empty) {
            // The parser reads an empty list item as one that never matches, and would search for a match for a long
            // time.
            return Err(Error::invalid(
                "cron",
                &self.cron,
                "must have something on both sides of each comma",
            ));
        }
        let cron =
            CronParser::builder().seconds(Seconds::Optional).year(Year::Disallowed).build().parse(&self.cron);
        let cron = cron.map_err(|error| {
            let rule = format_args!("must be a cron expression of five fields, or six with seconds: {error}");
            Error::invalid("cron", &self.cron, rule)
        })?;
        let zone = TimeZone::get(&self.timezone).map_err(|_| {
            let rule = "must be a name of the time-zone database, such as Europe/Berlin";
            Error::invalid("timezone", &self.timezone, rule)
        })?;
        let fields: Vec<&str> = self.cron.split_whitespace().collect();
        let at_hours = match fields.as_slice() {
            [name] => *name != "@hourly",
            [_, hour, _, _, _] | [_, _, hour, _, _, _] => !hour.starts_with('*'),
            _ => false,
        };
        Ok(Ticks { cron, zone, at_hours })
    }
}

/// A parsed schedule.
struct Ticks {
    cron: croner::Cron,
    zone: TimeZone,
    /// It names hours: its ticks are times on the wall clock, each once a day. Otherwise it is an interval, and goes on
    /// while the wall clock jumps.
    at_hours: bool,
}

impl Ticks {
    fn first_after(&self, after: Time) -> Result<Option<Time>> {
        // Ticks are whole seconds, so the next tick comes after the second that this moment lies in.
        let Ok(start) = Timestamp::from_second(after.as_millis().div_euclid(1_000)) else { return Ok(None) };
        let mut wall = start.to_zoned(self.zone.clone());
        if !self.at_hours {
            let next = self.next(&wall)?;
            return Ok(next.and_then(|next| moment(next.timestamp())).filter(|tick| *tick > after));
        }
        wall = wall.datetime().to_zoned(TimeZone::UTC).map_err(|error| internal(&error))?;
        while let Some(next) = self.next(&wall)? {
            let Some(tick) = self.shown_at(next.datetime()) else { return Ok(None) };
            match moment(tick) {
                Some(tick) if tick > after => return Ok(Some(tick)),
                Some(_) => wall = next,
                None => return Ok(None),
            }
        }
        Ok(None)
    }

    fn next(&self, from: &Zoned) -> Result<Option<Zoned>> {
        match self.cron.find_next_occurrence(from, false) {
            // Not later: the end of the calendar, or of what the arithmetic can do.
            Ok(next) => Ok(Some(next).filter(|next| next > from)),
            Err(CronError::TimeSearchLimitExceeded) => Ok(None),
            Err(error) => Err(internal(&error)),
        }
    }

    /// The moment at which the wall clock shows a time for the first time, or would if it had not jumped.
    fn shown_at(&self, wall: DateTime) -> Option<Timestamp> {
        let ambiguous = self.zone.to_ambiguous_timestamp(wall);
        match ambiguous.offset() {
            AmbiguousOffset::Unambiguous { .. } | AmbiguousOffset::Fold { .. } => ambiguous.earlier().ok(),
            AmbiguousOffset::Gap { .. } => {
                let shifted = ambiguous.later().ok()?;
                let just_after = Timestamp::from_second(shifted.as_second() + 1).ok()?;
                self.zone.preceding(just_after).next().map(|jump| jump.timestamp())
            }
        }
    }
}

fn moment(tick: Timestamp) -> Option<Time> {
    Some(Time::from_millis(tick.as_millisecond())).filter(|tick| tick.as_millis() <= caps::TIME_MS)
}

fn internal(error: &dyn fmt::Display) -> Error {
    Error::new(ErrorKind::Internal, format!("cron: {error}"))
}

/// `{schedule}:{tick}`, the tick in UTC.
fn tick_key(schedule: &Name, tick: Time) -> Result<String> {
    let moment = Timestamp::from_millisecond(tick.as_millis());
    let moment = moment.map_err(|error| Error::new(ErrorKind::Internal, format!("tick {tick}: {error}")))?;
    Ok(format!("{schedule}:{moment}"))
}

/// The id of a tick's job: a UUIDv7 of the tick's time and a hash of the schedule's name. The rule book uses no
/// randomness, so that every reader makes the same id.
fn tick_id(schedule: &Name, tick: Time) -> JobId {
    // FNV-1a, 128 bits: short, and the same on every machine and in every release.
    let fnv = |hash: u128, byte: u8| (hash ^ u128::from(byte)).wrapping_mul(0x0100_0000_0000_0000_0000_013b);
    let hash = schedule.bytes().fold(0x6c62_272e_07bb_0142_62b8_2175_6295_c58d, fnv);
    let millis = u64::try_from(tick.as_millis()).unwrap_or(0);
    let mut bytes = [0; 10];
    bytes.copy_from_slice(&hash.to_be_bytes()[6..]);
    JobId(uuid::Builder::from_unix_timestamp_millis(millis, &bytes).into_uuid())
}

/// What became of a tick.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum TickOutcome {
    /// Its job was accepted.
    Accepted(JobId),
    /// Its job was there already.
    Existing(JobId),
    /// The job of an earlier tick had not ended.
    Skipped,
    /// Its job was refused.
    Refused(String),
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(moment: &str) -> Time {
        Time::from_millis(moment.parse::<Timestamp>().expect("a moment").as_millisecond())
    }

    fn schedule(cron: &str, timezone: &str) -> Schedule {
        let task = Name::parse("task", "report").expect("a name");
        Schedule { timezone: timezone.into(), ..Schedule::new(cron, task) }
    }

    fn ticks(cron: &str, timezone: &str, after: &str, count: usize) -> Vec<String> {
        let schedule = schedule(cron, timezone);
        let mut tick = at(after);
        let mut next = || {
            tick = schedule.first_after(tick).expect("a schedule")?;
            Timestamp::from_millisecond(tick.as_millis()).ok().map(|tick| tick.to_string())
        };
        (0..count).map_while(|_| next()).collect()
    }

    #[test]
    fn seconds_are_optional() {
        assert_eq!(
            ticks("30 3 * * *", "UTC", "2026-11-15T00:00:00Z", 2),
            ["2026-11-15T03:30:00Z", "2026-11-16T03:30:00Z"]
        );
        assert_eq!(
            ticks("*/20 * * * * *", "UTC", "2026-11-15T00:00:00.5Z", 3),
            ["2026-11-15T00:00:20Z", "2026-11-15T00:00:40Z", "2026-11-15T00:01:00Z"]
        );
    }

    #[test]
    fn the_usual_ones_have_names() {
        assert_eq!(ticks("@daily", "Europe/Berlin", "2026-11-15T00:00:00Z", 1), ["2026-11-15T23:00:00Z"]);
    }

    #[test]
    fn a_time_that_does_not_exist_fires_when_the_clock_has_jumped() {
        // In Berlin 02:00 was followed by 03:00 on 29 March 2026.
        let fixed = ticks("30 2 * * *", "Europe/Berlin", "2026-03-28T12:00:00Z", 2);
        assert_eq!(fixed, ["2026-03-29T01:00:00Z", "2026-03-30T00:30:00Z"]);
        let often = ticks("*/30 * * * *", "Europe/Berlin", "2026-03-29T00:29:00Z", 3);
        assert_eq!(often, ["2026-03-29T00:30:00Z", "2026-03-29T01:00:00Z", "2026-03-29T01:30:00Z"]);
    }

    #[test]
    fn a_time_that_comes_twice_fires_once_and_an_interval_goes_on() {
        // In Berlin 03:00 was followed by 02:00 on 25 October 2026.
        let fixed = ticks("30 2 * * *", "Europe/Berlin", "2026-10-24T12:00:00Z", 2);
        assert_eq!(fixed, ["2026-10-25T00:30:00Z", "2026-10-26T01:30:00Z"]);
        let often = ticks("0 * * * *", "Europe/Berlin", "2026-10-24T23:30:00Z", 4);
        assert_eq!(
            often,
            ["2026-10-25T00:00:00Z", "2026-10-25T01:00:00Z", "2026-10-25T02:00:00Z", "2026-10-25T03:00:00Z"]
        );
    }

    #[test]
    fn several_times_a_day_fire_once_each_on_days_when_the_clock_jumps() {
        let hours = |cron: &str, after: &str| ticks(cron, "Europe/Berlin", after, 4);
        let (spring, autumn) = ("2026-03-28T22:59:59Z", "2026-10-24T21:59:59Z");
        let day = |all: Vec<String>, day: &str| {
            all.into_iter().filter(|at| at.starts_with(day)).collect::<Vec<_>>()
        };
        let march = |cron| day(hours(cron, spring), "2026-03-29");
        let october = |cron| day(hours(cron, autumn), "2026-10-25");
        assert_eq!(march("30 2,14 * * *"), ["2026-03-29T01:00:00Z", "2026-03-29T12:30:00Z"]);
        assert_eq!(october("30 2,14 * * *"), ["2026-10-25T00:30:00Z", "2026-10-25T13:30:00Z"]);
        assert_eq!(march("0,30 2 * * *"), ["2026-03-29T01:00:00Z"], "once, for both");
        assert_eq!(october("0,30 2 * * *"), ["2026-10-25T00:00:00Z", "2026-10-25T00:30:00Z"]);
        assert_eq!(
            october("0 2-4 * * *"),
            ["2026-10-25T00:00:00Z", "2026-10-25T02:00:00Z", "2026-10-25T03:00:00Z"]
        );
    }

    #[test]
    fn a_day_that_never_comes_is_no_tick() {
        let never = schedule("0 0 30 2 *", "UTC");
        assert_eq!(never.first_after(at("2026-01-01T00:00:00Z")), Ok(None));
        assert!(never.check().is_err_and(|error| error.message().contains("never")));
    }

    #[test]
    fn the_last_tick_is_found_however_many_there_were() {
        for (cron, from, now, last) in [
            ("* * * * * *", "2026-01-01T00:00:00Z", "2026-11-15T12:00:00.9Z", "2026-11-15T12:00:00Z"),
            ("* * * 1 * *", "2026-01-01T00:00:00Z", "2026-11-15T12:00:00Z", "2026-11-01T23:59:59Z"),
            ("* * * * 1 *", "2026-01-01T00:00:00Z", "2026-11-15T12:00:00Z", "2026-01-31T23:59:59Z"),
            ("0 3 * * *", "2026-11-15T03:00:00Z", "2026-11-15T03:00:00Z", "2026-11-15T03:00:00Z"),
        ] {
            assert_eq!(schedule(cron, "UTC").last_until(at(from), at(now)), Ok(Some(at(last))), "{cron}");
        }
        let nightly = schedule("0 3 * * *", "UTC");
        assert_eq!(nightly.last_until(at("2026-11-15T03:00:01Z"), at("2026-11-15T23:00:00Z")), Ok(None));
    }

    #[test]
    fn what_is_no_schedule_names_the_field() {
        for (cron, timezone, field) in [
            ("", "UTC", "cron"),
            ("61 * * * *", "UTC", "cron"),
            ("* * *", "UTC", "cron"),
            (", * * * *", "UTC", "cron"),
            ("1,,2 * * * *", "UTC", "cron"),
            (&"1,".repeat(200), "UTC", "cron"),
            ("* * * * * * 2030", "UTC", "cron"),
            ("0 3 * * *", "Mars/Olympus", "timezone"),
            ("0 3 * * *", "", "timezone"),
        ] {
            let error = schedule(cron, timezone).check().expect_err(cron).to_string();
            assert!(error.starts_with(&format!("invalid: {field}: ")), "{error}");
        }
    }

    #[test]
    fn the_job_of_a_tick_is_the_same_on_every_machine() {
        let (name, tick) = (Name::parse("schedule", "nightly").expect("a name"), at("2026-11-15T02:00:00Z"));
        let job = schedule("0 3 * * *", "Europe/Berlin").job(&name, tick).expect("a job");
        assert_eq!(job.idempotency_key.as_deref(), Some("nightly:2026-11-15T02:00:00Z"));
        assert_eq!(job.id.to_string(), "01a1dcee-cd00-778d-8259-c56184d6d89a");
        assert_eq!((job.key.as_deref(), job.limit, job.on_limit), (Some("nightly"), Some(1), OnLimit::Skip));
    }
}
