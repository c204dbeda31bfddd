//! How soon a job begins on an idle store: submitted by the worker's own process, and by another.

use super::Bench;
use super::figure::{Bar, Figure, Unit, percentile};
use super::noop::{Noop, job_of_now};
use super::process::Process;
use qo::{Client, Result};
use std::sync::Arc;
use std::time::Duration;

/// How long the store is idle before the next job.
const IDLE: Duration = Duration::from_millis(15);

/// From the call that submits a job to the first line of its handler.
pub async fn pickup(bench: &Bench<'_>) -> Result<Vec<Figure>> {
    let count = bench.jobs(100).clamp(5, 200);
    let mut figures = Vec::new();
    for (what, across, slack_ms) in [("one process", false, 2.0), ("across processes", true, 15.0)] {
        let (mut p50, mut p99) = (Vec::new(), Vec::new());
        let bar = Bar::AtMost(3.0 * bench.fsync_ms().await? + slack_ms);
        for round in 0..bench.rounds() {
            bench.at("pickup", round, what);
            let plot = bench.ground.fresh()?;
            let url = plot.url();
            let waits_ms =
                if across { across_processes(&url, count).await? } else { in_process(&url, count).await? };
            p50.push(percentile(&waits_ms, 50.0));
            p99.push(percentile(&waits_ms, 99.0));
        }
        figures.push(Figure::new(format!("{what}, submit to start, p50"), Unit::Ms, p50).bar(bar));
        figures.push(Figure::new(format!("{what}, submit to start, p99"), Unit::Ms, p99));
    }
    Ok(figures)
}

/// How long each of `count` jobs waits for a worker of this process.
pub async fn in_process(url: &str, count: u64) -> Result<Vec<f64>> {
    let store = qo::connect(url).await?;
    let worker = Noop::start(&store).await?;
    submit_one_by_one(&Client::new(Arc::clone(&store)), count).await?;
    Ok(worker.end().await?.waits_ms())
}

/// The same for a worker of another process.
pub async fn across_processes(url: &str, count: u64) -> Result<Vec<f64>> {
    let mut worker = Process::start(url)?;
    worker.wait_until_ready()?;
    submit_one_by_one(&Client::connect(url).await?, count).await?;
    Ok(worker.end()?.waits_ms)
}

/// Submits each job when the one before it is done and the store has been idle for a while.
async fn submit_one_by_one(client: &Client, count: u64) -> Result<()> {
    for _ in 0..count {
        tokio::time::sleep(IDLE).await;
        let job = job_of_now()?;
        let id = job.id;
        for submitted in client.submit_many(vec![job]).await? {
            submitted?;
        }
        client.wait(id).await?;
    }
    Ok(())
}
