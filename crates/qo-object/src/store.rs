//! A store over the log.

use crate::bucket::Bucket;
use crate::directory::Directory;
use crate::format::{self, Absent, Identity};
use crate::history;
use crate::log::{Log, numbered};
use crate::offer::{Offered, Offerer};
pub use crate::options::{Host, Options};
use crate::request::{Caller, Look, Request};
use crate::traffic::Traffic;
use crate::writer::Writer;
use async_trait::async_trait;
use object_store::{ObjectStore, local::LocalFileSystem};
use qo_core::{Answer, Book, Claim, Clock, Command, Error, ErrorKind, Exchange, ExchangeReply, FenceToken};
use qo_core::{GroupRef, JobDetail, JobId, State, Time, Watch, Work};
use qo_core::{Result, SessionId};
use std::sync::atomic::{AtomicBool, Ordering};
use std::{path::Path, sync::Arc, time::Duration};
use tokio::sync::{mpsc, oneshot, watch};

/// A namespace on objects. Several processes may open the same one.
#[derive(Debug, Clone)]
pub struct LogStore {
    requests: mpsc::Sender<Request>,
    log: Log,
    applied: watch::Receiver<u64>,
    /// A caller was told that something has changed, and has not looked yet.
    told: Arc<AtomicBool>,
    /// The namespace was not there before.
    has_made: bool,
}

/// What the thread of a log starts with.
struct Start {
    log: Log,
    clock: Option<Arc<dyn Clock>>,
    options: Options,
    applied: watch::Sender<u64>,
    requests: mpsc::Receiver<Request>,
    opened: oneshot::Sender<Result<()>>,
    light: bool,
}

impl LogStore {
    /// Opens the namespace in a directory. If there is none it is made, unless the options say otherwise. Everything is
    /// on the disk before it is acknowledged.
    pub async fn open_directory(directory: impl AsRef<Path>, options: Options) -> Result<Self> {
        Self::start_in_directory(directory.as_ref(), None, options, false).await
    }

    /// Opens the namespace in a directory for a light client, which does little more than submit: the state is not read
    /// until a call needs it.
    pub async fn open_directory_to_submit(directory: impl AsRef<Path>, options: Options) -> Result<Self> {
        Self::start_in_directory(directory.as_ref(), None, options, true).await
    }

    /// Opens the namespace in a directory, with a clock of its own.
    pub async fn open_directory_by(
        directory: impl AsRef<Path>,
        clock: Arc<dyn Clock>,
        options: Options,
    ) -> Result<Self> {
        Self::start_in_directory(directory.as_ref(), Some(clock), options, false).await
    }

    async fn start_in_directory(
        path: &Path,
        clock: Option<Arc<dyn Clock>>,
        options: Options,
        light: bool,
    ) -> Result<Self> {
        let place = format!("file:{}", path.display());
        if options.absent != Absent::Make {
            let nothing = |error: Error| match error.kind() {
                ErrorKind::NotFound => format::absent(options.absent, &place),
                _ => error,
            };
            // Check before anything is made there.
            let log = existing_log(path).map_err(nothing)?;
            format::is_to_be_made(&log, options.absent, &place).await?;
        }
        Self::start_in(directory_log(path)?, &place, clock, options, light).await
    }

    /// Makes the namespace if it is not there, and opens it.
    async fn start_in(
        log: Log,
        place: &str,
        clock: Option<Arc<dyn Clock>>,
        options: Options,
        light: bool,
    ) -> Result<Self> {
        let has_made =
            format::is_to_be_made(&log, options.absent, place).await? && format::make(&log).await?;
        Ok(Self { has_made, ..Self::start(log, clock, options, light).await? })
    }

    /// Opens the namespace in a bucket. If there is none yet, this process tries the bucket's server out first:
    /// `Invalid` if it does not create objects atomically.
    pub async fn open_bucket(bucket: &Bucket, options: Options) -> Result<Self> {
        Self::start_in_bucket(bucket, options, false).await
    }

