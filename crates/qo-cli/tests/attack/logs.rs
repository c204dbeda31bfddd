//! What a worker and a running job log.

use crate::fixture::{Here, Worker, signal, until};
use std::fs;
use std::io::{BufRead, BufReader};
use std::process::{Child, ChildStdout, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use tokio_postgres::NoTls;

/// A program that writes a line, waits for the file `go`, and writes another.
const PATIENT: &str = "echo first >&2; while ! [ -e go ]; do sleep 0.05; done; echo last >&2";

/// A name that no other test has.
fn unused(what: &str) -> String {
    static MADE: AtomicU32 = AtomicU32::new(0);
    format!("attack_{what}_{}_{}", std::process::id(), MADE.fetch_add(1, Ordering::Relaxed))
}

fn server(variable: &str) -> String {
    std::env::var(variable)
        .unwrap_or_else(|_| panic!("{variable} must be the URL of a server; `make test` starts it"))
}

fn job(here: &Here, arguments: &[&str]) -> String {
    here.qo(&[&["submit"], arguments].concat()).line()
}

fn state(here: &Here, job: &str) -> String {
    here.qo(&["jobs", "show", job, "--json"]).json()["state"].as_str().expect("a state").to_owned()
}

/// What the worker `w1` has written so far.
fn said(here: &Here) -> String {
    fs::read_to_string(here.path("w1.log")).expect("a log")
}

/// The log of a job can be read while it runs, and is complete when it has ended.
fn a_log_grows(here: &Here) {
    let _worker = here.worker(&["--task", &format!("patient={PATIENT}")]);
    let job = job(here, &["patient"]);
    until("the first line is kept", || here.qo(&["jobs", "logs", &job]).ok().out == "first\n");
    assert_eq!(state(here, &job), "running");
    here.qo(&["jobs", "logs", &job]).ok().says("still running");
    let logs = here.qo(&["jobs", "logs", &job, "--json"]).json();
    assert_eq!((&logs[0]["running"], &logs[0]["log"]), (&true.into(), &"first\n".into()), "{logs}");
    here.write("go", "");
    until("it has ended", || state(here, &job) == "succeeded");
    let ran = here.qo(&["jobs", "logs", &job]).ok();
    assert_eq!((ran.out.as_str(), ran.err.as_str()), ("first\nlast\n", ""));
}

#[test]
fn the_log_of_a_running_job_is_there_in_a_directory() {
    a_log_grows(&Here::new());
}

#[test]
fn the_log_of_a_running_job_is_there_in_a_bucket() {
    let here = Here::new();
    let url = format!("s3://qo-test/{}?endpoint={}", unused("logs"), server("QO_TEST_S3"));
    a_log_grows(here.write(".qo.toml", &format!("store = \"{url}\"\n")));
}

#[test]
fn the_log_of_a_running_job_is_there_on_postgresql() {
    let schema = unused("logs");
    let here = Here::new();
    here.write(".qo.toml", &format!("store = \"{}?schema={schema}\"\n", server("QO_TEST_POSTGRES")));
    here.qo(&["migrate", "up"]).ok();
    a_log_grows(&here);
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
    runtime.block_on(async {
        let connected = tokio_postgres::connect(&server("QO_TEST_POSTGRES"), NoTls).await;
        let (client, connection) = connected.expect("the server answers");
        tokio::spawn(connection);
        client.batch_execute(&format!("DROP SCHEMA {schema} CASCADE")).await.expect("dropped");
    });
}

#[test]
fn what_a_job_wrote_outlives_the_worker_that_was_killed() {
    let here = Here::new();
    let worker = here.worker(&["--task", "talks=echo before >&2; exec sleep 60"]);
    let job = job(&here, &["talks"]);
    until("it is kept", || here.qo(&["jobs", "logs", &job]).ok().out == "before\n");
    worker.signal("KILL");
    worker.wait();
    assert_eq!(here.qo(&["jobs", "logs", &job]).ok().out, "before\n");
}

/// `qo jobs logs --follow`, and what it prints.
struct Following {
    child: Child,
    lines: BufReader<ChildStdout>,
}

impl Following {
    fn new(here: &Here, job: &str) -> Self {
        let mut child = here.command(&["jobs", "logs", job, "--follow"]).spawn().expect("qo starts");
        let lines = BufReader::new(child.stdout.take().expect("a pipe"));
        Self { child, lines }
    }

    /// The next line; empty at the end.
    fn line(&mut self) -> String {
        let mut line = String::new();
        self.lines.read_line(&mut line).expect("UTF-8");
        line
    }

    fn code(mut self) -> Option<i32> {
        self.child.wait().expect("it ends").code()
    }
}

#[test]
fn a_followed_log_grows_line_by_line_until_the_job_ends() {
    let here = Here::new();
    // Equal lines, and more of them than are kept: none is printed twice, and a gap is reported.
    let task = "long=i=0; while [ $i -lt 5 ]; do echo same >&2; i=$((i+1)); done; while ! [ -e go ]; do sleep 0.05; done; \
                echo 'more' >&2; while ! [ -e on ]; do sleep 0.05; done; seq 100000 | sed 's/$/ in a row/' >&2; echo last >&2";
    let _worker = here.worker(&["--task", task]);
    let job = job(&here, &["long"]);
    let mut following = Following::new(&here, &job);
    for _ in 0..5 {
        assert_eq!(following.line(), "same\n");
    }
    here.write("go", "");
    assert_eq!(following.line(), "more\n");
    here.write("on", "");
    let rest: Vec<String> =
        std::iter::from_fn(|| Some(following.line()).filter(|line| !line.is_empty())).collect();
    let is_mark = |line: &str| line.starts_with("… ") && line.ends_with(" bytes before this were cut …\n");
    // A look may come while the program writes: lines follow one another, or a mark says that some are missing.
    let (mut last, mut gap, mut gaps) = (0, false, 0);
    for line in &rest[..rest.len() - 1] {
        if is_mark(line) {
            (gap, gaps) = (true, gaps + 1);
            continue;
        }
        let number: u32 = line.strip_suffix(" in a row\n").expect("a whole line").parse().expect("a number");
        assert!(
            if gap { number > last + 1 } else { number == last + 1 },
            "{number} after {last}, gap: {gap}"
        );
        (last, gap) = (number, false);
    }
    assert!(last == 100_000 && gaps > 0, "{last}, {gaps} gaps");
    assert_eq!(rest.last().map(String::as_str), Some("last\n"));
    assert_eq!(following.code(), Some(0));
}

#[test]
fn ctrl_c_ends_the_following_and_not_the_job() {
    let here = Here::new();
    let _worker = here.worker(&["--task", &format!("patient={PATIENT}")]);
    let job = job(&here, &["patient"]);
    let mut following = Following::new(&here, &job);
    assert_eq!(following.line(), "first\n");
    signal(following.child.id(), "INT");
    assert_eq!(following.line(), "");
    assert_eq!(following.code(), Some(0));
    assert_eq!(state(&here, &job), "running");
}

#[test]
fn a_long_log_is_cut_at_a_line_and_says_how_much_is_gone() {
    let here = Here::new();
    let _worker = here.worker(&["--task", "counts=seq 100000 >&2"]);
    let job = job(&here, &["counts"]);
    until("it has ended", || state(&here, &job) == "succeeded");
    let log = here.qo(&["jobs", "logs", &job]).ok().out;
    assert!(log.len() <= 64 << 10 && log.len() > 60 << 10, "{} bytes", log.len());
    let (mark, rest) = log.split_once('\n').expect("lines");
    let cut: String = mark.chars().filter(char::is_ascii_digit).collect();
    assert_eq!(mark.replace(|c: char| c.is_ascii_digit() || c == ',', ""), "…  bytes before this were cut …");
    let whole: String = (1..=100_000).map(|number| format!("{number}\n")).collect();
    assert_eq!(&whole[cut.parse().expect("a number")..], rest, "exactly so much is gone");
    assert!(whole[..whole.len() - rest.len()].ends_with('\n'), "it is cut at a line");
}

#[test]
fn a_log_shows_bytes_that_are_no_text_and_loses_none() {
    let here = Here::new();
    let _worker = here.worker(&["--task", r"bytes=printf 'gr\303\274n \377\376 red\n' >&2"]);
    let job = job(&here, &["bytes"]);
    until("it has ended", || state(&here, &job) == "succeeded");
    assert_eq!(here.qo(&["jobs", "logs", &job]).ok().out, "grün \\xff\\xfe red\n");
}

#[test]
fn output_that_is_not_text_comes_back_byte_by_byte() {
    let here = Here::new();
    let _worker = here.worker(&["--task", r"bytes=printf ' \377\000\376\n'"]);
    let ran = here.command(&["submit", "bytes", "--wait"]).output().expect("qo runs");
    assert_eq!(ran.stdout, b" \xff\0\xfe\n", "{}", String::from_utf8_lossy(&ran.stderr));
    let job = here.jobs()[0]["id"].as_str().expect("an id").to_owned();
    let shown = here.qo(&["jobs", "show", &job, "--json"]).json();
    assert_eq!(shown["output"], serde_json::json!({"base64": "IP8A/go="}));
    here.qo(&["jobs", "show", &job]).ok().shows("5 bytes that are not text");
}

#[test]
fn a_worker_says_when_each_job_starts_and_how_it_ends() {
    let here = Here::new();
    let fails = "fails=echo 'no such image' >&2; echo 'second line' >&2; exit 3";
    let worker = here.worker(&["--task", "works=echo fine", "--task", fails]);
    let good = here.qo(&["submit", "works", "{\"secret\": 4711}", "--key", "user/7"]).line();
    let bad = here.qo(&["submit", "fails", "--max-attempts", "2"]).line();
    until("both have ended", || state(&here, &good) == "succeeded" && state(&here, &bad) == "failed");
    worker.signal("TERM");
    assert_eq!(worker.wait(), 0);
    let said = said(&here);
    let of = |job: &str| -> Vec<String> {
        said.lines().filter(|line| line.contains(job)).map(ToOwned::to_owned).collect()
    };
    let check = |line: &str, parts: &[&str]| {
        parts.iter().for_each(|part| assert!(line.contains(part), "{part:?} is not in {line:?}"));
    };
    let [start, end] = &of(&good)[..] else { panic!("two lines: {said}") };
    check(start, &[" INFO ", "started", "task=works", "key=\"user/7\"", "attempt=1"]);
    check(
        end,
        &[" INFO ", "task=works", "key=\"user/7\"", "attempt=1", "outcome=\"succeeded\"", "duration_ms="],
    );
    let [_, again, _, last] = &of(&bad)[..] else { panic!("four lines: {said}") };
    check(again, &[" WARN ", "attempt=1", "outcome=\"retried\"", "error=\"exit code 3: no such image\""]);
    check(last, &[" WARN ", "attempt=2", "outcome=\"failed\"", "error=\"exit code 3: no such image\""]);
    assert!(!said.contains("4711") && !said.contains("second line"), "{said}");
}

#[test]
fn a_quiet_worker_says_only_what_goes_wrong() {
    let here = Here::new();
    let worker = here.worker(&["--quiet", "--task", "works=echo fine", "--task", "fails=exit 100"]);
    let (good, bad) = (job(&here, &["works"]), job(&here, &["fails"]));
    until("both have ended", || state(&here, &good) == "succeeded" && state(&here, &bad) == "failed");
    worker.signal("TERM");
    assert_eq!(worker.wait(), 0);
    let said = said(&here);
    let lines: Vec<&str> = said.lines().filter(|line| !line.starts_with("made a new namespace")).collect();
    assert!(lines.len() == 1 && lines[0].contains(&bad) && lines[0].contains(" WARN "), "{said}");
}

#[test]
fn a_worker_whose_stderr_is_not_read_works_on() {
    let here = Here::new();
    let mut command = here.command(&["worker", "--task", "nop=:", "--name", "w1"]);
    let child = command.stdout(Stdio::null()).stderr(Stdio::piped()).spawn().expect("qo starts");
    let _worker = Worker::of(child);
    // More lines than the pipe can hold.
    here.qo(&["submit", "nop", "--count", "120", "--key", &"k".repeat(256)]).ok();
    let are = |state: &str| {
        !here.qo(&["jobs", "list", "--state", state, "--json"]).json().as_array().expect("jobs").is_empty()
    };
    until("all have ended", || !are("pending") && !are("running"));
    assert!(are("succeeded") && !are("failed"));
}

#[test]
fn a_missing_program_is_an_error_at_start_up() {
    let here = Here::new();
    let refused = |command: &str, rule: &str| {
        here.write(".qo.toml", &format!("[tasks.resize]\ncommand = {command}\n"));
        here.qo(&["worker"]).code(2).says("resize").says(rule);
        assert!(!here.path(".qo").exists(), "it stops before it touches the store");
    };
    refused("[\"./nope\", \"-v\"]", "/nope");
    refused("[\"no-such-program\"]", "no-such-program");
    refused("[\"no-such-program\"]", "PATH");
    here.write("plain", "#!/bin/sh\n");
    refused("[\"./plain\"]", "not executable");
    fs::create_dir(here.path("folder")).expect("a directory");
    refused("[\"./folder\"]", "directory");
    // A relative path is relative to the file that names it, not to the directory in which the worker is started.
    here.script("there.sh", "echo here").write(".qo.toml", "[tasks.t]\ncommand = [\"./there.sh\"]\n");
    let mut elsewhere = here.command(&["worker", "--name", "w1"]);
    let child = elsewhere.current_dir(here.path("folder")).stderr(Stdio::null()).spawn().expect("qo starts");
    let _worker = Worker::of(child);
    assert_eq!(here.qo(&["submit", "t", "--wait"]).ok().out.trim().trim_matches('"'), "here");
}

#[test]
fn a_program_that_vanishes_later_is_tried_again() {
    let here = Here::new();
    here.script("now.sh", "echo here").write(".qo.toml", "[tasks.t]\ncommand = [\"./now.sh\"]\n");
    let _worker = here.worker(&[]);
    fs::remove_file(here.path("now.sh")).expect("removed");
    let job = job(&here, &["t"]);
    until("it was tried", || said(&here).contains("outcome=\"retried\""));
    here.script("now.sh", "echo here");
    until("it has run", || state(&here, &job) == "succeeded");
}
