//! G9 time: ownership depends on store time only.
//!
//! Workers and clients of a simulation have wrong wall clocks, and their ids and dates come from them. This checker
//! compares the times in answers with store time. A lease that ends early shows up as an overlap (G4), and one that
//! ends late as a difference between the views and the ledger.

use super::ledger::{Fact, Ledger};
use super::{Objections, Violation, Watch, read};
use crate::history::History;

/// Watches the times in answers.
#[derive(Debug, Default)]
pub struct StoreTime;

/// Answers with another time than the store's.
pub fn check(history: &History) -> Vec<Violation> {
    read(history, &mut [&mut StoreTime])
}

impl Watch for StoreTime {
    fn fact(&mut self, books: &Ledger, fact: &Fact<'_>, objections: &mut Objections) {
        let Fact::Exchanged(exchange, reply) = fact else { return };
        let Some(session) = books.sessions.get(&exchange.session) else { return };
        objections.unless(reply.now == books.now && reply.lease_until == session.lease_until, "G9", || {
            format!("at {} it is said to be {}, lease until {}", books.now, reply.now, reply.lease_until)
        });
    }
}
