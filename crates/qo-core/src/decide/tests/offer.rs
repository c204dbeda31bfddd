//! Jobs that were offered: acknowledged before any process that holds the state saw them.

use super::*;

fn keyed(job: NewJob) -> NewJob {
    NewJob { key: Some(Key::parse("key", "k").expect("a key")), ..job }
}

#[test]
fn what_is_offered_is_admitted_as_if_it_were_submitted() {
    let mut book = Book::new();
    book.decide(Command::SetLimit("t".parse().expect("a group"), 2));
    let jobs = vec![job(1, "t"), NewJob { priority: -1, ..keyed(job(2, "t")) }, job(1, "t")];
    book.state.speculate();
    let submitted = book.decide(Command::Submit(jobs.clone()));
    book.state.take_back();
    assert_eq!(book.decide(Command::Admit(jobs)), submitted);
    assert_eq!(book.state.audit(), Vec::<String>::new());
}

#[test]
fn what_is_offered_is_admitted_though_it_can_never_run() {
    let mut book = Book::new();
    book.decide(Command::SetLimit("t".parse().expect("a group"), 2));
    let big = NewJob { cost: 3, ..job(1, "t") };
    assert!(decide(&mut book.state, book.now, &Command::Submit(vec![big.clone()])).is_err());
    let admitted = book.decide(Command::Admit(vec![big.clone()])).answer;
    assert_eq!(admitted, Answer::Submitted(vec![Ok(Submitted::Accepted(big.id))]));
    let reasons = book.state.explain(big.id).expect("it is there").reasons;
    let group = "t".parse().expect("a group");
    assert_eq!(reasons[0], Reason::CanNeverRun { group, cost: 3, limit: 2 });
}

#[test]
fn what_is_offered_twice_is_admitted_once() {
    let mut book = Book::new();
    let offer = Command::Admit(vec![job(1, "t"), job(2, "t")]);
    book.decide(offer.clone());
    let (before, again) = (book.state.picture(), book.decide(offer));
    let existing = [1, 2].map(|id| Ok(Submitted::Existing(JobId(Uuid::from_u128(id)))));
    assert_eq!(again, Decision { events: vec![], answer: Answer::Submitted(existing.to_vec()) });
    assert_eq!(book.state.picture(), before);
}

#[test]
fn an_offer_under_the_id_of_another_job_leaves_that_alone_and_says_so() {
    let mut book = Book::new();
    book.decide(Command::Submit(vec![job(1, "t")]));
    let Decision { events, answer } = book.decide(Command::Admit(vec![job(1, "other"), job(2, "t")]));
    assert_eq!(events.len(), 1, "the second one is accepted: {events:?}");
    let Answer::Submitted(admitted) = answer else { panic!("{answer:?}") };
    assert_eq!(admitted[0].as_ref().map_err(|error| error.kind()), Err(ErrorKind::Conflict));
    assert_eq!(admitted[1], Ok(Submitted::Accepted(JobId(Uuid::from_u128(2)))));
}

#[test]
fn a_job_that_needs_an_answer_cannot_be_offered() {
    let extra = |job: NewJob, group: &str| {
        let limits = [(group.parse().expect("a group"), 1)].into();
        NewJob { limits, ..job }
    };
    let own = Some(name("own"));
    let once = Some(Key::parse("idempotency_key", "once").expect("a key"));
    let cases = [
        ("limit", NewJob { limit: Some(3), ..job(1, "t") }),
        ("idempotency_key", NewJob { idempotency_key: once, ..job(1, "t") }),
        ("on_limit", NewJob { on_limit: OnLimit::Skip, ..job(1, "t") }),
        ("workflow", NewJob { workflow: Some(name("w")), ..job(1, "t") }),
        ("limits", extra(job(1, "t"), "gpu")),
        ("limits", extra(NewJob { group: own.clone(), ..job(1, "t") }, "own/k")),
        ("cost", NewJob { cost: 0, ..job(1, "t") }),
    ];
    for (field, job) in cases {
        assert!(!job.can_be_offered());
        let Answer::Submitted(mut admitted) = Book::new().decide(Command::Admit(vec![job])).answer else {
            panic!("an admission is answered like a submit")
        };
        let error = admitted.remove(0).expect_err("it needs an answer");
        assert_eq!(error.kind(), ErrorKind::Invalid);
        assert!(error.message().starts_with(&format!("{field}: ")), "{error}");
    }
    assert!(extra(NewJob { group: own, ..job(1, "t") }, "gpu").can_be_offered());
}
