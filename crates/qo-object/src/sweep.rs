//! The record sweep: deleting records, and other objects, that no process will read again.
//!
//! A record is deleted if all of these hold:
//!
//! 1. The **second newest** snapshot covers it, so that a damaged newest one costs nothing.
//! 2. A state can be restored from that snapshot.
//! 3. The record is older than the sweep age, by the store's own stamps.
//! 4. Where stamps may be wrong: this process has known the record for the sweep age, by its own monotonic clock
//!    ([`crate::watch`]). Where all processes live shorter than that, none would ever be deleted; so instead the
//!    record may be [`FAR_OLDER_MS`] older than the second newest snapshot, by the stamps of both. No writer stalls for
//!    that long unnoticed, even if stamps are hours off.
//!
//! Invariant: a writer that has not looked at the log for half the sweep age does not trust what it knows of its end,
//! and reopens from a snapshot. So a stalled writer cannot create a record anew that a record sweep has deleted, and
//! have it believed.

use crate::format;
use crate::history;
use crate::log::Log;
use crate::snapshot::{self, Snapshot};
use crate::store::Options;
use qo_core::{Result, Time};

/// Logs of attempts are kept for the longest default retention of jobs.
const LOGS_MS: u64 = qo_core::caps::RETAIN_FAILED_MS;
/// Age of objects that a killed process left behind: made only to be stamped, or never finished.
const LEFT_BEHIND_MS: u64 = 3_600_000;
/// A record that is so much older than the snapshot that covers it may be deleted by any process.
const FAR_OLDER_MS: u64 = 25 * 3_600_000;

/// Deletes records and snapshots that no process will read again, and returns how many records that were. With `known`,
/// only those up to that number, and those that are far older than the snapshot that covers them.
pub(crate) async fn sweep(log: &Log, options: &Options, known: Option<u64>) -> Result<u64> {
    let age_ms = u64::try_from(options.sweep_age.as_millis()).unwrap_or(u64::MAX);
    let snapshots = log.numbers_aged("snapshot").await?;
    let [older @ .., (covered, covered_at), _] = &snapshots[..] else { return Ok(0) };
    let may_go = |(number, written): &&(u64, Time)| {
        let is_known = known.is_none_or(|known| *number <= known);
        number <= covered && (is_known || covered_at.ms_since(*written) > FAR_OLDER_MS)
    };
    let records = log.numbers_aged("log").await?;
    if !records.iter().any(|record| may_go(&record)) && !older.iter().any(|snapshot| may_go(&snapshot)) {
        return Ok(0);
    }
    let now = log.medium().store_time().await?;
    let is_over = |(_, written): &&(u64, Time)| now.ms_since(*written) > age_ms;
    // In order: a sweep that is cut short leaves no gap in the middle of the log.
    let records: Vec<_> = records.iter().take_while(|record| may_go(record) && is_over(record)).collect();
    let older: Vec<_> = older.iter().filter(|snapshot| may_go(snapshot) && is_over(snapshot)).collect();
    if (records.is_empty() && older.is_empty())
        || !Snapshot::can_be_restored(log, *covered, options.host).await?
    {
        return Ok(0);
    }
    log.medium().delete_all(records.iter().map(|(number, _)| Log::path(*number)).collect()).await?;
    log.medium().delete_all(older.iter().map(|(number, _)| snapshot::path(*number)).collect()).await?;
    Ok(records.len() as u64)
}

/// Deletes objects that are kept for hours or days, and what killed processes left behind. Jobs that succeeded are
/// remembered for `remembered_ms`. It lists every such object, so it is not for every minute.
pub(crate) async fn sweep_old(log: &Log, remembered_ms: u64) -> Result<()> {
    let now = log.medium().store_time().await?;
    let is_over = |written: Time, age_ms: u64| now.ms_since(written) > age_ms;
    history::forget(log, now, remembered_ms).await?;
    delete_older(log, "attempt", |written| is_over(written, LOGS_MS)).await?;
    format::sweep_marks(log).await?;
    delete_older(log, "clock", |written| is_over(written, LEFT_BEHIND_MS)).await?;
    // A writer that still uses its file makes it anew.
    delete_older(log, "wanting", |written| is_over(written, LEFT_BEHIND_MS)).await?;
    for folder in ["format", "history", "attempt", "clock"] {
        log.medium().clear_staged(folder, |_, written| is_over(written, LEFT_BEHIND_MS)).await?;
    }
    // At the end of the log a stopped writer may go on with a file that it began, and another writer may have begun the
    // same one meanwhile: their files stay.
    let snapshots = log.numbers("snapshot").await?;
    let [.., covered, _] = snapshots[..] else { return Ok(()) };
    for folder in ["log", "snapshot"] {
        let is_over = |number: Option<u64>, written| {
            number.is_some_and(|number| number <= covered) && is_over(written, LEFT_BEHIND_MS)
        };
        log.medium().clear_staged(folder, is_over).await?;
    }
    Ok(())
}

async fn delete_older(log: &Log, folder: &str, is_over: impl Fn(Time) -> bool) -> Result<()> {
    let aged = log.medium().list_aged(folder).await?.into_iter();
    log.medium().delete_all(aged.filter(|(_, at)| is_over(*at)).map(|(path, _)| path).collect()).await
}
