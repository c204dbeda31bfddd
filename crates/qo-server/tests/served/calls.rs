//! Calls mean the same behind a server: random scripts, bad input, errors part by part.

use crate::stage::{Behind, Served, block_on, parts, remote};
use async_trait::async_trait;
use futures::future::BoxFuture;
use proptest::prelude::*;
use qo_core::{
    Answer, Command, Error, Json, LeaseId, Name, SessionId, SlotRequest, Steer, Store, TaskOptions,
};
use qo_core::{Claim, ErrorKind, Exchange, FenceToken, JobFilter, JobId, MemoryStore, NewJob, NewSession};
use qo_testkit::generator::{call, crowds, equal, flows, scripts};
use qo_testkit::intercept::{Intercept, Intercepted};
use qo_testkit::{Fixture, Fixtures, MemoryFixtures};
use std::sync::Arc;
use uuid::Uuid;

proptest! {
    #![proptest_config(ProptestConfig { cases: 24, failure_persistence: None, max_shrink_iters: 50, ..ProptestConfig::default() })]

    #[test]
    fn a_store_behind_a_server_equals_the_store_itself(
        script in prop_oneof![3 => scripts(1..=60), 1 => crowds(1..=30), 1 => flows(1..=30)]
    ) {
        let same = block_on(async {
            equal(&MemoryFixtures.fresh().await, &Behind(Unrecorded).fresh().await, &script).await
        });
        prop_assert_eq!(same, Ok(()));
    }
}

/// Stores in memory that do not keep what the server adds to their audit log: the other store has no server.
struct Unrecorded;

#[async_trait]
impl Fixtures for Unrecorded {
    async fn fresh(&self) -> Fixture {
        let Fixture { store, clock } = MemoryFixtures.fresh().await;
        Fixture { store: Arc::new(Intercepted(Plain(store))), clock }
    }

    fn block_on(&self, test: BoxFuture<'_, ()>) {
        block_on(test);
    }
}

struct Plain(Arc<dyn Store>);

#[async_trait]
impl Intercept for Plain {
    async fn command(&self, command: Command) -> Result<Answer, Error> {
        match command {
            Command::Record(deed) if deed.by.as_str() == "local" => Ok(Answer::Done),
            command => call(&*self.0, command).await,
        }
    }

    fn look(&self) -> Result<&dyn Store, Error> {
        Ok(&*self.0)
    }
}

fn name(text: &str) -> Name {
    Name::parse("name", text).expect("a name")
}

fn id(n: u128) -> Uuid {
    Uuid::from_u128(0x7000_8000_0000_0000_0000 | n)
}

/// The errors of calls that every store refuses.
async fn refused(store: &dyn Store) -> Vec<Error> {
    let job = |n| NewJob::new(JobId(id(n)), name("mail"));
    let mut errors = Vec::new();
    let mut add = |error: Option<Error>| errors.push(error.expect("it is refused"));
    add(store.submit(vec![job(1), NewJob { cost: 0, ..job(2) }]).await.err());
    add(store.submit(vec![NewJob { payload: Json::as_stored("{"), ..job(1) }]).await.err());
    add(store.submit(vec![NewJob { payload: Json::as_stored(""), ..job(1) }]).await.err());
    add(store.job(JobId(id(77))).await.err());
    add(store.cancel(vec![JobId(id(77))]).await.expect("a call").remove(0).err());
    add(store.jobs(JobFilter::default(), None, 0).await.err());
    add(store.jobs(JobFilter::default(), None, usize::MAX).await.err());
    add(store.exchange(Exchange::renew(SessionId(id(9)), 1)).await.err());
    add(store.exchange(Exchange::renew(SessionId(id(9)), 0)).await.err());
    add(store.work(SessionId(id(9)), Claim::default()).await.err());
    add(store.set_limit("api".parse().expect("a group"), 2_000_000).await.err());
    add(store.unset_limit("api".parse().expect("a group")).await.err());
    add(store.return_slots(LeaseId(id(3)), FenceToken(4)).await.err());
    add(store.steer_workflow(name("w"), Steer::Retry(1)).await.err());
    add(store.register(vec![TaskOptions { timeout_ms: Some(0), ..TaskOptions::new(name("t")) }]).await.err());
    add(store
        .acquire_slots(SlotRequest::new(LeaseId(id(3)), "cluster".parse().expect("a group"), name("p"), 500))
        .await
        .err());
    let mut wrong = qo_core::Configuration::default();
    for n in 0..150 {
        wrong.queue_priorities.insert(name(&format!("queue-with-a-long-name-{n}")), 0);
    }
    add(store.configure(wrong).await.err());
    errors
}

#[test]
fn an_error_has_the_same_parts_behind_a_server() {
    block_on(async {
        let served = Served::start(Arc::new(MemoryStore::new())).await;
        let here = refused(&MemoryStore::new()).await;
        let there = refused(&remote(&[served.address]).await).await;
        assert_eq!(here.len(), there.len());
        for (here, there) in here.iter().zip(&there) {
            assert_eq!(parts(here), parts(there));
        }
    });
}

#[test]
fn a_server_that_is_not_there_is_unavailable() {
    block_on(async {
        let mut served = Served::start(Arc::new(MemoryStore::new())).await;
        let store = remote(&[served.address]).await;
        served.kill().await;
        let new = || {
            let tasks = vec![name("mail")];
            NewSession {
                id: SessionId(id(1)),
                worker: name("w"),
                queues: vec![],
                tasks,
                lease_ms: 1_000,
                permits: 1,
                owner: None,
            }
        };
        // The first call may find out that its connection is gone only when it is under way.
        let first = store.open_session(new()).await.expect_err("no server");
        assert!(first.is_transient(), "{first}");
        let kinds = [store.open_session(new()).await.err(), store.now().await.err()];
        assert_eq!(kinds.map(|error| error.map(|error| error.kind())), [Some(ErrorKind::Unavailable); 2]);
    });
}
