//! The write order: which writer tries to create the next record, and when.
//!
//! Writers that all try at once produce one record and many lost races.
//!
//! 1. The writer whose last record is the oldest tries at once.
//! 2. The writer after it waits one *turn timeout*, the next one two, and so on.
//! 3. A writer that has not written yet tries at once.
//!
//! Where writers show by [locks](crate::directory) that they want to write, a writer waits only for those. Elsewhere:
//!
//! 4. The turn timeout is longer: the writer must see that its turn has come, and write.
//! 5. A writer that skips [`SKIPPED`] turns, or only renews its session, loses its place until it writes again.
//! 6. No writer waits for more than [`MOST_TIMEOUTS`] turn timeouts, however large the fleet.
//! 7. A waiting writer polls the end of the log, and begins as soon as its turn has come.
//!
//! Invariant: the write order affects fairness and speed alone. The log has room for one record at each number.

use std::collections::BTreeMap;
use std::time::Duration;
use tokio::time::Instant;
use uuid::Uuid;

/// A turn timeout in records that could be written in it: with locks, and without.
const RECORDS: (u32, u32) = (2, 4);
/// A writer that has not written for this many turn timeouts is gone: no writer waits for it …
const GONE_AFTER: u32 = 24;
/// … or, without locks, for this many rounds of all writers, if that is less.
const GONE_AFTER_ROUNDS: u32 = 2;
/// Turns that a writer may skip, without locks, before it loses its place until it writes again.
const SKIPPED: u32 = 2;
/// Turn timeouts that a writer waits, without locks, at most.
const MOST_TIMEOUTS: u32 = 8;
/// Bounds of the pause between two looks of a waiting writer at the end of the log.
const LOOK: (Duration, Duration) = (Duration::from_millis(2), Duration::from_millis(250));
/// Bounds of a turn timeout, however fast or slow the store is.
const TURN_TIMEOUT: (Duration, Duration) = (Duration::from_micros(300), Duration::from_millis(500));
/// The longest room that a writer leaves for a newcomer after a record.
const MOST_ROOM: Duration = Duration::from_secs(1);
/// Bounds of how long a writer waits for the holder of the write lock, which may be stopped.
const LOCK_TIMEOUT: (Duration, Duration) = (Duration::from_millis(5), Duration::from_millis(100));

/// Which writer wrote when, as one writer saw it.
#[derive(Debug)]
pub(crate) struct WriteOrder {
    me: Uuid,
    /// The last record of each writer, and when it was seen.
    last: BTreeMap<Uuid, (u64, Instant)>,
    /// When the newest record was seen.
    newest: Instant,
    /// About how long this writer takes to write a record.
    write_time: Duration,
    has_locks: bool,
    /// Turns that other writers have skipped since they last wrote; always empty with locks.
    skipped: BTreeMap<Uuid, u32>,
}

impl WriteOrder {
    pub(crate) fn new(me: Uuid, has_locks: bool) -> Self {
        let (last, skipped) = (BTreeMap::new(), BTreeMap::new());
        let (newest, write_time) = (Instant::now(), Duration::from_millis(1));
        Self { me, last, newest, write_time, has_locks, skipped }
    }

    /// A record of a writer was seen, this writer included.
    pub(crate) fn saw(&mut self, number: u64, writer: Uuid) {
        let now = Instant::now();
        self.last.insert(writer, (number, now));
        self.skipped.remove(&writer);
        self.newest = now;
        let gone = self.gone();
        self.last.retain(|_, (_, seen)| now.duration_since(*seen) <= gone);
        self.skipped.retain(|writer, _| self.last.contains_key(writer));
    }

    /// A record was seen by which its writer only renewed its session: nothing says that it will write again soon.
    pub(crate) fn saw_renewal(&mut self, number: u64, writer: Uuid) {
        self.saw(number, writer);
        self.skipped.insert(writer, SKIPPED);
    }

    /// A record of this writer took this long to write.
    pub(crate) fn took(&mut self, time: Duration) {
        self.write_time = (self.write_time * 3 + time) / 4;
    }

    /// Whether another writer has written lately.
    pub(crate) fn sees_others(&self) -> bool {
        let (now, gone) = (Instant::now(), self.gone());
        // With locks the next record forgets writers that are gone: until then to wait for them costs nothing.
        let is_here = |seen: Instant| self.has_locks || now.duration_since(seen) <= gone;
        self.last.iter().any(|(writer, (_, seen))| *writer != self.me && is_here(*seen))
    }

    /// When this writer should try; none if now. `may_want` says whether another writer may want to write too.
    pub(crate) fn wait_until(&mut self, may_want: impl Fn(Uuid) -> bool) -> Option<Instant> {
        let now = Instant::now();
        let (mine, _) = self.last.get(&self.me)?;
        let gone = self.gone();
        let first = self.last.iter().filter(|&(writer, (number, seen))| {
            *writer != self.me
                && number < mine
                && now.duration_since(*seen) <= gone
                && self.skipped.get(writer).is_none_or(|turns| *turns < SKIPPED)
                && may_want(*writer)
        });
        let first: Vec<Uuid> = first.map(|(writer, _)| *writer).collect();
        let before_me = u32::try_from(first.len()).unwrap_or(u32::MAX);
        let timeouts = if self.has_locks { before_me } else { before_me.min(MOST_TIMEOUTS) };
        let at = self.newest + self.turn_timeout().saturating_mul(timeouts);
        if at > now {
            return Some(at);
        }
        if !self.has_locks {
            first.into_iter().for_each(|writer| *self.skipped.entry(writer).or_default() += 1);
        }
        None
    }

