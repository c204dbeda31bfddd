//! The Rust side of `bench/python/run`: the worker and the client of qo without Python.
//!
//! ```text
//! python_bench drain PERMITS BATCH    runs the jobs of the task `noop` until SIGTERM
//! python_bench submit JOBS CALLS      times calls of submit_many; prints the seconds of each as JSON
//! ```
//!
//! `BENCH_STORE` is the URL of the store. A drain of `BENCH_JOBS` jobs leaves its record in the folder `BENCH_RECORDS`,
//! in the form of `sides/record.py`: how many jobs, when the first began, when the last ended.
#![allow(clippy::print_stdout, reason = "the harness reads what it prints")]

use qo::core::{ClaimSettings, JobId, Json, Name, NewJob};
use qo::{Client, Context, Error, Failure, Result, Worker, WorkerOptions};
use rustix::time::{ClockId, clock_gettime};
use serde::Serialize;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;
use uuid::Uuid;

const URL: &str = "https://example.com/callback";

#[tokio::main]
async fn main() -> Result<()> {
    let words: Vec<String> = std::env::args().skip(1).collect();
    match words.iter().map(String::as_str).collect::<Vec<_>>()[..] {
        ["drain", permits, batch] => drain(number(permits)?, number(batch)?).await,
        ["submit", jobs, calls] => submit(number(jobs)?, number(calls)?).await,
        _ => Err(Error::invalid(
            "arguments",
            words.join(" "),
            "must be drain PERMITS BATCH or submit JOBS CALLS",
        )),
    }
}

fn number(text: &str) -> Result<u32> {
    text.parse().map_err(|_| Error::invalid("arguments", text, "must be a number"))
}

fn variable(name: &str) -> Result<String> {
    std::env::var(name).map_err(|_| Error::invalid(name, "", "must be set: bench/python/run sets it"))
}

/// What the jobs record.
struct Record {
    jobs: u64,
    done: AtomicU64,
    first_ns: AtomicU64,
    path: PathBuf,
}

impl Record {
    fn of_environment() -> Result<Self> {
        let path = PathBuf::from(variable("BENCH_RECORDS")?).join(std::process::id().to_string());
        let jobs = u64::from(number(&variable("BENCH_JOBS")?)?);
        Ok(Self { jobs, done: AtomicU64::new(0), first_ns: AtomicU64::new(u64::MAX), path })
    }

    /// Counts a job that ends now. The last one writes the record.
    fn add(&self, began_ns: u64) {
        self.first_ns.fetch_min(began_ns, Ordering::SeqCst);
        let done = self.done.fetch_add(1, Ordering::SeqCst) + 1;
        if done >= self.jobs {
            let record = [done, self.first_ns.load(Ordering::SeqCst), monotonic_ns()];
            let bytes: Vec<u8> = record.into_iter().flat_map(u64::to_le_bytes).collect();
            let fresh = self.path.with_extension("new");
            // The file appears with its full size: a reader never sees half of it.
            let written = std::fs::write(&fresh, bytes).and_then(|()| std::fs::rename(&fresh, &self.path));
            assert!(written.is_ok(), "the record cannot be written: {written:?}");
        }
    }
}

fn monotonic_ns() -> u64 {
    let now = clock_gettime(ClockId::Monotonic);
    u64::try_from(now.tv_sec * 1_000_000_000 + now.tv_nsec).unwrap_or(0)
}

async fn drain(permits: u32, batch: u32) -> Result<()> {
    let record = Arc::new(Record::of_environment()?);
    let noop = move |_: serde_json::Value, _: Context| {
        let record = Arc::clone(&record);
        async move {
            record.add(monotonic_ns());
            Ok::<(), Failure>(())
        }
    };
    let options = WorkerOptions {
        max_concurrent_tasks: Some(permits),
        claim: ClaimSettings { claim_batch_size: batch, ..ClaimSettings::default() },
        ..WorkerOptions::default()
    };
    let store = qo::connect(&variable("BENCH_STORE")?).await?;
    Worker::builder(store).options(options).task("noop", noop).build()?.run_until_signal().await
}

#[derive(Serialize)]
struct Charge {
    customer: u32,
    url: &'static str,
}

fn jobs(count: u32) -> Result<Vec<NewJob>> {
    let job = |customer| {
        let payload = serde_json::to_string(&Charge { customer, url: URL }).unwrap_or_default();
        let new = NewJob::new(JobId(Uuid::now_v7()), Name::parse("task", "charge")?);
        Ok(NewJob { payload: Json::parse("payload", &payload)?, ..new })
    };
    (0..count).map(job).collect()
}

async fn submit(count: u32, calls: u32) -> Result<()> {
    let store = variable("BENCH_STORE")?;
    qo::migrate::up(&store).await?;
    let client = Client::connect(&store).await?;
    // A small call opens the connections.
    client.submit_many(jobs(100)?).await?;
    let mut seconds = Vec::new();
    for _ in 0..calls {
        let began = Instant::now();
        for submitted in client.submit_many(jobs(count)?).await? {
            submitted?;
        }
        seconds.push(began.elapsed().as_secs_f64());
    }
    println!("{seconds:?}");
    Ok(())
}
