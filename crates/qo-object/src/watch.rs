//! What this process has watched of a log in a bucket, by its own monotonic clock.
//!
//! In a bucket store time comes from dates that may be wrong, so a process ends a lease only after it has itself waited for
//! the whole length of the lease since it read the record that granted or renewed it ([`qo_core::watch`]). It needs no state
//! in the log for that: it remembers when it had read the log up to which log time, and up to which record.
//!
//! 1. After each record that holds events the process marks (log time, number, now).
//! 2. A lease that was granted at log time A was granted by a record that the process had read at the first mark with a log
//!    time of at least A. Records that share a log time share a mark, and the mark bears the moment of the last of them.
//! 3. What was there when the namespace was opened counts from that moment.
//!
//! A renewal is a record, and record N + 1 can be created by one process only. So a process that ends a lease by creating
//! N + 1 has read every renewal there is.
//!
//! The same marks say which records this process has known for the [sweep](crate::sweep) age.

use qo_core::{StoreTime, Time, Watch};
use std::collections::VecDeque;
use std::time::Duration;
use tokio::time::Instant;

/// Records that were read within so short a time share a mark …
const NEAR: Duration = Duration::from_millis(100);
/// … and older ones if they lie closer together than this part of their age: a lease may end that much later.
const PART: u32 = 64;
/// Marks from which on the older ones are put together. A year of records takes about 64 · ln(year / 100 ms) of them.
const MARKS: usize = 4_096;

/// Up to where the log had been read, and when.
#[derive(Debug, Clone, Copy)]
struct Mark {
    /// Log time.
    at: Time,
    /// The last record.
    number: u64,
    /// When the first and the last record of this mark were read.
    first: Instant,
    read: Instant,
}

/// When this process had read how far.
#[derive(Debug)]
pub(crate) struct Watched {
    /// None where one clock stamps everything: store time alone decides.
    marks: Option<VecDeque<Mark>>,
}

impl Watched {
    /// Nothing has been read yet. Whether leases must be watched here.
    pub(crate) fn new(is_needed: bool) -> Self {
        Self { marks: is_needed.then(VecDeque::new) }
    }

    /// The log was opened, or opened again, at a snapshot: what it says counts from now on.
    pub(crate) fn begin(&mut self, at: Time, number: u64) {
        if let Some(marks) = &mut self.marks {
            let now = Instant::now();
            marks.clear();
            marks.push_back(Mark { at, number, first: now, read: now });
        }
    }

    /// A record was read, or written: log time is `at` now.
    pub(crate) fn saw(&mut self, at: Time, number: u64) {
        let Some(marks) = &mut self.marks else { return };
        let now = Instant::now();
        match marks.back_mut() {
            // A lease of this record may have been granted at the log time of the mark.
            Some(last) if at <= last.at || now.duration_since(last.first) < NEAR => {
                (last.at, last.number, last.read) = (at.max(last.at), number, now);
            }
            Some(_) | None => marks.push_back(Mark { at, number, first: now, read: now }),
        }
        if marks.len() > MARKS {
            put_together(marks, now);
        }
    }

    /// The last record that this process has known for at least so long. None where stamps decide.
    pub(crate) fn known_for(&self, age: Duration) -> Option<u64> {
        let marks = self.marks.as_ref()?;
        let known = marks.partition_point(|mark| mark.read.elapsed() >= age);
        Some(known.checked_sub(1).map_or(0, |last| marks[last].number))
    }

    /// What is watched as of now.
    pub(crate) fn now(&self) -> Watching<'_> {
        Watching { watched: self, now: Instant::now() }
    }
}

/// Puts marks together that lie close to each other for their age. The later of two stays: nothing is watched for less than
/// it seems.
fn put_together(marks: &mut VecDeque<Mark>, now: Instant) {
    let mut kept: VecDeque<Mark> = VecDeque::with_capacity(marks.len());
    for mark in marks.drain(..) {
        match kept.back_mut() {
            Some(last) if mark.read.duration_since(last.first) < now.duration_since(last.first) / PART => {
                *last = Mark { first: last.first, ..mark };
            }
            Some(_) | None => kept.push_back(mark),
        }
    }
    *marks = kept;
}

/// What a process has watched at one moment.
pub(crate) struct Watching<'a> {
    watched: &'a Watched,
    now: Instant,
}

impl Watch for Watching<'_> {
    fn left_ms(&self, granted: Time, until: Time) -> u64 {
        let Some(marks) = &self.watched.marks else { return StoreTime.left_ms(granted, until) };
        let mark = marks.get(marks.partition_point(|mark| mark.at < granted));
        // Of what was decided in this very step nothing has been watched.
        let watched = mark.map_or(Duration::ZERO, |mark| self.now.saturating_duration_since(mark.read));
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
        assert_eq!(left(&watched, 0, 5_000), 2_000, "it was there when the log was opened");
        assert_eq!(left(&watched, 3_600_000, 5_000), 3_000, "an hour later by log time, a second later here");
        assert_eq!(left(&watched, 3_600_001, 5_000), 5_000, "it is being decided");
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
    async fn a_year_of_records_takes_few_marks_and_ends_leases_a_little_later() {
        let mut watched = Watched::new(true);
        watched.begin(NOON, 0);
        let mut passed_ms = 0;
        for number in 1..=30_000_u64 {
            pass(1_000_000).await;
            passed_ms += 1_000_000;
            watched.saw(NOON.plus_ms(passed_ms), number);
        }
        assert!(watched.marks.as_ref().is_some_and(|marks| marks.len() <= MARKS));
        for age_ms in [1_000_000, 10_000_000, 100_000_000, 3_000_000_000, 29_000_000_000] {
            let granted_ms = passed_ms - age_ms;
            assert!(left(&watched, granted_ms, age_ms) <= age_ms / 32, "{age_ms}");
            assert!(left(&watched, granted_ms, age_ms + 1) >= 1, "{age_ms}: never early");
        }
    }

    #[test]
    fn where_one_clock_stamps_everything_store_time_decides() {
        let watched = Watched::new(false);
        assert_eq!(left(&watched, 0, 5_000), 0);
        assert_eq!(watched.known_for(Duration::from_secs(3_600)), None);
    }
}
