//! What commands show when a worker has died.

use crate::fixture::{Here, Worker, until};
use rustix::pty::{OpenptFlags, openpt, ptsname, unlockpt};
use serde_json::{Value, json};
use std::fs;
use std::io::Read;
use std::process::Stdio;

/// A worker of one task with a lease of one second. Its jobs run until they are killed.
fn mortal(here: &Here) -> Worker {
    here.worker(&["--task", "nap=exec sleep 600", "--default-lease-duration-secs", "1"])
}

fn runs(here: &Here, job: &str) -> bool {
    here.qo(&["jobs", "show", job, "--json"]).json()["state"] == "running"
}

#[test]
fn after_the_only_worker_was_killed_no_view_counts_it() {
    let here = Here::new();
    here.qo(&["concurrency", "set", "nap", "--limit", "1"]).ok();
    let worker = mortal(&here);
    let jobs = [here.qo(&["submit", "nap"]).line(), here.qo(&["submit", "nap"]).line()];
    until("it runs", || runs(&here, &jobs[0]));
    here.qo(&["explain", &jobs[1]]).ok().shows("Group nap is full: its slot is taken.");
    worker.signal("KILL");
    worker.wait();
    until("its lease is over", || here.qo(&["workers", "--json"]).json() == json!([]));
    for job in &jobs {
        let told = here.qo(&["explain", job]).ok().shows("is pending").shows("No live worker has task nap");
        assert!(!told.out.contains("is full"), "{}", told.out);
    }
    let group = here.qo(&["concurrency", "status", "nap", "--json"]).json();
    assert_eq!((&group["used"], &group["holders"]), (&json!(0), &json!([])), "{group}");
    let queue = here.qo(&["queues", "--json"]).json()[0].clone();
    assert_eq!((&queue["running"], &queue["due"]), (&json!(0), &json!(2)), "{queue}");
    let listed = here.qo(&["jobs", "list", "--state", "running", "--json"]).json();
    assert_eq!(listed, json!([]));
}

#[test]
fn a_waiting_client_is_not_told_of_an_end_that_has_not_come() {
    let here = Here::new();
    let worker = mortal(&here);
    let job = here.qo(&["submit", "nap", "--max-attempts", "1"]).line();
    until("it runs", || runs(&here, &job));
    worker.signal("KILL");
    worker.wait();
    until("its lease is over", || here.qo(&["workers", "--json"]).json() == json!([]));
    assert!(runs(&here, &job), "its worker may be stopped, not dead, and settle it yet");
    here.qo(&["explain", &job]).ok().shows("is running").shows("its worker is gone");
    let _next = here.worker(&["--task", "other=true", "--name", "w2"]);
    until("the next worker ends it", || {
        here.qo(&["jobs", "show", &job, "--json"]).json()["state"] == "failed"
    });
}

#[test]
fn an_operators_retry_does_not_wait_for_the_backoff() {
    let here = Here::new();
    here.script("flaky.sh", "test -e again && exit 0; exit 1");
    here.write(
        ".qo.toml",
        "[tasks.flaky]\ncommand = [\"./flaky.sh\"]\n[tasks.flaky.retry]\nbase_ms = 3600000\nmax_ms = 3600000\n",
    );
    let _worker = here.worker(&[]);
    let job = here.qo(&["submit", "flaky"]).line();
    let shown = || here.qo(&["jobs", "show", &job, "--json"]).json();
    until("it waits for its next attempt", || shown()["attempts_used"] == 1);
    here.qo(&["explain", &job]).ok().shows("It waits for its next attempt").shows("qo jobs retry");
    here.write("again", "");
    here.qo(&["jobs", "retry", &job]).ok();
    until("it runs now", || shown()["state"] == "succeeded");
    assert_eq!(shown()["attempts_used"], 2, "attempts used stay used");
}

#[test]
fn the_last_attempt_is_labelled_failed() {
    let here = Here::new();
    let _worker = here.worker(&["--task", "bad=exit 1"]);
    let job = here.qo(&["submit", "bad", "--max-attempts", "1", "--wait"]).code(1);
    let job = job.err.split_whitespace().nth(1).expect("an id").to_owned();
    let shown = here.qo(&["jobs", "show", &job, "--json"]).json();
    assert_eq!(shown["attempts"][0]["outcome"], "failed", "{shown}");
}

