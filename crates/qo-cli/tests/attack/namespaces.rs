//! Directories and buckets that vanish, are swapped or lose objects.

use crate::fixture::{Here, Ran, until};
use qo_testkit::Bucket as Server;
use qo_testkit::bucket::NAME;
use serde_json::Value;
use std::ffi::OsStr;
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

const MADE: &str = "made a new namespace: ";

/// Commands that only look.
const LOOKS: [&[&str]; 8] = [
    &["jobs", "list"],
    &["queues"],
    &["workers"],
    &["workflows"],
    &["schedules"],
    &["concurrency", "status"],
    &["explain", "00000000-0000-7000-8000-000000000000"],
    &["jobs", "cancel", "--all", "--yes"],
];

/// A server with an empty bucket, and a directory whose configuration names a prefix in it.
fn bucket() -> (Server, Here) {
    let (server, here) = (Server::start(16), Here::new());
    here.write(".qo.toml", &format!("store = \"s3://{NAME}/p?endpoint={}\"\n", server.url()));
    (server, here)
}

/// `qo` against a server of [`bucket`].
fn qo(server: &Server, here: &Here, arguments: &[&str]) -> Ran {
    let output = here.command(arguments).envs(server.environment()).output().expect("qo runs");
    let text = |bytes| String::from_utf8(bytes).expect("UTF-8");
    Ran { code: output.status.code().unwrap_or(-1), out: text(output.stdout), err: text(output.stderr) }
}

/// The files below a directory, by name.
fn files(directory: &Path) -> Vec<String> {
    let mut names = Vec::new();
    for entry in fs::read_dir(directory).expect("readable") {
        let path = entry.expect("readable").path();
        names.push(path.display().to_string());
        if path.is_dir() {
            names.extend(files(&path));
        }
    }
    names
}

fn record(number: u64) -> String {
    format!(".qo/log/{number:020}")
}

/// What the doctor says about the store, as JSON.
fn store(findings: &Value) -> Vec<&str> {
    let findings = findings.as_array().expect("an array").iter();
    findings.filter(|finding| finding["about"] == "store").filter_map(|f| f["what"].as_str()).collect()
}

#[test]
fn a_command_that_makes_a_namespace_says_so_and_the_next_one_does_not() {
    let here = Here::new();
    here.qo(&["submit", "mail"]).ok().says(MADE).says("/.qo");
    let again = here.qo(&["submit", "mail"]).ok();
    assert!(!again.err.contains(MADE), "{}", again.err);
    here.qo(&["--store", "file:b", "concurrency", "set", "mail", "--limit", "1"]).ok().says(MADE);
    here.qo(&["--store", "file:c", "queues", "pause", "night"]).ok().says(MADE);
    here.qo(&["--store", "file:d", "slot", "run", "--group", "g", "--limit", "1", "--", "true"])
        .ok()
        .says(MADE);
    fs::create_dir(here.path("e")).expect("made");
    here.qo(&["--store", "file:e", "migrate", "up"]).ok().says(MADE);
    let (server, there) = bucket();
    qo(&server, &there, &["submit", "mail"]).ok().says(MADE).says("s3://qo-test/p");
    let again = qo(&server, &there, &["submit", "mail"]).ok();
    assert!(!again.err.contains(MADE), "{}", again.err);
}

#[test]
fn looking_at_an_empty_directory_makes_no_namespace() {
    let here = Here::new();
    fs::create_dir(here.path(".qo")).expect("a mount point");
    for arguments in LOOKS.iter().chain(&[&["doctor"][..]]) {
        here.qo(arguments).code(3).says("there is no namespace at file:").says("hint: ");
        assert_eq!(files(&here.path(".qo")), Vec::<String>::new(), "{arguments:?}");
    }
}

#[test]
fn looking_at_an_empty_prefix_makes_no_namespace() {
    let (server, here) = bucket();
    for arguments in LOOKS {
        qo(&server, &here, arguments).code(3).says("there is no namespace at s3://qo-test/p");
    }
    qo(&server, &here, &["doctor"]).ok().shows("there is no namespace at s3://qo-test/p");
    assert_eq!(server.names(""), Vec::<String>::new());
}

