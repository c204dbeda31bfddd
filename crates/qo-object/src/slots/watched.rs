//! Slots that this process has seen taken, and since when.
//!
//! The dates of a bucket's answers may be wrong, so no date ends a lease here. A process takes a slot over only after it has
//! itself seen the same version of the object for a whole lease, by its own monotonic clock. A holder that lives extends its
//! lease three times in that time, and each extension is another version.

use super::slot::Slot;
use object_store::path::Path;
use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;
use tokio::time::Instant;
use uuid::Uuid;

/// How long a slot is watched that does not say how long its lease is.
const UNTOLD: Duration = Duration::from_secs(300);
/// Slots that are remembered, at most. With more the watch begins anew, which is safe.
const MOST: usize = 10_000;

/// Versions of slots, each since when it is known.
#[derive(Debug, Default)]
pub(super) struct Watched(Mutex<HashMap<Path, (Uuid, Instant)>>);

impl Watched {
    /// How much longer a slot that was just read has to be watched before its lease is over for certain.
    pub fn left(&self, path: &Path, slot: &Slot) -> Duration {
        let lease = slot.lease_ms.map_or(UNTOLD, Duration::from_millis);
        let mut known = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if known.len() >= MOST && !known.contains_key(path) {
            known.clear();
        }
        let now = Instant::now();
        let (nonce, since) = known.entry(path.clone()).or_insert((slot.nonce, now));
        if *nonce != slot.nonce {
            (*nonce, *since) = (slot.nonce, now);
        }
        lease.saturating_sub(now.duration_since(*since))
    }
}
