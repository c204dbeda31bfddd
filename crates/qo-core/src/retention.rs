//! Retention: how long ended jobs are remembered.

use crate::{JobState, Result, caps, job::within};
use serde::{Deserialize, Serialize};

/// How long an ended job is remembered, by how it ended.
///
/// A job with an idempotency key, and the key, is remembered for at least 24 hours.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(default)]
pub struct Retention {
    /// How long a job that succeeded is remembered. Defaults to 24 hours.
    pub succeeded_ms: u64,
    /// How long a job that failed is remembered. Defaults to 14 days.
    pub failed_ms: u64,
    /// How long a job that was cancelled is remembered. Defaults to 24 hours.
    pub cancelled_ms: u64,
    /// How long a job that expired is remembered. Defaults to 24 hours.
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
    /// How long a job that ended in this state is remembered.
    pub fn of(&self, state: JobState, has_idempotency_key: bool) -> u64 {
        let ms = match state {
            JobState::Failed => self.failed_ms,
            JobState::Cancelled => self.cancelled_ms,
            JobState::Expired => self.expired_ms,
            // The other states have no end; no caller asks for them.
            JobState::Succeeded | JobState::Pending | JobState::Claimed | JobState::Running => {
                self.succeeded_ms
            }
        };
        if has_idempotency_key { ms.max(caps::RETAIN_KEY_MS) } else { ms }
    }

    /// The parts that differ from the default.
    pub(crate) fn beyond_default(&self) -> PartialRetention {
        let default = Self::default();
        let beyond = |ms: u64, default: u64| (ms != default).then_some(ms);
        PartialRetention {
            succeeded_ms: beyond(self.succeeded_ms, default.succeeded_ms),
            failed_ms: beyond(self.failed_ms, default.failed_ms),
            cancelled_ms: beyond(self.cancelled_ms, default.cancelled_ms),
            expired_ms: beyond(self.expired_ms, default.expired_ms),
        }
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

/// The retention that one app configures. For a part that it leaves out another app's value counts, else the default.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct PartialRetention {
    /// Of jobs that succeeded.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub succeeded_ms: Option<u64>,
    /// Of jobs that failed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub failed_ms: Option<u64>,
    /// Of jobs that were cancelled.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cancelled_ms: Option<u64>,
    /// Of jobs that expired.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub expired_ms: Option<u64>,
}

impl From<Retention> for PartialRetention {
    fn from(retention: Retention) -> Self {
        let Retention { succeeded_ms, failed_ms, cancelled_ms, expired_ms } = retention;
        Self {
            succeeded_ms: Some(succeeded_ms),
            failed_ms: Some(failed_ms),
            cancelled_ms: Some(cancelled_ms),
            expired_ms: Some(expired_ms),
        }
    }
}

impl PartialRetention {
    /// The parts that it sets, by how a job ended.
    pub fn named(&self) -> impl Iterator<Item = (&'static str, u64)> {
        let all = [
            ("succeeded", self.succeeded_ms),
            ("failed", self.failed_ms),
            ("cancelled", self.cancelled_ms),
            ("expired", self.expired_ms),
        ];
        all.into_iter().filter_map(|(state, ms)| Some((state, ms?)))
    }

    /// The retention, with the default for each part that it leaves out.
    pub fn or_default(&self) -> Retention {
        let default = Retention::default();
        Retention {
            succeeded_ms: self.succeeded_ms.unwrap_or(default.succeeded_ms),
            failed_ms: self.failed_ms.unwrap_or(default.failed_ms),
            cancelled_ms: self.cancelled_ms.unwrap_or(default.cancelled_ms),
            expired_ms: self.expired_ms.unwrap_or(default.expired_ms),
        }
    }

    /// Checks every rule that needs no state.
    pub fn check(&self) -> Result<()> {
        self.or_default().check()
    }
}
