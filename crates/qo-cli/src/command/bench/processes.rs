//! Several worker processes that share one directory.

use super::Bench;
use super::figure::{Bar, Figure, Unit};
use super::noop::{Noop, check_left, job, jobs, submit};
use super::process::Process;
use crate::machine::{cpu_ns, monotonic_ns};
use qo::Result;
use std::time::{Duration, Instant};

/// Worker processes.
const PROCESSES: usize = 4;

/// Four worker processes against one process, and how evenly the four share the jobs.
pub async fn processes(bench: &Bench<'_>) -> Result<Vec<Figure>> {
    let jobs = bench.jobs(100_000);
    let (mut ratios, mut cpu, mut least, mut most) = (Vec::new(), Vec::new(), Vec::new(), Vec::new());
    for round in 0..bench.rounds() {
        let (mut one, mut several) = (0.0, Took::default());
        for is_one in bench.legs(round) {
            if is_one {
                bench.at("processes", round, "one process");
                one += seconds_of_one(bench, jobs).await?;
            } else {
                bench.at("processes", round, &format!("{PROCESSES} worker processes"));
                let took = took_by_several(bench, jobs).await?;
                several.seconds += took.seconds;
                several.cpu_seconds += took.cpu_seconds;
                several.jobs += jobs;
                least.push(took.shares.iter().copied().fold(f64::INFINITY, f64::min));
                most.push(took.shares.iter().copied().fold(0.0, f64::max));
            }
        }
        ratios.push(one / several.seconds * 100.0);
        cpu.push(several.cpu_seconds / several.jobs as f64 * 1e6);
    }
    let what = format!("{PROCESSES} worker processes, to the rate of one process");
    Ok(vec![
        Figure::new(what, Unit::Percent, ratios).bar(Bar::AtLeast(40.0)),
        Figure::new("processor time of a job, all processes together", Unit::Micros, cpu),
        Figure::new("share of the process with the fewest jobs", Unit::Percent, least)
            .bar(Bar::AtLeast(15.0)),
        Figure::new("share of the process with the most jobs", Unit::Percent, most).bar(Bar::AtMost(35.0)),
    ])
}

/// What several processes took.
#[derive(Debug, Default)]
struct Took {
    jobs: u64,
    /// From the first submit until the last job was done.
    seconds: f64,
    /// Processor time of all processes.
    cpu_seconds: f64,
    /// The share of the jobs that each of them had, in hundredths.
    shares: Vec<f64>,
}

/// How long one process takes, from the first submit until the last job is done.
async fn seconds_of_one(bench: &Bench<'_>, count: u64) -> Result<f64> {
    let plot = bench.ground.fresh()?;
    let store = qo::connect(&plot.url()).await?;
    let worker = Noop::start(&store).await?;
    let calls = jobs(count, |_| job())?;
    let began = Instant::now();
    submit(&store, calls).await?;
    worker.tally.wait_for(count).await?;
    let seconds = began.elapsed().as_secs_f64();
    worker.end().await?;
    Ok(seconds)
}

/// What several processes take: this one submits, the others work.
async fn took_by_several(bench: &Bench<'_>, count: u64) -> Result<Took> {
    let plot = bench.ground.fresh()?;
    let url = plot.url();
    let store = qo::connect(&url).await?;
    let mut workers = (0..PROCESSES).map(|_| Process::start(&url)).collect::<Result<Vec<_>>>()?;
    for worker in &mut workers {
        worker.wait_until_ready()?;
    }
    let calls = jobs(count, |_| job())?;
    let cpu = |workers: &mut [Process]| -> Result<u64> {
        Ok(cpu_ns() + workers.iter_mut().map(Process::cpu_ns).sum::<Result<u64>>()?)
    };
    let cpu_before_ns = cpu(&mut workers)?;
    let began_ns = monotonic_ns();
    submit(&store, calls).await?;
    while workers.iter_mut().map(Process::done).sum::<Result<u64>>()? < count {
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    let cpu_seconds = cpu(&mut workers)?.saturating_sub(cpu_before_ns) as f64 / 1e9;
    let reports = workers.into_iter().map(Process::end).collect::<Result<Vec<_>>>()?;
    check_left(&store, 0).await?;
    let last_ns = reports.iter().map(|report| report.last_ns).max().unwrap_or(0);
    let seconds = last_ns.saturating_sub(began_ns) as f64 / 1e9;
    let shares = reports.iter().map(|report| report.done as f64 / count as f64 * 100.0).collect();
    Ok(Took { jobs: count, seconds, cpu_seconds, shares })
}
