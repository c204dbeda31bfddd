//! Store time on objects: what the store itself stamps on what is written to it, and between two such stamps the
//! monotonic time that has passed here. No process's wall clock decides anything (G9).
//!
//! **It never falls, and it never stands still.** Where the store's clock was set back, or the log has seen a later time,
//! it goes on at half its pace until the store has caught up: leases then last longer, which is safe, and they do end (G5).
//!
//! **Dates of a bucket may be wrong**: one gateway among several, a proxy. A process that opens a bucket asks until it has heard
//! several, and goes by what most of the newest answers say ([`Traffic::believed`]). So a few wrong ones move nothing. One
//! process whose every answer is wrong can lead the calendar (dates of jobs, schedules, retention) astray. It cannot end a
//! lease: see [`crate::watch`].
//!
//! [`Traffic::believed`]: crate::Traffic

use crate::log::Log;
use crate::traffic::Dated;
use object_store::path::Path;
use qo_core::{Clock, Result, Time};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tokio::time::Instant;

/// How far stamps and monotonic time may drift apart before the stamp counts: some stores stamp whole seconds.
const COARSE_MS: u64 = 1_500;
/// How old a stamp may become before a new one is asked for.
const FRESH: Duration = Duration::from_secs(10);
/// Answers that a process hears before it knows the time of a bucket: most of them would have to be wrong.
const CONFIRMED: u64 = 7;

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
        log.hear_dates(CONFIRMED).await?;
        if let Some(dated) = log.believed() {
            return Ok(Self::of(&dated));
        }
        // Counted from when it was asked, so that it is never behind what the store stamped.
        Ok(Self::at(log.store_time().await?, asked, asked))
    }

    /// A clock that is known by a date.
    pub(crate) fn of(dated: &Dated) -> Self {
        Self::at(dated.date, dated.heard, dated.sent)
    }

    fn at(time: Time, at: Instant, asked: Instant) -> Self {
        Self(Mutex::new(Observed { time, at, asked, told: time, told_at: at }))
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
        if log.believed().is_some() {
            return log.settled().map_or((), |dated| self.hear(&dated));
        }
        if self.lock().asked.elapsed() < FRESH {
            return;
        }
        if let Ok(Some(stamp)) = log.written_at(record).await {
            self.take(stamp, sent);
        }
    }

    /// An answer bore this date, and most others agree. When it came it was that late at least: dates are cut off to whole
    /// seconds, and answers are on their way for a while. So the more of them are heard, the better the time is known.
    pub(crate) fn hear(&self, dated: &Dated) {
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
    async fn a_late_answer_sets_nothing_back() {
        let clock = clock();
        let far = NOON.plus_ms(600_000);
        tokio::time::advance(Duration::from_secs(3)).await;
        clock.hear(&heard_now(far.plus_ms(2_000)));
        assert_eq!(clock.now(), far.plus_ms(2_000), "it is so late");
        let sent = Instant::now();
        tokio::time::advance(Duration::from_secs(7)).await;
        clock.hear(&Dated { date: far.plus_ms(2_000), sent, heard: Instant::now() });
        assert_eq!(clock.now(), far.plus_ms(9_000), "it was only on its way for long");
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
    async fn dates_of_whole_seconds_make_it_ever_better_known() {
        let clock = clock();
        // It is 0.9 s later at the store than its first date said.
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
