//! A limit that binds: how many of its slots are in use while work is waiting.
//!
//! Between two jobs of a slot lies at least one commit, which settles the first and claims the second. Its cost depends
//! on the disk, so a job is as long as many commits; on a faster disk the jobs are shorter.

use super::Bench;
use super::figure::{Bar, Figure, Unit};
use super::noop::{PERMITS, TASK, job, jobs, options, submit};
use crate::machine::monotonic_ns;
use qo::core::GroupRef;
use qo::{Context, Error, ErrorKind, Failure, Result, ShutdownHandle, Store, Worker, WorkerOptions};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
use tokio::task::JoinSet;

/// The limit.
const LIMIT: u32 = 10;
/// The shortest job.
pub const LEAST_MS: f64 = 20.0;
/// The length of a job, in commits.
pub const COMMITS: f64 = 40.0;

/// When jobs began and ended, in nanoseconds.
type Times = Arc<Mutex<Vec<(u64, u64)>>>;

/// The mean number at once, in hundredths of the limit.
pub async fn binding(bench: &Bench<'_>) -> Result<Vec<Figure>> {
    let job_ms =
        if bench.quick { LEAST_MS } else { (bench.fsync_ms().await? * COMMITS).max(LEAST_MS).round() };
    let count = bench.jobs(200).clamp(40, 1_000);
    let mut shares = Vec::new();
    for round in 0..bench.rounds() {
        bench.at("binding", round, "a limit that binds");
        shares.push(share(bench, count, Duration::from_millis(job_ms as u64)).await?);
    }
    let what = format!("mean number at once of a limit of {LIMIT}, jobs of {job_ms} ms");
    Ok(vec![Figure::new(what, Unit::Percent, shares).bar(Bar::AtLeast(95.0))])
}

async fn share(bench: &Bench<'_>, count: u64, length: Duration) -> Result<f64> {
    let plot = bench.ground.fresh()?;
    let store = qo::connect(&plot.url()).await?;
    share_of(&[store], LIMIT, PERMITS, count, length).await
}

/// The mean number at once in hundredths of a limit, with one worker for each store.
pub async fn share_of(
    stores: &[Arc<dyn Store>],
    limit: u32,
    permits: u32,
    count: u64,
    length: Duration,
) -> Result<f64> {
    let times = run(stores, limit, permits, count, length).await?;
    Ok(mean_at_once(&times) / f64::from(limit) * 100.0)
}

/// Submits and runs jobs under a limit, and returns when each began and ended by its own record, in nanoseconds.
pub async fn run(
    stores: &[Arc<dyn Store>],
    limit: u32,
    permits: u32,
    count: u64,
    length: Duration,
) -> Result<Vec<(u64, u64)>> {
    stores[0].set_limit(GroupRef::parse("group", TASK)?, limit).await?;
    submit(&stores[0], jobs(count, |_| job())?).await?;
    let times = Times::default();
    let (all_done, mut done) = tokio::sync::watch::channel(0);
    let gone = |error: String| Error::new(ErrorKind::Internal, format!("the worker is gone: {error}"));
    let (mut running, mut shutdowns) = (JoinSet::new(), Vec::new());
    for store in stores {
        let (noted, all_done) = (Arc::clone(&times), all_done.clone());
        let sleeps = move |(): (), _: Context| {
            let (times, all_done) = (Arc::clone(&noted), all_done.clone());
            async move {
                let began = monotonic_ns();
                tokio::time::sleep(length).await;
                times.lock().unwrap_or_else(PoisonError::into_inner).push((began, monotonic_ns()));
                all_done.send_modify(|done| *done += 1);
                Ok::<(), Failure>(())
            }
        };
        let options = WorkerOptions { max_concurrent_tasks: Some(permits), ..options() };
        let worker = Worker::builder(Arc::clone(store)).options(options).task(TASK, sleeps).build()?;
        shutdowns.push(worker.shutdown_handle());
        running.spawn(worker.run());
    }
    done.wait_for(|done| *done >= count).await.map_err(|error| gone(error.to_string()))?;
    shutdowns.iter().for_each(ShutdownHandle::drain);
    while let Some(ended) = running.join_next().await {
        ended.map_err(|error| gone(error.to_string()))??;
    }
    let times = times.lock().unwrap_or_else(PoisonError::into_inner);
    Ok(times.clone())
}

/// How many ran at once in the mean, from the first beginning to the last: as long as work was waiting.
fn mean_at_once(times: &[(u64, u64)]) -> f64 {
    let from = times.iter().map(|(began, _)| *began).min().unwrap_or(0);
    let to = times.iter().map(|(began, _)| *began).max().unwrap_or(0);
    let running: u64 = times.iter().map(|&(began, ended)| ended.min(to).saturating_sub(began)).sum();
    running as f64 / to.saturating_sub(from) as f64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_mean_number_at_once_is_of_the_time_while_work_waited() {
        // Two at once for 10, then the last job begins: the time after that does not count.
        assert_eq!(mean_at_once(&[(0, 10), (0, 10), (10, 20)]), 2.0);
        // One slot is idle for half of the time.
        assert_eq!(mean_at_once(&[(0, 20), (0, 10), (20, 30)]), 1.5);
    }
}
