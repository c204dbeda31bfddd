//! Sweeping: deleting what nobody will read again.
//!
//! A record may go when the **second newest** snapshot covers it (so that a damaged newest one costs nothing) and it is
//! older than the sweep age, by the store's own stamps. Whoever has not looked at the log for half that time does not
//! trust what it knows of its end: it begins again at a snapshot. So a writer that slept cannot write a record in a
//! place that was swept, and have it believed.

use crate::history;
use crate::log::{Log, number_of};
use object_store::path::Path;
use qo_core::{Result, Time};
use std::time::Duration;

/// Attempts' logs are kept as long as the longest that jobs are remembered by default.
const LOGS_MS: u64 = qo_core::caps::RETAIN_FAILED_MS;
/// Objects that were only made to be stamped, and were left behind.
const LEFT_BEHIND_MS: u64 = 3_600_000;

/// Deletes what nobody will read again, and returns how many records that were. Jobs that succeeded are remembered for
/// `remembered_ms`.
pub(crate) async fn sweep(log: &Log, age: Duration, remembered_ms: u64) -> Result<u64> {
    let age_ms = u64::try_from(age.as_millis()).unwrap_or(u64::MAX);
    let now = log.store_time().await?;
    let is_over = |written: Time, age_ms: u64| now.ms_since(written) > age_ms;
    let mut swept = 0;
    let snapshots = log.list_aged("snapshot").await?;
    if let Some([.., (second, _), _]) = snapshots.get(..)
        && let Some(covered) = number_of(second)
    {
        // In order: a sweep that is cut short leaves no gap in the middle.
        for (path, written) in log.list_aged("log").await? {
            if number_of(&path).is_none_or(|number| number > covered) || !is_over(written, age_ms) {
                break;
            }
            log.delete(&path).await?;
            swept += 1;
        }
        for (path, written) in &snapshots[..snapshots.len() - 2] {
            if is_over(*written, age_ms) {
                log.delete(path).await?;
            }
        }
    }
    history::forget(log, now, remembered_ms).await?;
    delete_older(log, "attempt", |written| is_over(written, LOGS_MS)).await?;
    delete_older(log, "clock", |written| is_over(written, LEFT_BEHIND_MS)).await?;
    Ok(swept)
}

async fn delete_older(log: &Log, folder: &str, is_over: impl Fn(Time) -> bool) -> Result<()> {
    let old: Vec<Path> = log
        .list_aged(folder)
        .await?
        .into_iter()
        .filter(|(_, at)| is_over(*at))
        .map(|(path, _)| path)
        .collect();
    for path in old {
        log.delete(&path).await?;
    }
    Ok(())
}
