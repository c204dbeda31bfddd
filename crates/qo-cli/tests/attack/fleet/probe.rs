//! The program that the jobs of an attack run: it records in the diary that it starts, that it runs, and how it ends.
//!
//! It is this test binary, started again with `ATTACK_DIARY` in its environment: no other program is needed, and a
//! start costs some milliseconds.

use super::diary;
use crate::fixture::{Here, until};
use qo_judge::{End, Pen, now_ns};
use serde::{Deserialize, Serialize};
use std::io::{Read, Write};
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

/// Where the diary is.
pub const DIARY: &str = "ATTACK_DIARY";
/// The number of the worker that runs the job.
pub const WORKER: &str = "ATTACK_WORKER";
/// How often a probe records that it runs: a run beyond its lease shows within this time.
const BEAT: Duration = Duration::from_millis(25);

/// The orders of a job.
#[derive(Debug, Clone, Copy, Default, Serialize, Deserialize)]
pub struct Orders {
    /// The number of the job in the plan; 0 for a job of a schedule.
    pub number: u64,
    /// How long it runs.
    pub ms: u64,
    /// The first attempt that does not ask for another one.
    #[serde(default)]
    pub good_from: u64,
    /// Its first attempt runs until it is killed: the job has a timeout.
    #[serde(default)]
    pub hangs: bool,
    /// It ends for good without success.
    #[serde(default)]
    pub fails: bool,
}

/// The command that starts a probe.
pub fn command() -> Vec<String> {
    let own = std::env::current_exe().expect("a path").display().to_string();
    let name = "fleet::probe::a_probe_records_when_it_runs_and_how_it_ends";
    [&own, "--exact", name, "--nocapture", "--quiet"].map(str::to_owned).to_vec()
}

fn variable(name: &str) -> String {
    std::env::var(name).ok().filter(|value| !value.is_empty()).unwrap_or_else(|| "-".to_owned())
}

/// Runs as a job. Returns the exit code.
fn run(diary: &Path) -> i32 {
    let mut text = String::new();
    std::io::stdin().read_to_string(&mut text).expect("a payload");
    let orders: Orders = serde_json::from_str(&text).expect("orders");
    let [attempt, token, task, key] = ["QO_ATTEMPT", "QO_FENCE_TOKEN", "QO_TASK", "QO_KEY"].map(variable);
    // A script that takes slots is no job, and has one attempt.
    let job = std::env::var("QO_JOB_ID").unwrap_or_else(|_| format!("script-{}", orders.number));
    let (attempt, token) = (attempt.parse::<u64>().unwrap_or(1), token.parse().expect("a token"));
    let pen = Pen::open(diary, &variable(WORKER)).expect("a diary");
    let running = pen.begin(token, &job, &orders.number.to_string(), &format!("{task} {key}"));
    let mut running = running.expect("written");
    // Behind the record of its beginning: by the diary, it runs as long as it was ordered to.
    let started = now_ns();
    let ends_ns = if orders.hangs && attempt == 1 { u64::MAX } else { started + orders.ms * 1_000_000 };
    while now_ns() < ends_ns {
        let left = Duration::from_nanos(ends_ns - now_ns().min(ends_ns));
        std::thread::park_timeout(left.min(BEAT));
        running.beat().expect("written");
    }
    let (end, code) = match orders {
        Orders { good_from, .. } if attempt < good_from => (End::Retry, 75),
        Orders { fails: true, .. } => (End::Failed, 100),
        _ => (End::Done, 0),
    };
    running.end(end).expect("written");
    code
}

/// If a worker started this process, it is the job.
#[test]
fn a_probe_records_when_it_runs_and_how_it_ends() {
    if let Some(diary) = std::env::var_os(DIARY) {
        std::process::exit(run(Path::new(&diary)));
    }
    let here = Here::new();
    let diary = diary::Diary::open(&here.path("diary"));
    for (attempt, code) in [(1, 75), (2, 0)] {
        let orders = Orders { number: 7, ms: 60, good_from: 2, ..Orders::default() };
        let [program, arguments @ ..] = &command()[..] else { panic!("no command") };
        let mut probe = Command::new(program);
        probe.args(arguments).env(DIARY, diary.path()).env(WORKER, "3").env("QO_JOB_ID", "job");
        probe.env("QO_ATTEMPT", attempt.to_string()).env("QO_FENCE_TOKEN", (10 + attempt).to_string());
        probe.env("QO_TASK", "plain").env("QO_KEY", "").stdin(Stdio::piped()).stdout(Stdio::null());
        let mut probe = probe.spawn().expect("it starts");
        let text = serde_json::to_string(&orders).expect("JSON");
        probe.stdin.take().expect("a pipe").write_all(text.as_bytes()).expect("written");
        assert_eq!(probe.wait().expect("it ends").code(), Some(code));
    }
    until("both runs are in the diary", || {
        diary.book().diary.runs().filter(|run| run.end != End::Open).count() == 2
    });
    let book = diary.book();
    let runs: Vec<_> = book.diary.runs().collect();
    assert_eq!(
        runs.iter().map(|run| (run.token, &*run.worker, &*run.planned, &*run.says)).collect::<Vec<_>>(),
        [(11, "3", "7", "plain -"), (12, "3", "7", "plain -")]
    );
    assert!(
        runs.iter().all(|run| run.to_ns >= run.from_ns + 60_000_000 && !run.beats.is_empty()),
        "{runs:?}"
    );
    assert!(book.done.contains(&7) && book.diary.contradictions().is_empty(), "{:?}", book.diary);
}
