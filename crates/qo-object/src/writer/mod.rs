//! The writer: one for each opened namespace. It serves the calls of its process, one batch after the other, and
//! composes the parts that do the work:
//!
//! | part | owns |
//! |---|---|
//! | [`Replica`] | the state, and how far the log was read |
//! | [`Contention`] | what is known of other writers, and the locks that they see |
//! | [`Admission`] | offers that no record has admitted |
//! | [`Polling`] | when to look for records of other processes |
//! | [`Housekeeping`] | snapshots, sweeps, marks |
//! | [`Recognition`] | when the namespace was last seen to be the one that was opened |
//! | [`WriteRights`] | since when writes are refused |
//!
//! `commit` turns a batch of commands into the next record, `turn` waits for this writer's turn.

mod commit;
mod refusals;
mod rights;
mod turn;

use crate::admission::Admission;
use crate::clock::TimeSource;
use crate::contention::Contention;
use crate::format::{self, Recognition, is_closed};
use crate::history;
use crate::housekeeping::Housekeeping;
use crate::log::Log;
use crate::polling::Polling;
use crate::record::Record;
use crate::replica::{Follow, Replica};
use crate::request::{BATCH, Call, Caller, Look, Request, fitting};
use crate::snapshot::{Snapshot, missing};
use crate::store::Options;
use futures::future::try_join;
use qo_core::{Clock, Command, Error, ErrorKind, Result, State, Watch, decide_watching};
use refusals::Refusals;
use rights::WriteRights;
use std::{sync::Arc, time::Duration};
use tokio::sync::{Notify, mpsc, oneshot, watch};
use tokio::task::yield_now;
use tokio::time::{Instant, sleep};
use uuid::Uuid;

/// How soon to look again whether the holder of the write lock has admitted the offers.
const GLANCE: Duration = Duration::from_millis(1);

/// How often to look again for records that a mark names and that are not there.
const LATE_LOOKS: u32 = 2;

pub(crate) struct Writer {
    id: Uuid,
    log: Log,
    options: Options,
    replica: Replica,
    followers: Followers,
    recognition: Recognition,
    rights: WriteRights,
    /// Refusals that no record has counted yet.
    refusals: Refusals,
    /// A repair holds the namespace, or did when it was opened.
    is_held: bool,
    /// Callers that wait until nothing is under way beside the log.
    finished: Vec<oneshot::Sender<()>>,
}

/// The parts that follow the log, record by record, beside the state.
struct Followers {
    contention: Contention,
    admission: Admission,
    polling: Polling,
    housekeeping: Housekeeping,
}

impl Follow for Followers {
    fn reopened(&mut self, snapshot_bytes: usize) {
        self.admission.clear();
        self.housekeeping.reopened(snapshot_bytes);
    }

    fn saw(&mut self, record: &Record, bytes: usize, state: &State, is_old: bool) {
        self.admission.saw(record, state);
        self.contention.saw(record, is_old);
        if !is_old {
            self.polling.saw(record);
        }
        self.housekeeping.saw(record, bytes, is_old);
    }
}

impl Followers {
    /// A record of this writer is there.
    fn wrote(&mut self, record: &Record, bytes: usize) {
        self.admission.admitted(record.admitted);
        self.contention.wrote(record.number);
        self.polling.saw(record);
        self.housekeeping.wrote(record, bytes);
    }
}

impl Writer {
    /// Reads a namespace to its end.
    pub(crate) async fn open(
        log: Log,
        clock: Option<Arc<dyn Clock>>,
        options: Options,
        applied: watch::Sender<u64>,
    ) -> Result<Self> {
        let found = format::check(&log).await?;
        let (medium, id) = (log.medium(), Uuid::new_v4());
        let time = TimeSource::open(medium, clock).await?;
        let followers = Followers {
            contention: Contention::new(id, medium),
            admission: Admission::new(medium, &options),
            polling: Polling::new(medium, &options),
            housekeeping: Housekeeping::new(id, &log, &options, found.mark),
        };
        let mut writer = Self {
            id,
            replica: Replica::new(&log, options.sweep_age, time, applied),
            followers,
            recognition: Recognition::new(options.recognise_every),
            rights: WriteRights::default(),
            refusals: Refusals::default(),
            is_held: !found.holds.is_empty(),
            finished: Vec::new(),
            log,
            options,
        };
        writer.begin_again().await?;
        writer.check_end().await?;
        writer.check_mark(found.mark).await?;
        let end = writer.end();
        writer.followers.housekeeping.tidy_marks(end, found.old_marks);
        if writer.is_held && is_closed(writer.replica.state()) {
            tracing::info!(
                "the namespace is on hold: a repair lost records, and nothing starts until `qo doctor --release`"
            );
        }
        Ok(writer)
    }

    /// The last record that the state knows.
    fn end(&self) -> u64 {
        self.replica.end().number
    }

