//! G2 fence: a stale token changes nothing, ever.
//!
//! Tokens grow with every grant. A settle is accepted from the owner alone. A number that was answered before gets the
//! same answer again. The audit right after a refusal compares the store's views with the ledger
//! ([`views`](super::views)), and so shows that a refused settle changed nothing.
//!
//! Of two concurrent calls one may draw its tokens first and come second in the store's order. Even then no token comes
//! twice, and the tokens of one job, and of one group of one slot, grow: a claim waits for the one before it.

use super::ledger::{AcquireVerdict, Fact, GroupIndex, Ledger, StartVerdict, Verdict};
use super::{Objections, Violation, Watch, read};
use crate::history::{Actor, Entry, History, What};
use qo_core::SlotLease;
use qo_core::{Answer, Command, Error, ErrorKind, Exchange, FenceToken, JobState, Result, SessionId, Settle};
use std::collections::{HashMap, HashSet};

/// Watches tokens, settles and numbers.
#[derive(Debug, Default)]
pub struct Fence {
    newest: FenceToken,
    /// The newest of each group.
    of_group: HashMap<GroupIndex, FenceToken>,
    drawn: HashSet<FenceToken>,
}

/// Stale tokens that changed something, and owners that were refused.
pub fn check(history: &History) -> Vec<Violation> {
    read(history, &mut [&mut Fence::default()])
}

impl Watch for Fence {
    fn fact(&mut self, books: &Ledger, fact: &Fact<'_>, objections: &mut Objections) {
        match fact {
            Fact::Granted(grant) => {
                let needs = grant.job.map_or(&[] as &[_], |job| &books.jobs[job].needs);
                self.grows(books, grant.token, grant.job, needs, objections);
            }
            Fact::Prefetched(_, prefetched, job) => {
                self.grows(books, prefetched.job.token, *job, &[], objections);
            }
            Fact::SlotsTaken(_, token, needs) => self.grows(books, *token, None, needs, objections),
            Fact::Settled(session, settle, result, verdict) => {
                objections.unless(fits(*session, result, *verdict), "G2", || told(settle, result, *verdict));
            }
            Fact::Started(session, start, result, verdict) => {
                let fenced = result.as_ref().is_err_and(|error| error.kind() == ErrorKind::Fenced);
                objections.unless(fenced == (*verdict == StartVerdict::Stale), "G2", || {
                    let (job, token) = (start.job, start.token);
                    format!("{session} starts {job} with token {token}: {result:?}, due was {verdict:?}")
                });
            }
            Fact::Acquired(request, answer, verdict) => {
                objections.unless(fits_request(answer, *verdict), "G2", || {
                    format!(
                        "{} asks for slots of {}: {answer:?}, due was {verdict:?}",
                        request.id, request.group
                    )
                });
            }
            Fact::Held(lease, token, answer, due) => {
                objections.unless(fits_lease(answer, *due), "G2", || {
                    format!("lease {lease} with token {token}: {answer:?}, due was {due:?}")
                });
            }
            Fact::Repeated(exchange, same) => objections.unless(*same, "G2", || {
                format!("number {} of {} was answered differently again", exchange.number, exchange.session)
            }),
            Fact::Unfenced(exchange) => objections.add(
                "G2",
                format!(
                    "number {} of {} was answered, but is not the next one",
                    exchange.number, exchange.session
                ),
            ),
            Fact::Released(group, slot, answer, held) => {
                let fits = match answer.as_ref().map_err(Error::kind) {
                    Ok(_) => *held,
                    Err(kind) => !held && kind == ErrorKind::NotFound,
                };
                objections.unless(fits, "G2", || {
                    format!("releasing slot {slot} of {group}, held: {held}: {answer:?}")
                });
            }
            _ => {}
        }
    }

    fn entry(&mut self, books: &Ledger, entry: &Entry, objections: &mut Objections) {
        match (entry.actor, &entry.what) {
            (_, What::Applied(command, answer)) => {
                if let (Command::Exchange(exchange), Err(error)) = (&**command, &**answer) {
                    check_refusal(books, exchange, error, objections);
                }
            }
            (Actor::Worker(_), What::Heard(command, reply)) => {
                // A simulated worker numbers its exchanges correctly, so the store must never refuse a number.
                if let (Command::Exchange(exchange), Err(error)) = (&**command, &**reply)
                    && matches!(error.kind(), ErrorKind::Conflict | ErrorKind::Invalid)
                {
                    objections
                        .add("G2", format!("number {}, the next one, was refused: {error}", exchange.number));
                }
            }
            _ => {}
        }
    }
}

