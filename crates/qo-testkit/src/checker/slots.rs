//! G1 slots: in the store's order no slot is taken that would exceed the limit in force.

use super::ledger::{Fact, Ledger};
use super::{Objections, Violation, Watch, read};
use crate::history::History;

/// Watches every grant, start and program.
#[derive(Debug, Default)]
pub struct Slots;

/// Grants that exceeded a limit.
pub fn check(history: &History) -> Vec<Violation> {
    read(history, &mut [&mut Slots])
}

impl Watch for Slots {
    fn fact(&mut self, books: &Ledger, fact: &Fact<'_>, objections: &mut Objections) {
        let (token, needs) = match fact {
            Fact::Granted(grant) => {
                let job = grant.job.map(|job| &books.jobs[job]).filter(|job| job.holding.is_none());
                (grant.token, job.map_or(&[] as &[_], |job| &job.needs))
            }
            Fact::SlotsTaken(_, token, needs) => (*token, *needs),
            _ => return,
        };
        for &(group, need) in needs {
            objections.unless(books.groups.has_room(group, need), "G1", || {
                format!(
                    "token {token} took {need} of {} where {} of {:?} were taken",
                    books.groups.name(group),
                    books.groups.used(group),
                    books.groups.limit(group),
                )
            });
        }
    }
}
