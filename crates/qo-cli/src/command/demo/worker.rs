//! One of the demo's worker processes: an ordinary worker whose jobs record when they begin and when they end.

use super::plan::{LEASE_MS, Names, PERMITS, Payload, TASK, Task};
use super::record::Pen;
use crate::trouble::Done;
use clap::Args;
use qo::core::{ClaimSettings, ErrorKind};
use qo::{Context, Error, Failure, TaskConfig, Worker, WorkerOptions};
use std::io::Read;
use std::path::PathBuf;
use std::time::Duration;

/// One worker of `qo demo`, which starts it.
#[derive(Debug, Args)]
pub struct DemoWorker {
    /// Its number.
    #[arg(long)]
    number: usize,
    /// What every name begins with.
    #[arg(long, default_value = "")]
    prefix: String,
    /// Where its jobs write to.
    #[arg(long)]
    records: PathBuf,
}

impl DemoWorker {
    /// Works until stdin is closed: the demo that started it is done, or gone.
    pub async fn run(self) -> Done {
        let missing = |_| Error::invalid("QO_STORE", "", "must name the store: `qo demo` starts this");
        let store = std::env::var("QO_STORE").map_err(missing)?;
        let names = Names::with(&self.prefix);
        let pen = Pen::create(&self.records)?;
        let store = qo::connect(&store).await?;
        let options = WorkerOptions {
            name: Some(names.worker(self.number)?),
            queues: names.queues()?.into(),
            max_concurrent_tasks: Some(PERMITS),
            lease: Duration::from_millis(LEASE_MS),
            cancel_grace: Duration::from_secs(1),
            // Small batches, so that every worker holds some jobs.
            claim: ClaimSettings { claim_batch_size: 4, ..ClaimSettings::default() },
            ..WorkerOptions::default()
        };
        let mut builder = Worker::builder(store).options(options);
        for task in Task::ALL {
            let pen = pen.clone();
            let handler = move |payload: Payload, context: Context| work(pen.clone(), payload, context);
            builder = builder.task_with(&names.task(task)?, config(task), handler);
        }
        let worker = builder.build()?;
        let shutdown = worker.shutdown_handle();
        let watch = move || {
            // The demo writes nothing: only the end of the pipe matters.
            let _ = std::io::stdin().read_to_end(&mut Vec::new());
            shutdown.drain();
        };
        let watched = std::thread::Builder::new().name("demo-stdin".into()).spawn(watch);
        watched.map_err(|error| Error::new(ErrorKind::Unavailable, format!("no thread: {error}")))?;
        Ok(worker.run().await?)
    }
}

/// How a task is registered: the code of one of them sets its limit.
fn config(task: Task) -> TaskConfig {
    match task {
        Task::CallApi => TaskConfig::new().max_concurrent(TASK[0]),
        Task::Charge | Task::SyncUser | Task::Order | Task::Resize => TaskConfig::new(),
    }
}

/// What every job of the demo does: it records that it begins, takes its time, and records that it is done.
async fn work(pen: Pen, payload: Payload, context: Context) -> Result<String, Failure> {
    let running = pen.begin(&context, &payload)?;
    tokio::time::sleep(Duration::from_millis(payload.ms)).await;
    running.done()?;
    Ok(payload.note)
}
