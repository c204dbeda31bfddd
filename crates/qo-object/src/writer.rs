//! The writer: one for each opened namespace. It keeps the state, reads what others wrote, and [commits](crate::commit) what
//! it is asked for, many commands in one record.

use crate::clock::StoreClock;
use crate::directory::{Directory, FileLock, WriteLock};
use crate::format::{self, is_closed};
use crate::housekeeping::Pile;
use crate::log::Log;
use crate::pace::{Pace, is_work};
use crate::record::Record;
use crate::request::{Asked, BATCH, Caller, Look, Request, fitting, fitting_jobs};
use crate::slots::{Monitor, SlotObjects};
use crate::snapshot::{Covered, Snapshot, is_swept_beyond, missing};
use crate::store::Options;
use crate::watch::Watched;
use crate::write_order::WriteOrder;
use crate::yield_request::YieldRequest;
use futures::future::try_join;
use qo_core::{Clock, Command, Error, ErrorKind, NewJob, Result, State, Time, Watch, decide_watching};
use std::{sync::Arc, time::Duration};
use tokio::sync::{Notify, mpsc, oneshot, watch};
use tokio::task::{JoinHandle, yield_now};
use tokio::time::{Instant, sleep};
use uuid::Uuid;

/// How soon to look again whether somebody else has decided about what was offered.
const GLANCE: Duration = Duration::from_millis(1);

/// How often a reader begins again at a snapshot because the log is swept faster than it reads.
const REOPENS: u32 = 5;

/// How often to look again for records that a mark speaks of and that are not there.
const LATE_LOOKS: u32 = 2;

/// Where a writer takes its time from.
pub(crate) enum TimeSource {
    /// The store's own stamps.
    Store(StoreClock),
    /// A clock of the caller's.
    Given(Arc<dyn Clock>),
}

impl TimeSource {
    /// The time now, which is not before what the log has seen.
    pub(crate) fn now(&self, seen: Time) -> Time {
        match self {
            Self::Store(clock) => {
                clock.reach(seen);
                clock.now()
            }
            Self::Given(clock) => clock.now().max(seen),
        }
    }
}

