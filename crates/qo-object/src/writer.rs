//! The writer: one for each opened namespace. It keeps the state, reads what others wrote, and commits what it is
//! asked for, many commands in one record.
//!
//! A commit, step by step:
//! 1. wait for one's [turn](crate::turn), if others write too; read the log to its end;
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
//! acknowledged, and the state is read again from a snapshot.

use crate::clock::StoreClock;
use crate::format;
use crate::history;
use crate::log::Log;
use crate::put::{Put, put};
use crate::record::Record;
use crate::snapshot::{self, Covered, Snapshot, missing};
use crate::store::Options;
use crate::sweep::sweep;
use crate::turn::Turns;
use qo_core::{
    Answer, Clock, Command, Error, ErrorKind, Event, NewJob, Outcome, Result, Settle, State, Time, decide,
};
use std::sync::Arc;
use tokio::sync::{Notify, mpsc, oneshot, watch};
use tokio::task::JoinHandle;
use tokio::time::{Instant, sleep, sleep_until};
use uuid::Uuid;

/// Most requests that go into one commit.
const BATCH: usize = 1_000;
/// A record takes no more commands once its events have this many bytes of payload and output, more or less.
const RECORD_BYTES: usize = 8 << 20;
/// Snapshots take this fraction of the time at most …
const SNAPSHOT_SHARE: f64 = 30.0;
/// … unless a reader would have this much to replay.
const PILE_BYTES: usize = 64 << 20;
/// Most offered jobs that one record decides about.
const OFFERS: usize = 5_000;
/// Races for the next record that a commit may lose before its callers are told to come back later.
const RACES: u32 = 1_000;

/// What the writer is asked for.
pub(crate) enum Request {
    /// To decide a command.
    Decide(Box<Command>, oneshot::Sender<Result<Answer>>),
    /// To show the state, at the present.
    Look(Look),
}

/// A look at the state at a time, or the reason why there is none.
pub(crate) type Look = Box<dyn FnOnce(Result<(&mut State, Time)>) + Send>;

type Commands = Vec<(Box<Command>, oneshot::Sender<Result<Answer>>)>;

/// Where a writer takes its time from.
pub(crate) enum Hands {
    /// The store's own stamps.
    Store(StoreClock),
    /// A clock of the caller's.
    Given(Arc<dyn Clock>),
}

impl Hands {
    fn now(&self) -> Time {
        match self {
            Self::Store(clock) => clock.now(),
            Self::Given(clock) => clock.now(),
        }
    }
}

pub(crate) struct Writer {
    log: Log,
    hands: Hands,
    options: Options,
    id: Uuid,
    state: State,
    /// The last record that the state knows.
    end: Covered,
    /// Jobs that light clients offered and nobody has decided about.
    offers: Vec<NewJob>,
    /// When the end of the log was last known to be the end.
    seen_end: Instant,
    /// What was seen of others may not be on the disk yet.
    unsynced: bool,
    turns: Turns,
    pile: Pile,
    /// How many records this process has applied, for whoever waits for the next.
    applied: watch::Sender<u64>,
    /// Snapshots and sweeps are nobody's business but their own.
    housekeeping: Option<JoinHandle<()>>,
    last_sweep: Instant,
}

/// What a reader would have to replay, and what it would cost to spare it that.
struct Pile {
    records: u64,
    bytes: usize,
    /// How large the last snapshot was.
    snapshot_bytes: usize,
    /// When this process took one; whoever finds much to replay when it opens the namespace need not wait.
    since: Option<Instant>,
    /// What a snapshot costs, for each byte of it.
    cost_per_byte: f64,
}

impl Pile {
    fn new(snapshot_bytes: usize) -> Self {
        // A guess, until the first one is measured.
        let cost_per_byte = 1e-8;
        Self { records: 0, bytes: 0, snapshot_bytes, since: None, cost_per_byte }
    }

    /// Nobody is served while a snapshot is put together: one that costs a tenth of a second may come every three.
    fn is_affordable(&self) -> bool {
        let cost = self.cost_per_byte * (self.snapshot_bytes + self.bytes) as f64;
        let passed = self.since.map_or(f64::INFINITY, |since| since.elapsed().as_secs_f64());
        passed >= cost * SNAPSHOT_SHARE || self.bytes >= PILE_BYTES
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
        format::check(&log).await?;
        let hands = match clock {
            Some(clock) => Hands::Given(clock),
            None => Hands::Store(StoreClock::ask(&log).await?),
        };
        let id = Uuid::new_v4();
        let now = Instant::now();
        let mut writer = Self {
            log,
            hands,
            options,
            id,
            state: State::new(),
            end: Covered::NOTHING,
            offers: Vec::new(),
            seen_end: now,
            unsynced: false,
            turns: Turns::new(id),
            pile: Pile::new(0),
            applied,
            housekeeping: None,
            last_sweep: now,
        };
        writer.reopen().await?;
        writer.check_end().await?;
        Ok(writer)
    }

