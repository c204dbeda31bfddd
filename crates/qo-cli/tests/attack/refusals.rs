//! A store that refuses permanently.

use crate::fixture::{Here, Ran, until};
use qo_testkit::Bucket;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

/// A server in memory, and a directory whose configuration names a place in its bucket.
fn there() -> (Bucket, Here) {
    let (server, here) = (Bucket::start(1), Here::new());
    here.write(
        ".qo.toml",
        "store = \"s3://qo-test/p\"\n[tasks.upper]\ncommand = [\"tr\", \"a-z\", \"A-Z\"]\n",
    );
    (server, here)
}

/// `qo` as a client of the server with credentials of its own.
fn command(server: &Bucket, here: &Here, client: &str, arguments: &[&str]) -> Command {
    let mut command = here.command(arguments);
    command.envs(server.environment_of(client));
    command
}

fn qo(server: &Bucket, here: &Here, client: &str, arguments: &[&str]) -> Ran {
    ran(command(server, here, client, arguments))
}

fn ran(mut command: Command) -> Ran {
    let output = command.output().expect("qo runs");
    let text = |bytes| String::from_utf8(bytes).expect("UTF-8");
    Ran { code: output.status.code().unwrap_or(-1), out: text(output.stdout), err: text(output.stderr) }
}

/// The message for a missing right to write.
#[track_caller]
fn names_the_right(ran: Ran, begun: Instant) {
    let ran = ran.says("s3:PutObject on s3://qo-test/p/*").says("nothing was written").says("AccessDenied");
    assert!(!ran.err.contains("<Code>") && !ran.err.contains("<?xml"), "raw XML: {}", ran.err);
    assert!(!ran.err.contains("unknown outcome"), "{}", ran.err);
    assert!(begun.elapsed() < Duration::from_secs(8), "{:?}: {}", begun.elapsed(), ran.err);
}

#[test]
fn a_submit_with_credentials_that_only_read_names_the_missing_right() {
    let (server, here) = there();
    qo(&server, &here, "writer", &["submit", "upper", "\"a\""]).ok();
    server.set_may_only_read("reader", true);
    let records = server.names("p/log/").len();
    // Submits, which hold no state, and calls that do.
    for arguments in [
        &["submit", "upper", "\"b\""][..],
        &["submit", "upper", "\"b\"", "--idempotency-key", "k"],
        &["concurrency", "set", "upper", "--limit", "1"],
    ] {
        let begun = Instant::now();
        names_the_right(qo(&server, &here, "reader", arguments).code(2), begun);
    }
    assert_eq!(server.names("p/log/").len(), records, "nothing was written");
    qo(&server, &here, "reader", &["jobs", "list"]).ok().shows("upper");
    // At a place that has no namespace yet.
    let begun = Instant::now();
    let fresh = qo(&server, &here, "reader", &["--store", "s3://qo-test/q", "submit", "upper", "1"]).code(2);
    assert!(fresh.err.contains("s3:PutObject") && !fresh.err.contains("<Code>"), "{}", fresh.err);
    assert!(begun.elapsed() < Duration::from_secs(8), "{:?}", begun.elapsed());
}

#[test]
fn a_worker_with_credentials_that_only_read_stops_and_says_why() {
    let (server, here) = there();
    qo(&server, &here, "writer", &["submit", "upper", "\"a\""]).ok();
    server.set_may_only_read("reader", true);
    let begun = Instant::now();
    names_the_right(qo(&server, &here, "reader", &["worker"]).code(2), begun);
}

/// Rights that a running worker loses may come back: then it goes on, and until then it logs what is wrong.
#[test]
fn a_worker_goes_on_when_rights_that_were_taken_away_come_back() {
    let (server, here) = there();
    let mut starting = command(&server, &here, "worker", &["worker", "--default-lease-duration-secs", "5"]);
    let log = std::fs::File::create(here.path("w.log")).expect("a log");
    let child = starting.stdout(Stdio::null()).stderr(log).spawn().expect("qo starts");
    let _worker = crate::fixture::Worker::of(child);
    until("the worker is alive", || {
        qo(&server, &here, "writer", &["workers", "--json"]).out.contains("\"worker\"")
    });
    server.set_may_only_read("worker", true);
    qo(&server, &here, "writer", &["submit", "upper", "\"a\""]).ok();
    let said = || std::fs::read_to_string(here.path("w.log")).unwrap_or_default();
    until("it says what is wrong", || said().contains("s3:PutObject"));
    server.set_may_only_read("worker", false);
    until("the job has run", || {
        qo(&server, &here, "writer", &["jobs", "list", "--json"]).out.contains("succeeded")
    });
}

#[test]
fn the_doctor_of_a_bucket_that_cannot_be_written_to_does_not_say_ok() {
    let (server, here) = there();
    qo(&server, &here, "writer", &["submit", "upper", "\"a\""]).ok();
    qo(&server, &here, "writer", &["doctor"]).ok();
    assert_eq!(server.names("p/probe/"), Vec::<String>::new(), "it leaves nothing behind");
    server.set_may_only_read("reader", true);
    for arguments in [&["doctor"][..], &["doctor", "--verify"]] {
        let ran = qo(&server, &here, "reader", arguments).code(1);
        let ran = ran.shows("problem").shows("s3:PutObject on s3://qo-test/p/*");
        assert!(!ran.out.contains("<Code>"), "{}", ran.out);
    }
}

#[test]
fn a_submit_behind_a_record_that_is_missing_is_refused() {
    let (server, here) = there();
    for _ in 0..6 {
        qo(&server, &here, "writer", &["submit", "upper", "\"a\""]).ok();
    }
    let records = server.names("p/log/");
    assert!(server.remove(&records[2]), "a record is lost");
    for _ in 0..2 {
        let refused = qo(&server, &here, "writer", &["submit", "upper", "\"a\""]).code(1);
        refused.says("bad data: log/00000000000000000003: is missing");
    }
    assert_eq!(server.names("p/log/").len(), records.len() - 1, "nothing was written");
    qo(&server, &here, "writer", &["jobs", "list"]).code(1).says("is missing");
}

#[test]
fn missing_credentials_are_named_and_not_taken_for_missing_rights() {
    let (server, here) = there();
    let mut asking = here.command(&["queues"]);
    for (name, value) in server.environment() {
        match name {
            "AWS_ACCESS_KEY_ID" | "AWS_SECRET_ACCESS_KEY" => asking.env_remove(name),
            _ => asking.env(name, value),
        };
    }
    asking
        .env("HOME", here.path("nowhere"))
        .env_remove("AWS_PROFILE")
        .env("AWS_EC2_METADATA_DISABLED", "true");
    // Nothing answers at this address: neither a cloud nor a proxy in its place.
    asking.env("NO_PROXY", "*").env("no_proxy", "*");
    let ran = ran(asking).code(75).says("no credentials were found").says("AWS_ACCESS_KEY_ID");
    let ran = ran.says("~/.aws/credentials");
    assert!(!ran.err.contains("s3:GetObject"), "{}", ran.err);
}
