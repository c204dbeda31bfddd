//! A commit: what was asked for becomes the next record of the log, or is tried again.
//!
//! Step by step:
//! 1. The writer waits for its [turn](crate::write_order) if other processes write too, and reads the log to its end (in a
//!    bucket, where that takes a while, only if other processes write too and it has not just done so).
//! 2. It decides all commands that wait, as a speculation, after what light clients [offered](crate::offer).
//! 3. It creates the next record with what was decided.
//! 4. **Created**: it keeps the new state and answers. **The record was there**: it takes the speculation back, evolves
//!    by the record of the other writer, and decides again. **No answer**: it creates the same record again until the
//!    outcome is known; the nonce tells its own record from another.
//!
//! Invariant (G10): no command of a batch is answered before the record of that batch is there, not even a command that
//! changed nothing: its answer may rest on what the record says. A batch that changes nothing has no record.
//!
//! **The late writer.** If more than half the [sweep](crate::sweep) age passed between the moment when the end of the log
//! was seen and the moment when the record was there, the place may have been used and swept meanwhile: the record is not
//! acknowledged, and the state is read again from a snapshot. On a directory the log itself is asked too, because clocks
//! jump and machines sleep: see [`is_swept_beyond`].

use crate::format::{self, is_closed};
use crate::log::Log;
use crate::put::{Put, put};
use crate::record::Record;
use crate::request::{Asked, fitting_jobs};
use crate::snapshot::is_swept_beyond;
use crate::writer::{TimeSource, Writer};
use futures::future::{Either, select};
use qo_core::{Answer, Command, Error, ErrorKind, Event, Result, Time, decide_watching};
use std::pin::pin;
use std::time::Duration;
use tokio::time::Instant;
use uuid::Uuid;

/// Races for the next record that a commit may lose before its callers are told to come back later.
const RACES: u32 = 1_000;
/// How long a process that could write asks again after its writes are refused.
const REFUSED: Duration = Duration::from_secs(60);

impl Writer {
    /// Commits, however long it takes to get a turn.
    pub(crate) async fn commit<T>(&mut self, commands: &[Asked<T>]) -> Result<Vec<Result<Answer>>> {
        Ok(self.try_commit(commands, false).await?.unwrap_or_default())
    }

    /// Commits. If others were first and are to be first again, it waits for its turn, or, if it `may_leave`, comes to nothing:
    /// the commands are to be tried again.
    pub(crate) async fn try_commit<T>(
        &mut self,
        commands: &[Asked<T>],
        may_leave: bool,
    ) -> Result<Option<Vec<Result<Answer>>>> {
        // Of a bucket every question takes a while. A record can only be written at the end of the log, so who is alone tries
        // it where he last saw that; only what is answered without one rests on what was seen.
        self.recognise().await?;
        let has_to_look = self.log.directory().is_some() || self.is_late();
        let mut has_looked = !has_to_look && commands.iter().all(|asked| self.has_looked_since(asked.at));
        if !has_looked && (has_to_look || (self.sees_others() && !self.has_just_looked())) {
            self.catch_up().await?;
            has_looked = true;
        }
        while self.lost < RACES {
            let at = self.time.now(self.state.now());
            // What was acknowledged before comes before; if it is too much for one record, the commands wait for the next.
            let admitted = fitting_jobs(&self.offers);
            let is_last = admitted == self.offers.len();
            let commands = if is_last { commands } else { &[] };
            self.state.speculate();
            let (events, answers) = self.decide_all(at, admitted, commands);
            if admitted == 0 && events.iter().all(|event| matches!(event, Event::Ticked(_))) {
                // That time goes on needs no record. What is answered rests on what was seen, unless it is nothing.
                self.state.take_back();
                if !std::mem::replace(&mut has_looked, true) {
                    self.catch_up().await?;
                    continue;
                }
                let is_nothing = |(asked, answer): (&Asked<T>, &Result<Answer>)| {
                    asked.is_fetch && *answer == Ok(Answer::Done)
                };
                if !commands.iter().zip(&answers).all(is_nothing) {
                    self.sync().await?;
                }
                self.lost = 0;
                return Ok(Some(answers));
            }
            if self.has_to_wait_again() {
                self.state.take_back();
                if may_leave {
                    return Ok(None);
                }
                self.wait_for_turn().await?;
                continue;
            }
            let record = Record {
                number: self.end.number + 1,
                writer: self.id,
                nonce: Uuid::new_v4(),
                after: self.end.nonce,
                at: Some(at),
                events,
                admitted,
                offered: Vec::new(),
                snapshot: is_last && self.is_snapshot_due(),
            };
            let sent = Instant::now();
            match self.put_and_look_for_requests(&record).await {
                Ok(Put::Ours(_)) if !self.is_trusted().await => {
                    self.state.take_back();
                    if let Err(error) = self.begin_again().await {
                        // It is said to whoever asks next. That the record may be there stays true.
                        tracing::debug!("{error}");
                    }
                    let what = format!("{}: written too late to be trusted", Log::path(record.number));
                    return Err(Error::new(ErrorKind::Unknown, what));
                }
                Ok(Put::Ours(bytes)) => {
                    // The others have to read it: they may begin.
                    self.give_turn();
                    self.state.keep();
                    self.written(&record, bytes, sent).await;
                    if is_last {
                        return Ok(Some(answers));
                    }
                }
                Ok(Put::Theirs(theirs, bytes)) => {
                    self.lost += 1;
                    self.state.take_back();
                    self.follow(&theirs, bytes)?;
                    self.yield_request.lost(&self.log, self.lost, self.id, self.order.pace()).await;
                    self.is_waiting = true;
                    let caught_up = self.catch_up().await;
                    self.is_waiting = false;
                    caught_up?;
                    has_looked = true;
                }
                Err(error) => {
                    self.state.take_back();
                    return Err(self.refused(error));
                }
            }
        }
        self.lost = 0;
        let next = self.end.number + 1;
        let message = format!("{}: others were first {RACES} times in a row", Log::path(next));
        Err(Error::new(ErrorKind::Unavailable, message))
    }

