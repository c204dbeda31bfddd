//! Store time. Ownership depends on it alone (G9): no worker's wall clock decides anything.

use serde::{Deserialize, Serialize};
use std::fmt;
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

/// A moment of store time: milliseconds since the Unix epoch.
///
/// It is stored as a number. The command line recognises this type by its name and prints it as RFC 3339; with
/// `#[serde(transparent)]` a serializer would not see the name.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Time(i64);

impl Time {
    /// The moment that many milliseconds after the Unix epoch.
    pub const fn from_millis(millis: i64) -> Self {
        Self(millis)
    }

    /// Milliseconds since the Unix epoch.
    pub const fn as_millis(self) -> i64 {
        self.0
    }

    /// This moment and a number of milliseconds; it stops at the end of time instead of overflowing.
    #[must_use]
    pub const fn plus_ms(self, ms: u64) -> Self {
        Self(self.0.saturating_add_unsigned(ms))
    }

    /// Milliseconds from `earlier` until this moment; 0 if it lies after it.
    pub const fn ms_since(self, earlier: Self) -> u64 {
        let ms = self.0.saturating_sub(earlier.0);
        if ms < 0 { 0 } else { ms.unsigned_abs() }
    }
}

impl fmt::Display for Time {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match jiff::Timestamp::from_millisecond(self.0) {
            Ok(time) => write!(f, "{time}"),
            // Before or after all that a calendar knows.
            Err(_) => write!(f, "{} ms", self.0),
        }
    }
}

/// Where a store inside this process takes its time from.
pub trait Clock: Send + Sync + 'static {
    /// The time now. It should not fall; where it does, the rule book keeps to the latest it saw.
    fn now(&self) -> Time;
}

/// The machine's clock, read once at the start; from then on monotonic time is added to it, so that
/// setting the wall clock back or forth changes no lease.
#[derive(Debug, Clone)]
pub struct SystemClock {
    origin: Time,
    started: Instant,
}

impl SystemClock {
    /// Reads the wall clock, for the last time.
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

/// A clock that stands still until it is told to move: for tests and simulations.
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
        // The closure never declines, so neither does the update.
        let _ = self.0.fetch_update(Ordering::SeqCst, Ordering::SeqCst, later);
    }

    /// Sets the clock, even back.
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