impl Fence {
    fn grows(
        &mut self,
        books: &Ledger,
        token: FenceToken,
        job: Option<usize>,
        needs: &[(GroupIndex, u32)],
        objections: &mut Objections,
    ) {
        if books.concurrent {
            return self.grows_where_they_met(books, token, job, needs, objections);
        }
        let newest = self.newest;
        objections.unless(newest < token, "G2", || format!("token {token} came after token {newest}"));
        self.newest = newest.max(token);
    }

    /// The token is new, and newer than those drawn for the same job and for groups of one slot.
    fn grows_where_they_met(
        &mut self,
        books: &Ledger,
        token: FenceToken,
        job: Option<usize>,
        needs: &[(GroupIndex, u32)],
        objections: &mut Objections,
    ) {
        objections.unless(self.drawn.insert(token), "G2", || format!("token {token} came twice"));
        if let Some(job) = job.map(|job| &books.jobs[job]) {
            objections.unless(job.newest < Some(token), "G2", || {
                format!("{} was granted as token {token} after {:?}", job.new.id, job.newest)
            });
        }
        for &(group, _) in needs {
            let newest = self.of_group.entry(group).or_default();
            objections.unless(*newest < token || books.groups.limit(group) != Some(1), "G2", || {
                format!("token {token} came after token {newest} in {}", books.groups.name(group))
            });
            *newest = token.max(*newest);
        }
    }
}

/// Whether an answer to a request for slots is about the right lease. G1 and the [slot requests](super::requests) check
/// that free slots are granted, and no others.
fn fits_request(answer: &Result<Option<SlotLease>>, verdict: AcquireVerdict) -> bool {
    match (verdict, answer.as_ref().map_err(Error::kind)) {
        (AcquireVerdict::Same(due), Ok(lease)) => *lease == Some(due),
        (AcquireVerdict::Conflict, answer) => answer == Err(ErrorKind::Conflict),
        (AcquireVerdict::Same(_), Err(_)) => false,
        (_, Err(kind)) => kind != ErrorKind::Conflict && kind != ErrorKind::Fenced,
        (_, Ok(_)) => true,
    }
}

fn fits_lease(answer: &Result<Answer>, due: Option<Option<SlotLease>>) -> bool {
    match (answer.as_ref().map_err(Error::kind), due) {
        (Ok(Answer::Extended(lease)), Some(due)) => Some(*lease) == due,
        (Ok(_), Some(due)) => due.is_none(),
        (Ok(_), None) | (Err(_), Some(_)) => false,
        (Err(kind), None) => kind == ErrorKind::Fenced,
    }
}

/// A session lives until an event ends it, however late it renews (contract §5); then it is fenced.
fn check_refusal(books: &Ledger, exchange: &Exchange, error: &Error, objections: &mut Objections) {
    let live = books.sessions.get(&exchange.session);
    let due = match live {
        None => ErrorKind::Fenced,
        Some(session) if exchange.number < session.number => ErrorKind::Conflict,
        Some(session) if exchange.number > session.number + 1 => ErrorKind::Invalid,
        Some(_) => return objections.add("G2", format!("a live session was refused: {error}")),
    };
    objections.unless(error.kind() == due, "G2", || {
        format!("number {} was refused with {error}, due was {due}", exchange.number)
    });
}

fn fits(session: SessionId, result: &Result<JobState>, verdict: Verdict) -> bool {
    match (verdict, result) {
        (Verdict::Owner(then) | Verdict::GivesBack(then), Ok(state)) => then == *state,
        (Verdict::NotStarted, Err(error)) => error.kind() == ErrorKind::Invalid,
        (Verdict::Again(recorded, _), Ok(state)) => recorded == *state,
        // The contract leaves open whether another session of the same worker may ask what an old token settled.
        (Verdict::Again(_, by), Err(error)) => by != session && error.kind() == ErrorKind::Fenced,
        (Verdict::Stale, Err(error)) => error.kind() == ErrorKind::Fenced,
        (Verdict::Owner(_) | Verdict::GivesBack(_), Err(_)) => false,
        (Verdict::Stale | Verdict::NotStarted, Ok(_)) => false,
    }
}

fn told(settle: &Settle, result: &Result<JobState>, verdict: Verdict) -> String {
    format!("settling {} with token {}: {result:?}, due was {verdict:?}", settle.job, settle.token)
}