#[test]
fn a_command_with_json_prints_its_errors_as_json() {
    let here = Here::new();
    here.qo(&["submit", "a"]).ok();
    let error = |arguments: &[&str], code: i32| -> Value {
        let ran = here.qo(arguments).code(code);
        let told: Value =
            serde_json::from_str(&ran.err).unwrap_or_else(|error| panic!("{error}: {}", ran.err));
        assert_eq!(ran.out, "");
        told["error"].clone()
    };
    let unknown = "019a8a5e-7c1b-7a10-9d43-3e2a6f0c9b11";
    let missing = error(&["explain", unknown, "--json"], 3);
    assert_eq!(missing["kind"], "not_found");
    assert!(missing["message"].as_str().is_some_and(|message| message.contains(unknown)), "{missing}");
    assert!(missing["hints"][0].is_string(), "{missing}");
    assert_eq!(error(&["jobs", "list", "--json", "--state", "runing"], 2)["kind"], "invalid");
    assert_eq!(error(&["concurrency", "set", "a", "--limit", "-1", "--json"], 2)["kind"], "invalid");
    here.qo(&["explain", unknown]).code(3).says("error: not found:");
}

#[test]
fn every_command_that_prints_something_prints_json() {
    let here = Here::new();
    here.write(
        ".qo.toml",
        "[schedules.nightly]\ncron = \"0 3 * * *\"\ntask = \"bad\"\n[tasks.bad]\ncommand = [\"false\"]\n",
    );
    let _worker = here.worker(&[]);
    let json = |arguments: &[&str]| here.qo(&[arguments, &["--json"]].concat()).json();
    assert_eq!(json(&["concurrency", "set", "bad", "--limit", "3"]), json!({"group": "bad", "limit": 3}));
    assert_eq!(json(&["concurrency", "unset", "bad"]), json!({"group": "bad", "limit": null}));
    assert_eq!(json(&["queues", "pause", "q"])["paused"], true);
    assert_eq!(json(&["queues", "resume", "q"])["paused"], false);
    assert_eq!(json(&["schedules", "disable", "nightly"])["enabled"], false);
    assert_eq!(json(&["schedules", "enable", "nightly"])["enabled"], true);
    assert_eq!(json(&["schedules", "trigger", "nightly"])["outcome"], "accepted");
    here.qo(&["submit", "bad", "--workflow", "flow", "--max-attempts", "1", "--wait"]).code(1);
    here.qo(&["submit", "bad", "--workflow", "flow", "--delay", "1h"]).ok();
    assert_eq!(json(&["workflows", "skip", "flow"])["state"], "active");
    assert_eq!(json(&["workflows", "cancel", "flow"])["state"], "cancelled");
}

#[test]
fn a_wait_has_an_end_and_text_is_printed_as_text() {
    let here = Here::new();
    let late = here.qo(&["submit", "unserved", "--wait", "--wait-timeout", "100ms"]).code(75);
    late.says("has not ended within 100ms").says("qo explain");
    assert_eq!(here.jobs()[0]["state"], "pending", "the job goes on");
    here.qo(&["submit", "unserved", "--wait-timeout", "1s"]).code(2).says("--wait");
    here.qo(&["submit", "unserved", "--count", "2", "--wait", "--wait-timeout", "1ms"]).code(75);
    let _worker = here.worker(&["--task", "say=printf 'one \"two\"\\nthree'", "--task", "count=echo 3"]);
    let said = here.qo(&["submit", "say", "--wait", "--wait-timeout", "1m"]).ok();
    assert_eq!(said.out, "one \"two\"\nthree\n");
    assert_eq!(here.qo(&["submit", "say", "--wait", "--json"]).json()["output"], "one \"two\"\nthree");
    assert_eq!(here.qo(&["submit", "count", "--wait"]).ok().out, "3\n");
}

/// What a command prints for a person: its stderr is a terminal.
fn at_a_terminal(here: &Here, arguments: &[&str]) -> String {
    let screen = openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY).expect("a terminal");
    unlockpt(&screen).expect("its other side");
    let name = ptsname(&screen, Vec::new()).expect("a name").into_string().expect("UTF-8");
    let other_side = fs::OpenOptions::new().read(true).write(true).open(name).expect("it opens");
    // The command is dropped with its copy of the other side: once qo has ended, reading ends with an error.
    let status = here.command(arguments).stdout(Stdio::null()).stderr(other_side).status().expect("qo runs");
    assert!(status.success(), "{status}");
    let (mut screen, mut said, mut part) = (fs::File::from(screen), Vec::new(), [0; 4096]);
    while let Ok(read @ 1..) = screen.read(&mut part) {
        said.extend_from_slice(&part[..read]);
    }
    String::from_utf8(said).expect("UTF-8")
}

