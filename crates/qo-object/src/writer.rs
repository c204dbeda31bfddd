//! The writer: one for each opened namespace. It keeps the state, reads what others wrote, and commits what it is
//! asked for, many commands in one record.
//!
//! A commit, step by step:
//! 1. wait for one's [turn](crate::turn), if others write too; read the log to its end (in a bucket, where that takes a while,
//!    only if others write or it was not done since the commands came);
//! 2. decide all commands that are waiting, as a speculation, after what light clients [offered](crate::offer);
//! 3. create the next record with what was decided;
//! 4. **done**: keep it, and answer. **Somebody was first**: take it back, evolve by what he wrote, and decide again.
//!    **Nobody knows**: create the same record again, until it is known. The nonce tells our own record from another.
//!
//! Nobody is answered before the record is there (G10): not even those whose commands changed nothing, because what they
//! were told rests on what the record says.
//!
//! **The late writer.** If more than half the [sweep](crate::sweep) age passed between the moment when the end of the log
//! was seen and the moment when the record was there, the place may have been used and swept meanwhile: the record is not
//! acknowledged, and the state is read again from a snapshot. On a directory the log itself is asked too, because clocks
//! jump and machines sleep: see [`is_swept_beyond`].

use crate::clock::StoreClock;
use crate::directory::{Directory, Held, Turn};
use crate::format;
use crate::housekeeping::Pile;
use crate::log::Log;
use crate::pace::{Pace, is_work};
use crate::plea::Plea;
use crate::put::{Put, put};
use crate::record::Record;
use crate::request::{Asked, BATCH, Caller, Look, Request, fitting, fitting_jobs};
use crate::slots::Monitor;
use crate::snapshot::{Covered, Snapshot, is_swept_beyond, missing};
use crate::store::Options;
use crate::turn::Turns;
use futures::future::{Either, select, try_join};
use qo_core::{Answer, Clock, Command, Error, ErrorKind, Event, NewJob, Result, State, Time, decide};
use std::{pin::pin, sync::Arc, time::Duration};
use tokio::sync::{Notify, mpsc, oneshot, watch};
use tokio::task::{JoinHandle, yield_now};
use tokio::time::{Instant, sleep};
use uuid::Uuid;

/// Races for the next record that a commit may lose before its callers are told to come back later.
const RACES: u32 = 1_000;

/// How soon to look again whether somebody else has decided about what was offered.
const GLANCE: Duration = Duration::from_millis(1);

/// How often a reader begins again at a snapshot because the log is swept faster than it reads.
const REOPENS: u32 = 5;

/// Where a writer takes its time from.
pub(crate) enum Hands {
    /// The store's own stamps.
    Store(StoreClock),
    /// A clock of the caller's.
    Given(Arc<dyn Clock>),
}

impl Hands {
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

/// Whether so much time has passed at a bucket since its answer bore a date. Where answers bear none nobody knows.
pub(crate) fn is_late_since(log: &Log, seen: Option<Time>, age: Duration) -> bool {
    let age_ms = u64::try_from(age.as_millis()).unwrap_or(u64::MAX);
    let now = log.date().map(|dated| dated.date);
    seen.zip(now).is_some_and(|(seen, now)| now > seen && now.ms_since(seen) >= age_ms)
}

pub(crate) struct Writer {
    pub(crate) log: Log,
    pub(crate) hands: Hands,
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
    /// The date that a bucket's answer bore then: a machine that sleeps counts no time of its own.
    pub(crate) seen_date: Option<Time>,
    /// What was seen of others may not be on the disk yet.
    unsynced: bool,
    pub(crate) turns: Turns,
    pub(crate) plea: Plea,
    /// Races that were lost in a row.
    pub(crate) lost: u32,
    /// A record of somebody else is expected.
    pub(crate) is_waiting: bool,
    /// Says to other writers that this one wants to write …
    pub(crate) wanting: Option<Held>,
    /// … and that it writes.
    pub(crate) turn: Option<Held>,
    /// Somebody who was seen to write took too long: until then nobody is waited for.
    pub(crate) impatient_until: Option<Instant>,
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
}

impl Writer {
    /// Reads a namespace to its end.
    pub(crate) async fn open(
        log: Log,
        clock: Option<Arc<dyn Clock>>,
        options: Options,
        applied: watch::Sender<u64>,
    ) -> Result<Self> {
        format::check(&log).await?;
        let hands = match clock {
            Some(clock) => Hands::Given(clock),
            None => Hands::Store(StoreClock::ask(&log).await?),
        };
        let id = Uuid::new_v4();
        let (now, has_directory) = (Instant::now(), log.directory().is_some());
        let monitor = Monitor::new(options.slots_every);
        let mut writer = Self {
            log,
            hands,
            options,
            id,
            state: State::new(),
            end: Covered::NOTHING,
            offers: Vec::new(),
            admit_at: now,
            seen_end: now,
            seen_date: None,
            unsynced: false,
            turns: Turns::new(id, has_directory),
            plea: Plea::default(),
            lost: 0,
            is_waiting: false,
            wanting: None,
            turn: None,
            impatient_until: None,
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
        };
        writer.begin_again().await?;
        writer.check_end().await?;
        Ok(writer)
    }

