//! The worker process that the tests start, stop and kill.

use crate::say;
use crate::stage::{now_ms, now_us, own_executable, run};
use qo::core::RetryPolicy;
use qo::{Context, Failure, TaskConfig, Worker};
use std::fs::{File, OpenOptions};
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::{Arc, Mutex};
use std::time::Duration;

/// Works on the namespace in a folder until it gets a signal, then says how many of its settles were refused.
pub fn main(arguments: &[String]) -> ExitCode {
    let [folder, lease_ms] = arguments else { return ExitCode::from(2) };
    let (folder, lease_ms) = (PathBuf::from(folder), lease_ms.parse().expect("a number"));
    run(async {
        let store = qo::connect(&format!("file:{}", folder.join("store").display())).await.expect("a store");
        let (ticks, waits, blocks) = (folder.clone(), folder.clone(), folder.clone());
        let diary = Arc::new(Diary::new(&folder));
        let worker = Worker::builder(store)
            .name("process")
            .lease(Duration::from_millis(lease_ms))
            .cancel_grace(Duration::from_millis(200))
            .guard(own_executable())
            .task_with("tick", at_once(), move |(): (), context| tick(ticks.clone(), context))
            .task_with("wait", at_once(), move |(): (), context| wait(waits.clone(), context))
            .task_with("chaos", at_once(), move |(): (), context| chaos(diary.clone(), context))
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

fn at_once() -> TaskConfig {
    TaskConfig::new().retry(RetryPolicy { base_ms: 0, max_ms: 0, ..RetryPolicy::default() })
}

/// Writes a line to a file of the folder.
fn record(folder: &Path, name: &str, line: &str) {
    let mut file = OpenOptions::new().create(true).append(true).open(folder.join(name)).expect("a file");
    file.write_all(format!("{line}\n").as_bytes()).expect("written");
}

/// Records every few milliseconds that it runs, on the first attempt; it does not look whether it shall stop.
async fn tick(folder: PathBuf, context: Context) -> Result<(), Failure> {
    while context.attempt() == 1 {
        record(&folder, "ticks", &now_ms().to_string());
        tokio::time::sleep(Duration::from_millis(3)).await;
    }
    Ok(())
}

/// What the handlers of this process write down: one file, a line at a time.
struct Diary(Mutex<File>);

impl Diary {
    fn new(folder: &Path) -> Self {
        let path = folder.join(format!("chaos-{}", std::process::id()));
        Self(Mutex::new(OpenOptions::new().create(true).append(true).open(path).expect("a file")))
    }

    fn write(&self, what: &str, context: &Context) {
        let key = context.key().map(ToString::to_string).unwrap_or_default();
        let line = format!("{what} {} {} {key}\n", now_us(), context.fence_token());
        self.0.lock().expect("nobody panicked").write_all(line.as_bytes()).expect("written");
    }
}

/// Says when it is over, however it ends.
struct Presence(Arc<Diary>, Context);

impl Drop for Presence {
    fn drop(&mut self) {
        self.0.write("end", &self.1);
    }
}

/// Runs for some milliseconds and writes down from when to when.
async fn chaos(diary: Arc<Diary>, context: Context) -> Result<(), Failure> {
    diary.write("start", &context);
    let ms = 5 + context.fence_token().0 % 20;
    let _presence = Presence(diary, context);
    tokio::time::sleep(Duration::from_millis(ms)).await;
    Ok(())
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

/// A shell with a child of its own that never end, on the first attempt; both deaf to SIGTERM.
fn family(folder: &Path) -> String {
    let folder = folder.display();
    format!(
        "[ $QO_ATTEMPT = 1 ] || exit 0; trap '' TERM; \
         sh -c 'trap \"\" TERM; while :; do sleep 1; done' & echo $! > {folder}/child; echo $$ > {folder}/parent; wait"
    )
}
