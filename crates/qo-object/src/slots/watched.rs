//! Watching slots: which version of a slot this process has seen, and since when.
//!
//! Invariant: a process takes a slot over only after it has seen the same version of the object for a whole lease, by
//! its own monotonic clock. A live holder extends its lease three times in that time, and each extension is another
//! version. No date ends a lease, because the dates of a bucket's answers may be wrong.
//!
//! A slot of an older release does not tell the length of its lease. It is watched for as long as it has left by the
//! bucket's dates when it is first seen, and for [`UNTOLD`] at least: a wrong date makes that longer, not shorter.

use super::slot::Slot;
use object_store::path::Path;
use qo_core::{Time, caps};
use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;
use tokio::time::Instant;
use uuid::Uuid;

/// How long a slot is watched at least that does not tell the length of its lease.
const UNTOLD: Duration = Duration::from_secs(300);
/// Slots that are remembered, at most. With more, watching begins anew, which is safe.
const MOST: usize = 10_000;

/// Versions of slots, and since when each is known.
#[derive(Debug, Default)]
pub(super) struct Watched(Mutex<HashMap<Path, Seen>>);

#[derive(Debug, Clone, Copy)]
struct Seen {
    nonce: Uuid,
    since: Instant,
    /// How long it is watched. Fixed when the version is first seen, because what is left by the dates shrinks.
    lease: Duration,
}

impl Watched {
    /// How much longer a slot that was just read has to be watched before its lease is over. `now` is the time by the
    /// bucket's dates.
    pub fn left(&self, path: &Path, slot: &Slot, now: Time) -> Duration {
        let mut known = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if known.len() >= MOST && !known.contains_key(path) {
            known.clear();
        }
        let here = Instant::now();
        let first = Seen { nonce: slot.nonce, since: here, lease: length(slot, now) };
        let seen = known.entry(path.clone()).or_insert(first);
        if seen.nonce != slot.nonce {
            *seen = first;
        }
        seen.lease.saturating_sub(here.duration_since(seen.since))
    }
}

fn length(slot: &Slot, now: Time) -> Duration {
    let left_ms = slot.expires_at.map_or(0, |end| end.ms_since(now)).min(caps::LEASE_MAX_MS);
    slot.lease_ms.map_or_else(|| UNTOLD.max(Duration::from_millis(left_ms)), Duration::from_millis)
}

#[cfg(test)]
mod tests {
    use super::*;
    use qo_core::FenceToken;

    const NOON: Time = Time::from_millis(1_800_000_000_000);

    fn slot(lease_ms: Option<u64>, expires_at: Time) -> Slot {
        let (task_id, worker_id) = (Some(Uuid::from_u128(1)), None);
        let (token, nonce) = (FenceToken(1), Uuid::from_u128(2));
        Slot { task_id, worker_id, expires_at: Some(expires_at), lease_ms, token, nonce }
    }

    #[tokio::test(start_paused = true)]
    async fn a_slot_of_an_older_release_is_watched_for_what_is_left() {
        let (watched, path) = (Watched::default(), Path::from("concurrency/g/slots/0"));
        let held = slot(None, NOON.plus_ms(3_600_000));
        assert_eq!(watched.left(&path, &held, NOON), Duration::from_secs(3_600));
        tokio::time::advance(Duration::from_secs(1_800)).await;
        let later = NOON.plus_ms(1_800_000);
        assert_eq!(watched.left(&path, &held, later), Duration::from_secs(1_800), "half an hour more");
        tokio::time::advance(Duration::from_secs(1_800)).await;
        assert_eq!(watched.left(&path, &held, later), Duration::ZERO);
    }

    #[tokio::test(start_paused = true)]
    async fn with_a_wrong_date_a_watch_takes_five_minutes_to_a_day() {
        let (watched, held) = (Watched::default(), slot(None, NOON));
        let left = |path: &str, now: Time| watched.left(&Path::from(path), &held, now);
        assert_eq!(left("late", NOON.plus_ms(3_600_000)), UNTOLD);
        let century = Time::from_millis(NOON.as_millis() - 100 * 365 * 86_400_000);
        assert_eq!(left("early", century), Duration::from_millis(caps::LEASE_MAX_MS));
        let told = slot(Some(5_000), NOON.plus_ms(3_600_000));
        assert_eq!(watched.left(&Path::from("told"), &told, NOON), Duration::from_secs(5));
    }
}