    async fn begin_again(&mut self) -> Result<()> {
        self.replica.begin_again(&mut self.followers).await
    }

    /// Reads to the end of the log.
    async fn catch_up(&mut self) -> Result<()> {
        self.replica.catch_up(&mut self.followers).await
    }

    /// The log must have reached its mark. Where a file system shows new files late, they may still come.
    async fn check_mark(&mut self, marked: u64) -> Result<()> {
        for _ in 0..LATE_LOOKS {
            if self.end() >= marked {
                return Ok(());
            }
            sleep(self.options.pause).await;
            self.catch_up().await?;
        }
        match format::check_mark(self.end(), marked) {
            Err(error) => Err(self.log.late_or(error).await),
            Ok(()) => Ok(()),
        }
    }

    /// The end of what could be read must be the end of the log. Otherwise this writer would create a record that is
    /// missing in the middle anew, and contradict those behind it; or one that only an unreadable snapshot covers.
    async fn check_end(&mut self) -> Result<()> {
        let covered = Snapshot::newest_number(&self.log);
        let (covered, last) = try_join(covered, self.log.last_listed_after("log", self.end())).await?;
        let last = last.unwrap_or(0).max(covered);
        self.catch_up().await?;
        if last <= self.end() {
            return Ok(());
        }
        Err(self.log.late_or(missing(self.end() + 1)).await)
    }

    /// Serves requests until no handle is left that could make one.
    pub(crate) async fn run(mut self, first: Vec<Request>, mut requests: mpsc::Receiver<Request>) {
        let rung = Arc::new(Notify::new());
        let bell = self.log.medium().listen(Arc::clone(&rung));
        let mut batch = first;
        loop {
            if !batch.is_empty() {
                self.serve(&mut batch, &mut requests, &rung).await;
            }
            self.keep_house().await;
            // A busy log on a directory never waits for anything, so tasks beside it need a chance to run.
            yield_now().await;
            let pause = if bell.is_some() { self.options.poll } else { self.followers.polling.pause() };
            tokio::select! {
                biased;
                taken = requests.recv_many(&mut batch, BATCH) => if taken == 0 { break },
                () = rung.notified() => self.look_around().await,
                () = sleep(pause) => {
                    self.look_around().await;
                    self.admit_if_due().await;
                },
            }
        }
        self.finish().await;
        self.followers.contention.leave();
    }

    /// Reads records of other processes, so that callers that wait for them wake up and the next commit has less to
    /// read.
    async fn look_around(&mut self) {
        // The next call that needs the state gets the error.
        if let Err(error) = self.catch_up().await {
            tracing::debug!("{error}");
        }
        self.replica.hear_time();
    }

    /// Admits offers that no worker has claimed: while they wait, no snapshot can cover the log.
    async fn admit_if_due(&mut self) {
        if self.followers.admission.is_due()
            && let Err(error) = self.admit().await
        {
            tracing::debug!("{error}");
        }
    }

    async fn serve(
        &mut self,
        batch: &mut Vec<Request>,
        requests: &mut mpsc::Receiver<Request>,
        rung: &Notify,
    ) {
        let mut calls = Vec::new();
        self.sort(batch, &mut calls).await;
        while !calls.is_empty() {
            self.take_turn(batch, requests, rung, &mut calls).await;
            // With a full record more requests gain nothing: the commit waits for its turn where it is.
            let may_leave = calls.len() < BATCH && !requests.is_closed();
            let now: Vec<_> = calls.drain(..fitting(&calls)).collect();
            let committed =
                if now.is_empty() { Ok(Some(Vec::new())) } else { self.try_commit(&now, may_leave).await };
            if self.followers.contention.holds_locks() {
                // The turn brought no record, which would have ended it.
                self.followers.contention.end_turn();
            }
            match committed {
                // Other writers are first: take new requests meanwhile.
                Ok(None) => drop(calls.splice(..0, now)),
                Ok(Some(answers)) => {
                    for (call, answer) in now.into_iter().zip(answers) {
                        // A caller that has gone needs no answer.
                        call.caller.send(answer).ok();
                    }
                }
                Err(error) => {
                    let error = self.explained(error).await;
                    now.into_iter().for_each(|call| {
                        call.caller.send(Err(error.clone())).ok();
                    });
                }
            }
        }
    }

