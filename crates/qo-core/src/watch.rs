//! Who may end a lease that is over by store time: a process that has watched it.
//!
//! Where one clock stamps everything (memory, a directory, PostgreSQL) store time alone decides. In a bucket store time comes
//! from the dates of answers, and a gateway or a proxy may send wrong ones. So there a process ends a lease only if,
//! besides being over by store time, it has itself waited for the whole length of that lease, by its own monotonic clock,
//! since it read the record that granted or renewed it. No date can then end what another process holds (G9).
//!
//! Nothing is written about a lease that is spared. Replay decides nothing, so it needs no watch.

use crate::Time;

/// What the process that decides has watched.
pub trait Watch: Send + Sync {
    /// How many milliseconds the process still has to watch a lease that was granted or renewed at store time `granted` and
    /// runs until `until`. 0: it may end it.
    fn left_ms(&self, granted: Time, until: Time) -> u64;
}

/// Store time alone decides: what is over by it may be ended.
#[derive(Debug, Clone, Copy, Default)]
pub struct StoreTime;

impl Watch for StoreTime {
    fn left_ms(&self, _granted: Time, _until: Time) -> u64 {
        0
    }
}
