//! A worker whose jobs do nothing, and the jobs: what is left to measure is qo.

use crate::machine::monotonic_ns;
use qo::core::{ClaimSettings, JobId, Json, Name, NewJob, caps};
use qo::{Client, Context, Error, ErrorKind, Failure, Result, ShutdownHandle, Store, Worker, WorkerOptions};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
use tokio::sync::Notify;
use tokio::task::JoinHandle;
use uuid::Uuid;

/// The task of the jobs.
pub const TASK: &str = "noop";
/// A task whose jobs never end by themselves.
pub const HOLD: &str = "hold";
/// Jobs that a worker runs at once.
pub const PERMITS: u32 = 2_000;
/// Jobs that a worker claims with one exchange.
pub const BATCH: u32 = 1_000;
/// Jobs that are submitted with one call.
pub const SUBMIT: usize = 1_000;
/// How long anything may take. A benchmark that hangs is a bug, and must say so.
const PATIENCE: Duration = Duration::from_secs(600);

/// What the jobs of a worker record.
#[derive(Debug, Default)]
pub struct Tally {
    done: AtomicU64,
    target: AtomicU64,
    reached: Notify,
    last_ns: AtomicU64,
    /// How long each job waited that carries the time of its submit, in milliseconds.
    waits_ms: Mutex<Vec<f64>>,
}

impl Tally {
    /// Jobs that are done.
    pub fn done(&self) -> u64 {
        self.done.load(Ordering::SeqCst)
    }

    /// When the last job was done, on the machine's monotonic clock.
    pub fn last_ns(&self) -> u64 {
        self.last_ns.load(Ordering::SeqCst)
    }

    /// How long each job waited that carries the time of its submit, in milliseconds.
    pub fn waits_ms(&self) -> Vec<f64> {
        self.waits_ms.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Counts a job, which may carry the time of its submit.
    fn count(&self, submitted_ns: Option<u64>) {
        let now = monotonic_ns();
        if let Some(submitted_ns) = submitted_ns {
            let wait_ms = now.saturating_sub(submitted_ns) as f64 / 1e6;
            self.waits_ms.lock().unwrap_or_else(PoisonError::into_inner).push(wait_ms);
        }
        self.last_ns.fetch_max(now, Ordering::SeqCst);
        if self.done.fetch_add(1, Ordering::SeqCst) + 1 >= self.target.load(Ordering::SeqCst) {
            self.reached.notify_one();
        }
    }

    /// Waits until this many jobs are done.
    pub async fn wait_for(&self, jobs: u64) -> Result<()> {
        self.target.store(jobs, Ordering::SeqCst);
        let waiting = async {
            while self.done() < jobs {
                self.reached.notified().await;
            }
        };
        let late = |_| {
            let what = format!("{} of {jobs} jobs were done after {PATIENCE:?}", self.done());
            Error::new(ErrorKind::Unavailable, what)
        };
        tokio::time::timeout(PATIENCE, waiting).await.map_err(late)
    }
}

/// A worker in this process whose jobs do nothing.
#[derive(Debug)]
pub struct Noop {
    /// What its jobs record.
    pub tally: Arc<Tally>,
    shutdown: ShutdownHandle,
    running: Running,
}

/// A worker that runs, and ends when this is dropped.
#[derive(Debug)]
struct Running(JoinHandle<Result<()>>);

impl Drop for Running {
    fn drop(&mut self) {
        self.0.abort();
    }
}

impl Noop {
    /// Starts it, and waits until it is ready.
    pub async fn start(store: &Arc<dyn Store>) -> Result<Self> {
        Self::start_with(store, options(), Arc::default()).await
    }

    /// The same with other options, and with a tally that several workers may share.
    pub async fn start_with(
        store: &Arc<dyn Store>,
        options: WorkerOptions,
        tally: Arc<Tally>,
    ) -> Result<Self> {
        let counted = Arc::clone(&tally);
        let noop = move |submitted_ns: Option<u64>, _: Context| {
            let tally = Arc::clone(&counted);
            async move {
                tally.count(submitted_ns);
                Ok::<(), Failure>(())
            }
        };
        let hold = |(): (), _: Context| std::future::pending::<std::result::Result<(), Failure>>();
        let worker =
            Worker::builder(Arc::clone(store)).options(options).task(TASK, noop).task(HOLD, hold).build()?;
        let name = worker.name().clone();
        let shutdown = worker.shutdown_handle();
        let running = Running(tokio::spawn(worker.run()));
        while !running.0.is_finished() && !store.workers().await?.iter().any(|worker| worker.worker == name) {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        Ok(Self { tally, shutdown, running })
    }

    /// Ends the worker, from anywhere.
    pub fn shutdown(&self) -> ShutdownHandle {
        self.shutdown.clone()
    }

    /// Drains the worker and waits until it has ended.
    pub async fn end(self) -> Result<Arc<Tally>> {
        self.shutdown.drain();
        self.wait().await
    }

    /// Waits until the worker has ended.
    pub async fn wait(mut self) -> Result<Arc<Tally>> {
        let gone = |error| Err(Error::new(ErrorKind::Internal, format!("the worker is gone: {error}")));
        (&mut self.running.0).await.unwrap_or_else(gone)?;
        Ok(self.tally)
    }
}

/// How the worker works.
pub fn options() -> WorkerOptions {
    WorkerOptions {
        max_concurrent_tasks: Some(PERMITS),
        claim: ClaimSettings { claim_batch_size: BATCH, ..ClaimSettings::default() },
        ..WorkerOptions::default()
    }
}

/// A job that does nothing.
pub fn job() -> Result<NewJob> {
    Ok(NewJob::new(JobId(Uuid::now_v7()), Name::parse("task", TASK)?))
}

/// A job that carries the present time as that of its submit.
pub fn job_of_now() -> Result<NewJob> {
    Ok(NewJob { payload: Json::parse("payload", &monotonic_ns().to_string())?, ..job()? })
}

/// This many jobs, in calls of the usual size.
pub fn jobs(count: u64, make: impl Fn(u64) -> Result<NewJob>) -> Result<Vec<Vec<NewJob>>> {
    calls(count, SUBMIT, make)
}

/// This many jobs, in calls of this size.
pub fn calls(count: u64, size: usize, make: impl Fn(u64) -> Result<NewJob>) -> Result<Vec<Vec<NewJob>>> {
    let all: Vec<NewJob> = (0..count).map(make).collect::<Result<_>>()?;
    Ok(all.chunks(size.min(caps::SUBMIT_JOBS)).map(<[NewJob]>::to_vec).collect())
}

/// Submits them, call by call.
pub async fn submit(store: &Arc<dyn Store>, calls: Vec<Vec<NewJob>>) -> Result<()> {
    let client = Client::new(Arc::clone(store));
    for call in calls {
        for submitted in client.submit_many(call).await? {
            submitted?;
        }
    }
    Ok(())
}

/// An error unless exactly this many jobs live: the figure of a round that lost or kept jobs is worth nothing.
pub async fn check_left(store: &Arc<dyn Store>, expected: u64) -> Result<()> {
    let queues = store.queues().await?;
    let live: u64 = queues
        .iter()
        .map(|queue| queue.running + queue.claimed + queue.due + queue.scheduled + queue.waiting)
        .sum();
    if live == expected {
        return Ok(());
    }
    let what = format!("{live} jobs are left of a round that should leave {expected}");
    Err(Error::new(ErrorKind::Internal, what))
}
