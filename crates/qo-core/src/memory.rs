//! The simplest store: the rule book behind a lock, forgotten with the process. For tests, simulations and
//! trying things out (`memory:`).

use crate::{Answer, Book, Clock, Command, Error, ErrorKind, Event, Result, State, SystemClock, decide};
use async_trait::async_trait;
use std::sync::{Arc, Mutex, MutexGuard};

/// A namespace in memory. No call waits for anything but the lock, so each is done when it is first polled.
pub struct MemoryStore {
    state: Mutex<State>,
    clock: Arc<dyn Clock>,
}

impl MemoryStore {
    /// An empty namespace on the machine's clock.
    pub fn new() -> Self {
        Self::with_clock(Arc::new(SystemClock::new()))
    }

    /// An empty namespace on a clock of your own.
    pub fn with_clock(clock: Arc<dyn Clock>) -> Self {
        Self { state: Mutex::new(State::new()), clock }
    }

    /// Carries out a command: every mutating method is a short form of this.
    pub fn command(&self, command: &Command) -> Result<Answer> {
        let mut state = self.lock()?;
        Ok(decide(&mut state, self.clock.now(), command)?.answer)
    }

    /// What [`State::audit`] finds: counts and indexes that do not follow from the rows.
    pub fn audit(&self) -> Result<Vec<String>> {
        Ok(self.lock()?.audit())
    }

    fn lock(&self) -> Result<MutexGuard<'_, State>> {
        // A poisoned lock means that an assertion of a guarantee failed half-way: nothing here can be trusted.
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
    async fn decide(&self, command: Command) -> Result<Answer> {
        self.command(&command)
    }

    async fn look<T, F>(&self, look: F) -> Result<T>
    where
        T: Send + 'static,
        F: for<'a> FnOnce(&'a State) -> T + Send + 'static,
    {
        let mut state = self.lock()?;
        let now = self.clock.now();
        // Time passes for good: nobody else reads a log of this state, and a look that took it back would have to
        // let it pass again, with all that became due, at the next one.
        if now > state.now() {
            state.evolve(&Event::Ticked(now));
        }
        Ok(look(&state))
    }
}
