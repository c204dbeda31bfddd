//! `qo demo`, unchanged: what it proves, that false records are found, and that it leaves nothing behind.

use serde_json::Value;
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::sync::{OnceLock, mpsc};
use std::time::{Duration, Instant};
use tempfile::TempDir;

/// How long anything may take on a machine that is busy with other things.
const PATIENCE: Duration = Duration::from_secs(120);

fn qo(folder: &Path) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_qo"));
    command.env("TMPDIR", folder).env_remove("QO_STORE").current_dir(folder).stdin(Stdio::null());
    command
}

fn folder() -> TempDir {
    tempfile::Builder::new().prefix("qo-demo-test-").tempdir().expect("a temporary folder")
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// Waits until a condition holds.
fn wait_until(what: &str, mut is_so: impl FnMut() -> bool) {
    let (_never, ticks) = mpsc::channel::<()>();
    let began = Instant::now();
    while !is_so() {
        assert!(began.elapsed() < PATIENCE, "{what}: not within {PATIENCE:?}");
        ticks.recv_timeout(Duration::from_millis(20)).expect_err("the channel stays empty");
    }
}

/// One whole run, for all tests that look at what it left. Its folder stays until the next run of the tests.
struct Run {
    folder: PathBuf,
    output: Output,
}

impl Run {
    fn the_one() -> &'static Self {
        static RUN: OnceLock<Run> = OnceLock::new();
        RUN.get_or_init(|| {
            let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join("demo");
            // Before the first run there is none.
            let _ = std::fs::remove_dir_all(&folder);
            std::fs::create_dir_all(&folder).expect("made");
            let output = qo(&folder).args(["demo", "--keep"]).output().expect("it runs");
            Self { folder, output }
        })
    }

    /// The folder that it kept.
    fn kept(&self) -> PathBuf {
        let entries = std::fs::read_dir(&self.folder).expect("a folder");
        let mut kept = entries.map(|entry| entry.expect("an entry").path());
        kept.find(|path| path.join("records").is_dir()).expect("it was kept")
    }
}

#[test]
fn the_demo_proves_from_the_jobs_own_records_that_every_limit_held() {
    let run = Run::the_one();
    let (out, err) = (text(&run.output.stdout), text(&run.output.stderr));
    assert_eq!(run.output.status.code(), Some(0), "{out}{err}");
    let rows: [(&str, &str, &str); 6] = [
        ("cluster", "all jobs together", "16       16   0 times  ✓"),
        ("queue:stripe", "all jobs of a queue", "3        3   0 times  ✓"),
        ("call-api", "all jobs of a task", "6        6   0 times  ✓"),
        ("call-api", "lowered while it ran", "2        2   0 times  ✓"),
        ("call-api", "raised while it ran", "8        8   0 times  ✓"),
        ("sync-user/*", "for each of 5 users", "1        1   0 times  ✓"),
    ];
    for (group, what, end) in rows {
        let is_it = |line: &str| line.contains(group) && line.contains(what) && line.ends_with(end);
        assert!(out.lines().any(is_it), "{group}, {what}: {out}");
    }
    for part in [
        "5 with 30 steps",
        "in order, one at a time  ✓",
        "slots back after",
        "run again after the kill  ✓",
        "jobs lost       0  ✓",
        "PASS",
        "kill -9 worker-",
    ] {
        assert!(out.contains(part), "{part}: {out}");
    }
    assert!(!out.contains('\u{1b}'), "colours and cursor moves are for terminals: {out}");
}

/// A copy of the records of the run, for a test to tamper with.
struct Copied {
    folder: TempDir,
}

impl Copied {
    fn new() -> Self {
        let (folder, from) = (folder(), Run::the_one().kept().join("records"));
        let to = folder.path().join("records");
        std::fs::create_dir(&to).expect("made");
        for entry in std::fs::read_dir(from).expect("records") {
            let path = entry.expect("an entry").path();
            std::fs::copy(&path, to.join(path.file_name().expect("a name"))).expect("copied");
        }
        Self { folder }
    }

