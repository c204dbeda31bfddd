//! Bad input: wrong, empty, over-long, huge and contradictory values. A store must refuse them with a message and stay
//! as it was.

use super::{Views, beyond, call, look};
use crate::Fixture;
use proptest::collection::{btree_map, vec};
use proptest::option::of;
use proptest::prelude::*;
use qo_core::{
    Answer, Claim, Command, Configuration, Error, ErrorKind, Exchange, FenceToken, GroupRef, JobId, Prefetch,
    Schedule, Start,
};
use qo_core::{
    Json, Name, NewJob, NewSession, Note, OnLimit, Outcome, Progress, RetryPolicy, SessionId, Settle, Store,
};
use qo_core::{TaskOptions, Time, caps};
use std::collections::BTreeMap;
use uuid::Uuid;

/// Sends commands, most of them bad, to a store that has content: each gets an answer or an `Invalid` in the form
/// "field, value, rule"; a refused one changes nothing that a view shows.
pub async fn survives(fixture: &Fixture, commands: &[Command]) -> Result<(), String> {
    let store: &dyn Store = &*fixture.store;
    for command in something_to_lose() {
        call(store, command).await.map_err(|error| format!("the store is broken before: {error}"))?;
    }
    for command in commands {
        let before = all(store).await;
        match call(store, command.clone()).await {
            Ok(answer) => check_inner(&answer)?,
            Err(error) => {
                check_error(&error).map_err(|why| format!("{why}\ncommand: {}", shown(command)))?;
                if all(store).await != before {
                    return Err(format!("refused ({error}) and yet something changed: {}", shown(command)));
                }
            }
        }
    }
    Ok(())
}

/// A command without the megabytes that it may carry.
fn shown(command: &Command) -> String {
    let text = format!("{command:?}");
    text.chars().take(2_000).collect()
}

/// The jobs with ids that the commands here use.
async fn all(store: &dyn Store) -> Views {
    let jobs: Vec<JobId> = (0..8).map(|n| JobId(Uuid::from_u128(n))).collect();
    look(store, &jobs).await
}

fn check_inner(answer: &Answer) -> Result<(), String> {
    let errors: Vec<&Error> = match answer {
        Answer::Submitted(results) => results.iter().filter_map(|r| r.as_ref().err()).collect(),
        Answer::Cancelled(results) | Answer::Retried(results) => {
            results.iter().filter_map(|r| r.as_ref().err()).collect()
        }
        Answer::Exchanged(reply) => {
            let settled = reply.settled.iter().filter_map(|r| r.as_ref().err());
            settled.chain(reply.started.iter().filter_map(|r| r.as_ref().err())).collect()
        }
        Answer::Opened(_) | Answer::Swept(_) | Answer::Done | Answer::Changed(_) => Vec::new(),
        Answer::Acquired(_) | Answer::Extended(_) | Answer::Triggered(_) | Answer::Pushed(_) => Vec::new(),
    };
    errors.into_iter().try_for_each(check_error)
}

/// An error must be one of the caller's making, and an `Invalid` must name field, value and rule.
pub(super) fn check_error(error: &Error) -> Result<(), String> {
    match error.kind() {
        ErrorKind::Invalid => {
            let is_whole =
                |error: &Error| error.path().is_some() && error.value().is_some() && !error.rule().is_empty();
            let named = error.mistakes().iter().all(is_whole) && error.message().len() < 1_000;
            named.then_some(()).ok_or(format!("an Invalid without field, value or rule: {error}"))
        }
        ErrorKind::NotFound | ErrorKind::Conflict | ErrorKind::LimitReached | ErrorKind::Fenced => Ok(()),
        _ => Err(format!("bad input is not the store's fault: {error}")),
    }
}

pub(super) fn name(text: &str) -> Name {
    Name::parse("name", text).expect("a name")
}

fn session() -> NewSession {
    let id = SessionId(Uuid::from_u128(1));
    NewSession {
        id,
        worker: name("w"),
        queues: vec![],
        tasks: vec![name("mail")],
        lease_ms: 30_000,
        permits: 4,
        owner: None,
    }
}

/// Jobs, one of them running, one claimed, two steps of a workflow; a limit, a worker, a program, a schedule.
pub fn something_to_lose() -> Vec<Command> {
    let job = |n| NewJob::new(JobId(Uuid::from_u128(n)), name("mail"));
    let step = |n| NewJob { workflow: Some(name("import")), ..job(n) };
    let prefetch = Some(Prefetch { buffer: 1, lease_ms: 30_000 });
    let claim = Claim { max: 1, max_claim_batch: None, prefetch };
    let schedules = BTreeMap::from([(name("nightly"), Schedule::new("0 3 * * *", name("mail")))]);
    vec![
        Command::Configure(Configuration { schedules, ..Configuration::default() }),
        Command::Submit(vec![job(1), job(2), step(3), step(4)]),
        Command::AcquireSlots(beyond::program()),
        Command::SetLimit(GroupRef::Group(name("mail")), 3),
        Command::OpenSession(session()),
        Command::Exchange(Exchange { claim, ..Exchange::renew(SessionId(Uuid::from_u128(1)), 1) }),
    ]
}

