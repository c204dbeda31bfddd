//! Stops (contract §5): a worker is told with its next exchange, once, what it must stop: jobs that were
//! called off, and claims that a timeout or an operator took away.

use super::ledger::{Fact, Ledger};
use super::{Objections, Violation, Watch, read};
use crate::history::History;
use qo_core::{AttemptOutcome, Exchange, ExchangeReply, FenceToken, SessionId, StopReason};
use std::collections::{BTreeMap, HashMap};

/// Watches what must be told, and what is told.
#[derive(Debug, Default)]
pub struct Stops {
    due: HashMap<SessionId, BTreeMap<FenceToken, StopReason>>,
}

/// Workers that were not told to stop, or told for nothing.
pub fn check(history: &History) -> Vec<Violation> {
    read(history, &mut [&mut Stops::default()])
}

impl Watch for Stops {
    fn fact(&mut self, books: &Ledger, fact: &Fact<'_>, objections: &mut Objections) {
        match fact {
            Fact::Cancelled(id, Ok(_), _) => {
                let job = books.find(*id).map(|index| &books.jobs[index]).filter(|job| !job.cancel_requested);
                if let Some(holding) = job.and_then(|job| job.holding) {
                    self.due.entry(holding.session).or_default().insert(holding.token, StopReason::Cancelled);
                }
            }
            Fact::Ended { job, token, outcome, .. } => {
                let Some(holding) = books.jobs[*job].holding else { return };
                let due = self.due.entry(holding.session).or_default();
                match outcome {
                    AttemptOutcome::TimedOut | AttemptOutcome::ReleasedByOperator => {
                        due.insert(*token, StopReason::LeaseEnded);
                    }
                    _ => drop(due.remove(token)),
                }
            }
            Fact::Exchanged(exchange, reply) => self.told(exchange, reply, objections),
            _ => {}
        }
    }
}

impl Stops {
    fn told(&mut self, exchange: &Exchange, reply: &ExchangeReply, objections: &mut Objections) {
        // Whether a claim that was taken away is still told to a worker that just tried to settle it, and
        // so heard `Fenced`, is left open.
        let heard = |token: FenceToken| exchange.settles.iter().any(|settle| settle.token == token);
        let mut due = self.due.remove(&exchange.session).unwrap_or_default();
        due.retain(|token, _| !heard(*token));
        let told: BTreeMap<_, _> = reply
            .stop
            .iter()
            .filter(|stop| !heard(stop.token))
            .map(|stop| (stop.token, stop.reason))
            .collect();
        objections.unless(told == due, "stop", || format!("told to stop {told:?}, due was {due:?}"));
        let in_order = reply.stop.is_sorted_by_key(|stop| stop.token);
        objections.unless(in_order, "stop", || format!("not by token: {:?}", reply.stop));
    }
}
