//! The trial: whether a bucket's server can be relied upon.
//!
//! 1. Before a process takes its first slot it reads the object `concurrency/tried_out`.
//! 2. If that is missing, it tries the server out, and writes the object.
//!
//! Slots that are there do not tell: they may have been copied from another server. `concurrency/tried_out` may have
//! been copied, too: an operator who copies a prefix to another server leaves it out. `qo doctor --verify` tries the
//! server out in any case.

use super::place::ROOT;
use super::{SlotObjects, unavailable};
use crate::bucket::Bucket;
use crate::object_error::is_absent;
use futures::TryStreamExt;
use object_store::{ObjectStore, ObjectStoreExt, path::Path};
use qo_core::Result;
use serde::{Deserialize, Serialize};
use std::sync::atomic::Ordering;

/// Which trial this is. A stricter trial gets the next number, and an object of an older one does not count.
const TRIAL: u32 = 1;

/// The content of `concurrency/tried_out`.
#[derive(Debug, Serialize, Deserialize)]
struct TriedOut {
    trial: u32,
}

fn tried_out() -> Path {
    Path::from_iter([ROOT, "tried_out"])
}

/// Whether there are slots here, or were.
pub(crate) async fn are_used(objects: &dyn ObjectStore) -> Result<bool> {
    let root = Path::from(ROOT);
    let first = objects.list(Some(&root)).try_next().await;
    Ok(first.map_err(|error| unavailable(&root, error))?.is_some())
}

/// Whether a process that took a slot tried the server out.
async fn is_tried_out(objects: &dyn ObjectStore) -> Result<bool> {
    let path = tried_out();
    let found = match objects.get(&path).await {
        Ok(found) => found.bytes().await,
        Err(error) if is_absent(&error) => return Ok(false),
        Err(error) => Err(error),
    };
    let bytes = found.map_err(|error| unavailable(&path, error))?;
    // An object that cannot be read does not count.
    Ok(serde_json::from_slice::<TriedOut>(&bytes).is_ok_and(|tried_out| tried_out.trial >= TRIAL))
}

impl SlotObjects {
    /// Makes sure that the server can be relied upon, before this process takes its first slot.
    pub(super) async fn try_out(&self) -> Result<()> {
        let Some(bucket) = self.bucket.as_ref().filter(|_| !self.is_tried_out.load(Ordering::SeqCst)) else {
            return Ok(());
        };
        if !is_tried_out(&*self.objects).await? {
            try_out(bucket, &*self.objects).await?;
            let bytes = serde_json::to_vec(&TriedOut { trial: TRIAL }).unwrap_or_default();
            if let Err(error) = self.objects.put(&tried_out(), bytes.into()).await {
                // The next process tries it out once more.
                tracing::debug!("{}", unavailable(&tried_out(), error));
            }
        }
        self.is_tried_out.store(true, Ordering::SeqCst);
        Ok(())
    }
}

/// Tries a server out.
pub(crate) async fn try_out(bucket: &Bucket, objects: &dyn ObjectStore) -> Result<()> {
    bucket.probe(objects).await?;
    bucket.probe_replacing(objects).await
}
