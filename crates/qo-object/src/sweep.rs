//! Sweeping: deleting what nobody will read again.
//!
//! A record may go when the **second newest** snapshot covers it (so that a damaged newest one costs nothing), that
//! snapshot can be restored, and the record is older than the sweep age, by the store's own stamps. Whoever has not looked at the
//! log for half that time does not trust what it knows of its end: it begins again at a snapshot. So a writer that slept
//! cannot write a record in a place that was swept, and have it believed.
//!
//! In a bucket stamps and dates may be wrong, so there a process also sweeps only records that it has itself known for the
//! sweep age, by its own monotonic clock ([`crate::watch`]). Where all processes live shorter than that, nothing would ever
//! be swept: so a process that has written a snapshot also deletes records that are a day older than the second newest
//! snapshot, by the stamps of both. No writer stalls for so long and goes on unnoticed, even if stamps are hours off.

use crate::format;
use crate::history;
use crate::log::Log;
use crate::snapshot::{self, Snapshot};
use crate::store::Options;
use qo_core::{Result, Time};

/// Attempts' logs are kept as long as the longest that jobs are remembered by default.
const LOGS_MS: u64 = qo_core::caps::RETAIN_FAILED_MS;
/// Objects that were only made to be stamped, or that were never finished, and were left behind.
const LEFT_BEHIND_MS: u64 = 3_600_000;
/// How much older than the snapshot that covers it a record is that any process may delete.
const FAR_OLDER_MS: u64 = 25 * 3_600_000;

/// Deletes records and snapshots that no process will read again, and returns how many records that were. With `known` only those
/// up to that number, and those that are far older than the snapshot that covers them.
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
    let now = log.store_time().await?;
    let is_over = |(_, written): &&(u64, Time)| now.ms_since(*written) > age_ms;
    // In order: a sweep that is cut short leaves no gap in the middle.
    let records: Vec<_> = records.iter().take_while(|record| may_go(record) && is_over(record)).collect();
    let older: Vec<_> = older.iter().filter(|snapshot| may_go(snapshot) && is_over(snapshot)).collect();
    if (records.is_empty() && older.is_empty())
        || !Snapshot::can_be_restored(log, *covered, options.host).await?
    {
        return Ok(0);
    }
    log.delete_all(records.iter().map(|(number, _)| Log::path(*number)).collect()).await?;
    log.delete_all(older.iter().map(|(number, _)| snapshot::path(*number)).collect()).await?;
    Ok(records.len() as u64)
}

/// Deletes what is kept for hours or days, and what processes that were killed have left. Jobs that succeeded are
/// remembered for `remembered_ms`. It looks at every such object, so it is not for every minute.
pub(crate) async fn sweep_old(log: &Log, remembered_ms: u64) -> Result<()> {
    let now = log.store_time().await?;
    let is_over = |written: Time, age_ms: u64| now.ms_since(written) > age_ms;
    history::forget(log, now, remembered_ms).await?;
    delete_older(log, "attempt", |written| is_over(written, LOGS_MS)).await?;
    format::sweep_marks(log).await?;
    delete_older(log, "clock", |written| is_over(written, LEFT_BEHIND_MS)).await?;
    // Who still uses his makes it anew.
    delete_older(log, "wanting", |written| is_over(written, LEFT_BEHIND_MS)).await?;
    for folder in ["format", "history", "attempt", "clock"] {
        log.clear(folder, |_, written| is_over(written, LEFT_BEHIND_MS)).await?;
    }
    // At the end of the log somebody who was only stopped may go on with what he began, and another may have begun the
    // same in the meantime: that must not be taken from under them.
    let snapshots = log.numbers("snapshot").await?;
    let [.., covered, _] = snapshots[..] else { return Ok(()) };
    for folder in ["log", "snapshot"] {
        let is_over = |number: Option<u64>, written| {
            number.is_some_and(|number| number <= covered) && is_over(written, LEFT_BEHIND_MS)
        };
        log.clear(folder, is_over).await?;
    }
    Ok(())
}

async fn delete_older(log: &Log, folder: &str, is_over: impl Fn(Time) -> bool) -> Result<()> {
    let aged = log.list_aged(folder).await?.into_iter();
    log.delete_all(aged.filter(|(_, at)| is_over(*at)).map(|(path, _)| path).collect()).await
}
