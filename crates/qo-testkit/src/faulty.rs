//! A store behind a bad network.
//!
//! [`FaultyStore`] wraps any store and, by seeded dice, makes calls that change something
//!
//! - **fail before**: nothing happens, the caller gets `Unavailable`;
//! - **fail after**: it happens, the caller gets `Unknown` (a lost reply);
//! - **land late**: the caller gives up and gets `Unknown`; the call happens some time later, perhaps after the caller
//!   has repeated it, sent something else or died;
//! - **land twice**: it happens and is answered, and happens once more later.
//!
//! "Later" is store time: the test that moves the clock calls [`FaultyStore::land_due`]. Nothing sleeps.

use crate::generator::call;
use crate::intercept::{Intercept, Intercepted};
use crate::random::Random;
use async_trait::async_trait;
use qo_core::{Answer, Command, Error, ErrorKind, Result, Store, Time};
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard};

/// How often each fault happens, in thousandths of the calls, and how late a late call may be.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FaultRates {
    /// Nothing happens; `Unavailable`.
    pub before: u32,
    /// It happens; `Unknown`.
    pub after: u32,
    /// It happens later; `Unknown` now.
    pub late: u32,
    /// It happens now and again later.
    pub twice: u32,
    /// Longest delay of a late call, in milliseconds.
    pub late_ms: u64,
}

impl FaultRates {
    /// No faults.
    pub const NONE: Self = Self { before: 0, after: 0, late: 0, twice: 0, late_ms: 1 };

    /// The same faults, so many times as often.
    #[must_use]
    pub fn times(self, factor: u32) -> Self {
        let Self { before, after, late, twice, late_ms } = self;
        let [before, after, late, twice] =
            [before, after, late, twice].map(|rate| (rate * factor).min(1_000));
        Self { before, after, late, twice, late_ms }
    }
}

/// What was done to a call.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Fault {
    /// Nothing happened; `Unavailable`.
    Before,
    /// It happened; `Unknown`.
    After,
    /// It will happen; `Unknown`.
    Late,
    /// It happened and will happen again.
    Twice,
}

/// A store that loses, delays and repeats calls.
pub type FaultyStore = Intercepted<Faults>;

/// The dice of a [`FaultyStore`] and the calls that are still under way.
pub struct Faults {
    store: Arc<dyn Store>,
    inner: Mutex<Inner>,
}

struct Inner {
    random: Random,
    rates: FaultRates,
    /// By moment of landing, then by number, so that the order is deterministic.
    under_way: BTreeMap<(Time, u64), Command>,
    sent: u64,
    last: Option<Fault>,
}

impl FaultyStore {
    /// Puts a bad network before `store`.
    pub fn new(store: Arc<dyn Store>, seed: u64, rates: FaultRates) -> Self {
        let (random, under_way) = (Random::new(seed), BTreeMap::new());
        Self(Faults { store, inner: Mutex::new(Inner { random, rates, under_way, sent: 0, last: None }) })
    }

    /// Ends the faults. Calls under way still land, at their time.
    pub fn heal(&self) {
        self.0.inner().rates = FaultRates::NONE;
    }

    /// When the next call that is under way lands.
    pub fn next_landing(&self) -> Option<Time> {
        self.0.inner().under_way.keys().next().map(|&(at, _)| at)
    }

    /// Lets every call land whose time has come at `now`. No caller gets the answers.
    pub async fn land_due(&self, now: Time) {
        while let Some(command) = self.0.next_due(now) {
            // The caller is gone: the store's answer, even a refusal, is dropped.
            let _unheard = call(&*self.0.store, command).await;
        }
    }

    /// What was done to the last call, once.
    pub fn take_fault(&self) -> Option<Fault> {
        self.0.inner().last.take()
    }
}

impl Faults {
    fn inner(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().expect("no panic while the dice are held")
    }

    fn next_due(&self, now: Time) -> Option<Command> {
        let mut inner = self.inner();
        let (&(at, number), _) = inner.under_way.first_key_value()?;
        if at > now { None } else { inner.under_way.remove(&(at, number)) }
    }

    /// Rolls the dice for one call; a call that lands later is queued.
    fn throw(&self, now: Time, command: &Command) -> Option<Fault> {
        let mut inner = self.inner();
        let rates = inner.rates;
        let kinds = [
            (Fault::Before, rates.before),
            (Fault::After, rates.after),
            (Fault::Late, rates.late),
            (Fault::Twice, rates.twice),
        ];
        let fault = kinds.into_iter().find(|&(_, rate)| inner.random.per_mille(rate)).map(|(kind, _)| kind);
        if matches!(fault, Some(Fault::Late | Fault::Twice)) {
            let at = now.plus_ms(inner.random.within(1..=rates.late_ms));
            inner.sent += 1;
            let number = inner.sent;
            inner.under_way.insert((at, number), command.clone());
        }
        inner.last = fault;
        fault
    }
}

#[async_trait]
impl Intercept for Faults {
    async fn command(&self, command: Command) -> Result<Answer> {
        let unknown = || Error::new(ErrorKind::Unknown, "the reply was lost");
        match self.throw(self.store.now().await?, &command) {
            None | Some(Fault::Twice) => call(&*self.store, command).await,
            Some(Fault::Before) => Err(Error::new(ErrorKind::Unavailable, "the store cannot be reached")),
            Some(Fault::Late) => Err(unknown()),
            Some(Fault::After) => {
                call(&*self.store, command).await.ok();
                Err(unknown())
            }
        }
    }

    fn look(&self) -> Result<&dyn Store> {
        Ok(&*self.store)
    }
}