/// Numbers around and far beyond every cap.
pub(super) fn number() -> impl Strategy<Value = u32> {
    let most = [caps::ATTEMPTS, caps::CLAIM, caps::LIMIT].map(|cap| cap + 1);
    let edges = vec![0, 1, 2, caps::LIMIT, most[0], most[1], most[2], u32::MAX];
    prop::sample::select(edges)
}

pub(super) fn millis() -> impl Strategy<Value = u64> {
    prop::sample::select(vec![0, 1, caps::LEASE_MAX_MS, caps::DURATION_MS, caps::DURATION_MS + 1, u64::MAX])
}

fn time() -> impl Strategy<Value = Time> {
    let edges = vec![i64::MIN, -1, 0, 1, caps::TIME_MS, caps::TIME_MS + 1, i64::MAX];
    prop::sample::select(edges).prop_map(Time::from_millis)
}

pub(super) fn group() -> impl Strategy<Value = GroupRef> {
    let texts = ["cluster", "queue:default", "mail", "mail/*", "mail/a", "other", "other/*", "other/a/b"];
    prop::sample::select(texts.map(|text| text.parse::<GroupRef>().expect("a group")).to_vec())
}

fn policy() -> impl Strategy<Value = RetryPolicy> {
    (millis(), number(), millis(), number()).prop_map(|(base_ms, factor_percent, max_ms, jitter_percent)| {
        RetryPolicy { base_ms, factor_percent, max_ms, jitter_percent }
    })
}

pub(super) fn json() -> impl Strategy<Value = Json> {
    prop_oneof![
        30 => Just(Json::null()),
        1 => Just(Json::parse("payload", &format!("\"{}\"", "x".repeat(caps::PAYLOAD_BYTES))).expect("JSON")),
    ]
}

fn many_groups() -> impl Strategy<Value = BTreeMap<GroupRef, u32>> {
    let many: BTreeMap<GroupRef, u32> =
        (0..13).map(|n| (GroupRef::Group(name(&format!("extra{n}"))), 1)).collect();
    prop_oneof![4 => btree_map(group(), number(), 0..3), 1 => Just(many)]
}

fn job() -> impl Strategy<Value = NewJob> {
    let numbers = (number(), number(), of(number()), any::<i32>());
    let times = (of(time()), of(time()), of(millis()), of(policy()));
    (0..8_u128, json(), numbers, times, many_groups(), any::<(bool, bool)>(), beyond::flow()).prop_map(
        |(id, payload, numbers, times, limits, (reject, clear_limit), (workflow, on_failure))| NewJob {
            workflow,
            on_failure,
            payload,
            max_attempts: numbers.0,
            cost: numbers.1,
            limit: numbers.2,
            priority: numbers.3,
            run_at: times.0,
            good_until: times.1,
            timeout_ms: times.2,
            retry: times.3,
            limits,
            clear_limit,
            on_limit: if reject { OnLimit::Reject } else { OnLimit::Wait },
            ..NewJob::new(JobId(Uuid::from_u128(id)), name("mail"))
        },
    )
}

/// A job with just one thing wrong, or none, so that each rule is reached.
fn nearly_good_job() -> impl Strategy<Value = NewJob> {
    (job(), 0..11_u8).prop_map(|(bad, field)| {
        let good = NewJob::new(bad.id, bad.task.clone());
        match field {
            0 => NewJob { max_attempts: bad.max_attempts, ..good },
            1 => NewJob { cost: bad.cost, ..good },
            2 => NewJob { limit: bad.limit, clear_limit: bad.clear_limit, on_limit: bad.on_limit, ..good },
            3 => NewJob { run_at: bad.run_at, ..good },
            4 => NewJob { good_until: bad.good_until, ..good },
            5 => NewJob { run_at: bad.run_at, good_until: bad.good_until, ..good },
            6 => NewJob { timeout_ms: bad.timeout_ms, ..good },
            7 => NewJob { retry: bad.retry, ..good },
            8 => NewJob { limits: bad.limits, ..good },
            9 => NewJob { workflow: bad.workflow, on_failure: bad.on_failure, ..good },
            _ => NewJob { payload: bad.payload, priority: bad.priority, ..good },
        }
    })
}

fn outcome() -> impl Strategy<Value = Outcome> {
    prop_oneof![
        json().prop_map(|output| Outcome::Succeed { output }),
        millis().prop_map(|delay_ms| Outcome::Retry {
            error: "e".repeat(caps::ERROR_BYTES + 1).into(),
            delay_ms
        }),
        millis().prop_map(|delay_ms| Outcome::Snooze { delay_ms }),
        Just(Outcome::Release),
    ]
}

