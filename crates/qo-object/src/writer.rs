//! The writer: one thread for each opened namespace. It keeps the state, reads what others wrote, and commits what it is
//! asked for, many commands in one record.
//!
//! A commit, step by step:
//! 1. read the log to its end;
//! 2. decide all commands that are waiting, as a speculation;
//! 3. create the next record with what was decided;
//! 4. **done**: keep it, and answer. **Somebody was first**: take it back, evolve by what he wrote, and decide again.
//!    **Nobody knows**: create the same record again, until it is known. The nonce tells our own record from another.
//!
//! Nobody is answered before the record is there (G10): not even those whose commands changed nothing, because what they
//! were told rests on what the record says.

use crate::log::{Created, Log};
use crate::record::Record;
use crate::snapshot::{Snapshot, missing};
use crate::store::Options;
use qo_core::{Answer, Clock, Command, Error, ErrorKind, Event, Outcome, Result, Settle, State, decide};
use std::sync::Arc;
use tokio::sync::{mpsc, oneshot, watch};
use uuid::Uuid;

/// Most requests that go into one commit.
const BATCH: usize = 1_000;
/// A record takes no more commands once its events have this many bytes of payload and output, more or less.
const RECORD_BYTES: usize = 8 << 20;
/// Races for the next record that a commit may lose before its callers are told to come back later.
const RACES: u32 = 1_000;

/// What the writer is asked for.
pub(crate) enum Request {
    /// To decide a command.
    Decide(Box<Command>, oneshot::Sender<Result<Answer>>),
    /// To show the state, at the present.
    Look(Look),
}

/// A look at the state, or the reason why there is none.
pub(crate) type Look = Box<dyn FnOnce(Result<&mut State>) + Send>;

pub(crate) struct Writer {
    log: Log,
    clock: Arc<dyn Clock>,
    options: Options,
    id: Uuid,
    state: State,
    /// The next record.
    next: u64,
    snapshot_is_due: bool,
    /// How many records this process has applied, for whoever waits for the next.
    applied: watch::Sender<u64>,
}

impl Writer {
    /// Reads a namespace to its end.
    pub(crate) async fn open(
        log: Log,
        clock: Arc<dyn Clock>,
        options: Options,
        applied: watch::Sender<u64>,
    ) -> Result<Self> {
        let (covered, state) = Snapshot::newest(&log).await?;
        let mut writer = Self {
            log,
            clock,
            options,
            id: Uuid::new_v4(),
            state,
            next: covered + 1,
            snapshot_is_due: false,
            applied,
        };
        if covered == 0 || writer.log.read(covered).await?.is_some() {
            writer.catch_up().await?;
            writer.check_end().await?;
            return Ok(writer);
        }
        Err(missing(covered))
    }

    /// The end of what could be read must be the end of the log: a record that is gone in the middle would otherwise be
    /// written anew, and contradict those behind it.
    async fn check_end(&mut self) -> Result<()> {
        let last = self.log.list("log").await?.pop();
        self.catch_up().await?;
        match last {
            Some(last) if last > Log::path(self.next) => Err(missing(self.next)),
            Some(_) | None => Ok(()),
        }
    }

    /// Serves requests until nobody is left who could make one.
    pub(crate) async fn run(mut self, mut requests: mpsc::Receiver<Request>) {
        let mut batch = Vec::new();
        while requests.recv_many(&mut batch, BATCH).await > 0 {
            let (mut looks, mut commands) = (Vec::new(), Vec::new());
            for request in batch.drain(..) {
                match request {
                    Request::Decide(command, answer) => commands.push((command, answer)),
                    Request::Look(look) => looks.push(look),
                }
            }
            while !commands.is_empty() {
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
            self.show(looks).await;
            // Everybody has been answered: nobody waits for it.
            self.snapshot().await;
        }
    }

    async fn show(&mut self, looks: Vec<Look>) {
        if looks.is_empty() {
            return;
        }
        let caught_up = self.catch_up().await;
        for look in looks {
            look(caught_up.clone().map(|()| &mut self.state));
        }
    }

    /// Evolves by what others wrote.
    async fn catch_up(&mut self) -> Result<()> {
        while let Some(record) = self.log.read(self.next).await? {
            self.follow(&record);
        }
        Ok(())
    }

    fn follow(&mut self, record: &Record) {
        record.events.iter().for_each(|event| self.state.evolve(event));
        self.next = record.number + 1;
        self.applied.send_modify(|applied| *applied += 1);
    }

    async fn commit<T>(&mut self, commands: &[(Box<Command>, T)]) -> Result<Vec<Result<Answer>>> {
        if commands.is_empty() {
            return Ok(Vec::new());
        }
        self.catch_up().await?;
        for _ in 0..RACES {
            let at = self.clock.now().max(self.state.now());
            self.state.speculate();
            let mut events = Vec::new();
            let answers = commands
                .iter()
                .map(|(command, _)| {
                    let decision = decide(&mut self.state, at, command)?;
                    events.extend(decision.events);
                    Ok(decision.answer)
                })
                .collect();
            if events.iter().all(|event| matches!(event, Event::Ticked(_))) {
                // That time goes on needs no record.
                self.state.take_back();
                return Ok(answers);
            }
            let record = Record { number: self.next, writer: self.id, nonce: Uuid::new_v4(), at, events };
            match self.create(&record).await {
                Ok(None) => {
                    self.state.keep();
                    self.next += 1;
                    self.applied.send_modify(|applied| *applied += 1);
                    self.snapshot_is_due |= record.number.is_multiple_of(self.options.snapshot_every);
                    return Ok(answers);
                }
                Ok(Some(theirs)) => {
                    self.state.take_back();
                    self.follow(&theirs);
                    self.catch_up().await?;
                }
                Err(error) => {
                    self.state.take_back();
                    return Err(error);
                }
            }
        }
        let message = format!("{}: others were first {RACES} times in a row", Log::path(self.next));
        Err(Error::new(ErrorKind::Unavailable, message))
    }

    /// Creates a record, or says who was first. An error means that nobody knows whether it is there.
    async fn create(&self, record: &Record) -> Result<Option<Record>> {
        let (path, bytes) = (Log::path(record.number), record.encode()?);
        let mut why = String::new();
        for attempt in 0..self.options.attempts {
            if attempt > 0 {
                tokio::time::sleep(self.options.pause).await;
            }
            match self.log.create(&path, bytes.clone()).await {
                Created::Done => return Ok(None),
                Created::Exists => match self.log.read(record.number).await {
                    Ok(Some(found)) if found.nonce == record.nonce => return Ok(None),
                    Ok(Some(found)) => return Ok(Some(found)),
                    Ok(None) => why = format!("{path}: it exists, and it does not"),
                    Err(error) if error.kind() == ErrorKind::Data => return Err(error),
                    Err(error) => why = error.to_string(),
                },
                Created::Unknown(error) => why = error,
            }
        }
        Err(Error::new(ErrorKind::Unknown, format!("{path}: {why}")))
    }

    /// Writes a snapshot if a record of ours was the one after which there should be one.
    async fn snapshot(&mut self) {
        if std::mem::take(&mut self.snapshot_is_due) {
            // Nothing rests on it: the records say the same.
            Snapshot::write(&self.log, self.next - 1, &self.state).await.ok();
        }
    }
}

/// How many of these commands go into one record: one at least.
fn fitting<T>(commands: &[(Box<Command>, T)]) -> usize {
    let mut bytes = 0;
    let fits = |(command, _): &&(Box<Command>, T)| {
        bytes += weight(command);
        bytes <= RECORD_BYTES
    };
    commands.iter().take_while(fits).count().max(1)
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
