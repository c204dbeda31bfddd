//! A history whose answers a toy gave.

use futures::executor::block_on;
use qo_core::{
    Answer, Claim, Command, Exchange, FenceToken, JobId, Name, NewJob, NewSession, Prefetch, SessionId,
    Settle,
};
use qo_testkit::generator::call;
use qo_testkit::history::journal::{Journal, RecordedStore};
use qo_testkit::history::{Actor, Audit, History, What};
use qo_testkit::{Fixture, Fixtures, Flaw, START, ToyFixtures, simulation};
use std::sync::Arc;
use uuid::Uuid;

/// A history made by hand, on a toy without a flaw.
pub struct Scene {
    pub fixture: Fixture,
    store: RecordedStore,
    journal: Arc<Journal>,
    now_ms: u64,
    exchanges: u64,
}

pub const SESSION: SessionId = SessionId(Uuid::from_u128(7));
pub const JOB: JobId = JobId(Uuid::from_u128(1));
pub const LEASE_MS: u64 = 10_000;
pub const BOUND_MS: u64 = 12_000;

impl Scene {
    /// One worker with four permits and one job of its task.
    pub fn new() -> Self {
        let fixture = block_on(ToyFixtures(Flaw::None).fresh());
        let journal = Arc::new(Journal::default());
        journal.set_now(START);
        let store = RecordedStore::new(fixture.store.clone(), journal.clone());
        let mut scene = Self { fixture, store, journal, now_ms: 0, exchanges: 0 };
        let task = || Name::parse("task", "email").expect("a name");
        let (queues, tasks) = (Vec::new(), vec![task()]);
        let session = NewSession {
            id: SESSION,
            worker: task(),
            queues,
            tasks,
            lease_ms: LEASE_MS,
            permits: 4,
            owner: None,
        };
        scene.call(Command::OpenSession(session));
        scene.call(Command::Submit(vec![NewJob::new(JOB, task())]));
        scene
    }

    pub fn call(&mut self, command: Command) -> Answer {
        block_on(call(&self.store, command)).expect("the toy takes it")
    }

    pub fn exchange(&mut self, settles: Vec<Settle>, max: u32) -> Answer {
        self.exchanges += 1;
        let claim = Claim { max, max_claim_batch: None, prefetch: None };
        let exchange = Exchange { settles, claim, ..Exchange::renew(SESSION, self.exchanges) };
        self.call(Command::Exchange(exchange))
    }

    /// Claims ahead of time.
    pub fn prefetch(&mut self, buffer: u32) {
        self.exchanges += 1;
        let prefetch = Some(Prefetch { buffer, lease_ms: LEASE_MS });
        let claim = Claim { max: 0, max_claim_batch: None, prefetch };
        self.call(Command::Exchange(Exchange { claim, ..Exchange::renew(SESSION, self.exchanges) }));
    }

    /// Claims the job.
    pub fn claim(&mut self) -> FenceToken {
        match self.exchange(Vec::new(), 1) {
            Answer::Exchanged(reply) => reply.claimed[0].token,
            other => panic!("not an exchange's answer: {other:?}"),
        }
    }

    pub fn wait(&mut self, ms: u64) {
        self.now_ms += ms;
        block_on(self.fixture.clock.advance_ms(ms));
        self.journal.set_now(START.plus_ms(self.now_ms));
    }

    pub fn write(&self, what: What) {
        self.journal.write(Actor::Worker(0), what);
    }

    /// Records all views of the store, with one change.
    pub fn audit(&self, change: impl FnOnce(&mut Audit)) {
        let mut audit = simulation::audit(&*self.fixture.store, true);
        change(&mut audit);
        self.write(What::Audited(Box::new(audit)));
    }

    pub fn heal(&self) {
        self.write(What::Healed { bound_ms: BOUND_MS });
    }

    pub fn end(self) -> History {
        self.journal.take()
    }
}
