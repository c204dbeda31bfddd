//! The worker processes, and what was done to each.

use crate::call;
use crate::server::ROLES;
use qo_judge::now_ns;
use rustix::process::{Pid, Signal, kill_process};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Command};
use std::time::Duration;
use tokio::time::{interval, timeout};

/// What was done to a worker.
#[derive(Debug, Clone, Default)]
pub struct Fate {
    /// A time at which it was surely dead.
    pub killed_ns: Option<u64>,
    /// From when to when it was stopped, each time for longer than its lease.
    pub stops: Vec<(u64, u64)>,
}

/// The name of a worker.
pub fn name_of(number: usize) -> String {
    format!("w{number}")
}

/// The file that the handlers of a worker write to.
pub fn diary_of(folder: &Path, number: usize) -> PathBuf {
    folder.join(format!("worker-{number}"))
}

/// A worker process, killed when the test is over.
pub struct Process {
    pub number: usize,
    pub fate: Fate,
    child: Child,
}

impl Drop for Process {
    fn drop(&mut self) {
        self.child.kill().ok();
        self.child.wait().ok();
    }
}

impl Process {
    fn signal(&self, signal: Signal) {
        kill_process(Pid::from_child(&self.child), signal).expect("it is there");
    }

    /// Only the test ends a worker.
    fn must_run(&mut self) {
        if let Some(status) = self.child.try_wait().expect("a child") {
            panic!("worker {} ended by itself: {status}", self.number);
        }
    }

    pub async fn kill(mut self) -> (usize, Fate) {
        self.must_run();
        self.signal(Signal::KILL);
        self.ended().await;
        self.fate.killed_ns = Some(now_ns());
        (self.number, self.fate.clone())
    }

    /// Stops it, and returns a time at which it was surely stopped.
    pub async fn stop(&mut self) -> u64 {
        self.must_run();
        self.signal(Signal::STOP);
        let stat = format!("/proc/{}/stat", self.child.id());
        until("it stands still", || {
            let stat = fs::read_to_string(&stat).expect("it is there");
            stat.rsplit_once(") ").is_some_and(|(_, rest)| rest.starts_with('T'))
        })
        .await;
        now_ns()
    }

    /// Lets it go on, after it was stopped.
    pub fn go_on(&mut self, stopped_ns: u64) {
        self.fate.stops.push((stopped_ns, now_ns()));
        self.signal(Signal::CONT);
    }

    /// Tells it to end and waits for that.
    pub async fn end(mut self) -> (usize, Fate) {
        self.must_run();
        self.signal(Signal::TERM);
        self.ended().await;
        let status = self.child.wait().expect("a status");
        assert!(status.success(), "worker {}: {status}", self.number);
        (self.number, self.fate.clone())
    }

    async fn ended(&mut self) {
        until("it ends", || self.child.try_wait().expect("a child").is_some()).await;
    }
}

async fn until(what: &str, mut look: impl FnMut() -> bool) {
    let mut every = interval(Duration::from_millis(2));
    let looking = async {
        while !look() {
            every.tick().await;
        }
    };
    timeout(Duration::from_secs(20), looking).await.unwrap_or_else(|_| panic!("never: {what}"));
}

/// Starts workers.
pub struct Fleet {
    url: String,
    folder: PathBuf,
    started: usize,
}

impl Fleet {
    pub fn new(url: &str, folder: &Path) -> Self {
        Self { url: url.into(), folder: folder.into(), started: 0 }
    }

    pub fn start(&mut self) -> Process {
        self.started += 1;
        let number = self.started;
        let mut command = Command::new(std::env::current_exe().expect("a path"));
        let url = self.url.replace("postgres@", &format!("{}@", ROLES[number % ROLES.len()]));
        command.args(["worker", &url]).arg(diary_of(&self.folder, number));
        command.arg(call::path(&self.folder, number)).arg(name_of(number));
        Process { number, fate: Fate::default(), child: command.spawn().expect("a process") }
    }
}
