//! How soon the slot of a worker that was killed is back.

use super::Fleet;
use crate::command::bench::Bench;
use crate::command::bench::figure::{Bar, Figure, Unit};
use crate::command::bench::noop::{HOLD, Noop, job, submit};
use crate::command::bench::process::Process;
use crate::machine::monotonic_ns;
use qo::core::{GroupRef, JobId, JobState, Name, NewJob};
use qo::{Error, ErrorKind, Result, Store};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// How long the killed worker's session lives after its last exchange.
const LEASE_MS: u64 = 3_000;
/// The group with one slot.
const GROUP: &str = "only-one";
/// How long a worker may take to begin.
const PATIENCE: Duration = Duration::from_secs(30);

/// From the SIGKILL of the worker that holds the only slot to the first line of the next job, on another worker.
pub async fn recovery(bench: &Bench<'_, Fleet>) -> Result<Vec<Figure>> {
    let mut times = Vec::new();
    for round in 0..bench.rounds() {
        bench.at("recovery", round, "a worker is killed");
        times.push(recovered_ms(bench).await?);
    }
    let what = format!("slot back after SIGKILL, with a session lease of {LEASE_MS} ms");
    Ok(vec![Figure::new(what, Unit::Ms, times).bar(Bar::AtMost(LEASE_MS as f64 + 1_000.0))])
}

async fn recovered_ms(bench: &Bench<'_, Fleet>) -> Result<f64> {
    let server = &bench.ground.server;
    let schema = server.fresh().await?;
    let store = qo::connect(&schema.url).await?;
    let group = Name::parse("group", GROUP)?;
    store.set_limit(GroupRef::Group(group.clone()), 1).await?;
    let mut killed = Process::start_with(&schema.url, &["--lease-ms", &LEASE_MS.to_string()])?;
    killed.wait_until_ready()?;
    // With one attempt only, the next job that holds the slot is the one that waits for it.
    let hold =
        NewJob { task: Name::parse("task", HOLD)?, group: Some(group.clone()), max_attempts: 1, ..job()? };
    let id = hold.id;
    submit(&store, vec![vec![hold]]).await?;
    wait_until_it_runs(&store, id).await?;
    let worker = Noop::start(&store).await?;
    submit(&store, vec![vec![NewJob { group: Some(group), ..job()? }]]).await?;
    let killed_ns = monotonic_ns();
    killed.kill()?;
    worker.tally.wait_for(1).await?;
    let last_ns = worker.end().await?.last_ns();
    drop(store);
    server.drop(&schema.name).await?;
    Ok(last_ns.saturating_sub(killed_ns) as f64 / 1e6)
}

async fn wait_until_it_runs(store: &Arc<dyn Store>, job: JobId) -> Result<()> {
    let began = Instant::now();
    while store.job(job).await?.view.state != JobState::Running {
        if began.elapsed() > PATIENCE {
            return Err(Error::new(ErrorKind::Internal, format!("a job did not begin within {PATIENCE:?}")));
        }
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    Ok(())
}