    /// Answers requests that only look, and keeps commands for the next commit.
    async fn sort(&mut self, batch: &mut Vec<Request>, calls: &mut Vec<Call<Caller>>) {
        let (mut looks, mut is_firm, mut is_told, at) = (Vec::new(), false, true, Instant::now());
        for request in batch.drain(..) {
            match request {
                Request::Decide(command, caller) => {
                    calls.push(Call { command, is_fetch: false, at, caller });
                }
                Request::Fetch(exchange, caller) => {
                    let command = Box::new(Command::Exchange(*exchange));
                    calls.push(Call { command, is_fetch: true, at, caller });
                }
                Request::Look(look) => {
                    is_firm = true;
                    looks.push(look);
                }
                Request::Glance { look, is_told: told } => {
                    is_told &= told;
                    looks.push(look);
                }
                Request::Finish(done) => self.finished.push(done),
            }
        }
        if looks.is_empty() {
            return;
        }
        let can_show = self.log.medium().policy().admits_with_claims && self.followers.admission.all_fit();
        if !is_firm && is_told && can_show && !self.replica.is_late() {
            return self.show_as_if_admitted(looks);
        }
        let mut caught_up = self.catch_up().await;
        if caught_up.is_ok() && !self.followers.admission.is_empty() {
            caught_up = match self.admit().await {
                // A process that may only read shows what the next writer will decide.
                Err(error) if error.kind() == ErrorKind::Invalid => return self.show_as_if_admitted(looks),
                admitted => admitted,
            };
        }
        if caught_up.is_ok() && is_firm {
            // A look changed nothing, so an error of the disk is `Unavailable` and not `Unknown`.
            let synced = self.replica.sync().await;
            caught_up = synced.map_err(|error| Error::new(ErrorKind::Unavailable, error.message()));
        }
        if let Err(error) = caught_up {
            caught_up = Err(self.explained(error).await);
        }
        let now = self.replica.now();
        // This process shows the refusals that it has not written.
        self.replica.speculate();
        let (state, watch) = self.replica.decide();
        self.refusals.count(state, &mut Vec::new());
        for look in looks {
            look(caught_up.clone().map(|()| (&mut *state, now, &watch as &dyn Watch)));
        }
        self.replica.take_back();
    }

    /// Shows the state as it will be when the offers are admitted. The record that claims them admits them too, which
    /// saves a record and a round trip.
    fn show_as_if_admitted(&mut self, looks: Vec<Look>) {
        let now = self.replica.now();
        let admit = self.followers.admission.command_for_all();
        self.replica.speculate();
        let (state, watch) = self.replica.decide();
        if let Some(admit) = admit {
            // The record that admits an offer reports what is wrong with it.
            decide_watching(state, now, &admit, &watch).ok();
        }
        looks.into_iter().for_each(|look| look(Ok((&mut *state, now, &watch))));
        self.replica.take_back();
    }

    /// Admits the offers. An offer wakes every process: one of them writes, the others read its record.
    async fn admit(&mut self) -> Result<()> {
        let deadline = self.followers.contention.lock_deadline();
        while !self.followers.admission.is_empty() {
            if !self.followers.contention.try_write_lock() && Instant::now() < deadline {
                sleep(GLANCE).await;
                self.catch_up().await?;
                continue;
            }
            let committed = self.commit::<()>(&[]).await;
            if self.followers.contention.holds_write_lock() {
                self.followers.contention.end_turn();
            }
            return committed.map(drop);
        }
        Ok(())
    }

    /// An error with its cause: a log that contradicts itself may be that of another namespace.
    async fn explained(&self, error: Error) -> Error {
        if error.kind() != ErrorKind::Data {
            return error;
        }
        format::confirm(&self.log).await.err().unwrap_or(error)
    }

    /// Begins what is due beside the log. All calls have been answered.
    async fn keep_house(&mut self) {
        // Jobs leave the state in steps, and calls are served in between; the snapshot holds what stays.
        if self.followers.housekeeping.can_snapshot() && !self.archive().await {
            let Followers { admission, housekeeping, .. } = &mut self.followers;
            housekeeping.snapshot(&self.replica, !admission.is_empty());
        }
        self.followers.housekeeping.begin_what_is_due(&self.replica);
        if !self.finished.is_empty() {
            self.finish().await;
        }
    }

    /// Waits until nothing is under way beside the log.
    async fn finish(&mut self) {
        while self.followers.housekeeping.owes_snapshot() && self.archive().await {}
        let Followers { admission, housekeeping, .. } = &mut self.followers;
        housekeeping.finish(&self.replica, !admission.is_empty()).await;
        self.finished.drain(..).for_each(|done| {
            done.send(()).ok();
        });
    }

    /// Moves a segment of jobs that succeeded some time ago out of the state. False if there were none, or it failed.
    async fn archive(&mut self) -> bool {
        let leaving = history::leaving(self.replica.state(), self.replica.now());
        if leaving.is_empty() {
            return false;
        }
        let jobs = leaving.iter().map(|job| job.id).collect();
        // If the segment is written and the record is not, the jobs are in both places, which does no harm.
        if !matches!(history::write(&self.log, self.end(), leaving).await, Ok(true)) {
            return false;
        }
        let archived = self.commit(&[Call::new(Command::Archive { jobs }, ())]).await;
        archived.inspect_err(|error| tracing::debug!("nothing left the state: {error}")).is_ok()
    }
}
