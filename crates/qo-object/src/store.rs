//! A store over the log.

use crate::log::{Created, Log};
use crate::writer::{Request, Writer};
use async_trait::async_trait;
use object_store::{ObjectStore, local::LocalFileSystem};
use qo_core::{Answer, Book, Claim, Clock, Command, Error, ErrorKind, FenceToken, Result, SessionId};
use qo_core::{State, SystemClock, Work};
use std::{path::Path, sync::Arc, time::Duration};
use tokio::sync::{mpsc, oneshot, watch};

/// How a namespace is kept.
#[derive(Debug, Clone)]
pub struct Options {
    /// How often a write is tried whose outcome is not known. Defaults to 10.
    pub attempts: u32,
    /// How long to wait between two such tries. Defaults to 100 ms.
    pub pause: Duration,
    /// A snapshot is written after every so many records. Defaults to 1,000.
    pub snapshot_every: u64,
}

impl Default for Options {
    fn default() -> Self {
        Self { attempts: 10, pause: Duration::from_millis(100), snapshot_every: 1_000 }
    }
}

/// A namespace on objects. Several processes may open the same one.
#[derive(Debug, Clone)]
pub struct LogStore {
    requests: mpsc::Sender<Request>,
    log: Log,
    applied: watch::Receiver<u64>,
    clock: Arc<ClockOf>,
}

#[derive(Clone)]
struct ClockOf(Arc<dyn Clock>);

impl std::fmt::Debug for ClockOf {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Clock")
    }
}

impl LogStore {
    /// Opens the namespace in a directory, which is made if it is not there. Everything is on the disk before it is
    /// acknowledged.
    pub async fn open_directory(directory: impl AsRef<Path>, options: Options) -> Result<Self> {
        let directory = directory.as_ref();
        let shown = directory.display().to_string();
        let unusable = |error: String| Error::new(ErrorKind::Unavailable, format!("store {shown}: {error}"));
        std::fs::create_dir_all(directory).map_err(|error| unusable(error.to_string()))?;
        let objects =
            LocalFileSystem::new_with_prefix(directory).map_err(|error| unusable(error.to_string()))?;
        let objects = Arc::new(objects.with_fsync(true));
        Self::open(objects, Arc::new(SystemClock::new()), options).await
    }

    /// Opens the namespace in an object store, with a clock of its own.
    pub async fn open(
        objects: Arc<dyn ObjectStore>,
        clock: Arc<dyn Clock>,
        options: Options,
    ) -> Result<Self> {
        let (requests, inbox) = mpsc::channel(1_000);
        let (opened, result) = oneshot::channel();
        let (applying, applied) = watch::channel(0);
        let log = Log::new(objects);
        let written = log.clone();
        let shown = Arc::new(ClockOf(Arc::clone(&clock)));
        // A thread of its own: what the caller's event loop does, or does not do, must not hold up a commit that others
        // wait for, and dropping a call must not leave a commit half done.
        let writer = move || {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build();
            let runtime = match runtime {
                Ok(runtime) => runtime,
                Err(error) => {
                    let error = Error::new(ErrorKind::Unavailable, format!("no runtime: {error}"));
                    opened.send(Err(error)).ok();
                    return;
                }
            };
            runtime.block_on(async {
                match Writer::open(written, clock, options, applying).await {
                    Ok(writer) => {
                        opened.send(Ok(())).ok();
                        writer.run(inbox).await;
                    }
                    Err(error) => {
                        opened.send(Err(error)).ok();
                    }
                }
            });
        };
        let thread = std::thread::Builder::new().name("qo-log".into()).spawn(writer);
        thread.map_err(|error| Error::new(ErrorKind::Unavailable, format!("no thread: {error}")))?;
        result.await.unwrap_or_else(|_| Err(stopped()))?;
        Ok(Self { requests, log, applied, clock: shown })
    }
}

fn stopped() -> Error {
    Error::new(ErrorKind::Internal, "the log has stopped: a guarantee was broken, or it contradicts itself")
}

#[async_trait]
impl Book for LogStore {
    async fn decide(&self, command: Command) -> Result<Answer> {
        let (answer, answered) = oneshot::channel();
        let sent = self.requests.send(Request::Decide(Box::new(command), answer)).await;
        sent.map_err(|_| stopped())?;
        // The thread stopped while it had the command: the record may be there.
        let unknown = |_| Err(Error::new(ErrorKind::Unknown, stopped().message()));
        answered.await.unwrap_or_else(unknown)
    }

    async fn look<T, F>(&self, look: F) -> Result<T>
    where
        T: Send + 'static,
        F: for<'a> FnOnce(&'a State) -> T + Send + 'static,
    {
        let (seen, shown) = oneshot::channel();
        let clock = Arc::clone(&self.clock.0);
        let look = move |state: Result<&mut State>| {
            seen.send(state.map(|state| state.at(clock.now(), look))).ok();
        };
        let sent = self.requests.send(Request::Look(Box::new(look))).await;
        sent.map_err(|_| stopped())?;
        shown.await.unwrap_or_else(|_| Err(stopped()))
    }

    async fn work(&self, session: SessionId, claim: Claim) -> Result<Work> {
        // Before the look: what happens meanwhile is then seen as a change, never missed.
        let seen = *self.applied.borrow();
        let (found, shown) = oneshot::channel();
        let clock = Arc::clone(&self.clock.0);
        let look = move |state: Result<&mut State>| {
            found.send(state.and_then(|state| state.work(clock.now(), session, claim))).ok();
        };
        let sent = self.requests.send(Request::Look(Box::new(look))).await;
        sent.map_err(|_| stopped())?;
        let work = shown.await.unwrap_or_else(|_| Err(stopped()))?;
        Ok(Work { seen, ..work })
    }

    async fn changed(&self, seen: Option<u64>) -> Result<u64> {
        let mut applied = self.applied.clone();
        let Some(seen) = seen else { return Ok(*applied.borrow()) };
        let now = applied.wait_for(|applied| *applied > seen).await.map_err(|_| stopped())?;
        Ok(*now)
    }

    async fn keep_log(&self, token: FenceToken, log: String) -> Result<()> {
        match self.log.create(&attempt_log(token), log.into_bytes()).await {
            Created::Done | Created::Exists => Ok(()),
            Created::Unknown(why) => Err(Error::new(ErrorKind::Unknown, why)),
        }
    }

    async fn log(&self, token: FenceToken) -> Result<Option<String>> {
        let bytes = self.log.get(&attempt_log(token)).await?;
        Ok(bytes.map(|bytes| String::from_utf8_lossy(&bytes).into_owned()))
    }
}

/// The object of an attempt's log. Tokens grow, so the oldest come first.
fn attempt_log(token: FenceToken) -> object_store::path::Path {
    object_store::path::Path::from(format!("attempt/{:020}", token.0))
}
