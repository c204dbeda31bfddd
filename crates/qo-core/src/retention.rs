//! Retention: how long finished jobs are remembered.

use crate::{JobState, Result, caps, job::within};
use serde::{Deserialize, Serialize};

/// How long a finished job is remembered, by how it ended. A job with an idempotency key is remembered for 24 hours at
/// least, and so is the key.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(default)]
pub struct Retention {
    /// Defaults to 24 hours.
    pub succeeded_ms: u64,
    /// Defaults to 14 days.
    pub failed_ms: u64,
    /// Defaults to 24 hours.
    pub cancelled_ms: u64,
    /// Defaults to 24 hours.
    pub expired_ms: u64,
}

impl Default for Retention {
    fn default() -> Self {
        Self {
            succeeded_ms: caps::RETAIN_MS,
            failed_ms: caps::RETAIN_FAILED_MS,
            cancelled_ms: caps::RETAIN_MS,
            expired_ms: caps::RETAIN_MS,
        }
    }
}

impl Retention {
    /// How long a job that ended so is remembered.
    pub fn of(&self, state: JobState, has_idempotency_key: bool) -> u64 {
        let ms = match state {
            JobState::Failed => self.failed_ms,
            JobState::Cancelled => self.cancelled_ms,
            JobState::Expired => self.expired_ms,
            // The others have not ended; nobody asks.
            JobState::Succeeded | JobState::Pending | JobState::Claimed | JobState::Running => {
                self.succeeded_ms
            }
        };
        if has_idempotency_key { ms.max(caps::RETAIN_KEY_MS) } else { ms }
    }

    /// Checks every rule that needs no state.
    pub fn check(&self) -> Result<()> {
        for (field, ms) in [
            ("succeeded_ms", self.succeeded_ms),
            ("failed_ms", self.failed_ms),
            ("cancelled_ms", self.cancelled_ms),
            ("expired_ms", self.expired_ms),
        ] {
            within(field, ms, 0, caps::DURATION_MS)?;
        }
        Ok(())
    }
}
