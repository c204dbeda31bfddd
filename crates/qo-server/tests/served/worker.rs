//! The worker runtime on a store behind a server.

use crate::stage::{PATIENCE, Served, block_on, remote};
use async_trait::async_trait;
use qo::{Client, Worker};
use qo_core::{
    Answer, Claim, Command, JobId, JobState, MemoryStore, Name, NewJob, NewSession, Result, SessionId,
};
use qo_core::{Store, Work};
use qo_testkit::generator::call;
use qo_testkit::intercept::{Intercept, Intercepted};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;
use tokio::time::timeout;
use uuid::Uuid;

#[test]
fn a_worker_behind_a_server_runs_jobs_within_their_limit() {
    block_on(async {
        let served = Served::start(Arc::new(MemoryStore::new())).await;
        let url = format!("http://{}", served.address);
        let client = Client::connect(&url).await.expect("it connects");
        client.store().set_limit("square".parse().expect("a group"), 2).await.expect("set");
        let (running, most) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
        let (now, peak) = (Arc::clone(&running), Arc::clone(&most));
        let worker = Worker::builder(qo::connect(&url).await.expect("it connects"))
            .task("square", move |n: u64, _: qo::Context| {
                let (now, peak) = (Arc::clone(&now), Arc::clone(&peak));
                async move {
                    peak.fetch_max(now.fetch_add(1, Ordering::SeqCst) + 1, Ordering::SeqCst);
                    tokio::task::yield_now().await;
                    now.fetch_sub(1, Ordering::SeqCst);
                    Ok::<_, qo::Failure>(n * n)
                }
            })
            .build()
            .expect("a worker");
        let shutdown = worker.shutdown_handle();
        let working = tokio::spawn(worker.run());
        let mut jobs = Vec::new();
        for n in 0..50_u64 {
            jobs.push(client.submit("square", &n).await.expect("accepted"));
        }
        for (n, job) in jobs.into_iter().enumerate() {
            let detail = timeout(PATIENCE, client.wait(job)).await.expect("it runs").expect("it is there");
            assert_eq!(detail.view.state, JobState::Succeeded);
            assert_eq!(detail.output.map(String::from), Some((n * n).to_string()));
        }
        assert!((1..=2).contains(&most.load(Ordering::SeqCst)));
        shutdown.drain();
        timeout(PATIENCE, working).await.expect("it ends").expect("no panic").expect("it ends well");
        assert!(client.store().workers().await.expect("a list").is_empty(), "its session is closed");
    });
}

fn name(text: &str) -> Name {
    Name::parse("name", text).expect("a name")
}

/// A session that looked and found nothing.
async fn waiting(store: &dyn Store, n: u128) -> u64 {
    let session = SessionId(Uuid::from_u128(n));
    let tasks = vec![name("mail")];
    let new = NewSession {
        id: session,
        worker: name("w"),
        queues: vec![],
        tasks,
        lease_ms: 60_000,
        permits: 1,
        owner: None,
    };
    store.open_session(new).await.expect("a session");
    let claim = Claim { max: 1, ..Claim::default() };
    // The first look opens the stream, which begins with a wake-up.
    let first = store.work(session, claim).await.expect("a look").seen;
    timeout(PATIENCE, store.changed(Some(first))).await.expect("the stream begins").expect("a number");
    let work = store.work(session, claim).await.expect("a look");
    assert!(!work.now);
    work.seen
}

#[test]
fn a_job_wakes_some_waiting_worker_and_another_if_that_one_is_slow() {
    block_on(async {
        let store = Arc::new(MemoryStore::new());
        let served = Served::start(Arc::clone(&store) as Arc<dyn Store>).await;
        let mut clients = Vec::new();
        for n in 1..=8 {
            let client = remote(&[served.address]).await;
            let seen = waiting(&client, n).await;
            clients.push((client, seen));
        }
        let job = NewJob::new(JobId(Uuid::from_u128(99)), name("mail"));
        store.submit(vec![job]).await.expect("accepted");
        // No worker claims it: in the end each one that could is told.
        for (client, seen) in &clients {
            timeout(PATIENCE, client.changed(Some(*seen))).await.expect("it is woken").expect("a number");
            assert!(client.told_of_jobs(*seen));
        }
    });
}

