//! A limit that is always full: what it costs, and how many of its slots are in use.

use super::Fleet;
use super::ratio::ratio;
use super::world::Kind;
use crate::command::bench::Bench;
use crate::command::bench::binding::{COMMITS, LEAST_MS, share_of};
use crate::command::bench::figure::{Bar, Figure, Unit};
use crate::command::bench::scenario::Scenario;
use qo::Result;
use std::time::Duration;

/// The limit, and how many workers share it as permits.
const LIMIT: u32 = 100;
const WORKERS: u32 = 2;

/// The rate under a limit that is as high as the number in flight; and, for a limit that is as high as the permits of
/// all workers together, the mean number at once, with jobs that take a while.
pub async fn binding(bench: &Bench<'_, Fleet>) -> Result<Vec<Figure>> {
    let mut figures = ratio(bench, Scenario::Binding, Kind::Binding, 80.0).await?;
    let server = &bench.ground.server;
    let commit_ms = server.facts().await?.commit_ms;
    let job_ms = if bench.quick { LEAST_MS } else { (commit_ms * COMMITS).max(LEAST_MS).round() };
    let count = bench.jobs(4_000).clamp(200, 10_000);
    let mut shares = Vec::new();
    for round in 0..bench.rounds() {
        bench.at("binding", round, "how many at once");
        let schema = server.fresh().await?;
        let mut stores = Vec::new();
        for _ in 0..WORKERS {
            stores.push(qo::connect(&schema.url).await?);
        }
        let length = Duration::from_millis(job_ms as u64);
        shares.push(share_of(&stores, LIMIT, LIMIT / WORKERS, count, length).await?);
        drop(stores);
        server.drop(&schema.name).await?;
    }
    let what = format!(
        "mean number at once of a limit of {LIMIT}, {WORKERS} workers with {} permits, jobs of {job_ms} ms",
        LIMIT / WORKERS
    );
    figures.push(Figure::new(what, Unit::Percent, shares).bar(Bar::AtLeast(95.0)));
    Ok(figures)
}
