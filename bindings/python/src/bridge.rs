//! Jobs on their way to Python handlers and back.
//!
//! 1. The worker calls a [`PythonHandler`], which puts the job into the bridge's inbox and waits for its result.
//! 2. If the inbox was empty, it writes to a file descriptor. The event loop that watches it wakes up.
//! 3. Python takes everything that is in the inbox with one call, and starts a task or a thread for each job.
//! 4. Python hands results back in batches, too: one call for all that ended in one round of the event loop.
//! 5. A handler that must stop is put into the inbox as well, by its number.
//! 6. A handler that the worker has given up (its grace or its lease is over), and that still runs, is stuck: see
//!    [`OnStuck`].
//!
//! Invariant: a job has its [mark](qo::Context::unfinished) until Python says that its coroutine or thread has really
//! ended. Until then the worker counts it as running, whatever became of the future that waits for it.

use crate::fault::{self, Place};
use futures::future::BoxFuture;
use qo::core::Json;
use qo::worker::{EXIT_STUCK, Unfinished};
use qo::{CancelReason, Context, Failure, Handler};
use rustix::event::{EventfdFlags, eventfd};
use rustix::fd::{AsRawFd, OwnedFd, RawFd};
use std::collections::{HashMap, VecDeque};
use std::io::Write;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tokio::sync::oneshot;

/// How long a handler that was told to stop may take to say that it has, after its grace.
const PATIENCE: Duration = Duration::from_millis(250);
/// The same, after its lease is over: another worker may run the job.
const PATIENCE_WITHOUT_LEASE: Duration = Duration::from_millis(30);

/// What a handler returned.
pub type Outcome = Result<Json, Failure>;

/// What to do about a handler that does not stop.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum OnStuck {
    /// End the process.
    Exit,
    /// Put it into the inbox.
    Tell,
}

/// A job for a handler.
pub struct Start {
    /// Its number in this process.
    pub number: u64,
    /// Which of the worker's tasks.
    pub task: usize,
    /// The payload.
    pub payload: Json,
    /// The attempt.
    pub context: Context,
}

/// What Python has to do.
pub enum Item {
    /// Run a job.
    Start(Start),
    /// Stop one, and why.
    Stop(u64, String),
    /// One does not stop.
    Stuck(u64),
}

struct Running {
    tell: oneshot::Sender<Outcome>,
    /// Dropped when the coroutine or thread has ended.
    _unfinished: Unfinished,
}

#[derive(Default)]
struct State {
    inbox: VecDeque<Item>,
    running: HashMap<u64, Running>,
    last: u64,
    is_closed: bool,
}

/// An inbox, and the jobs that Python runs.
pub struct Bridge {
    state: Mutex<State>,
    /// For threads that wait for the inbox.
    filled: Condvar,
    /// For an event loop that watches it.
    wake: OwnedFd,
    on_stuck: OnStuck,
}

impl Bridge {
    /// An empty one.
    pub fn new(on_stuck: OnStuck) -> std::io::Result<Self> {
        let wake = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?;
        Ok(Self { state: Mutex::default(), filled: Condvar::new(), wake, on_stuck })
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Readable while something is in the inbox.
    pub fn descriptor(&self) -> RawFd {
        self.wake.as_raw_fd()
    }

    fn put(&self, mut state: MutexGuard<'_, State>, item: Item) {
        let was_empty = state.inbox.is_empty();
        state.inbox.push_back(item);
        drop(state);
        if was_empty {
            self.wake();
        }
        self.filled.notify_one();
    }

    fn wake(&self) {
        // It fails only if it was woken very often and never looked: then it is readable.
        let _ = rustix::io::write(&self.wake, &1_u64.to_ne_bytes());
    }

    /// Everything that is in the inbox.
    pub fn take(&self) -> VecDeque<Item> {
        let mut state = self.state();
        let _ = rustix::io::read(&self.wake, &mut [0_u8; 8]);
        std::mem::take(&mut state.inbox)
    }

    /// Items are on their way to Python.
    pub fn hand<'a>(&self, items: impl IntoIterator<Item = &'a Item>) -> Handing<'_> {
        let number = |item: &Item| if let Item::Start(start) = item { Some(start.number) } else { None };
        Handing { bridge: self, numbers: items.into_iter().filter_map(number).collect() }
    }

    /// The next of the inbox, if there is one.
    pub fn try_next(&self) -> Option<Item> {
        self.state().inbox.pop_front()
    }

    /// Waits for something in the inbox. `Some(None)` after a while, so that the caller can hear signals; `None` once it
    /// is closed.
    pub fn wait(&self, patience: Duration) -> Option<Option<Item>> {
        let mut state = self.state();
        if state.inbox.is_empty() && !state.is_closed {
            let waited = self.filled.wait_timeout(state, patience);
            state = waited.map(|(state, _)| state).unwrap_or_else(|poisoned| poisoned.into_inner().0);
        }
        match state.inbox.pop_front() {
            None if state.is_closed => None,
            item => Some(item),
        }
    }

    /// Handlers have ended. Nothing happens for a number that is not there.
    pub fn done(&self, all: impl IntoIterator<Item = (u64, Outcome)>) {
        let mut state = self.state();
        let ended: Vec<_> = all
            .into_iter()
            .filter_map(|(number, outcome)| Some((state.running.remove(&number)?, outcome)))
            .collect();
        drop(state);
        for (running, outcome) in ended {
            // The worker no longer waits for a handler that it has given up.
            let _ = running.tell.send(outcome);
        }
    }

    /// No more jobs come.
    pub fn close(&self) {
        self.state().is_closed = true;
        self.wake();
        self.filled.notify_all();
    }

    /// How many handlers run.
    pub fn running(&self) -> usize {
        self.state().running.len()
    }

    /// Takes a job back that Python has not taken out of the inbox. Returns whether it was there: then nothing of it has
    /// run.
    fn take_back(&self, number: u64) -> bool {
        let mut state = self.state();
        let is_it = |item: &Item| matches!(item, Item::Start(start) if start.number == number);
        let Some(at) = state.inbox.iter().position(is_it) else { return false };
        let (item, running) = (state.inbox.remove(at), state.running.remove(&number));
        drop(state);
        drop((item, running));
        true
    }

    fn is_running(&self, number: u64) -> bool {
        self.state().running.contains_key(&number)
    }

    /// Acts if a handler that the worker has given up still runs.
    async fn watch_given_up(self: Arc<Self>, number: u64, context: Context) {
        let is_lost =
            matches!(context.cancel_reason(), Some(CancelReason::LeaseLost | CancelReason::LeaseEnded));
        tokio::time::sleep(if is_lost { PATIENCE_WITHOUT_LEASE } else { PATIENCE }).await;
        if !self.is_running(number) {
            return;
        }
        let (job, task) = (context.job(), context.task());
        let why = context.cancel_reason().map(|reason| reason.to_string()).unwrap_or_default();
        match self.on_stuck {
            OnStuck::Exit => end_process(format!(
                "qo: the handler of task {task} does not stop ({why}): the process ends with {EXIT_STUCK}; job {job}"
            )),
            OnStuck::Tell => {
                tracing::error!(%job, %task, "the handler does not stop ({why})");
                self.put(self.state(), Item::Stuck(number));
            }
        }
    }
}

