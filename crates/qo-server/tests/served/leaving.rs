//! When a client leaves its server for another one, and when it must not.

use crate::logs::Logs;
use crate::schemas::Schemas;
use crate::stage::{PATIENCE, Served, block_on, remote};
use async_trait::async_trait;
use qo_core::{
    Answer, Cause, Command, Error, ErrorKind, JobFilter, JobId, MemoryStore, Name, NewJob, Result, Store,
};
use qo_object::{LogStore, Options};
use qo_testkit::Fixtures;
use qo_testkit::generator::call;
use qo_testkit::intercept::{Intercept, Intercepted};
use qo_wire::{Addresses, RemoteStore};
use std::future::pending;
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, AtomicUsize, Ordering};
use std::time::{Duration, Instant};
use tokio::net::TcpListener;
use tokio::time::timeout;
use uuid::Uuid;

fn job(n: u128) -> NewJob {
    NewJob::new(JobId(Uuid::from_u128(n)), Name::parse("task", "mail").expect("a name"))
}

const WELL: u8 = 0;
const AWAY: u8 = 1;
const HANGS: u8 = 2;

/// What a server sees of its store: it may be away, or never answer.
struct Behind {
    store: Arc<MemoryStore>,
    state: AtomicU8,
    /// Commands that came while it was not well.
    asked: AtomicUsize,
}

impl Behind {
    fn of(store: &Arc<MemoryStore>) -> Arc<Intercepted<Self>> {
        let (state, asked) = (AtomicU8::new(WELL), AtomicUsize::new(0));
        Arc::new(Intercepted(Self { store: Arc::clone(store), state, asked }))
    }
}

#[async_trait]
impl Intercept for Behind {
    async fn command(&self, command: Command) -> Result<Answer> {
        let state = self.state.load(Ordering::SeqCst);
        self.asked.fetch_add(usize::from(state != WELL), Ordering::SeqCst);
        match state {
            WELL => call(&*self.store, command).await,
            AWAY => Err(Error::new(ErrorKind::Unavailable, "the store is away")),
            _ => pending().await,
        }
    }

    fn look(&self) -> Result<&dyn Store> {
        Ok(&*self.store)
    }
}

#[test]
fn a_client_leaves_a_server_that_has_lost_its_store() {
    block_on(async {
        let store = Arc::new(MemoryStore::new());
        let (sick, well) = (Behind::of(&store), Behind::of(&store));
        let first = Served::start(Arc::clone(&sick) as Arc<dyn Store>).await;
        let second = Served::start(Arc::clone(&well) as Arc<dyn Store>).await;
        let client = remote(&[first.address, second.address]).await;
        sick.0.state.store(AWAY, Ordering::SeqCst);
        client.submit(vec![job(1)]).await.expect("the other server accepts it");
        client.submit(vec![job(2)]).await.expect("accepted");
        assert_eq!(sick.0.asked.load(Ordering::SeqCst), 1, "the client stays with the other server");

        // Where no server has the store, the caller is told so, with what each says.
        well.0.state.store(AWAY, Ordering::SeqCst);
        let error = client.submit(vec![job(3)]).await.expect_err("no store");
        assert_eq!(error.kind(), ErrorKind::Unavailable);
        assert_eq!(
            error.message().matches("the store behind the server does not answer").count(),
            2,
            "{error}"
        );
        assert_eq!(store.jobs(JobFilter::default(), None, 9).await.expect("a page").jobs.len(), 2);
    });
}

#[test]
fn a_call_that_is_dropped_after_a_long_wait_leaves_its_server() {
    block_on(async {
        let store = Arc::new(MemoryStore::new());
        let sick = Behind::of(&store);
        let first = Served::start(Arc::clone(&sick) as Arc<dyn Store>).await;
        let second = Served::start(Arc::clone(&store) as Arc<dyn Store>).await;
        let client = remote(&[first.address, second.address]).await;
        sick.0.state.store(HANGS, Ordering::SeqCst);
        let impatient = timeout(Duration::from_millis(1_100), client.submit(vec![job(1)]));
        assert!(impatient.await.is_err(), "it hangs");
        let again = timeout(PATIENCE, client.submit(vec![job(1)])).await;
        again.expect("the other server answers").expect("accepted");
        assert_eq!(sick.0.asked.load(Ordering::SeqCst), 1);
    });
}

#[test]
fn one_deadline_holds_for_all_servers_together() {
    block_on(async {
        let mut silent = Vec::new();
        for _ in 0..20 {
            silent.push(TcpListener::bind("127.0.0.1:0").await.expect("a port"));
        }
        let servers: Vec<String> =
            silent.iter().map(|listener| listener.local_addr().expect("an address").to_string()).collect();
        let addresses = Addresses::parse(&format!("http://{}", servers.join(","))).expect("a url");
        let deadline = Duration::from_millis(500);
        let options = qo_wire::Options { deadline, ..qo_wire::Options::default() };
        let began = Instant::now();
        let error = RemoteStore::connect(&addresses, options).await.expect_err("no server answers");
        assert_eq!(error.kind(), ErrorKind::Unavailable);
        assert!(began.elapsed() < 10 * deadline, "{:?}: each server took its time", began.elapsed());
    });
}

#[test]
fn a_server_of_another_namespace_gets_no_calls() {
    block_on(async {
        let (ours, theirs) = (Arc::new(MemoryStore::new()), Arc::new(MemoryStore::new()));
        let mut first = Served::start(Arc::clone(&ours) as Arc<dyn Store>).await;
        let second = Served::start(Arc::clone(&theirs) as Arc<dyn Store>).await;
        let client = remote(&[first.address, second.address]).await;
        client.submit(vec![job(1)]).await.expect("accepted");
        assert_eq!(client.identity().await, Store::identity(&*ours).await);
        first.kill().await;
        let error = loop {
            match client.submit(vec![job(1)]).await {
                Err(error) if error.is_transient() => {}
                other => break other.expect_err("there is no other server of the namespace"),
            }
        };
        assert_eq!((error.kind(), error.cause()), (ErrorKind::Conflict, Some(Cause::OtherNamespace)));
        assert!(error.message().contains(&second.address.to_string()), "{error}");
        assert_eq!(theirs.jobs(JobFilter::default(), None, 9).await.expect("a page").jobs, []);
    });
}

#[test]
fn every_kind_of_store_tells_which_namespace_it_is() {
    block_on(async {
        let directory = tempfile::tempdir().expect("a directory");
        let open = || LogStore::open_directory(directory.path(), Options::default());
        let (one, same) = (open().await.expect("a namespace"), open().await.expect("a namespace"));
        let identity = one.identity().expect("an identity").id.map(|id| id.to_string());
        assert_eq!(Store::identity(&same).await, Ok(identity));
        let fixtures: [&dyn Fixtures; 2] = [&Logs::on_a_directory(), &Schemas::on("QO_TEST_POSTGRES")];
        for fixtures in fixtures {
            let (one, other) = (fixtures.fresh().await.store, fixtures.fresh().await.store);
            let told = one.identity().await.expect("an answer");
            assert!(told.is_some() && told == one.identity().await.expect("an answer"));
            assert_ne!(told, other.identity().await.expect("an answer"));
        }
    });
}
