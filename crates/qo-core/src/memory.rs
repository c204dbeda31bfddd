//! The simplest store: the rule book behind a lock. Its contents end with the process. For tests, simulations and
//! trying qo out (`memory:`).

use crate::{Answer, Book, Claim, Clock, Command, Error, ErrorKind, Event, FenceToken, Result, SessionId};
use crate::{Exchange, ExchangeReply, Store};
use crate::{State, SystemClock, Time, Work, decide};
use async_trait::async_trait;
use std::collections::BTreeMap;
use std::collections::hash_map::RandomState;
use std::future::poll_fn;
use std::hash::BuildHasher;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Poll, Waker};

/// A namespace in memory. A call waits for nothing but the lock, so each is done when it is first polled.
pub struct MemoryStore {
    state: Mutex<State>,
    clock: Arc<dyn Clock>,
    changes: Changes,
    logs: Mutex<BTreeMap<FenceToken, String>>,
    /// A random number.
    identity: u64,
}

impl MemoryStore {
    /// An empty namespace on the machine's clock.
    pub fn new() -> Self {
        Self::with_clock(Arc::new(SystemClock::new()))
    }

    /// An empty namespace on a given clock.
    pub fn with_clock(clock: Arc<dyn Clock>) -> Self {
        Self {
            state: Mutex::new(State::new()),
            clock,
            changes: Changes::default(),
            logs: Mutex::default(),
            identity: RandomState::new().hash_one(()),
        }
    }

    /// Decides a command. Every mutating method is a short form of this.
    pub fn command(&self, command: &Command) -> Result<Answer> {
        let mut state = self.lock()?;
        let decision = decide(&mut state, self.clock.now(), command)?;
        if decision.events.iter().any(|event| !matches!(event, Event::Ticked(_))) {
            self.changes.note();
        }
        Ok(decision.answer)
    }

    /// What [`State::audit`] finds: counts and indexes that do not follow from the rows.
    pub fn audit(&self) -> Result<Vec<String>> {
        Ok(self.lock()?.audit())
    }

    fn lock(&self) -> Result<MutexGuard<'_, State>> {
        // A poisoned lock means that an assertion failed in the middle of a change: the state cannot be trusted.
        self.state
            .lock()
            .map_err(|_| Error::new(ErrorKind::Internal, "the rule book has stopped: a guarantee was broken"))
    }
}

impl Default for MemoryStore {
    fn default() -> Self {
        Self::new()
    }
}

#[async_trait]
impl Book for MemoryStore {
    fn identity(&self) -> Option<String> {
        Some(format!("memory-{:016x}", self.identity))
    }

    async fn decide(&self, command: Command) -> Result<Answer> {
        self.command(&command)
    }

    async fn look<T, F>(&self, look: F) -> Result<T>
    where
        T: Send + 'static,
        F: FnOnce(&mut State, Time) -> T + Send + 'static,
    {
        let mut state = self.lock()?;
        let now = self.clock.now();
        // Advance time for good. No other process reads a log of this state, and undoing it would make every look move
        // the due jobs again.
        if now > state.now() {
            state.evolve(&Event::Ticked(now));
        }
        Ok(look(&mut state, now))
    }

    async fn fetch(&self, exchange: Exchange) -> Result<Option<ExchangeReply>> {
        if self.lock()?.may_leave(self.clock.now(), &exchange) {
            return Ok(None);
        }
        Store::exchange(self, exchange).await.map(Some)
    }

    async fn work(&self, session: SessionId, claim: Claim) -> Result<Work> {
        // Read the change counter before the look, so that no change is missed.
        let seen = self.changes.count();
        let work = self.lock()?.work(self.clock.now(), session, claim)?;
        Ok(Work { seen, ..work })
    }

    async fn changed(&self, seen: Option<u64>) -> Result<u64> {
        Ok(match seen {
            None => self.changes.count(),
            Some(seen) => self.changes.past(seen).await,
        })
    }

    async fn keep_log(&self, token: FenceToken, log: String) -> Result<()> {
        let mut logs = self.logs.lock().unwrap_or_else(PoisonError::into_inner);
        logs.insert(token, log);
        if logs.len() > LOGS {
            logs.pop_first();
        }
        Ok(())
    }

    async fn log(&self, token: FenceToken) -> Result<Option<String>> {
        Ok(self.logs.lock().unwrap_or_else(PoisonError::into_inner).get(&token).cloned())
    }
}

/// How many logs a namespace in memory keeps: the newest.
const LOGS: usize = 1_000;

/// The change counter, and the tasks that wait for the next change.
#[derive(Debug, Default)]
struct Changes(Mutex<(u64, Vec<Waker>)>);

impl Changes {
    fn count(&self) -> u64 {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).0
    }

    fn note(&self) {
        let waiting = {
            let mut changes = self.0.lock().unwrap_or_else(PoisonError::into_inner);
            changes.0 += 1;
            std::mem::take(&mut changes.1)
        };
        waiting.into_iter().for_each(Waker::wake);
    }

    /// Waits until the counter has passed `seen`.
    async fn past(&self, seen: u64) -> u64 {
        poll_fn(|context| {
            let mut changes = self.0.lock().unwrap_or_else(PoisonError::into_inner);
            if changes.0 > seen {
                return Poll::Ready(changes.0);
            }
            if !changes.1.iter().any(|waker| waker.will_wake(context.waker())) {
                changes.1.push(context.waker().clone());
            }
            Poll::Pending
        })
        .await
    }
}
