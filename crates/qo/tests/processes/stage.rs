//! What the tests of processes need: folders, records, signals, and patience.

use object_store::{ObjectStore, prefix::PrefixStore};
use qo::core::{JobDetail, JobId};
use qo::{Client, Store};
use qo_judge::now_ns;
use qo_object::{LogStore, Options};
use qo_testkit::{Bucket, bucket};
use rustix::process::{Pid, Signal, kill_process};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::time::Duration;
use tempfile::TempDir;

/// Longest that anything here may take.
const PATIENCE: Duration = Duration::from_secs(30);

pub fn run(test: impl Future<Output = ()>) {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build();
    runtime.expect("a runtime").block_on(test);
}

/// This file again, to play another part.
pub fn own_executable() -> PathBuf {
    std::env::current_exe().expect("a path")
}

/// Waits until a look at something says yes.
pub async fn until(what: &str, mut look: impl AsyncFnMut() -> bool) {
    let waiting = async {
        while !look().await {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    tokio::time::timeout(PATIENCE, waiting).await.unwrap_or_else(|_| panic!("never: {what}"));
}

pub async fn ended(client: &Client, job: JobId) -> JobDetail {
    tokio::time::timeout(PATIENCE, client.wait(job)).await.expect("it ends").expect("a job")
}

/// Milliseconds on the machine's monotonic clock.
pub fn now_ms() -> u64 {
    now_ns() / 1_000_000
}

/// A namespace, and a folder with files that jobs write.
pub struct Stage {
    folder: TempDir,
    /// Where the namespace is.
    url: String,
    pub store: Arc<dyn Store>,
    pub client: Client,
    /// The server of the bucket that it is in, if it is in one.
    pub bucket: Option<Bucket>,
}

impl Stage {
    /// The namespace is in a directory.
    pub async fn new() -> Self {
        let folder = tempfile::tempdir().expect("a folder");
        let directory = folder.path().join("store");
        let log = LogStore::open_directory(&directory, Options::default()).await;
        Self::of(folder, format!("file:{}", directory.display()), None, log.expect("a namespace"))
    }

    /// The namespace is in a bucket. The workers have credentials in their environment and this process has not, so it
    /// uses a client of its own.
    pub async fn in_bucket(bucket: Bucket) -> Self {
        let client = bucket.client().build().expect("a client");
        let objects: Arc<dyn ObjectStore> = Arc::new(PrefixStore::new(client, "stage"));
        let log = LogStore::open_objects(objects, Options::bucket()).await;
        let url = format!("s3://{}/stage", bucket::NAME);
        Self::of(tempfile::tempdir().expect("a folder"), url, Some(bucket), log.expect("a namespace"))
    }

    fn of(folder: TempDir, url: String, bucket: Option<Bucket>, log: LogStore) -> Self {
        let store: Arc<dyn Store> = Arc::new(log);
        Self { folder, url, bucket, client: Client::new(store.clone()), store }
    }

    pub fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// A worker process, with a lease of this many milliseconds.
    pub fn worker(&self, lease_ms: u64) -> Process {
        self.worker_of(lease_ms, 100)
    }

    /// The same; it runs this many jobs at once.
    pub fn worker_of(&self, lease_ms: u64, permits: u32) -> Process {
        self.start(lease_ms, permits, &[])
    }

    /// The same, with these variables in its environment.
    pub fn worker_with(&self, lease_ms: u64, environment: &[(&str, &str)]) -> Process {
        self.start(lease_ms, 100, environment)
    }

    fn start(&self, lease_ms: u64, permits: u32, environment: &[(&str, &str)]) -> Process {
        let mut command = Command::new(own_executable());
        command.arg("worker").arg(self.folder.path()).arg(&self.url);
        command.args([lease_ms.to_string(), permits.to_string()]);
        command.envs(self.bucket.iter().flat_map(Bucket::environment));
        command.envs(environment.iter().copied());
        let child = command.stdout(Stdio::piped()).spawn().expect("a process");
        Process(child)
    }

    /// Waits until a job has written a number to a file, and reads it.
    pub async fn number(&self, name: &str) -> i32 {
        let path = self.path(name);
        until(&format!("{name} is written"), async || read_number(&path).is_some()).await;
        read_number(&path).expect("a number")
    }

    pub async fn is_running(&self, job: JobId) -> bool {
        self.store.job(job).await.expect("a job").view.running.is_some()
    }
}

fn read_number(path: &Path) -> Option<i32> {
    let text = fs::read_to_string(path).ok()?;
    text.strip_suffix('\n')?.trim().parse().ok()
}

/// A process that is killed when the test is over.
pub struct Process(Child);

impl Process {
    pub fn id(&self) -> u32 {
        self.0.id()
    }

    pub fn signal(&self, signal: Signal) {
        kill_process(Pid::from_child(&self.0), signal).expect("it runs");
    }

    /// Stops it, and returns a time in nanoseconds at which it was stopped.
    pub async fn stop(&self) -> u64 {
        self.signal(Signal::STOP);
        let pid = i32::try_from(self.id()).expect("an id");
        until("it stands still", async || state(pid) == Some('T')).await;
        now_ns()
    }

    /// Waits for its end: its exit code and what it wrote.
    pub async fn end(mut self) -> (Option<i32>, String) {
        until("the process ends", async || self.0.try_wait().expect("a child").is_some()).await;
        let mut text = String::new();
        let stdout = self.0.stdout.as_mut().expect("a pipe");
        std::io::Read::read_to_string(stdout, &mut text).expect("a text");
        (self.0.wait().expect("a status").code(), text)
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        self.0.kill().ok();
        self.0.wait().ok();
    }
}

pub fn signal(pid: i32, signal: Signal) {
    kill_process(Pid::from_raw(pid).expect("an id"), signal).expect("it runs");
}

/// Whether a process runs: a zombie does not.
pub fn is_alive(pid: i32) -> bool {
    !matches!(state(pid), None | Some('Z' | 'X'))
}

/// The state of a process, as a letter.
fn state(pid: i32) -> Option<char> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    stat.rsplit_once(") ")?.1.chars().next()
}
