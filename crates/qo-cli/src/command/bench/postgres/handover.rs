//! How long the slot of a full group stays idle between two jobs.

use super::Fleet;
use crate::command::bench::Bench;
use crate::command::bench::binding::run;
use crate::command::bench::figure::{Bar, Figure, Unit, percentile};
use qo::Result;
use std::time::Duration;

/// How long a job holds the slot.
const HELD: Duration = Duration::from_millis(10);
/// Workers that wait for it, and jobs that each could run.
const WORKERS: u32 = 2;
const PERMITS: u32 = 50;

/// From the last line of a job's handler to the first line of the next, on whichever worker: a group with a limit of 1,
/// and two workers that have no other jobs.
pub async fn handover(bench: &Bench<'_, Fleet>) -> Result<Vec<Figure>> {
    let server = &bench.ground.server;
    let count = bench.jobs(300).clamp(20, 1_000);
    let (mut p50, mut p99) = (Vec::new(), Vec::new());
    for round in 0..bench.rounds() {
        bench.at("handover", round, "a limit of 1");
        let schema = server.fresh().await?;
        let mut stores = Vec::new();
        for _ in 0..WORKERS {
            stores.push(qo::connect(&schema.url).await?);
        }
        let idle_ms = idle_ms(run(&stores, 1, PERMITS, count, HELD).await?);
        drop(stores);
        server.drop(&schema.name).await?;
        p50.push(percentile(&idle_ms, 50.0));
        p99.push(percentile(&idle_ms, 99.0));
    }
    let what = format!("the slot of a limit of 1 idle between two jobs, {WORKERS} workers");
    Ok(vec![
        Figure::new(format!("{what}, p50"), Unit::Ms, p50).bar(Bar::AtMost(5.0)),
        Figure::new(format!("{what}, p99"), Unit::Ms, p99),
    ])
}

/// How long no job ran between one that ended and the next, in milliseconds.
fn idle_ms(mut times: Vec<(u64, u64)>) -> Vec<f64> {
    times.sort_unstable();
    times.windows(2).map(|pair| pair[1].0.saturating_sub(pair[0].1) as f64 / 1e6).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_idle_time_is_between_one_end_and_the_next_beginning() {
        let times = vec![(40_000_000, 50_000_000), (0, 10_000_000), (12_000_000, 39_500_000)];
        assert_eq!(idle_ms(times), [2.0, 0.5]);
    }
}
