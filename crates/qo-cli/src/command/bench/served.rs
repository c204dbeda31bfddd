//! Stores behind a server: what the way through it costs, and the fleets that it makes possible.
//!
//! The jobs are in line before the time runs: a limit of 0 holds them until every worker is connected.

use super::Bench;
use super::bucket::{Bill, JobBars, Site, submit_at};
use super::figure::{Bar, Figure, Unit, percentile};
use super::noop::{check_left, job, jobs, submit};
use super::pickup::{across_processes, in_process};
use super::postgres::Fleet;
use super::process::Process;
use crate::machine::monotonic_ns;
use qo::core::{GroupRef, Key, NewJob};
use qo::{Result, Store};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Worker processes.
const PROCESSES: u64 = 4;
/// Workers of them all together, and the jobs that each runs at once.
const WORKERS: u64 = 50;
const PERMITS: &str = "100";
/// The limits of a fleet: cluster, queue, task and key. None binds.
const LIMITS: [(&str, u32); 4] =
    [("cluster", 100_000), ("queue:default", 90_000), ("noop", 80_000), ("noop/*", 10_000)];
/// Keys that the jobs have.
const KEYS: u64 = 1_000;
/// Idle workers, and how long they are watched, all rounds together.
const IDLE: u64 = 1_000;
const IDLE_QUICKLY: u64 = 20;
const WATCHED: Duration = Duration::from_secs(60);
const WATCHED_QUICKLY: Duration = Duration::from_secs(1);
/// How long they may settle down before.
const SETTLE: Duration = Duration::from_secs(10);
/// A rate at which jobs come, each with a call of its own.
const RATE: u64 = 1_000;

/// Worker processes behind a server.
struct Behind {
    server: Process,
    store: Arc<dyn Store>,
    workers: Vec<Process>,
}

/// What they did.
struct Did {
    jobs_per_second: f64,
    server_cpu_micros: f64,
}

impl Behind {
    /// Starts a server of this store, and so many workers in some processes.
    async fn start(url: &str, workers: u64, permits: &str) -> Result<Self> {
        let mut server = Process::serve(url)?;
        let url = server.url()?;
        let share = |process: u64| (workers + process) / PROCESSES;
        let start = |process| {
            let workers = share(process).to_string();
            Process::start_with(&url, &["--workers", &workers, "--permits", permits])
        };
        let mut workers = (0..PROCESSES).map(start).collect::<Result<Vec<_>>>()?;
        workers.iter_mut().try_for_each(Process::wait_until_ready)?;
        Ok(Self { server, store: qo::connect(&url).await?, workers })
    }