#[test]
fn a_store_that_must_not_be_made_is_refused_until_it_is_there() {
    let here = Here::new();
    fs::create_dir(here.path("mount")).expect("a mount point");
    for url in ["file:mount?create=never", "file:nowhere?create=never"] {
        for arguments in [&["submit", "mail"][..], &["worker", "--task", "mail=true"], &["migrate", "up"]] {
            let arguments = [&["--store", url], arguments].concat();
            here.qo(&arguments).code(75).says("there is no namespace at ").says("create=never");
        }
    }
    assert_eq!(files(&here.path("mount")), Vec::<String>::new());
    assert!(!here.path("nowhere").exists());
    here.qo(&["--store", "file:mount", "migrate", "up"]).ok();
    here.qo(&["--store", "file:mount?create=never", "submit", "mail"]).ok();
    let listed = here.qo(&["--store", "file:mount?create=never", "jobs", "list", "--json"]).json();
    assert_eq!(listed.as_array().map(Vec::len), Some(1));

    let (server, there) = bucket();
    let url = format!("s3://{NAME}/p?endpoint={}&create=never", server.url());
    let never = |arguments: &[&str]| qo(&server, &there, &[&["--store", &url], arguments].concat());
    never(&["submit", "mail"]).code(75).says("there is no namespace at s3://qo-test/p").says("create=never");
    assert_eq!(server.names(""), Vec::<String>::new());
    qo(&server, &there, &["migrate", "up"]).ok();
    never(&["submit", "mail"]).ok();
}

#[test]
fn a_parameter_of_a_store_that_is_not_known_is_refused_by_name() {
    let here = Here::new();
    let with = |url: &str| here.qo(&["--store", url, "submit", "mail"]);
    with("file:x?creat=never").code(2).says("creat is not known").says("create");
    with("file:x?create=no").code(2).says("create must be never");
    with("s3://b/p?create=no").code(2).says("create must be never");
    with("s3://b/p?creat=never").code(2).says("creat is not known").says("create");
    assert!(fs::read_dir(here.path("")).expect("readable").next().is_none(), "nothing is made");
}

#[test]
fn several_first_users_make_one_namespace() {
    let here = Here::new();
    let first = |_| here.command(&["submit", "mail"]).spawn().expect("qo starts");
    let all: Vec<_> = (0..6).map(first).collect();
    let ran = all.into_iter().map(|child| child.wait_with_output().expect("it ends"));
    let said = ran.map(|ran| {
        assert!(ran.status.success());
        String::from_utf8(ran.stderr).expect("UTF-8")
    });
    assert_eq!(said.filter(|said| said.contains(MADE)).count(), 1);
    assert_eq!(here.jobs().len(), 6);
    let findings = here.qo(&["doctor", "--json"]).json();
    assert!(store(&findings).iter().any(|what| what.contains("namespace ") && what.contains("made 20")));
}

/// The identity of the namespace, as the doctor shows it.
fn identity(ran: Ran) -> String {
    let findings = ran.json();
    let what =
        store(&findings).into_iter().find_map(|what| what.split_once("namespace ")).expect("it is shown");
    what.1.split([',', ' ']).next().expect("an id").to_owned()
}

#[test]
fn a_worker_that_finds_another_namespace_stops_and_names_both() {
    let here = Here::new();
    for swap in ["the directory", "what is in it"] {
        let _ = fs::remove_dir_all(here.path(".qo"));
        let worker = here.worker(&["--task", "hello=echo hi", "--default-lease-duration-secs", "2"]);
        let ours = identity(here.qo(&["doctor", "--json"]));
        match swap {
            "the directory" => fs::rename(here.path(".qo"), here.path("aside")).expect("moved"),
            _ => ["log", "format", "mark"].iter().for_each(|name| {
                let path = here.path(".qo").join(name);
                match path.is_dir() {
                    true => fs::read_dir(path).expect("readable").for_each(|entry| {
                        fs::remove_file(entry.expect("readable").path()).expect("removed");
                    }),
                    false => drop(fs::remove_file(path)),
                }
            }),
        }
        here.qo(&["submit", "hello"]).ok().says(MADE);
        let theirs = identity(here.qo(&["doctor", "--json"]));
        assert_ne!(ours, theirs);
        assert_eq!(worker.wait(), 1, "{swap}");
        let log = fs::read_to_string(here.path("w1.log")).expect("a log");
        assert!(log.contains(&ours) && log.contains(&theirs), "{swap}: {ours} and {theirs}: {log}");
        assert_eq!(here.jobs().len(), 1, "it wrote nothing there");
        here.qo(&["doctor", "--verify"]).ok();
    }
}

