//! What a worker costs when there is nothing to do, and how soon it sees a job.

use crate::stage::{Running, TokioClock, ended, until};
use async_trait::async_trait;
use qo::core::{
    Answer, Claim, Command, Configuration, Exchange, ExchangeReply, JobFilter, JobState, MemoryStore, Name,
    NewSession, Result, Retention, SessionId, Work,
};
use qo::{Client, Context, Failure, Store, Worker};
use qo_testkit::generator::call;
use qo_testkit::intercept::{Intercept, Intercepted};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;
use tokio::time::{Instant, sleep};
use uuid::Uuid;

/// Counts the calls that may write.
struct Counted {
    store: Arc<MemoryStore>,
    exchanges: AtomicU64,
    others: AtomicU64,
    looks: AtomicU64,
    renewals_cost: bool,
}

impl Counted {
    fn new(renewals_cost: bool) -> Arc<Intercepted<Self>> {
        Arc::new(Intercepted(Self {
            store: TokioClock::store(),
            exchanges: AtomicU64::new(0),
            others: AtomicU64::new(0),
            looks: AtomicU64::new(0),
            renewals_cost,
        }))
    }
}

#[async_trait]
impl Intercept for Counted {
    async fn command(&self, command: Command) -> Result<Answer> {
        match command {
            Command::Exchange(_) => self.exchanges.fetch_add(1, Ordering::SeqCst),
            // A sweep that finds nothing leaves no trace.
            Command::Sweep => 0,
            _ => self.others.fetch_add(1, Ordering::SeqCst),
        };
        call(&*self.store, command).await
    }

    fn look(&self) -> Result<&dyn Store> {
        self.looks.fetch_add(1, Ordering::SeqCst);
        Ok(&*self.store)
    }

    fn renewals_cost(&self) -> bool {
        self.renewals_cost
    }
}

#[tokio::test(start_paused = true)]
async fn an_idle_worker_writes_nothing_but_its_renewals_and_hardly_looks() {
    let counted = Counted::new(false);
    let nothing = |(): (), _: Context| async { Ok::<_, Failure>(()) };
    let worker = Running::start(Worker::builder(counted.clone()).own_threads(false).task("noop", nothing));
    sleep(Duration::from_secs(1)).await;
    let read = || {
        [&counted.0.exchanges, &counted.0.others, &counted.0.looks].map(|count| count.load(Ordering::SeqCst))
    };
    let before = read();
    sleep(Duration::from_secs(600)).await;
    let after = read();
    let [exchanges, others, looks] = [0, 1, 2].map(|index| after[index] - before[index]);
    // A lease of 30 s is renewed every 10 s.
    assert!((59..=61).contains(&exchanges), "{exchanges}");
    assert_eq!(others, 0);
    // It polls every 5 s, and each look takes a few calls.
    assert!(looks < 1_500, "{looks}");
    worker.drain().await;
}

#[tokio::test(start_paused = true)]
async fn an_idle_worker_renews_seldom_and_a_busy_one_as_usual() {
    let counted = Counted::new(true);
    let lease = async || {
        let workers = counted.0.store.workers().await.expect("answered");
        workers[0].lease_until.ms_since(counted.0.store.now().await.expect("a time"))
    };
    let slow = |ms: u64, _: Context| async move {
        sleep(Duration::from_millis(ms)).await;
        Ok::<_, Failure>(())
    };
    let worker = Running::start(Worker::builder(counted.clone()).own_threads(false).task("slow", slow));
    let client = Client::new(counted.clone());
    sleep(Duration::from_secs(60)).await;
    let before = counted.0.exchanges.load(Ordering::SeqCst);
    sleep(Duration::from_secs(600)).await;
    let exchanges = counted.0.exchanges.load(Ordering::SeqCst) - before;
    // A lease of ten times 30 s, renewed after a third of it.
    assert!((5..=7).contains(&exchanges), "{exchanges}");
    assert!(lease().await > 150_000);
    let job = client.submit("slow", &50_000_u64).await.expect("submitted");
    sleep(Duration::from_secs(40)).await;
    assert!(lease().await <= 30_000, "it runs something");
    assert_eq!(ended(&client, job).await.view.attempts_used, 1);
    worker.drain().await;
}

#[tokio::test(start_paused = true)]
async fn an_idle_worker_takes_a_new_job_at_once_and_a_dated_one_at_its_date() {
    let store = TokioClock::store();
    let nothing = |(): (), _: Context| async { Ok::<_, Failure>(()) };
    let worker = Running::start(Worker::builder(store.clone()).own_threads(false).task("noop", nothing));
    let client = Client::new(store);
    for (delay_ms, most_ms) in [(0, 3), (0, 3), (1_234, 1_240), (20_000, 20_010)] {
        sleep(Duration::from_millis(7_777)).await;
        let started = Instant::now();
        let job = client.submit("noop", &()).delay(Duration::from_millis(delay_ms)).await.expect("submitted");
        assert_eq!(ended(&client, job).await.view.state, JobState::Succeeded);
        let took = started.elapsed().as_millis() as u64;
        assert!((delay_ms..=most_ms).contains(&took), "{took} ms");
    }
    worker.drain().await;
}

/// A store that reports jobs before a worker asks, when the test says so. It counts how often a worker asks.
struct Told {
    store: Arc<MemoryStore>,
    /// The change with which jobs came.
    jobs_at: AtomicU64,
    looks: AtomicU64,
    /// The number of looks when the last job was claimed.
    looks_at_claim: AtomicU64,
}

