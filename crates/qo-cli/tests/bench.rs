//! `qo bench`, one tiny round: it measures nothing, but it works.

use serde_json::Value;
use std::collections::BTreeSet;
use std::process::{Command, Output};

fn bench(arguments: &[&str], folder: &std::path::Path) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_qo"));
    command.arg("bench").args(arguments).env("TMPDIR", folder).env_remove("QO_STORE");
    command.output().expect("it runs")
}

#[test]
fn a_quick_bench_has_a_figure_for_every_scenario_and_leaves_nothing_behind() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let output = bench(&["--quick", "--json"], folder.path());
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let report: Value = serde_json::from_slice(&output.stdout).expect("JSON");
    let figures = report["figures"].as_array().expect("figures");
    let scenarios: BTreeSet<&str> = figures.iter().filter_map(|figure| figure["scenario"].as_str()).collect();
    let all = ["binding", "idle", "limits", "open", "parked", "pickup", "processes", "throughput"];
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
