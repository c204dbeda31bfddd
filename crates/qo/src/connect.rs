//! From a URL to a store.

use qo_core::{Error, MemoryStore, Result, Store};
use qo_object::{LogStore, Options};
use std::sync::Arc;

/// Opens the namespace at a URL: `file:DIR`, or `memory:` for one that ends with the process.
///
/// A directory that is not there is made. `Invalid` if the URL is none of these, `Unavailable` if the place cannot be
/// used, `Data` if what is stored there is damaged.
pub async fn connect(url: &str) -> Result<Arc<dyn Store>> {
    match Place::parse(url)? {
        Place::Directory(directory) => {
            Ok(Arc::new(LogStore::open_directory(directory, Options::default()).await?))
        }
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
        Place::Memory => Ok(Arc::new(MemoryStore::new())),
    }
}

/// Where a namespace is.
pub(crate) enum Place<'a> {
    Directory(&'a str),
    Memory,
}

impl<'a> Place<'a> {
    pub(crate) fn parse(url: &'a str) -> Result<Self> {
        let (scheme, rest) = url.split_once(':').unwrap_or((url, ""));
        match scheme {
            "file" if !rest.is_empty() => Ok(Self::Directory(rest.strip_prefix("//").unwrap_or(rest))),
            "memory" => Ok(Self::Memory),
            "file" => Err(Error::invalid("store", url, "must name a directory, as in file:.qo")),
            "s3" | "postgres" | "postgresql" | "http" | "https" => {
                Err(Error::invalid("store", url, "this release opens file:DIR and memory: only"))
            }
            _ => Err(Error::invalid("store", url, "must be file:DIR or memory:")),
        }
    }
}
