//! Bad input on every surface: a clear error of the right kind, nothing lost, no panic.

use crate::fixture::Here;
use std::process::Stdio;

#[test]
fn what_is_wrong_with_a_job_is_said_before_a_store_is_made() {
    let here = Here::new();
    for (arguments, part) in [
        (&["submit", "mail", "{"][..], "payload: \"{\": must be JSON"),
        (&["submit", "a b"], "must match"),
        (&["submit", "cluster"], "choose another name"),
        (&["submit", "mail", "--cost", "0"], "cost: \"0\""),
        (&["submit", "mail", "--cost", "-1"], "'--cost <N>'"),
        (&["submit", "mail", "--cost", "1.5"], "'--cost <N>'"),
        (&["submit", "mail", "--max-attempts", "0"], "max_attempts: \"0\""),
        (&["submit", "mail", "--priority", "9999999999"], "'--priority <N>'"),
        (&["submit", "mail", "--delay", "soon"], "must be a length of time"),
        (&["submit", "mail", "--delay", "-5s"], "--delay"),
        (&["submit", "mail", "--at", "yesterday"], "must be a moment"),
        (&["submit", "mail", "--delay", "1s", "--at", "1m"], "cannot be used with"),
        (&["submit", "mail", "--key", "*"], "stands for every key"),
        (&["submit", "mail", "--limits", "gpu"], "GROUP=N"),
        (&["submit", "mail", "--limits", "queue:a=1"], "must be NAME or NAME/KEY"),
        (&["submit", "mail", "--on-failure", "halt"], "name one"),
        (&["submit", "mail", "--on-limit", "drop"], "possible values: wait, reject, skip"),
        (&["submit", "mail", "--count", "-1"], "--count"),
        (&["submit", "mail", "--count", "2", "--file", "x"], "cannot be used with"),
        (&["submit"], "required"),
        (&["submit", "mail", "--kye", "x"], "'--kye'"),
    ] {
        let ran = here.qo(arguments).code(2);
        assert!(ran.err.contains(part), "{arguments:?}: {part:?} is not in {}", ran.err);
        assert!(ran.err.starts_with("error: "), "{}", ran.err);
    }
    assert!(!here.path(".qo").exists());
    here.qo(&["submit", "--file", "nowhere.ndjson"]).code(3).says("nowhere.ndjson");
    here.qo(&["submit", "--file", "."]).code(2).says("is a directory");
}

#[test]
fn a_payload_that_is_too_large_is_refused() {
    let here = Here::new();
    let large = format!("\"{}\"", "x".repeat(1 << 20));
    here.qo_with(&["submit", "mail", "-"], &large).code(2).says("must be at most 1048576 bytes");
    here.write("jobs.ndjson", &format!("{{\"task\": \"mail\", \"payload\": {large}}}\n"));
    here.qo(&["submit", "--file", "jobs.ndjson"]).code(2).says("line 1: payload");
}

#[test]
fn other_commands_check_their_arguments() {
    let here = Here::new();
    here.qo(&["submit", "mail"]).ok();
    for (arguments, part) in [
        (&["sbumit", "mail"][..], "'submit'"),
        (&["jobs", "lits"], "'list'"),
        (&["concurrency", "set", "mail", "--limit", "-1"], "'--limit <N>'"),
        (&["concurrency", "set", "mail", "--limit", "1000001"], "0..=1000000"),
        (&["concurrency", "set", "a b", "--limit", "1"], "must match"),
        (&["concurrency", "set", "mail"], "--limit"),
        (&["concurrency", "release", "mail", "x", "--force"], "SLOT_ID"),
        (&["explain", "not-an-id"], "must be the whole id of a job"),
        (&["jobs", "show", "1"], "must be the whole id of a job"),
        (&["jobs", "list", "--limit", "many"], "--limit"),
        (&["queues", "pause", ""], "must match"),
        (&["doctor", "--fix"], "--fix"),
    ] {
        let ran = here.qo(arguments).code(2);
        assert!(ran.err.contains(part), "{arguments:?}: {part:?} is not in {}", ran.err);
    }
    let unknown = "019a8a5e-7c1b-7a10-9d43-3e2a6f0c9b11";
    for arguments in [&["explain", unknown][..], &["jobs", "show", unknown], &["jobs", "logs", unknown]] {
        here.qo(arguments).code(3).says("error: not found:").says("hint: ");
    }
    assert_eq!(here.jobs().len(), 1, "nothing was lost or made");
}

#[test]
fn a_store_url_that_cannot_be_is_refused() {
    let here = Here::new();
    for (url, code, part) in [
        ("", 2, "store"),
        ("nonsense", 2, "must be file:DIR, s3://bucket/prefix, postgres://…, http://host:port or memory:"),
        ("file:", 2, "must name a directory"),
        ("s3:bucket/x", 2, "must name a bucket"),
        ("postgres:db", 2, "must be a connection string"),
        ("postgres://ann:secret@db/shop?schema=Jobs", 2, "schema: \"Jobs\""),
        ("http://ann:secret@db", 2, "http://ann:***@db"),
    ] {
        here.qo(&["submit", "mail", "--store", url]).code(code).says(part);
    }
}

