//! The trial: whoever takes the first slot in a bucket tries its server out, and leaves a mark that says so to all who come
//! later. To them it costs one request, before the first slot that a process takes. Slots that are there already say
//! nothing: they may have been copied from another server.
//!
//! The mark goes where the objects go. Who copies a prefix to another server should leave `concurrency/tried_out` behind;
//! `qo doctor --verify` tries out the server that it finds.

use super::place::ROOT;
use super::{SlotObjects, unavailable};
use crate::bucket::Bucket;
use crate::object_error::is_absent;
use futures::TryStreamExt;
use object_store::{ObjectStore, ObjectStoreExt, path::Path};
use qo_core::Result;
use serde::{Deserialize, Serialize};
use std::sync::atomic::Ordering;

/// Which trial this is. One that asks for more than the one before gets the next number: a mark of less does not count.
const TRIAL: u32 = 1;

/// What stands in the mark.
#[derive(Debug, Serialize, Deserialize)]
struct Mark {
    trial: u32,
}

fn mark() -> Path {
    Path::from_iter([ROOT, "tried_out"])
}

/// Whether there are slots here, or anything that says that there were.
pub(crate) async fn are_used(objects: &dyn ObjectStore) -> Result<bool> {
    let root = Path::from(ROOT);
    let first = objects.list(Some(&root)).try_next().await;
    Ok(first.map_err(|error| unavailable(&root, &error))?.is_some())
}

/// Whether the server was tried out by somebody who took a slot.
async fn is_tried_out(objects: &dyn ObjectStore) -> Result<bool> {
    let mark = mark();
    let found = match objects.get(&mark).await {
        Ok(found) => found.bytes().await,
        Err(error) if is_absent(&error) => return Ok(false),
        Err(error) => Err(error),
    };
    let bytes = found.map_err(|error| unavailable(&mark, &error))?;
    // What cannot be read says nothing.
    Ok(serde_json::from_slice::<Mark>(&bytes).is_ok_and(|mark| mark.trial >= TRIAL))
}

impl SlotObjects {
    /// Makes sure that the server can be relied upon, before this process writes its first slot.
    pub(super) async fn try_out(&self) -> Result<()> {
        let Some(bucket) = self.bucket.as_ref().filter(|_| !self.is_tried_out.load(Ordering::SeqCst)) else {
            return Ok(());
        };
        if !is_tried_out(&*self.objects).await? {
            try_out(bucket, &*self.objects).await?;
            let bytes = serde_json::to_vec(&Mark { trial: TRIAL }).unwrap_or_default();
            if let Err(error) = self.objects.put(&mark(), bytes.into()).await {
                // The next process tries it out once more.
                tracing::debug!("{}", unavailable(&mark(), &error));
            }
        }
        self.is_tried_out.store(true, Ordering::SeqCst);
        Ok(())
    }
}

/// Tries a server out, whatever was found before.
pub(crate) async fn try_out(bucket: &Bucket, objects: &dyn ObjectStore) -> Result<()> {
    bucket.probe(objects).await?;
    bucket.probe_replacing(objects).await
}
