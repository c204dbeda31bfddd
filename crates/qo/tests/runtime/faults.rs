//! A store behind a bad network.

use crate::stage::{Running, TokioClock, at_once, ended, until};
use async_trait::async_trait;
use qo::core::{Answer, ClaimSettings, Command, Exchange, ExchangeReply, JobId, JobState, MemoryStore, Name};
use qo::{CancelReason, Client, Context, Failure, Store, TaskConfig, Worker, WorkerOptions};
use qo_testkit::generator::call;
use qo_testkit::intercept::{Intercept, Intercepted};
use qo_testkit::{FaultRates, FaultyStore};
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;
use tokio::time::Instant;
use uuid::Uuid;

const RATES: FaultRates = FaultRates { before: 150, after: 150, late: 0, twice: 0, late_ms: 1 };

/// Two workers on a store that loses calls and answers: every job runs once.
async fn nothing_is_lost_or_done_twice(seed: u64, claim: ClaimSettings) {
    let store = TokioClock::store();
    let faulty = Arc::new(FaultyStore::new(store.clone(), seed, RATES));
    let runs = Arc::new(Mutex::new(BTreeMap::new()));
    let workers: Vec<_> = (0..2)
        .map(|index| {
            let runs = runs.clone();
            let count = move |(): (), context: Context| {
                *runs.lock().expect("no panic").entry(context.job()).or_insert(0) += 1;
                async move {
                    tokio::time::sleep(Duration::from_millis(7)).await;
                    Ok::<_, Failure>(())
                }
            };
            let options = WorkerOptions {
                claim: claim.clone(),
                max_concurrent_tasks: Some(5),
                memory_threshold_percent: 100,
                ..WorkerOptions::default()
            };
            let builder =
                Worker::builder(faulty.clone()).options(options).own_threads(false).seed(seed + index);
            Running::start(builder.task_with("count", TaskConfig::new().max_concurrent(7), count))
        })
        .collect();
    let client = Client::new(store.clone());
    let mut jobs = Vec::new();
    for _ in 0..100 {
        jobs.push(client.submit("count", &()).await.expect("submitted"));
    }
    for &job in &jobs {
        let detail = ended(&client, job).await;
        assert_eq!((detail.view.state, detail.attempts.len()), (JobState::Succeeded, 1), "seed {seed}");
    }
    assert!(jobs.iter().all(|job| runs.lock().expect("no panic")[job] == 1), "seed {seed}");
    faulty.heal();
    for worker in workers {
        worker.drain().await;
    }
    assert_eq!(store.audit().expect("an audit"), Vec::<String>::new());
}

#[tokio::test(start_paused = true)]
async fn lost_calls_and_answers_lose_no_job_and_run_none_twice() {
    for seed in 0..20 {
        nothing_is_lost_or_done_twice(seed, ClaimSettings::default()).await;
    }
}

