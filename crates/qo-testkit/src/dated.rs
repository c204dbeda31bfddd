//! Objects as one process of a fleet sees them in a bucket: every answer has a date, and some dates are wrong.

use crate::bucket::DateLies;
use crate::objects::FaultyObjects;
use crate::random::Random;
use async_trait::async_trait;
use futures::StreamExt;
use futures::stream::BoxStream;
use object_store::{
    CopyOptions, GetOptions, GetResult, ListResult, MultipartUpload, ObjectMeta, ObjectStore,
    PutMultipartOptions, PutOptions, PutPayload, PutResult, Result, path::Path,
};
use qo_core::Time;
use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};
use tokio::time::Instant;

/// Receives the date of an answer, and when the request was sent.
pub type Tell = Arc<dyn Fn(Time, Instant) + Send + Sync>;

/// The objects of a fleet, through one process's gateway.
#[derive(Clone)]
pub struct DatedObjects {
    inner: FaultyObjects,
    tell: Tell,
    lies: Arc<Mutex<Lies>>,
}

struct Lies {
    lies: DateLies,
    answers: u64,
    dice: Random,
}

impl DatedObjects {
    /// The same objects, for a process that gets these dates.
    pub fn new(inner: FaultyObjects, lies: DateLies, dice: Random, tell: Tell) -> Self {
        Self { inner, tell, lies: Arc::new(Mutex::new(Lies { lies, answers: 0, dice })) }
    }

    /// An answer arrives. Its date is truncated to a whole second.
    fn answered(&self, sent: Instant) {
        let wrong_ms = {
            let mut lies = self.lies.lock().unwrap_or_else(PoisonError::into_inner);
            let Lies { lies, answers, dice } = &mut *lies;
            *answers += 1;
            lies.of(*answers - 1, dice)
        };
        if wrong_ms != 0 {
            self.inner.count("wrong_date");
        }
        let told_ms = self.inner.now().timestamp_millis() + wrong_ms;
        (self.tell)(Time::from_millis(told_ms / 1_000 * 1_000), sent);
    }
}

impl fmt::Debug for DatedObjects {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("DatedObjects")
    }
}

impl fmt::Display for DatedObjects {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("DatedObjects")
    }
}

#[async_trait]
impl ObjectStore for DatedObjects {
    async fn put_opts(&self, path: &Path, bytes: PutPayload, options: PutOptions) -> Result<PutResult> {
        let sent = Instant::now();
        let put = self.inner.put_opts(path, bytes, options).await;
        self.answered(sent);
        put
    }

    async fn put_multipart_opts(
        &self,
        path: &Path,
        options: PutMultipartOptions,
    ) -> Result<Box<dyn MultipartUpload>> {
        self.inner.put_multipart_opts(path, options).await
    }

    async fn get_opts(&self, path: &Path, options: GetOptions) -> Result<GetResult> {
        let sent = Instant::now();
        let got = self.inner.get_opts(path, options).await;
        self.answered(sent);
        got
    }

    fn delete_stream(&self, paths: BoxStream<'static, Result<Path>>) -> BoxStream<'static, Result<Path>> {
        self.inner.delete_stream(paths)
    }

    fn list(&self, prefix: Option<&Path>) -> BoxStream<'static, Result<ObjectMeta>> {
        let (this, sent) = (self.clone(), Instant::now());
        let told = futures::stream::once(async move { this.answered(sent) }).filter_map(async |()| None);
        self.inner.list(prefix).chain(told).boxed()
    }

    async fn list_with_delimiter(&self, prefix: Option<&Path>) -> Result<ListResult> {
        let sent = Instant::now();
        let listed = self.inner.list_with_delimiter(prefix).await;
        self.answered(sent);
        listed
    }

    async fn copy_opts(&self, from: &Path, to: &Path, options: CopyOptions) -> Result<()> {
        self.inner.copy_opts(from, to, options).await
    }
}
