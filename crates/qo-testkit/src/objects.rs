//! Objects in memory that fail, stall and give wrong answers, by dice: the faults that a log must survive. Their time
//! is the runtime's, so that a simulation with paused time runs at once and the same seed gives the same history.

use crate::START;
use crate::random::Random;
use async_trait::async_trait;
use chrono::{DateTime, Utc};
use futures::StreamExt;
use futures::stream::{self, BoxStream};
use object_store::{
    CopyOptions, GetOptions, GetResult, ListResult, MultipartUpload, ObjectMeta, ObjectStore, ObjectStoreExt,
};
use object_store::{
    PutMode, PutMultipartOptions, PutOptions, PutPayload, PutResult, Result, memory::InMemory, path::Path,
};
use std::collections::{BTreeMap, HashMap};
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tokio::time::{Instant, sleep};

/// What goes wrong, in percent of the requests.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct ObjectFaults {
    /// Requests that fail and did nothing.
    pub before: u32,
    /// Writes and deletions that happen, and whose answer is lost.
    pub after: u32,
    /// Creations that the store could not decide: refused as if the object were there, and nothing happened.
    pub undecided: u32,
    /// Creations that happen and are then answered as if another client had been first: a retry inside the client or a
    /// proxy made them twice.
    pub repeated: u32,
    /// Writes of anything but records that leave half of it: correctness must not depend on a snapshot.
    pub torn: u32,
    /// How long, in milliseconds, an object is in no listing after it was written.
    pub late_ms: u64,
    /// The longest a request takes, in milliseconds: some of it before and some after the request takes effect.
    pub delay_ms: u64,
    /// What every request takes besides, half of it before and half after it takes effect.
    pub always_ms: u64,
}

/// An object store with these faults.
#[derive(Clone)]
pub struct FaultyObjects {
    inner: Arc<InMemory>,
    stamps: Arc<Mutex<HashMap<Path, DateTime<Utc>>>>,
    dice: Arc<Mutex<Random>>,
    faults: Arc<Mutex<ObjectFaults>>,
    hold: Arc<Mutex<Option<Duration>>>,
    happened: Arc<Mutex<BTreeMap<&'static str, u64>>>,
    born: Instant,
}

impl FaultyObjects {
    /// An empty store. It needs a tokio runtime with time.
    pub fn new(seed: u64, faults: ObjectFaults) -> Self {
        Self {
            inner: Arc::default(),
            stamps: Arc::default(),
            dice: Arc::new(Mutex::new(Random::new(seed))),
            faults: Arc::new(Mutex::new(faults)),
            hold: Arc::default(),
            happened: Arc::default(),
            born: Instant::now(),
        }
    }

    /// Other faults, from now on; the default is none.
    pub fn set_faults(&self, faults: ObjectFaults) {
        *lock(&self.faults) = faults;
    }

    /// The next write of a record sleeps this long before it happens.
    pub fn hold_next_record(&self, time: Duration) {
        *lock(&self.hold) = Some(time);
    }

