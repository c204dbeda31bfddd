//! One process that submits and works: as fast as it can, and at a given rate.

use super::bill::{Bill, JobBars};
use super::{BATCH, PERMITS, Site, options};
use crate::command::bench::Bench;
use crate::command::bench::figure::{Bar, Figure, Unit};
use crate::command::bench::noop::{self, Noop, calls, check_left, job};
use qo::bucket::{Requests, Traffic};
use qo::{Client, Error, ErrorKind, Result, Store};
use std::sync::Arc;
use std::time::Duration;
use tokio::task::JoinSet;
use tokio::time::{Instant, MissedTickBehavior, interval};

/// Jobs a round.
const JOBS: u64 = 20_000;
/// Callers that submit at once.
const CALLERS: u64 = 5;
/// How long jobs come at a given rate.
const PACED: Duration = Duration::from_secs(20);
const PACED_QUICKLY: Duration = Duration::from_secs(1);
/// How often a batch of them is submitted.
const TICK: Duration = Duration::from_millis(10);

/// One process, submit to done.
pub async fn throughput(bench: &Bench<'_, Site>) -> Result<Vec<Figure>> {
    let count = bench.jobs(JOBS);
    let (mut rates, mut bill) = (Vec::new(), Bill::default());
    for round in 0..bench.rounds() {
        bench.at("throughput", round, "one process, submit to done");
        let plant = Plant::open(bench).await?;
        let calls = calls(count, BATCH as usize, |_| job())?;
        let (began, before) = (Instant::now(), plant.traffic.requests());
        submit(&plant.store, calls).await?;
        plant.worker.tally.wait_for(count).await?;
        let requests = plant.end().await?.since(&before);
        rates.push(count as f64 / began.elapsed().as_secs_f64());
        bill.add(count, requests);
    }
    let what = format!("one process, {PERMITS} in flight, batches of {BATCH}: {count} jobs, submit to done");
    let mut figures = vec![Figure::new(what, Unit::JobsPerSecond, rates).bar(Bar::AtLeast(2_000.0))];
    figures.extend(bill.figures("as fast as it goes", JobBars::default()));
    Ok(figures)
}

/// What a job costs at a given rate, each with a call of its own.
pub async fn cost(bench: &Bench<'_, Site>) -> Result<Vec<Figure>> {
    let rates = [
        (100, JobBars { requests: Some(0.3), puts: Some(0.2), dollars: Some(1.10) }),
        (1_000, JobBars { requests: Some(0.05), puts: Some(0.03), dollars: Some(0.16) }),
    ];
    let mut figures = Vec::new();
    for (rate, bars) in rates {
        let mut bill = Bill::default();
        for round in 0..bench.rounds() {
            bench.at("cost", round, &format!("{rate} jobs a second"));
            let plant = Plant::open(bench).await?;
            let before = plant.traffic.requests();
            let submitted = submit_at(&plant.store, rate, bench.quick).await?;
            plant.worker.tally.wait_for(submitted).await?;
            bill.add(submitted, plant.end().await?.since(&before));
        }
        figures.extend(bill.figures(&format!("{rate} jobs a second, one process"), bars));
    }
    Ok(figures)
}

/// A fresh namespace, and one process that works on it: this one.
struct Plant {
    store: Arc<dyn Store>,
    traffic: Arc<Traffic>,
    worker: Noop,
}

impl Plant {
    async fn open(bench: &Bench<'_, Site>) -> Result<Self> {
        let (store, traffic) = qo::bucket::connect(&bench.ground.fresh()).await?;
        let worker = Noop::start_with(&store, options(), Arc::default()).await?;
        Ok(Self { store, traffic, worker })
    }

    /// Waits until everything is settled, and returns the requests until then.
    async fn end(self) -> Result<Requests> {
        self.worker.end().await?;
        let requests = self.traffic.requests();
        check_left(&self.store, 0).await?;
        Ok(requests)
    }
}

/// Submits with some callers at once. Each caller makes one call after another.
async fn submit(store: &Arc<dyn Store>, mut calls: Vec<Vec<qo::core::NewJob>>) -> Result<()> {
    let mut callers = JoinSet::new();
    for left in (1..=CALLERS as usize).rev() {
        let mine = calls.split_off(calls.len() - calls.len() / left);
        let store = Arc::clone(store);
        callers.spawn(async move { noop::submit(&store, mine).await });
    }
    joined(callers).await
}

/// Submits this many jobs a second, one a call, without waiting for the answers. Returns how many jobs it submitted.
pub async fn submit_at(store: &Arc<dyn Store>, rate: u64, quick: bool) -> Result<u64> {
    let paced = if quick { PACED_QUICKLY } else { PACED };
    let client = Client::new(Arc::clone(store));
    let mut every = interval(TICK);
    every.set_missed_tick_behavior(MissedTickBehavior::Burst);
    let (began, mut submitted, mut callers) = (Instant::now(), 0, JoinSet::new());
    while began.elapsed() < paced {
        every.tick().await;
        let due = (began.elapsed().as_secs_f64() * rate as f64) as u64;
        while submitted < due {
            let (client, job) = (client.clone(), job()?);
            callers.spawn(async move {
                client.submit_many(vec![job]).await?.into_iter().try_for_each(|one| one.map(drop))
            });
            submitted += 1;
        }
    }
    joined(callers).await?;
    Ok(submitted)
}

async fn joined(mut callers: JoinSet<Result<()>>) -> Result<()> {
    while let Some(ended) = callers.join_next().await {
        ended.map_err(|error| Error::new(ErrorKind::Internal, format!("a caller is gone: {error}")))??;
    }
    Ok(())
}
