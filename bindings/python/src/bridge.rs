//! Jobs on their way to Python handlers and back.
//!
//! 1. The worker calls a [`PythonHandler`], which puts the job into the bridge's inbox and waits for its result.
//! 2. If the inbox was empty, it writes to a file descriptor. The event loop that watches it wakes up.
//! 3. Python takes everything that is in the inbox with one call, and starts a task or a thread for each job.
//! 4. Python hands results back in batches, too: one call for all that ended in one round of the event loop.
//! 5. A handler that must stop is put into the inbox as well, by its number.
//!
//! Invariant: a job has its [mark](qo::context::Context::unfinished) until Python says that its coroutine or thread has
//! really ended. Until then the worker counts it as running, whatever became of the future that waits for it.

use futures::future::BoxFuture;
use qo::core::Json;
use qo::worker::Unfinished;
use qo::{Context, Failure, Handler};
use rustix::event::{EventfdFlags, eventfd};
use rustix::fd::{AsRawFd, OwnedFd, RawFd};
use std::collections::HashMap;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tokio::sync::oneshot;

/// What a handler returned.
pub type Outcome = Result<Json, Failure>;

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
}

struct Running {
    tell: oneshot::Sender<Outcome>,
    /// Dropped when the coroutine or thread has ended.
    _unfinished: Unfinished,
}

#[derive(Default)]
struct State {
    inbox: Vec<Item>,
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
}

impl Bridge {
    /// An empty one.
    pub fn new() -> std::io::Result<Self> {
        let wake = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?;
        Ok(Self { state: Mutex::default(), filled: Condvar::new(), wake })
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
        state.inbox.push(item);
        drop(state);
        if was_empty {
            // It fails only if it was woken very often and never looked: then it is readable.
            let _ = rustix::io::write(&self.wake, &1_u64.to_ne_bytes());
        }
        self.filled.notify_one();
    }

    /// Everything that is in the inbox.
    pub fn take(&self) -> Vec<Item> {
        let mut state = self.state();
        let _ = rustix::io::read(&self.wake, &mut [0_u8; 8]);
        std::mem::take(&mut state.inbox)
    }

    /// Waits for something in the inbox. Nothing after a while, so that the caller can hear signals; `None` once it is
    /// closed.
    pub fn wait(&self, patience: Duration) -> Option<Option<Item>> {
        let mut state = self.state();
        if state.inbox.is_empty() && !state.is_closed {
            let waited = self.filled.wait_timeout(state, patience);
            state = waited.map(|(state, _)| state).unwrap_or_else(|poisoned| poisoned.into_inner().0);
        }
        if state.inbox.is_empty() {
            return if state.is_closed { None } else { Some(None) };
        }
        Some(Some(state.inbox.remove(0)))
    }

    /// A handler has ended. Nothing happens for a number that is not there.
    pub fn done(&self, number: u64, outcome: Outcome) {
        if let Some(running) = self.state().running.remove(&number) {
            // The worker no longer waits for a handler that it has given up.
            let _ = running.tell.send(outcome);
        }
    }

    /// No more jobs come.
    pub fn close(&self) {
        self.state().is_closed = true;
        let _ = rustix::io::write(&self.wake, &1_u64.to_ne_bytes());
        self.filled.notify_all();
    }

    /// How many handlers run.
    pub fn running(&self) -> usize {
        self.state().running.len()
    }
}

/// A task whose handler is a Python function.
pub struct PythonHandler {
    /// Where its jobs go.
    pub bridge: Arc<Bridge>,
    /// Its number among the worker's tasks.
    pub task: usize,
}

impl Handler for PythonHandler {
    fn call(&self, payload: Json, context: Context) -> BoxFuture<'static, Outcome> {
        let (bridge, task) = (Arc::clone(&self.bridge), self.task);
        Box::pin(async move {
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
            tokio::select! {
                outcome = &mut told => return ended(outcome),
                reason = context.cancelled() => {
                    bridge.put(bridge.state(), Item::Stop(number, reason.to_string()));
                }
            }
            ended(told.await)
        })
    }
}

fn ended(outcome: Result<Outcome, oneshot::error::RecvError>) -> Outcome {
    outcome.unwrap_or_else(|_| Err(Failure::retry("the handler is gone")))
}
