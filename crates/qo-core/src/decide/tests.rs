//! What only the rule book itself can show; everything else is a case of the conformance suite.

use crate::*;
use uuid::Uuid;

struct Book {
    state: State,
    now: Time,
}

impl Book {
    fn new() -> Self {
        Self { state: State::new(), now: Time::from_millis(1_800_000_000_000) }
    }

    fn decide(&mut self, command: Command) -> Decision {
        decide(&mut self.state, self.now, &command).expect("decides")
    }

    fn open(&mut self, id: u128, tasks: &[&str]) {
        let tasks = tasks.iter().map(|task| name(task)).collect();
        let id = SessionId(Uuid::from_u128(id));
        let session =
            NewSession { id, worker: name("w"), queues: vec![], tasks, lease_ms: 60_000, permits: 9 };
        self.decide(Command::OpenSession(session));
    }
}

fn name(text: &str) -> Name {
    Name::parse("name", text).expect("a name")
}

fn job(number: u128, task: &str) -> NewJob {
    NewJob::new(JobId(Uuid::from_u128(number)), name(task))
}

fn claim(session: u128, number: u64, max: u32) -> Command {
    let claim = Claim { max, max_per_queue: None, prefetch: None };
    let renew = Exchange::renew(SessionId(Uuid::from_u128(session)), number);
    Command::Exchange(Exchange { claim, free_permits: 9, ..renew })
}

/// Where classes stood before is a cache: it must not show in what is granted.
#[test]
fn a_claim_decides_the_same_after_it_was_taken_back() {
    let mut book = Book::new();
    for (group, limit) in [("y", 2), ("x", 1), ("api/k2", 2)] {
        book.decide(Command::SetLimit(group.parse().expect("a group"), limit));
    }
    book.open(1, &["mine"]);
    book.open(2, &["other"]);
    let keyed = |job: NewJob| NewJob {
        group: Some(name("api")),
        key: Some(Key::parse("key", "k2").expect("a key")),
        ..job
    };
    let with = |mut job: NewJob, group: &str, slots| {
        job.limits.insert(group.parse().expect("a group"), slots);
        job
    };
    book.decide(Command::Submit(vec![
        with(job(1, "other"), "y", 2),
        with(NewJob { cost: 2, ..keyed(job(2, "other")) }, "x", 1),
        with(job(3, "mine"), "y", 1),
        with(keyed(job(4, "mine")), "y", 1),
        with(job(5, "mine"), "x", 1),
        keyed(job(6, "mine")),
    ]));
    book.state.speculate();
    let first = book.decide(claim(1, 1, 10));
    book.state.take_back();
    assert_eq!(book.decide(claim(1, 1, 10)), first);
}

#[test]
fn a_look_at_the_present_leaves_no_trace() {
    let mut book = Book::new();
    book.decide(Command::Submit(vec![NewJob { run_at: Some(book.now.plus_ms(10)), ..job(1, "t") }]));
    let before = book.state.picture();
    let due = book.state.at(book.now.plus_ms(10), |state| state.queues()[0].due);
    assert_eq!((due, book.state.picture()), (1, before));
    assert_eq!(book.state.audit(), Vec::<String>::new());
}

#[test]
fn a_reader_of_a_log_keeps_nothing_of_jobs_that_are_forgotten() {
    let (mut book, mut replica) = (Book::new(), State::new());
    let empty = format!("{replica:?}").len();
    for round in 0..5 {
        let jobs = (0..100).map(|i| {
            let key = Some(Key::parse("key", &format!("{round}-{i}")).expect("a key"));
            NewJob {
                key,
                queue: name(&format!("host-{round}-{i}")),
                ..job(round * 1_000 + i, &format!("task-{i}"))
            }
        });
        let jobs: Vec<_> = jobs.collect();
        let ids = jobs.iter().map(|job| job.id).collect();
        for command in [Command::Submit(jobs), Command::Cancel(ids)] {
            book.decide(command).events.iter().for_each(|event| replica.evolve(event));
        }
        book.now = book.now.plus_ms(caps::RETAIN_MS);
        book.decide(Command::Sweep).events.iter().for_each(|event| replica.evolve(event));
    }
    assert_eq!(replica.picture(), book.state.picture());
    assert!(format!("{replica:?}").len() < empty + 1_000, "rows of forgotten jobs are still there");
}

#[test]
fn a_sweep_that_finds_nothing_is_no_event() {
    let mut book = Book::new();
    book.open(1, &["t"]);
    book.now = book.now.plus_ms(10);
    assert_eq!(book.decide(Command::Sweep).events, []);
}

#[test]
fn a_clock_at_the_end_of_time_is_refused() {
    for wild in [i64::MAX, i64::MIN, -1, caps::TIME_MS + 1] {
        let refused = decide(&mut State::new(), Time::from_millis(wild), &Command::Sweep);
        assert_eq!(refused.map_err(|error| error.kind()).err(), Some(ErrorKind::Internal), "{wild}");
    }
}

#[test]
#[should_panic(expected = "G9")]
fn time_that_falls_in_a_log_is_noticed() {
    let mut book = Book::new();
    book.open(1, &["t"]);
    book.state.evolve(&Event::Ticked(Time::from_millis(1)));
}

#[test]
#[should_panic(expected = "G3")]
fn a_job_that_is_accepted_twice_in_a_log_is_noticed() {
    let mut book = Book::new();
    let events = book.decide(Command::Submit(vec![job(1, "t")])).events;
    book.state.evolve(events.last().expect("it was accepted"));
}

#[test]
#[should_panic(expected = "G1")]
fn a_grant_over_the_limit_in_a_log_is_noticed() {
    let mut book = Book::new();
    book.open(1, &["t"]);
    book.decide(Command::Submit(vec![job(1, "t")]));
    book.decide(Command::SetLimit("t".parse().expect("a group"), 0));
    let session = SessionId(Uuid::from_u128(1));
    book.state.evolve(&Event::Started {
        job: JobId(Uuid::from_u128(1)),
        session,
        token: FenceToken(1),
        timeout_at: None,
    });
}

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
