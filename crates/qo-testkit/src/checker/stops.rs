//! Stops (contract §5): a worker's next exchange tells it, once, what it must stop: jobs that were cancelled, and
//! claims that a timeout, an operator or the end of their lease took away.

use super::ledger::{ClaimEnd, Fact, Ledger};
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
            Fact::StopAsked(job) => {
                let holding = books.jobs[*job].holding;
                holding.iter().for_each(|by| self.owe(by.session, by.token, StopReason::Cancelled));
            }
            Fact::ClaimEnded { job, token, how, .. } => {
                let Some(claimed) = books.jobs[*job].claimed else { return };
                match how {
                    ClaimEnd::Cancelled => self.owe(claimed.session, *token, StopReason::Cancelled),
                    ClaimEnd::Over => self.owe(claimed.session, *token, StopReason::LeaseEnded),
                    // Its worker ended it itself, or is gone.
                    ClaimEnd::CouldNotStart
                    | ClaimEnd::Released
                    | ClaimEnd::Drained
                    | ClaimEnd::SessionEnded => {}
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
    fn owe(&mut self, session: SessionId, token: FenceToken, reason: StopReason) {
        self.due.entry(session).or_default().insert(token, reason);
    }

    fn told(&mut self, exchange: &Exchange, reply: &ExchangeReply, objections: &mut Objections) {
        // The contract leaves open whether a worker that just tried to settle a claim, and so got `Fenced`, is still
        // told that the claim was taken away.
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
