//! Histories made by hand: commands and answers, right or wrong, that no store ever gave.

use futures::executor::block_on;
use qo_core::{
    Answer, Claim, ClaimedJob, Command, Error, ErrorKind, Exchange, ExchangeReply, FenceToken, Granted,
    GroupRef,
};
use qo_core::{GroupDetail, Store, Submitted, Time};
use qo_core::{JobId, JobState, Json, LeaseId, Name, NewJob, NewSession, OpenedSession, Outcome, Prefetch};
use qo_core::{
    PrefetchedJob, Result, RetryPolicy, SessionId, Settle, SlotLease, SlotRequest, Start, Started, Stop,
};
use qo_testkit::checker::Violation;
use qo_testkit::history::{Actor, Audit, Entry, History, What};
use qo_testkit::{Fixtures, Flaw, START, ToyFixtures};
use std::collections::BTreeMap;
use std::sync::Arc;
use uuid::Uuid;

pub const ANNA: SessionId = SessionId(Uuid::from_u128(100));
pub const BERT: SessionId = SessionId(Uuid::from_u128(200));
pub const LEASE_MS: u64 = 10_000;
pub const BOUND_MS: u64 = 12_000;
pub const NO_OBJECTION: [&str; 0] = [];

pub fn name(text: &str) -> Name {
    Name::parse("name", text).expect("a name")
}

pub fn group(text: &str) -> GroupRef {
    text.parse().expect("a group")
}

/// The number of a job.
pub fn number(job: &NewJob) -> u128 {
    job.id.0.as_u128()
}

pub fn id(number: u128) -> JobId {
    JobId(Uuid::from_u128(number))
}

pub fn job(number: u128) -> NewJob {
    NewJob::new(id(number), name("email"))
}

/// A step of the workflow `flow`.
pub fn step(number: u128) -> NewJob {
    NewJob { workflow: Some(name("flow")), ..job(number) }
}

pub fn refused<T>(kind: ErrorKind) -> Result<T> {
    Err(Error::new(kind, "so it is told"))
}

pub fn names(violations: &[Violation]) -> Vec<&str> {
    violations.iter().map(|violation| violation.guarantee).collect()
}

/// The content of one exchange. The test chooses tokens and answers freely.
#[derive(Default)]
pub struct Talk {
    pub settles: Vec<(Settle, Result<JobState>)>,
    pub starts: Vec<(Start, Result<Started>)>,
    pub claimed: Vec<(u128, u64)>,
    pub prefetched: Vec<(u128, u64)>,
    pub stop: Vec<Stop>,
    pub draining: bool,
}

impl Talk {
    /// These jobs are granted, under these tokens.
    pub fn claims(claimed: &[(u128, u64)]) -> Self {
        Self { claimed: claimed.to_vec(), ..Self::default() }
    }

    /// These jobs are claimed ahead of time, under these tokens.
    pub fn prefetches(prefetched: &[(u128, u64)]) -> Self {
        Self { prefetched: prefetched.to_vec(), ..Self::default() }
    }

    /// A claimed job starts under a new token.
    pub fn starts(job: u128, claim: u64, token: u64) -> Self {
        let run = Granted { token: FenceToken(token), timeout_ms: None, retry: RetryPolicy::default() };
        Self::start(job, claim, Ok(Started { then: JobState::Running, run: Some(run) }))
    }

    /// A claimed job is to start, with this result.
    pub fn start(job: u128, claim: u64, result: Result<Started>) -> Self {
        let start = Start { job: id(job), token: FenceToken(claim) };
        Self { starts: vec![(start, result)], ..Self::default() }
    }

    /// A job is settled, and the answer is this state.
    pub fn settles(job: u128, token: u64, outcome: Outcome, result: Result<JobState>) -> Self {
        let settle = Settle { job: id(job), token: FenceToken(token), outcome };
        Self { settles: vec![(settle, result)], ..Self::default() }
    }

    /// A job succeeds.
    pub fn succeeds(job: u128, token: u64) -> Self {
        Self::settles(job, token, Outcome::Succeed { output: Json::null() }, Ok(JobState::Succeeded))
    }

    /// A job fails.
    pub fn fails(job: u128, token: u64) -> Self {
        Self::settles(job, token, Outcome::Fail { error: "no".into() }, Ok(JobState::Failed))
    }
}

pub struct Fable {
    history: History,
    now: Time,
    jobs: BTreeMap<JobId, NewJob>,
    numbers: BTreeMap<SessionId, u64>,
}

impl Fable {
    /// Two workers, Anna and Bert, with four permits each.
    pub fn new() -> Self {
        let mut fable =
            Self { history: History::default(), now: START, jobs: BTreeMap::new(), numbers: BTreeMap::new() };
        for id in [ANNA, BERT] {
            let (worker, tasks) = (name("host"), vec![name("email"), name("report")]);
            let session = NewSession {
                id,
                worker,
                queues: Vec::new(),
                tasks,
                lease_ms: LEASE_MS,
                permits: 4,
                owner: None,
            };
            let opened = OpenedSession { now: START, lease_until: START.plus_ms(LEASE_MS) };
            fable.applied(Command::OpenSession(session), Ok(Answer::Opened(opened)));
        }
        fable
    }

    pub fn now(&self) -> Time {
        self.now
    }

    pub fn wait(&mut self, ms: u64) {
        self.now = self.now.plus_ms(ms);
    }