fn exchange() -> impl Strategy<Value = Exchange> {
    let settle = (0..8_u128, prop::sample::select(vec![0, 1, 2, u64::MAX]), outcome()).prop_map(
        |(job, token, outcome)| Settle {
            job: JobId(Uuid::from_u128(job)),
            token: FenceToken(token),
            outcome,
        },
    );
    let numbers = prop::sample::select(vec![0, 1, 2, 3, u64::MAX]);
    let claim = (number(), of(number()), of(beyond::prefetch()), vec(beyond::start(), 0..3));
    let reports = prop_oneof![2 => Just(vec![]), 1 => vec(beyond::report(), 0..3)];
    let drains = (any::<bool>(), of(millis()));
    (0..3_u128, numbers, vec(settle, 0..3), claim, number(), drains, reports).prop_map(
        |(session, number, settles, claim, free_permits, (draining, idle_ms), progress)| {
            let (max, max_claim_batch, prefetch, starts) = claim;
            Exchange {
                session: SessionId(Uuid::from_u128(session)),
                number,
                settles,
                starts,
                progress,
                claim: Claim { max, max_claim_batch, prefetch },
                free_permits,
                draining,
                memory_percent: u8::try_from(free_permits % 300).ok(),
                idle_ms,
            }
        },
    )
}

/// Commands with values at and beyond the caps.
pub fn bad_commands() -> impl Strategy<Value = Command> {
    let registration = (of(number()), of(millis()), of(policy())).prop_map(|(limit, timeout_ms, retry)| {
        TaskOptions { max_concurrent: limit, timeout_ms, retry, ..TaskOptions::new(name("mail")) }
    });
    let limited = (btree_map(group(), number(), 0..3), number()).prop_map(|(limits, priority)| {
        let queue_priorities = BTreeMap::from([(name("default"), priority)]);
        Configuration { limits, queue_priorities, ..Configuration::default() }
    });
    let configuration = prop_oneof![limited, beyond::configuration()];
    let opening = (0..3_u128, millis(), number(), 0..2_usize).prop_map(|(id, lease_ms, permits, tasks)| {
        let id = SessionId(Uuid::from_u128(id));
        NewSession { id, lease_ms, permits, tasks: vec![name("mail"); tasks], ..session() }
    });
    prop_oneof![
        6 => vec(nearly_good_job(), 0..3).prop_map(Command::Submit),
        2 => vec(job(), 0..3).prop_map(Command::Submit),
        1 => too_much(),
        1 => vec(0..9_u128, 0..3)
            .prop_map(|ids| Command::Cancel(ids.into_iter().map(|id| JobId(Uuid::from_u128(id))).collect())),
        2 => vec(registration, 0..3).prop_map(Command::Register),
        2 => configuration.prop_map(Command::Configure),
        2 => (group(), number()).prop_map(|(group, limit)| Command::SetLimit(group, limit)),
        1 => group().prop_map(Command::UnsetLimit),
        2 => opening.prop_map(Command::OpenSession),
        5 => exchange().prop_map(Command::Exchange),
        6 => beyond::commands(),
        1 => (group(), any::<u64>()).prop_map(|(group, slot)| Command::ReleaseSlot(group, FenceToken(slot))),
    ]
}

/// Calls that are too long or too heavy as a whole.
fn too_much() -> impl Strategy<Value = Command> {
    (0..9_u8).prop_map(|which| {
        let small = NewJob::new(JobId(Uuid::from_u128(7)), name("mail"));
        let payload = Json::parse("payload", &format!("\"{}\"", "x".repeat(1_000_000))).expect("JSON");
        match which {
            0 => Command::Cancel(vec![JobId(Uuid::nil()); caps::CANCELS + 1]),
            1 => Command::Submit(vec![small; caps::SUBMIT_JOBS + 1]),
            2 => Command::Submit(vec![NewJob { payload, ..small }; 9]),
            3 => {
                Command::OpenSession(NewSession { tasks: vec![name("mail"); caps::SERVED + 1], ..session() })
            }
            4 => Command::Retry(vec![JobId(Uuid::nil()); caps::CANCELS + 1]),
            5 => Command::Exchange(Exchange {
                starts: vec![Start { job: small.id, token: FenceToken(1) }; caps::CLAIM as usize + 1],
                ..Exchange::renew(SessionId(Uuid::from_u128(1)), 2)
            }),
            6 => {
                let schedule = Schedule::new("* * * * *", name("mail"));
                let schedules = (0..=caps::CONFIGURED).map(|n| (name(&format!("s{n}")), schedule.clone()));
                let schedules = schedules.collect();
                Command::Configure(Configuration { schedules, ..Configuration::default() })
            }
            7 => {
                let (job, token) = (small.id, FenceToken(1));
                let report = Progress { job, token, percent: 1, note: Note::default() };
                let progress = vec![report; caps::PROGRESS + 1];
                Command::Exchange(Exchange { progress, ..Exchange::renew(SessionId(Uuid::from_u128(1)), 2) })
            }
            _ => Command::Register(vec![TaskOptions::new(name("mail")); caps::SERVED + 1]),
        }
    })
}
