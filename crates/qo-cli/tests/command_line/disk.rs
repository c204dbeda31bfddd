//! A disk that takes no more: the kernel refuses to write, for real.

use crate::fixture::Here;
use std::os::unix::process::CommandExt;
use std::process::Command;

/// The same command, in a process that may write no file larger than 64 KiB.
fn with_little_room(command: &Command) -> Command {
    let mut limited = Command::new("sh");
    // The signal that comes with it is ignored, so that the write itself fails, as on a full disk.
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
