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
        let (session, id, token, job, starts) = match fact {
            Fact::Granted(grant) => {
                (grant.session, grant.id, grant.token, grant.job, grant.claimed.is_none())
            }
            Fact::Prefetched(session, prefetched, job) => {
                (*session, prefetched.job.id, prefetched.job.token, *job, false)
            }
            _ => return,
        };
        let Some(job) = job.map(|job| &books.jobs[job]) else { return };
        let runs = job.holding.map(|holding| holding.token);
        // A start replaces the claim of the same job; `fence` checks that the claim was that session's.
        let claimed = job.claimed.map(|claimed| claimed.token).filter(|_| !starts);
        if let Some(held) = runs.or(claimed) {
            objections.add(
                "G4",
                format!("{id} was granted to {session} as token {token} while token {held} owns it"),
            );
        }
    }

    fn entry(&mut self, books: &Ledger, entry: &Entry, objections: &mut Objections) {
        let What::Audited(audit) = &entry.what else { return };
        for detail in &audit.details {
            for pair in detail.attempts.windows(2) {
                // A claim that read the clock, and then waited until another session gave the job back, has an earlier
                // time than that.
                let in_time = books.concurrent || pair[0].ended_at <= pair[1].started_at;
                let apart = in_time && pair[0].token < pair[1].token;
                objections
                    .unless(apart, "G4", || format!("attempts of {} overlap: {pair:?}", detail.view.id));
            }
        }
    }
}
