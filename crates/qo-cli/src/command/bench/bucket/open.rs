//! Opening a namespace where many jobs wait.

use super::Site;
use crate::command::bench::Bench;
use crate::command::bench::figure::{Bar, Figure, Unit, median};
use crate::command::bench::noop::{SUBMIT, calls, check_left, job, submit};
use crate::command::bench::open::submit_by_command;
use qo::Result;
use std::time::Instant;

const JOBS: u64 = 100_000;
/// How often `qo submit` is run in a round.
const SUBMITS: usize = 3;

/// How long it takes to open a large namespace, how many requests that takes, and how long `qo submit` to it takes.
pub async fn open(bench: &Bench<'_, Site>) -> Result<Vec<Figure>> {
    let count = bench.jobs(JOBS);
    bench.at("open", 0, "making a large namespace");
    let url = bench.ground.fresh();
    let store = qo::connect(&url).await?;
    submit(&store, calls(count, SUBMIT, |_| job())?).await?;
    store.finish().await;
    drop(store);
    let (mut opened, mut asked, mut submitted) = (Vec::new(), Vec::new(), Vec::new());
    let mut expected = count;
    for round in 0..bench.rounds() {
        bench.at("open", round, "opening");
        let began = Instant::now();
        let (store, traffic) = qo::bucket::connect(&url).await?;
        opened.push(began.elapsed().as_secs_f64() * 1e3);
        asked.push(traffic.requests().total() as f64);
        check_left(&store, expected).await?;
        drop(store);
        bench.at("open", round, "qo submit");
        let times = (0..SUBMITS).map(|_| submit_by_command(&url)).collect::<Result<Vec<f64>>>()?;
        expected += SUBMITS as u64;
        submitted.push(median(&times));
    }
    Ok(vec![
        Figure::new(format!("opening a namespace with {count} pending jobs"), Unit::Ms, opened)
            .bar(Bar::AtMost(2_000.0)),
        Figure::new("requests for that", Unit::Requests, asked),
        Figure::new("`qo submit` to it, from start to exit", Unit::Ms, submitted),
    ])
}
