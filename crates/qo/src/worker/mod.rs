//! The worker: takes jobs and runs their handlers.
//!
//! | module | what it holds |
//! |---|---|
//! | `builder`, `options`, `shutdown` | how a worker is made, how it behaves, how it ends |
//! | `fetch`, `look` | the one loop: when to exchange, when to look, when to wait |
//! | `session`, `exchange` | a session from its opening to its end; what an exchange asks for and brings |
//! | `run`, `attempt` | a handler under supervision |
//! | `finish` | what the worker tells the store when a handler has ended |
//! | `voice` | the events of each attempt, for logs |
//! | `lease` | whether the worker still owns the jobs that it runs |
//! | `pressure` | claiming less when memory is short or tasks are slow |
//!
//! The loop and the lease watch each have a thread of their own, so a handler that blocks the user's event loop stops
//! neither the renewal nor the watch. Handlers run on the runtime that [`Worker::run`] is called on.

pub(crate) mod attempt;
mod builder;
mod exchange;
mod fetch;
mod finish;
pub(crate) mod lease;
mod look;
mod options;
mod pressure;
mod run;
mod session;
mod shutdown;
mod voice;

pub use attempt::Unfinished;
pub use builder::{EXIT_STUCK, WorkerBuilder};
pub use lease::{margin, trusted_for};
pub use options::WorkerOptions;
pub(crate) use options::default_name;
pub use shutdown::ShutdownHandle;

use crate::context::CancelReason;
use crate::handler::Handler;
use crate::log::AttemptLogs;
use crate::metrics::{self, Metrics};
use attempt::Attempts;
use fetch::Fetcher;
use futures::FutureExt;
use lease::Watch;
use qo_core::{Error, ErrorKind, GroupRef, Name, Result, Store, TaskOptions};
use qo_object::Jitter;
use shutdown::{Phase, Signals};
use std::collections::BTreeMap;
use std::fmt;
use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use tokio::runtime::Handle;
use tokio::sync::{oneshot, watch};
use tokio::time::Instant;

/// What the parts of a worker share.
pub(crate) struct Shared {
    pub store: Arc<dyn Store>,
    pub options: WorkerOptions,
    pub name: Name,
    /// Jobs that it runs at once.
    pub permits: u32,
    pub tasks: Vec<TaskOptions>,
    pub handlers: BTreeMap<Name, Arc<dyn Handler>>,
    pub attempts: Arc<Attempts>,
    /// Keeps what handlers log.
    pub logs: Arc<AttemptLogs>,
    pub watch: Watch,
    pub metrics: Arc<Metrics>,
    pub phase: watch::Sender<Phase>,
    /// The loop and the lease watch have threads of their own.
    pub own_threads: bool,
}

/// A process's worker: handlers, and the session that gets them jobs.
///
/// ```
/// # async fn example() -> qo::Result<()> {
/// use qo::{Context, Failure, Worker};
///
/// async fn resize(path: String, context: Context) -> Result<u64, Failure> {
///     println!("{path}, try {}", context.attempt());
///     Ok(640)
/// }
///
/// let store = qo::connect("file:.qo").await?;
/// let worker = Worker::builder(store).task("resize", resize).build()?;
/// worker.run_until_signal().await?;
/// # Ok(())
/// # }
/// ```
pub struct Worker {
    shared: Arc<Shared>,
    jitter: Jitter,
}

impl fmt::Debug for Worker {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Worker").field("name", &self.shared.name).finish_non_exhaustive()
    }
}

impl Worker {
    /// A worker of a store, to be given its handlers.
    pub fn builder(store: Arc<dyn Store>) -> WorkerBuilder {
        WorkerBuilder::new(store)
    }

    /// What it is called.
    pub fn name(&self) -> &Name {
        &self.shared.name
    }

    /// Ends the worker, from anywhere.
    pub fn shutdown_handle(&self) -> ShutdownHandle {
        ShutdownHandle(Arc::clone(&self.shared))
    }

    /// What it counts.
    pub fn metrics(&self) -> Arc<Metrics> {
        Arc::clone(&self.shared.metrics)
    }

