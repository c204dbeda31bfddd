//! G1′ handlers: at most N handlers physically run.
//!
//! A handler that runs without owning its job is one too many: the store may have given its slots to another job. A
//! worker that follows the rule of trust never runs one, with two exceptions that the contract names: a process that
//! paused for longer than its margin, and a slot that an operator took by force (or a timeout that passed while the
//! worker did not stop the handler).

use super::ledger::{Fact, Ledger};
use super::{Objections, Violation, Watch, read};
use crate::history::{Actor, Entry, History, What};
use qo_core::{AttemptOutcome, FenceToken};
use std::collections::{HashMap, HashSet};

/// Watches what physically runs.
#[derive(Debug, Default)]
pub struct Handlers {
    running: HashMap<FenceToken, Actor>,
    excused: HashSet<FenceToken>,
}

/// Handlers that ran without a claim.
pub fn check(history: &History) -> Vec<Violation> {
    read(history, &mut [&mut Handlers::default()])
}

impl Watch for Handlers {
    fn fact(&mut self, _books: &Ledger, fact: &Fact<'_>, objections: &mut Objections) {
        let Fact::Ended { token, outcome, .. } = fact else { return };
        match outcome {
            AttemptOutcome::ReleasedByOperator | AttemptOutcome::TimedOut => {
                self.excused.insert(*token);
            }
            _ => {
                let runs = self.running.contains_key(token) && !self.excused.contains(token);
                objections.unless(!runs, "G1′", || {
                    format!("the handler of token {token} still ran when its claim ended: {outcome:?}")
                });
            }
        }
    }

    fn entry(&mut self, books: &Ledger, entry: &Entry, objections: &mut Objections) {
        match &entry.what {
            What::HandlerStarted(job, token) => {
                let owned = books.running.contains_key(token) || self.excused.contains(token);
                objections.unless(owned, "G1′", || {
                    format!("a handler of {job} began with token {token}, which owns nothing")
                });
                self.running.insert(*token, entry.actor);
            }
            What::HandlerStopped(_, token) => drop(self.running.remove(token)),
            What::Paused { beyond_margin: true, .. } => {
                let asleep = self.running.iter().filter(|(_, actor)| **actor == entry.actor);
                self.excused.extend(asleep.map(|(token, _)| *token));
            }
            _ => {}
        }
    }
}