pub(crate) struct Writer {
    pub(crate) log: Log,
    pub(crate) time: TimeSource,
    pub(crate) options: Options,
    pub(crate) id: Uuid,
    pub(crate) state: State,
    /// The last record that the state knows.
    pub(crate) end: Covered,
    /// Jobs that light clients offered and nobody has decided about.
    pub(crate) offers: Vec<NewJob>,
    /// When those are decided about, if nobody claims them.
    admit_at: Instant,
    /// When the end of the log was last known to be the end.
    pub(crate) seen_end: Instant,
    /// The time at a bucket then, as its answers have it: a machine that sleeps counts no time of its own.
    pub(crate) seen_date: Option<Time>,
    /// This process has written a record.
    pub(crate) has_written: bool,
    /// Since when its writes are refused, if they are.
    pub(crate) refused_since: Option<Instant>,
    /// What was seen of others may not be on the disk yet.
    pub(crate) unsynced: bool,
    /// What this process has watched: it ends no lease of another one before.
    pub(crate) watched: Watched,
    pub(crate) order: WriteOrder,
    pub(crate) yield_request: YieldRequest,
    /// Races that were lost in a row.
    pub(crate) lost: u32,
    /// A record of somebody else is expected.
    pub(crate) is_waiting: bool,
    /// Says to other writers that this one wants to write …
    pub(crate) wanting: Option<FileLock>,
    /// … and that it writes.
    pub(crate) turn: Option<FileLock>,
    /// Somebody who was seen to write took too long: until then nobody is waited for.
    pub(crate) ignore_locks_until: Option<Instant>,
    /// What is read was written before this process began, or while it looked away.
    pub(crate) is_reading_back: bool,
    pub(crate) pace: Pace,
    pub(crate) pile: Pile,
    /// How many records this process has applied, for whoever waits for the next.
    applied: watch::Sender<u64>,
    /// A record said that this process writes a snapshot.
    pub(crate) owes_snapshot: bool,
    /// A snapshot that is being written: nobody waits for it.
    pub(crate) snapshotting: Option<JoinHandle<()>>,
    /// A sweep that is under way, likewise.
    pub(crate) sweeping: Option<JoinHandle<()>>,
    /// Who waits until nothing goes on on the side.
    pub(crate) finished: Vec<oneshot::Sender<()>>,
    pub(crate) last_sweep: Instant,
    /// When what is kept for hours or days was last swept.
    pub(crate) last_long_sweep: Option<Instant>,
    /// When to look after slots that are objects beside the log.
    pub(crate) monitor: Monitor,
    /// Those slots, once they were looked at; none where there can be none.
    pub(crate) slots: Option<Option<SlotObjects>>,
    /// The record that the log is known to have reached, and which a mark says …
    pub(crate) marked: u64,
    /// … and since when; the last record that this process wrote, or found without a mark; whether that one is to be marked in
    /// any case.
    pub(crate) marked_at: Instant,
    pub(crate) wrote: u64,
    pub(crate) owes_mark: bool,
    /// A mark that is being written: no caller waits for it.
    pub(crate) marking: Option<JoinHandle<()>>,
    /// When the namespace was last seen to be the one that was opened.
    pub(crate) recognised: Instant,
    /// A repair holds the namespace, or did when it was opened.
    pub(crate) is_held: bool,
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
        let time = match clock {
            Some(clock) => TimeSource::Given(clock),
            None => TimeSource::Store(StoreClock::ask(&log).await?),
        };
        let id = Uuid::new_v4();
        let (now, has_directory) = (Instant::now(), log.directory().is_some());
        let monitor = Monitor::new(options.slots_every);
        let watched = Watched::new(!has_directory && matches!(time, TimeSource::Store(_)));
        let mut writer = Self {
            log,
            time,
            options,
            id,
            state: State::new(),
            end: Covered::NOTHING,
            offers: Vec::new(),
            admit_at: now,
            seen_end: now,
            seen_date: None,
            has_written: false,
            refused_since: None,
            unsynced: false,
            watched,
            order: WriteOrder::new(id, has_directory),
            yield_request: YieldRequest::default(),
            lost: 0,
            is_waiting: false,
            wanting: None,
            turn: None,
            ignore_locks_until: None,
            is_reading_back: false,
            pace: Pace::default(),
            pile: Pile::new(0),
            applied,
            owes_snapshot: false,
            snapshotting: None,
            sweeping: None,
            finished: Vec::new(),
            last_sweep: now,
            last_long_sweep: None,
            monitor,
            slots: None,
            marked: found.mark,
            marked_at: now,
            wrote: 0,
            owes_mark: false,
            marking: None,
            recognised: now,
            is_held: !found.holds.is_empty(),
        };
        writer.begin_again().await?;
        writer.check_end().await?;
        writer.check_mark().await?;
        writer.tidy_marks(found.old_marks);
        if writer.is_held && is_closed(&writer.state) {
            tracing::info!(
                "the namespace is on hold: a repair lost records, and nothing starts until `qo doctor --release`"
            );
        }
        Ok(writer)
    }

    /// The log must have reached its mark. Where a file system shows new files late, they may still come.
    async fn check_mark(&mut self) -> Result<()> {
        for _ in 0..LATE_LOOKS {
            if self.end.number >= self.marked {
                return Ok(());
            }
            sleep(self.options.pause).await;
            self.catch_up().await?;
        }
        match format::check_mark(self.end.number, self.marked) {
            Err(error) => Err(self.log.late_or(error).await),
            Ok(()) => Ok(()),
        }
    }

    /// Begins again at the newest snapshot, and reads on to the end.
    pub(crate) async fn begin_again(&mut self) -> Result<()> {
        self.reopen().await?;
        self.is_reading_back = true;
        let read = self.reach_end(true).await;
        self.is_reading_back = false;
        read
    }

    /// Begins again at the newest snapshot.
    async fn reopen(&mut self) -> Result<()> {
        let Snapshot { covered, state, bytes } = Snapshot::newest(&self.log).await?;
        (self.state, self.end) = (state, covered);
        self.watched.begin(self.state.now(), self.end.number);
        self.offers.clear();
        self.pile = self.pile.begun_again(bytes);
        self.owes_snapshot = false;
        self.applied.send_modify(|applied| *applied += 1);
        Ok(())
    }

    /// The end of what could be read must be the end of the log: a record that is gone in the middle would otherwise be
    /// written anew, and contradict those behind it. So would one that only a snapshot knew which cannot be read.
    async fn check_end(&mut self) -> Result<()> {
        let covered = Snapshot::newest_number(&self.log);
        let (covered, last) = try_join(covered, self.log.last_listed_after("log", self.end.number)).await?;
        let last = last.unwrap_or(0).max(covered);
        self.catch_up().await?;
        if last <= self.end.number {
            return Ok(());
        }
        Err(self.log.late_or(missing(self.end.number + 1)).await)
    }

    /// Serves requests until nobody is left who could make one.
    pub(crate) async fn run(mut self, first: Vec<Request>, mut requests: mpsc::Receiver<Request>) {
        let rung = Arc::new(Notify::new());
        let bell = self.log.directory().and_then(|directory| directory.listen(Arc::clone(&rung)));
        let mut batch = first;
        loop {
            if !batch.is_empty() {
                self.serve(&mut batch, &mut requests, &rung).await;
            }
            self.keep_house().await;
            // A busy log on a directory never waits for anything: what goes on on the side must have its turn, too.
            yield_now().await;
            let pause = if bell.is_some() { self.options.poll } else { self.next_pause() };
            tokio::select! {
                biased;
                taken = requests.recv_many(&mut batch, BATCH) => if taken == 0 { break },
                () = rung.notified() => self.look_around().await,
                () = sleep(pause) => {
                    self.look_around().await;
                    self.admit_what_waits().await;
                },
            }
        }
        self.finish().await;
        self.log.directory().inspect(|directory| directory.forget_intent(self.id));
    }

    /// Reads what others wrote, so that those who wait for it are told, and so that the next commit has less to read.
    pub(crate) async fn look_around(&mut self) {
        // Whoever asks for something next is told what is wrong.
        if let Err(error) = self.catch_up().await {
            tracing::debug!("{error}");
        }
        if let (TimeSource::Store(clock), Some(dated)) = (&self.time, self.log.settled()) {
            clock.hear(&dated);
        }
    }

    /// Decides about what was offered some time ago if nobody wants it: it must not keep the log from being covered.
    async fn admit_what_waits(&mut self) {
        if !self.offers.is_empty()
            && Instant::now() >= self.admit_at
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
        let mut commands = Vec::new();
        self.sort(batch, &mut commands).await;
        while !commands.is_empty() {
            self.take_turn(batch, requests, rung, &mut commands).await;
            // With a full record there is nothing to be gained by hearing more: it waits for its turn where it is.
            let may_leave = commands.len() < BATCH && !requests.is_closed();
            let now: Vec<_> = commands.drain(..fitting(&commands)).collect();
            let committed =
                if now.is_empty() { Ok(Some(Vec::new())) } else { self.try_commit(&now, may_leave).await };
            if self.wanting.is_some() || self.turn.is_some() {
                // Nothing came of it, and no record says so to those who wait.
                self.give_turn();
            }
            match committed {
                // Others are to be first: meanwhile whoever asks for something else is heard, if there can be anybody.
                Ok(None) => drop(commands.splice(..0, now)),
                Ok(Some(answers)) => {
                    for (asked, answer) in now.into_iter().zip(answers) {
                        // Whoever does not wait any more does not need to be told.
                        asked.caller.send(answer).ok();
                    }
                }
                Err(error) => {
                    let error = self.explained(error).await;
                    now.into_iter().for_each(|asked| {
                        asked.caller.send(Err(error.clone())).ok();
                    });
                }
            }
        }
    }

    /// Answers looks, and keeps commands for the next commit.
    pub(crate) async fn sort(&mut self, batch: &mut Vec<Request>, commands: &mut Vec<Asked<Caller>>) {
        let (mut looks, mut is_firm, mut is_told, at) = (Vec::new(), false, true, Instant::now());
        for request in batch.drain(..) {
            match request {
                Request::Decide(command, caller) => {
                    commands.push(Asked { command, is_fetch: false, at, caller });
                }
                Request::Fetch(exchange, caller) => {
                    let command = Box::new(Command::Exchange(*exchange));
                    commands.push(Asked { command, is_fetch: true, at, caller });
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
        // A look at a bucket takes a while, and costs something.
        let can_show = self.log.directory().is_none() && fitting_jobs(&self.offers) == self.offers.len();
        if !is_firm && is_told && can_show && !self.is_late() {
            return self.show_as_if_admitted(looks);
        }
        let mut caught_up = self.catch_up().await;
        if caught_up.is_ok() && !self.offers.is_empty() {
            // What was offered is to be seen.
            caught_up = match self.admit().await {
                // A process that may only read shows what the next writer will decide.
                Err(error) if error.kind() == ErrorKind::Invalid => return self.show_as_if_admitted(looks),
                admitted => admitted,
            };
        }
        if caught_up.is_ok() && is_firm {
            // Nothing happened, whatever the disk says.
            caught_up =
                self.sync().await.map_err(|error| Error::new(ErrorKind::Unavailable, error.message()));
        }
        if let Err(error) = caught_up {
            caught_up = Err(self.explained(error).await);
        }
        let now = self.time.now(self.state.now());
        let watch = self.watched.now();
        for look in looks {
            look(caught_up.clone().map(|()| (&mut self.state, now, &watch as &dyn Watch)));
        }
    }

    /// Shows the state as it will be when what was offered is decided about. That happens with the record that claims it: one
    /// instead of two, and nobody waits for the first.
    fn show_as_if_admitted(&mut self, looks: Vec<Look>) {
        let now = self.time.now(self.state.now());
        let watch = self.watched.now();
        self.state.speculate();
        if !self.offers.is_empty() {
            // What is wrong with an offer is told when it is decided about.
            decide_watching(&mut self.state, now, &Command::Admit(self.offers.clone()), &watch).ok();
        }
        looks.into_iter().for_each(|look| look(Ok((&mut self.state, now, &watch))));
        self.state.take_back();
    }

    /// Decides about what was offered. Every process that is woken by an offer comes here: one writes, the others see it.
    async fn admit(&mut self) -> Result<()> {
        let patience = Instant::now() + self.order.lock_timeout();
        while !self.offers.is_empty() {
            match self.log.directory().map_or(WriteLock::Unsupported, Directory::try_write_lock) {
                WriteLock::Busy if Instant::now() < patience => {
                    sleep(GLANCE).await;
                    self.catch_up().await?;
                    continue;
                }
                // The record gives it on before it is rung for: who hears of it may begin at once.
                WriteLock::Held(held) => self.turn = Some(held),
                WriteLock::Busy | WriteLock::Unsupported => {}
            }
            let committed = self.commit::<()>(&[]).await;
            if self.turn.is_some() {
                self.give_turn();
            }
            return committed.map(drop);
        }
        Ok(())
    }

    /// Makes sure now and then that the namespace in a bucket is still the one that was opened: one that was emptied, and
    /// made anew by another process, must get no record that follows those of the old one.
    pub(crate) async fn recognise(&mut self) -> Result<()> {
        if self.log.directory().is_none() && self.recognised.elapsed() >= self.options.recognise_every {
            format::still_ours(&self.log).await?;
            self.recognised = Instant::now();
        }
        Ok(())
    }

    /// An error with its cause: a log in a bucket that contradicts itself may be that of another namespace.
    pub(crate) async fn explained(&self, error: Error) -> Error {
        if error.kind() != ErrorKind::Data || self.log.directory().is_some() {
            return error;
        }
        format::still_ours(&self.log).await.err().unwrap_or(error)
    }

    /// Evolves by what others wrote. If nobody looked for a long time, what comes next may have been swept.
    pub(crate) async fn catch_up(&mut self) -> Result<()> {
        // What is in a directory that is away, or another one, is not what was opened.
        self.log.still_there()?;
        if self.is_late() && Snapshot::newest_number(&self.log).await? > self.end.number {
            return self.begin_again().await;
        }
        // A look at a directory costs next to nothing. Of a bucket one more question is asked only if time says so.
        self.reach_end(self.log.directory().is_some()).await
    }

    /// Reads to the end of the log; with `check` it is made sure that it is the end, and not a place that was swept.
    async fn reach_end(&mut self, check: bool) -> Result<()> {
        for _ in 0..REOPENS {
            let seen = self.seen_date;
            match self.read_on().await {
                // What one who slept finds may be left of what was swept, and what others who slept have put between.
                Err(error)
                    if error.kind() == ErrorKind::Data
                        && self.is_late_since(seen).await
                        && Snapshot::newest_number(&self.log).await? > self.end.number =>
                {
                    self.reopen().await?;
                    continue;
                }
                read => read?,
            }
            let is_swept = match self.log.directory() {
                Some(_) => check && is_swept_beyond(&self.log, self.end.number).await?,
                // A bucket's records may go in any order; a snapshot behind the end tells all the same.
                None => {
                    let is_late = self.is_late_since(seen).await;
                    let is_swept =
                        (check || is_late) && Snapshot::newest_number(&self.log).await? > self.end.number;
                    if is_late && !is_swept {
                        // The end was looked for since: this process has slept, and is not late any more.
                        self.seen_date = self.log.believed_now();
                    }
                    is_swept
                }
            };
            if !is_swept {
                return Ok(());
            }
            self.reopen().await?;
        }
        Err(missing(self.end.number + 1))
    }

    /// Makes sure that what was seen of others is on the disk: what is answered rests on it.
    pub(crate) async fn sync(&mut self) -> Result<()> {
        if std::mem::take(&mut self.unsynced) {
            self.log.sync().await.inspect_err(|_| self.unsynced = true)?;
        }
        Ok(())
    }

    async fn read_on(&mut self) -> Result<()> {
        if self.log.directory().is_none() {
            return self.read_ahead().await;
        }
        loop {
            let asked = Instant::now();
            let Some((record, bytes)) = self.log.read_sized(self.end.number + 1).await? else {
                self.seen_end = asked;
                return Ok(());
            };
            self.follow(&record, bytes)?;
        }
    }

    pub(crate) fn is_late(&self) -> bool {
        self.seen_end.elapsed() >= self.options.sweep_age / 2
    }

    /// Whether so much time has passed at a bucket since it bore this date, whatever has passed here.
    pub(crate) async fn is_late_since(&self, seen: Option<Time>) -> bool {
        self.log.is_late_since(seen, self.options.sweep_age / 2).await
    }

    pub(crate) fn follow(&mut self, record: &Record, bytes: usize) -> Result<()> {
        if record.after != self.end.nonce {
            let what = format!("{}: does not follow the record before it", Log::path(record.number));
            return Err(Error::new(ErrorKind::Data, what));
        }
        record.events.iter().for_each(|event| self.state.evolve(event));
        if !record.events.is_empty() {
            // An offer grants no lease, and lets no time pass.
            self.watched.saw(self.state.now(), record.number);
        }
        self.offers.drain(..record.admitted.min(self.offers.len()));
        if self.offers.is_empty() && !record.offered.is_empty() {
            self.admit_at = self.admit_at();
        }
        self.offers.extend(record.offered.iter().cloned());
        self.unsynced = true;
        self.yield_request.saw(record.writer);
        // Light clients take no turns: most submit once and end.
        if record.offered.is_empty() && !self.is_reading_back {
            match is_work(record) || self.log.directory().is_some() {
                true => self.order.saw(record.number, record.writer),
                false => self.order.saw_renewal(record.number, record.writer),
            }
        }
        if !self.is_reading_back {
            self.pace.saw(record);
        }
        self.passed(record.number, record.nonce, bytes);
        if record.snapshot && record.writer == self.id {
            // Written, and not known to be until now.
            self.owes_snapshot = true;
        } else if record.snapshot && !self.is_reading_back {
            // Of what was written before it is known whether the snapshot came: it did not.
            self.pile.is_taken_care_of();
        }
        Ok(())
    }

    /// The state knows one more record.
    pub(crate) fn passed(&mut self, number: u64, nonce: Uuid, bytes: usize) {
        self.end = Covered { number, nonce };
        self.pile.add(bytes);
        self.applied.send_modify(|applied| *applied += 1);
    }
}
