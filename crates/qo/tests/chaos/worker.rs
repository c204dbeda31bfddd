//! The worker process that the test starts, stops and kills.

use crate::call;
use crate::plan::{Payload, TASKS};
use qo::{Context, ErrorKind, Failure, RetryPolicy, Store, TaskConfig, Worker};
use qo_judge::{End, Pen};
use std::path::Path;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;
use tokio::time::interval;

/// How long a session lives after each exchange: short, so that jobs of dead workers are taken over all the time.
pub const LEASE: Duration = Duration::from_secs(2);
/// How often it polls although the store would wake it up.
const POLL: Duration = Duration::from_secs(5);
/// Longest that anything may stand still once the faults are over (G5): the lease of a dead worker, the next sweep, the
/// next poll.
pub const BOUND: Duration = Duration::from_millis(LEASE.as_millis() as u64 * 3 / 2).saturating_add(POLL);
/// Threads that handlers run on.
pub const THREADS: usize = 2;

/// Works on a namespace until it gets a signal.
pub fn main(arguments: &[String]) -> ExitCode {
    let [url, records, calls, name] = arguments else { return ExitCode::from(2) };
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(THREADS).enable_all().build();
    runtime.expect("a runtime").block_on(async {
        let pen = Pen::open(Path::new(records), name).expect("a file");
        let config = TaskConfig::new()
            .retry(RetryPolicy::new().base(Duration::from_millis(50)).max(Duration::from_millis(200)));
        let store = call::written_down(connect(url).await, Path::new(calls));
        let builder = Worker::builder(store)
            .name(name)
            .lease(LEASE)
            .cancel_grace(Duration::from_millis(200))
            .max_concurrent_tasks(16);
        let builder = TASKS.iter().fold(builder, |builder, task| {
            let pen = pen.clone();
            let handler = move |payload: Payload, context| handle(pen.clone(), payload, context);
            builder.task_with(task, config.clone(), handler)
        });
        builder.build().expect("a worker").run_until_signal().await.expect("it ends well");
    });
    ExitCode::SUCCESS
}

/// A worker that starts while the server is down, or while a fault keeps its role from logging in, tries again, as a
/// supervisor would make it do.
async fn connect(url: &str) -> Arc<dyn Store> {
    let mut every = interval(Duration::from_millis(100));
    loop {
        every.tick().await;
        match qo::connect(url).await {
            Err(error) if error.kind() == ErrorKind::Unavailable => {}
            Err(error) if error.message().contains("not permitted to log in") => {}
            store => return store.expect("a store"),
        }
    }
}

/// Records from when to when it runs, and ends as the plan says.
async fn handle(pen: Pen, payload: Payload, context: Context) -> Result<(), Failure> {
    let (job, token) = (context.job().to_string(), context.fence_token().0);
    let running = pen.begin(token, &job, &job, context.task())?;
    tokio::time::sleep(Duration::from_millis(payload.ms)).await;
    let (end, answer) = match payload.good_from {
        None => (End::Failed, Err(Failure::fail("as planned, for good"))),
        Some(attempt) if context.attempt() < attempt => {
            (End::Retry, Err(Failure::retry("as planned, this time")))
        }
        Some(_) => (End::Done, Ok(())),
    };
    running.end(end)?;
    answer
}
