//! The log: numbered objects, each created once and never changed.

use crate::record::Record;
use object_store::{ObjectStore, ObjectStoreExt, PutMode, PutOptions, path::Path};
use qo_core::{Error, ErrorKind, Result};
use std::sync::Arc;

/// The objects of one namespace.
#[derive(Debug, Clone)]
pub struct Log {
    objects: Arc<dyn ObjectStore>,
}

/// What became of an attempt to create an object.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Created {
    /// It is there, and it is ours.
    Done,
    /// There was one already. It may be ours all the same, if an earlier attempt succeeded and its answer was lost:
    /// the nonce tells.
    Exists,
    /// Nobody knows.
    Unknown(String),
}

impl Log {
    /// The log in an object store.
    pub fn new(objects: Arc<dyn ObjectStore>) -> Self {
        Self { objects }
    }

    /// The object of a record.
    pub fn path(number: u64) -> Path {
        Path::from(format!("log/{number:020}"))
    }

    /// Reads a record, if it is there. `Data` if it is damaged, `Unavailable` if the objects cannot be reached.
    pub async fn read(&self, number: u64) -> Result<Option<Record>> {
        let path = Self::path(number);
        let Some(bytes) = self.get(&path).await? else { return Ok(None) };
        let record = Record::decode(path.as_ref(), &bytes)?;
        if record.number != number {
            let what = format!("{path}: is damaged: it says that it is record {}", record.number);
            return Err(Error::new(ErrorKind::Data, what));
        }
        Ok(Some(record))
    }

    /// Creates an object unless there is one.
    pub async fn create(&self, path: &Path, bytes: Vec<u8>) -> Created {
        let once = PutOptions { mode: PutMode::Create, ..PutOptions::default() };
        match self.objects.put_opts(path, bytes.into(), once).await {
            Ok(_) => Created::Done,
            Err(object_store::Error::AlreadyExists { .. } | object_store::Error::Precondition { .. }) => {
                Created::Exists
            }
            Err(error) => Created::Unknown(error.to_string()),
        }
    }

    /// The bytes of an object, if it is there.
    pub async fn get(&self, path: &Path) -> Result<Option<Vec<u8>>> {
        let found = match self.objects.get(path).await {
            Ok(found) => found,
            Err(object_store::Error::NotFound { .. }) => return Ok(None),
            Err(error) => return Err(unavailable(path, &error)),
        };
        Ok(Some(found.bytes().await.map_err(|error| unavailable(path, &error))?.to_vec()))
    }

    /// The names in a folder, in order.
    pub async fn list(&self, folder: &str) -> Result<Vec<Path>> {
        let folder = Path::from(folder);
        let listing = self.objects.list_with_delimiter(Some(&folder)).await;
        let listing = listing.map_err(|error| unavailable(&folder, &error))?;
        let mut paths: Vec<_> = listing.objects.into_iter().map(|object| object.location).collect();
        paths.sort();
        Ok(paths)
    }
}

fn unavailable(path: &Path, error: &object_store::Error) -> Error {
    Error::new(ErrorKind::Unavailable, format!("{path}: {error}"))
}
