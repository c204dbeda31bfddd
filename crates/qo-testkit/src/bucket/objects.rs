//! The objects, and what each operation of S3 does to them.

use super::{NAME, State};
use async_trait::async_trait;
use qo_core::clock::{Clock, SystemClock};
use s3s::crypto::{Checksum, Md5};
use s3s::dto::*;
use s3s::{Body, S3, S3Request, S3Response, S3Result, s3_error};
use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime};

/// The longest body that is accepted.
const LONGEST: usize = 256 << 20;
/// The most names on one page of a listing, as at Amazon's.
const PAGE: usize = 1000;

type Bytes = hyper::body::Bytes;

/// How a server treats `If-None-Match` and `If-Match`.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Conditions {
    /// Checks and writes in one step.
    #[default]
    Atomic,
    /// Checks, pauses, then writes, as a gateway to a file system does.
    Racy(Duration),
    /// Ignores them.
    Ignored,
}

/// An object. Its tag depends on its bytes alone, as at Amazon's: writing the same bytes again gives the same tag.
#[derive(Clone)]
pub(super) struct Object {
    pub bytes: Bytes,
    tag: ETag,
    modified: Timestamp,
    born: Instant,
}

/// All objects, with the server's clock.
pub(super) struct Objects {
    pub listing_delay: Duration,
    pub conditions: Conditions,
    pub ahead: Duration,
    clock: SystemClock,
    by_name: BTreeMap<String, Object>,
}

impl Objects {
    pub fn new() -> Self {
        Self {
            listing_delay: Duration::ZERO,
            conditions: Conditions::default(),
            ahead: Duration::ZERO,
            clock: SystemClock::new(),
            by_name: BTreeMap::new(),
        }
    }

    pub fn now(&self) -> Timestamp {
        let since_epoch = u64::try_from(self.clock.now().as_millis()).unwrap_or_default();
        (SystemTime::UNIX_EPOCH + Duration::from_millis(since_epoch) + self.ahead).into()
    }

    /// The time now, wrong by so many milliseconds.
    pub fn told(&self, wrong_ms: i64) -> Timestamp {
        let right_ms =
            self.clock.now().as_millis() + i64::try_from(self.ahead.as_millis()).unwrap_or_default();
        let since_epoch = u64::try_from(right_ms + wrong_ms).unwrap_or_default();
        (SystemTime::UNIX_EPOCH + Duration::from_millis(since_epoch)).into()
    }

    pub fn get(&self, name: &str) -> Option<&Object> {
        self.by_name.get(name)
    }

    pub fn below(&self, prefix: &str) -> impl Iterator<Item = (&str, &Object)> {
        let names = self.by_name.range(prefix.to_owned()..).map(|(name, object)| (name.as_str(), object));
        names.take_while(move |(name, _)| name.starts_with(prefix))
    }

    pub fn write(&mut self, name: &str, bytes: Bytes) -> ETag {
        let digits = Md5::checksum(&bytes).iter().map(|byte| format!("{byte:02x}")).collect();
        let (tag, modified) = (ETag::Strong(digits), self.now());
        match self.by_name.entry(name.to_owned()) {
            Entry::Vacant(free) => {
                free.insert(Object { bytes, tag: tag.clone(), modified, born: Instant::now() });
            }
            Entry::Occupied(mut taken) => {
                let born = taken.get().born;
                taken.insert(Object { bytes, tag: tag.clone(), modified, born });
            }
        }
        tag
    }

    pub fn remove(&mut self, name: &str) -> bool {
        self.by_name.remove(name).is_some()
    }

    fn check(&self, input: &PutObjectInput) -> S3Result<()> {
        let found = self.get(&input.key);
        if let Some(condition) = &input.if_match {
            let object = found.ok_or_else(|| s3_error!(NoSuchKey))?;
            if !meets(condition, object) {
                return Err(s3_error!(PreconditionFailed));
            }
        }
        match (&input.if_none_match, found) {
            (Some(condition), Some(object)) if meets(condition, object) => Err(s3_error!(PreconditionFailed)),
            _ => Ok(()),
        }
    }
}

fn meets(condition: &ETagCondition, object: &Object) -> bool {
    condition.as_etag().is_none_or(|tag| *tag == object.tag)
}

/// The operations, on the shared objects.
pub(super) struct Operations(pub Arc<State>);

impl Operations {
    fn object(&self, bucket: &str, name: &str) -> S3Result<Object> {
        known(bucket)?;
        self.0.objects().get(name).cloned().ok_or_else(|| s3_error!(NoSuchKey))
    }
}

fn known(bucket: &str) -> S3Result<()> {
    if bucket == NAME { Ok(()) } else { Err(s3_error!(NoSuchBucket)) }
}

fn length(bytes: usize) -> Option<i64> {
    i64::try_from(bytes).ok()
}

#[async_trait]
impl S3 for Operations {
    async fn put_object(
        &self,
        mut request: S3Request<PutObjectInput>,
    ) -> S3Result<S3Response<PutObjectOutput>> {
        known(&request.input.bucket)?;
        let mut body = request.input.body.take().map(Body::from).unwrap_or_default();
        let bytes = body.store_all_limited(LONGEST).await.map_err(|_| s3_error!(IncompleteBody))?;
        let input = &request.input;
        let conditions = self.0.objects().conditions;
        if let Conditions::Racy(pause) = conditions {
            self.0.objects().check(input)?;
            tokio::time::sleep(pause).await;
        }
        let mut objects = self.0.objects();
        if conditions == Conditions::Atomic {
            objects.check(input)?;
        }
        let e_tag = Some(objects.write(&input.key, bytes));
        Ok(S3Response::new(PutObjectOutput { e_tag, ..Default::default() }))
    }

