//! A full disk: the kernel really refuses to write.

use crate::fixture::{Here, Worker, until};
use std::fs;
use std::os::unix::process::CommandExt;
use std::process::{Command, Stdio};

/// The same command, in a process that may write no file larger than 64 KiB.
fn with_little_room(command: &Command) -> Command {
    let mut limited = Command::new("sh");
    // Ignore the signal that the kernel sends, so that the write itself fails, as on a full disk.
    limited.args(["-c", "trap '' XFSZ; ulimit -f 64; exec \"$0\" \"$@\""]);
    limited.arg(command.get_program()).args(command.get_args());
    if let Some(directory) = command.get_current_dir() {
        limited.current_dir(directory);
    }
    limited.env_remove("QO_STORE").process_group(0);
    limited
}

#[test]
fn a_write_that_does_not_fit_is_unavailable_and_leaves_no_trace() {
    let here = Here::new();
    here.qo(&["submit", "small", "1"]).ok();
    let large = format!("\"{}\"", "x".repeat(100_000));
    for stateful in [false, true] {
        let mut arguments = vec!["submit", "large", &large];
        if stateful {
            arguments.extend(["--idempotency-key", "once"]);
        }
        let output = with_little_room(&here.command(&arguments)).output().expect("it runs");
        let error = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!(output.status.code(), Some(75), "{error}");
        assert!(
            error.starts_with("error: unavailable: log/0000") && error.contains("File too large"),
            "{error}"
        );
    }
    let listed = here.qo(&["jobs", "list", "--json"]).json();
    assert_eq!(listed.as_array().map(Vec::len), Some(1));
    // With room again it goes on.
    here.qo(&["submit", "large", &large, "--idempotency-key", "once"]).ok();
    here.qo(&["doctor"]).ok();
    let listed = here.qo(&["jobs", "list", "--json"]).json();
    assert_eq!(listed.as_array().map(Vec::len), Some(2));
}

#[test]
fn a_worker_works_on_when_its_own_log_cannot_be_written() {
    let here = Here::new();
    let full = fs::File::options().write(true).open("/dev/full").expect("a full disk");
    let mut command = here.command(&["worker", "--task", "hello=echo hi"]);
    let _worker = Worker::of(command.stdout(Stdio::null()).stderr(full).spawn().expect("qo starts"));
    assert_eq!(here.qo(&["submit", "hello", "--wait"]).line(), "hi");
}

#[test]
fn a_worker_waits_for_a_store_that_is_gone_and_makes_no_other() {
    let here = Here::new();
    let worker = here.worker(&["--task", "hello=echo hi", "--default-lease-duration-secs", "2"]);
    let (store, aside) = (here.path(".qo"), here.path("aside"));
    fs::rename(&store, &aside).expect("moved");
    let log = || fs::read_to_string(here.path("w1.log")).expect("a log");
    until("it is missed", || log().contains("is not there any more"));
    assert!(!store.exists(), "it was made anew");
    fs::rename(&aside, &store).expect("moved back");
    assert_eq!(here.qo(&["submit", "hello", "--wait"]).line(), "hi");
    here.qo(&["doctor", "--verify"]).ok();

    // A new directory in its place is another namespace.
    fs::remove_dir_all(&store).expect("removed");
    here.qo(&["submit", "hello"]).ok();
    assert_eq!(worker.wait(), 1);
    assert!(log().contains("is another directory than the one that was opened"), "{}", log());
    here.qo(&["doctor", "--verify"]).ok();
    assert_eq!(here.jobs().len(), 1);
}

/// With an exit code that means "try again later", a script would submit the job twice.
#[test]
fn what_was_accepted_and_cannot_be_printed_is_not_to_be_tried_again() {
    let here = Here::new();
    let full = fs::File::options().write(true).open("/dev/full").expect("a full disk");
    let mut command = here.command(&["submit", "hello"]);
    let mut submit = command.stdout(full).stderr(Stdio::null()).spawn().expect("qo starts");
    assert_eq!(submit.wait().expect("it ends").code(), Some(1));
    let listed = here.qo(&["jobs", "list", "--json"]).json();
    assert_eq!(listed.as_array().map(Vec::len), Some(1));
}
