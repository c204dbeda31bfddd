//! From the end of a handler to the settle that the store gets.

use crate::context::CancelReason;
use crate::failure::Failure;
use crate::worker::attempt::Attempt;
use crate::worker::run::End;
use qo_core::millis;
use qo_core::{Outcome, Settle, caps};
use qo_object::Jitter;
use std::collections::VecDeque;
use std::time::Duration;

/// What to tell the store; nothing if the store ended the claim itself.
pub(crate) fn settle(attempt: &Attempt, end: End, jitter: &mut Jitter) -> Option<Settle> {
    let outcome = checked(outcome(attempt, end, jitter)?);
    Some(Settle { job: attempt.claim.job, token: attempt.claim.token, outcome })
}

fn outcome(attempt: &Attempt, end: End, jitter: &mut Jitter) -> Option<Outcome> {
    let reason = attempt.stopping().map(|stopping| stopping.reason);
    if reason == Some(CancelReason::LeaseEnded) {
        return None;
    }
    let failure = match end {
        // A success stays a success, even if the handler was told to stop meanwhile.
        End::Returned(Ok(output)) => return Some(Outcome::Succeed { output }),
        End::Vanished => return Some(Outcome::Release),
        End::Returned(Err(failure)) => failure,
        End::Panicked(message) => Failure::retry(format_args!("panicked: {message}")),
        End::Dropped => Failure::Cancelled,
    };
    let mut retry = |error: String, delay: Option<Duration>| {
        let usual = || attempt.claim.retry.delay_ms(attempt.claim.attempt, jitter.unit());
        Outcome::Retry { error: error.into(), delay_ms: delay.map_or_else(usual, millis) }
    };
    Some(match (reason, failure) {
        (Some(CancelReason::Cancelled), _) => Outcome::Cancelled,
        (_, Failure::Fail { error }) => Outcome::Fail { error: error.into() },
        (Some(CancelReason::ShuttingDown), Failure::Retry { .. } | Failure::Cancelled) => Outcome::Release,
        (_, Failure::Snooze { delay }) => Outcome::Snooze { delay_ms: millis(delay) },
        (Some(CancelReason::TimedOut), failure) => {
            let timeout = Duration::from_millis(attempt.claim.timeout_ms.unwrap_or_default());
            let (why, delay) = match failure {
                Failure::Retry { error, delay } => (format!(": {error}"), delay),
                _ => (String::new(), None),
            };
            retry(format!("timed out after {timeout:?}{why}"), delay)
        }
        (_, Failure::Retry { error, delay }) => retry(error, delay),
        (Some(reason), Failure::Cancelled) => retry(reason.to_string(), None),
        (None, Failure::Cancelled) => Outcome::Cancelled,
    })
}

/// What the store will accept: an output that it would refuse becomes a failure with the reason.
fn checked(outcome: Outcome) -> Outcome {
    match outcome.check() {
        Ok(()) => outcome,
        Err(error) => Outcome::Fail { error: error.message().into() },
    }
}

/// Settles that the store has not acknowledged, the oldest first.
#[derive(Debug, Default)]
pub(crate) struct Settles(VecDeque<Settle>);

impl Settles {
    pub fn push(&mut self, settle: Settle) {
        self.0.push_back(settle);
    }

    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// As many as one exchange may carry.
    pub fn batch(&self) -> Vec<Settle> {
        let mut bytes = 0;
        let fits = |settle: &&Settle| {
            bytes += size(&settle.outcome);
            bytes <= caps::SETTLE_BYTES
        };
        self.0.iter().take(caps::SETTLES).take_while(fits).cloned().collect()
    }

    /// Drops the oldest `count` settles, which the store has acknowledged.
    pub fn acknowledge(&mut self, count: usize) {
        self.0.drain(..count.min(self.0.len()));
    }
}

fn size(outcome: &Outcome) -> usize {
    match outcome {
        Outcome::Succeed { output } => output.as_str().len(),
        Outcome::Retry { error, .. } | Outcome::Fail { error } => error.as_str().len(),
        Outcome::Snooze { .. } | Outcome::Release | Outcome::Cancelled => 0,
    }
}
