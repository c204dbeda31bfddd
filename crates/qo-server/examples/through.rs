//! What a server costs: jobs that do nothing, through `qo serve` or directly. Ad hoc; it asserts nothing.
//!
//! ```text
//! through throughput URL JOBS PROCESSES WORKERS PERMITS plain|limited     workers in each process
//! through pickup URL COUNT
//! through serve LISTEN URL
//! ```

#![allow(clippy::print_stdout, reason = "it prints what it measured")]

use qo::{Client, Context, Failure, Worker, WorkerOptions};
use qo_core::{GroupRef, JobId, Json, Key, Name, NewJob, Result, Store};
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio::sync::mpsc;
use tokio::time::sleep;
use uuid::Uuid;

const CALL: u64 = 5_000;

fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = arguments.iter().map(String::as_str).collect();
    let runtime = tokio::runtime::Runtime::new().expect("a runtime");
    let done = runtime.block_on(async {
        match words.as_slice() {
            ["throughput", url, jobs, processes, workers, permits, limits] => {
                throughput(url, number(jobs), number(processes), workers, permits, *limits == "limited").await
            }
            ["work", url, workers, permits] => work(url, number(workers), number(permits)).await,
            ["serve", listen, url] => serve(listen, url).await,
            ["pickup", url, count] => pickup(url, number(count)).await,
            _ => panic!("see the head of the file"),
        }
    });
    done.expect("it works");
}

/// As `qo serve` does.
async fn serve(listen: &str, url: &str) -> Result<()> {
    let listener = qo_server::bind(listen).await?;
    let options = qo_server::Options::default();
    qo_server::Server::new(listener, qo::connect(url).await?, options)?.run().await
}

fn number(text: &str) -> u64 {
    text.parse().expect("a number")
}

fn job(n: u64, limited: bool) -> Result<NewJob> {
    let key = limited.then(|| Key::parse("key", &format!("user-{}", n % 100))).transpose()?;
    let payload = Json::parse("payload", &n.to_string())?;
    Ok(NewJob { key, payload, ..NewJob::new(JobId(Uuid::now_v7()), Name::parse("task", "noop")?) })
}

async fn left(store: &Arc<dyn Store>) -> Result<(u64, u64)> {
    let queues = store.queues().await?;
    Ok((queues.iter().map(|queue| queue.due).sum(), queues.iter().map(|queue| queue.running).sum()))
}

async fn throughput(
    url: &str,
    jobs: u64,
    processes: u64,
    workers: &str,
    permits: &str,
    limited: bool,
) -> Result<()> {
    let store = qo::connect(url).await?;
    if limited {
        for (group, limit) in
            [("cluster", 100_000), ("queue:default", 90_000), ("noop", 80_000), ("noop/*", 70_000)]
        {
            store.set_limit(group.parse::<GroupRef>()?, limit).await?;
        }
    }
    let began = Instant::now();
    for first in (0..jobs).step_by(CALL as usize) {
        let call: Result<Vec<_>> = (first..jobs.min(first + CALL)).map(|n| job(n, limited)).collect();
        store.submit(call?).await?;
    }
    println!("submitted {:.0} jobs/s", jobs as f64 / began.elapsed().as_secs_f64());
    let myself = std::env::current_exe().expect("a path");
    let start = |_| Command::new(&myself).args(["work", url, workers, permits]).stdout(Stdio::null()).spawn();
    let mut children: Vec<_> = (0..processes).map(start).collect::<std::io::Result<_>>().expect("it starts");
    while left(&store).await?.0 == jobs {
        sleep(Duration::from_millis(5)).await;
    }
    let (began, first) = (Instant::now(), left(&store).await?.0);
    while left(&store).await? != (0, 0) {
        sleep(Duration::from_millis(50)).await;
    }
    let took = began.elapsed().as_secs_f64();
    println!("ran {:.0} jobs/s ({first} in {took:.2} s)", first as f64 / took);
    for child in &mut children {
        child.kill().ok();
        child.wait().ok();
    }
    Ok(())
}

async fn work(url: &str, workers: u64, permits: u64) -> Result<()> {
    let mut all = tokio::task::JoinSet::new();
    for _ in 0..workers {
        let options =
            WorkerOptions { max_concurrent_tasks: Some(permits as u32), ..WorkerOptions::default() };
        let noop = |_: u64, _: Context| async { Ok::<_, Failure>(()) };
        let worker = Worker::builder(qo::connect(url).await?).options(options).task("noop", noop).build()?;
        all.spawn(worker.run());
    }
    while all.join_next().await.is_some() {}
    Ok(())
}

async fn pickup(url: &str, count: u64) -> Result<()> {
    let (sender, mut started) = mpsc::unbounded_channel();
    let noop = move |_: u64, _: Context| {
        sender.send(Instant::now()).ok();
        async { Ok::<_, Failure>(()) }
    };
    let worker = Worker::builder(qo::connect(url).await?).task("noop", noop).build()?;
    let (shutdown, running) = (worker.shutdown_handle(), tokio::spawn(worker.run()));
    let client = Client::connect(url).await?;
    let mut took = Vec::new();
    for n in 0..count + 10 {
        sleep(Duration::from_millis(20)).await;
        client.submit("noop", &n).await?;
        let acknowledged = Instant::now();
        let at = started.recv().await.expect("it starts");
        if n >= 10 {
            took.push(at.saturating_duration_since(acknowledged).as_secs_f64() * 1_000.0);
        }
    }
    took.sort_by(f64::total_cmp);
    let at = |share: f64| took[((took.len() - 1) as f64 * share) as usize];
    println!("acknowledged to started: p50 {:.2} ms, p99 {:.2} ms", at(0.5), at(0.99));
    shutdown.drain();
    running.await.expect("no panic")
}
