//! `qo bench`, one tiny round: it measures nothing, but it works.

use qo_testkit::Bucket;
use serde_json::Value;
use std::collections::BTreeSet;
use std::process::{Command, Output, Stdio};

fn bench(arguments: &[&str], folder: &std::path::Path) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_qo"));
    command.arg("bench").args(arguments).env("TMPDIR", folder).env_remove("QO_STORE");
    command.output().expect("it runs")
}

#[test]
fn a_quick_bench_measures_every_scenario_and_leaves_nothing_behind() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let output = bench(&["--quick", "--json"], folder.path());
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let report: Value = serde_json::from_slice(&output.stdout).expect("JSON");
    let figures = report["figures"].as_array().expect("figures");
    let scenarios: BTreeSet<&str> = figures.iter().filter_map(|figure| figure["scenario"].as_str()).collect();
    let all = [
        "binding",
        "idle",
        "limits",
        "open",
        "parked",
        "pickup",
        "processes",
        "served",
        "served-idle",
        "throughput",
    ];
    assert_eq!(scenarios.into_iter().collect::<Vec<_>>(), all);
    for figure in figures {
        assert!(figure["median"].as_f64().is_some_and(f64::is_finite), "{figure}");
    }
    assert!(report["fsync_ms"].as_f64().is_some_and(|ms| ms > 0.0), "{report}");
    assert_eq!(std::fs::read_dir(folder.path()).expect("a folder").count(), 0);
}

#[test]
fn a_bench_names_its_bars_and_where_it_measured() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let store = format!("file:{}", folder.path().join("disk").display());
    let output = bench(&["throughput", "--rounds", "2", "--jobs", "200", "--store", &store], folder.path());
    let out = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    assert!(out.contains("to keep a small file") && out.contains("2000 permits"), "{out}");
    let row = out.lines().find(|line| line.starts_with("throughput")).expect("a row");
    assert!(row.contains("≥ 15,000 jobs/s") && (row.contains("missed") || row.contains("reached")), "{out}");
    assert_eq!(std::fs::read_dir(folder.path().join("disk")).expect("a folder").count(), 0);
}

#[test]
fn a_bench_refuses_what_it_cannot_measure() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let output = bench(&["--store", "memory:"], folder.path());
    assert_eq!(output.status.code(), Some(2), "{}", String::from_utf8_lossy(&output.stderr));
    let output = bench(&["througput"], folder.path());
    let err = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(output.status.code() == Some(2) && err.contains("'throughput'"), "{err}");
}

/// The server that `make test` starts.
fn server() -> String {
    std::env::var("QO_TEST_POSTGRES").expect(
        "QO_TEST_POSTGRES must be the URL of a server; `make test` starts one: scripts/with_postgres.py",
    )
}

/// Schemas that a benchmark has left on the server.
fn left_behind(prefix: &str) -> i64 {
    let count = format!("SELECT count(*) FROM pg_namespace WHERE nspname LIKE '{prefix}%'");
    tokio::runtime::Runtime::new().expect("a runtime").block_on(async {
        let (client, connection) =
            tokio_postgres::connect(&server(), tokio_postgres::NoTls).await.expect("the server answers");
        tokio::spawn(connection);
        client.query_one(&count, &[]).await.expect("a count").get(0)
    })
}

#[test]
fn a_quick_bench_on_postgres_measures_all_and_leaves_nothing_behind() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let child = Command::new(env!("CARGO_BIN_EXE_qo"))
        .args(["bench", "--quick", "--json", "--store", &server()])
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .current_dir(folder.path())
        .spawn()
        .expect("it runs");
    let prefix = format!("qo_bench_{}_", child.id());
    let output = child.wait_with_output().expect("it ends");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let report: Value = serde_json::from_slice(&output.stdout).expect("JSON");
    let figures = report["figures"].as_array().expect("figures");
    let scenarios: BTreeSet<&str> = figures.iter().filter_map(|figure| figure["scenario"].as_str()).collect();
    let all = [
        "bare",
        "binding",
        "bookkeeping",
        "concurrency-baseline",
        "concurrency-enabled",
        "concurrency-high",
        "concurrency-mixed",
        "deep",
        "foreign",
        "handover",
        "keys",
        "nested",
        "pickup",
        "recovery",
        "served",
        "stuck",
        "waiters",
        "worker",
    ];
    assert_eq!(scenarios.into_iter().collect::<Vec<_>>(), all);
    for figure in figures {
        assert!(figure["median"].as_f64().is_some_and(f64::is_finite), "{figure}");
    }
    assert!(report["server"]["version"].as_str().is_some_and(|version| !version.is_empty()), "{report}");
    assert_eq!(left_behind(&prefix), 0);
}

