//! How soon a job is accepted and begins, in a namespace where nothing has happened for a while, and soon after a
//! change.
//!
//! Many namespaces idle at once, each with workers of its own, so that the scenario does not take hours. The requests
//! of one namespace hold up no other.

use super::{Site, options};
use crate::command::bench::Bench;
use crate::command::bench::figure::{Bar, Figure, Unit, percentile};
use crate::command::bench::noop::{Noop, Tally, job_of_now};
use qo::{Client, Error, ErrorKind, Result, Store};
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio::task::JoinSet;
use uuid::Uuid;

/// Namespaces, and the workers of each.
const NAMESPACES: u64 = 20;
const WORKERS: usize = 4;
/// How long a namespace is idle before a job comes; a random time is added.
const IDLE: Duration = Duration::from_secs(12);
const SOON: Duration = Duration::from_secs(2);
const SOMETIME: Duration = Duration::from_secs(2);
/// Jobs of each namespace in a round that come soon after another.
const SOON_JOBS: usize = 5;

/// From the call that submits a job to the first line of its handler, and until the call returns.
pub async fn pickup(bench: &Bench<'_, Site>) -> Result<Vec<Figure>> {
    let namespaces = if bench.quick { 2 } else { NAMESPACES };
    let mut all = JoinSet::new();
    bench.at("pickup", 0, &format!("{namespaces} idle namespaces, {WORKERS} workers each"));
    for number in 0..namespaces {
        // Half of the clients hold the state; half only submit.
        let (url, rounds, quick) = (bench.ground.fresh(), bench.rounds(), bench.quick);
        all.spawn(async move { Namespace::open(&url, number % 2 == 0).await?.measure(rounds, quick).await });
    }
    let (mut idle, mut soon) = (Times::default(), Times::default());
    while let Some(measured) = all.join_next().await {
        let gone = |error| Error::new(ErrorKind::Internal, format!("a namespace is gone: {error}"));
        let (one, other) = measured.map_err(gone)??;
        idle.add(one);
        soon.add(other);
    }
    let figure = |what: &str, values: &[f64], percent| {
        Figure::new(format!("{what}, p{percent:.0}"), Unit::Ms, vec![percentile(values, percent)])
    };
    Ok(vec![
        figure("idle: submit to start", &idle.waits_ms, 50.0).bar(Bar::AtMost(1_000.0)),
        figure("idle: submit to start", &idle.waits_ms, 99.0).bar(Bar::AtMost(2_000.0)),
        figure("work in the last 10 s: submit to start", &soon.waits_ms, 50.0).bar(Bar::AtMost(400.0)),
        figure("work in the last 10 s: submit to start", &soon.waits_ms, 99.0).bar(Bar::AtMost(400.0)),
        figure("idle: submit acknowledged", &idle.submits_ms, 50.0).bar(Bar::AtMost(150.0)),
        figure("idle: submit acknowledged, by a client that only submits", &idle.light_ms, 50.0)
            .bar(Bar::AtMost(150.0)),
        figure("idle: submit acknowledged", &idle.submits_ms, 99.0),
        figure("idle: submit acknowledged, by a client that only submits", &idle.light_ms, 99.0),
    ])
}

/// What was measured.
#[derive(Debug, Default)]
struct Times {
    waits_ms: Vec<f64>,
    /// Until the call returned, of clients that hold the state …
    submits_ms: Vec<f64>,
    /// … and of those that do not.
    light_ms: Vec<f64>,
}

impl Times {
    fn add(&mut self, other: Self) {
        self.waits_ms.extend(other.waits_ms);
        self.submits_ms.extend(other.submits_ms);
        self.light_ms.extend(other.light_ms);
    }
}

/// A namespace with idle workers, and a client.
struct Namespace {
    client: Client,
    holds_state: bool,
    tally: Arc<Tally>,
    workers: Vec<Noop>,
}

impl Namespace {
    async fn open(url: &str, holds_state: bool) -> Result<Self> {
        let tally = Arc::new(Tally::default());
        let mut workers = Vec::new();
        for _ in 0..WORKERS {
            let store = qo::connect(url).await?;
            workers.push(Noop::start_with(&store, options(), Arc::clone(&tally)).await?);
        }
        let store: Arc<dyn Store> =
            if holds_state { qo::connect(url).await? } else { qo::connect_to_submit(url).await? };
        Ok(Self { client: Client::new(store), holds_state, tally, workers })
    }

    async fn measure(self, rounds: u32, quick: bool) -> Result<(Times, Times)> {
        let (mut idle, mut soon) = (Times::default(), Times::default());
        // A client's first submit finds the end of the log, which later ones know.
        self.one(&mut Times::default(), Duration::ZERO).await?;
        for _ in 0..rounds {
            self.one(&mut idle, if quick { Duration::ZERO } else { IDLE }).await?;
            for _ in 0..if quick { 1 } else { SOON_JOBS } {
                self.one(&mut soon, if quick { Duration::ZERO } else { SOON }).await?;
            }
        }
        for worker in self.workers {
            worker.end().await?;
        }
        Ok((idle, soon))
    }

    /// Submits a job after a pause, and waits for it.
    async fn one(&self, times: &mut Times, pause: Duration) -> Result<()> {
        tokio::time::sleep(pause + by_chance(pause.min(SOMETIME))).await;
        let done = self.tally.done();
        let (began, job) = (Instant::now(), job_of_now()?);
        self.client.submit_many(vec![job]).await?.into_iter().try_for_each(|one| one.map(drop))?;
        let took_ms = began.elapsed().as_secs_f64() * 1e3;
        if self.holds_state { &mut times.submits_ms } else { &mut times.light_ms }.push(took_ms);
        self.tally.wait_for(done + 1).await?;
        times.waits_ms.extend(self.tally.waits_ms().last());
        Ok(())
    }
}

/// A random time up to `most`: without it, the jobs would come in step with the polls of the workers.
fn by_chance(most: Duration) -> Duration {
    most.mul_f64((Uuid::new_v4().as_u128() % 1_000) as f64 / 1_000.0)
}
