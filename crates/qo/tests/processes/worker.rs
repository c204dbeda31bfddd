//! The worker process that the tests start, stop and kill.

use crate::diary::{begin, pen};
use crate::say;
use crate::stage::{now_ms, own_executable, run};
use qo::RetryPolicy;
use qo::{Context, Failure, TaskConfig, Worker};
use qo_judge::{End, Pen};
use std::fs::OpenOptions;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;
use tracing::span::{Attributes, Id, Record};
use tracing::{Event, Level, Metadata, Subscriber};

/// Works on the namespace at a URL until it gets a signal, then prints how many of its settles were refused. All
/// workers have the same name.
pub fn main(arguments: &[String]) -> ExitCode {
    let [folder, url, lease_ms, permits] = arguments else { return ExitCode::from(2) };
    let folder = PathBuf::from(folder);
    if std::env::var_os(SILENT).is_some() {
        tracing::subscriber::set_global_default(Silent).expect("the first one");
    }
    let (lease_ms, permits) = (lease_ms.parse().expect("a number"), permits.parse().expect("a number"));
    run(async {
        let store = qo::connect(url).await.expect("a store");
        let [ticks, waits, blocks, holds] = [(); 4].map(|()| folder.clone());
        let pen = pen(&folder);
        let held = pen.clone();
        let worker = Worker::builder(store)
            .name("process")
            .lease(Duration::from_millis(lease_ms))
            .max_concurrent_tasks(permits)
            .cancel_grace(Duration::from_millis(200))
            .guard(own_executable())
            .task_with("tick", at_once(), move |(): (), context| tick(ticks.clone(), context))
            .task_with("wait", at_once(), move |(): (), context| wait(waits.clone(), context))
            .task_with("chaos", at_once(), move |ms, context| chaos(pen.clone(), ms, context))
            .task_with("hold", at_once(), move |(): (), context| hold(held.clone(), holds.clone(), context))
            .blocking_task("block", at_once(), move |(): (), _| block(&blocks))
            .program("family", at_once(), ["sh", "-c", &family(&folder)])
            .build()
            .expect("a worker");
        let metrics = worker.metrics();
        worker.run_until_signal().await.expect("it ends well");
        say(format_args!("fenced {}", metrics.counts().fenced_total));
    });
    ExitCode::SUCCESS
}

/// The variable that makes a worker's log wait for ever.
pub const SILENT: &str = "QO_TEST_SILENT";

/// A log whose reader has stopped reading: it never returns from an error.
struct Silent;

impl Subscriber for Silent {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        *metadata.level() == Level::ERROR
    }

    fn event(&self, _: &Event<'_>) {
        loop {
            std::thread::park();
        }
    }

    fn new_span(&self, _: &Attributes<'_>) -> Id {
        Id::from_u64(1)
    }

    fn record(&self, _: &Id, _: &Record<'_>) {}
    fn record_follows_from(&self, _: &Id, _: &Id) {}
    fn enter(&self, _: &Id) {}
    fn exit(&self, _: &Id) {}
}

fn at_once() -> TaskConfig {
    TaskConfig::new().retry(RetryPolicy::immediately())
}

/// Writes a line to a file of the folder.
fn record(folder: &Path, name: &str, line: &str) {
    let mut file = OpenOptions::new().create(true).append(true).open(folder.join(name)).expect("a file");
    file.write_all(format!("{line}\n").as_bytes()).expect("written");
}

/// Records every few milliseconds that it runs, on the first attempt. It does not check whether it must stop.
async fn tick(folder: PathBuf, context: Context) -> Result<(), Failure> {
    while context.attempt() == 1 {
        record(&folder, "ticks", &now_ms().to_string());
        tokio::time::sleep(Duration::from_millis(3)).await;
    }
    Ok(())
}

/// Runs for this many milliseconds or some more, and records from when to when.
async fn chaos(pen: Pen, ms: u64, context: Context) -> Result<(), Failure> {
    let running = begin(&pen, &context);
    tokio::time::sleep(Duration::from_millis(ms + context.fence_token().0 % 20)).await;
    Ok(running.end(End::Done)?)
}

/// Runs until there is a file for its key, and records from when to when. It does not check whether it must stop.
async fn hold(pen: Pen, folder: PathBuf, context: Context) -> Result<(), Failure> {
    let go = folder.join(format!("go-{}", context.key().expect("it has one")));
    let mut running = begin(&pen, &context);
    while !go.exists() {
        running.beat()?;
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    Ok(running.end(End::Done)?)
}

/// Waits for a file.
async fn wait(folder: PathBuf, _: Context) -> Result<(), Failure> {
    record(&folder, "started", "1");
    while !folder.join("go").exists() {
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    Ok(())
}

/// Never ends.
fn block(folder: &Path) -> Result<(), Failure> {
    record(folder, "started", "1");
    loop {
        std::thread::park();
    }
}

/// A shell and a child of it that never end, on the first attempt. Both ignore SIGTERM.
fn family(folder: &Path) -> String {
    let folder = folder.display();
    format!(
        "[ $QO_ATTEMPT = 1 ] || exit 0; trap '' TERM; \
         sh -c 'trap \"\" TERM; while :; do sleep 1; done' & echo $! > {folder}/child; echo $$ > {folder}/parent; wait"
    )
}