    /// When this writer should try if it leaves room for a newcomer whose records take this long; none if now.
    pub(crate) fn leave_room_until(&self, write_time: Duration) -> Option<Instant> {
        let at = self.newest + (write_time * RECORDS.1).max(self.turn_timeout()).min(MOST_ROOM);
        (at > Instant::now()).then_some(at)
    }

    /// About how long this writer takes to write a record.
    pub(crate) fn write_time(&self) -> Duration {
        self.write_time
    }

    /// How long the holder of the write lock may take.
    pub(crate) fn lock_timeout(&self) -> Duration {
        (self.write_time * 8).clamp(LOCK_TIMEOUT.0, LOCK_TIMEOUT.1)
    }

    /// How long other writers wait for the writer whose turn it is.
    fn turn_timeout(&self) -> Duration {
        let records = if self.has_locks { RECORDS.0 } else { RECORDS.1 };
        (self.write_time * records).clamp(TURN_TIMEOUT.0, TURN_TIMEOUT.1)
    }

    /// After how long without a record a writer is gone.
    fn gone(&self) -> Duration {
        let writers = u32::try_from(self.last.len()).unwrap_or(u32::MAX);
        let rounds = writers.saturating_add(1).saturating_mul(GONE_AFTER_ROUNDS);
        self.turn_timeout().saturating_mul(if self.has_locks { GONE_AFTER } else { rounds.min(GONE_AFTER) })
    }

    /// When a writer that waits until then polls the end of the log: more often when its turn is near.
    pub(crate) fn next_look(&self, until: Instant) -> Instant {
        let now = Instant::now();
        now + (until.saturating_duration_since(now) / 4).max(self.write_time / 2).clamp(LOOK.0, LOOK.1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn writer(number: u128) -> Uuid {
        Uuid::from_u128(number)
    }

    #[tokio::test(start_paused = true)]
    async fn the_writer_that_wrote_last_goes_last() {
        let mut seen_by: Vec<_> = (1..=3).map(|me| WriteOrder::new(writer(me), true)).collect();
        for order in &mut seen_by {
            for number in 1..=3_u64 {
                order.saw(number, writer(number.into()));
            }
        }
        let now = Instant::now();
        let waits: Vec<_> =
            seen_by.iter_mut().map(|order| order.wait_until(|_| true).map(|at| at - now)).collect();
        let timeout = seen_by[0].turn_timeout();
        assert_eq!(waits, [None, Some(timeout), Some(timeout * 2)]);
    }

    #[tokio::test(start_paused = true)]
    async fn a_writer_waits_neither_for_itself_nor_for_writers_that_left() {
        let mut order = WriteOrder::new(writer(1), true);
        assert_eq!(order.wait_until(|_| true), None);
        order.saw(1, writer(1));
        assert_eq!(order.wait_until(|_| true), None);
        order.saw(2, writer(2));
        assert_eq!(order.wait_until(|_| true), None, "the other writer wrote last");
        order.saw(3, writer(1));
        assert!(order.wait_until(|_| true).is_some());
        tokio::time::advance(order.turn_timeout()).await;
        assert_eq!(order.wait_until(|_| true), None, "its turn has timed out");
        tokio::time::advance(order.turn_timeout() * GONE_AFTER).await;
        order.saw(4, writer(1));
        assert_eq!(order.wait_until(|_| true), None, "it has left");
    }

    #[tokio::test(start_paused = true)]
    async fn a_writer_waits_only_for_writers_that_show_intent() {
        let mut order = WriteOrder::new(writer(1), true);
        for number in 1..=4_u64 {
            order.saw(number, writer((5 - number).into()));
        }
        let now = Instant::now();
        assert!(order.sees_others());
        assert_eq!(order.wait_until(|_| false), None);
        let wait = order.wait_until(|other| other == writer(3)).map(|at| at - now);
        assert_eq!(wait, Some(order.turn_timeout()), "for one writer of three");
    }

    #[tokio::test(start_paused = true)]
    async fn without_locks_a_silent_writer_is_soon_forgotten() {
        let mut order = WriteOrder::new(writer(1), false);
        order.saw(1, writer(2));
        order.saw(2, writer(3));
        order.saw(3, writer(1));
        assert!(order.sees_others() && order.wait_until(|_| true).is_some());
        tokio::time::advance(order.gone()).await;
        assert!(order.sees_others(), "they may be about to write");
        tokio::time::advance(Duration::from_millis(1)).await;
        assert!(!order.sees_others());
    }

    #[tokio::test(start_paused = true)]
    async fn a_busy_writer_waits_twice_for_writers_that_skip_their_turns() {
        let mut order = WriteOrder::new(writer(0), false);
        for number in 1..=20_u64 {
            order.saw(number, writer(number.into()));
        }
        order.saw(21, writer(0));
        let timeout = order.turn_timeout();
        let wait = order.wait_until(|_| true).map(|at| at - Instant::now());
        assert_eq!(wait, Some(timeout * MOST_TIMEOUTS), "and not for twenty timeouts");
        for number in 22..22 + u64::from(SKIPPED) {
            tokio::time::advance(timeout * MOST_TIMEOUTS).await;
            assert_eq!(order.wait_until(|_| true), None);
            order.saw(number, writer(0));
        }
        assert_eq!(order.wait_until(|_| true), None, "they have nothing to write");
        order.saw(30, writer(7));
        order.saw_renewal(31, writer(8));
        order.saw(32, writer(0));
        let wait = order.wait_until(|_| true).map(|at| at - Instant::now());
        assert_eq!(wait, Some(timeout), "for the one that wrote something");
    }
}