    /// The next calls read the clock this long ago.
    pub fn set_back(&mut self, ms: i64) {
        self.now = Time::from_millis(self.now.as_millis() - ms);
    }

    pub fn write(&mut self, what: What) {
        self.history.entries.push(Entry { at: self.now, actor: Actor::Worker(0), what });
    }

    pub fn applied(&mut self, command: Command, answer: Result<Answer>) {
        self.write(What::Applied(Arc::new(command), Arc::new(answer)));
    }

    /// Applied, and acknowledged.
    pub fn done(&mut self, command: Command) {
        self.applied(command.clone(), Ok(Answer::Done));
        self.write(What::Heard(Arc::new(command), Arc::new(Ok(Answer::Done))));
    }

    pub fn audit(&mut self, audit: Audit) {
        self.write(What::Audited(Box::new(audit)));
    }

    pub fn heal(&mut self) {
        self.write(What::Healed { bound_ms: BOUND_MS });
    }

    /// A job that no client submits, such as a tick's.
    pub fn knows(&mut self, job: &NewJob) {
        self.jobs.insert(job.id, job.clone());
    }

    pub fn submit(&mut self, jobs: &[NewJob]) {
        self.jobs.extend(jobs.iter().map(|job| (job.id, job.clone())));
        let results = jobs.iter().map(|job| Ok(Submitted::Accepted(job.id))).collect();
        self.applied(Command::Submit(jobs.to_vec()), Ok(Answer::Submitted(results)));
    }

    pub fn exchange(&mut self, session: SessionId, talk: Talk) {
        let number = self.numbers.entry(session).or_default();
        *number += 1;
        let (settles, settled) = talk.settles.into_iter().unzip();
        let (starts, started) = talk.starts.into_iter().unzip();
        let prefetch = (!talk.prefetched.is_empty()).then_some(Prefetch { buffer: 9, lease_ms: LEASE_MS });
        let claim = Claim { max: talk.claimed.len() as u32, max_claim_batch: None, prefetch };
        let exchange =
            Exchange { settles, starts, claim, draining: talk.draining, ..Exchange::renew(session, *number) };
        let number = *number;
        let prefetched = talk.prefetched.iter().map(|&(job, token)| PrefetchedJob {
            job: self.claimed(job, token),
            claim_until: self.now.plus_ms(LEASE_MS),
        });
        let reply = ExchangeReply {
            number,
            settled,
            started,
            claimed: talk.claimed.iter().map(|&(job, token)| self.claimed(job, token)).collect(),
            prefetched: prefetched.collect(),
            stop: talk.stop,
            now: self.now,
            lease_until: self.now.plus_ms(LEASE_MS),
        };
        self.applied(Command::Exchange(exchange), Ok(Answer::Exchanged(Box::new(reply))));
    }

    fn claimed(&self, number: u128, token: u64) -> ClaimedJob {
        let job = &self.jobs[&id(number)];
        ClaimedJob {
            id: job.id,
            token: FenceToken(token),
            attempt: 1,
            max_attempts: job.max_attempts,
            queue: job.queue.clone(),
            task: job.task.clone(),
            group: job.group.clone().unwrap_or_else(|| job.task.clone()),
            key: job.key.clone(),
            payload: job.payload.clone(),
            timeout_ms: job.timeout_ms,
            retry: RetryPolicy::default(),
            traceparent: job.traceparent,
            due_at: job.run_at,
        }
    }

    /// A program asks for slots for ten seconds, and gets this token, or none.
    pub fn acquire(&mut self, lease: u128, group: GroupRef, slots: u32, token: Option<u64>) {
        let request = SlotRequest {
            slots,
            ..SlotRequest::new(LeaseId(Uuid::from_u128(lease)), group, name("script"), LEASE_MS)
        };
        let lease = token.map(|token| SlotLease {
            token: FenceToken(token),
            since: self.now,
            lease_until: self.now.plus_ms(LEASE_MS),
        });
        self.applied(Command::AcquireSlots(request), Ok(Answer::Acquired(lease)));
    }

    pub fn end(self) -> History {
        self.history
    }
}

/// A toy that has these jobs.
pub fn toy_with(jobs: &[NewJob]) -> Arc<dyn Store> {
    let store = block_on(ToyFixtures(Flaw::None).fresh()).store;
    block_on(store.submit(jobs.to_vec())).expect("the toy takes them");
    store
}

/// A group whose one slot a program took at this moment, for ten seconds.
pub fn held_by_program(since: Time) -> GroupDetail {
    let store = toy_with(&[]);
    let request = SlotRequest::new(LeaseId(Uuid::from_u128(9)), group("email"), name("script"), LEASE_MS);
    block_on(store.acquire_slots(request)).expect("the toy takes it");
    let mut detail = block_on(store.group(group("email"))).expect("the toy has it");
    detail.holders.iter_mut().for_each(|holder| holder.lease_until = since.plus_ms(LEASE_MS));
    detail
}

/// The same history with a right value, and with a wrong one.
pub fn told<W>(
    check: fn(&History) -> Vec<Violation>,
    tell: impl Fn(&mut Fable, W),
    right: W,
    wrong: W,
    object: &str,
) {
    let of = |word: W| {
        let mut fable = Fable::new();
        tell(&mut fable, word);
        let found = check(&fable.end());
        (names(&found).join(" "), found)
    };
    let (found, all) = of(right);
    assert_eq!(found, "", "a good history is objected to: {all:?}");
    let (found, all) = of(wrong);
    assert!(found.starts_with(object), "due was {object}, found {all:?}");
}
