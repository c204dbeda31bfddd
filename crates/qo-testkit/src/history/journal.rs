//! Recording a history: the journal, and the store that records every change that reaches it.

use super::{Actor, Entry, History, What};
use crate::generator::call;
use crate::intercept::{Intercept, Intercepted};
use async_trait::async_trait;
use qo_core::{Answer, Command, Result, Store, Time};
use std::sync::{Arc, Mutex, MutexGuard};

/// Where a history is written while it happens.
#[derive(Debug, Default)]
pub struct Journal(Mutex<Page>);

#[derive(Debug)]
struct Page {
    now: Time,
    actor: Actor,
    history: History,
}

impl Default for Page {
    fn default() -> Self {
        Self { now: Time::default(), actor: Actor::Auditor, history: History::default() }
    }
}

impl Journal {
    fn page(&self) -> MutexGuard<'_, Page> {
        self.0.lock().expect("no panic while the journal is held")
    }

    /// Store time of the next entries.
    pub fn set_now(&self, now: Time) {
        self.page().now = now;
    }

    /// The actor of the next calls that reach the store.
    pub fn set_actor(&self, actor: Actor) {
        self.page().actor = actor;
    }

    /// Records what an actor did.
    pub fn write(&self, actor: Actor, what: What) {
        let mut page = self.page();
        let at = page.now;
        page.history.entries.push(Entry { at, actor, what });
    }

    fn applied(&self, command: Command, answer: &Result<Answer>) {
        let actor = self.page().actor;
        self.write(actor, What::Applied(Arc::new(command), Arc::new(answer.clone())));
    }

    /// The history so far; the journal is empty afterwards.
    pub fn take(&self) -> History {
        std::mem::take(&mut self.page().history)
    }
}

/// A store that records every change that reaches it, and its true answer.
pub type RecordedStore = Intercepted<Recorder>;

/// The recording side of a [`RecordedStore`].
pub struct Recorder {
    store: Arc<dyn Store>,
    journal: Arc<Journal>,
}

impl RecordedStore {
    /// Records what reaches `store`.
    pub fn new(store: Arc<dyn Store>, journal: Arc<Journal>) -> Self {
        Self(Recorder { store, journal })
    }
}

#[async_trait]
impl Intercept for Recorder {
    async fn command(&self, command: Command) -> Result<Answer> {
        let answer = call(&*self.store, command.clone()).await;
        self.journal.applied(command, &answer);
        answer
    }

    fn look(&self) -> Result<&dyn Store> {
        Ok(&*self.store)
    }
}
