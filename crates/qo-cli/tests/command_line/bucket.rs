//! The command line in a bucket: a real server, and a prefix of its own for each test.

use crate::fixture::{Here, signal, until};
use serde_json::Value;
use std::io::{BufRead, BufReader};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

fn server(variable: &str) -> String {
    std::env::var(variable).unwrap_or_else(|_| {
        panic!("{variable} must be the URL of a server; `make test` starts it: scripts/with_s3.py")
    })
}

/// A directory whose configuration names a fresh place in a bucket.
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
    let id = submitted["id"].as_str().or(submitted[0]["id"].as_str()).expect("an id").to_owned();
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
    with(&careless).code(3).says("there is no namespace at s3://qo-test/p");
    here.qo(&["--store", &careless, "submit", "upper"]).code(2).says("If-None-Match");
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
    // It needs no namespace, and there is none.
    here.qo(&["slot", "run", "--group", "deploy/eu", "--limit", "1", "--no-wait", "--", "true"]).ok();
    signal(holder.id(), "TERM");
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

/// The doctor's findings about something that a sweep would end, of one kind.
fn swept(here: &Here, kind: &str) -> Vec<Value> {
    let findings = here.qo(&["doctor", "--json"]).json();
    let over =
        findings.as_array().expect("an array").iter().map(|finding| finding["would_sweep"][kind].clone());
    over.filter(|over| !over.is_null()).collect()
}

/// What the doctor shows as over, once every look has shown the same for longer than two clocks differ. Each look is a
/// process, and knows the time of a bucket to a second and a quarter only: around the end of a lease one may show it
/// and the next may not.
fn swept_for_good(here: &Here, kind: &str) -> Vec<Value> {
    let (mut shown, mut since) = (Vec::new(), Instant::now());
    until("a lease is over for every process", || {
        let now = swept(here, kind);
        if now.is_empty() || now != shown {
            (shown, since) = (now, Instant::now());
        }
        !shown.is_empty() && since.elapsed() > Duration::from_secs(3)
    });
    shown
}

#[test]
fn the_doctor_of_a_bucket_shows_what_is_over_and_changes_nothing() {
    let (here, _) = there();
    let none = "there is no namespace at s3://";
    here.qo(&["doctor"]).ok().shows(none);
    let run = ["slot", "run", "--objects", "--group", "deploy/eu", "--limit", "1"];
    // The program that makes the first slot first tries the server out, which may take a while.
    here.qo(&[&run[..], &["--", "true"]].concat()).ok();
    let run = [&run[..], &["--lease", "8s"]].concat();
    let held = [&run[..], &["--name", "nightly", "--", "sh", "-c", "echo held; exec sleep 600"]].concat();
    let mut holder = here.command(&held).spawn().expect("qo starts");
    let mut said = BufReader::new(holder.stdout.take().expect("a pipe")).lines();
    assert_eq!(said.next().expect("a line").expect("read"), "held");
    assert_eq!(swept(&here, "slot_object"), Vec::<Value>::new());
    signal(holder.id(), "KILL");
    holder.wait().expect("it ends");
    let over = swept_for_good(&here, "slot_object");
    assert_eq!((&over[0]["group"], &over[0]["slot_id"]), (&"deploy/eu".into(), &0.into()), "{over:?}");
    assert_eq!(over[0]["worker_id"], "nightly");
    let task = over[0]["task_id"].as_str().expect("a task").to_owned();
    let shown = here.qo(&["doctor", "--verify"]).ok().shows(none).shows("format none yet").shows("deploy/eu");
    shown.shows(&format!("slot 0, an object, is not free: {task} on nightly took it, its lease ended"));
    assert_eq!(swept(&here, "slot_object"), over, "it only looks");

    let worker = here.worker(&["--task", "long=exec sleep 600", "--default-lease-duration-secs", "2"]);
    here.qo(&["concurrency", "set", "long", "--limit", "1"]).ok();
    here.qo(&["submit", "long"]).ok();
    until("it runs", || here.jobs().first().is_some_and(|job| job["state"] == "running"));
    worker.signal("KILL");
    worker.wait();
    let over = swept_for_good(&here, "session");
    assert_eq!((&over[0]["worker"], &over[0]["slots"]), (&"w1".into(), &1.into()), "{over:?}");
    here.qo(&["doctor"]).ok().shows("the lease of w1 is over").shows("deploy/eu");
    assert_eq!(swept(&here, "session"), over, "it only looks");
    assert_eq!(here.jobs()[0]["state"], "pending", "as a claim would find it");
}
