//! Every example runs, and prints what it is meant to show.

use std::path::PathBuf;
use std::process::Command;

/// `cargo test` builds the examples before the tests, beside them; with `--test examples` it does not, so run `cargo
/// build --examples` first.
fn example(name: &str) -> PathBuf {
    let mut path = std::env::current_exe().expect("this test is a file");
    path.pop();
    path.pop();
    path.join("examples").join(name)
}

fn said(name: &str) -> String {
    let directory = tempfile::tempdir().expect("a temporary directory");
    let output = Command::new(example(name)).current_dir(directory.path()).output().expect("it starts");
    let (stdout, stderr) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert!(output.status.success(), "{name}: {}\n{stdout}{stderr}", output.status);
    stdout.into_owned()
}

#[test]
fn hello_sends_an_invoice() {
    assert_eq!(said("hello"), "sent to ACME, attempt 1\n");
}

#[test]
fn limits_are_reached_and_kept() {
    assert_eq!(said("limits"), "40 calls, at most 4 at once\n");
}

#[test]
fn a_workflow_keeps_its_order_through_a_retry() {
    assert_eq!(said("workflow"), "reserve, attempt 1\ncharge, attempt 2\nship, attempt 1\n");
}

#[test]
fn programs_share_slots() {
    let said = said("slots");
    assert!(
        said.starts_with("deploy holds the slot; backup got None\nbackup holds it now, until "),
        "{said}"
    );
}

#[test]
fn handlers_end_in_every_way() {
    let expected = "fine: Succeeded after 1 attempts\nbusy: Succeeded after 2 attempts\n\
                    gone: Failed after 1 attempts\nbroken: Failed after 1 attempts\n";
    assert_eq!(said("outcomes"), expected);
}

#[test]
fn a_limit_may_refuse_or_drop_a_submit() {
    assert_eq!(said("on_limit"), "one sync in line, one charge\n");
}

/// The README shows the first example unchanged.
#[test]
fn the_readme_shows_hello() {
    // Tests run in their crate's folder.
    let read = |file: &str| std::fs::read_to_string(format!("../../{file}")).expect("it is there");
    let hello = read("examples/hello.rs");
    let code = hello.split_once("\n\n").expect("a comment, then code").1;
    assert!(code.lines().count() <= 30);
    assert!(read("README.md").contains(code), "README.md shows another example than examples/hello.rs");
}
