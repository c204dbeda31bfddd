//! A commit: a batch of commands becomes the next record of the log.
//!
//! 1. The writer reads the log to its end. In a bucket it skips this read if no other writer is active or it read the
//!    end a moment ago. That is safe: if its state is old, the creation of record N fails (step 6). A batch without a
//!    record needs the read (step 3).
//! 2. It decides the offers that wait, then all commands of the batch, as a speculation.
//! 3. If that changes nothing, it answers without a record; the answers rest on the end of the log, read after the
//!    calls came.
//! 4. It creates record N with the resulting events and a fresh nonce ([`put`](crate::put)).
//! 5. If the record is created, it keeps the speculation and answers the callers.
//! 6. If record N is another writer's, it takes the speculation back, applies record N, and goes back to step 2. Where
//!    the write order has no locks it first waits for its turn again.
//!
//! Invariants:
//!
//! - No command of a batch is answered before the record of that batch is there (G10), not even one that changed
//!   nothing: its answer may rest on what the record says.
//! - **The late writer.** If more than half the age of the [record sweep](crate::sweep) passed between the last look at
//!   the end and the creation of the record, other processes may have created that record, covered it by a snapshot and
//!   deleted it. The record is not acknowledged (`Unknown`), and the replica reopens from a snapshot. Clocks jump and
//!   machines sleep, so the [replica](crate::replica::Replica::is_trusted) also asks the log itself, or the dates of
//!   the bucket.

use super::Writer;
use crate::format::is_closed;
use crate::log::Log;
use crate::put::Put;
use crate::record::Record;
use crate::request::Call;
use qo_core::{Answer, Command, Error, ErrorKind, Event, Result, Time, decide_watching};
use tokio::time::Instant;
use uuid::Uuid;

/// Races for the next record that a commit may lose before its callers are told to come back later.
const RACES: u32 = 1_000;

impl Writer {
    /// Commits, however long it takes to get a turn.
    pub(super) async fn commit<T>(&mut self, calls: &[Call<T>]) -> Result<Vec<Result<Answer>>> {
        Ok(self.try_commit(calls, false).await?.unwrap_or_default())
    }

    /// Commits. After a lost race in which other writers are first again it waits for its turn, or, if it `may_leave`,
    /// returns none: the caller tries the commands again.
    pub(super) async fn try_commit<T>(
        &mut self,
        calls: &[Call<T>],
        may_leave: bool,
    ) -> Result<Option<Vec<Result<Answer>>>> {
        self.recognition.confirm(&self.log).await?;
        let mut has_looked = self.look_before(calls).await?;
        while self.followers.contention.lost() < RACES {
            let at = self.replica.now();
            // Offers were acknowledged before, so they come first. If they are too many for one record, the commands
            // wait for the next.
            let admitted = self.followers.admission.fitting();
            let is_last = self.followers.admission.all_fit();
            let calls = if is_last { calls } else { &[] };
            self.replica.speculate();
            let (mut events, answers) = self.decide_all(at, admitted, calls);
            let needs_none = |event: &Event| matches!(event, Event::Ticked(_) | Event::Rejected { .. });
            if admitted == 0 && events.iter().all(needs_none) {
                // A tick of the clock alone needs no record. Refusals are counted with the next one.
                self.replica.take_back();
                if !std::mem::replace(&mut has_looked, true) {
                    self.catch_up().await?;
                    continue;
                }
                let is_nothing = |(call, answer): (&Call<T>, &Result<Answer>)| {
                    call.is_fetch && *answer == Ok(Answer::Done)
                };
                if !calls.iter().zip(&answers).all(is_nothing) {
                    self.replica.sync().await?;
                }
                self.followers.contention.forget_losses();
                self.refusals.keep(&events);
                return Ok(Some(answers));
            }
            self.refusals.count(self.replica.decide().0, &mut events);
            if self.followers.contention.must_wait_again() {
                self.replica.take_back();
                if may_leave {
                    return Ok(None);
                }
                self.wait_for_turn().await?;
                continue;
            }
            let record = self.next_record(at, events, admitted, is_last);
            let sent = Instant::now();
            match self.followers.contention.put(&self.log, &record, &self.options).await {
                Ok(Put::Ours(_)) if !self.replica.is_trusted().await => {
                    self.replica.take_back();
                    if let Err(error) = self.begin_again().await {
                        // The next call gets this error. For this one it stays true that the record may be there.
                        tracing::debug!("{error}");
                    }
                    let what = format!("{}: written too late to be trusted", Log::path(record.number));
                    return Err(Error::new(ErrorKind::Unknown, what));
                }
                Ok(Put::Ours(bytes)) => {
                    // The other writers have to read the record: they may begin.
                    self.followers.contention.end_turn();
                    self.rights.wrote();
                    self.refusals.clear();
                    self.followers.wrote(&record, bytes);
                    self.replica.wrote(&record, sent).await;
                    if is_last {
                        return Ok(Some(answers));
                    }
                }
                Ok(Put::Theirs(theirs, bytes)) => {
                    self.followers.contention.lose();
                    self.replica.take_back();
                    self.replica.follow(&theirs, bytes, &mut self.followers)?;
                    self.followers.contention.ask_for_room().await;
                    self.replica.expect_record(true);
                    let caught_up = self.catch_up().await;
                    self.replica.expect_record(false);
                    caught_up?;
                    has_looked = true;
                }
                Err(error) => {
                    self.replica.take_back();
                    return Err(self.rights.refused(error));
                }
            }
        }
        self.followers.contention.forget_losses();
        let what = "other processes wrote the next record first";
        let message = format!("{}: {what}, {RACES} times in a row; try again", Log::path(self.end() + 1));
        Err(Error::new(ErrorKind::Unavailable, message))
    }

