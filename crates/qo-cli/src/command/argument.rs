//! Arguments as people type them.

use jiff::Timestamp;
use jiff::civil::DateTime;
use jiff::tz::TimeZone;
pub use qo::core::words::state_name;
use qo::core::{GroupRef, IdPrefix, JobId, JobState, Key, Name, Time, Traceparent};
use qo::settings::{nearest, parse_ms};
use uuid::Uuid;

/// Only the rule: clap names the argument and its value.
fn rule(error: qo::Error) -> String {
    error.rule().to_owned()
}

/// A name of a task, queue, group, workflow or schedule.
pub fn name(text: &str) -> Result<Name, String> {
    Name::parse("name", text).map_err(rule)
}

/// A key.
pub fn key(text: &str) -> Result<Key, String> {
    Key::parse("key", text).map_err(rule)
}

/// The trace that a job belongs to.
pub fn traceparent(text: &str) -> Result<Traceparent, String> {
    Traceparent::parse("traceparent", text).map_err(rule)
}

/// A group.
pub fn group(text: &str) -> Result<GroupRef, String> {
    GroupRef::parse("group", text).map_err(rule)
}

/// A job's id.
pub fn job(text: &str) -> Result<JobId, String> {
    let id = Uuid::try_parse(text.trim());
    id.map(JobId)
        .map_err(|_| "must be the whole id of a job, as `qo submit` and `qo jobs list` print it".into())
}

/// A length of time, in milliseconds.
pub fn duration(text: &str) -> Result<u64, String> {
    parse_ms(text)
}

/// How many things to show.
pub fn count(text: &str) -> Result<usize, String> {
    text.parse().ok().filter(|count| *count > 0).ok_or_else(|| "must be a whole number, 1 or more".into())
}

/// A state of a job.
pub fn state(text: &str) -> Result<JobState, String> {
    const STATES: [(&str, JobState); 7] = [
        ("pending", JobState::Pending),
        ("claimed", JobState::Claimed),
        ("running", JobState::Running),
        ("succeeded", JobState::Succeeded),
        ("failed", JobState::Failed),
        ("cancelled", JobState::Cancelled),
        ("expired", JobState::Expired),
    ];
    let found = STATES.iter().find(|(name, _)| *name == text);
    found.map(|&(_, state)| state).ok_or_else(|| {
        let near = nearest(text, STATES.iter().map(|(name, _)| *name));
        let near = near.map(|near| format!("; did you mean {near}?")).unwrap_or_default();
        let all = STATES.map(|(name, _)| name).join(", ");
        format!("must be one of {all}{near}")
    })
}

/// A moment: with its offset, on this machine's clock, or this long from now.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Moment {
    /// A moment of the calendar.
    At(Time),
    /// Milliseconds from now, by the store's clock.
    In(u64),
}

impl Moment {
    /// The moment, given the present time.
    pub fn from(self, now: Time) -> Time {
        match self {
            Self::At(time) => time,
            Self::In(ms) => now.plus_ms(ms),
        }
    }
}

/// A moment.
pub fn moment(text: &str) -> Result<Moment, String> {
    if let Ok(moment) = text.parse::<Timestamp>() {
        return Ok(Moment::At(Time::from_millis(moment.as_millisecond())));
    }
    if let Ok(wall) = text.parse::<DateTime>()
        && let Ok(moment) = wall.to_zoned(TimeZone::system())
    {
        return Ok(Moment::At(Time::from_millis(moment.timestamp().as_millisecond())));
    }
    parse_ms(text).map(Moment::In).map_err(|_| {
        "must be a moment such as 2026-12-24T18:00:00+01:00 or \"2026-12-24 18:00\", or a length of time from now such as 10m".into()
    })
}

/// A moment that has passed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Past {
    /// A moment of the calendar.
    At(Time),
    /// Milliseconds before now, by the store's clock.
    Ago(u64),
}

impl Past {
    /// The moment, given the present time.
    pub fn from(self, now: Time) -> Time {
        match self {
            Self::At(time) => time,
            Self::Ago(ms) => Time::from_millis(now.as_millis().saturating_sub_unsigned(ms)),
        }
    }
}

/// A moment that has passed.
pub fn past(text: &str) -> Result<Past, String> {
    match moment(text) {
        Ok(Moment::At(time)) => Ok(Past::At(time)),
        Ok(Moment::In(ms)) => Ok(Past::Ago(ms)),
        Err(_) => Err("must be a moment such as 2026-12-24T18:00:00+01:00 or \"2026-12-24 18:00\", or how long ago, such as 10m".into()),
    }
}

/// How ids of jobs begin.
pub fn id_prefix(text: &str) -> Result<IdPrefix, String> {
    IdPrefix::parse("id", text).map_err(rule)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_moment_is_a_date_or_a_length_of_time() {
        assert_eq!(moment("1970-01-01T00:00:01Z"), Ok(Moment::At(Time::from_millis(1_000))));
        assert_eq!(moment("1970-01-01T01:00:00+01:00"), Ok(Moment::At(Time::from_millis(0))));
        assert_eq!(moment("10m"), Ok(Moment::In(600_000)));
        assert!(matches!(moment("2026-12-24 18:00"), Ok(Moment::At(_))));
        assert!(moment("tomorrow").is_err());
        assert_eq!(past("10m").map(|past| past.from(Time::from_millis(600_001))), Ok(Time::from_millis(1)));
        assert!(past("yesterday").is_err());
    }

    #[test]
    fn an_error_of_an_argument_is_the_rule_alone() {
        assert_eq!(name("a b").expect_err("no name"), "must match [A-Za-z0-9_][A-Za-z0-9_.-]{0,127}");
        assert!(state("runing").expect_err("no state").ends_with("did you mean running?"));
    }
}
