//! Wake-ups of waiting workers: dates, moved sessions, ended sessions, and a server that cannot wake any more.

use crate::stage::{PATIENCE, Served, block_on, remote};
use async_trait::async_trait;
use qo_core::{Answer, Claim, Command, ErrorKind, JobId, MemoryStore, Name, NewJob, NewSession, Result};
use qo_core::{SessionId, Store, Work};
use qo_testkit::generator::call;
use qo_testkit::intercept::{Intercept, Intercepted};
use qo_wire::pb::queue_client::QueueClient;
use qo_wire::{pb, status};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use tokio::time::timeout;
use tonic::transport::Endpoint;
use uuid::Uuid;

const CLAIM: Claim = Claim { max: 1, max_claim_batch: None, prefetch: None };

fn name(text: &str) -> Name {
    Name::parse("name", text).expect("a name")
}

async fn open(store: &dyn Store, n: u128) -> SessionId {
    let id = SessionId(Uuid::from_u128(n));
    let (worker, tasks) = (name("w"), vec![name("mail")]);
    let new = NewSession { id, worker, queues: vec![], tasks, lease_ms: 60_000, permits: 1, owner: None };
    store.open_session(new).await.expect("a session");
    id
}

/// Looks and finds nothing, with a stream that has begun; the number to wait from.
async fn waits(client: &dyn Store, session: SessionId) -> u64 {
    let first = client.work(session, CLAIM).await.expect("a look").seen;
    timeout(PATIENCE, client.changed(Some(first))).await.expect("the stream begins").expect("a number");
    let work = client.work(session, CLAIM).await.expect("a look");
    assert!(!work.now);
    work.seen
}

/// Counts looks for work and lists of workers.
struct Counting {
    store: MemoryStore,
    looks: AtomicUsize,
}

#[async_trait]
impl Intercept for Counting {
    async fn command(&self, command: Command) -> Result<Answer> {
        call(&self.store, command).await
    }

    fn look(&self) -> Result<&dyn Store> {
        Ok(&self.store)
    }

    async fn work(&self, session: SessionId, claim: Claim) -> Result<Work> {
        self.looks.fetch_add(1, Ordering::SeqCst);
        Store::work(&self.store, session, claim).await
    }
}

#[test]
fn a_waiting_worker_is_woken_when_a_delayed_job_is_due() {
    block_on(async {
        let store = Arc::new(MemoryStore::new());
        let served = Served::start(Arc::clone(&store) as Arc<dyn Store>).await;
        let client = remote(&[served.address]).await;
        let session = open(&client, 1).await;
        let seen = waits(&client, session).await;
        let mut job = NewJob::new(JobId(Uuid::from_u128(9)), name("mail"));
        job.run_at = Some(store.now().await.expect("a time").plus_ms(300));
        store.submit(vec![job]).await.expect("accepted");
        // The server alone knows of the date: nothing changes any more, and the client does not look.
        timeout(PATIENCE, client.changed(Some(seen))).await.expect("it is woken").expect("a number");
        assert!(client.told_of_jobs(seen));
        assert!(client.work(session, CLAIM).await.expect("a look").now);
    });
}

#[test]
fn one_look_stands_for_idle_workers_that_come_from_another_server() {
    block_on(async {
        let counting = Counting { store: MemoryStore::new(), looks: AtomicUsize::new(0) };
        let store = Arc::new(Intercepted(counting));
        let mut sessions = Vec::new();
        for n in 1..=20 {
            sessions.push(open(&*store, n).await);
        }
        let served = Served::start(Arc::clone(&store) as Arc<dyn Store>).await;
        let mut clients = Vec::new();
        for session in sessions {
            let client = remote(&[served.address]).await;
            let seen = waits(&client, session).await;
            clients.push((client, seen));
        }
        let looks = &store.0.looks;
        looks.store(0, Ordering::SeqCst);
        store.pause_queue(name("other"), true).await.expect("paused");
        while looks.load(Ordering::SeqCst) == 0 {
            tokio::task::yield_now().await;
        }
        store.submit(vec![NewJob::new(JobId(Uuid::from_u128(99)), name("mail"))]).await.expect("accepted");
        for (client, seen) in &clients {
            timeout(PATIENCE, client.changed(Some(*seen))).await.expect("it is woken").expect("a number");
        }
        // One for the queue, and one for each that the job woke.
        let looks = looks.load(Ordering::SeqCst);
        assert!((20..=23).contains(&looks), "{looks}");
    });
}

#[test]
fn the_stream_of_a_session_that_has_ended_ends() {
    block_on(async {
        let store = Arc::new(MemoryStore::new());
        let served = Served::start(Arc::clone(&store) as Arc<dyn Store>).await;
        let session = open(&*store, 1).await;
        let url = format!("http://{}", served.address);
        let channel = Endpoint::from_shared(url).expect("an address").connect().await.expect("it connects");
        let mut client = QueueClient::new(channel);
        let watch = pb::WatchRequest { session: Some(session.to_string()) };
        let mut stream = client.watch(watch).await.expect("a stream").into_inner();
        let claim = Some(pb::Claim::from(CLAIM));
        let work = pb::WorkRequest { session: session.to_string(), claim };
        assert!(!client.work(work).await.expect("a look").into_inner().now);
        store.close_session(session).await.expect("closed");
        let told = timeout(PATIENCE, stream.message()).await.expect("it ends").expect_err("with an error");
        assert_eq!(status::error(&told).map(|error| error.kind()), Some(ErrorKind::Fenced));
    });
}

#[test]
fn ended_sessions_take_no_stream_from_those_that_follow() {
    block_on(async {
        let store = Arc::new(MemoryStore::new());
        let served = Served::start(Arc::clone(&store) as Arc<dyn Store>).await;
        let client = remote(&[served.address]).await;
        for n in 1..=1_100 {
            let session = open(&*store, n).await;
            assert!(!client.work(session, CLAIM).await.expect("a look").now);
            store.close_session(session).await.expect("closed");
            let fenced = client.work(session, CLAIM).await.expect_err("it has ended");
            assert_eq!(fenced.kind(), ErrorKind::Fenced);
        }
        let session = open(&client, 2_000).await;
        let seen = waits(&client, session).await;
        store.submit(vec![NewJob::new(JobId(Uuid::from_u128(9)), name("mail"))]).await.expect("accepted");
        timeout(PATIENCE, client.changed(Some(seen))).await.expect("it is woken").expect("a number");
    });
}

/// A store whose changes cannot be followed because of a bug.
struct Cursed(MemoryStore);

#[async_trait]
impl Intercept for Cursed {
    async fn command(&self, command: Command) -> Result<Answer> {
        call(&self.0, command).await
    }

    fn look(&self) -> Result<&dyn Store> {
        Ok(&self.0)
    }

    fn listen(&self) -> Result<&dyn Store> {
        panic!("a bug of the test")
    }
}

#[test]
fn a_server_that_cannot_wake_workers_any_more_ends() {
    block_on(async {
        let store = Arc::new(Intercepted(Cursed(MemoryStore::new())));
        let mut served = Served::start(store).await;
        let ended = timeout(PATIENCE, &mut served.run).await.expect("it ends").expect("no panic");
        let error = ended.expect_err("it is broken");
        assert_eq!(error.kind(), ErrorKind::Internal);
        assert!(error.message().contains("background"), "{error}");
    });
}