#[tokio::test(start_paused = true)]
async fn lost_calls_and_answers_do_no_harm_to_jobs_that_are_claimed_ahead() {
    for seed in 0..20 {
        let claim =
            ClaimSettings { prefetch_buffer: 4, claim_lease_ms: Some(10_000), ..ClaimSettings::default() };
        nothing_is_lost_or_done_twice(seed, claim).await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_fenced_worker_stops_its_handlers_opens_a_new_session_and_goes_on() {
    let store = TokioClock::store();
    let reasons = Arc::new(Mutex::new(Vec::new()));
    let told = reasons.clone();
    let wait = move |(): (), context: Context| {
        let told = told.clone();
        async move {
            if context.attempt() == 1 {
                let reason = context.cancelled().await;
                told.lock().expect("no panic").push(reason);
            }
            Ok::<_, Failure>(context.attempt())
        }
    };
    let builder = Worker::builder(store.clone()).own_threads(false);
    let worker = Running::start(builder.task_with("wait", TaskConfig::new().retry(at_once()), wait));
    let client = Client::new(store.clone());
    let job = client.submit("wait", &()).await.expect("submitted");
    let running = || async { client.store().job(job).await.expect("a job").view.running };
    until("it runs", || async { running().await.is_some() }).await;
    let session = running().await.expect("it runs").session;
    client.store().close_session(session).await.expect("closed behind its back");
    assert_eq!(client.wait_for::<u32>(job).await, Ok(2));
    // Its lease was over: it was dropped without being told to stop, and the store would have refused its result.
    assert!(reasons.lock().expect("no panic").iter().all(|reason| *reason == CancelReason::LeaseLost));
    worker.drain().await;
}

/// A store that takes exchanges but cannot be looked into.
struct Blind {
    store: Arc<MemoryStore>,
    looks: AtomicU64,
}

#[async_trait]
impl Intercept for Blind {
    async fn command(&self, command: Command) -> qo::Result<Answer> {
        call(&*self.store, command).await
    }

    fn look(&self) -> qo::Result<&dyn Store> {
        self.looks.fetch_add(1, Ordering::SeqCst);
        Err(qo::Error::new(qo::ErrorKind::Unavailable, "looks fail"))
    }
}

#[tokio::test(start_paused = true)]
async fn a_worker_runs_jobs_and_asks_seldom_when_it_cannot_look_for_work() {
    let store = TokioClock::store();
    let blind = Arc::new(Intercepted(Blind { store: store.clone(), looks: AtomicU64::new(0) }));
    let nothing = |(): (), _: Context| async { Ok::<_, Failure>(()) };
    let worker = Running::start(Worker::builder(blind.clone()).own_threads(false).task("noop", nothing));
    let client = Client::new(store);
    // A job that becomes due while looks fail.
    let delay = Duration::from_secs(1);
    let job = client.submit("noop", &()).delay(delay).await.expect("submitted");
    // Every renewal claims, too.
    assert_eq!(ended(&client, job).await.view.state, JobState::Succeeded);
    tokio::time::sleep(Duration::from_secs(60)).await;
    let looks = blind.0.looks.load(Ordering::SeqCst);
    assert!(looks < 600, "{looks} looks in a minute");
    worker.drain().await;
}

#[tokio::test(start_paused = true)]
async fn a_handler_that_takes_its_time_to_stop_does_not_keep_the_store_busy() {
    let store = TokioClock::store();
    let deaf = |(): (), _: Context| std::future::pending::<Result<(), Failure>>();
    let builder = Worker::builder(store.clone()).own_threads(false).task("deaf", deaf);
    let worker = Running::start(builder.cancel_grace(Duration::from_secs(20)));
    let client = Client::new(store.clone());
    let job = client.submit("deaf", &()).await.expect("submitted");
    until("it runs", || async { client.store().job(job).await.expect("a job").view.running.is_some() }).await;
    let before = client.store().changed(None).await.expect("a count");
    client.store().cancel(vec![job]).await.expect("cancelled");
    assert_eq!(ended(&client, job).await.view.state, JobState::Cancelled);
    let changes = client.store().changed(None).await.expect("a count") - before;
    assert!(changes < 250, "{changes} changes in twenty seconds");
    worker.drain().await;
}

/// Records every call, and when it was made.
struct Scribe {
    store: Arc<FaultyStore>,
    started: Instant,
    calls: Mutex<Vec<String>>,
}

#[async_trait]
impl Intercept for Scribe {
    async fn command(&self, command: Command) -> qo::Result<Answer> {
        let line = format!("{:?} {command:?}", self.started.elapsed());
        self.calls.lock().expect("no panic").push(line);
        call(&*self.store, command).await
    }

    fn look(&self) -> qo::Result<&dyn Store> {
        Ok(&*self.store)
    }
}

fn trace(seed: u64) -> Vec<String> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().start_paused(true).build();
    runtime.expect("a runtime").block_on(async {
        let store = TokioClock::store();
        let faulty = Arc::new(FaultyStore::new(store.clone(), seed, RATES));
        let scribe = Scribe { store: faulty, started: Instant::now(), calls: Mutex::default() };
        let scribe = Arc::new(Intercepted(scribe));
        let client = Client::new(store);
        let moody = |mood: u64, context: Context| async move {
            tokio::time::sleep(Duration::from_millis(mood * 3)).await;
            if mood % 3 == 1 && context.attempt() == 1 { Err(Failure::retry("once")) } else { Ok(mood) }
        };
        let options = WorkerOptions {
            name: Some(Name::parse("name", "worker").expect("a name")),
            max_concurrent_tasks: Some(4),
            memory_threshold_percent: 100,
            ..WorkerOptions::default()
        };
        let builder = Worker::builder(scribe.clone()).options(options).own_threads(false).seed(seed);
        let worker = Running::start(builder.task("moody", moody));
        for number in 0..30_u64 {
            let id = JobId(Uuid::from_u128(number.into()));
            client.submit("moody", &(number % 7)).id(id).await.expect("submitted");
        }
        for number in 0..30 {
            ended(&client, JobId(Uuid::from_u128(number))).await;
        }
        worker.drain().await;
        std::mem::take(&mut *scribe.0.calls.lock().expect("no panic"))
    })
}

#[test]
fn the_same_seed_makes_the_same_calls_at_the_same_times() {
    let first = trace(7);
    assert!(first.len() > 20, "{} calls", first.len());
    assert_eq!(first, trace(7));
    assert_ne!(first, trace(8));
}

/// Counts how often the worker fetches work.
struct Counted {
    store: Arc<MemoryStore>,
    fetches: AtomicU64,
}

#[async_trait]
impl Intercept for Counted {
    async fn command(&self, command: Command) -> qo::Result<Answer> {
        call(&*self.store, command).await
    }

    async fn fetch(&self, exchange: Exchange) -> qo::Result<Option<ExchangeReply>> {
        assert!(self.fetches.fetch_add(1, Ordering::SeqCst) < 1_000, "it asks without end");
        self.store.fetch(exchange).await
    }

    fn look(&self) -> qo::Result<&dyn Store> {
        Ok(&*self.store)
    }
}

/// A handler reports progress on its job and then loses it: the worker drops the report and does not send it for ever.
#[tokio::test(start_paused = true)]
async fn a_report_on_a_job_that_is_gone_does_not_keep_the_worker_busy() {
    let store = TokioClock::store();
    let counted = Arc::new(Intercepted(Counted { store: store.clone(), fetches: AtomicU64::new(0) }));
    let report = |(): (), context: Context| async move {
        context.progress(0.5, "half of it");
        context.cancelled().await;
        context.progress(0.6, "a bit more");
        Ok::<_, Failure>(())
    };
    let once = TaskConfig::new();
    let builder = Worker::builder(counted).own_threads(false).task_with("report", once, report);
    let worker = Running::start(builder);
    let client = Client::new(store.clone());
    let job = client.submit("report", &()).max_attempts(1).await.expect("submitted");
    until("it runs", || async { client.store().job(job).await.expect("a job").view.running.is_some() }).await;
    let token = client.store().job(job).await.expect("a job").view.running.expect("it runs").token;
    client.store().release_slot("report".parse().expect("a group"), token).await.expect("released");
    assert_eq!(ended(&client, job).await.view.state, JobState::Failed);
    tokio::time::sleep(Duration::from_secs(60)).await;
    worker.drain().await;
}
