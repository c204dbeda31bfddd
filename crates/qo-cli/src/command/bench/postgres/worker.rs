//! Through the worker, as users run it. The jobs do nothing, and are in line before it starts. The time runs from its
//! start until the last job is settled and it has ended.

use super::Fleet;
use super::world::retain;
use crate::command::bench::Bench;
use crate::command::bench::figure::{Figure, Unit};
use crate::command::bench::noop::{BATCH, Noop, PERMITS, Tally, check_left, job, jobs, options, submit};
use qo::Result;
use std::sync::Arc;
use std::time::Instant;

/// Jobs a round.
const JOBS: u64 = 100_000;

/// The rate of one worker, and of as many as the fleet has, in one process.
pub async fn worker(bench: &Bench<'_, Fleet>) -> Result<Vec<Figure>> {
    let most = bench.ground.workers();
    let count = bench.jobs(JOBS);
    let mut figures = Vec::new();
    let loads = [(1, false), (most, false), (most, true)];
    let mut all: Vec<Vec<f64>> = loads.iter().map(|_| Vec::new()).collect();
    for round in 0..bench.rounds() {
        for ((workers, is_kept), rates) in loads.iter().zip(&mut all) {
            bench.at("worker", round, &how(*workers, *is_kept));
            rates.push(count as f64 / seconds(bench, *workers, *is_kept, count).await?);
        }
    }
    for ((workers, is_kept), rates) in loads.iter().zip(all) {
        figures.push(Figure::new(how(*workers, *is_kept), Unit::JobsPerSecond, rates));
    }
    Ok(figures)
}

fn how(workers: u32, is_kept: bool) -> String {
    let kept = if is_kept { ", finished jobs kept" } else { "" };
    let workers = if workers == 1 { "one worker".to_owned() } else { format!("{workers} workers") };
    format!("{workers} with {PERMITS} permits, batches of {BATCH}{kept}")
}

async fn seconds(bench: &Bench<'_, Fleet>, workers: u32, is_kept: bool, count: u64) -> Result<f64> {
    let server = &bench.ground.server;
    let schema = server.fresh().await?;
    let store = qo::connect(&schema.url).await?;
    retain(&store, is_kept).await?;
    submit(&store, jobs(count, |_| job())?).await?;
    server.settle(&schema.name).await?;
    let mut stores = Vec::new();
    for _ in 0..workers {
        stores.push(qo::connect(&schema.url).await?);
    }
    let tally = Arc::new(Tally::default());
    let began = Instant::now();
    let mut running = Vec::new();
    for store in &stores {
        running.push(Noop::start_with(store, options(), Arc::clone(&tally)).await?);
    }
    tally.wait_for(count).await?;
    for worker in running {
        worker.end().await?;
    }
    let seconds = began.elapsed().as_secs_f64();
    check_left(&store, 0).await?;
    drop((store, stores));
    server.drop(&schema.name).await?;
    Ok(seconds)
}
