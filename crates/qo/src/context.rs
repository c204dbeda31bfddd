//! What a handler knows of its attempt.

use crate::worker::attempt::{Attempt, Unfinished};
use qo_core::{FenceToken, JobId, Key, Name, Time, Traceparent};
use std::fmt;
use std::sync::Arc;

/// An attempt, as its handler sees it. Cheap to clone.
#[derive(Clone)]
pub struct Context {
    attempt: Arc<Attempt>,
}

/// Why a handler must stop.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
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

    /// The trace that the job belongs to, if it was submitted with one. It is the same in every attempt.
    pub fn traceparent(&self) -> Option<Traceparent> {
        self.attempt.claim.traceparent
    }

    /// 1 for the first try.
    pub fn attempt(&self) -> u32 {
        self.attempt.claim.attempt
    }

    /// The try after which the job fails for good.
    pub fn max_attempts(&self) -> u32 {
        self.attempt.claim.max_attempts
    }

    /// Grows with every claim of the job. A handler that writes to a place that other processes write to can send it
    /// along, so that the place refuses writes with an older token.
    pub fn fence_token(&self) -> FenceToken {
        self.attempt.claim.token
    }

    /// Whether the handler must stop.
    pub fn is_cancelled(&self) -> bool {
        self.cancel_reason().is_some()
    }

    /// Why the handler must stop, if it must.
    pub fn cancel_reason(&self) -> Option<CancelReason> {
        // Right after a stall of the whole process the lease may be over before the watch has told the attempt.
        self.attempt
            .stopping()
            .map(|stopping| stopping.reason)
            .or_else(|| (!self.attempt.lease.is_trusted()).then_some(CancelReason::LeaseLost))
    }

    /// Waits until the handler must stop. From then on it has until the end of the cancel grace or of its lease,
    /// whichever is first. Then the worker drops it where it stands.
    pub async fn cancelled(&self) -> CancelReason {
        self.attempt.told_to_stop().await.reason
    }

    /// The end of the lease, in store time. The worker renews it; the handler does nothing for it.
    pub fn extend_lease(&self) -> Time {
        self.attempt.lease.lease_until()
    }

    /// Reports how far the handler is, from 0.0 to 1.0, and what it is doing. The worker passes the newest report on to
    /// the store about once a second, however often this is called.
    pub fn progress(&self, fraction: f64, note: &str) {
        self.attempt.report(fraction, note);
    }

    /// Adds text to the attempt's log, which `qo jobs logs` and [`Client::log`](crate::Client::log) show, also while the
    /// handler runs. The last 64 KiB are kept. No newline is added.
    pub fn log(&self, text: &str) {
        self.attempt.log(text);
    }

    /// While the returned mark lives, the worker counts the attempt as running. It is for work on other threads, which goes on
    /// after the handler itself is dropped. Such work should look at [`is_cancelled`](Self::is_cancelled).
    pub fn unfinished(&self) -> Unfinished {
        self.attempt.unfinished()
    }

    /// The same for work in a [process under a guard](crate::guard::Guarded) that [follows](crate::guard::Guarded::follow)
    /// this attempt. The guard kills the process when the lease is over, so the worker need not end with it.
    pub fn unfinished_under_guard(&self) -> Unfinished {
        self.attempt.unfinished_under_guard()
    }
}
