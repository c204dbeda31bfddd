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
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

/// A moment of store time: milliseconds since the Unix epoch.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(transparent)]
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
