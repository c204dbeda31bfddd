//! Light clients: submitting without holding the state.
//!
//! 1. The client finds the end of the log, or remembers it.
//! 2. It appends a record that *offers* jobs. If another writer was first, it goes on behind that writer's record.
//! 3. The offer is acknowledged when its record is there.
//! 4. The next writer that holds the state begins its record with the [admission](crate::admission) of the offered
//!    jobs.
//!
//! Invariants:
//!
//! - An acknowledged offer is never refused. So a client offers no job that could be refused (`reject`, `skip`), and
//!   none that depends on the state (workflows, idempotency keys, limits).
//! - A client appends only behind a record whose nonce it has read, or to an empty log. It uses a remembered end for a
//!   quarter of the sweep age at most, and is itself a late writer after half of it (`writer/commit.rs`).

use crate::format::{self, Recognition};
use crate::log::Log;
use crate::put::{Put, put};
use crate::record::Record;
use crate::snapshot::{Snapshot, is_swept_beyond};
use crate::store::Options;
use crate::yield_request::YieldRequest;
use futures::future::{join, try_join_all};
use qo_core::{Command, Error, ErrorKind, NewJob, Result, Submitted, Time, caps};
use std::time::Duration;
use tokio::time::Instant;
use uuid::Uuid;

/// With so many records after the newest snapshot a light client opens the state, which writes a snapshot.
const BACKLOG: u64 = 2_000;
/// Races for the next record that an offer may lose.
const RACES: u32 = 1_000;
/// After so many lost races in a row other writers are far ahead, and the client looks for the end anew.
const STEPS: u32 = 4;
/// How long a remembered end is taken for the end. After that a look is cheaper than a failed write.
const RECENTLY: Duration = Duration::from_secs(1);
/// Records behind a remembered end that are read in parallel.
const AHEAD: u64 = 8;

/// A light client.
pub(crate) struct Offerer {
    log: Log,
    options: Options,
    id: Uuid,
    checked: bool,
    /// The end of the log when it was last seen. None where looks are free: there it is looked for every time.
    known: Option<End>,
    yield_request: YieldRequest,
    recognition: Recognition,
}

/// The end of a log.
#[derive(Debug, Clone, Copy)]
struct End {
    /// The last record, and its nonce.
    number: u64,
    nonce: Uuid,
    /// The last record that a snapshot covers.
    covered: u64,
    seen: Instant,
    /// The time of a bucket then, by its answers: a machine that sleeps counts no time of its own.
    date: Option<Time>,
}

/// The outcome of an offer.
pub(crate) enum Offered {
    /// It is in the log.
    Yes(Vec<Result<Submitted>>),
    /// It needs the state.
    NeedsState,
}

impl Offerer {
    pub(crate) fn new(log: Log, options: Options) -> Self {
        let recognition = Recognition::new(options.recognise_every);
        let (id, yield_request) = (Uuid::new_v4(), YieldRequest::default());
        Self { log, options, id, checked: false, known: None, yield_request, recognition }
    }

    /// Offers the jobs of a submit, if the command is one and all of its jobs can be offered.
    pub(crate) async fn offer(&mut self, command: &Command) -> Result<Offered> {
        let Command::Submit(jobs) = command else { return Ok(Offered::NeedsState) };
        let bytes: usize = jobs.iter().map(|job| job.payload.as_str().len()).sum();
        let fits = !jobs.is_empty() && jobs.len() <= caps::SUBMIT_JOBS && bytes <= caps::SUBMIT_BYTES;
        // A cost above a limit must be refused, and only the state knows the limits.
        let takes_one_slot = |job: &NewJob| job.cost == 1 && job.limits.values().all(|need| *need == 1);
        if !fits || !jobs.iter().all(|job| job.can_be_offered() && takes_one_slot(job)) {
            // The rule book says what is wrong with it.
            return Ok(Offered::NeedsState);
        }
        if !self.checked {
            self.check().await?;
        }
        if !self.append(jobs).await? {
            return Ok(Offered::NeedsState);
        }
        Ok(Offered::Yes(jobs.iter().map(|job| Ok(Submitted::Accepted(job.id))).collect()))
    }

    /// Checks that this release can write to the namespace. Where looks cost time, the client looks for the end of the
    /// log in parallel.
    async fn check(&mut self) -> Result<()> {
        if self.log.medium().policy().looks_are_free {
            format::check(&self.log).await?;
        } else {
            let (format, end) = join(format::check(&self.log), self.find_end()).await;
            // First: of a newer format nothing else can be understood.
            let mark = format?.mark;
            let mut end = end?;
            if end.is_some_and(|end| end.number < mark) {
                // The mark was written after the look for the end, or records are lost.
                end = self.find_end().await?;
                end.map_or(Ok(()), |end| format::check_mark(end.number, mark))?;
            }
            self.known = end;
            self.recognition.renew();
        }
        self.checked = true;
        Ok(())
    }

