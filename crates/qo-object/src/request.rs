//! The calls that wait for the writer, and how much goes into one record.

use qo_core::{Answer, Command, Decision, Exchange, NewJob, Outcome, Result, Settle, State, Time};
use qo_core::{Watch, decide_watching};
use tokio::sync::oneshot;
use tokio::time::Instant;

/// Requests in one commit, at most.
pub(crate) const BATCH: usize = 1_000;
/// A record takes no more commands once they bring about this many bytes of payload and output.
const RECORD_BYTES: usize = 8 << 20;
/// Offered jobs that one record admits, at most.
const OFFERS: usize = 5_000;

/// A request to the writer.
pub(crate) enum Request {
    /// Decide a command.
    Decide(Box<Command>, Caller),
    /// Exchange, unless that would bring nothing; then the answer is [`Answer::Done`].
    Fetch(Box<Exchange>, Caller),
    /// Show the state of now. What is shown is on the disk.
    Look(Look),
    /// Show the state of now to a caller that decides nothing by it. If the caller was just told of a change
    /// (`is_told`), that change is shown without another look at the store.
    Glance { look: Look, is_told: bool },
    /// Finish what is under way beside the log.
    Finish(oneshot::Sender<()>),
}

/// A look at the state at a time, and at which leases this process has watched; or the error that prevents it.
pub(crate) type Look = Box<dyn FnOnce(Result<(&mut State, Time, &dyn Watch)>) + Send>;

/// The caller that waits for an answer.
pub(crate) type Caller = oneshot::Sender<Result<Answer>>;

/// A command that waits for a commit.
pub(crate) struct Call<T> {
    pub(crate) command: Box<Command>,
    /// It came by [`Store::fetch`](qo_core::Store::fetch): an exchange that needs no record if it would bring nothing.
    pub(crate) is_fetch: bool,
    /// When it came to the writer. Its answer rests on a record, or on a look that was made later.
    pub(crate) at: Instant,
    pub(crate) caller: T,
}

impl<T> Call<T> {
    pub(crate) fn new(command: Command, caller: T) -> Self {
        Self { command: Box::new(command), is_fetch: false, at: Instant::now(), caller }
    }

    pub(crate) fn decide(&self, state: &mut State, at: Time, watch: &dyn Watch) -> Result<Decision> {
        if self.fetches_nothing(state, at, watch) {
            return Ok(Decision { events: Vec::new(), answer: Answer::Done });
        }
        decide_watching(state, at, &self.command, watch)
    }

    /// Whether it is a fetch that would bring nothing.
    pub(crate) fn fetches_nothing(&self, state: &mut State, at: Time, watch: &dyn Watch) -> bool {
        match &*self.command {
            Command::Exchange(exchange) => self.is_fetch && state.may_leave_watching(at, exchange, watch),
            _ => false,
        }
    }
}

/// How many of these commands go into one record: at least one, if there is one.
pub(crate) fn fitting<T>(commands: &[Call<T>]) -> usize {
    let mut bytes = 0;
    let fits = |call: &&Call<T>| {
        bytes += weight(&call.command);
        bytes <= RECORD_BYTES
    };
    commands.iter().take(BATCH).take_while(fits).count().max(1).min(commands.len())
}

/// How many of these jobs go into one record: at least one, if there is one.
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