    async fn get_object(&self, request: S3Request<GetObjectInput>) -> S3Result<S3Response<GetObjectOutput>> {
        let input = request.input;
        let object = self.object(&input.bucket, &input.key)?;
        if input.if_match.is_some_and(|condition| !meets(&condition, &object)) {
            return Err(s3_error!(PreconditionFailed));
        }
        if input.if_none_match.is_some_and(|condition| meets(&condition, &object)) {
            return Err(s3_error!(NotModified));
        }
        let whole = object.bytes.len();
        let (bytes, content_range) = match input.range {
            None => (object.bytes, None),
            Some(range) => {
                let part = range.check(whole as u64)?;
                let said = format!("bytes {}-{}/{whole}", part.start, part.end - 1);
                (object.bytes.slice(part.start as usize..part.end as usize), Some(said))
            }
        };
        Ok(S3Response::new(GetObjectOutput {
            content_length: length(bytes.len()),
            content_range,
            body: Some(Body::from(bytes).into()),
            e_tag: Some(object.tag),
            last_modified: Some(object.modified),
            ..Default::default()
        }))
    }

    async fn head_object(
        &self,
        request: S3Request<HeadObjectInput>,
    ) -> S3Result<S3Response<HeadObjectOutput>> {
        let object = self.object(&request.input.bucket, &request.input.key)?;
        Ok(S3Response::new(HeadObjectOutput {
            content_length: length(object.bytes.len()),
            e_tag: Some(object.tag),
            last_modified: Some(object.modified),
            ..Default::default()
        }))
    }

    async fn head_bucket(
        &self,
        request: S3Request<HeadBucketInput>,
    ) -> S3Result<S3Response<HeadBucketOutput>> {
        known(&request.input.bucket)?;
        Ok(S3Response::new(HeadBucketOutput::default()))
    }

    async fn delete_object(
        &self,
        request: S3Request<DeleteObjectInput>,
    ) -> S3Result<S3Response<DeleteObjectOutput>> {
        known(&request.input.bucket)?;
        self.0.objects().remove(&request.input.key);
        Ok(S3Response::new(DeleteObjectOutput::default()))
    }

    async fn delete_objects(
        &self,
        request: S3Request<DeleteObjectsInput>,
    ) -> S3Result<S3Response<DeleteObjectsOutput>> {
        known(&request.input.bucket)?;
        let mut objects = self.0.objects();
        let mut deleted = Vec::new();
        for object in request.input.delete.objects {
            objects.remove(&object.key);
            deleted.push(DeletedObject { key: Some(object.key), ..Default::default() });
        }
        Ok(S3Response::new(DeleteObjectsOutput { deleted: Some(deleted), ..Default::default() }))
    }

    async fn list_objects_v2(
        &self,
        request: S3Request<ListObjectsV2Input>,
    ) -> S3Result<S3Response<ListObjectsV2Output>> {
        let input = request.input;
        known(&input.bucket)?;
        let prefix = input.prefix.clone().unwrap_or_default();
        let after = input.continuation_token.as_deref().or(input.start_after.as_deref());
        let most = input.max_keys.and_then(|keys| usize::try_from(keys).ok()).unwrap_or(PAGE).min(PAGE);
        let delimiter = input.delimiter.as_deref().filter(|delimiter| !delimiter.is_empty());

        let objects = self.0.objects();
        let (mut contents, mut folders) = (Vec::new(), Vec::<String>::new());
        let (mut last, mut more) = (None, false);
        for (name, object) in objects.below(&prefix) {
            if after.is_some_and(|after| name <= after) || object.born.elapsed() < objects.listing_delay {
                continue;
            }
            let end = delimiter
                .and_then(|delimiter| Some(name[prefix.len()..].find(delimiter)? + delimiter.len()))
                .map(|end| prefix.len() + end);
            let folder = end.map(|end| &name[..end]);
            let known_folder = folder.is_some() && folder == folders.last().map(String::as_str);
            if !known_folder && contents.len() + folders.len() == most {
                more = true;
                break;
            }
            match folder {
                None => contents.push(listed(name, object)),
                Some(folder) if !known_folder => folders.push(folder.to_owned()),
                Some(_) => {}
            }
            last = Some(name.to_owned());
        }
        let key_count = i32::try_from(contents.len() + folders.len()).ok();
        let folders = folders.into_iter().map(|folder| CommonPrefix { prefix: Some(folder) });
        Ok(S3Response::new(ListObjectsV2Output {
            name: Some(input.bucket),
            prefix: Some(prefix),
            max_keys: i32::try_from(most).ok(),
            key_count,
            is_truncated: Some(more),
            next_continuation_token: last.filter(|_| more),
            common_prefixes: Some(folders.collect()),
            contents: Some(contents),
            ..Default::default()
        }))
    }
}

fn listed(name: &str, object: &Object) -> s3s::dto::Object {
    s3s::dto::Object {
        key: Some(name.to_owned()),
        size: length(object.bytes.len()),
        e_tag: Some(object.tag.clone()),
        last_modified: Some(object.modified.clone()),
        ..Default::default()
    }
}