#[test]
fn a_store_that_is_a_file_or_is_behind_one_is_unavailable() {
    let here = Here::new();
    here.write("plain", "not a directory");
    for url in ["file:plain", "file:plain/below"] {
        let ran = here.qo(&["submit", "mail", "--store", url]);
        assert!([1, 2, 75].contains(&ran.code), "{ran:?}");
        assert!(ran.err.starts_with("error: ") && !ran.err.contains("panicked"), "{}", ran.err);
    }
    assert_eq!(std::fs::read_to_string(here.path("plain")).expect("read"), "not a directory");
}

#[test]
fn looking_at_a_store_that_is_not_there_does_not_make_it() {
    let here = Here::new();
    for arguments in [
        &["jobs", "list"][..],
        &["queues"],
        &["workers"],
        &["workflows"],
        &["schedules"],
        &["concurrency", "status"],
        &["doctor"],
        &["migrate", "status"],
        &["jobs", "cancel", "--all", "--yes"],
    ] {
        here.qo(arguments).code(3).says("there is no namespace at file:").says("hint: ");
    }
    assert!(!here.path(".qo").exists());
}

#[test]
fn a_store_of_a_newer_format_is_left_alone() {
    let here = Here::new();
    here.qo(&["submit", "mail"]).ok();
    let format = here.path(".qo/format");
    let newer = format.join("00000000000000000099");
    let level =
        std::fs::read_dir(&format).expect("a format").next().expect("a level").expect("an entry").path();
    std::fs::copy(level, &newer).expect("copied");
    for arguments in
        [&["jobs", "list"][..], &["submit", "mail"], &["worker", "--task", "a=true"], &["doctor"]]
    {
        here.qo(arguments).code(1).says("format 99").says("newer release");
    }
    here.qo(&["migrate", "status"]).ok().shows("newer than this release");
    std::fs::remove_file(newer).expect("removed");
    assert_eq!(here.jobs().len(), 1, "nothing was lost");
}

#[test]
fn every_command_has_help_with_an_example() {
    let here = Here::new();
    let commands: &[&[&str]] = &[
        &[],
        &["submit"],
        &["worker"],
        &["explain"],
        &["jobs"],
        &["jobs", "list"],
        &["jobs", "show"],
        &["jobs", "logs"],
        &["jobs", "cancel"],
        &["jobs", "retry"],
        &["concurrency"],
        &["concurrency", "status"],
        &["concurrency", "set"],
        &["concurrency", "unset"],
        &["concurrency", "release"],
        &["queues"],
        &["queues", "pause"],
        &["queues", "resume"],
        &["workers"],
        &["workflows"],
        &["workflows", "show"],
        &["workflows", "retry"],
        &["workflows", "skip"],
        &["workflows", "cancel"],
        &["schedules"],
        &["schedules", "enable"],
        &["schedules", "disable"],
        &["schedules", "trigger"],
        &["slot", "run"],
        &["doctor"],
        &["migrate"],
        &["migrate", "up"],
        &["migrate", "status"],
        &["config", "show"],
        &["completions"],
    ];
    for command in commands {
        let help = here.qo(&[command, &["--help"][..]].concat()).ok();
        assert!(help.out.contains("Example"), "{command:?}: {}", help.out);
        assert!(help.out.contains("--store"), "{command:?} takes a store: {}", help.out);
    }
}

#[test]
fn a_reader_that_goes_away_is_no_reason_to_panic() {
    let here = Here::new();
    here.qo(&["submit", "mail", "--count", "3000"]).ok();
    let id = here.jobs()[0]["id"].as_str().expect("an id").to_owned();
    for arguments in [
        &["jobs", "list", "--json"][..],
        &["jobs", "list", "--all"],
        &["jobs", "show", &id],
        &["concurrency", "status"],
        &["queues"],
        &["workers", "--json"],
        &["workflows", "--json"],
        &["schedules", "--json"],
        &["explain", &id],
        &["doctor"],
        &["config", "show"],
        &["completions", "bash"],
        &["submit", "mail"],
        &["submit", "mail", "--count", "10", "--json"],
        &["--help"],
        &["submit", "--help"],
        &["--version"],
    ] {
        let mut child = here.command(arguments).stdout(Stdio::piped()).spawn().expect("qo starts");
        drop(child.stdout.take());
        let output = child.wait_with_output().expect("it ends");
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(!said.contains("panicked"), "{arguments:?}: {said}");
        assert!(output.status.code().is_some_and(|code| code == 0), "{arguments:?}: {output:?}");
    }
    assert_eq!(here.jobs().len(), 3_011, "every accepted job is there, even if its id was not read");
}