    /// Whether the end of a bucket's log was seen so lately that another look would not bring more than it costs: it takes as
    /// long as a race that is lost.
    pub(crate) fn has_just_looked(&self) -> bool {
        self.log.directory().is_none() && self.seen_end.elapsed() < self.order.pace() * 2
    }

    /// Puts a record, and looks meanwhile whether somebody pleads for a turn. The record does not wait for that.
    async fn put_and_look_for_requests(&mut self, record: &Record) -> Result<Put> {
        let sent = Instant::now();
        let look = pin!(self.yield_request.look(&self.log));
        let put = pin!(put(&self.log, record, &self.options));
        let put = match select(look, put).await {
            Either::Left(((), put)) => put.await,
            Either::Right((put, _)) => put,
        };
        if put.is_ok() {
            self.order.took(sent.elapsed());
        }
        put
    }

    /// What the callers of a commit are told about an error. Rights that this process never had are missing for good. Rights
    /// that it had may come back, as they do when policies are changed: for a while that is `Unavailable`.
    fn refused(&mut self, error: Error) -> Error {
        if error.kind() != ErrorKind::Invalid || !self.has_written {
            return error;
        }
        let since = *self.refused_since.get_or_insert_with(Instant::now);
        match since.elapsed() < REFUSED {
            true => Error::new(ErrorKind::Unavailable, error.message()),
            false => error,
        }
    }

    /// Whether the end of a bucket's log was seen after this.
    pub(crate) fn has_looked_since(&self, asked: Instant) -> bool {
        self.log.directory().is_none() && self.seen_end >= asked
    }

    /// Whether a record that was just written after the end, as it is known here, is one that will be read.
    async fn is_trusted(&self) -> bool {
        !self.is_late()
            && match self.log.directory() {
                Some(_) => is_swept_beyond(&self.log, self.end.number).await.is_ok_and(|swept| !swept),
                None => !self.is_late_since(self.seen_date).await,
            }
    }

    fn decide_all<T>(
        &mut self,
        at: Time,
        admitted: usize,
        commands: &[Asked<T>],
    ) -> (Vec<Event>, Vec<Result<Answer>>) {
        let mut events = Vec::new();
        let watch = self.watched.now();
        if admitted > 0 {
            let admit = Command::Admit(self.offers[..admitted].to_vec());
            match decide_watching(&mut self.state, at, &admit, &watch) {
                Ok(decision) => {
                    if let Answer::Submitted(submitted) = &decision.answer {
                        // An offer that breaks a rule cannot have come from qo; an id may have been used twice.
                        let refused = submitted.iter().filter_map(|submitted| submitted.as_ref().err());
                        refused.for_each(|error| tracing::error!("an offered job was refused: {error}"));
                    }
                    events.extend(decision.events);
                }
                Err(error) => tracing::error!("offered jobs were refused: {error}"),
            }
        }
        let answers = commands.iter().map(|asked| {
            if self.is_held && matches!(*asked.command, Command::AcquireSlots(_)) && is_closed(&self.state) {
                // A job takes a slot of `cluster`, which is closed; a program takes none there.
                return Ok(Answer::Acquired(None));
            }
            let decision = asked.decide(&mut self.state, at, &watch)?;
            events.extend(decision.events);
            Ok(decision.answer)
        });
        let answers = answers.collect();
        (events, answers)
    }

    /// A record of ours is there.
    async fn written(&mut self, record: &Record, bytes: usize, sent: Instant) {
        self.seen_end = sent;
        self.seen_date = self.log.believed_now();
        // Its folder was synced with it, and so was everything that could be seen there.
        self.unsynced = false;
        self.offers.drain(..record.admitted);
        self.lost = 0;
        (self.has_written, self.refused_since) = (true, None);
        self.order.saw(record.number, self.id);
        self.pace.saw(record);
        self.watched.saw(self.state.now(), record.number);
        self.passed(record.number, record.nonce, bytes);
        self.owes_snapshot |= record.snapshot;
        self.wrote = record.number;
        self.owes_mark |= format::is_marked(record.number);
        if let TimeSource::Store(clock) = &self.time {
            clock.observe(&self.log, &Log::path(record.number), sent).await;
        }
    }
}
