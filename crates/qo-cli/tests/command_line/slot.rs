//! `qo slot run`: commands that are not jobs, under the same limits.

use crate::fixture::{Here, signal, until};
use std::io::{BufRead, BufReader};

#[test]
fn a_command_runs_with_its_stdin_and_its_exit_code_is_passed_on() {
    let here = Here::new();
    let run = ["slot", "run", "--group", "backup", "--limit", "1", "--", "sh", "-c"];
    let command = |line| [&run[..], &[line]].concat();
    let ran = here.qo_with(&command("cat; echo $QO_GROUP; exit 7"), "hello\n").code(7);
    assert_eq!(ran.out, "hello\nbackup\n");
    here.qo(&command("kill -9 $$")).code(137);
    here.qo(&["slot", "run", "--group", "backup", "--", "./nowhere"]).code(127);
    // Every slot was given back, and the limit ended with the last one.
    here.qo(&["concurrency", "status", "backup"]).code(3);
}

#[test]
fn a_taken_slot_is_waited_for_or_not_and_ctrl_c_gives_it_back() {
    let here = Here::new();
    let run = ["slot", "run", "--group", "deploy", "--limit", "1"];
    let holding = [&run[..], &["--", "sh", "-c", "echo started; exec sleep 600"]].concat();
    let mut holder = here.command(&holding).spawn().expect("qo starts");
    let mut said = BufReader::new(holder.stdout.take().expect("a pipe")).lines();
    assert_eq!(said.next().expect("a line").expect("read"), "started");
    let status = here.qo(&["concurrency", "status", "deploy", "--json"]).json();
    assert_eq!(status["used"], 1);
    here.qo(&[&run[..], &["--no-wait", "--", "true"]].concat()).code(4).says("error: limit reached:");
    here.qo(&[&run[..], &["--wait", "300ms", "--", "true"]].concat()).code(4).says("waiting for a slot");
    // A job of the group waits for the same slot.
    here.qo(&["submit", "x", "--group", "deploy", "--on-limit", "reject"]).code(4);

    let waiting = [&run[..], &["--", "echo", "my turn"]].concat();
    let waiter = here.command(&waiting).spawn().expect("qo starts");
    signal(holder.id(), "INT");
    assert_eq!(holder.wait().expect("it ends").code(), Some(143), "the command ended by SIGTERM");
    let output = waiter.wait_with_output().expect("it ends");
    assert_eq!((output.status.code(), &*output.stdout), (Some(0), &b"my turn\n"[..]));
}

#[test]
fn a_slot_that_an_operator_takes_away_ends_the_command() {
    let here = Here::new();
    let arguments = ["slot", "run", "--group", "g", "--limit", "1", "--lease", "1h", "--", "sleep", "600"];
    let holder = here.command(&arguments).spawn().expect("qo starts");
    let holders = || {
        let ran = here.qo(&["concurrency", "status", "g", "--json"]);
        let status: Option<serde_json::Value> = serde_json::from_str(&ran.out).ok();
        status.and_then(|status| status["holders"][0]["token"].as_u64())
    };
    until("the slot is taken", || holders().is_some());
    let slot = holders().expect("a slot").to_string();
    here.qo(&["concurrency", "release", "g", &slot, "--force"]).ok();
    let output = holder.wait_with_output().expect("it ends");
    assert_eq!(output.status.code(), Some(75));
    assert!(String::from_utf8_lossy(&output.stderr).contains("fenced"), "{output:?}");
}

#[test]
fn a_held_slot_is_renewed_for_as_long_as_the_command_runs() {
    let here = Here::new();
    let arguments = ["slot", "run", "--group", "g", "--limit", "1", "--lease", "500ms", "--", "sleep", "2"];
    here.qo(&arguments).ok();
}

#[test]
fn bad_requests_are_refused() {
    let here = Here::new();
    here.qo(&["slot", "run", "--group", "cluster", "--", "true"]).code(2).says("GROUP or GROUP/KEY");
    here.qo(&["slot", "run", "--group", "g", "--limit", "-1", "--", "true"]).code(2);
    here.qo(&["slot", "run", "--group", "g", "--slots", "3", "--limit", "2", "--no-wait", "--", "true"])
        .code(2);
    here.qo(&["slot", "run", "--group", "g"]).code(2);
}