#[test]
fn with_json_every_accepted_job_is_told_and_stderr_has_no_other_errors() {
    let here = Here::new();
    let late =
        here.qo(&["submit", "none", "--count", "2", "--wait", "--wait-timeout", "100ms", "--json"]).code(75);
    let told: Vec<Value> = serde_json::from_str(&late.out).expect("an array");
    let mut ids: Vec<&str> = told.iter().filter_map(|job| job["id"].as_str()).collect();
    let jobs = here.jobs();
    let mut stored: Vec<&str> = jobs.iter().filter_map(|job| job["id"].as_str()).collect();
    ids.sort_unstable();
    stored.sort_unstable();
    assert_eq!((ids.len(), ids), (2, stored), "{}", late.out);

    here.qo(&["concurrency", "set", "one", "--limit", "1"]).ok();
    let refused = here.qo(&["submit", "one", "--count", "3", "--on-limit", "reject", "--json"]).code(4);
    assert!(!refused.err.contains("error:"), "the array says it: {}", refused.err);
    let told: Vec<Value> = serde_json::from_str(&refused.out).expect("an array");
    assert_eq!(told.iter().filter(|job| job["outcome"] == "refused").count(), 2, "{}", refused.out);

    let _worker = here.worker(&["--task", "no=exit 10"]);
    let failed = here.qo(&["submit", "no", "--wait", "--json"]).code(1);
    assert!(
        !failed.err.contains("failed") && !failed.err.contains("hint:"),
        "the document says it: {}",
        failed.err
    );
    assert_eq!(serde_json::from_str::<Value>(&failed.out).expect("an object")["state"], "failed");
}

#[test]
fn a_name_that_nothing_knows_is_noted() {
    let here = Here::new();
    here.write(".qo.toml", "[tasks.resize]\ncommand = [\"true\"]\n[concurrency.limits]\ngpu = 2\n");
    let note = at_a_terminal(&here, &["submit", "resise"]);
    assert!(note.contains("no live worker has task resise; did you mean resize?"), "{note}");
    let note = at_a_terminal(&here, &["submit", "mail"]);
    assert!(note.contains("no live worker has task mail"), "{note}");
    assert_eq!(at_a_terminal(&here, &["submit", "resize"]), "", "the configuration names it");
    assert_eq!(here.qo(&["submit", "resise"]).ok().err, "", "a script does not pay for the look");
    here.write("jobs", "{\"task\":\"sum\",\"good_until\":\"2020-01-01T00:00:00Z\"}\n{\"task\":\"mail\"}\n");
    let note = at_a_terminal(&here, &["submit", "--file", "jobs"]);
    assert!(note.contains("no live worker has task sum") && note.contains("has task mail"), "{note}");
    assert!(note.contains("good_until of 1 job has passed"), "{note}");
    let old = ["submit", "resize", "--good-until", "2020-01-01 00:00"];
    here.qo(&old).ok().says("has passed: the job expires");
    here.qo(&["concurrency", "set", "video", "--limit", "3"])
        .ok()
        .says("no live job, task or limit names video");
    here.qo(&["concurrency", "set", "gqu", "--limit", "3"]).ok().says("did you mean gpu?");
    for known in ["gpu", "resize", "mail", "mail/ann", "cluster", "video"] {
        assert_eq!(here.qo(&["concurrency", "set", known, "--limit", "3"]).ok().err, "", "{known}");
    }
}

#[test]
fn advice_names_the_worker_that_the_configuration_has() {
    let here = Here::new();
    here.write(".qo.toml", "[tasks.resize]\ncommand = [\"true\"]\n");
    let ours = here.qo(&["submit", "resize"]).line();
    let told = here.qo(&["explain", &ours]).ok().shows("start one: qo worker, in the directory of");
    assert!(!told.out.contains("=COMMAND"), "{}", told.out);
    let other = here.qo(&["submit", "other"]).line();
    here.qo(&["explain", &other]).ok().shows("start one: qo worker --task other=COMMAND");
}

#[test]
fn a_big_cost_is_told_how_much_is_free() {
    let here = Here::new();
    here.qo(&["concurrency", "set", "nap", "--limit", "3"]).ok();
    let _worker = here.worker(&["--task", "nap=exec sleep 600"]);
    let small = here.qo(&["submit", "nap"]).line();
    until("it runs", || runs(&here, &small));
    let big = here.qo(&["submit", "nap", "--cost", "3"]).line();
    let told = here.qo(&["explain", &big]).ok();
    told.shows("Group nap has too few free slots: 2 of 3 are free, and it needs 3.").shows(", 1 slot, for");
}

#[test]
fn a_worker_that_says_it_is_at_work_has_pushed_its_limits() {
    let here = Here::new();
    here.write(
        ".qo.toml",
        "[concurrency.limits]\ngpu = 2\n[tasks.resize]\ncommand = [\"true\"]\nmax_concurrent = 4\n",
    );
    let log = fs::File::create(here.path("log")).expect("a log");
    let child = here.command(&["worker"]).stderr(log).spawn().expect("qo starts");
    let _worker = Worker::of(child);
    let said = || fs::read_to_string(here.path("log")).unwrap_or_default();
    until("it is at work", || said().contains("at work"));
    let limit = |group: &str| here.qo(&["concurrency", "status", group, "--json"]).json()["limit"].clone();
    assert_eq!((limit("gpu"), limit("resize")), (json!(2), json!(4)));
}
