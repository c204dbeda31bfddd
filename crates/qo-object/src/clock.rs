//! Store time: the time that the store stamps on what is written to it, and between two stamps the monotonic time that
//! passed in this process. No process's wall clock decides anything (G9).
//!
//! 1. A process that opens a namespace asks for the store's time. In a bucket it asks until it has [`CONFIRMED`] dates.
//! 2. After a record it compares its time with the record's stamp, at most once in [`FRESH`]; in a bucket, with the
//!    date that most of the newest answers agree with.
//! 3. If the two differ by more than stamps are coarse, the stamp counts.
//!
//! Invariants:
//!
//! - Time never falls, and is never before a time that the log has seen.
//! - Time never stands still. Where the store's clock was set back, or the log has seen a later time, it runs at half
//!   pace until the store has caught up: leases then last longer, which is safe, and they do end (G5).
//! - Dates of a bucket may be wrong (one gateway among several, a proxy). A few wrong ones move nothing. A process
//!   whose every answer is wrong can lead the calendar astray (dates of jobs, schedules, retention); it cannot end a
//!   lease: see [`crate::watch`].

use crate::medium::Medium;
use crate::traffic::Dated;
use object_store::path::Path;
use qo_core::{Clock, Result, Time};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tokio::time::Instant;

/// How far stamps and monotonic time may be apart before the stamp counts: some stores stamp whole seconds.
const COARSE_MS: u64 = 1_500;
/// How old a stamp may become before this process asks for a new one.
const FRESH: Duration = Duration::from_secs(10);
/// Dated answers by which a process knows the time of a bucket: most of them would have to be wrong.
const CONFIRMED: u64 = 7;

/// Where a writer takes its time from.
pub(crate) enum TimeSource {
    /// The store's own stamps.
    Store(StoreClock),
    /// A clock of the caller's.
    Given(Arc<dyn Clock>),
}

impl TimeSource {
    /// The clock of the caller's, if there is one, else the store's.
    pub(crate) async fn open(medium: &Medium, clock: Option<Arc<dyn Clock>>) -> Result<Self> {
        Ok(match clock {
            Some(clock) => Self::Given(clock),
            None => Self::Store(StoreClock::ask(medium).await?),
        })
    }

    /// Whether the store's own stamps decide.
    pub(crate) fn is_store(&self) -> bool {
        matches!(self, Self::Store(_))
    }

    /// The time now, which is not before the time that the log has seen.
    pub(crate) fn now(&self, seen: Time) -> Time {
        match self {
            Self::Store(clock) => {
                clock.reach(seen);
                clock.now()
            }
            Self::Given(clock) => clock.now().max(seen),
        }
    }

    /// Compares the clock with the dates of a bucket's newest answers.
    pub(crate) fn hear(&self, medium: &Medium) {
        if let (Self::Store(clock), Some(dated)) = (self, medium.settled()) {
            clock.hear(&dated);
        }
    }

    /// Compares the clock with the stamp of a record that was sent at `sent`.
    pub(crate) async fn observe(&self, medium: &Medium, record: &Path, sent: Instant) {
        if let Self::Store(clock) = self {
            clock.observe(medium, record, sent).await;
        }
    }
}

/// Store time, as this process knows it.
#[derive(Debug)]
pub(crate) struct StoreClock(Mutex<Observed>);

#[derive(Debug)]
struct Observed {
    /// Store time …
    time: Time,
    /// … at this time of the process.
    at: Instant,
    /// When the store was last asked.
    asked: Instant,
    /// The latest time that this clock told, or that the log has seen …
    told: Time,
    /// … at this time of the process. Time goes on from there, if slowly.
    told_at: Instant,
}

impl StoreClock {
    /// Asks the store for its time.
    pub(crate) async fn ask(medium: &Medium) -> Result<Self> {
        let asked = Instant::now();
        medium.hear_dates(CONFIRMED).await?;
        if let Some(dated) = medium.believed() {
            return Ok(Self::of(&dated));
        }
        // Counted from the request, so that this clock is never behind the store's stamp.
        Ok(Self::at(medium.store_time().await?, asked, asked))
    }