    /// Opens the namespace in a bucket for a light client, which does little more than submit.
    pub async fn open_bucket_to_submit(bucket: &Bucket, options: Options) -> Result<Self> {
        Self::start_in_bucket(bucket, options, true).await
    }

    async fn start_in_bucket(bucket: &Bucket, options: Options, light: bool) -> Result<Self> {
        let traffic = Arc::new(Traffic::default());
        // The thread of the log and its callers have connections of their own: a connection lives on the runtime that
        // made it.
        let ours = Log::in_bucket(bucket.objects(&traffic)?, Arc::clone(&traffic)).at(bucket);
        let theirs =
            Log::in_bucket(bucket.objects(&traffic)?, Arc::clone(&traffic)).at(bucket).knowing(&ours);
        let has_made = bucket.prepare(&ours, options.absent).await?;
        let store = Self::start(theirs, None, options, light).await?;
        Ok(Self { log: ours, has_made, ..store })
    }

    /// Whether this process made the namespace when it opened it.
    pub fn has_made(&self) -> bool {
        self.has_made
    }

    /// Which namespace it is. A light client learns this with its first submit.
    pub fn identity(&self) -> Option<Identity> {
        self.log.identity()
    }

    /// The requests to a bucket, and the dates of its answers; none if this is not in one.
    pub fn traffic(&self) -> Option<&Arc<Traffic>> {
        self.log.medium().traffic()
    }

    /// Opens the namespace in an object store, with a clock of its own.
    pub async fn open(
        objects: Arc<dyn ObjectStore>,
        clock: Arc<dyn Clock>,
        options: Options,
    ) -> Result<Self> {
        Self::start_in(Log::new(objects), "the object store", Some(clock), options, false).await
    }

    /// Opens the namespace in an object store, on the time that the store itself keeps.
    pub async fn open_objects(objects: Arc<dyn ObjectStore>, options: Options) -> Result<Self> {
        Self::start_in(Log::new(objects), "the object store", None, options, false).await
    }

    /// Opens the namespace in an object store that puts the date of each of its answers into `traffic`, as a bucket
    /// does: for simulations of one.
    pub async fn open_dated(
        objects: Arc<dyn ObjectStore>,
        traffic: Arc<Traffic>,
        options: Options,
    ) -> Result<Self> {
        Self::start_in(Log::in_bucket(objects, traffic), "the object store", None, options, false).await
    }

    /// Opens the namespace in an object store for a light client, which does little more than submit.
    pub async fn open_objects_to_submit(objects: Arc<dyn ObjectStore>, options: Options) -> Result<Self> {
        Self::start_in(Log::new(objects), "the object store", None, options, true).await
    }

    async fn start(log: Log, clock: Option<Arc<dyn Clock>>, options: Options, light: bool) -> Result<Self> {
        let (sender, requests) = mpsc::channel(1_000);
        let (opened, result) = oneshot::channel();
        let (applying, applied) = watch::channel(0);
        let host = options.host;
        let start = Start { log: log.clone(), clock, options, applied: applying, requests, opened, light };
        match host {
            Host::Thread => {
                let thread = std::thread::Builder::new().name("qo-log".into());
                let spawned = thread.spawn(move || start.run_on_a_thread());
                spawned.map_err(|error| Error::new(ErrorKind::Unavailable, format!("no thread: {error}")))?;
            }
            Host::Runtime => {
                tokio::spawn(start.run());
            }
        }
        result.await.unwrap_or_else(|_| Err(stopped()))?;
        Ok(Self { requests: sender, log, applied, told: Arc::default(), has_made: false })
    }