    /// How often each fault has happened, by the name of its field; and `held`, for records that slept.
    pub fn happened(&self) -> BTreeMap<&'static str, u64> {
        lock(&self.happened).clone()
    }

    /// The names of all objects in a folder, in order.
    pub async fn names(&self, folder: &str) -> Vec<String> {
        let listing: Vec<_> = self.inner.list(Some(&Path::from(folder))).collect().await;
        let mut names: Vec<_> = listing.into_iter().flatten().map(|meta| meta.location.to_string()).collect();
        names.sort();
        names
    }

    pub(crate) fn now(&self) -> DateTime<Utc> {
        let passed = i64::try_from(self.born.elapsed().as_millis()).unwrap_or(i64::MAX);
        DateTime::from_timestamp_millis(START.as_millis() + passed).unwrap_or_default()
    }

    fn happens(&self, fault: &'static str, percent: u32) -> bool {
        let happens = percent > 0 && lock(&self.dice).percent(percent.into());
        if happens {
            self.count(fault);
        }
        happens
    }

    pub(crate) fn count(&self, fault: &'static str) {
        *lock(&self.happened).entry(fault).or_default() += 1;
    }

    async fn dawdle(&self) {
        let ObjectFaults { delay_ms: most, always_ms, .. } = *lock(&self.faults);
        if most > 0 {
            self.count("delay_ms");
        }
        if most > 0 || always_ms > 0 {
            let ms = if most > 0 { lock(&self.dice).within(0..=most / 2) } else { 0 };
            sleep(Duration::from_millis(always_ms / 2 + ms)).await;
        }
    }

    /// What a listing shows that begins now.
    async fn listed(&self, prefix: Option<Path>) -> Vec<Result<ObjectMeta>> {
        let faults = *lock(&self.faults);
        self.dawdle().await;
        if self.happens("before", faults.before) {
            return vec![Err(broke())];
        }
        let late_ms = i64::try_from(faults.late_ms).unwrap_or(i64::MAX);
        let newest = self.now().timestamp_millis().saturating_sub(late_ms);
        let mut listed = Vec::new();
        let mut all = self.inner.list(prefix.as_ref());
        while let Some(meta) = all.next().await {
            match meta.map(|meta| self.stamped(meta)) {
                Ok(meta) if late_ms > 0 && meta.last_modified.timestamp_millis() > newest => {
                    self.count("late_ms");
                }
                meta => listed.push(meta),
            }
        }
        self.dawdle().await;
        listed
    }

    async fn deleted(&self, path: Path) -> Result<Path> {
        let faults = *lock(&self.faults);
        self.dawdle().await;
        if self.happens("before", faults.before) {
            return Err(broke());
        }
        self.inner.delete(&path).await?;
        self.dawdle().await;
        if self.happens("after", faults.after) { Err(broke()) } else { Ok(path) }
    }

    fn stamped(&self, meta: ObjectMeta) -> ObjectMeta {
        let stamp = lock(&self.stamps).get(&meta.location).copied();
        ObjectMeta { last_modified: stamp.unwrap_or(meta.last_modified), ..meta }
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

fn taken(path: &Path) -> object_store::Error {
    object_store::Error::AlreadyExists { path: path.to_string(), source: "another client was first".into() }
}

fn broke() -> object_store::Error {
    object_store::Error::Generic { store: "faulty", source: "the connection broke".into() }
}

impl fmt::Debug for FaultyObjects {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("FaultyObjects")
    }
}

impl fmt::Display for FaultyObjects {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("FaultyObjects")
    }
}

#[async_trait]
impl ObjectStore for FaultyObjects {
    async fn put_opts(&self, path: &Path, bytes: PutPayload, options: PutOptions) -> Result<PutResult> {
        let faults = *lock(&self.faults);
        self.dawdle().await;
        if self.happens("before", faults.before) {
            return Err(broke());
        }
        let creates = matches!(options.mode, PutMode::Create);
        if creates && self.happens("undecided", faults.undecided) {
            return Err(taken(path));
        }
        let is_record = path.as_ref().starts_with("log/");
        let hold = if is_record { lock(&self.hold).take() } else { None };
        if let Some(time) = hold {
            self.count("held");
            sleep(time).await;
        }
        let bytes = match !is_record && self.happens("torn", faults.torn) {
            true => {
                let whole: Vec<u8> = bytes.iter().flat_map(|part| part.to_vec()).collect();
                whole[..whole.len() / 2].to_vec().into()
            }
            false => bytes,
        };
        let done = self.inner.put_opts(path, bytes, options).await?;
        lock(&self.stamps).insert(path.clone(), self.now());
        self.dawdle().await;
        if creates && self.happens("repeated", faults.repeated) {
            return Err(taken(path));
        }
        if self.happens("after", faults.after) { Err(broke()) } else { Ok(done) }
    }

    async fn put_multipart_opts(
        &self,
        path: &Path,
        options: PutMultipartOptions,
    ) -> Result<Box<dyn MultipartUpload>> {
        self.inner.put_multipart_opts(path, options).await
    }

    async fn get_opts(&self, path: &Path, options: GetOptions) -> Result<GetResult> {
        let faults = *lock(&self.faults);
        self.dawdle().await;
        if self.happens("before", faults.before) {
            return Err(broke());
        }
        let found = self.inner.get_opts(path, options).await?;
        self.dawdle().await;
        let meta = self.stamped(found.meta.clone());
        Ok(GetResult { meta, ..found })
    }

    fn delete_stream(&self, paths: BoxStream<'static, Result<Path>>) -> BoxStream<'static, Result<Path>> {
        let this = self.clone();
        let deleted = move |path: Result<Path>| {
            let this = this.clone();
            async move { this.deleted(path?).await }
        };
        paths.then(deleted).boxed()
    }

    fn list(&self, prefix: Option<&Path>) -> BoxStream<'static, Result<ObjectMeta>> {
        let (this, prefix) = (self.clone(), prefix.cloned());
        stream::once(async move { stream::iter(this.listed(prefix).await) }).flatten().boxed()
    }

    async fn list_with_delimiter(&self, prefix: Option<&Path>) -> Result<ListResult> {
        self.inner.list_with_delimiter(prefix).await
    }

    async fn copy_opts(&self, from: &Path, to: &Path, options: CopyOptions) -> Result<()> {
        self.inner.copy_opts(from, to, options).await
    }
}
