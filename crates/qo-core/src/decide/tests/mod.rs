//! Tests of what only the rule book shows. Everything else is a case of the conformance suite.

mod archive;
mod offer;
mod watch;

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
        let session = NewSession {
            id,
            worker: name("w"),
            queues: vec![],
            tasks,
            lease_ms: 60_000,
            permits: 9,
            owner: None,
        };
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
    let claim = Claim { max, max_claim_batch: None, prefetch: None };
    let renew = Exchange::renew(SessionId(Uuid::from_u128(session)), number);
    Command::Exchange(Exchange { claim, free_permits: 9, ..renew })
}

/// Where classes stood before is a cache: grants must not depend on it.
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
fn what_is_so_already_is_no_event() {
    let mut book = Book::new();
    let commands = [
        Command::SetLimit("t".parse().expect("a group"), 3),
        Command::PauseQueue(name("slow"), true),
        Command::Submit(vec![]),
    ];
    for command in &commands {
        book.decide(command.clone());
    }
    for command in commands {
        assert_eq!(book.decide(command.clone()).events, [], "{command:?}");
    }
    assert_eq!(book.decide(Command::PauseQueue(name("nobody"), false)).events, []);
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