/// Jobs on their way to Python. If they do not arrive there, they are tried again: none is lost.
pub struct Handing<'a> {
    bridge: &'a Bridge,
    numbers: Vec<u64>,
}

impl Handing<'_> {
    /// They have arrived.
    pub fn done(mut self) {
        self.numbers.clear();
    }
}

impl Drop for Handing<'_> {
    fn drop(&mut self) {
        let numbers = std::mem::take(&mut self.numbers);
        if !numbers.is_empty() {
            let failed = || Err(Failure::retry("the job could not be handed to its handler"));
            self.bridge.done(numbers.into_iter().map(|number| (number, failed())));
        }
    }
}

/// How long a process that must end waits until it has said why.
const LAST_WORDS: Duration = Duration::from_millis(20);

/// Ends the process now. Neither `logging`, which needs the interpreter, nor a stderr that is not read, nor what other
/// code does at exit may hold it up: another worker may run the job.
fn end_process(why: String) -> ! {
    let (done, said) = std::sync::mpsc::sync_channel(1);
    let say = move || {
        let _ = writeln!(std::io::stderr(), "{why}");
        let _ = done.send(());
    };
    if std::thread::Builder::new().spawn(say).is_ok() {
        let _ = said.recv_timeout(LAST_WORDS);
    }
    // SAFETY: `_exit` takes no memory and returns never.
    unsafe { libc::_exit(EXIT_STUCK) }
}

/// A task whose handler is a Python function.
pub struct PythonHandler {
    /// Where its jobs go.
    pub bridge: Arc<Bridge>,
    /// Its number among the worker's tasks.
    pub task: usize,
}

/// A handler that the worker waits for. If it is dropped before the handler has ended, the worker has given it up.
struct Awaited {
    bridge: Arc<Bridge>,
    number: u64,
    context: Context,
    has_ended: bool,
}

impl Drop for Awaited {
    fn drop(&mut self) {
        if !self.has_ended
            && !self.bridge.take_back(self.number)
            && let Ok(runtime) = tokio::runtime::Handle::try_current()
        {
            let watch = Arc::clone(&self.bridge).watch_given_up(self.number, self.context.clone());
            runtime.spawn(watch);
        }
    }
}

impl Handler for PythonHandler {
    fn call(&self, payload: Json, context: Context) -> BoxFuture<'static, Outcome> {
        let (bridge, task) = (Arc::clone(&self.bridge), self.task);
        Box::pin(async move {
            fault::here(Place::Handler);
            let (tell, mut told) = oneshot::channel();
            let unfinished = context.unfinished();
            let number = {
                let mut state = bridge.state();
                state.last += 1;
                let number = state.last;
                state.running.insert(number, Running { tell, _unfinished: unfinished });
                let start = Start { number, task, payload, context: context.clone() };
                bridge.put(state, Item::Start(start));
                number
            };
            let mut awaited = Awaited { bridge, number, context, has_ended: false };
            let outcome = tokio::select! {
                biased;
                outcome = &mut told => outcome,
                reason = awaited.context.cancelled() => {
                    awaited.bridge.put(awaited.bridge.state(), Item::Stop(number, reason.to_string()));
                    told.await
                }
            };
            awaited.has_ended = true;
            outcome.unwrap_or_else(|_| Err(Failure::retry("the handler is gone")))
        })
    }
}
