//! G1 slots: in the store's order no slot is taken that would exceed the limit in force.

use super::ledger::{Fact, Ledger};
use super::{Objections, Violation, Watch, read};
use crate::history::History;

/// Watches every grant.
#[derive(Debug, Default)]
pub struct Slots;

/// Grants that exceeded a limit.
pub fn check(history: &History) -> Vec<Violation> {
    read(history, &mut [&mut Slots])
}

impl Watch for Slots {
    fn fact(&mut self, books: &Ledger, fact: &Fact<'_>, objections: &mut Objections) {
        let Fact::Granted(_, claimed, Some(job)) = fact else { return };
        let job = &books.jobs[*job];
        for &(group, need) in job.needs.iter().filter(|_| job.holding.is_none()) {
            objections.unless(books.groups.has_room(group, need), "G1", || {
                format!(
                    "token {} took {need} of {} where {} of {:?} were taken",
                    claimed.token,
                    books.groups.name(group),
                    books.groups.used(group),
                    books.groups.limit(group),
                )
            });
        }
    }
}