    /// Changes every record, or removes it.
    fn tamper(&self, mut change: impl FnMut(&mut Value) -> bool) {
        for number in 1..=3 {
            let path = self.folder.path().join(format!("records/worker-{number}.ndjson"));
            let mut lines = String::new();
            for line in std::fs::read_to_string(&path).expect("records").lines() {
                let mut record: Value = serde_json::from_str(line).expect("a record");
                if change(&mut record) {
                    lines.push_str(&format!("{record}\n"));
                }
            }
            std::fs::write(&path, lines).expect("written");
        }
    }

    fn evidence(&self) -> Value {
        let path = self.folder.path().join("records/evidence.json");
        serde_json::from_str(&std::fs::read_to_string(path).expect("evidence")).expect("JSON")
    }

    fn check(&self) -> (Option<i32>, String) {
        let mut command = qo(self.folder.path());
        let output = command.args(["demo", "--check"]).arg(self.folder.path()).output().expect("it runs");
        (output.status.code(), text(&output.stdout))
    }

    #[track_caller]
    fn assert_caught(&self, parts: &[&str]) {
        let (code, out) = self.check();
        assert_eq!(code, Some(1), "{out}");
        let violation = |line: &str| parts.iter().all(|part| line.contains(part));
        assert!(out.contains("FAIL") && out.lines().any(violation), "{parts:?}: {out}");
    }
}

#[test]
fn records_of_a_run_can_be_judged_again() {
    let (code, out) = Copied::new().check();
    assert_eq!(code, Some(0), "{out}");
    assert!(out.contains("PASS"), "{out}");
}

#[test]
fn records_that_were_falsified_are_caught() {
    let over = Copied::new();
    let began_ns = over.evidence()["began_ns"].as_u64().expect("a time");
    over.tamper(|record| {
        if record["queue"] == "stripe" && record["event"] == "began" {
            record["at_ns"] = began_ns.into();
        }
        true
    });
    over.assert_caught(&["queue:stripe", "at once where 3 may"]);

    let disorder = Copied::new();
    disorder.tamper(|record| {
        if record["step"] == 2 && record["event"] == "began" {
            record["at_ns"] = began_ns.into();
        }
        true
    });
    disorder.assert_caught(&["order-1", "step 2 began at", "before step 1 was over"]);

    let another = Copied::new();
    another.tamper(|record| {
        let step = record["step"].as_u64();
        record["step"] = step.map(|step| if step <= 2 { 3 - step } else { step }).into();
        true
    });
    another.assert_caught(&["did not run as it was submitted"]);

    let lost = Copied::new();
    let job = lost.evidence()["jobs"][7]["id"].clone();
    lost.tamper(|record| record["job"] != job);
    lost.assert_caught(&["jobs lost", job.as_str().expect("an id")]);

    let idle = Copied::new();
    let mut evidence = idle.evidence();
    let cluster = evidence["limits"].as_array_mut().expect("limits");
    cluster.iter_mut().find(|limit| limit["group"] == "cluster").expect("a cap")["limit"] = 99.into();
    std::fs::write(idle.folder.path().join("records/evidence.json"), evidence.to_string()).expect("written");
    idle.assert_caught(&["cluster", "never more than", "although 99 may"]);
}

#[test]
fn a_store_that_others_use_is_left_as_it_was() {
    let folder = folder();
    let store = format!("file:{}", folder.path().join("mine").display());
    let submitted = qo(folder.path()).args(["submit", "mail", "--store", &store]).output().expect("it runs");
    assert!(submitted.status.success(), "{}", text(&submitted.stderr));
    let output = qo(folder.path()).args(["demo", "--store", &store]).output().expect("it runs");
    let (out, err) = (text(&output.stdout), text(&output.stderr));
    assert_eq!(output.status.code(), Some(0), "{out}{err}");
    assert!(err.contains("names of this run begin with demo-"), "{err}");
    assert!(err.contains("no cluster cap is set"), "{err}");
    assert!(out.contains("PASS") && !out.contains("all jobs together"), "{out}");
    let listed = |arguments: &[&str]| -> Value {
        let output = qo(folder.path()).args(arguments).args(["--store", &store]).output().expect("it runs");
        serde_json::from_slice(&output.stdout).unwrap_or_else(|_| panic!("{}", text(&output.stderr)))
    };
    let pending = listed(&["jobs", "list", "--state", "pending", "--json"]);
    assert_eq!(pending.as_array().map(|jobs| jobs.len()), Some(1), "{pending}");
    let limits = listed(&["concurrency", "status", "--json"]);
    let limited = |group: &&Value| !group["limit"].is_null();
    assert_eq!(limits.as_array().expect("groups").iter().find(limited), None, "{limits}");
    assert_eq!(listed(&["workers", "--json"]), Value::Array(Vec::new()));
}