    /// Lets them do jobs that are in line once all of them have been submitted.
    async fn run(&mut self, calls: Vec<Vec<NewJob>>) -> Result<Did> {
        let count = calls.iter().map(Vec::len).sum::<usize>() as u64;
        self.store.set_limit(GroupRef::Cluster, 0).await?;
        for (group, limit) in &LIMITS[1..] {
            self.store.set_limit(group.parse()?, *limit).await?;
        }
        submit(&self.store, calls).await?;
        let cpu_before_ns = self.server.cpu_ns()?;
        let began_ns = monotonic_ns();
        self.store.set_limit(GroupRef::Cluster, LIMITS[0].1).await?;
        while self.done()? < count {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        let cpu_ns = self.server.cpu_ns()?.saturating_sub(cpu_before_ns);
        let reports = std::mem::take(&mut self.workers).into_iter().map(Process::end);
        let last_ns =
            reports.collect::<Result<Vec<_>>>()?.iter().map(|report| report.last_ns).max().unwrap_or(0);
        check_left(&self.store, 0).await?;
        let seconds = last_ns.saturating_sub(began_ns) as f64 / 1e9;
        Ok(Did {
            jobs_per_second: count as f64 / seconds,
            server_cpu_micros: cpu_ns as f64 / count as f64 / 1e3,
        })
    }

    fn done(&mut self) -> Result<u64> {
        self.workers.iter_mut().map(Process::done).sum()
    }

    fn end(self) -> Result<()> {
        self.workers.into_iter().try_for_each(|worker| worker.end().map(drop))?;
        self.server.end().map(drop)
    }
}

/// Jobs with a key, each under a cluster, a queue, a task and a key limit.
fn keyed(count: u64) -> Result<Vec<Vec<NewJob>>> {
    jobs(count, |number| {
        let key = Key::parse("key", &format!("user-{}", number % KEYS))?;
        Ok(NewJob { key: Some(key), ..job()? })
    })
}

fn fleet() -> String {
    format!("{WORKERS} workers of {PERMITS} permits in {PROCESSES} processes, four limits a job")
}

/// A fleet in front of a directory.
pub async fn on_directory(bench: &Bench<'_>) -> Result<Vec<Figure>> {
    let count = bench.jobs(100_000);
    let (mut rates, mut cpu) = (Vec::new(), Vec::new());
    for round in 0..bench.rounds() {
        bench.at("served", round, &fleet());
        let plot = bench.ground.fresh()?;
        let mut behind = Behind::start(&plot.url(), WORKERS, PERMITS).await?;
        let did = behind.run(keyed(count)?).await?;
        behind.end()?;
        rates.push(did.jobs_per_second);
        cpu.push(did.server_cpu_micros);
    }
    Ok(vec![
        Figure::new(fleet(), Unit::JobsPerSecond, rates).bar(Bar::AtLeast(20_000.0)),
        Figure::new("processor time of the server for a job", Unit::Micros, cpu),
    ])
}

/// What a server costs while many workers are connected and have nothing to do.
pub async fn idle(bench: &Bench<'_>) -> Result<Vec<Figure>> {
    let (workers, watched, settle) = match bench.quick {
        true => (IDLE_QUICKLY, WATCHED_QUICKLY, WATCHED_QUICKLY),
        false => (IDLE, WATCHED, SETTLE),
    };
    let plot = bench.ground.fresh()?;
    let mut behind = Behind::start(&plot.url(), workers, PERMITS).await?;
    tokio::time::sleep(settle).await;
    let (mut cpu, mut memory) = (Vec::new(), Vec::new());
    for round in 0..bench.rounds() {
        bench.at(
            "served-idle",
            round,
            &format!("{workers} idle workers, for {} s in all", watched.as_secs()),
        );
        let (began, used_ns) = (Instant::now(), behind.server.cpu_ns()?);
        tokio::time::sleep(watched / bench.rounds()).await;
        let used_ns = behind.server.cpu_ns()?.saturating_sub(used_ns);
        cpu.push(used_ns as f64 / 1e9 / began.elapsed().as_secs_f64() * 100.0);
        memory.push(behind.server.memory()? as f64 / f64::from(1 << 20));
    }
    behind.end()?;
    let what = format!("{workers} idle workers");
    Ok(vec![
        Figure::new(format!("{what}: memory of the server"), Unit::Mebibytes, memory).bar(Bar::AtMost(200.0)),
        Figure::new(format!("{what}: processor time of the server, of one core"), Unit::Percent, cpu)
            .bar(Bar::AtMost(5.0)),
    ])
}

/// Through a server, to directly on the same PostgreSQL; and how soon a job begins.
pub async fn on_postgres(bench: &Bench<'_, Fleet>) -> Result<Vec<Figure>> {
    let count = bench.jobs(100_000);
    let server = &bench.ground.server;
    let mut ratios = Vec::new();
    for round in 0..bench.rounds() {
        let (mut direct, mut through) = (0.0, 0.0);
        for is_direct in bench.legs(round) {
            let schema = server.fresh().await?;
            if is_direct {
                bench.at("served", round, "directly");
                direct += seconds_directly(&schema.url, count).await?;
            } else {
                bench.at("served", round, "through a server");
                let mut behind = Behind::start(&schema.url, DIRECT, DIRECT_PERMITS).await?;
                through += count as f64 / behind.run(jobs(count, |_| job())?).await?.jobs_per_second;
                behind.end()?;
            }
            server.drop(&schema.name).await?;
        }
        ratios.push(direct / through * 100.0);
    }
    let mut figures =
        vec![Figure::new("through a server, to directly", Unit::Percent, ratios).bar(Bar::AtLeast(60.0))];
    figures.extend(pickup(bench).await?);
    Ok(figures)
}

/// Workers of the comparison, one a process, and the jobs that each runs at once.
const DIRECT: u64 = PROCESSES;
const DIRECT_PERMITS: &str = "500";

async fn seconds_directly(url: &str, count: u64) -> Result<f64> {
    let start = |_| Process::start_with(url, &["--permits", DIRECT_PERMITS]);
    let mut workers = (0..PROCESSES).map(start).collect::<Result<Vec<_>>>()?;
    workers.iter_mut().try_for_each(Process::wait_until_ready)?;
    let store = qo::connect(url).await?;
    store.set_limit(GroupRef::Cluster, 0).await?;
    for (group, limit) in &LIMITS[1..] {
        store.set_limit(group.parse()?, *limit).await?;
    }
    submit(&store, jobs(count, |_| job())?).await?;
    let began_ns = monotonic_ns();
    store.set_limit(GroupRef::Cluster, LIMITS[0].1).await?;
    while workers.iter_mut().map(Process::done).sum::<Result<u64>>()? < count {
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    let reports = workers.into_iter().map(Process::end).collect::<Result<Vec<_>>>()?;
    check_left(&store, 0).await?;
    let last_ns = reports.iter().map(|report| report.last_ns).max().unwrap_or(0);
    Ok(last_ns.saturating_sub(began_ns) as f64 / 1e9)
}

/// From the call that submits a job to the first line of its handler, through a server.
async fn pickup(bench: &Bench<'_, Fleet>) -> Result<Vec<Figure>> {
    let count = bench.jobs(200).clamp(5, 500);
    let mut figures = Vec::new();
    for (what, across) in [("one process", false), ("across processes", true)] {
        let (mut p50, mut p99) = (Vec::new(), Vec::new());
        for round in 0..bench.rounds() {
            bench.at("served", round, what);
            let schema = bench.ground.server.fresh().await?;
            let mut server = Process::serve(&schema.url)?;
            let url = server.url()?;
            let waits_ms =
                if across { across_processes(&url, count).await? } else { in_process(&url, count).await? };
            server.end()?;
            bench.ground.server.drop(&schema.name).await?;
            p50.push(percentile(&waits_ms, 50.0));
            p99.push(percentile(&waits_ms, 99.0));
        }
        let figure = |percent: &str, values, most| {
            let what = format!("through a server, {what}, submit to start, {percent}");
            Figure::new(what, Unit::Ms, values).bar(Bar::AtMost(most))
        };
        figures.push(figure("p50", p50, 4.0));
        figures.push(figure("p99", p99, 12.0));
    }
    Ok(figures)
}

/// A fleet in front of a bucket: how fast, and what a job costs at a given rate.
pub async fn in_bucket(bench: &Bench<'_, Site>) -> Result<Vec<Figure>> {
    let count = bench.jobs(20_000);
    let (mut rates, mut bill) = (Vec::new(), Bill::default());
    for round in 0..bench.rounds() {
        bench.at("served", round, &fleet());
        let mut behind = Behind::start(&bench.ground.fresh(), WORKERS, PERMITS).await?;
        rates.push(behind.run(keyed(count)?).await?.jobs_per_second);
        behind.end()?;
        bench.at("served", round, &format!("{RATE} jobs a second"));
        let mut behind = Behind::start(&bench.ground.fresh(), WORKERS, PERMITS).await?;
        let before = behind.server.requests()?;
        let submitted = submit_at(&behind.store, RATE, bench.quick).await?;
        while behind.done()? < submitted {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        bill.add(submitted, behind.server.requests()?.since(&before));
        behind.end()?;
    }
    let mut figures = vec![Figure::new(fleet(), Unit::JobsPerSecond, rates).bar(Bar::AtLeast(2_000.0))];
    let bars = JobBars { requests: None, puts: None, dollars: Some(0.10) };
    figures.extend(bill.figures(&format!("{RATE} jobs a second, {WORKERS} workers"), bars));
    Ok(figures)
}
