//! Moments and ages, by the store's clock and in the reader's time zone.

use jiff::Timestamp;
use jiff::tz::TimeZone;
use qo::core::Time;
use qo::core::words::Moments;
use qo::settings::show_ms;

/// What moments are shown relative to.
#[derive(Debug, Clone)]
pub struct Times {
    now: Time,
    zone: TimeZone,
}

impl Times {
    /// Relative to this moment of store time, in the time zone of this machine.
    pub fn new(now: Time) -> Self {
        Self { now, zone: TimeZone::system() }
    }

    /// A date and time on the clock of the reader.
    pub fn clock(&self, time: Time) -> String {
        match Timestamp::from_millisecond(time.as_millis()) {
            Ok(moment) => moment.to_zoned(self.zone.clone()).strftime("%Y-%m-%d %H:%M:%S").to_string(),
            Err(_) => time.to_string(),
        }
    }

    /// Whether a moment is over.
    pub fn has_passed(&self, time: Time) -> bool {
        time < self.now
    }

    /// How far away a moment is: `3m ago`, `in 2h`, `now`.
    pub fn away(&self, time: Time) -> String {
        if time > self.now {
            format!("in {}", show_ms(time.ms_since(self.now)))
        } else if time == self.now {
            "now".into()
        } else {
            format!("{} ago", self.age(time))
        }
    }

    /// How old something is that began at a moment.
    pub fn age(&self, time: Time) -> String {
        show_ms(self.now.ms_since(time))
    }

    /// Both: `2026-11-15 16:41:02 (3m ago)`.
    pub fn full(&self, time: Time) -> String {
        format!("{} ({})", self.clock(time), self.away(time))
    }
}

impl Moments for Times {
    fn full(&self, time: Time) -> String {
        self.full(time)
    }

    fn away(&self, time: Time) -> String {
        self.away(time)
    }

    fn age(&self, time: Time) -> String {
        self.age(time)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn moments_are_told_by_the_clock_and_by_how_far_away_they_are() {
        let times = Times { now: Time::from_millis(1_000_000), zone: TimeZone::UTC };
        assert_eq!(times.full(Time::from_millis(0)), "1970-01-01 00:00:00 (16m 40s ago)");
        assert_eq!(times.away(Time::from_millis(1_030_000)), "in 30s");
        assert_eq!(times.away(Time::from_millis(1_000_000)), "now");
        assert_eq!(times.clock(Time::from_millis(i64::MAX)), format!("{} ms", i64::MAX));
    }
}
