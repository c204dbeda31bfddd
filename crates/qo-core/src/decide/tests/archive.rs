//! Jobs that leave the state because the store keeps them elsewhere.

use super::*;

/// A book in which these jobs, all of task `t`, have run and succeeded, one by one.
fn done(jobs: Vec<NewJob>) -> Book {
    let mut book = Book::new();
    book.open(1, &["t"]);
    for (number, job) in (1..).zip(jobs) {
        book.now = book.now.plus_ms(1);
        let id = job.id;
        book.decide(Command::Submit(vec![job]));
        let Answer::Exchanged(reply) = book.decide(claim(1, 2 * number - 1, 1)).answer else {
            panic!("an exchange is answered as one")
        };
        let (token, outcome) = (reply.claimed[0].token, Outcome::Succeed { output: Json::null() });
        let renew = Exchange::renew(SessionId(Uuid::from_u128(1)), 2 * number);
        let settles = vec![Settle { job: id, token, outcome }];
        book.decide(Command::Exchange(Exchange { settles, ..renew }));
    }
    book
}

fn ids(rows: &[JobSnapshot]) -> Vec<u128> {
    rows.iter().map(|row| row.id.0.as_u128()).collect()
}

fn archive(jobs: &[u128]) -> Command {
    Command::Archive { jobs: jobs.iter().map(|&id| JobId(Uuid::from_u128(id))).collect() }
}

#[test]
fn the_oldest_that_succeeded_may_be_archived_beyond_those_to_keep() {
    let book = done((1..=5).map(|id| job(10 - id, "t")).collect());
    assert_eq!(ids(&book.state.archivable(2, 100)), [9, 8, 7], "in the order in which they finished");
    assert_eq!(ids(&book.state.archivable(2, 1)), [9]);
    assert_eq!(ids(&book.state.archivable(5, 100)), [] as [u128; 0]);
    assert_eq!(ids(&book.state.archivable(0, 0)), [] as [u128; 0]);
}

#[test]
fn keys_and_steps_stay_and_so_does_what_did_not_succeed() {
    let once = Some(Key::parse("idempotency_key", "once").expect("a key"));
    let mut book = done(vec![
        NewJob { idempotency_key: once, ..job(1, "t") },
        NewJob { workflow: Some(name("w")), ..job(2, "t") },
        job(3, "t"),
    ]);
    book.decide(Command::Submit(vec![job(4, "t"), job(5, "t")]));
    book.decide(Command::Cancel(vec![JobId(Uuid::from_u128(4))]));
    assert_eq!(ids(&book.state.archivable(0, 100)), [3]);
    let before = book.state.picture();
    let nothing = book.decide(archive(&[1, 2, 4, 5, 6]));
    assert_eq!(nothing, Decision { events: vec![], answer: Answer::Done });
    assert_eq!(book.state.picture(), before);
}

#[test]
fn an_archived_job_leaves_as_if_it_were_forgotten_and_once() {
    let mut book = done(vec![job(1, "t"), job(2, "t")]);
    let id = JobId(Uuid::from_u128(1));
    book.state.speculate();
    let archived = book.decide(archive(&[1, 1]));
    assert_eq!(archived.events, [Event::Archived(id)]);
    assert_eq!(book.state.job(id).map_err(|error| error.kind()), Err(ErrorKind::NotFound));
    assert_eq!((book.state.has_job(id), book.state.audit()), (false, vec![]));
    book.state.take_back();
    assert!(book.state.has_job(id));
    assert_eq!((book.decide(archive(&[1, 1])), book.state.audit()), (archived, vec![]));
    assert_eq!(ids(&book.state.archivable(0, 100)), [2]);
}

#[test]
#[should_panic(expected = "G3")]
fn a_job_that_is_archived_in_a_log_before_it_succeeded_is_noticed() {
    let mut book = Book::new();
    book.decide(Command::Submit(vec![job(1, "t")]));
    book.decide(Command::Cancel(vec![JobId(Uuid::from_u128(1))]));
    book.state.evolve(&Event::Archived(JobId(Uuid::from_u128(1))));
}
