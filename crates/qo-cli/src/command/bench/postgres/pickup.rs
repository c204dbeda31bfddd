//! How soon a job begins on an idle server.

use super::Fleet;
use crate::command::bench::Bench;
use crate::command::bench::figure::{Bar, Figure, Unit, percentile};
use crate::command::bench::pickup::{across_processes, in_process};
use qo::Result;

/// From the call that submits a job to the first line of its handler, one job at a time.
pub async fn pickup(bench: &Bench<'_, Fleet>) -> Result<Vec<Figure>> {
    let count = bench.jobs(200).clamp(5, 500);
    let server = &bench.ground.server;
    let mut figures = Vec::new();
    for (what, across) in [("one process", false), ("across processes", true)] {
        let (mut p50, mut p99) = (Vec::new(), Vec::new());
        for round in 0..bench.rounds() {
            bench.at("pickup", round, what);
            let schema = server.fresh().await?;
            let waits_ms = if across {
                across_processes(&schema.url, count).await?
            } else {
                in_process(&schema.url, count).await?
            };
            server.drop(&schema.name).await?;
            p50.push(percentile(&waits_ms, 50.0));
            p99.push(percentile(&waits_ms, 99.0));
        }
        let figure = |percent: &str, values, most| {
            let what = format!("{what}, submit to start, {percent}");
            Figure::new(what, Unit::Ms, values).bar(Bar::AtMost(most))
        };
        figures.push(figure("p50", p50, 3.0));
        figures.push(figure("p99", p99, 10.0));
    }
    Ok(figures)
}
