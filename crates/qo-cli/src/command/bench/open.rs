//! Opening a directory where many jobs wait, and `qo submit` to it.

use super::Bench;
use super::figure::{Bar, Figure, Unit, median};
use super::noop::{TASK, check_left, job, jobs, submit};
use qo::core::ErrorKind;
use qo::{Error, Result};
use std::process::{Command, Stdio};
use std::time::Instant;

/// How often `qo submit` is run in a round.
const SUBMITS: usize = 5;

/// How long it takes to open a large namespace, and to submit to it.
pub async fn open(bench: &Bench<'_>) -> Result<Vec<Figure>> {
    let count = bench.jobs(100_000);
    bench.at("open", 0, "making a large namespace");
    let plot = bench.ground.fresh()?;
    let url = plot.url();
    let store = qo::connect(&url).await?;
    submit(&store, jobs(count, |_| job())?).await?;
    drop(store);
    let (mut opened, mut submitted) = (Vec::new(), Vec::new());
    let mut expected = count;
    for round in 0..bench.rounds() {
        bench.at("open", round, "opening");
        let began = Instant::now();
        let store = qo::connect(&url).await?;
        check_left(&store, expected).await?;
        opened.push(began.elapsed().as_secs_f64() * 1e3);
        drop(store);
        bench.at("open", round, "qo submit");
        let times = (0..SUBMITS).map(|_| submit_by_command(&url)).collect::<Result<Vec<f64>>>()?;
        expected += SUBMITS as u64;
        submitted.push(median(&times));
    }
    Ok(vec![
        Figure::new(format!("opening a directory with {count} pending jobs"), Unit::Ms, opened)
            .bar(Bar::AtMost(1_000.0)),
        Figure::new("`qo submit` to it, from start to exit", Unit::Ms, submitted).bar(Bar::AtMost(50.0)),
    ])
}

/// How long the command takes, in milliseconds.
pub fn submit_by_command(url: &str) -> Result<f64> {
    let failed = |what: String| Error::new(ErrorKind::Internal, format!("qo submit: {what}"));
    let program = std::env::current_exe().map_err(|error| failed(error.to_string()))?;
    let mut command = Command::new(program);
    command.args(["submit", TASK, "--store", url]).stdin(Stdio::null());
    let began = Instant::now();
    let output = command.output().map_err(|error| failed(error.to_string()))?;
    let ms = began.elapsed().as_secs_f64() * 1e3;
    match output.status.success() {
        true => Ok(ms),
        false => Err(failed(String::from_utf8_lossy(&output.stderr).into_owned())),
    }
}