#[test]
fn a_bench_on_postgres_that_is_interrupted_leaves_nothing_behind() {
    let arguments = ["bench", "deep", "--rounds", "1", "--json", "--store"];
    let mut child = Command::new(env!("CARGO_BIN_EXE_qo"))
        .args(arguments)
        .arg(server())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .expect("it runs");
    let prefix = format!("qo_bench_{}_", child.id());
    while left_behind(&prefix) == 0 {
        assert!(child.try_wait().expect("a child").is_none(), "it ended by itself");
    }
    let pid = rustix::process::Pid::from_child(&child);
    rustix::process::kill_process(pid, rustix::process::Signal::INT).expect("it is told");
    assert_eq!(child.wait().expect("it ends").code(), Some(130));
    assert_eq!(left_behind(&prefix), 0);
}

/// A benchmark in a bucket of a server in memory.
fn in_bucket(bucket: &Bucket, arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_qo"));
    command.args(["bench", "--json", "--store", "s3://qo-test/some/place"]).args(arguments);
    command.envs(bucket.environment());
    command
}

#[test]
fn a_quick_bench_in_a_bucket_measures_all_and_leaves_nothing_behind() {
    let bucket = Bucket::start(1);
    bucket.write("some/place/of-another-program", "kept");
    let output = in_bucket(&bucket, &["--quick"]).output().expect("it runs");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let report: Value = serde_json::from_slice(&output.stdout).expect("JSON");
    let figures = report["figures"].as_array().expect("figures");
    let scenarios: BTreeSet<&str> = figures.iter().filter_map(|figure| figure["scenario"].as_str()).collect();
    let all = ["cost", "idle", "open", "pickup", "processes", "served", "slots", "throughput"];
    assert_eq!(scenarios.into_iter().collect::<Vec<_>>(), all);
    for figure in figures {
        assert!(figure["median"].as_f64().is_some_and(f64::is_finite), "{figure}");
    }
    let value = |scenario: &str, what: &str| {
        let named = |figure: &&Value| {
            figure["scenario"] == scenario
                && figure["figure"].as_str().is_some_and(|name| name.contains(what))
        };
        figures.iter().find(named).and_then(|figure| figure["median"].as_f64()).expect("a figure")
    };
    let (puts, gets) = (value("cost", "PUT a job"), value("cost", "GET a job"));
    let (lists, dollars) = (value("cost", "LIST a job"), value("cost", "a million jobs cost"));
    assert!(puts > 0.0 && (dollars - (puts + lists) * 5.0 - gets * 0.4).abs() < 1e-6, "{dollars} dollars");
    assert_eq!(value("slots", "a free slot, acquired and released: requests"), 4.0);
    assert!(report["bucket"]["request_ms"].as_f64().is_some_and(|ms| ms > 0.0), "{report}");
    assert_eq!(bucket.names(""), ["some/place/of-another-program"]);
}

#[test]
fn a_bench_in_a_bucket_that_is_interrupted_leaves_nothing_behind() {
    let bucket = Bucket::start(1);
    let mut command = in_bucket(&bucket, &["idle"]);
    let mut child = command.stdout(Stdio::null()).stderr(Stdio::null()).spawn().expect("it runs");
    while bucket.names("some/place/qo-bench-").len() < 3 {
        assert!(child.try_wait().expect("a child").is_none(), "it ended by itself");
    }
    let pid = rustix::process::Pid::from_child(&child);
    rustix::process::kill_process(pid, rustix::process::Signal::INT).expect("it is told");
    assert_eq!(child.wait().expect("it ends").code(), Some(130));
    assert_eq!(bucket.names(""), Vec::<String>::new());
}

#[test]
fn a_bench_refuses_an_unknown_scenario_and_lists_the_known_ones() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let output = bench(&["idle", "--store", &server()], folder.path());
    let err = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(output.status.code() == Some(2) && err.contains("PostgreSQL: there are"), "{err}");
    assert!(err.contains("concurrency-mixed") && !err.contains("parked"), "{err}");
    let output = bench(&["nested"], folder.path());
    let err = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(output.status.code() == Some(2) && err.contains("a directory: there are throughput"), "{err}");
    let output = bench(&["throughput", "--batch", "7"], folder.path());
    assert_eq!(output.status.code(), Some(2), "{}", String::from_utf8_lossy(&output.stderr));
}
