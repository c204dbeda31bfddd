//! Checkers: does a history keep the guarantees?
//!
//! One file for each guarantee, with a pure `check(&History) -> Vec<Violation>`. Each is a [`Watch`] on one [`Ledger`]
//! that is kept from the history, so that [`check_all`] reads a history once for all of them.
//!
//! [`check_concurrent`] reads the history of real processes, which call their store concurrently. Their calls have one
//! order, that of the store, but each call read the clock and the line a little before its place in it.

pub mod admission;
pub mod blocking;
pub mod explained;
pub mod fence;
pub mod handlers;
pub mod ledger;
pub mod live_limits;
pub mod lost;
pub mod order;
pub mod owner;
pub mod requests;
pub mod schedules;
pub mod slots;
pub mod stops;
pub mod stuck;
pub mod tally;
pub mod time;
pub mod views;

use crate::history::{Entry, History, What};
use ledger::{Fact, Ledger};
use qo_core::Time;
use std::fmt;

/// A guarantee that did not hold, and where.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Violation {
    /// Which: `G1`, `G2`, …
    pub guarantee: &'static str,
    /// Index of the entry of the history.
    pub entry: usize,
    /// Store time of that entry.
    pub at: Time,
    /// What was found, and what was due.
    pub message: String,
}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} at {} (entry {}): {}", self.guarantee, self.at, self.entry, self.message)
    }
}

/// Where a watch puts its objections.
#[derive(Debug, Default)]
pub struct Objections {
    entry: usize,
    at: Time,
    found: Vec<Violation>,
}

impl Objections {
    /// Objects to the current entry.
    pub fn add(&mut self, guarantee: &'static str, message: impl Into<String>) {
        // After the first few violations a broken history breaks everywhere; more of them tell a reader nothing.
        if self.found.len() < 100 {
            self.found.push(Violation { guarantee, entry: self.entry, at: self.at, message: message.into() });
        }
    }

    /// Objects unless `holds`; the message is made only then.
    pub fn unless(&mut self, holds: bool, guarantee: &'static str, message: impl FnOnce() -> String) {
        if !holds {
            self.add(guarantee, message());
        }
    }
}

/// Sees every fact and entry while a ledger is kept.
pub trait Watch {
    /// A fact, with the ledger as it was before it.
    fn fact(&mut self, _books: &Ledger, _fact: &Fact<'_>, _objections: &mut Objections) {}

    /// An entry of the history, with the ledger as it is after it.
    fn entry(&mut self, _books: &Ledger, _entry: &Entry, _objections: &mut Objections) {}

    /// The history is over.
    fn end(&mut self, _books: &Ledger, _objections: &mut Objections) {}
}

/// Reads a history once, with any number of watches, and returns what they object to.
pub fn read(history: &History, watches: &mut [&mut dyn Watch]) -> Vec<Violation> {
    keep(Ledger::default(), history, watches)
}

fn keep(mut books: Ledger, history: &History, watches: &mut [&mut dyn Watch]) -> Vec<Violation> {
    let mut objections = Objections::default();
    for (index, entry) in history.entries.iter().enumerate() {
        (objections.entry, objections.at) = (index, entry.at);
        books.latest = books.latest.max(entry.at);
        // Of two concurrent calls, the one that read the clock first may come second.
        books.now = if books.concurrent { entry.at } else { books.latest };
        if let What::Applied(command, answer) = &entry.what {
            books.apply(command, answer, &mut |books, fact| {
                watches.iter_mut().for_each(|watch| watch.fact(books, fact, &mut objections));
            });
        }
        watches.iter_mut().for_each(|watch| watch.entry(&books, entry, &mut objections));
    }
    watches.iter_mut().for_each(|watch| watch.end(&books, &mut objections));
    objections.found
}

/// Every checker, and the tally of what the history was made of, in one reading.
pub fn check_all(history: &History) -> (Vec<Violation>, tally::Tally) {
    check(Ledger::default(), history)
}

/// The same for a history of processes that called their store concurrently. It leaves out only what cannot hold there;
/// each checker says why:
///
/// - A call acts at the time that it read; the call after it may have read an earlier one.
/// - Fence tokens grow for each job and each group of one slot ([`fence`]), as contract §5 has it, not from call to
///   call.
/// - A claim may pass over a job, and take jobs in another order ([`blocking`]). A job that is passed over again and
///   again is stuck ([`stuck`]).
/// - The times of attempts of two sessions may overlap a little ([`owner`]); their places in the history may not.
/// - The history does not say which handlers run ([`stuck`]).
pub fn check_concurrent(history: &History) -> (Vec<Violation>, tally::Tally) {
    check(Ledger::concurrent(), history)
}

fn check(books: Ledger, history: &History) -> (Vec<Violation>, tally::Tally) {
    let mut tally = tally::Tally::default();
    let found = keep(
        books,
        history,
        &mut [
            &mut slots::Slots,
            &mut handlers::Handlers::default(),
            &mut fence::Fence::default(),
            &mut lost::Lost::default(),
            &mut owner::Owner,
            &mut stuck::Stuck::default(),
            &mut order::Order,
            &mut blocking::Blocking,
            &mut live_limits::LiveLimits::default(),
            &mut time::StoreTime,
            &mut admission::Admission,
            &mut stops::Stops::default(),
            &mut requests::Requests,
            &mut schedules::Schedules::default(),
            &mut views::Views,
            &mut explained::Explained,
            &mut tally,
        ],
    );
    (found, tally)
}