#[test]
fn the_doctor_misses_the_tail_of_a_log_and_all_of_it() {
    for lost in [vec![3], vec![2, 3], vec![1, 2, 3]] {
        let here = Here::new();
        for _ in 0..3 {
            here.qo(&["submit", "mail"]).ok();
        }
        lost.iter().for_each(|number| fs::remove_file(here.path(&record(*number))).expect("removed"));
        let first = format!("log/{:020}", lost[0]);
        for arguments in [&["doctor"][..], &["doctor", "--verify"]] {
            here.qo(arguments).code(1).shows(&first).shows("missing").shows("qo doctor --repair");
        }
        // No command continues a log that has lost a record.
        here.qo(&["submit", "mail"]).code(1).says(&first).says("missing").says("doctor");
        here.qo(&["submit", "mail", "--idempotency-key", "k"]).code(1).says(&first).says("doctor");
        here.qo(&["worker", "--task", "mail=true"]).code(1).says(&first).says("doctor");
        assert!(!here.path(&record(4)).exists());
        here.qo(&["doctor", "--repair"]).ok().shows(&first);
        here.qo(&["submit", "mail"]).ok();
        assert_eq!(here.jobs().len(), 4 - lost.len());
        here.qo(&["doctor", "--verify"]).ok();
    }
}

#[test]
fn the_doctor_misses_what_was_deleted_from_the_log_of_a_bucket() {
    let (server, here) = bucket();
    let qo = |arguments: &[&str]| qo(&server, &here, arguments);
    qo(&["submit", "mail"]).ok();
    assert!(server.remove("p/log/00000000000000000001"));
    let first = "log/00000000000000000001";
    qo(&["doctor"]).code(1).shows(first).shows("missing");
    qo(&["submit", "mail"]).code(1).says(first).says("doctor");
    qo(&["doctor", "--repair"]).ok();
    qo(&["doctor", "--release"]).ok();
    qo(&["submit", "mail"]).ok();
    // A command that holds the state sets the mark when it is done.
    qo(&["concurrency", "set", "mail", "--limit", "2"]).ok();
    let records = server.names("p/log/");
    let last = records.last().expect("there is one");
    assert!(server.remove(last));
    qo(&["doctor", "--verify"]).code(1).shows(&last["p/".len()..]).shows("missing");
    qo(&["worker", "--task", "mail=true"]).code(1).says(&last["p/".len()..]).says("doctor");
}

#[test]
fn the_doctor_misses_records_whose_attempts_left_logs_behind() {
    let here = Here::new();
    let worker = here.worker(&["--task", "noisy=echo loud >&2"]);
    here.qo(&["submit", "noisy", "--wait"]).ok();
    worker.signal("TERM");
    assert_eq!(worker.wait(), 0);
    assert!(fs::read_dir(here.path(".qo/attempt")).expect("a log was kept").next().is_some());
    fs::remove_file(here.path(".qo/mark")).expect("removed");
    for entry in fs::read_dir(here.path(".qo/log")).expect("readable") {
        fs::remove_file(entry.expect("readable").path()).expect("removed");
    }
    here.qo(&["doctor", "--verify"]).code(1).shows("attempt/").shows("missing");
}

