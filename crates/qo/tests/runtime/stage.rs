//! Stores to run on, and a worker that runs.

use qo::RetryPolicy;
use qo::core::{Clock, JobDetail, JobId, MemoryStore, Time};
use qo::{Client, Metrics, Result, ShutdownHandle, Store, Worker, WorkerBuilder};
use qo_object::{LogStore, Options};
use qo_server::Server;
use std::sync::Arc;
use std::time::Duration;
use tokio::task::JoinHandle;
use tokio::time::Instant;

/// Longest that anything here may take.
pub const PATIENCE: Duration = Duration::from_secs(30);

/// Runs a test on a store in memory, on one behind a server, and on one in a directory.
pub async fn on_every_store(test: impl AsyncFn(Arc<dyn Store>)) {
    test(Arc::new(MemoryStore::new())).await;
    test(behind_a_server().await).await;
    let folder = tempfile::tempdir().expect("a folder");
    let log = LogStore::open_directory(folder.path(), Options::default()).await.expect("a namespace");
    test(Arc::new(log)).await;
}

/// A store in memory behind a server, which ends with the runtime of the test.
async fn behind_a_server() -> Arc<dyn Store> {
    let listener = qo_server::bind("127.0.0.1:0").await.expect("a free port");
    let store = Arc::new(MemoryStore::new());
    let server = Server::new(listener, store, qo_server::Options::default()).expect("a server");
    let url = format!("http://{}", server.address());
    tokio::spawn(server.run());
    qo::connect(&url).await.expect("it answers")
}

/// Store time that goes with the (paused) time of tokio.
pub struct TokioClock(Instant);

impl TokioClock {
    pub fn store() -> Arc<MemoryStore> {
        Arc::new(MemoryStore::with_clock(Arc::new(Self(Instant::now()))))
    }
}

impl Clock for TokioClock {
    fn now(&self) -> Time {
        Time::from_millis(1_800_000_000_000).plus_ms(self.0.elapsed().as_millis() as u64)
    }
}

/// A worker that runs.
pub struct Running {
    pub shutdown: ShutdownHandle,
    pub metrics: Arc<Metrics>,
    result: JoinHandle<Result<()>>,
}

impl Running {
    pub fn start(builder: WorkerBuilder) -> Self {
        let worker: Worker = builder.build().expect("a worker");
        let (shutdown, metrics) = (worker.shutdown_handle(), worker.metrics());
        Self { shutdown, metrics, result: tokio::spawn(worker.run()) }
    }

    pub async fn end(self) -> Result<()> {
        tokio::time::timeout(PATIENCE, self.result).await.expect("it ends").expect("no panic")
    }

    pub async fn drain(self) {
        self.shutdown.drain();
        self.end().await.expect("it ends well");
    }
}

pub async fn ended(client: &Client, job: JobId) -> JobDetail {
    tokio::time::timeout(PATIENCE, client.wait(job)).await.expect("it ends").expect("a job")
}

/// Waits until a look at something says yes.
pub async fn until<F: Future<Output = bool>>(what: &str, mut look: impl FnMut() -> F) {
    let waiting = async {
        while !look().await {
            tokio::time::sleep(Duration::from_millis(2)).await;
        }
    };
    tokio::time::timeout(PATIENCE, waiting).await.unwrap_or_else(|_| panic!("never: {what}"));
}

/// Another try at once.
pub fn at_once() -> RetryPolicy {
    RetryPolicy::immediately()
}
