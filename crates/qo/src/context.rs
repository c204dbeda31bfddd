//! What a handler knows of its attempt.

use crate::worker::attempt::{Attempt, Hold};
use qo_core::{FenceToken, JobId, Key, Name, Time};
use std::fmt;
use std::sync::Arc;

/// An attempt, as its handler sees it. Cheap to clone.
#[derive(Clone)]
pub struct Context {
    attempt: Arc<Attempt>,
}

/// Why a handler shall stop.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum CancelReason {
    /// The job was cancelled.
    Cancelled,
    /// The attempt has run as long as it may.
    TimedOut,
    /// The store ended the claim: an operator released it, or its timeout is long over.
    LeaseEnded,
    /// The worker can no longer be sure that it holds its lease: another worker may soon run the job.
    LeaseLost,
    /// The worker shuts down and gives the job back.
    ShuttingDown,
}

impl fmt::Display for CancelReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Cancelled => "the job was cancelled",
            Self::TimedOut => "the attempt timed out",
            Self::LeaseEnded => "the store ended the claim",
            Self::LeaseLost => "the lease can no longer be trusted",
            Self::ShuttingDown => "the worker shuts down",
        })
    }
}

impl fmt::Debug for Context {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Context")
            .field("job", &self.job())
            .field("attempt", &self.attempt())
            .field("token", &self.fence_token())
            .finish_non_exhaustive()
    }
}

impl Context {
    pub(crate) fn new(attempt: Arc<Attempt>) -> Self {
        Self { attempt }
    }

    pub(crate) fn state(&self) -> &Arc<Attempt> {
        &self.attempt
    }

    /// The job.
    pub fn job(&self) -> JobId {
        self.attempt.claim.job
    }

    /// Its task.
    pub fn task(&self) -> &Name {
        &self.attempt.claim.task
    }

    /// Its queue.
    pub fn queue(&self) -> &Name {
        &self.attempt.claim.queue
    }

    /// Its group.
    pub fn group(&self) -> &Name {
        &self.attempt.claim.group
    }

    /// Its key.
    pub fn key(&self) -> Option<&Key> {
        self.attempt.claim.key.as_ref()
    }

    /// 1 for the first try.
    pub fn attempt(&self) -> u32 {
        self.attempt.claim.attempt
    }

    /// The try after which the job fails for good.
    pub fn max_attempts(&self) -> u32 {
        self.attempt.claim.max_attempts
    }

    /// Grows with every claim of the job: whoever writes to a place that others write to can send it along and have
    /// older ones refused.
    pub fn fence_token(&self) -> FenceToken {
        self.attempt.claim.token
    }

    /// Whether the handler shall stop.
    pub fn is_cancelled(&self) -> bool {
        self.cancel_reason().is_some()
    }

    /// Why the handler shall stop, if it shall.
    pub fn cancel_reason(&self) -> Option<CancelReason> {
        // The lease may be over before anybody had the time to say so: right after the process was stopped for a while.
        self.attempt
            .stopping()
            .map(|stopping| stopping.reason)
            .or_else(|| (!self.attempt.lease.is_trusted()).then_some(CancelReason::LeaseLost))
    }

    /// Waits until the handler shall stop. From then on it has the cancel grace, or until its lease is over, to come to
    /// an end; then it is dropped where it stands.
    pub async fn cancelled(&self) -> CancelReason {
        self.attempt.told_to_stop().await.reason
    }

    /// The end of the lease, in store time. The runtime renews it; a handler needs to do nothing for it.
    pub fn extend_lease(&self) -> Time {
        self.attempt.lease.lease_until()
    }

    /// Says how far it is, from 0.0 to 1.0, and what it is at. The store is told about once a second, however often this
    /// is called; the newest report counts.
    pub fn progress(&self, fraction: f64, note: &str) {
        self.attempt.report(fraction, note);
    }

    /// Keeps the attempt running, as far as the worker is concerned, while the hold lives: for work on other threads,
    /// which goes on when the handler itself is dropped. Such work should look at [`is_cancelled`](Self::is_cancelled).
    pub fn hold(&self) -> Hold {
        self.attempt.hold()
    }
}
