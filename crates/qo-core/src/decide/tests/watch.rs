//! Leases that are over by store time, for a process that has not watched them.

use super::{Book, claim, job, name};
use crate::*;
use uuid::Uuid;

/// Store time leaps by this much.
const HOUR_MS: u64 = 3_600_000;

/// A process that has watched every lease for so many milliseconds.
struct WatchedFor(u64);

impl Watch for WatchedFor {
    fn left_ms(&self, granted: Time, until: Time) -> u64 {
        until.ms_since(granted).saturating_sub(self.0)
    }
}

impl Book {
    fn decide_after(&mut self, watched_ms: u64, command: Command) -> Decision {
        decide_watching(&mut self.state, self.now, &command, &WatchedFor(watched_ms)).expect("decides")
    }
}

/// A session of 60 s that runs a job with a timeout of 5 s and holds a claim of 10 s, and a program with a lease of 30
/// s. Then store time leaps.
fn leapt() -> Book {
    let mut book = Book::new();
    book.open(1, &["t"]);
    book.decide(Command::SetLimit("t".parse().expect("a group"), 1));
    let jobs = vec![
        NewJob { timeout_ms: Some(5_000), ..job(1, "t") },
        NewJob { group: Some(name("free")), ..job(2, "t") },
    ];
    book.decide(Command::Submit(jobs));
    let prefetch = Some(Prefetch { buffer: 1, lease_ms: 10_000 });
    let wanted = Claim { max: 1, max_claim_batch: None, prefetch };
    let exchange = Exchange { claim: wanted, ..Exchange::renew(SessionId(Uuid::from_u128(1)), 1) };
    let Answer::Exchanged(reply) = book.decide(Command::Exchange(exchange)).answer else {
        panic!("exchanged")
    };
    assert_eq!((reply.claimed.len(), reply.prefetched.len()), (1, 1));
    book.decide(Command::AcquireSlots(program(1)));
    book.now = book.now.plus_ms(HOUR_MS);
    book
}

fn program(id: u128) -> SlotRequest {
    let group = "deploy".parse().expect("a group");
    SlotRequest { limit: Some(1), ..SlotRequest::new(LeaseId(Uuid::from_u128(id)), group, name("p"), 30_000) }
}

fn swept(decision: Decision) -> Swept {
    let Answer::Swept(swept) = decision.answer else { panic!("swept: {decision:?}") };
    swept
}

#[test]
fn a_lease_that_is_over_ends_only_when_it_was_watched_for_its_length() {
    let mut book = leapt();
    let nothing = book.decide_after(0, Command::Sweep);
    assert_eq!(nothing, Decision { events: Vec::new(), answer: Answer::Swept(Swept::default()) });
    // The claim, 10 s; the timeout and its grace, 15 s; the program, 30 s; the session, 60 s.
    assert_eq!(swept(book.decide_after(9_999, Command::Sweep)), Swept::default());
    assert_eq!(swept(book.decide_after(10_000, Command::Sweep)), Swept { claims: 1, ..Swept::default() });
    assert_eq!(swept(book.decide_after(14_999, Command::Sweep)), Swept::default());
    assert_eq!(swept(book.decide_after(15_000, Command::Sweep)), Swept { attempts: 1, ..Swept::default() });
    assert_eq!(swept(book.decide_after(29_999, Command::Sweep)), Swept::default());
    assert_eq!(swept(book.decide_after(30_000, Command::Sweep)), Swept { slots: 1, ..Swept::default() });
    assert_eq!(swept(book.decide_after(59_999, Command::Sweep)), Swept::default());
    assert_eq!(swept(book.decide_after(60_000, Command::Sweep)), Swept { sessions: 1, ..Swept::default() });
    assert_eq!(book.state.audit(), Vec::<String>::new());
}

#[test]
fn the_slots_of_a_spared_lease_stay_taken() {
    let mut book = leapt();
    book.decide(Command::Submit(vec![job(3, "t")]));
    book.open(2, &["t"]);
    let Answer::Exchanged(reply) = book.decide_after(0, claim(2, 1, 9)).answer else { panic!("exchanged") };
    assert_eq!(reply.claimed, Vec::new(), "the only slot belongs to the other session");
    assert_eq!(book.decide_after(0, Command::AcquireSlots(program(2))).answer, Answer::Acquired(None));
    // The next poll is due when the first spared lease, the claim, has been watched for its length.
    let (now, session) = (book.now, SessionId(Uuid::from_u128(2)));
    let wanted = Claim { max: 1, ..Claim::default() };
    let work = book.state.work_watching(now, session, wanted, &WatchedFor(4_000)).expect("a session");
    assert_eq!((work.now, work.next), (false, Some(now.plus_ms(6_000))));
}

#[test]
fn the_holder_of_a_spared_lease_may_renew_it_or_take_it_anew() {
    let mut book = leapt();
    let lease = LeaseId(Uuid::from_u128(1));
    let Answer::Acquired(Some(anew)) = book.decide_after(0, Command::AcquireSlots(program(1))).answer else {
        panic!("its own slot is free for it")
    };
    let extend = Command::ExtendSlots { lease, token: anew.token, lease_ms: 30_000 };
    book.decide_after(0, extend);
    // The session renews, so its watch begins anew.
    book.decide_after(0, claim(1, 2, 0));
    book.now = book.now.plus_ms(HOUR_MS);
    let late = swept(book.decide_after(59_999, Command::Sweep));
    assert_eq!((late.sessions, late.slots), (0, 1));
    assert_eq!(book.state.audit(), Vec::<String>::new());
}
