//! The requests of idle workers.

use super::Site;
use super::bill::a_minute;
use super::processes::{asked, start};
use crate::command::bench::Bench;
use crate::command::bench::figure::{Bar, Figure, Unit};
use crate::command::bench::process::Process;
use qo::Result;
use std::time::{Duration, Instant};

/// Worker processes.
const PROCESSES: usize = 4;
/// How long they are watched: idle sessions are renewed less than once a minute.
const WATCHED: Duration = Duration::from_secs(300);
const WATCHED_QUICKLY: Duration = Duration::from_secs(1);
/// How long to wait for the requests of their start to end.
const CALM: Duration = Duration::from_secs(15);

/// The requests a minute of idle workers.
pub async fn idle(bench: &Bench<'_, Site>) -> Result<Vec<Figure>> {
    let (watched, calm) = if bench.quick { (WATCHED_QUICKLY, Duration::ZERO) } else { (WATCHED, CALM) };
    let url = bench.ground.fresh();
    let mut workers = (0..PROCESSES).map(|_| start(&url)).collect::<Result<Vec<_>>>()?;
    for worker in &mut workers {
        worker.wait_until_ready()?;
    }
    bench.at("idle", 0, &format!("{PROCESSES} idle worker processes, for {} s in all", watched.as_secs()));
    tokio::time::sleep(calm).await;
    let (began, before) = (Instant::now(), asked(&mut workers)?);
    tokio::time::sleep(watched).await;
    let (took, asked) = (began.elapsed(), asked(&mut workers)?.since(&before));
    workers.into_iter().try_for_each(|worker| Process::end(worker).map(drop))?;
    let what = format!("{PROCESSES} idle worker processes over {} s", watched.as_secs());
    let figure = |kind: &str, count| {
        Figure::new(format!("{what}: {kind} a minute"), Unit::PerMinute, vec![a_minute(count, took)])
    };
    Ok(vec![
        figure("requests", asked.total()).bar(Bar::AtMost(200.0)),
        figure("PUT", asked.puts).bar(Bar::AtMost(8.0)),
        figure("LIST", asked.lists),
    ])
}
