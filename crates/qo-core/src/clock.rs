//! Store time. Ownership depends on it alone (G9).
//!
//! 1. A store takes the time of each command from a [`Clock`]: this machine's, or one that follows the stamps of an
//!    object store.
//! 2. The rule book decides the command at that time, or at the latest time it has seen if that is later.
//! 3. The time is recorded as an event, so every reader of a log decides by the same time.
//!
//! Invariants:
//! - Store time never falls.
//! - No worker's wall clock decides anything. [`SystemClock`] reads the wall clock once; a later change of it ends no
//!   lease.

use serde::{Deserialize, Serialize};
use std::fmt;
use std::ops::{Add, Sub};
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

/// A moment of store time: milliseconds since the Unix epoch.
///
/// It is stored as a number. The command line recognises this type by its name and prints it as RFC 3339; with
/// `#[serde(transparent)]` a serializer would not see the name.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Time(i64);

impl Time {
    /// The moment `millis` milliseconds after the Unix epoch.
    pub const fn from_millis(millis: i64) -> Self {
        Self(millis)
    }

    /// Milliseconds since the Unix epoch.
    pub const fn as_millis(self) -> i64 {
        self.0
    }

    /// This moment plus `ms` milliseconds. It saturates instead of overflowing.
    #[must_use]
    pub const fn plus_ms(self, ms: u64) -> Self {
        Self(self.0.saturating_add_unsigned(ms))
    }

    /// Milliseconds from `earlier` until this moment. 0 if `earlier` is later.
    pub const fn ms_since(self, earlier: Self) -> u64 {
        let ms = self.0.saturating_sub(earlier.0);
        if ms < 0 { 0 } else { ms.unsigned_abs() }
    }
}

/// A duration as whole milliseconds, as stores count them; one that is too long is the longest.
pub fn millis(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}

/// The moment that much later; it stops at the end of time instead of overflowing.
impl Add<Duration> for Time {
    type Output = Self;

    fn add(self, duration: Duration) -> Self {
        self.plus_ms(millis(duration))
    }
}

/// From the earlier moment to this one; zero if that lies after it.
impl Sub for Time {
    type Output = Duration;

    fn sub(self, earlier: Self) -> Duration {
        Duration::from_millis(self.ms_since(earlier))
    }
}

/// To the millisecond; what lies before 1970 is rounded down, too.
impl From<SystemTime> for Time {
    fn from(time: SystemTime) -> Self {
        Self(match time.duration_since(UNIX_EPOCH) {
            Ok(after) => i64::try_from(after.as_millis()).unwrap_or(i64::MAX),
            Err(before) => {
                let before = before.duration();
                let millis =
                    before.as_millis() + u128::from(!before.subsec_nanos().is_multiple_of(1_000_000));
                i64::try_from(millis).map_or(i64::MIN, |millis| -millis)
            }
        })
    }
}

/// Exact: Unix counts its own time in 64 bits of seconds.
impl From<Time> for SystemTime {
    fn from(time: Time) -> Self {
        let distance = Duration::from_millis(time.0.unsigned_abs());
        let there =
            if time.0 < 0 { UNIX_EPOCH.checked_sub(distance) } else { UNIX_EPOCH.checked_add(distance) };
        there.unwrap_or(UNIX_EPOCH)
    }
}

impl From<jiff::Timestamp> for Time {
    fn from(time: jiff::Timestamp) -> Self {
        Self(time.as_millisecond())
    }
}

/// Fails outside the years −9999 to 9999.
impl TryFrom<Time> for jiff::Timestamp {
    type Error = jiff::Error;

    fn try_from(time: Time) -> Result<Self, jiff::Error> {
        Self::from_millisecond(time.0)
    }
}

impl fmt::Display for Time {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match jiff::Timestamp::from_millisecond(self.0) {
            Ok(time) => write!(f, "{time}"),
            // Outside the range of a calendar.
            Err(_) => write!(f, "{} ms", self.0),
        }
    }
}

/// The source of time for a store inside this process.
pub trait Clock: Send + Sync + 'static {
    /// The time now. It should not fall; if it does, the rule book goes by the latest time it saw.
    fn now(&self) -> Time;
}

/// The machine's clock, read once, plus monotonic time.
///
/// Setting the wall clock back or forth changes no lease.
#[derive(Debug, Clone)]
pub struct SystemClock {
    origin: Time,
    started: Instant,
}

impl SystemClock {
    /// A clock that starts at the wall clock's time. It does not read the wall clock again.
    #[allow(clippy::disallowed_methods)] // The one place where the wall clock is read.
    pub fn new() -> Self {
        let since_epoch = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or(Duration::ZERO);
        let millis = i64::try_from(since_epoch.as_millis()).unwrap_or(i64::MAX);
        Self { origin: Time(millis), started: Instant::now() }
    }
}

impl Default for SystemClock {
    fn default() -> Self {
        Self::new()
    }
}

impl Clock for SystemClock {
    fn now(&self) -> Time {
        self.origin.plus_ms(u64::try_from(self.started.elapsed().as_millis()).unwrap_or(u64::MAX))
    }
}

/// A clock that moves only when told to, for tests and simulations.
#[derive(Debug)]
pub struct ManualClock(AtomicI64);

impl ManualClock {
    /// A clock that shows `now`.
    pub fn new(now: Time) -> Self {
        Self(AtomicI64::new(now.0))
    }

    /// Moves the clock forward.
    pub fn advance_ms(&self, ms: u64) {
        let later = |now| Some(Time(now).plus_ms(ms).0);
        // The closure always returns `Some`, so the update cannot fail.
        let _ = self.0.fetch_update(Ordering::SeqCst, Ordering::SeqCst, later);
    }

    /// Sets the clock, also back.
    pub fn set(&self, now: Time) {
        self.0.store(now.0, Ordering::SeqCst);
    }
}

impl Clock for ManualClock {
    fn now(&self) -> Time {
        Time(self.0.load(Ordering::SeqCst))
    }
}

impl<C: Clock + ?Sized> Clock for std::sync::Arc<C> {
    fn now(&self) -> Time {
        (**self).now()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_convert_to_and_from_the_clocks_of_other_libraries() {
        for millis in [i64::MIN + 1, i64::MAX] {
            let time = Time::from_millis(millis);
            assert_eq!(Time::from(SystemTime::from(time)), time);
        }
        for millis in [0, 1, -1, 1_750_000_000_123, -1_750_000_000_123] {
            let time = Time::from_millis(millis);
            assert_eq!(Time::from(SystemTime::from(time)), time);
            let stamp = jiff::Timestamp::try_from(time).expect("within the calendar");
            assert_eq!((Time::from(stamp), stamp.to_string()), (time, time.to_string()));
        }
        let just_before = UNIX_EPOCH - Duration::from_nanos(1);
        assert_eq!(Time::from(just_before), Time::from_millis(-1));
        assert!(jiff::Timestamp::try_from(Time::from_millis(i64::MAX)).is_err());
    }

    #[test]
    fn arithmetic_stops_at_the_ends_of_time() {
        let (early, late) = (Time::from_millis(5), Time::from_millis(i64::MAX - 1));
        assert_eq!(early + Duration::from_millis(7), Time::from_millis(12));
        assert_eq!(late + Duration::MAX, Time::from_millis(i64::MAX));
        assert_eq!(
            (late - early, early - late),
            (Duration::from_millis(i64::MAX as u64 - 6), Duration::ZERO)
        );
    }
}
