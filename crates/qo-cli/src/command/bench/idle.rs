//! What an idle worker costs.

use super::Bench;
use super::figure::{Bar, Figure, Unit};
use super::process::Process;
use qo::Result;
use std::time::{Duration, Instant};

/// How long it is watched, all rounds together.
const WATCHED: Duration = Duration::from_secs(20);
const WATCHED_QUICKLY: Duration = Duration::from_secs(1);

/// The processor time of an idle worker process, in hundredths of a core.
pub async fn idle(bench: &Bench<'_>) -> Result<Vec<Figure>> {
    let watched = if bench.quick { WATCHED_QUICKLY } else { WATCHED };
    let plot = bench.ground.fresh()?;
    let mut worker = Process::start(&plot.url())?;
    worker.wait_until_ready()?;
    // The start of the worker does not count.
    tokio::time::sleep(Duration::from_millis(500)).await;
    let mut shares = Vec::new();
    for round in 0..bench.rounds() {
        bench.at("idle", round, &format!("an idle worker, for {} s in all", watched.as_secs()));
        let (began, used_ns) = (Instant::now(), worker.cpu_ns()?);
        tokio::time::sleep(watched / bench.rounds()).await;
        let used_ns = worker.cpu_ns()?.saturating_sub(used_ns);
        shares.push(used_ns as f64 / 1e9 / began.elapsed().as_secs_f64() * 100.0);
    }
    worker.end()?;
    let what = format!("processor time of an idle worker over {} s, of one core", watched.as_secs());
    Ok(vec![Figure::new(what, Unit::Percent, shares).bar(Bar::AtMost(1.0))])
}