    /// A clock that is set by a date.
    fn of(dated: &Dated) -> Self {
        Self::at(dated.date, dated.heard, dated.sent)
    }

    fn at(time: Time, at: Instant, asked: Instant) -> Self {
        Self(Mutex::new(Observed { time, at, asked, told: time, told_at: at }))
    }

    /// The log has seen this time, so it is not earlier.
    fn reach(&self, time: Time) {
        let mut observed = self.lock();
        let now = Instant::now();
        if observed.now(now) < time {
            (observed.told, observed.told_at) = (time, now);
        }
    }

    /// Compares the clock with the stamp of a record, if the last comparison is some time ago.
    async fn observe(&self, medium: &Medium, record: &Path, sent: Instant) {
        if medium.believed().is_some() {
            return medium.settled().map_or((), |dated| self.hear(&dated));
        }
        if self.lock().asked.elapsed() < FRESH {
            return;
        }
        if let Ok(Some(stamp)) = medium.written_at(record).await {
            self.take(stamp, sent);
        }
    }

    /// An answer bore this date, and most others agree. When it came it was at least that late: dates are cut off to
    /// whole seconds, and answers are on their way for a while. So more answers give a better time.
    fn hear(&self, dated: &Dated) {
        let Dated { date, sent, heard } = *dated;
        let mut observed = self.lock();
        let known = observed.at_instant(heard);
        let is_behind = observed.at_instant(sent).ms_since(date) > COARSE_MS && known > date;
        if known < date || is_behind {
            (observed.time, observed.at) = (date, heard);
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
        StoreClock::at(NOON, now, now)
    }

    fn heard_now(date: Time) -> Dated {
        Dated { date, sent: Instant::now(), heard: Instant::now() }
    }

    #[tokio::test(start_paused = true)]
    async fn a_slow_answer_does_not_set_time_back() {
        let clock = clock();
        let far = NOON.plus_ms(600_000);
        tokio::time::advance(Duration::from_secs(3)).await;
        clock.hear(&heard_now(far.plus_ms(2_000)));
        assert_eq!(clock.now(), far.plus_ms(2_000), "the date counts");
        let sent = Instant::now();
        tokio::time::advance(Duration::from_secs(7)).await;
        clock.hear(&Dated { date: far.plus_ms(2_000), sent, heard: Instant::now() });
        assert_eq!(clock.now(), far.plus_ms(9_000), "it was only slow");
    }

    #[tokio::test(start_paused = true)]
    async fn between_stamps_time_goes_on() {
        let clock = clock();
        tokio::time::advance(Duration::from_secs(3)).await;
        assert_eq!(clock.now(), NOON.plus_ms(3_000));
        clock.take(NOON.plus_ms(2_000), Instant::now());
        assert_eq!(clock.now(), NOON.plus_ms(3_000), "a stamp of whole seconds says nothing new");
    }

    #[tokio::test(start_paused = true)]
    async fn more_dates_of_whole_seconds_give_a_better_time() {
        let clock = clock();
        // The store's time is 0.9 s after its first date.
        let store = |passed_ms: u64| NOON.plus_ms((passed_ms + 900) / 1_000 * 1_000);
        for step in 1..=40 {
            tokio::time::advance(Duration::from_millis(70)).await;
            clock.hear(&heard_now(store(step * 70)));
        }
        let behind_ms = NOON.plus_ms(40 * 70 + 900).ms_since(clock.now());
        assert!(behind_ms <= 70, "{behind_ms} ms");
        clock.hear(&heard_now(NOON));
        let before = clock.now();
        tokio::time::advance(Duration::from_millis(100)).await;
        assert_eq!(clock.now(), before.plus_ms(50), "the store's clock was set back: slowly on");
    }

    #[tokio::test(start_paused = true)]
    async fn a_stamp_ahead_counts_and_a_stamp_behind_slows_time_down() {
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
    async fn time_goes_on_from_the_latest_time_that_the_log_has_seen() {
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