    /// Sends a request that is answered when it is on the disk.
    async fn request(&self, request: impl FnOnce(Caller) -> Request) -> Result<Answer> {
        let (caller, answered) = oneshot::channel();
        let sent = self.requests.send(request(caller)).await;
        sent.map_err(|_| stopped())?;
        // The thread stopped while it had the command, so the record may be there.
        let unknown = |_| Err(Error::new(ErrorKind::Unknown, stopped().message()));
        answered.await.unwrap_or_else(unknown)
    }

    async fn ask<T>(
        &self,
        request: impl FnOnce(Look) -> Request,
        look: impl FnOnce(&mut State, Time, &dyn Watch) -> Result<T> + Send + 'static,
    ) -> Result<T>
    where
        T: Send + 'static,
    {
        let (seen, shown) = oneshot::channel();
        let look = move |state: Result<(&mut State, Time, &dyn Watch)>| {
            seen.send(state.and_then(|(state, now, watch)| look(state, now, watch))).ok();
        };
        let sent = self.requests.send(request(Box::new(look))).await;
        sent.map_err(|_| stopped())?;
        shown.await.unwrap_or_else(|_| Err(stopped()))
    }
}

/// The log in a directory, which is made if it is not there.
fn directory_log(path: &Path) -> Result<Log> {
    log_in(Directory::open(path)?, path)
}

/// The log in a directory that is there. Nothing is made.
pub(crate) fn existing_log(path: &Path) -> Result<Log> {
    log_in(Directory::existing(path)?, path)
}

fn log_in(directory: Directory, path: &Path) -> Result<Log> {
    let unusable = |error| Error::new(ErrorKind::Unavailable, format!("store {}: {error}", path.display()));
    let unsynced = LocalFileSystem::new_with_prefix(path).map_err(unusable)?;
    let objects = LocalFileSystem::new_with_prefix(path).map_err(unusable)?.with_fsync(true);
    Ok(Log::in_directory(Arc::new(objects), Arc::new(unsynced), directory))
}

impl Start {
    fn run_on_a_thread(self) {
        match tokio::runtime::Builder::new_current_thread().enable_all().build() {
            Ok(runtime) => runtime.block_on(self.run()),
            Err(error) => {
                let error = Error::new(ErrorKind::Unavailable, format!("no runtime: {error}"));
                self.opened.send(Err(error)).ok();
            }
        }
    }

    async fn run(self) {
        let Self { log, clock, options, applied, mut requests, opened, light } = self;
        if !light {
            match Writer::open(log, clock, options, applied).await {
                Ok(writer) => {
                    opened.send(Ok(())).ok();
                    writer.run(Vec::new(), requests).await;
                }
                Err(error) => {
                    opened.send(Err(error)).ok();
                }
            }
            return;
        }
        opened.send(Ok(())).ok();
        while let Some(request) = Self::offer_while_possible(&log, &options, &mut requests).await {
            match Writer::open(log.clone(), clock.clone(), options.clone(), applied.clone()).await {
                Ok(writer) => return writer.run(vec![request], requests).await,
                // The next call that needs the state tries again.
                Err(error) => Self::refuse(error, request),
            }
        }
    }

    /// Offers what can be offered. Returns the first request that needs the state, if there is one.
    async fn offer_while_possible(
        log: &Log,
        options: &Options,
        requests: &mut mpsc::Receiver<Request>,
    ) -> Option<Request> {
        let mut offerer = Offerer::new(log.clone(), options.clone());
        loop {
            let (command, caller) = match requests.recv().await? {
                Request::Decide(command, caller) => (command, caller),
                Request::Finish(done) => {
                    done.send(()).ok();
                    continue;
                }
                other => return Some(other),
            };
            match offerer.offer(&command).await {
                Ok(Offered::Yes(submitted)) => {
                    caller.send(Ok(Answer::Submitted(submitted))).ok();
                }
                Ok(Offered::NeedsState) => return Some(Request::Decide(command, caller)),
                Err(error) => {
                    caller.send(Err(error)).ok();
                }
            }
        }
    }

