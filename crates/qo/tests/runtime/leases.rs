//! What happens when a worker cannot be sure that it still owns the jobs that it runs.

use crate::stage::{Running, TokioClock, until};
use async_trait::async_trait;
use qo::core::{Answer, Command, MemoryStore, Result};
use qo::{CancelReason, Client, Context, Failure, Store, TaskConfig, Worker};
use qo_testkit::generator::call;
use qo_testkit::intercept::{Intercept, Intercepted};
use std::future::pending;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Arc, Mutex, mpsc};
use std::time::Duration;
use tokio::time::Instant;

/// A store that can be cut off: then it never answers a call.
struct Cable {
    store: Arc<MemoryStore>,
    cut: AtomicBool,
}

#[async_trait]
impl Intercept for Cable {
    async fn command(&self, command: Command) -> Result<Answer> {
        if self.cut.load(Ordering::SeqCst) {
            pending::<()>().await;
        }
        call(&*self.store, command).await
    }

    fn look(&self) -> Result<&dyn Store> {
        Ok(&*self.store)
    }
}

impl Cable {
    fn to(store: Arc<MemoryStore>) -> Arc<Intercepted<Self>> {
        Arc::new(Intercepted(Self { store, cut: AtomicBool::new(false) }))
    }

    fn cut(&self, cut: bool) {
        self.cut.store(cut, Ordering::SeqCst);
    }
}

