//! What the tests share: a namespace, a store that reaches it through a proxy, and one that reaches it directly.

use crate::fixtures::connect;
use crate::proxy::Proxy;
use qo_core::{Claim, ErrorKind, Exchange, JobId, Json, Name, NewJob, NewSession, Outcome, Result};
use qo_core::{ClaimedJob, GroupRef, SessionId, Settle, Store};
use qo_postgres::{Options, PostgresStore, Url, migrate};
use std::time::Duration;
use tokio::time::{interval, timeout};
use uuid::Uuid;

/// Longer than anything takes that does not hang.
pub const PATIENCE: Duration = Duration::from_secs(20);

pub fn name(text: &str) -> Name {
    Name::parse("name", text).expect("a name")
}

pub fn group(text: &str) -> GroupRef {
    GroupRef::Group(name(text))
}

pub fn job(id: u128, task: &str) -> NewJob {
    NewJob::new(JobId(Uuid::from_u128(id)), name(task))
}

/// A shared server.
pub fn server() -> String {
    std::env::var("QO_TEST_POSTGRES").expect("`make test` starts a server: scripts/with_postgres.py")
}

/// A new namespace on a server, and its URL.
pub async fn namespace(server: &str, schema: &str) -> String {
    let client = connect(server).await;
    client.batch_execute(&format!("DROP SCHEMA IF EXISTS {schema} CASCADE")).await.expect("it goes");
    let url = format!("{server}?schema={schema}");
    migrate::up(&Url::parse(&url).expect("a url")).await.expect("it is made");
    url
}

/// Few connections and little patience.
pub fn options(connections: usize) -> Options {
    Options { connections, patience: Duration::from_secs(2), notify: false, ..Options::default() }
}

pub async fn open(url: &str, options: Options) -> PostgresStore {
    PostgresStore::open(&Url::parse(url).expect("a url"), options).await.expect("it opens")
}

/// A namespace with two ways to it.
pub struct Stage {
    pub url: String,
    pub proxy: Proxy,
    /// Through the proxy.
    pub store: PostgresStore,
    pub direct: PostgresStore,
}

impl Stage {
    pub async fn new(schema: &str, options: Options) -> Self {
        let url = namespace(&server(), schema).await;
        let proxy = Proxy::to(&url).await;
        let store = open(&proxy.url(&url), options).await;
        let direct = open(&url, self::options(2)).await;
        Self { url, proxy, store, direct }
    }

    /// A connection that holds the namespace lock until its transaction ends.
    pub async fn holder(&self) -> tokio_postgres::Client {
        let client = connect(&server()).await;
        let schema = self.url.rsplit_once('=').expect("a schema").1;
        let hold =
            format!("SET search_path = {schema}; BEGIN; SELECT pg_advisory_xact_lock(namespace_key())");
        client.batch_execute(&hold).await.expect("it holds");
        client
    }
}

pub async fn open_session(store: &dyn Store, id: u128) -> SessionId {
    let id = SessionId(Uuid::from_u128(id));
    let tasks = ["t", "u"].map(name).to_vec();
    let session = NewSession {
        id,
        worker: name("w"),
        queues: vec![],
        tasks,
        lease_ms: 60_000,
        permits: 1_000,
        owner: None,
    };
    store.open_session(session).await.expect("it opens");
    id
}

pub fn exchange(session: SessionId, number: u64, settles: Vec<Settle>, max: u32) -> Exchange {
    let claim = Claim { max, max_claim_batch: None, prefetch: None };
    Exchange { settles, claim, free_permits: 1_000, ..Exchange::renew(session, number) }
}

pub fn succeeded(job: &ClaimedJob) -> Settle {
    Settle { job: job.id, token: job.token, outcome: Outcome::Succeed { output: Json::null() } }
}

/// The output of a future that must not hang.
pub async fn soon<T>(call: impl Future<Output = T>) -> T {
    timeout(PATIENCE, call).await.expect("it does not hang")
}

/// Whether an error says that the same call may succeed later.
pub fn passes(error: &qo_core::Error) -> bool {
    matches!(error.kind(), ErrorKind::Unavailable | ErrorKind::Unknown)
}

/// Repeats a call while it is `Unavailable` or `Unknown`; any other error fails the test.
pub async fn again<T, F: Future<Output = Result<T>>>(mut call: impl FnMut() -> F) -> T {
    let mut every = interval(Duration::from_millis(10));
    let calling = async {
        loop {
            every.tick().await;
            match call().await {
                Err(error) if passes(&error) => {}
                answer => return answer.expect("it answers"),
            }
        }
    };
    soon(calling).await
}

pub async fn until(what: &str, mut look: impl AsyncFnMut() -> bool) {
    let mut every = interval(Duration::from_millis(10));
    let looking = async {
        while !look().await {
            every.tick().await;
        }
    };
    timeout(PATIENCE, looking).await.unwrap_or_else(|_| panic!("never: {what}"));
}
