//! The object of a slot: read, and replaced only if it is still the version that was read.

use super::slot::Slot;
use super::{SlotObjects, unavailable};
use crate::object_error::{is_absent, is_refused, refused, said};
use object_store::{ObjectStoreExt, PutMode, PutOptions, UpdateVersion, path::Path};
use qo_core::{Error, ErrorKind, Result};
use std::time::Duration;
use tokio::time::sleep;

/// How often a write is tried whose outcome is unknown, and the pause between two tries.
const TRIES: u32 = 5;
const PAUSE: Duration = Duration::from_millis(200);

impl SlotObjects {
    pub(super) async fn read(&self, path: &Path) -> Result<Option<(Slot, UpdateVersion)>> {
        let found = match self.objects.get(path).await {
            Ok(found) => found,
            Err(error) if is_absent(&error) => return Ok(None),
            Err(error) => return Err(unavailable(path, error)),
        };
        let version = UpdateVersion { e_tag: found.meta.e_tag.clone(), version: found.meta.version.clone() };
        let bytes = found.bytes().await.map_err(|error| unavailable(path, error))?;
        let slot = serde_json::from_slice(&bytes)
            .map_err(|error| Error::new(ErrorKind::Data, format!("{path}: is not a slot: {error}")))?;
        Ok(Some((slot, version)))
    }

    /// Replaces the version of a slot that was read, or creates the object if there was none. False if another process
    /// was first.
    ///
    /// 1. Write, on the condition that the object is still that version.
    /// 2. Whatever the answer, read the object. Our nonce: the write was ours. Another version: another process was
    ///    first. The same version: go back to step 1, up to [`TRIES`] times.
    ///
    /// A try that is still on its way and lands later does no harm: it writes the same bytes.
    pub(super) async fn write(&self, path: &Path, slot: &Slot, over: Option<UpdateVersion>) -> Result<bool> {
        let bytes = serde_json::to_vec(slot)
            .map_err(|error| Error::new(ErrorKind::Internal, format!("{path}: {error}")))?;
        let mode = || over.clone().map_or(PutMode::Create, PutMode::Update);
        let mut why = String::new();
        for attempt in 0..TRIES {
            if attempt > 0 {
                sleep(PAUSE).await;
            }
            let options = PutOptions { mode: mode(), ..PutOptions::default() };
            match self.objects.put_opts(path, bytes.clone().into(), options).await {
                Ok(_) => return Ok(true),
                // It is refused for good. An earlier try may have written: see below.
                Err(error) if attempt == 0 && is_refused(&error) => {
                    let place = self.bucket.as_ref().map_or_else(|| path.to_string(), ToString::to_string);
                    return Err(refused(&place, &error));
                }
                Err(error @ object_store::Error::NotImplemented { .. }) if attempt == 0 => {
                    return Err(unavailable(path, error));
                }
                Err(error) => why = said(&error),
            }
            match self.read(path).await {
                Ok(Some((found, _))) if found.nonce == slot.nonce => return Ok(true),
                Ok(found) if found.as_ref().map(|(_, version)| version) != over.as_ref() => return Ok(false),
                Ok(_) => {}
                Err(error) if error.kind() == ErrorKind::Data => return Err(error),
                Err(error) => why = error.message().to_owned(),
            }
        }
        Err(Error::new(ErrorKind::Unknown, format!("{path}: {why}")))
    }
}
