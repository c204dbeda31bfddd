//! `on_limit` (contract §4): counted in the same step as the insert, so nothing is over-admitted and nothing
//! is refused that had room.

use super::ledger::{Fact, Ledger};
use super::{Objections, Violation, Watch, read};
use crate::history::History;
use qo_core::{ErrorKind, OnLimit, Submitted};

/// Watches submits that may be refused.
#[derive(Debug, Default)]
pub struct Admission;

/// Submits that were admitted or refused wrongly.
pub fn check(history: &History) -> Vec<Violation> {
    read(history, &mut [&mut Admission])
}

impl Watch for Admission {
    fn fact(&mut self, books: &Ledger, fact: &Fact<'_>, objections: &mut Objections) {
        let Fact::Submitted(job, result) = fact else { return };
        let refused = match result {
            Ok(Submitted::Accepted(_)) => false,
            Ok(Submitted::Skipped) => true,
            Err(error) if error.kind() == ErrorKind::LimitReached => true,
            _ => return,
        };
        if job.on_limit == OnLimit::Wait {
            return objections
                .unless(!refused, "on_limit", || format!("{} wanted to wait: {result:?}", job.id));
        }
        let taken = books.first_limited(job).is_some_and(|(live, need, limit)| live + need > limit);
        objections.unless(refused == taken, "on_limit", || {
            format!("{}: {result:?} where (live, need, limit) is {:?}", job.id, books.first_limited(job))
        });
    }
}
