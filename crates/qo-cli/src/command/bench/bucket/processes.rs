//! Many worker processes on one namespace.

use super::Site;
use super::bill::{Bill, JobBars};
use crate::command::bench::Bench;
use crate::command::bench::figure::{Bar, Figure, Unit};
use crate::command::bench::noop::{SUBMIT, calls, check_left, job, submit};
use crate::command::bench::process::Process;
use crate::machine::monotonic_ns;
use qo::Result;
use qo::bucket::Requests;
use std::time::Duration;

/// Worker processes.
const PROCESSES: usize = 8;
const JOBS: u64 = 20_000;

/// Their rate together, and how evenly they share the jobs.
pub async fn processes(bench: &Bench<'_, Site>) -> Result<Vec<Figure>> {
    let count = bench.jobs(JOBS);
    let (mut rates, mut least, mut bill) = (Vec::new(), Vec::new(), Bill::default());
    for round in 0..bench.rounds() {
        bench.at("processes", round, &format!("{PROCESSES} worker processes"));
        let url = bench.ground.fresh();
        let (store, traffic) = qo::bucket::connect(&url).await?;
        let mut workers = (0..PROCESSES).map(|_| start(&url)).collect::<Result<Vec<_>>>()?;
        for worker in &mut workers {
            worker.wait_until_ready()?;
        }
        let calls = calls(count, SUBMIT, |_| job())?;
        let before = asked(&mut workers)?.plus(&traffic.requests());
        let began_ns = monotonic_ns();
        submit(&store, calls).await?;
        while workers.iter_mut().map(Process::done).sum::<Result<u64>>()? < count {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        bill.add(count, asked(&mut workers)?.plus(&traffic.requests()).since(&before));
        let reports = workers.into_iter().map(Process::end).collect::<Result<Vec<_>>>()?;
        check_left(&store, 0).await?;
        let last_ns = reports.iter().map(|report| report.last_ns).max().unwrap_or(0);
        rates.push(count as f64 / (last_ns.saturating_sub(began_ns) as f64 / 1e9));
        let fewest = reports.iter().map(|report| report.done).min().unwrap_or(0);
        least.push(fewest as f64 * PROCESSES as f64 / count as f64 * 100.0);
    }
    let mut figures = vec![
        Figure::new(
            format!("{PROCESSES} worker processes: {count} jobs, submit to done"),
            Unit::JobsPerSecond,
            rates,
        )
        .bar(Bar::AtLeast(500.0)),
        Figure::new("jobs of the process with the fewest, of its fair share", Unit::Percent, least)
            .bar(Bar::AtLeast(50.0)),
    ];
    figures.extend(
        bill.figures(&format!("{PROCESSES} worker processes and the one that submits"), JobBars::default()),
    );
    Ok(figures)
}

/// A worker process with the options of the bucket scenarios.
pub fn start(url: &str) -> Result<Process> {
    let (permits, batch) = (super::PERMITS.to_string(), super::BATCH.to_string());
    Process::start_with(url, &["--permits", &permits, "--batch", &batch])
}

/// The requests of all of them.
pub fn asked(workers: &mut [Process]) -> Result<Requests> {
    let mut all = Requests::default();
    for worker in workers {
        all = all.plus(&worker.requests()?);
    }
    Ok(all)
}
