//! Store time on objects: what the store itself stamps on what is written to it, and between two such stamps the
//! monotonic time that has passed here. No process's wall clock decides anything (G9).
//!
//! **It never falls, and it never stands still.** Where the store's clock was set back, or the log has seen a later time,
//! it goes on at half its pace until the store has caught up: leases then last longer, which is safe, and they do end (G5).

use crate::log::Log;
use object_store::path::Path;
use qo_core::{Clock, Result, Time};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tokio::time::Instant;

/// How far stamps and monotonic time may drift apart before the stamp counts: some stores stamp whole seconds.
const COARSE_MS: u64 = 1_500;
/// How old a stamp may become before a new one is asked for.
const FRESH: Duration = Duration::from_secs(10);

/// Store time, as this process knows it.
#[derive(Debug)]
pub(crate) struct StoreClock(Mutex<Observed>);

#[derive(Debug)]
struct Observed {
    /// Store time …
    time: Time,
    /// … at this moment here.
    at: Instant,
    /// When the store was last asked.
    asked: Instant,
    /// The latest time that the store had reached when somebody asked, or that the log has seen …
    told: Time,
    /// … at this moment here. Time goes on from there, if slowly.
    told_at: Instant,
}

impl StoreClock {
    /// Asks the store for its time.
    pub(crate) async fn ask(log: &Log) -> Result<Self> {
        let asked = Instant::now();
        let time = log.store_time().await?;
        // Counted from when it was asked, so that it is never behind what the store stamped.
        Ok(Self(Mutex::new(Observed { time, at: asked, asked, told: time, told_at: asked })))
    }

    /// The log has seen this time: it is not earlier.
    pub(crate) fn reach(&self, time: Time) {
        let mut observed = self.lock();
        let now = Instant::now();
        if observed.now(now) < time {
            (observed.told, observed.told_at) = (time, now);
        }
    }

    /// Looks at the stamp of a record that was just written, if the last one is some time ago.
    pub(crate) async fn observe(&self, log: &Log, record: &Path, sent: Instant) {
        if self.lock().asked.elapsed() < FRESH {
            return;
        }
        if let Ok(Some(stamp)) = log.written_at(record).await {
            self.take(stamp, sent);
        }
    }

    fn take(&self, stamp: Time, sent: Instant) {
        let mut observed = self.lock();
        observed.asked = Instant::now();
        let known = observed.at_instant(sent);
        if known.ms_since(stamp).max(stamp.ms_since(known)) > COARSE_MS {
            (observed.time, observed.at) = (stamp, sent);
        }
    }

    fn lock(&self) -> MutexGuard<'_, Observed> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Observed {
    fn at_instant(&self, instant: Instant) -> Time {
        let passed = instant.saturating_duration_since(self.at).as_millis();
        self.time.plus_ms(u64::try_from(passed).unwrap_or(u64::MAX))
    }

    fn now(&mut self, here: Instant) -> Time {
        let real = self.at_instant(here);
        let passed = here.saturating_duration_since(self.told_at).as_millis();
        let slow = self.told.plus_ms(u64::try_from(passed / 2).unwrap_or(u64::MAX));
        if real >= slow {
            (self.told, self.told_at) = (real, here);
        }
        real.max(slow)
    }
}

impl Clock for StoreClock {
    fn now(&self) -> Time {
        self.lock().now(Instant::now())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOON: Time = Time::from_millis(1_800_000_000_000);

    fn clock() -> StoreClock {
        let now = Instant::now();
        StoreClock(Mutex::new(Observed { time: NOON, at: now, asked: now, told: NOON, told_at: now }))
    }

    #[tokio::test(start_paused = true)]
    async fn between_stamps_it_goes_on_by_itself() {
        let clock = clock();
        tokio::time::advance(Duration::from_secs(3)).await;
        assert_eq!(clock.now(), NOON.plus_ms(3_000));
        clock.take(NOON.plus_ms(2_000), Instant::now());
        assert_eq!(clock.now(), NOON.plus_ms(3_000), "a stamp of whole seconds says nothing new");
    }

    #[tokio::test(start_paused = true)]
    async fn a_stamp_that_is_ahead_counts_and_one_that_is_behind_makes_it_slow() {
        let clock = clock();
        clock.take(NOON.plus_ms(60_000), Instant::now());
        assert_eq!(clock.now(), NOON.plus_ms(60_000));
        clock.take(NOON.plus_ms(50_000), Instant::now());
        assert_eq!(clock.now(), NOON.plus_ms(60_000), "time does not fall");
        for second in 1..=20 {
            tokio::time::advance(Duration::from_secs(1)).await;
            assert_eq!(clock.now(), NOON.plus_ms(60_000 + second * 500), "half as fast");
        }
        tokio::time::advance(Duration::from_secs(11)).await;
        assert_eq!(clock.now(), NOON.plus_ms(81_000), "the store has caught up");
    }

    #[tokio::test(start_paused = true)]
    async fn what_the_log_has_seen_has_passed_and_time_goes_on_from_there() {
        let clock = clock();
        let century = NOON.plus_ms(100 * 365 * 86_400_000);
        clock.reach(century);
        assert_eq!(clock.now(), century);
        for _ in 0..1_000 {
            tokio::time::advance(Duration::from_millis(1)).await;
            clock.reach(NOON);
            clock.now();
        }
        assert_eq!(clock.now(), century.plus_ms(500), "however often it is asked");
    }
}
