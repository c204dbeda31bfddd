//! Which crate may depend on which.

use std::collections::{BTreeMap, BTreeSet};
use std::process::Command;

/// For each crate of the workspace, the crates of the workspace that it may be built with.
/// Dependencies point one way; a new crate has to be entered here, and with an ADR.
const ALLOWED: &[(&str, &[&str])] = &[
    ("qo-core", &[]),
    ("qo-object", &["qo-core"]),
    ("qo-postgres", &["qo-core"]),
    ("qo-wire", &["qo-core"]),
    ("qo-metrics", &[]),
    ("qo-server", &["qo-core", "qo-metrics", "qo-wire"]),
    ("qo", &["qo-core", "qo-metrics", "qo-object", "qo-postgres", "qo-wire"]),
    ("qo-judge", &[]),
    ("qo-cli", &["qo", "qo-judge", "qo-server"]),
    ("qo-python", &["qo", "qo-cli"]),
    ("qo-testkit", &["qo-core", "qo-object", "qo"]),
];

#[test]
fn dependencies_point_one_way() {
    let allowed: BTreeMap<&str, BTreeSet<&str>> =
        ALLOWED.iter().map(|(name, others)| (*name, others.iter().copied().collect())).collect();
    let packages = packages();
    let members: BTreeSet<String> = packages.iter().map(|package| text(package, "name")).collect();
    assert_eq!(
        members.iter().map(String::as_str).collect::<BTreeSet<_>>(),
        allowed.keys().copied().collect()
    );

    for package in &packages {
        let name = text(package, "name");
        for dependency in package["dependencies"].as_array().expect("a list of dependencies") {
            // Tests may use the testkit; what is shipped may not.
            let (other, test_only) = (text(dependency, "name"), dependency["kind"] == "dev");
            if members.contains(&other) && !test_only {
                assert!(allowed[name.as_str()].contains(other.as_str()), "{name} must not depend on {other}");
            }
        }
    }
}

#[test]
fn the_rule_book_has_no_runtime_clock_or_randomness() {
    let core =
        packages().into_iter().find(|package| package["name"] == "qo-core").expect("qo-core is a member");
    // `jiff` is there for its calendar; a lint forbids asking it for the time (clippy.toml).
    for dependency in core["dependencies"].as_array().expect("a list of dependencies") {
        let name = text(dependency, "name");
        let banned = ["tokio", "rand", "chrono", "reqwest", "futures"].contains(&name.as_str());
        assert!(!banned || dependency["kind"] == "dev", "qo-core must not depend on {name}");
    }
}

#[test]
fn cargo_run_means_the_command_line() {
    // The README's first command is `cargo run --release -- demo`.
    let cli = packages().into_iter().find(|package| package["name"] == "qo-cli").expect("a member");
    assert_eq!(text(&cli, "default_run"), "qo");
}

fn packages() -> Vec<serde_json::Value> {
    let output = Command::new(env!("CARGO"))
        .args(["metadata", "--format-version=1", "--no-deps", "--offline"])
        .output()
        .expect("cargo runs");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let metadata: serde_json::Value = serde_json::from_slice(&output.stdout).expect("metadata is JSON");
    metadata["packages"].as_array().expect("a list of packages").clone()
}

fn text(value: &serde_json::Value, field: &str) -> String {
    value[field].as_str().expect("a text").to_owned()
}
