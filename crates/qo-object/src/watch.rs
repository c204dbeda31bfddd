//! Watching leases, by the monotonic clock of this process.
//!
//! In a bucket store time comes from dates that may be wrong. So a process ends a lease only after it has waited for
//! the whole length of the lease since it read the record that granted or renewed it ([`qo_core::watch`]). It needs
//! nothing in the log for that: it remembers when it had read the log up to which log time, and up to which record.
//!
//! 1. After each record that holds events the process keeps a reading: (log time, number, now).
//! 2. A lease that was granted at log time A was granted by a record that the process had read at the first reading
//!    with a log time of at least A. Records that share a log time share a reading, and it has the time of the last of
//!    them.
//! 3. Leases that were there when the namespace was opened count from the time of opening.
//!
//! Invariant: a process that ends a lease has read every renewal of it. A renewal is a record, the lease ends by a
//! record, and one process alone can create record N + 1.
//!
//! The same readings tell which records this process has known for the [sweep](crate::sweep) age.

use qo_core::{StoreTime, Time, Watch};
use std::collections::VecDeque;
use std::time::Duration;
use tokio::time::Instant;

/// Records that were read within so short a time share a reading …
const NEAR: Duration = Duration::from_millis(100);
/// … and older ones if they are closer together than this part of their age: a lease may end that much later.
const PART: u32 = 64;
/// With more readings the older ones are merged. A year of records takes about 64 · ln(year / 100 ms) of them.
const READINGS: usize = 4_096;

/// How far the log had been read, and when.
#[derive(Debug, Clone, Copy)]
struct Reading {
    /// Log time.
    at: Time,
    /// The last record.
    number: u64,
    /// When the first and the last record of this reading were read.
    first: Instant,
    read: Instant,
}

/// When this process had read the log, and how far.
#[derive(Debug)]
pub(crate) struct Watched {
    /// None where one clock stamps everything: there store time alone decides.
    readings: Option<VecDeque<Reading>>,
}

impl Watched {
    /// Nothing has been read yet. `is_needed` where leases must be watched.
    pub(crate) fn new(is_needed: bool) -> Self {
        Self { readings: is_needed.then(VecDeque::new) }
    }

    /// The log was opened, or reopened, at a snapshot: its leases count from now on.
    pub(crate) fn begin(&mut self, at: Time, number: u64) {
        if let Some(readings) = &mut self.readings {
            let now = Instant::now();
            readings.clear();
            readings.push_back(Reading { at, number, first: now, read: now });
        }
    }

    /// A record was read, or written: log time is `at` now.
    pub(crate) fn saw(&mut self, at: Time, number: u64) {
        let Some(readings) = &mut self.readings else { return };
        let now = Instant::now();
        match readings.back_mut() {
            // A lease of this record may have been granted at the log time of the last reading.
            Some(last) if at <= last.at || now.duration_since(last.first) < NEAR => {
                (last.at, last.number, last.read) = (at.max(last.at), number, now);
            }
            Some(_) | None => readings.push_back(Reading { at, number, first: now, read: now }),
        }
        if readings.len() > READINGS {
            merge(readings, now);
        }
    }

    /// The last record that this process has known for at least so long. None where stamps decide.
    pub(crate) fn known_for(&self, age: Duration) -> Option<u64> {
        let readings = self.readings.as_ref()?;
        let known = readings.partition_point(|reading| reading.read.elapsed() >= age);
        Some(known.checked_sub(1).map_or(0, |last| readings[last].number))
    }

    /// What this process has watched as of now.
    pub(crate) fn now(&self) -> Watching<'_> {
        Watching { watched: self, now: Instant::now() }
    }
}

/// Merges readings that are close to each other for their age. The later of two stays, so no lease ends early.
fn merge(readings: &mut VecDeque<Reading>, now: Instant) {
    let mut kept: VecDeque<Reading> = VecDeque::with_capacity(readings.len());
    for reading in readings.drain(..) {
        match kept.back_mut() {
            Some(last) if reading.read.duration_since(last.first) < now.duration_since(last.first) / PART => {
                *last = Reading { first: last.first, ..reading };
            }
            Some(_) | None => kept.push_back(reading),
        }
    }
    *readings = kept;
}