    /// Begins again at the newest snapshot, and reads on to the end.
    async fn begin_again(&mut self) -> Result<()> {
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
        let (covered, last) = try_join(covered, self.log.last_listed_after(self.end.number)).await?;
        let last = last.unwrap_or(0).max(covered);
        self.catch_up().await?;
        if last > self.end.number { Err(missing(self.end.number + 1)) } else { Ok(()) }
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
        self.log.directory().inspect(|directory| directory.forget_wanting(self.id));
    }

    /// Reads what others wrote, so that those who wait for it are told, and so that the next commit has less to read.
    pub(crate) async fn look_around(&mut self) {
        // Whoever asks for something next is told what is wrong.
        if let Err(error) = self.catch_up().await {
            tracing::debug!("{error}");
        }
        if let (Hands::Store(clock), Some(dated)) = (&self.hands, self.log.date()) {
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
            let now: Vec<_> = commands.drain(..fitting(&commands)).collect();
            let committed = if now.is_empty() {
                Ok(Some(Vec::new()))
            } else {
                self.try_commit(&now, !requests.is_closed()).await
            };
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
                Err(error) => now.into_iter().for_each(|asked| {
                    asked.caller.send(Err(error.clone())).ok();
                }),
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
            caught_up = self.admit().await;
        }
        if caught_up.is_ok() && is_firm {
            // Nothing happened, whatever the disk says.
            caught_up =
                self.sync().await.map_err(|error| Error::new(ErrorKind::Unavailable, error.message()));
        }
        let now = self.hands.now(self.state.now());
        for look in looks {
            look(caught_up.clone().map(|()| (&mut self.state, now)));
        }
    }

    /// Shows the state as it will be when what was offered is decided about. That happens with the record that claims it: one
    /// instead of two, and nobody waits for the first.
    fn show_as_if_admitted(&mut self, looks: Vec<Look>) {
        let now = self.hands.now(self.state.now());
        self.state.speculate();
        if !self.offers.is_empty() {
            // What is wrong with an offer is told when it is decided about.
            decide(&mut self.state, now, &Command::Admit(self.offers.clone())).ok();
        }
        looks.into_iter().for_each(|look| look(Ok((&mut self.state, now))));
        self.state.take_back();
    }

    /// Decides about what was offered. Every process that is woken by an offer comes here: one writes, the others see it.
    async fn admit(&mut self) -> Result<()> {
        let patience = Instant::now() + self.turns.patience();
        while !self.offers.is_empty() {
            match self.log.directory().map_or(Turn::Nobodys, Directory::take_turn) {
                Turn::Theirs if Instant::now() < patience => {
                    sleep(GLANCE).await;
                    self.catch_up().await?;
                    continue;
                }
                // The record gives it on before it is rung for: who hears of it may begin at once.
                Turn::Mine(held) => self.turn = Some(held),
                Turn::Theirs | Turn::Nobodys => {}
            }
            let committed = self.commit::<()>(&[]).await;
            if self.turn.is_some() {
                self.give_turn();
            }
            return committed.map(drop);
        }
        Ok(())
    }

