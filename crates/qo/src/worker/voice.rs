//! What a worker logs of each job: an event when an attempt starts and one when it ends, of the target `qo::job`.
//!
//! | field | |
//! |---|---|
//! | `job`, `task`, `key`, `attempt` | which one; a job without a key has no `key` |
//! | `outcome` | at the end: succeeded, retried, failed, snoozed, released, cancelled, or `lease ended` if the store ended the claim |
//! | `duration_ms` | at the end: how long it ran |
//! | `retry_ms` | after how long it is tried again |
//! | `error` | the first line of the error, 200 characters at most |
//!
//! A retried, failed or lost attempt is a WARN, everything else an INFO. No event has a payload or an output. Fields
//! are only computed if a subscriber wants the event.

use crate::worker::attempt::{Attempt, Claimed};
use qo_core::Outcome;
use std::time::Duration;

/// The target of these events.
const TARGET: &str = "qo::job";
/// Longest part of an error that is shown, in characters.
const ERROR_CHARACTERS: usize = 200;

/// An attempt starts.
pub(super) fn started(claim: &Claimed) {
    tracing::info!(
        target: TARGET,
        job = %claim.job,
        task = %claim.task,
        key = claim.key.as_deref(),
        attempt = claim.attempt,
        "job started"
    );
}

/// An attempt has ended; without an outcome if the store ended its claim before.
pub(super) fn ended(attempt: &Attempt, outcome: Option<&Outcome>, took: Duration) {
    let claim = &attempt.claim;
    let duration_ms = u64::try_from(took.as_millis()).unwrap_or(u64::MAX);
    let (outcome, error, retry_ms) = match outcome {
        Some(Outcome::Succeed { .. }) => return went_well(claim, "succeeded", duration_ms),
        Some(Outcome::Snooze { .. }) => return went_well(claim, "snoozed", duration_ms),
        Some(Outcome::Release) => return went_well(claim, "released", duration_ms),
        Some(Outcome::Cancelled) => return went_well(claim, "cancelled", duration_ms),
        Some(Outcome::Retry { error, .. }) if claim.attempt >= claim.max_attempts => {
            ("failed", Some(error.as_str()), None)
        }
        Some(Outcome::Retry { error, delay_ms }) => ("retried", Some(error.as_str()), Some(*delay_ms)),
        Some(Outcome::Fail { error }) => ("failed", Some(error.as_str()), None),
        None => ("lease ended", None, None),
    };
    tracing::warn!(
        target: TARGET,
        job = %claim.job,
        task = %claim.task,
        key = claim.key.as_deref(),
        attempt = claim.attempt,
        duration_ms,
        outcome,
        retry_ms,
        error = error.map(first_line),
        "job ended"
    );
}

fn went_well(claim: &Claimed, outcome: &str, duration_ms: u64) {
    tracing::info!(
        target: TARGET,
        job = %claim.job,
        task = %claim.task,
        key = claim.key.as_deref(),
        attempt = claim.attempt,
        duration_ms,
        outcome,
        "job ended"
    );
}

/// The first line of an error, or the beginning of it.
fn first_line(error: &str) -> &str {
    let line = error.trim_start().lines().next().unwrap_or_default().trim_end();
    line.char_indices().nth(ERROR_CHARACTERS).map_or(line, |(at, _)| &line[..at])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn of_an_error_the_first_line_is_shown_and_not_all_of_a_long_one() {
        assert_eq!(first_line("exit code 3: no\nsecond"), "exit code 3: no");
        assert_eq!(first_line("\n\n  late \n"), "late");
        assert_eq!(first_line(""), "");
        assert_eq!(first_line(&"ü".repeat(1_000)), "ü".repeat(200));
    }
}
