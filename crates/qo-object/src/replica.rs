//! The replica: the state of this process, and how far it has read the log.
//!
//! **Catching up.** A reader applies record after record until the next one is not there.
//!
//! 1. If it has not seen the end of the log for half the sweep age and a snapshot lies behind its end, it reopens from
//!    the newest snapshot.
//! 2. It reads on. Each record must name the nonce of the record before it.
//! 3. It makes sure that the end is the end, and not a place that was swept: see [`Replica::is_swept`]. If it is such a
//!    place, it reopens, and goes back to step 2.
//!
//! After a long stall the next records may be leftovers of a sweep, or records of other stalled writers. They
//! contradict the log; the reader then reopens, too.
//!
//! Invariants:
//!
//! - The state is that of record `end`, and no call changes it but by a record.
//! - `seen_end` is not later than the time at which record `end` was the last: a writer that creates a record more than
//!   half the sweep age after it does not trust that record ([`Replica::is_trusted`]).

use crate::clock::TimeSource;
use crate::log::Log;
use crate::record::Record;
use crate::snapshot::{Covered, Snapshot, is_swept_beyond, missing};
use crate::watch::{Watched, Watching};
use futures::{StreamExt, stream};
use qo_core::{Error, ErrorKind, Result, State, Time};
use std::time::Duration;
use tokio::sync::watch;
use tokio::time::Instant;

/// How often a reader reopens because the log is swept faster than it reads.
const REOPENS: u32 = 5;
/// Records that are asked for in parallel, at most: by a reader that follows, and by one that opens the namespace.
const AHEAD: (u64, u64) = (8, 64);
/// Bytes that are asked for in parallel, at most, if all records are as large as the largest so far.
const AHEAD_BYTES: u64 = 32 << 20;

/// What else in a process follows the log.
pub(crate) trait Follow {
    /// The replica was reopened from a snapshot of this size.
    fn reopened(&mut self, snapshot_bytes: usize);

    /// A record was read, and this is the state after it. `is_old` if the replica reads what was written before it was
    /// opened, or reopened.
    fn saw(&mut self, record: &Record, bytes: usize, state: &State, is_old: bool);
}

/// The state of this process, and how far it has read the log.
pub(crate) struct Replica {
    log: Log,
    sweep_age: Duration,
    time: TimeSource,
    state: State,
    /// The last record that the state knows.
    end: Covered,
    /// When that was last known to be the end of the log.
    seen_end: Instant,
    /// The time of a bucket then, by its answers: a machine that sleeps counts no time of its own.
    seen_date: Option<Time>,
    /// Records of other processes were seen that may not be on the disk yet.
    unsynced: bool,
    watched: Watched,
    /// How many records were applied, for callers that wait for the next.
    applied: watch::Sender<u64>,
    is_reading_back: bool,
    /// A record of another writer is expected.
    expects_record: bool,
}

impl Replica {
    /// An empty replica: [`reopen`](Self::begin_again) it.
    pub(crate) fn new(log: &Log, sweep_age: Duration, time: TimeSource, applied: watch::Sender<u64>) -> Self {
        let watched = Watched::new(log.medium().policy().watches_leases && time.is_store());
        Self {
            log: log.clone(),
            sweep_age,
            time,
            state: State::new(),
            end: Covered::NOTHING,
            seen_end: Instant::now(),
            seen_date: None,
            unsynced: false,
            watched,
            applied,
            is_reading_back: false,
            expects_record: false,
        }
    }

    /// The last record that the state knows.
    pub(crate) fn end(&self) -> Covered {
        self.end
    }

    pub(crate) fn state(&self) -> &State {
        &self.state
    }

    /// The time now.
    pub(crate) fn now(&self) -> Time {
        self.time.now(self.state.now())
    }

    /// The state, and which leases this process has watched. A caller that changes the state speculates.
    pub(crate) fn decide(&mut self) -> (&mut State, Watching<'_>) {
        (&mut self.state, self.watched.now())
    }

    /// Begins a speculation: what is decided from now on is kept or taken back.
    pub(crate) fn speculate(&mut self) {
        self.state.speculate();
    }