#[test]
fn a_repair_that_lost_records_holds_everything_until_an_operator_speaks() {
    for speaks in [&["doctor", "--release"][..], &["concurrency", "set", "cluster", "--limit", "5"]] {
        let here = Here::new();
        here.qo(&["concurrency", "set", "cluster", "--limit", "7"]).ok();
        here.qo(&["submit", "mail"]).ok();
        here.qo(&["concurrency", "set", "mail", "--limit", "0"]).ok();
        let mut log: Vec<_> = fs::read_dir(here.path(".qo/log"))
            .expect("readable")
            .map(|entry| entry.expect("one").path())
            .collect();
        log.sort();
        // That of the limit, and that of the entry of the audit log about it.
        for lost in log.iter().rev().take(2) {
            fs::remove_file(lost).expect("removed");
        }
        here.qo(&["doctor", "--repair"]).ok().shows("hold").shows("qo doctor --release");
        let worker = here.worker(&["--task", "mail=cat", "--default-lease-duration-secs", "1"]);
        let id = here.jobs()[0]["id"].as_str().expect("an id").to_owned();
        here.qo(&["explain", &id]).ok().shows("cluster").shows("repair").shows("qo doctor --release");
        here.qo(&["concurrency", "status"]).ok().says("repair").says("qo doctor --release");
        here.qo(&["doctor"]).ok().shows("on hold").shows("qo doctor --release");
        here.qo(&["slot", "run", "--group", "g", "--limit", "1", "--no-wait", "--", "true"]).code(4);
        let log = fs::read_to_string(here.path("w1.log")).expect("a log");
        assert!(log.contains("on hold"), "{log}");
        assert_eq!(here.jobs()[0]["state"], "pending", "its limit may have been lost");
        here.qo(speaks).ok();
        until("it runs", || here.jobs()[0]["state"] == "succeeded");
        let status = here.qo(&["concurrency", "status", "cluster", "--json"]).json();
        let due = if speaks[0] == "doctor" { 7 } else { 5 };
        assert_eq!(status["limit"].as_u64(), Some(due), "{status}");
        here.qo(&["slot", "run", "--group", "g", "--limit", "1", "--no-wait", "--", "true"]).ok();
        let said = here.qo(&["doctor"]).ok();
        assert!(!said.out.contains("on hold"), "{}", said.out);
        here.qo(&["doctor", "--release"]).ok().shows("not on hold");
        worker.signal("TERM");
        worker.wait();
    }
}

#[test]
fn a_variable_that_is_not_utf_8_is_an_error_that_names_it() {
    let here = Here::new();
    for name in ["QO_STORE", "QO_CONFIG", "QO_PROCESSES", "QO_WORKER_NAME"] {
        let output = here.command(&["submit", "mail"]).env(name, OsStr::from_bytes(b"file:\xff")).output();
        let output = output.expect("qo runs");
        let said = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(2), "{name}: {said}");
        assert!(said.contains(name) && said.contains("UTF-8"), "{said}");
    }
    assert!(!here.path(".qo").exists());
}

#[test]
fn a_file_url_means_what_a_newcomer_expects() {
    let here = Here::new();
    let home = here.path("home");
    fs::create_dir(&home).expect("made");
    let with = |url: &str| {
        let output = here.command(&["--store", url, "submit", "mail"]).env("HOME", &home).output();
        let output = output.expect("qo runs");
        let text = |bytes| String::from_utf8(bytes).expect("UTF-8");
        Ran { code: output.status.code().unwrap_or(-1), out: text(output.stdout), err: text(output.stderr) }
    };
    with("file:~/x").ok();
    assert!(home.join("x/log").is_dir() && !here.path("~").exists());
    let absolute = here.path("abs");
    with(&format!("file://localhost{}", absolute.display())).ok();
    assert!(absolute.join("log").is_dir() && !here.path("localhost").exists());
    with(&format!("file://{}", absolute.display())).ok();
    with("file://elsewhere/x").code(2).says("elsewhere");
    with("file:~ann/x").code(2).says("~ann");
    assert!(!here.path("elsewhere").exists() && !here.path("~ann").exists());
    here.qo(&["submit", "--help"]).ok().shows("s3://").shows("postgres://");
}

#[test]
fn a_directory_may_be_called_anything_that_is_utf_8() {
    let here = Here::new();
    for name in ["what?", "a?b=c&d", "ü ~ %20#"] {
        let inside = here.path(name);
        fs::create_dir(&inside).expect("a directory");
        let submitted = here.command(&["submit", "mail"]).current_dir(&inside).output().expect("qo runs");
        assert!(submitted.status.success(), "{name}: {submitted:?}");
        assert!(inside.join(".qo/log").is_dir(), "{name}");
    }
    let inside = here.path("").join(OsStr::from_bytes(b"n\xff"));
    fs::create_dir(&inside).expect("a directory");
    let before = fs::read_dir(here.path("")).expect("a directory").count();
    let refused = here.command(&["submit", "mail"]).current_dir(&inside).output().expect("qo runs");
    let said = String::from_utf8_lossy(&refused.stderr);
    assert!(
        refused.status.code() == Some(2) && said.contains("must be in a directory whose path is UTF-8"),
        "{said}"
    );
    assert_eq!(
        fs::read_dir(here.path("")).expect("a directory").count(),
        before,
        "nothing is made beside it"
    );
}
