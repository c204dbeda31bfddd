//! From a URL to a store.

use crate::settings::without_password;
use qo_core::{Error, MemoryStore, Result, Store};
use qo_object::{Bucket, LogStore, Options, SlotObjects};
use qo_postgres::PostgresStore;
use std::sync::Arc;

/// Opens the namespace at a URL: `file:DIR`, `s3://bucket/prefix`, `postgres://…?schema=qo`, or `memory:` for one that ends
/// with the process.
///
/// A directory that is not there is made, a bucket is not. A PostgreSQL schema is not: [`crate::migrate::up`] does that, because workers
/// need not have the right to. `Invalid` if the URL is none of these, `NotFound` if there is no such schema or bucket,
/// `Unavailable` if the place cannot be used, `Conflict` if the schema is of another release, `Data` if what is stored
/// there is damaged.
pub async fn connect(url: &str) -> Result<Arc<dyn Store>> {
    match Place::parse(url)? {
        Place::Directory(directory) => {
            Ok(Arc::new(LogStore::open_directory(directory, Options::default()).await?))
        }
        Place::Bucket(bucket) => Ok(Arc::new(LogStore::open_bucket(&bucket, Options::bucket()).await?)),
        Place::Postgres(url) => open_schema(&url).await,
        Place::Memory => Ok(Arc::new(MemoryStore::new())),
    }
}

/// Opens a namespace for somebody who will do little more than submit: what is stored there is read only when a call
/// needs it. Every call works, and means the same as on what [`connect`] returns.
pub async fn connect_to_submit(url: &str) -> Result<Arc<dyn Store>> {
    match Place::parse(url)? {
        Place::Directory(directory) => {
            Ok(Arc::new(LogStore::open_directory_to_submit(directory, Options::default()).await?))
        }
        Place::Bucket(bucket) => {
            Ok(Arc::new(LogStore::open_bucket_to_submit(&bucket, Options::bucket()).await?))
        }
        Place::Postgres(url) => open_schema(&url).await,
        Place::Memory => Ok(Arc::new(MemoryStore::new())),
    }
}

/// Slots that are objects in the bucket at a URL: a limit for programs on a bare bucket, counted apart from the namespace's.
/// `Invalid` if it is not the URL of a bucket.
pub fn slot_objects(url: &str) -> Result<SlotObjects> {
    match Place::parse(url)? {
        Place::Bucket(bucket) => SlotObjects::in_bucket(&bucket),
        _ => {
            let rule =
                "slots that are objects need a bucket, as in s3://bucket/prefix; any store has shared ones";
            Err(Error::invalid("store", without_password(url), rule))
        }
    }
}

async fn open_schema(url: &qo_postgres::Url) -> Result<Arc<dyn Store>> {
    Ok(Arc::new(PostgresStore::open(url, qo_postgres::Options::default()).await?))
}

/// Where a namespace is.
pub(crate) enum Place<'a> {
    Directory(&'a str),
    Bucket(Box<Bucket>),
    Postgres(Box<qo_postgres::Url>),
    Memory,
}

impl<'a> Place<'a> {
    pub(crate) fn parse(url: &'a str) -> Result<Self> {
        let (scheme, rest) = url.split_once(':').unwrap_or((url, ""));
        let refused = |rule| Err(Error::invalid("store", without_password(url), rule));
        match scheme {
            "file" if !rest.is_empty() => Ok(Self::Directory(rest.strip_prefix("//").unwrap_or(rest))),
            "postgres" | "postgresql" if rest.starts_with("//") => {
                Ok(Self::Postgres(Box::new(qo_postgres::Url::parse(url)?)))
            }
            "s3" => Ok(Self::Bucket(Box::new(Bucket::parse(url)?))),
            "memory" => Ok(Self::Memory),
            "file" => refused("must name a directory, as in file:.qo"),
            "postgres" | "postgresql" => {
                refused("must be a connection string, as in postgres://user@host/database?schema=qo")
            }
            "http" | "https" => refused("this release opens file:DIR, s3://…, postgres://… and memory: only"),
            _ => refused("must be file:DIR, s3://bucket/prefix, postgres://… or memory:"),
        }
    }
}