    /// Evolves by what others wrote. If nobody looked for a long time, what comes next may have been swept.
    pub(crate) async fn catch_up(&mut self) -> Result<()> {
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
                        && self.is_late_since(seen)
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
                    (check || self.is_late_since(seen))
                        && Snapshot::newest_number(&self.log).await? > self.end.number
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
    async fn sync(&mut self) -> Result<()> {
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

    fn is_late(&self) -> bool {
        self.seen_end.elapsed() >= self.options.sweep_age / 2
    }

    /// Whether so much time has passed at a bucket since it bore this date, whatever has passed here.
    fn is_late_since(&self, seen: Option<Time>) -> bool {
        is_late_since(&self.log, seen, self.options.sweep_age / 2)
    }

    pub(crate) fn follow(&mut self, record: &Record, bytes: usize) -> Result<()> {
        if record.after != self.end.nonce {
            let what = format!("{}: does not follow the record before it", Log::path(record.number));
            return Err(Error::new(ErrorKind::Data, what));
        }
        record.events.iter().for_each(|event| self.state.evolve(event));
        self.offers.drain(..record.admitted.min(self.offers.len()));
        if self.offers.is_empty() && !record.offered.is_empty() {
            self.admit_at = self.admit_at();
        }
        self.offers.extend(record.offered.iter().cloned());
        self.unsynced = true;
        self.plea.saw(record.writer);
        // Light clients take no turns: most submit once and end.
        if record.offered.is_empty() && !self.is_reading_back {
            match is_work(record) || self.log.directory().is_some() {
                true => self.turns.saw(record.number, record.writer),
                false => self.turns.saw_renewal(record.number, record.writer),
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
    fn passed(&mut self, number: u64, nonce: Uuid, bytes: usize) {
        self.end = Covered { number, nonce };
        self.pile.add(bytes);
        self.applied.send_modify(|applied| *applied += 1);
    }

    /// Commits, however long it takes to get a turn.
    pub(crate) async fn commit<T>(&mut self, commands: &[Asked<T>]) -> Result<Vec<Result<Answer>>> {
        Ok(self.try_commit(commands, false).await?.unwrap_or_default())
    }

    /// Commits. If others were first and are to be first again, it waits for its turn, or, if it `may_leave`, comes to nothing:
    /// the commands are to be tried again.
    async fn try_commit<T>(
        &mut self,
        commands: &[Asked<T>],
        may_leave: bool,
    ) -> Result<Option<Vec<Result<Answer>>>> {
        // Of a bucket every question takes a while. A record can only be written at the end of the log, so who is alone tries
        // it where he last saw that; only what is answered without one rests on what was seen.
        let has_to_look = self.log.directory().is_some() || self.is_late();
        let mut has_looked = !has_to_look && commands.iter().all(|asked| self.has_looked_since(asked.at));
        if !has_looked && (has_to_look || (self.sees_others() && !self.has_just_looked())) {
            self.catch_up().await?;
            has_looked = true;
        }
        while self.lost < RACES {
            let at = self.hands.now(self.state.now());
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
            match self.put_and_look_for_pleas(&record).await {
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
                    self.plea.lost(&self.log, self.lost, self.id, self.turns.pace()).await;
                    self.is_waiting = true;
                    let caught_up = self.catch_up().await;
                    self.is_waiting = false;
                    caught_up?;
                    has_looked = true;
                }
                Err(error) => {
                    self.state.take_back();
                    return Err(error);
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
        self.log.directory().is_none() && self.seen_end.elapsed() < self.turns.pace() * 2
    }

    /// Puts a record, and looks meanwhile whether somebody pleads for a turn. The record does not wait for that.
    async fn put_and_look_for_pleas(&mut self, record: &Record) -> Result<Put> {
        let sent = Instant::now();
        let look = pin!(self.plea.look(&self.log));
        let put = pin!(put(&self.log, record, &self.options));
        let put = match select(look, put).await {
            Either::Left(((), put)) => put.await,
            Either::Right((put, _)) => put,
        };
        if put.is_ok() {
            self.turns.took(sent.elapsed());
        }
        put
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
                None => !self.is_late_since(self.seen_date),
            }
    }

    fn decide_all<T>(
        &mut self,
        at: Time,
        admitted: usize,
        commands: &[Asked<T>],
    ) -> (Vec<Event>, Vec<Result<Answer>>) {
        let mut events = Vec::new();
        if admitted > 0 {
            match decide(&mut self.state, at, &Command::Admit(self.offers[..admitted].to_vec())) {
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
            let decision = asked.decide(&mut self.state, at)?;
            events.extend(decision.events);
            Ok(decision.answer)
        });
        let answers = answers.collect();
        (events, answers)
    }

    /// A record of ours is there.
    async fn written(&mut self, record: &Record, bytes: usize, sent: Instant) {
        self.seen_end = sent;
        self.seen_date = self.log.date().map(|dated| dated.date);
        // Its folder was synced with it, and so was everything that could be seen there.
        self.unsynced = false;
        self.offers.drain(..record.admitted);
        self.lost = 0;
        self.turns.saw(record.number, self.id);
        self.pace.saw(record);
        self.passed(record.number, record.nonce, bytes);
        self.owes_snapshot |= record.snapshot;
        if let Hands::Store(clock) = &self.hands {
            clock.observe(&self.log, &Log::path(record.number), sent).await;
        }
    }
}