    pub(crate) fn take_back(&mut self) {
        self.state.take_back();
    }

    /// The last record that this process has known for the sweep age. None where stamps decide.
    pub(crate) fn known(&self) -> Option<u64> {
        self.watched.known_for(self.sweep_age)
    }

    /// Compares the clock with the dates of a bucket's newest answers.
    pub(crate) fn hear_time(&self) {
        self.time.hear(self.log.medium());
    }

    /// Says whether a record of another writer is expected: then the next read asks for two.
    pub(crate) fn expect_record(&mut self, expected: bool) {
        self.expects_record = expected;
    }

    /// Reopens from the newest snapshot, and reads on to the end.
    pub(crate) async fn begin_again(&mut self, follow: &mut impl Follow) -> Result<()> {
        self.reopen(follow).await?;
        self.is_reading_back = true;
        let read = self.reach_end(true, follow).await;
        self.is_reading_back = false;
        read
    }

    async fn reopen(&mut self, follow: &mut impl Follow) -> Result<()> {
        let Snapshot { covered, state, bytes } = Snapshot::newest(&self.log).await?;
        (self.state, self.end) = (state, covered);
        self.watched.begin(self.state.now(), self.end.number);
        follow.reopened(bytes);
        self.applied.send_modify(|applied| *applied += 1);
        Ok(())
    }

    /// Reads to the end of the log.
    pub(crate) async fn catch_up(&mut self, follow: &mut impl Follow) -> Result<()> {
        // A directory that is away, or another one, does not hold what was opened.
        self.log.medium().still_there()?;
        if self.is_late() && Snapshot::newest_number(&self.log).await? > self.end.number {
            return self.begin_again(follow).await;
        }
        // Where looks cost something, one more is made only if time says so.
        self.reach_end(self.log.medium().policy().looks_are_free, follow).await
    }

    /// Reads to the end of the log; `check` asks whether that was swept even if no clock says so.
    async fn reach_end(&mut self, check: bool, follow: &mut impl Follow) -> Result<()> {
        for _ in 0..REOPENS {
            let seen = self.seen_date;
            match self.read_on(follow).await {
                Err(error)
                    if error.kind() == ErrorKind::Data
                        && self.is_late_since(seen).await
                        && Snapshot::newest_number(&self.log).await? > self.end.number =>
                {
                    self.reopen(follow).await?;
                    continue;
                }
                read => read?,
            }
            if !self.is_swept(check, seen).await? {
                return Ok(());
            }
            self.reopen(follow).await?;
        }
        Err(missing(self.end.number + 1))
    }

    /// Whether the log was swept beyond the end that was just read. Where records are swept in order, the record before
    /// the end tells. Elsewhere a snapshot behind the end does.
    async fn is_swept(&mut self, check: bool, seen: Option<Time>) -> Result<bool> {
        if self.log.medium().policy().sweeps_in_order {
            return Ok(check && is_swept_beyond(&self.log, self.end.number).await?);
        }
        let is_late = self.is_late_since(seen).await;
        let is_swept = (check || is_late) && Snapshot::newest_number(&self.log).await? > self.end.number;
        if is_late && !is_swept {
            // The machine slept, and the end was seen since: the process is not late any more.
            self.seen_date = self.log.medium().believed_now();
        }
        Ok(is_swept)
    }

    async fn read_on(&mut self, follow: &mut impl Follow) -> Result<()> {
        if self.log.medium().policy().reads_ahead {
            return self.read_ahead(follow).await;
        }
        loop {
            let asked = Instant::now();
            let Some((record, bytes)) = self.log.read_sized(self.end.number + 1).await? else {
                self.seen_end = asked;
                return Ok(());
            };
            self.follow(&record, bytes, follow)?;
        }
    }

