//! What a handler that did not succeed tells the worker to do.

use std::fmt::{self, Write};
use std::time::Duration;

/// What a handler returns when it did not succeed.
///
/// Any other error that implements `Display` is a [retry](Self::Retry) after the task's backoff, so `?` and `anyhow` do
/// the usual thing.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Failure {
    /// Try again, if attempts are left.
    Retry {
        /// Why.
        error: String,
        /// After this long. Defaults to the backoff of the job, else of the task.
        delay: Option<Duration>,
    },
    /// Give up now: another try would end the same way.
    Fail {
        /// Why.
        error: String,
    },
    /// Run again after a delay; no attempt is used.
    Snooze {
        /// How long to wait.
        delay: Duration,
    },
    /// The handler stopped because it was told to.
    Cancelled,
}

impl Failure {
    /// Try again after the usual backoff.
    pub fn retry(error: impl fmt::Display) -> Self {
        Self::Retry { error: format!("{error:#}"), delay: None }
    }

    /// Try again after `delay`.
    pub fn retry_after(error: impl fmt::Display, delay: Duration) -> Self {
        Self::Retry { error: format!("{error:#}"), delay: Some(delay) }
    }

    /// Give up now.
    pub fn fail(error: impl fmt::Display) -> Self {
        Self::Fail { error: format!("{error:#}") }
    }

    /// Run again after `delay`; no attempt is used.
    pub fn snooze(delay: Duration) -> Self {
        Self::Snooze { delay }
    }
}

// `Failure` does not implement `std::error::Error`: otherwise this impl, which lets `?` convert every error, would
// conflict with `From<T> for T`.
impl<E: std::error::Error> From<E> for Failure {
    fn from(error: E) -> Self {
        let mut text = error.to_string();
        let mut cause = error.source();
        while let Some(error) = cause {
            // Writing to a string does not fail.
            let _ = write!(text, ": {error}");
            cause = error.source();
        }
        Self::Retry { error: text, delay: None }
    }
}

/// An error that a handler may return: a [`Failure`], or anything that can be shown.
pub trait IntoFailure {
    /// What the worker must do.
    fn into_failure(self) -> Failure;
}

impl IntoFailure for Failure {
    fn into_failure(self) -> Failure {
        self
    }
}

impl<E: fmt::Display> IntoFailure for E {
    fn into_failure(self) -> Failure {
        Failure::retry(self)
    }
}