    /// The state could not be opened: the caller that needs it gets the error.
    fn refuse(error: Error, request: Request) {
        match request {
            Request::Decide(_, caller) | Request::Fetch(_, caller) => {
                caller.send(Err(error)).ok();
            }
            Request::Look(look) | Request::Glance { look, .. } => look(Err(error)),
            Request::Finish(done) => {
                done.send(()).ok();
            }
        }
    }
}

fn stopped() -> Error {
    Error::new(ErrorKind::Internal, "the log has stopped: a guarantee was broken, or it contradicts itself")
}

#[async_trait]
impl Book for LogStore {
    fn identity(&self) -> Option<String> {
        self.log.identity()?.id.map(|id| id.to_string())
    }

    async fn decide(&self, command: Command) -> Result<Answer> {
        let ends_hold = matches!(
            command,
            Command::SetLimit(GroupRef::Cluster, _) | Command::UnsetLimit(GroupRef::Cluster)
        );
        let answer = self.request(|caller| Request::Decide(Box::new(command), caller)).await?;
        if ends_hold && let Err(error) = format::end_holds(&self.log).await {
            // The limit is set. The next call that sets it, or releases the hold, ends the hold.
            tracing::warn!("the limit of cluster is set, and the hold of a repair is still there: {error}");
        }
        Ok(answer)
    }

    async fn fetch(&self, exchange: Exchange) -> Result<Option<ExchangeReply>> {
        match self.request(|caller| Request::Fetch(Box::new(exchange), caller)).await? {
            Answer::Exchanged(reply) => Ok(Some(*reply)),
            _ => Ok(None),
        }
    }

    async fn look<T, F>(&self, look: F) -> Result<T>
    where
        T: Send + 'static,
        F: FnOnce(&mut State, Time) -> T + Send + 'static,
    {
        self.ask(Request::Look, move |state, now, _| Ok(look(state, now))).await
    }

    async fn work(&self, session: SessionId, claim: Claim) -> Result<Work> {
        // Read the change counter before the look, so that no change is missed.
        let seen = *self.applied.borrow();
        let is_told = self.told.swap(false, Ordering::SeqCst);
        let glance = move |look| Request::Glance { look, is_told };
        let work =
            move |state: &mut State, now, watch: &dyn Watch| state.work_watching(now, session, claim, watch);
        let work = self.ask(glance, work).await?;
        Ok(Work { seen, ..work })
    }

    async fn changed(&self, seen: Option<u64>) -> Result<u64> {
        let mut applied = self.applied.clone();
        let Some(seen) = seen else { return Ok(*applied.borrow()) };
        let now = *applied.wait_for(|applied| *applied > seen).await.map_err(|_| stopped())?;
        self.told.store(true, Ordering::SeqCst);
        Ok(now)
    }

    async fn finish(&self) {
        let (done, is_done) = oneshot::channel();
        if self.requests.send(Request::Finish(done)).await.is_ok() {
            is_done.await.ok();
        }
    }

    fn renewals_cost(&self) -> bool {
        self.log.medium().policy().requests_cost
    }

    fn coarseness(&self) -> Duration {
        self.log.medium().policy().coarseness
    }

    async fn archived(&self, job: JobId) -> Result<Option<JobDetail>> {
        history::find(&self.log, job).await
    }

    async fn keep_log(&self, token: FenceToken, log: String) -> Result<()> {
        // In another namespace it would be the log of a claim that no record has.
        format::confirm(&self.log).await?;
        self.log.medium().write(&attempt_log(token), log.into_bytes()).await
    }

    async fn log(&self, token: FenceToken) -> Result<Option<String>> {
        let bytes = self.log.medium().get(&attempt_log(token)).await?;
        Ok(bytes.map(|bytes| String::from_utf8_lossy(&bytes).into_owned()))
    }
}

/// The object of an attempt's log. Tokens grow, so the oldest come first.
fn attempt_log(token: FenceToken) -> object_store::path::Path {
    numbered("attempt", token.0)
}