    /// Reads to the end of the log, unless the commit may do without. Returns whether the end was seen since the calls
    /// came.
    async fn look_before<T>(&mut self, calls: &[Call<T>]) -> Result<bool> {
        let must_look = self.log.medium().policy().looks_are_free || self.replica.is_late();
        if !must_look && calls.iter().all(|call| self.replica.has_looked_since(call.at)) {
            return Ok(true);
        }
        let contention = &self.followers.contention;
        let is_worth_it = contention.sees_others() && !self.replica.has_just_looked(contention.write_time());
        if must_look || is_worth_it {
            self.catch_up().await?;
            return Ok(true);
        }
        Ok(false)
    }

    fn next_record(&self, at: Time, events: Vec<Event>, admitted: usize, is_last: bool) -> Record {
        let end = self.replica.end();
        Record {
            number: end.number + 1,
            writer: self.id,
            nonce: Uuid::new_v4(),
            after: end.nonce,
            at: Some(at),
            events,
            admitted,
            offered: Vec::new(),
            snapshot: is_last && self.followers.housekeeping.is_snapshot_due(),
        }
    }

    fn decide_all<T>(
        &mut self,
        at: Time,
        admitted: usize,
        calls: &[Call<T>],
    ) -> (Vec<Event>, Vec<Result<Answer>>) {
        let (mut events, is_held) = (Vec::new(), self.is_held);
        let admit = self.followers.admission.command(admitted);
        let (state, watch) = self.replica.decide();
        if let Some(admit) = admit {
            match decide_watching(state, at, &admit, &watch) {
                Ok(decision) => {
                    if let Answer::Submitted(submitted) = &decision.answer {
                        // qo offers no job that breaks a rule, but an id may have been used twice.
                        let refused = submitted.iter().filter_map(|submitted| submitted.as_ref().err());
                        refused.for_each(|error| tracing::error!("an offered job was refused: {error}"));
                    }
                    events.extend(decision.events);
                }
                Err(error) => tracing::error!("offered jobs were refused: {error}"),
            }
        }
        let answers = calls.iter().map(|call| {
            if is_held && matches!(*call.command, Command::AcquireSlots(_)) && is_closed(state) {
                // The hold closes `cluster`. A job takes a slot there, a program does not.
                return Ok(Answer::Acquired(None));
            }
            let decision = call.decide(state, at, &watch)?;
            events.extend(decision.events);
            Ok(decision.answer)
        });
        let answers = answers.collect();
        (events, answers)
    }
}
