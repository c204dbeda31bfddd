//! The rate of a scenario against that without limits: the same number in flight, the same batches, taking turns.

use super::Fleet;
use super::race::Took;
use super::world::{HIGH, Kind, Load, World};
use crate::command::bench::Bench;
use crate::command::bench::figure::{Bar, Figure, Unit, percentile};
use crate::command::bench::scenario::Scenario;
use qo::Result;

/// Jobs a leg, with large batches and with small ones.
const JOBS: u64 = 50_000;
const JOBS_OF_SMALL_BATCHES: u64 = 20_000;

/// What was measured, round by round.
#[derive(Debug, Default)]
pub struct Rounds {
    ratios: Vec<f64>,
    rates: Vec<f64>,
    slowest: Vec<f64>,
    p50: Vec<f64>,
    p99: Vec<f64>,
}

impl Rounds {
    fn add(&mut self, took: &Took) {
        self.rates.push(took.rate());
        self.slowest.push(took.slowest_worker());
        self.p50.push(percentile(&took.exchanges_ms, 50.0));
        self.p99.push(percentile(&took.exchanges_ms, 99.0));
    }

    /// All but the ratio.
    fn figures(self, load: &Load) -> Vec<Figure> {
        let how = how(load);
        vec![
            Figure::new(format!("{how}, all workers"), Unit::JobsPerSecond, self.rates),
            Figure::new(format!("{how}, the slowest worker"), Unit::JobsPerSecond, self.slowest),
            Figure::new(format!("{how}, an exchange, p50"), Unit::Ms, self.p50),
            Figure::new(format!("{how}, an exchange, p99"), Unit::Ms, self.p99),
        ]
    }
}

/// How it was measured, in words.
fn how(load: &Load) -> String {
    let kept = if load.is_kept { ", finished jobs kept" } else { "" };
    format!("{} workers, batches of {}{kept}", load.workers, load.batch)
}

/// The loads under which a scenario is measured. The first one counts.
fn loads(bench: &Bench<'_, Fleet>, kind: Kind) -> Vec<Load> {
    let fleet = bench.ground;
    let load = |workers, batch, is_kept| Load { workers, batch, is_kept, quick: bench.quick };
    if kind == Kind::High {
        // As many in flight as the limit allows.
        let workers = fleet.many_workers();
        let batch = (HIGH / workers).max(1);
        return vec![load(workers, batch, false), load(workers, batch, true)];
    }
    let workers = fleet.workers();
    let small = fleet.small_batch().map(|batch| load(workers, batch, false));
    let large = [load(workers, fleet.batch(), false), load(workers, fleet.batch(), true)];
    let seen_to_work = if bench.quick && kind != Kind::Baseline { 1 } else { usize::MAX };
    large.into_iter().chain(small).take(seen_to_work).collect()
}

/// The load that counts.
pub fn first_load(bench: &Bench<'_, Fleet>, kind: Kind) -> Load {
    loads(bench, kind)[0]
}

/// Jobs that one leg has.
pub fn jobs(bench: &Bench<'_, Fleet>, load: &Load) -> u64 {
    bench.jobs(if load.batch < super::BATCH / 2 { JOBS_OF_SMALL_BATCHES } else { JOBS })
}

/// The rate without limits.
pub async fn baseline(bench: &Bench<'_, Fleet>) -> Result<Vec<Figure>> {
    let mut figures = Vec::new();
    let loads = loads(bench, Kind::Baseline);
    let mut all: Vec<Rounds> = loads.iter().map(|_| Rounds::default()).collect();
    for round in 0..bench.rounds() {
        for (load, rounds) in loads.iter().zip(&mut all) {
            bench.at("concurrency-baseline", round, &how(load));
            let server = &bench.ground.server;
            let mut world = World::make(server, Kind::Baseline, *load).await?;
            let mut took = Took::default();
            for _ in bench.legs(round).iter().skip(1).step_by(2) {
                took.add(world.leg(server, jobs(bench, load)).await?);
            }
            world.end(server).await?;
            rounds.add(&took);
        }
    }
    for (load, rounds) in loads.iter().zip(all) {
        figures.extend(rounds.figures(load));
    }
    Ok(figures)
}

/// The rate of a kind as a percentage of the other's; the first load must reach the bar.
pub async fn ratio(
    bench: &Bench<'_, Fleet>,
    scenario: Scenario,
    kind: Kind,
    bar: f64,
) -> Result<Vec<Figure>> {
    let mut figures = Vec::new();
    for (index, load) in loads(bench, kind).iter().enumerate() {
        let mut rounds = Rounds::default();
        for round in 0..bench.rounds() {
            bench.at(&scenario.name(), round, &how(load));
            let [with, without] = both(bench, kind, load, round).await?;
            rounds.ratios.push(with.rate() / without.rate() * 100.0);
            rounds.add(&with);
        }
        let other = if kind == Kind::Deep { "10,000 pending" } else { "the rate without" };
        let what = format!("{}, to {other}", how(load));
        let ratio = Figure::new(what, Unit::Percent, std::mem::take(&mut rounds.ratios));
        figures.push(if index == 0 { ratio.bar(Bar::AtLeast(bar)) } else { ratio });
        figures.extend(rounds.figures(load));
    }
    Ok(figures)
}

/// One round: what a kind took, and what the other took that it is compared with.
async fn both(bench: &Bench<'_, Fleet>, kind: Kind, load: &Load, round: u32) -> Result<[Took; 2]> {
    let server = &bench.ground.server;
    let mut with = World::make(server, kind, *load).await?;
    let mut without = World::make(server, kind.other(), *load).await?;
    let mut took = [Took::default(), Took::default()];
    for is_without in bench.legs(round) {
        let world = if is_without { &mut without } else { &mut with };
        took[usize::from(is_without)].add(world.leg(server, jobs(bench, load)).await?);
    }
    with.end(server).await?;
    without.end(server).await?;
    Ok(took)
}