    /// Reads on with several requests in parallel: first one, then two, then four. Tailing costs one or two extra GETs;
    /// a reader that begins far behind does not wait for every single answer.
    async fn read_ahead(&mut self, follow: &mut impl Follow) -> Result<()> {
        let (mut ahead, most) = match self.is_reading_back {
            true => (AHEAD.0, AHEAD.1),
            // One of two is there, and the other is the end.
            false if self.expects_record => (2, AHEAD.0),
            false => (1, AHEAD.0),
        };
        let mut largest = 1;
        loop {
            let (log, next) = (self.log.clone(), self.end.number + 1);
            let asked = Instant::now();
            let reads = (next..next + ahead).map(|number| log.read_sized(number));
            // In order: no answer from behind the end is waited for.
            let mut records = stream::iter(reads).buffered(ahead as usize);
            while let Some(record) = records.next().await {
                let Some((record, bytes)) = record? else {
                    self.seen_end = asked;
                    self.seen_date = self.log.medium().believed_now();
                    return Ok(());
                };
                largest = largest.max(bytes as u64);
                self.follow(&record, bytes, follow)?;
            }
            ahead = (ahead * 2).min(most).min(AHEAD_BYTES / largest).max(1);
        }
    }

    /// Applies a record of another process.
    pub(crate) fn follow(&mut self, record: &Record, bytes: usize, follow: &mut impl Follow) -> Result<()> {
        if record.after != self.end.nonce {
            let what = format!("{}: does not follow the record before it", Log::path(record.number));
            return Err(Error::new(ErrorKind::Data, what));
        }
        record.events.iter().for_each(|event| self.state.evolve(event));
        if !record.events.is_empty() {
            // An offer grants no lease, and lets no time pass.
            self.watched.saw(self.state.now(), record.number);
        }
        self.unsynced = true;
        follow.saw(record, bytes, &self.state, self.is_reading_back);
        self.passed(record);
        Ok(())
    }

    /// A record that this process decided is there: its events are in the state already.
    pub(crate) async fn wrote(&mut self, record: &Record, sent: Instant) {
        self.state.keep();
        self.seen_end = sent;
        self.seen_date = self.log.medium().believed_now();
        // Its folder was synced with it, and so was every record that could be seen there.
        self.unsynced = false;
        self.watched.saw(self.state.now(), record.number);
        self.passed(record);
        self.time.observe(self.log.medium(), &Log::path(record.number), sent).await;
    }

    /// The state knows one more record.
    fn passed(&mut self, record: &Record) {
        self.end = Covered { number: record.number, nonce: record.nonce };
        self.applied.send_modify(|applied| *applied += 1);
    }

    /// Waits until every record that the state knows is on the disk: answers depend on it.
    pub(crate) async fn sync(&mut self) -> Result<()> {
        if std::mem::take(&mut self.unsynced) {
            self.log.medium().sync().await.inspect_err(|_| self.unsynced = true)?;
        }
        Ok(())
    }

    /// Whether the end was seen so long ago that records behind it may have been swept.
    pub(crate) fn is_late(&self) -> bool {
        self.seen_end.elapsed() >= self.sweep_age / 2
    }

    /// The same by the dates of a bucket, however much time passed in this process.
    async fn is_late_since(&self, seen: Option<Time>) -> bool {
        self.log.medium().is_late_since(seen, self.sweep_age / 2).await
    }

    /// Whether the end was seen after this. Where looks are free the answer is no, and the caller looks.
    pub(crate) fn has_looked_since(&self, asked: Instant) -> bool {
        !self.log.medium().policy().looks_are_free && self.seen_end >= asked
    }

    /// Whether the end was seen so lately that another look, which takes as long as a lost race, is not worth it.
    pub(crate) fn has_just_looked(&self, write_time: Duration) -> bool {
        !self.log.medium().policy().looks_are_free && self.seen_end.elapsed() < write_time * 2
    }

    /// Whether readers will get to a record that was just created behind the end.
    pub(crate) async fn is_trusted(&self) -> bool {
        !self.is_late()
            && match self.log.medium().policy().sweeps_in_order {
                true => is_swept_beyond(&self.log, self.end.number).await.is_ok_and(|swept| !swept),
                false => !self.is_late_since(self.seen_date).await,
            }
    }
}