/// Processes whose command line names a folder.
fn processes_of(folder: &Path) -> usize {
    let folder = folder.to_str().expect("a name");
    let entries = std::fs::read_dir("/proc").expect("processes").filter_map(Result::ok);
    let command_line = |entry: std::fs::DirEntry| std::fs::read(entry.path().join("cmdline")).ok();
    entries.filter_map(command_line).filter(|line| text(line).contains(folder)).count()
}

/// A demo whose jobs are running.
fn started(folder: &Path, arguments: &[&str]) -> Child {
    let mut child = qo(folder)
        .arg("demo")
        .args(arguments)
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .expect("it starts");
    let mut lines = BufReader::new(child.stdout.take().expect("stdout")).lines();
    let submitted = lines.find(|line| line.as_ref().is_ok_and(|line| line.contains("jobs submitted")));
    assert!(submitted.is_some());
    // Keep its pipe open: a demo whose reader is gone is another case.
    std::mem::forget(lines);
    child
}

fn signal(child: &Child, signal: &str) {
    let id = child.id().to_string();
    assert!(Command::new("kill").args([signal, &id]).status().expect("kill runs").success());
}

#[test]
fn an_interrupted_demo_ends_its_workers_and_removes_its_folder() {
    let folder = folder();
    let mut child = started(folder.path(), &[]);
    assert_eq!(processes_of(folder.path()), 3);
    signal(&child, "-INT");
    assert_eq!(child.wait().expect("it ends").code(), Some(130));
    assert_eq!(processes_of(folder.path()), 0);
    assert_eq!(std::fs::read_dir(folder.path()).expect("a folder").count(), 0);
}

#[test]
fn an_interrupted_demo_leaves_nothing_in_a_store_that_others_use() {
    let folder = folder();
    let store = format!("file:{}", folder.path().join("mine").display());
    let mut child = started(folder.path(), &["--store", &store]);
    signal(&child, "-TERM");
    assert_eq!(child.wait().expect("it ends").code(), Some(130));
    for listing in [["workers", "--json"], ["queues", "--json"]] {
        let output = qo(folder.path()).args(listing).args(["--store", &store]).output().expect("it runs");
        assert_eq!(text(&output.stdout).trim(), "[]", "{listing:?}");
    }
}

#[test]
fn the_workers_of_a_demo_that_was_killed_end_by_themselves() {
    let folder = folder();
    let mut child = started(folder.path(), &[]);
    signal(&child, "-KILL");
    child.wait().expect("it ends");
    wait_until("the workers end", || processes_of(folder.path()) == 0);
}

#[test]
fn a_store_of_one_process_and_a_folder_without_records_are_refused() {
    let folder = folder();
    let memory = qo(folder.path()).args(["demo", "--store", "memory:"]).output().expect("it runs");
    assert_eq!(memory.status.code(), Some(2), "{}", text(&memory.stderr));
    assert!(text(&memory.stderr).contains("several processes"), "{}", text(&memory.stderr));
    let mut check = qo(folder.path());
    let check = check.args(["demo", "--check"]).arg(folder.path()).output().expect("it runs");
    assert_eq!(check.status.code(), Some(3), "{}", text(&check.stderr));
    assert_eq!(std::fs::read_dir(folder.path()).expect("a folder").count(), 0);
}