    /// Appends a record with an offer. False if that needs the state: the last record is not there to be followed, or
    /// no process has written a snapshot for long.
    async fn append(&mut self, jobs: &[NewJob]) -> Result<bool> {
        self.recognition.confirm(&self.log).await?;
        for race in 0..RACES {
            let Some(end) = self.end(race).await? else { return Ok(false) };
            let record = Record {
                number: end.number + 1,
                writer: self.id,
                nonce: Uuid::new_v4(),
                after: end.nonce,
                at: None,
                events: Vec::new(),
                admitted: 0,
                offered: jobs.to_vec(),
                snapshot: false,
            };
            let sent = Instant::now();
            // If the write fails, the end is not known any more.
            self.known = None;
            match put(&self.log, &record, &self.options).await? {
                Put::Ours(_) => {
                    if !self.is_trusted(&end).await {
                        let what = format!("{}: written too late to be trusted", Log::path(record.number));
                        return Err(Error::new(ErrorKind::Unknown, what));
                    }
                    self.log.medium().ring();
                    if format::is_marked(record.number) {
                        format::mark(&self.log, record.number).await;
                    }
                    self.remember(&record, sent, end);
                    return Ok(true);
                }
                Put::Theirs(theirs, _) => {
                    // Behind an end that was seen long ago the record may be a leftover of a sweep.
                    if !self.log.medium().policy().looks_are_free && self.is_trusted(&end).await {
                        self.yield_request.lost(self.log.medium(), race + 1, self.id, sent.elapsed()).await;
                        self.remember(&theirs, sent, end);
                    }
                }
            }
        }
        let what = "other processes wrote the next record first";
        let what = format!("log: {what}, {RACES} times in a row; try again");
        Err(Error::new(ErrorKind::Unavailable, what))
    }

    /// The log ended with this record. Where looks are free it is looked for anew every time.
    fn remember(&mut self, last: &Record, seen: Instant, before: End) {
        let (number, nonce, date) = (last.number, last.nonce, self.date());
        let end = End { number, nonce, seen, date, ..before };
        self.known = Some(end).filter(|_| !self.log.medium().policy().looks_are_free);
    }

    /// The end of the log, remembered or looked for. None if the state is needed.
    async fn end(&mut self, race: u32) -> Result<Option<End>> {
        let is_good = |end: &End| {
            end.number - end.covered < BACKLOG
                && end.seen.elapsed() < self.options.sweep_age / 4
                && race % STEPS != STEPS - 1
        };
        match self.known.filter(is_good) {
            Some(end) if end.seen.elapsed() < RECENTLY => Ok(Some(end)),
            Some(end) => match self.look_behind(end).await? {
                Some(end) => Ok(Some(end)),
                None => self.find_end().await,
            },
            None => self.find_end().await,
        }
    }

    /// Reads on behind a remembered end. None if that was seen too long ago.
    async fn look_behind(&self, known: End) -> Result<Option<End>> {
        let (seen, mut end) = (Instant::now(), known);
        let records = (end.number + 1..=end.number + AHEAD).map(|number| self.log.read(number));
        let mut records = try_join_all(records).await?;
        if records.iter().all(Option::is_some) {
            let last = self.log.last_after(end.number + AHEAD).await?;
            let Some(record) = self.log.read(last).await? else { return Ok(None) };
            records = vec![Some(record)];
        }
        if self.log.medium().is_late_since(known.date, self.options.sweep_age / 2).await {
            return Ok(None);
        }
        for record in records.into_iter().map_while(|record| record) {
            let follows = record.after == end.nonce || record.number > end.number + 1;
            if !follows {
                return Ok(None);
            }
            end = End { number: record.number, nonce: record.nonce, ..end };
        }
        Ok(Some(End { seen, date: self.date(), ..end }))
    }

    /// Looks for the end of the log. None if the state is needed.
    async fn find_end(&self) -> Result<Option<End>> {
        loop {
            let seen = Instant::now();
            // Read the mark before the log: it is never ahead of it.
            let mark = self.log.medium().marked();
            let covered = Snapshot::newest_number(&self.log).await?;
            // The date of the first answer: those of the next ones are not older.
            let date = self.date();
            let number = self.log.end_after(covered).await?;
            if number - covered >= BACKLOG {
                return Ok(None);
            }
            match self.log.check_whole(covered, number).await {
                // A newer snapshot came, and the record was swept: look again.
                Err(error)
                    if error.kind() == ErrorKind::Data
                        && Snapshot::newest_number(&self.log).await? > covered =>
                {
                    continue;
                }
                Err(error) => return Err(self.log.late_or(error).await),
                Ok(()) => {}
            }
            if let Err(error) = format::check_mark(number, mark) {
                return Err(self.log.late_or(error).await);
            }
            let nonce = match self.log.read(number).await? {
                Some(record) => record.nonce,
                None if number == 0 => Uuid::nil(),
                // Only the snapshot has it: a power failure took a record that was never acknowledged.
                None if Snapshot::newest_number(&self.log).await? == covered => return Ok(None),
                // A newer snapshot came, and the record was swept: look again.
                None => continue,
            };
            return Ok(Some(End { number, nonce, covered, seen, date }));
        }
    }

    fn date(&self) -> Option<Time> {
        self.log.medium().believed_now()
    }

    /// Whether readers will get to a record that was just created behind this end.
    async fn is_trusted(&self, end: &End) -> bool {
        let age = self.options.sweep_age / 2;
        end.seen.elapsed() < age
            && match self.log.medium().policy().sweeps_in_order {
                true => is_swept_beyond(&self.log, end.number).await.is_ok_and(|swept| !swept),
                false => !self.log.medium().is_late_since(end.date, age).await,
            }
    }
}
