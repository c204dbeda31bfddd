//! Which process may end a lease that is over by store time: one that has watched it.
//!
//! In memory, on a directory and on PostgreSQL one clock stamps everything, and store time alone decides. In a bucket
//! store time comes from the dates of answers, and a gateway or a proxy may send wrong ones. There a process ends a
//! lease in these steps:
//! 1. It reads the record that granted or last renewed the lease.
//! 2. It waits for the whole length of that lease, by its own monotonic clock.
//! 3. If the lease is then over by store time and no renewal has come, it may end it. Before that it spares the lease.
//!
//! Invariants:
//! - No date, however wrong, ends a lease that another process holds and renews (G9).
//! - Sparing a lease writes nothing, and its slots stay taken.
//! - Replay decides nothing, so it needs no watch.

use crate::Time;

/// What the deciding process has watched.
pub trait Watch: Send + Sync {
    /// How many milliseconds the process still has to watch a lease. 0 means that it may end it.
    ///
    /// The lease was granted or renewed at store time `granted` and runs until `until`.
    fn left_ms(&self, granted: Time, until: Time) -> u64;
}

/// Store time alone decides: a process may end every lease that is over.
#[derive(Debug, Clone, Copy, Default)]
pub struct StoreTime;

impl Watch for StoreTime {
    fn left_ms(&self, _granted: Time, _until: Time) -> u64 {
        0
    }
}
