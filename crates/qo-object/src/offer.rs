//! Light clients: submitting without holding the state.
//!
//! Whoever only submits need not read what is stored, however much that is: it appends a record that *offers* jobs. The next
//! writer that holds the state begins its record with what becomes of them. An offer is acknowledged when its record is
//! there, so from then on it will not be refused; what may be refused (`reject`, `skip`), or depends on what is stored
//! (workflows, idempotency keys, limits), is not offered.

use crate::format;
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

/// Records after the newest snapshot from which on a light client does not only add to the pile: it opens the state, which
/// writes a snapshot.
const PILE: u64 = 2_000;
/// Races for the next record that an offer may lose.
const RACES: u32 = 1_000;
/// After so many of them in a row others are far ahead: the end is looked for.
const STEPS: u32 = 4;
/// What was seen so long ago may not be the end any more: it is cheaper to look than to write in vain.
const RECENTLY: Duration = Duration::from_secs(1);
/// Records that are read at once behind the end of a bucket's log.
const AHEAD: u64 = 8;

/// Somebody who offers jobs.
pub(crate) struct Offerer {
    log: Log,
    options: Options,
    id: Uuid,
    checked: bool,
    /// Where a log in a bucket ended when it was last seen: to look for that takes several questions, to write there one.
    known: Option<End>,
    yield_request: YieldRequest,
    /// When the namespace in a bucket was last seen to be the one that was opened.
    recognised: Instant,
}

/// Where a log ends.
#[derive(Debug, Clone, Copy)]
struct End {
    /// The last record, and its nonce.
    number: u64,
    nonce: Uuid,
    /// The last record that a snapshot covers.
    covered: u64,
    seen: Instant,
    /// The date that a bucket's answer bore then: a machine that sleeps counts no time of its own.
    date: Option<Time>,
}

/// What became of an offer.
pub(crate) enum Offered {
    /// It is in the log.
    Yes(Vec<Result<Submitted>>),
    /// It needs the state.
    NeedsState,
}

impl Offerer {
    pub(crate) fn new(log: Log, options: Options) -> Self {
        let (id, yield_request, recognised) = (Uuid::new_v4(), YieldRequest::default(), Instant::now());
        Self { log, options, id, checked: false, known: None, yield_request, recognised }
    }

    /// Offers the jobs of a submit, if that is what it is and all of them can be.
    pub(crate) async fn offer(&mut self, command: &Command) -> Result<Offered> {
        let Command::Submit(jobs) = command else { return Ok(Offered::NeedsState) };
        let bytes: usize = jobs.iter().map(|job| job.payload.as_str().len()).sum();
        let fits = !jobs.is_empty() && jobs.len() <= caps::SUBMIT_JOBS && bytes <= caps::SUBMIT_BYTES;
        // A cost above a limit is to be refused, and only the state knows the limits.
        let takes_one_slot = |job: &NewJob| job.cost == 1 && job.limits.values().all(|need| *need == 1);
        if !fits || !jobs.iter().all(|job| job.can_be_offered() && takes_one_slot(job)) {
            // What is wrong with it is said by the rule book.
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

    /// Makes sure that this release can write there. Of a bucket every question takes a while, so the end of the log is looked
    /// for meanwhile.
    async fn check(&mut self) -> Result<()> {
        match self.log.directory() {
            Some(_) => drop(format::check(&self.log).await?),
            None => {
                let (format, end) = join(format::check(&self.log), self.find_end()).await;
                // Of a newer format nothing else can be understood.
                let mark = format?.mark;
                let mut end = end?;
                if end.is_some_and(|end| end.number < mark) {
                    // The end was looked for before the mark was written, or records are lost.
                    end = self.find_end().await?;
                    end.map_or(Ok(()), |end| format::check_mark(end.number, mark))?;
                }
                self.known = end;
                self.recognised = Instant::now();
            }
        }
        self.checked = true;
        Ok(())
    }

    /// Appends a record with an offer. False if that needs the state, because the last record is not there to be followed, or
    /// because nobody has written a snapshot for long.
    async fn append(&mut self, jobs: &[NewJob]) -> Result<bool> {
        if self.log.directory().is_none() && self.recognised.elapsed() >= self.options.recognise_every {
            format::still_ours(&self.log).await?;
            self.recognised = Instant::now();
        }
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
                snapshot: false,
                offered: jobs.to_vec(),
            };
            let sent = Instant::now();
            // If it fails nobody knows where the log ends.
            self.known = None;
            match put(&self.log, &record, &self.options).await? {
                Put::Ours(_) => {
                    if !self.is_trusted(&end).await {
                        let what = format!("{}: written too late to be trusted", Log::path(record.number));
                        return Err(Error::new(ErrorKind::Unknown, what));
                    }
                    self.log.directory().inspect(|directory| directory.ring());
                    if format::is_marked(record.number) {
                        format::mark(&self.log, record.number).await;
                    }
                    let date = self.date();
                    self.know(End { number: record.number, nonce: record.nonce, seen: sent, date, ..end });
                    return Ok(true);
                }
                // A directory is looked at anew; and behind an end that was seen long ago it may be one that was left when
                // others were swept.
                Put::Theirs(..) if self.log.directory().is_some() || !self.is_trusted(&end).await => {}
                Put::Theirs(theirs, _) => {
                    self.yield_request.lost(&self.log, race + 1, self.id, sent.elapsed()).await;
                    let date = self.date();
                    self.know(End { number: theirs.number, nonce: theirs.nonce, seen: sent, date, ..end });
                }
            }
        }
        let what = format!("log: others were first {RACES} times in a row");
        Err(Error::new(ErrorKind::Unavailable, what))
    }