#[test]
fn a_change_that_brings_no_work_wakes_no_worker() {
    block_on(async {
        let store = Arc::new(MemoryStore::new());
        let served = Served::start(Arc::clone(&store) as Arc<dyn Store>).await;
        let client = remote(&[served.address]).await;
        let seen = waiting(&client, 1).await;
        let other = NewJob::new(JobId(Uuid::from_u128(98)), name("other"));
        store.submit(vec![other]).await.expect("accepted");
        let mine = NewJob::new(JobId(Uuid::from_u128(99)), name("mail"));
        assert!(timeout(Duration::from_millis(50), client.changed(Some(seen))).await.is_err());
        store.submit(vec![mine]).await.expect("accepted");
        timeout(PATIENCE, client.changed(Some(seen))).await.expect("it is woken").expect("a number");
    });
}

#[test]
fn a_client_that_follows_all_changes_hears_of_each() {
    block_on(async {
        let store = Arc::new(MemoryStore::new());
        let served = Served::start(Arc::clone(&store) as Arc<dyn Store>).await;
        let client = remote(&[served.address]).await;
        let mut seen = client.changed(None).await.expect("a number");
        // The stream begins with a wake-up.
        seen = timeout(PATIENCE, client.changed(Some(seen))).await.expect("it begins").expect("a number");
        store.pause_queue(name("mail"), true).await.expect("paused");
        timeout(PATIENCE, client.changed(Some(seen))).await.expect("it is told").expect("a number");
    });
}

#[test]
fn a_server_sweeps_where_no_worker_is_connected() {
    block_on(async {
        let store = Arc::new(MemoryStore::new());
        let every = Duration::from_millis(5);
        let _served = Served::start_with(
            Arc::clone(&store) as Arc<dyn Store>,
            qo_server::Options { sweep_every: every, ..qo_server::Options::default() },
        )
        .await;
        let tasks = vec![name("mail")];
        let id = SessionId(Uuid::from_u128(1));
        let new = NewSession {
            id,
            worker: name("w"),
            queues: vec![],
            tasks,
            lease_ms: 100,
            permits: 1,
            owner: None,
        };
        store.open_session(new).await.expect("a session");
        let seen = store.changed(None).await.expect("a number");
        // The test changes nothing: the change is the sweep that ends the session.
        timeout(PATIENCE, store.changed(Some(seen))).await.expect("it is swept").expect("a number");
        assert_eq!(store.over().await.map(|over| over.sessions.len()), Ok(0));
        assert!(store.workers().await.expect("a list").is_empty());
    });
}

/// Counts looks for work.
struct Counting {
    store: MemoryStore,
    looks: Arc<AtomicUsize>,
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
fn one_look_stands_for_all_idle_workers_of_a_kind() {
    block_on(async {
        let looks = Arc::new(AtomicUsize::new(0));
        let counting = Counting { store: MemoryStore::new(), looks: Arc::clone(&looks) };
        let store = Arc::new(Intercepted(counting));
        let served = Served::start(Arc::clone(&store) as Arc<dyn Store>).await;
        let mut clients = Vec::new();
        for n in 1..=20 {
            let client = remote(&[served.address]).await;
            let seen = waiting(&client, n).await;
            clients.push((client, seen));
        }
        looks.store(0, Ordering::SeqCst);
        store.pause_queue(name("other"), true).await.expect("paused");
        while looks.load(Ordering::SeqCst) == 0 {
            tokio::task::yield_now().await;
        }
        let job = NewJob::new(JobId(Uuid::from_u128(99)), name("mail"));
        store.submit(vec![job]).await.expect("accepted");
        for (client, seen) in &clients {
            timeout(PATIENCE, client.changed(Some(*seen))).await.expect("it is woken").expect("a number");
        }
        // One for the queue, and one for each that the job woke.
        let looks = looks.load(Ordering::SeqCst);
        assert!((20..=23).contains(&looks), "{looks}");
    });
}
