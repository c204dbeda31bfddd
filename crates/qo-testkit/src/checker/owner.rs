//! G4 one owner: attempts of a job never overlap in the store's order.

use super::ledger::{Fact, Ledger};
use super::{Objections, Violation, Watch, read};
use crate::history::{Entry, History, What};

/// Watches grants, and what the store remembers of attempts.
#[derive(Debug, Default)]
pub struct Owner;

/// Attempts that overlapped.
pub fn check(history: &History) -> Vec<Violation> {
    read(history, &mut [&mut Owner])
}

impl Watch for Owner {
    fn fact(&mut self, books: &Ledger, fact: &Fact<'_>, objections: &mut Objections) {
        let Fact::Granted(session, claimed, Some(job)) = fact else { return };
        if let Some(holding) = &books.jobs[*job].holding {
            let (job, token, held) = (claimed.id, claimed.token, holding.token);
            objections.add(
                "G4",
                format!("{job} was granted to {session} as token {token} while token {held} owns it"),
            );
        }
    }

    fn entry(&mut self, _books: &Ledger, entry: &Entry, objections: &mut Objections) {
        let What::Audited(audit) = &entry.what else { return };
        for detail in &audit.details {
            for pair in detail.attempts.windows(2) {
                let apart = pair[0].ended_at <= pair[1].started_at && pair[0].token < pair[1].token;
                objections
                    .unless(apart, "G4", || format!("attempts of {} overlap: {pair:?}", detail.view.id));
            }
        }
    }
}