    /// Works until SIGTERM or SIGINT: the first drains, a second one releases, a third one ends the process at once.
    pub async fn run_until_signal(self) -> Result<()> {
        let obey = Signals::listen()?.obey(self.shutdown_handle());
        tokio::select! {
            result = self.run() => result,
            never = obey => match never {},
        }
    }

    /// Works until the [shutdown handle](Self::shutdown_handle) is used. Dropping the future releases the running jobs.
    ///
    /// While the store cannot be reached the worker keeps trying. An error means that it had to end: the store refuses
    /// the worker or is damaged, or a handler did not stop when the worker was released.
    pub async fn run(self) -> Result<()> {
        let runtime = Handle::try_current().map_err(|error| {
            Error::new(ErrorKind::Invalid, format!("a worker runs on a tokio runtime: {error}"))
        })?;
        let shown = metrics::endpoint(&self.shared.name, &self.shared.options, &self.shared.metrics)?;
        self.say_hello();
        let _release = ReleaseOnDrop(self.shutdown_handle());
        let Self { shared, jitter } = self;
        let own_threads = shared.own_threads;
        let (done, result) = oneshot::channel();
        let fetcher = Fetcher::new(Arc::clone(&shared), runtime, jitter);
        let watched = Arc::clone(&shared);
        let shows = shown.is_some();
        let watch = async move { watched.watch.run().await };
        // It ends when the worker does: that drops the sender.
        let (_ending, ended) = oneshot::channel::<()>();
        let show = async move {
            let Some((endpoint, registry)) = shown else { return };
            tokio::select! {
                result = endpoint.serve(registry) => if let Err(error) = result {
                    tracing::error!("the metrics cannot be shown: {error}");
                },
                _ = ended => {}
            }
        };
        let work = async move {
            let result = AssertUnwindSafe(fetcher.run()).catch_unwind().await.unwrap_or_else(|_| {
                shared.attempts.cancel_all(CancelReason::LeaseLost, Instant::now());
                Err(Error::new(ErrorKind::Internal, "the worker's loop panicked"))
            });
            shared.watch.end();
            // The receiver is gone if the caller has dropped the future.
            done.send(result).ok();
        };
        if own_threads {
            thread("qo-lease", watch)?;
            thread("qo-worker", work)?;
            if shows {
                thread("qo-metrics", show)?;
            }
        } else {
            tokio::spawn(watch);
            tokio::spawn(work);
            tokio::spawn(show);
        }
        let gone = |_| Err(Error::new(ErrorKind::Internal, "the worker's loop is gone"));
        result.await.unwrap_or_else(gone)
    }

    fn say_hello(&self) {
        let options = &self.shared.options;
        let cap = options.configuration.as_ref().and_then(|said| said.limits.get(&GroupRef::Cluster));
        let shown = |limit: Option<&u32>| limit.map_or_else(|| "none".to_owned(), u32::to_string);
        let held = match options.claim.max_claim_per_worker {
            0 => self.shared.permits.saturating_add(options.claim.prefetch_buffer),
            held => held,
        };
        tracing::info!(
            worker = %self.shared.name,
            "Concurrency config: processes={}, cluster_wide_cap={}, max_claim_per_worker={held}, max_claim_batch={}",
            self.shared.permits,
            shown(cap),
            shown(options.claim.max_claim_batch.as_ref()),
        );
    }
}

struct ReleaseOnDrop(ShutdownHandle);

impl Drop for ReleaseOnDrop {
    fn drop(&mut self) {
        self.0.release();
    }
}

/// Runs something on a thread and a runtime of its own.
fn thread(name: &str, future: impl Future<Output = ()> + Send + 'static) -> Result<()> {
    let failed =
        |error| Error::new(ErrorKind::Unavailable, format!("cannot start the thread {name}: {error}"));
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().map_err(failed)?;
    let run = move || runtime.block_on(future);
    std::thread::Builder::new().name(name.to_owned()).spawn(run).map_err(failed)?;
    Ok(())
}