/// What a process has watched at one time.
pub(crate) struct Watching<'a> {
    watched: &'a Watched,
    now: Instant,
}

impl Watch for Watching<'_> {
    fn left_ms(&self, granted: Time, until: Time) -> u64 {
        let Some(readings) = &self.watched.readings else { return StoreTime.left_ms(granted, until) };
        let reading = readings.get(readings.partition_point(|reading| reading.at < granted));
        // A lease that is granted in this very step has not been watched at all.
        let watched =
            reading.map_or(Duration::ZERO, |reading| self.now.saturating_duration_since(reading.read));
        let watched_ms = u64::try_from(watched.as_millis()).unwrap_or(u64::MAX);
        until.ms_since(granted).saturating_sub(watched_ms)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOON: Time = Time::from_millis(1_800_000_000_000);

    async fn pass(ms: u64) {
        tokio::time::advance(Duration::from_millis(ms)).await;
    }

    fn left(watched: &Watched, granted_ms: u64, lease_ms: u64) -> u64 {
        let granted = NOON.plus_ms(granted_ms);
        watched.now().left_ms(granted, granted.plus_ms(lease_ms))
    }

    #[tokio::test(start_paused = true)]
    async fn a_lease_counts_from_when_its_record_was_read() {
        let mut watched = Watched::new(true);
        watched.begin(NOON, 7);
        pass(1_000).await;
        watched.saw(NOON.plus_ms(3_600_000), 8);
        pass(2_000).await;
        assert_eq!(left(&watched, 0, 5_000), 2_000, "since the log was opened");
        assert_eq!(left(&watched, 3_600_000, 5_000), 3_000, "an hour later by log time, a second later here");
        assert_eq!(left(&watched, 3_600_001, 5_000), 5_000, "granted in this very step");
        pass(3_000).await;
        assert_eq!((left(&watched, 0, 5_000), left(&watched, 3_600_000, 5_000)), (0, 0));
        assert_eq!(watched.known_for(Duration::from_millis(5_500)), Some(7));
        watched.begin(NOON.plus_ms(3_600_000), 9);
        assert_eq!(left(&watched, 0, 5_000), 5_000, "opened again: nothing is known of the time between");
    }

    #[tokio::test(start_paused = true)]
    async fn records_of_one_log_time_count_from_the_last_of_them() {
        let mut watched = Watched::new(true);
        watched.begin(NOON, 0);
        pass(10_000).await;
        // A process whose dates are behind grants a lease at the log time that it has read.
        watched.saw(NOON, 1);
        pass(1_000).await;
        assert_eq!(left(&watched, 0, 5_000), 4_000);
        watched.saw(NOON.plus_ms(1), 2);
        assert_eq!(left(&watched, 0, 5_000), 4_000);
    }

    #[tokio::test(start_paused = true)]
    async fn a_year_of_records_takes_few_readings() {
        let mut watched = Watched::new(true);
        watched.begin(NOON, 0);
        let mut passed_ms = 0;
        for number in 1..=30_000_u64 {
            pass(1_000_000).await;
            passed_ms += 1_000_000;
            watched.saw(NOON.plus_ms(passed_ms), number);
        }
        assert!(watched.readings.as_ref().is_some_and(|readings| readings.len() <= READINGS));
        for age_ms in [1_000_000, 10_000_000, 100_000_000, 3_000_000_000, 29_000_000_000] {
            let granted_ms = passed_ms - age_ms;
            assert!(left(&watched, granted_ms, age_ms) <= age_ms / 32, "{age_ms}");
            assert!(left(&watched, granted_ms, age_ms + 1) >= 1, "{age_ms}: never early");
        }
    }

    #[test]
    fn with_one_clock_store_time_decides() {
        let watched = Watched::new(false);
        assert_eq!(left(&watched, 0, 5_000), 0);
        assert_eq!(watched.known_for(Duration::from_secs(3_600)), None);
    }
}