    /// Begins again at the newest snapshot.
    async fn reopen(&mut self) -> Result<()> {
        let Snapshot { covered, state, bytes } = Snapshot::newest(&self.log).await?;
        (self.state, self.end) = (state, covered);
        self.offers.clear();
        self.pile = Pile { cost_per_byte: self.pile.cost_per_byte, ..Pile::new(bytes) };
        self.read_on().await?;
        self.applied.send_modify(|applied| *applied += 1);
        Ok(())
    }

    /// The end of what could be read must be the end of the log: a record that is gone in the middle would otherwise be
    /// written anew, and contradict those behind it.
    async fn check_end(&mut self) -> Result<()> {
        let last = self.log.list("log").await?.pop();
        self.catch_up().await?;
        let next = self.end.number + 1;
        match last {
            Some(last) if last > Log::path(next) => Err(missing(next)),
            Some(_) | None => Ok(()),
        }
    }

    /// Serves requests until nobody is left who could make one.
    pub(crate) async fn run(mut self, first: Vec<Request>, mut requests: mpsc::Receiver<Request>) {
        let rung = Arc::new(Notify::new());
        let bell = self.log.directory().and_then(|directory| directory.listen(Arc::clone(&rung)));
        let poll = if bell.is_some() { self.options.poll } else { self.options.poll_without_bell };
        let mut batch = first;
        loop {
            if !batch.is_empty() {
                self.serve(&mut batch, &mut requests, &rung).await;
            }
            self.keep_house().await;
            tokio::select! {
                biased;
                taken = requests.recv_many(&mut batch, BATCH) => if taken == 0 { break },
                () = rung.notified() => self.look_around().await,
                () = sleep(poll) => self.look_around().await,
            }
        }
        if let Some(housekeeping) = self.housekeeping {
            housekeeping.await.ok();
        }
    }

    /// Reads what others wrote, so that those who wait for it are told, and so that the next commit has less to read.
    async fn look_around(&mut self) {
        // Whoever asks for something next is told what is wrong.
        if let Err(error) = self.catch_up().await {
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
            while let Some(turn) = self.turns.wait_until().filter(|_| commands.len() < BATCH) {
                // What arrives meanwhile comes along.
                tokio::select! {
                    taken = requests.recv_many(batch, BATCH) => if taken == 0 { break },
                    () = rung.notified() => self.look_around().await,
                    () = sleep_until(turn) => break,
                }
                self.sort(batch, &mut commands).await;
            }
            let now: Vec<_> = commands.drain(..fitting(&commands)).collect();
            match self.commit(&now).await {
                Ok(answers) => {
                    for ((_, caller), answer) in now.into_iter().zip(answers) {
                        // Whoever does not wait any more does not need to be told.
                        caller.send(answer).ok();
                    }
                }
                Err(error) => now.into_iter().for_each(|(_, caller)| {
                    caller.send(Err(error.clone())).ok();
                }),
            }
        }
    }

    /// Answers looks, and keeps commands for the next commit.
    async fn sort(&mut self, batch: &mut Vec<Request>, commands: &mut Commands) {
        let mut looks = Vec::new();
        for request in batch.drain(..) {
            match request {
                Request::Decide(command, answer) => commands.push((command, answer)),
                Request::Look(look) => looks.push(look),
            }
        }
        if looks.is_empty() {
            return;
        }
        let mut caught_up = self.catch_up().await;
        if caught_up.is_ok() && !self.offers.is_empty() {
            // What was offered is to be seen.
            caught_up = self.commit::<()>(&[]).await.map(drop);
        }
        let now = self.hands.now();
        for look in looks {
            look(caught_up.clone().map(|()| (&mut self.state, now)));
        }
    }

    /// Evolves by what others wrote. If nobody looked for a long time, what comes next may have been swept.
    async fn catch_up(&mut self) -> Result<()> {
        if self.is_late() && Snapshot::newest_number(&self.log).await? > self.end.number {
            return self.reopen().await;
        }
        self.read_on().await
    }

