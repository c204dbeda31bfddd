//! Starts and standalone slots: a request that can be granted is granted, and no other is.

use super::ledger::{AcquireVerdict, Fact, Ledger, StartVerdict};
use super::{Objections, Violation, Watch, read};
use crate::history::History;
use qo_core::{Error, ErrorKind, JobState, Result, SlotLease, Started};

/// Watches starts and the requests of programs.
#[derive(Debug, Default)]
pub struct Requests;

/// Starts and requests that were granted or refused wrongly.
pub fn check(history: &History) -> Vec<Violation> {
    read(history, &mut [&mut Requests])
}

impl Watch for Requests {
    fn fact(&mut self, _books: &Ledger, fact: &Fact<'_>, objections: &mut Objections) {
        match fact {
            Fact::Started(_, start, result, verdict) => {
                objections.unless(starts(result, *verdict), "start", || {
                    format!("{} with token {}: {result:?}, due was {verdict:?}", start.job, start.token)
                });
            }
            Fact::Acquired(request, answer, verdict) => {
                objections.unless(gets(answer, *verdict), "slots", || {
                    let (slots, group) = (request.slots, &request.group);
                    format!("{} asks for {slots} of {group}: {answer:?}, due was {verdict:?}", request.id)
                });
            }
            _ => {}
        }
    }
}

fn starts(result: &Result<Started>, verdict: StartVerdict) -> bool {
    let then = result.as_ref().ok().map(|started| (started.then, started.run.is_some()));
    match verdict {
        // `fence` checks that.
        StartVerdict::Stale => true,
        StartVerdict::Expires => then == Some((JobState::Expired, false)),
        StartVerdict::GivenBack(_) => then == Some((JobState::Pending, false)),
        StartVerdict::Runs => then == Some((JobState::Running, true)),
    }
}

fn gets(answer: &Result<Option<SlotLease>>, verdict: AcquireVerdict) -> bool {
    match (verdict, answer.as_ref().map_err(Error::kind)) {
        (AcquireVerdict::Same(_) | AcquireVerdict::Conflict, _) => true,
        (AcquireVerdict::Invalid, answer) => answer == Err(ErrorKind::Invalid),
        (AcquireVerdict::Granted, answer) => answer.is_ok_and(Option::is_some),
        (AcquireVerdict::Refused(_), answer) => answer.is_ok_and(Option::is_none),
    }
}
