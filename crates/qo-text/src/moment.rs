//! Moments as people and programs write them.

use crate::parse_ms;
use jiff::Timestamp;
use jiff::civil::DateTime;
use jiff::tz::TimeZone;
use qo_core::Time;

/// Whether a moment may leave out its offset.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Zone {
    /// It is then told by the clock of this machine: on the command line, where its reader is.
    Machine,
    /// It may not: the writer of a request may live in another time zone than the server.
    Given,
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
    /// Reads a moment. The error is the rule.
    pub fn parse(text: &str, zone: Zone) -> Result<Self, String> {
        if let Some(time) = calendar(text, zone) {
            return Ok(Self::At(time));
        }
        parse_ms(text)
            .map(Self::In)
            .map_err(|_| format!("must be {}, or a length of time from now such as 10m", example(zone)))
    }

    /// The moment, given the present time.
    pub fn from(self, now: Time) -> Time {
        match self {
            Self::At(time) => time,
            Self::In(ms) => now.plus_ms(ms),
        }
    }
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
    /// Reads a moment that has passed. The error is the rule.
    pub fn parse(text: &str, zone: Zone) -> Result<Self, String> {
        if let Some(time) = calendar(text, zone) {
            return Ok(Self::At(time));
        }
        parse_ms(text)
            .map(Self::Ago)
            .map_err(|_| format!("must be {}, or how long ago, such as 10m", example(zone)))
    }

    /// The moment, given the present time.
    pub fn from(self, now: Time) -> Time {
        match self {
            Self::At(time) => time,
            Self::Ago(ms) => Time::from_millis(now.as_millis().saturating_sub_unsigned(ms)),
        }
    }
}

fn example(zone: Zone) -> &'static str {
    match zone {
        Zone::Machine => "a moment such as 2026-12-24T18:00:00+01:00 or \"2026-12-24 18:00\"",
        Zone::Given => "a moment with its offset, such as 2026-12-24T18:00:00+01:00",
    }
}

fn calendar(text: &str, zone: Zone) -> Option<Time> {
    if let Ok(moment) = text.parse::<Timestamp>() {
        return Some(Time::from_millis(moment.as_millisecond()));
    }
    let wall = text.parse::<DateTime>().ok().filter(|_| zone == Zone::Machine)?;
    let moment = wall.to_zoned(TimeZone::system()).ok()?;
    Some(Time::from_millis(moment.timestamp().as_millisecond()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_moment_is_a_date_or_a_length_of_time() {
        let moment = |text| Moment::parse(text, Zone::Machine);
        assert_eq!(moment("1970-01-01T00:00:01Z"), Ok(Moment::At(Time::from_millis(1_000))));
        assert_eq!(moment("1970-01-01T01:00:00+01:00"), Ok(Moment::At(Time::from_millis(0))));
        assert_eq!(moment("10m"), Ok(Moment::In(600_000)));
        assert!(matches!(moment("2026-12-24 18:00"), Ok(Moment::At(_))));
        assert!(moment("tomorrow").is_err());
        let past = |text| Past::parse(text, Zone::Given);
        assert_eq!(past("10m").map(|past| past.from(Time::from_millis(600_001))), Ok(Time::from_millis(1)));
        assert!(past("yesterday").is_err());
    }

    #[test]
    fn a_moment_of_a_request_needs_its_offset() {
        assert_eq!(
            Moment::parse("1970-01-01T00:00:01Z", Zone::Given),
            Ok(Moment::At(Time::from_millis(1_000)))
        );
        let refused = Moment::parse("2026-12-24 18:00", Zone::Given).expect_err("no offset");
        assert!(refused.contains("with its offset"), "{refused}");
    }
}