    async fn read_on(&mut self) -> Result<()> {
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

    fn follow(&mut self, record: &Record, bytes: usize) -> Result<()> {
        if record.after != self.end.nonce {
            let what = format!("{}: does not follow the record before it", Log::path(record.number));
            return Err(Error::new(ErrorKind::Data, what));
        }
        record.events.iter().for_each(|event| self.state.evolve(event));
        self.offers.drain(..record.admitted.min(self.offers.len()));
        self.offers.extend(record.offered.iter().cloned());
        self.unsynced = true;
        self.passed(record.number, record.nonce, record.writer, bytes);
        Ok(())
    }

    /// The state knows one more record.
    fn passed(&mut self, number: u64, nonce: Uuid, writer: Uuid, bytes: usize) {
        self.end = Covered { number, nonce };
        self.turns.saw(number, writer);
        self.pile.records += 1;
        self.pile.bytes += bytes;
        self.applied.send_modify(|applied| *applied += 1);
    }

    async fn commit<T>(&mut self, commands: &[(Box<Command>, T)]) -> Result<Vec<Result<Answer>>> {
        self.catch_up().await?;
        let mut races = 0;
        while races < RACES {
            let at = self.hands.now().max(self.state.now());
            // What was acknowledged before comes before; if it is too much for one record, the commands wait for the next.
            let admitted = fitting_jobs(&self.offers);
            let is_last = admitted == self.offers.len();
            let commands = if is_last { commands } else { &[] };
            self.state.speculate();
            let (events, answers) = self.decide_all(at, admitted, commands);
            if admitted == 0 && events.iter().all(|event| matches!(event, Event::Ticked(_))) {
                // That time goes on needs no record. What is answered rests on what was seen.
                self.state.take_back();
                if std::mem::take(&mut self.unsynced) {
                    self.log.sync().await.inspect_err(|_| self.unsynced = true)?;
                }
                return Ok(answers);
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
            };
            let sent = Instant::now();
            match put(&self.log, &record, &self.options).await {
                Ok(Put::Ours(_)) if self.is_late() => {
                    self.state.take_back();
                    self.reopen().await?;
                    let what = format!("{}: written too late to be trusted", Log::path(record.number));
                    return Err(Error::new(ErrorKind::Unknown, what));
                }
                Ok(Put::Ours(bytes)) => {
                    self.state.keep();
                    self.written(&record, bytes, sent).await;
                    if is_last {
                        return Ok(answers);
                    }
                }
                Ok(Put::Theirs(theirs, bytes)) => {
                    races += 1;
                    self.state.take_back();
                    self.follow(&theirs, bytes)?;
                    self.catch_up().await?;
                }
                Err(error) => {
                    self.state.take_back();
                    return Err(error);
                }
            }
        }
        let next = self.end.number + 1;
        let message = format!("{}: others were first {RACES} times in a row", Log::path(next));
        Err(Error::new(ErrorKind::Unavailable, message))
    }

    fn decide_all<T>(
        &mut self,
        at: Time,
        admitted: usize,
        commands: &[(Box<Command>, T)],
    ) -> (Vec<Event>, Vec<Result<Answer>>) {
        let mut events = Vec::new();
        if admitted > 0 {
            match decide(&mut self.state, at, &Command::Admit(self.offers[..admitted].to_vec())) {
                Ok(decision) => events.extend(decision.events),
                // An offer that breaks a rule cannot have come from qo.
                Err(error) => tracing::error!("offered jobs were refused: {error}"),
            }
        }
        let answers = commands.iter().map(|(command, _)| {
            let decision = decide(&mut self.state, at, command)?;
            events.extend(decision.events);
            Ok(decision.answer)
        });
        let answers = answers.collect();
        (events, answers)
    }

    /// A record of ours is there.
    async fn written(&mut self, record: &Record, bytes: usize, sent: Instant) {
        self.seen_end = sent;
        // Its folder was synced with it, and so was everything that could be seen there.
        self.unsynced = false;
        self.offers.drain(..record.admitted);
        self.turns.took(sent.elapsed());
        self.passed(record.number, record.nonce, self.id, bytes);
        self.log.directory().inspect(|directory| directory.ring());
        if let Hands::Store(clock) = &self.hands {
            clock.observe(&self.log, &Log::path(record.number), sent).await;
        }
    }

    /// Writes a snapshot if a reader would have much to replay, and sweeps now and then. Everybody has been answered:
    /// nobody waits for it.
    async fn keep_house(&mut self) {
        if self.housekeeping.as_ref().is_some_and(|running| !running.is_finished()) {
            return;
        }
        let snapshot = match self.is_snapshot_due() {
            true => {
                self.archive().await;
                self.due_snapshot().await
            }
            false => None,
        };
        let sweep_is_due = self.last_sweep.elapsed() >= self.options.sweep_age / 2;
        if snapshot.is_none() && !sweep_is_due {
            return;
        }
        if sweep_is_due {
            self.last_sweep = Instant::now();
        }
        let (log, age) = (self.log.clone(), self.options.sweep_age);
        let remembered_ms = self.state.retention().succeeded_ms;
        self.housekeeping = Some(tokio::spawn(async move {
            if let Some((number, bytes)) = snapshot
                && !snapshot::write(&log, number, bytes).await
            {
                tracing::debug!("snapshot {number} was not written: the records say the same");
            }
            if sweep_is_due && let Err(error) = sweep(&log, age, remembered_ms).await {
                tracing::debug!("sweeping was cut short: {error}");
            }
        }));
    }

    /// Whether it is time for a snapshot: it costs what it has rows, so a large one is due when there is more to replay.
    fn is_snapshot_due(&self) -> bool {
        let Pile { records, bytes, snapshot_bytes, .. } = self.pile;
        let much = records >= self.options.snapshot_every || bytes >= self.options.snapshot_bytes;
        // With offers that nobody has decided about, the state is not all that the records say.
        much && bytes >= snapshot_bytes / 2 && self.pile.is_affordable() && self.offers.is_empty()
    }

    /// Lets jobs that succeeded some time ago leave the state.
    async fn archive(&mut self) {
        let leaving = history::leaving(&self.state, self.hands.now());
        if leaving.is_empty() {
            return;
        }
        let jobs = leaving.iter().map(|job| job.id).collect();
        // If the segment is written and the record is not, the jobs are in both places, which hurts nobody.
        if let Ok(true) = history::write(&self.log, self.end.number, leaving).await
            && let Err(error) = self.commit(&[(Box::new(Command::Archive { jobs }), ())]).await
        {
            tracing::debug!("nothing left the state: {error}");
        }
    }

    /// The snapshot that is due, unless somebody else has written it.
    async fn due_snapshot(&mut self) -> Option<(u64, Vec<u8>)> {
        let newest = Snapshot::newest_number(&self.log).await.ok()?;
        let behind = self.end.number.saturating_sub(newest);
        if behind < self.pile.records && behind < self.options.snapshot_every {
            // Somebody else has written one.
            (self.pile.records, self.pile.bytes, self.pile.since) = (behind, 0, Some(Instant::now()));
            return None;
        }
        let begun = Instant::now();
        let encoded = snapshot::encode(self.end, &self.state).ok()?;
        let cost_per_byte = begun.elapsed().as_secs_f64() / encoded.len().max(1) as f64;
        self.pile = Pile { cost_per_byte, since: Some(Instant::now()), ..Pile::new(encoded.len()) };
        Some((self.end.number, encoded))
    }
}

/// How many of these commands go into one record: one at least.
fn fitting<T>(commands: &[(Box<Command>, T)]) -> usize {
    let mut bytes = 0;
    let fits = |(command, _): &&(Box<Command>, T)| {
        bytes += weight(command);
        bytes <= RECORD_BYTES
    };
    commands.iter().take(BATCH).take_while(fits).count().max(1)
}

/// How many of these jobs go into one record: one at least, if there is one.
fn fitting_jobs(jobs: &[NewJob]) -> usize {
    let mut bytes = 0;
    let fits = |job: &&NewJob| {
        bytes += job.payload.as_str().len();
        bytes <= RECORD_BYTES
    };
    jobs.iter().take(OFFERS).take_while(fits).count().max(1).min(jobs.len())
}

/// Bytes of payload, output and error text that a command brings.
fn weight(command: &Command) -> usize {
    let settled = |settle: &Settle| match &settle.outcome {
        Outcome::Succeed { output } => output.as_str().len(),
        Outcome::Retry { error, .. } | Outcome::Fail { error } => error.as_str().len(),
        Outcome::Snooze { .. } | Outcome::Release | Outcome::Cancelled => 0,
    };
    match command {
        Command::Submit(jobs) => jobs.iter().map(|job| job.payload.as_str().len()).sum(),
        Command::Exchange(exchange) => exchange.settles.iter().map(settled).sum(),
        _ => 0,
    }
}