    /// A directory is looked at anew every time, which costs next to nothing.
    fn know(&mut self, end: End) {
        self.known = Some(end).filter(|_| self.log.directory().is_none());
    }

    /// Where the log ends, as far as is known; after some races that were lost it is looked for. None if somebody must hold
    /// the state.
    async fn end(&mut self, race: u32) -> Result<Option<End>> {
        let is_good = |end: &End| {
            end.number - end.covered < PILE
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

    /// Where the log ends that was seen to end there. None if that was too long ago.
    async fn look_behind(&self, known: End) -> Result<Option<End>> {
        let (seen, mut end) = (Instant::now(), known);
        let records = (end.number + 1..=end.number + AHEAD).map(|number| self.log.read(number));
        let mut records = try_join_all(records).await?;
        if records.iter().all(Option::is_some) {
            let last = self.log.last_after(end.number + AHEAD).await?;
            let Some(record) = self.log.read(last).await? else { return Ok(None) };
            records = vec![Some(record)];
        }
        if self.log.is_late_since(known.date, self.options.sweep_age / 2).await {
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

    async fn find_end(&self) -> Result<Option<End>> {
        loop {
            let seen = Instant::now();
            // Before the end is looked for: the mark is never ahead of the log.
            let mark = self.log.directory_mark();
            let covered = Snapshot::newest_number(&self.log).await?;
            // Of the first answer: what the next ones say is not older.
            let date = self.date();
            let number = match self.log.directory() {
                Some(_) => self.log.last_after(covered).await?,
                None => self.log.listed_end(covered).await?,
            };
            if number - covered >= PILE {
                return Ok(None);
            }
            match self.log.check_whole(covered, number).await {
                // A newer snapshot has come, and what was looked for was swept: look again.
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
                // Only the snapshot knows it: a power failure took a record that nobody had acknowledged.
                None if Snapshot::newest_number(&self.log).await? == covered => return Ok(None),
                // A newer snapshot has come, and this was swept: look again.
                None => continue,
            };
            return Ok(Some(End { number, nonce, covered, seen, date }));
        }
    }

    fn date(&self) -> Option<Time> {
        self.log.believed_now()
    }

    /// Whether a record that was just written after an end is one that will be read.
    async fn is_trusted(&self, end: &End) -> bool {
        let age = self.options.sweep_age / 2;
        end.seen.elapsed() < age
            && match self.log.directory() {
                Some(_) => is_swept_beyond(&self.log, end.number).await.is_ok_and(|swept| !swept),
                None => !self.log.is_late_since(end.date, age).await,
            }
    }
}