#[tokio::test(start_paused = true)]
async fn a_worker_tells_then_drops_its_handlers_before_its_lease_can_be_over() {
    let store = TokioClock::store();
    let cable = Cable::to(store.clone());
    let log = Arc::new(Mutex::new(Vec::new()));
    let written = log.clone();
    /// Notes when it is dropped.
    struct Dropped(Arc<Mutex<Vec<(String, Instant)>>>);
    impl Drop for Dropped {
        fn drop(&mut self) {
            self.0.lock().expect("no panic").push(("dropped".into(), Instant::now()));
        }
    }
    let deaf = move |(): (), context: Context| {
        let written = written.clone();
        async move {
            let _dropped = Dropped(written.clone());
            let reason = context.cancelled().await;
            assert!(context.is_cancelled());
            written.lock().expect("no panic").push((format!("{reason:?}"), Instant::now()));
            pending::<Result<(), Failure>>().await
        }
    };
    let lease = Duration::from_secs(30);
    let builder = Worker::builder(cable.clone()).own_threads(false).lease(lease).task("deaf", deaf);
    let stuck = |_| panic!("what was dropped is not stuck");
    let worker = Running::start(builder.on_stuck(stuck));
    let client = Client::new(store.clone());
    let job = client.submit("deaf", &()).await.expect("submitted");
    let running = || async { client.store().job(job).await.expect("a job").view.running };
    until("it runs", || async { running().await.is_some() }).await;
    let cut_at = Instant::now();
    cable.0.cut(true);
    until("it is dropped", || async { log.lock().expect("no panic").len() == 2 }).await;
    let log = log.lock().expect("no panic").clone();
    assert_eq!((&*log[0].0, &*log[1].0), (&*format!("{:?}", CancelReason::LeaseLost), "dropped"));
    // The last renewal was at most 10 s before the cut; the margin is 3 s.
    let (told, dropped) = (log[0].1 - cut_at, log[1].1 - cut_at);
    assert!(told >= Duration::from_secs(17) && told <= Duration::from_secs(27), "{told:?}");
    assert_eq!(dropped - told, Duration::from_millis(1_500));
    let lease_ends = running().await.expect("it has not ended").lease_until;
    assert!(client.store().now().await.expect("a time") < lease_ends);
    // The store may stay silent for any time.
    tokio::time::sleep(Duration::from_secs(60)).await;
    cable.0.cut(false);
    until("it runs again", || async { running().await.is_some_and(|now| now.lease_until > lease_ends) })
        .await;
    worker.shutdown.release();
    worker.end().await.expect("it ends well");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_handler_that_cannot_be_dropped_ends_the_process_after_the_grace() {
    let store = Arc::new(MemoryStore::new());
    let cable = Cable::to(store.clone());
    let (end, ended) = mpsc::channel::<()>();
    let ended = Mutex::new(ended);
    let block = move |(): (), context: Context| -> Result<bool, Failure> {
        ended.lock().expect("no panic").recv().ok();
        Ok(context.is_cancelled())
    };
    let stuck = Arc::new(AtomicU32::new(0));
    let noticed = stuck.clone();
    let builder = Worker::builder(cable.clone())
        .lease(Duration::from_millis(300))
        .cancel_grace(Duration::from_millis(50))
        .on_stuck(move |_| {
            noticed.fetch_add(1, Ordering::SeqCst);
        })
        .blocking_task("block", TaskConfig::new(), block);
    let worker = Running::start(builder);
    let client = Client::new(store.clone());
    let job = client.submit("block", &()).await.expect("submitted");
    until("it runs", || async { client.store().job(job).await.expect("a job").view.running.is_some() }).await;
    cable.0.cut(true);
    until("the watch notices", || async { stuck.load(Ordering::SeqCst) > 0 }).await;
    assert_eq!(worker.metrics.counts().in_flight_tasks, 1, "it counts as long as it runs");
    cable.0.cut(false);
    drop(end);
    worker.drain().await;
    assert_eq!(stuck.load(Ordering::SeqCst), 1, "once is enough");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_handler_that_blocks_ends_the_process_before_its_lease_is_over() {
    let store = Arc::new(MemoryStore::new());
    let cable = Cable::to(store.clone());
    let (end, ended) = mpsc::channel::<()>();
    let ended = Mutex::new(ended);
    let block = move |(): (), _: Context| -> Result<(), Failure> {
        ended.lock().expect("no panic").recv().ok();
        Ok(())
    };
    let (stuck, mut noticed) = tokio::sync::mpsc::unbounded_channel();
    let (lease, from) = (Duration::from_secs(2), std::time::Instant::now());
    let builder = Worker::builder(cable.clone())
        .lease(lease)
        // The grace is for handlers whose lease goes on.
        .cancel_grace(Duration::from_secs(600))
        .on_stuck(move |_| stuck.send(from.elapsed()).expect("the test listens"))
        .blocking_task("block", TaskConfig::new(), block);
    let worker = Running::start(builder);
    let client = Client::new(store.clone());
    let job = client.submit("block", &()).await.expect("submitted");
    let running = || async { client.store().job(job).await.expect("a job").view.running };
    until("it runs", || async { running().await.is_some() }).await;
    cable.0.cut(true);
    let cut_at = from.elapsed();
    let stuck_at = noticed.recv().await.expect("the watch notices");
    assert!(stuck_at < cut_at + lease, "{:?} after the cut", stuck_at - cut_at);
    cable.0.cut(false);
    drop(end);
    worker.drain().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_handler_that_blocks_ends_the_process_once_its_claim_has_ended() {
    let store = Arc::new(MemoryStore::new());
    let (end, ended) = mpsc::channel::<()>();
    let ended = Mutex::new(ended);
    let block = move |(): (), _: Context| -> Result<(), Failure> {
        ended.lock().expect("no panic").recv().ok();
        Ok(())
    };
    let (stuck, mut noticed) = tokio::sync::mpsc::unbounded_channel();
    let builder = Worker::builder(store.clone())
        .cancel_grace(Duration::from_millis(50))
        .on_stuck(move |token| stuck.send(token).expect("the test listens"))
        .blocking_task("block", TaskConfig::new().max_concurrent(1), block);
    let worker = Running::start(builder);
    let client = Client::new(store.clone());
    let job = client.submit("block", &()).await.expect("submitted");
    let running = || async { client.store().job(job).await.expect("a job").view.running };
    until("it runs", || async { running().await.is_some() }).await;
    let token = running().await.expect("it runs").token;
    // Its slot is free: the job that takes it must not run beside it for ever.
    store.release_slot("block".parse().expect("a group"), token).await.expect("released");
    assert_eq!(noticed.recv().await, Some(token));
    drop(end);
    worker.drain().await;
}

#[tokio::test]
async fn a_handler_that_blocks_the_event_loop_does_not_stop_the_renewal() {
    let store = Arc::new(MemoryStore::new());
    let (block, blocked) = mpsc::channel::<()>();
    let blocked = Mutex::new(blocked);
    let rude = move |(): (), _: Context| {
        // The whole event loop waits here, for four leases.
        let waited = blocked.lock().expect("no panic").recv_timeout(Duration::from_millis(1_200));
        async move { Ok::<_, Failure>(waited.is_err()) }
    };
    let builder = Worker::builder(store.clone()).lease(Duration::from_millis(300)).task("rude", rude);
    let worker = Running::start(builder);
    let client = Client::new(store.clone());
    let job = client.submit("rude", &()).await.expect("submitted");
    // Another process sweeps all the time.
    let sweeper = store.clone();
    let (stop, stopped) = mpsc::channel::<()>();
    let sweeping = std::thread::spawn(move || {
        while stopped
            .recv_timeout(Duration::from_millis(5))
            .is_err_and(|e| e == mpsc::RecvTimeoutError::Timeout)
        {
            sweeper.command(&Command::Sweep).expect("swept");
        }
    });
    assert_eq!(client.wait_for::<bool>(job).await, Ok(true));
    drop((stop, block));
    sweeping.join().expect("no panic");
    assert_eq!(client.store().job(job).await.expect("a job").attempts.len(), 1);
    worker.drain().await;
}
