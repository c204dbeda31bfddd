//! The command line in a bucket: a real server, and a prefix of its own for each test.

use crate::fixture::{Here, until};
use std::io::{BufRead, BufReader};
use std::sync::atomic::{AtomicU32, Ordering};

fn server(variable: &str) -> String {
    std::env::var(variable).unwrap_or_else(|_| {
        panic!("{variable} must be the URL of a server; `make test` starts it: scripts/with_s3.py")
    })
}

/// A directory whose configuration names a place in a bucket that nobody has used.
fn there() -> (Here, String) {
    static MADE: AtomicU32 = AtomicU32::new(0);
    let prefix = format!("cli-{}-{}", std::process::id(), MADE.fetch_add(1, Ordering::Relaxed));
    let store = format!("s3://qo-test/{prefix}?endpoint={}", server("QO_TEST_S3"));
    let here = Here::new();
    here.write(
        ".qo.toml",
        &format!("store = \"{store}\"\n[tasks.upper]\ncommand = [\"tr\", \"a-z\", \"A-Z\"]\n"),
    );
    (here, store)
}

#[test]
fn a_job_is_submitted_run_and_found_in_a_bucket() {
    let (here, _) = there();
    let submitted = here.qo(&["submit", "upper", "\"quiet\"", "--json"]).json();
    let id = submitted["job"].as_str().or(submitted[0]["job"].as_str()).expect("an id").to_owned();
    let _worker = here.worker(&[]);
    until("it has run", || here.jobs().first().is_some_and(|job| job["state"] == "succeeded"));
    let shown = here.qo(&["jobs", "show", &id, "--json"]).json();
    assert_eq!(shown["output"], "QUIET", "{shown}");
    here.qo(&["concurrency", "set", "upper", "--limit", "3"]).ok();
    here.qo(&["doctor", "--verify"]).ok();
    here.qo(&["migrate", "status"]).ok();
}

#[test]
fn what_is_wrong_with_a_bucket_is_said_so_that_it_can_be_mended() {
    let (here, store) = there();
    let with = |url: &str| here.qo(&["--store", url, "queues"]);
    let endpoint = server("QO_TEST_S3");
    with(&format!("s3://nowhere?endpoint={endpoint}")).code(3).says("there is no such bucket");
    with("s3://").code(2).says("must name a bucket");
    with(&format!("s3://b/p?endpoint={endpoint}&regoin=x")).code(2).says("regoin is not known");
    let careless = format!("s3://qo-test/p?endpoint={}", server("QO_TEST_S3_RCLONE"));
    with(&careless).code(2).says("If-None-Match");
    let wrong = here.command(&["--store", &store, "queues"]).env("AWS_SECRET_ACCESS_KEY", "geheim").output();
    let wrong = wrong.expect("qo runs");
    let said = String::from_utf8_lossy(&wrong.stderr);
    assert_eq!(wrong.status.code(), Some(75), "{said}");
    assert!(said.contains("credentials") && !said.contains("geheim"), "{said}");
}

#[test]
fn a_slot_that_is_an_object_is_held_waited_for_and_given_back() {
    let (here, _) = there();
    let run = ["slot", "run", "--objects", "--group", "deploy/eu", "--limit", "1"];
    let holding = [&run[..], &["--", "sh", "-c", "echo $QO_FENCE_TOKEN; exec sleep 600"]].concat();
    let mut holder = here.command(&holding).spawn().expect("qo starts");
    let mut said = BufReader::new(holder.stdout.take().expect("a pipe")).lines();
    assert_eq!(said.next().expect("a line").expect("read"), "1");
    here.qo(&[&run[..], &["--no-wait", "--", "true"]].concat()).code(4).says("error: limit reached:");
    // It has nothing to do with the namespace, where nobody has made one.
    here.qo(&["slot", "run", "--group", "deploy/eu", "--limit", "1", "--no-wait", "--", "true"]).ok();
    crate::fixture::signal(holder.id(), "TERM");
    holder.wait().expect("it ends");
    let next = here.qo(&[&run[..], &["--no-wait", "--", "sh", "-c", "echo $QO_FENCE_TOKEN"]].concat()).ok();
    assert_eq!(next.out, "2\n");
    here.qo(&["slot", "run", "--objects", "--group", "g", "--limit", "51", "--", "true"])
        .code(2)
        .says("at most 50");
    here.qo(&["slot", "run", "--objects", "--group", "g", "--", "true"]).code(2).says("--limit");
    here.qo(&["--store", "file:x", "slot", "run", "--objects", "--group", "g", "--limit", "1", "--", "true"])
        .code(2)
        .says("need a bucket");
}