#[async_trait]
impl Intercept for Told {
    async fn command(&self, command: Command) -> Result<Answer> {
        call(&*self.store, command).await
    }

    fn look(&self) -> Result<&dyn Store> {
        Ok(&*self.store)
    }

    async fn fetch(&self, exchange: Exchange) -> Result<Option<ExchangeReply>> {
        let reply = self.store.fetch(exchange).await?;
        if reply.as_ref().is_some_and(|reply| !reply.claimed.is_empty()) {
            self.looks_at_claim.store(self.looks.load(Ordering::SeqCst), Ordering::SeqCst);
        }
        Ok(reply)
    }

    async fn work(&self, session: SessionId, claim: Claim) -> Result<Work> {
        self.looks.fetch_add(1, Ordering::SeqCst);
        self.store.work(session, claim).await
    }

    fn told_of_jobs(&self, seen: u64) -> bool {
        self.jobs_at.load(Ordering::SeqCst) > seen
    }
}

impl Told {
    /// Makes the store report the next change as new jobs.
    async fn tell(&self) {
        let now = self.store.changed(None).await.expect("a change");
        self.jobs_at.store(now + 1, Ordering::SeqCst);
    }
}

#[tokio::test(start_paused = true)]
async fn a_worker_told_of_a_job_looks_first_only_after_it_lost_one() {
    let told = Arc::new(Intercepted(Told {
        store: TokioClock::store(),
        jobs_at: AtomicU64::new(0),
        looks: AtomicU64::new(0),
        looks_at_claim: AtomicU64::new(0),
    }));
    let nothing = |(): (), _: Context| async { Ok::<_, Failure>(()) };
    let worker = Running::start(Worker::builder(told.clone()).own_threads(false).task("noop", nothing));
    let client = Client::new(told.clone());
    // How often the worker looks before it gets a job that comes while it is idle.
    let looks_before_a_job = async |is_told| {
        sleep(Duration::from_millis(7_777)).await;
        let before = told.0.looks.load(Ordering::SeqCst);
        if is_told {
            told.0.tell().await;
        }
        let job = client.submit("noop", &()).await.expect("submitted");
        assert_eq!(ended(&client, job).await.view.state, JobState::Succeeded);
        told.0.looks_at_claim.load(Ordering::SeqCst) - before
    };
    assert_eq!(looks_before_a_job(false).await, 1, "the store did not report it");
    assert_eq!(looks_before_a_job(true).await, 0, "the store reported it");
    // The store reports a job that another worker takes.
    sleep(Duration::from_millis(7_777)).await;
    told.0.tell().await;
    told.0.store.pause_queue(Name::parse("queue", "other").expect("a name"), true).await.expect("paused");
    assert_eq!(looks_before_a_job(true).await, 1, "another worker was faster");
    assert_eq!(looks_before_a_job(true).await, 0, "it was not too late the last time");
    worker.drain().await;
}

#[tokio::test(start_paused = true)]
async fn jobs_of_a_dead_worker_come_back_though_no_worker_can_run_them() {
    let store = TokioClock::store();
    let client = Client::new(store.clone());
    let nothing = |(): (), _: Context| async { Ok::<_, Failure>(()) };
    let living = Running::start(Worker::builder(store.clone()).own_threads(false).task("noop", nothing));
    let job = client.submit("wait", &()).await.expect("submitted");
    // A worker that claims and dies.
    let id = SessionId(Uuid::new_v4());
    let session = NewSession {
        id,
        worker: Name::parse("worker", "dead").expect("a name"),
        queues: Vec::new(),
        tasks: vec![Name::parse("task", "wait").expect("a name")],
        lease_ms: 7_000,
        permits: 1,
        owner: None,
    };
    client.store().open_session(session).await.expect("opened");
    let claim = Claim { max: 1, ..Claim::default() };
    let exchange = Exchange { claim, ..Exchange::renew(id, 1) };
    assert_eq!(client.store().exchange(exchange).await.expect("answered").claimed.len(), 1);
    let claimed = Instant::now();
    until("the job is back", || async {
        client.store().job(job).await.expect("a job").view.state == JobState::Pending
    })
    .await;
    let took = claimed.elapsed().as_millis();
    assert!((7_000..=7_020).contains(&took), "{took} ms");
    living.drain().await;
}

#[tokio::test(start_paused = true)]
async fn a_worker_sweeps_again_at_once_while_there_is_more_to_forget() {
    let store = TokioClock::store();
    let client = Client::new(store.clone());
    let retention = Retention { cancelled_ms: 0, ..Retention::default() };
    store
        .configure(Configuration { retention: retention.into(), ..Configuration::default() })
        .await
        .expect("configured");
    let jobs: Vec<_> = (0..5_000).map(|_| client.submit("gone", &()).into_job().expect("a job")).collect();
    let ids = jobs.iter().map(|job| job.id).collect();
    client.submit_many(jobs).await.expect("accepted");
    store.cancel(ids).await.expect("cancelled");
    let nothing = |(): (), _: Context| async { Ok::<_, Failure>(()) };
    let began = Instant::now();
    let lease = Duration::from_secs(30);
    let worker = Worker::builder(store.clone()).own_threads(false).lease(lease).task("noop", nothing);
    let living = Running::start(worker);
    until("all are forgotten", || async {
        store.jobs(JobFilter::default(), None, 1).await.expect("a page").jobs.is_empty()
    })
    .await;
    let took = began.elapsed();
    assert!(took <= lease / 2 + Duration::from_secs(1), "{took:?}, a sweep comes every {:?}", lease / 2);
    living.drain().await;
}
