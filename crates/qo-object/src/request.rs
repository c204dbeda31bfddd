//! What a writer is asked for, and how much of it goes into one record.

use qo_core::{Answer, Command, Decision, Exchange, NewJob, Outcome, Result, Settle, State, Time};
use qo_core::{Watch, decide_watching};
use tokio::sync::oneshot;
use tokio::time::Instant;

/// Most requests that go into one commit.
pub(crate) const BATCH: usize = 1_000;
/// A record takes no more commands once its events have this many bytes of payload and output, more or less.
const RECORD_BYTES: usize = 8 << 20;
/// Most offered jobs that one record decides about.
const OFFERS: usize = 5_000;

/// What the writer is asked for.
pub(crate) enum Request {
    /// To decide a command.
    Decide(Box<Command>, Caller),
    /// To exchange, unless that would bring nothing; it is answered with [`Answer::Done`] then.
    Fetch(Box<Exchange>, Caller),
    /// To show the state, at the present. What is shown is on the disk.
    Look(Look),
    /// To show the state, at the present, to somebody for whom nothing rests on it. Whoever was just told that something has
    /// changed is shown that, and nobody asks again.
    Glance { look: Look, is_told: bool },
    /// To be done with what goes on on the side.
    Finish(oneshot::Sender<()>),
}

/// A look at the state at a time, by a process that has watched so much, or the reason why there is none.
pub(crate) type Look = Box<dyn FnOnce(Result<(&mut State, Time, &dyn Watch)>) + Send>;

/// Who waits for an answer.
pub(crate) type Caller = oneshot::Sender<Result<Answer>>;

/// A command that waits to be decided.
pub(crate) struct Asked<T> {
    pub(crate) command: Box<Command>,
    /// An exchange that is left out if it would bring nothing.
    pub(crate) is_fetch: bool,
    /// When the writer heard of it: what it is answered rests on a look that was made later, or on a record.
    pub(crate) at: Instant,
    pub(crate) caller: T,
}

impl<T> Asked<T> {
    pub(crate) fn new(command: Command, caller: T) -> Self {
        Self { command: Box::new(command), is_fetch: false, at: Instant::now(), caller }
    }

    pub(crate) fn decide(&self, state: &mut State, at: Time, watch: &dyn Watch) -> Result<Decision> {
        if self.is_barren(state, at, watch) {
            return Ok(Decision { events: Vec::new(), answer: Answer::Done });
        }
        decide_watching(state, at, &self.command, watch)
    }

    /// Whether it is to fetch something, and there is nothing.
    pub(crate) fn is_barren(&self, state: &mut State, at: Time, watch: &dyn Watch) -> bool {
        match &*self.command {
            Command::Exchange(exchange) => self.is_fetch && state.may_leave_watching(at, exchange, watch),
            _ => false,
        }
    }
}

/// How many of these commands go into one record: one at least, if there is one.
pub(crate) fn fitting<T>(commands: &[Asked<T>]) -> usize {
    let mut bytes = 0;
    let fits = |asked: &&Asked<T>| {
        bytes += weight(&asked.command);
        bytes <= RECORD_BYTES
    };
    commands.iter().take(BATCH).take_while(fits).count().max(1).min(commands.len())
}

/// How many of these jobs go into one record: one at least, if there is one.
pub(crate) fn fitting_jobs(jobs: &[NewJob]) -> usize {
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
