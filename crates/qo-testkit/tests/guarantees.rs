//! `docs/guarantees.md` and `docs/promises.md` name tests and sabotage that exist.

use qo_testkit::{conformance, museum};
use std::collections::BTreeSet;

fn cases() -> BTreeSet<&'static str> {
    conformance::cases().iter().map(|case| case.name).collect()
}

/// What a line has in `code`.
fn in_code(line: &str) -> impl Iterator<Item = &str> {
    line.split('`').skip(1).step_by(2)
}

#[test]
fn the_page_of_guarantees_names_only_what_exists() {
    let page = include_str!("../../../docs/guarantees.md");
    let cases = cases();
    let flaws: BTreeSet<String> = museum().iter().map(|exhibit| format!("{:?}", exhibit.flaw)).collect();
    let (mut tests, mut sabotage) = (0, 0);
    for line in page.lines() {
        for name in in_code(line) {
            if line.starts_with("- tests:") {
                assert!(cases.contains(name), "there is no case {name}");
                tests += 1;
            } else if line.starts_with("- sabotage:") {
                assert!(flaws.contains(name), "there is no exhibit {name}");
                sabotage += 1;
            }
        }
    }
    assert!(tests >= 25 && sabotage >= 20, "the page was not read: {tests} tests, {sabotage} exhibits");
}

#[test]
fn the_page_of_promises_has_a_case_that_exists_for_every_promise() {
    let page = include_str!("../../../docs/promises.md");
    let cases = cases();
    let (mut promises, mut named) = (0, BTreeSet::new());
    for line in page.lines().filter(|line| line.starts_with("| ") && *line != "| promise | cases |") {
        let cells: Vec<&str> = line.trim_matches('|').split('|').collect();
        let [promise, proof] = cells[..] else { panic!("not a promise and its cases: {line}") };
        let mut here = in_code(proof).peekable();
        let elsewhere = ["unit tests", "tests of", "simulated fleets"];
        let is_elsewhere = elsewhere.iter().any(|where_to| proof.contains(where_to));
        assert!(here.peek().is_some() || is_elsewhere, "nothing proves: {promise}");
        for name in here {
            assert!(cases.contains(name), "there is no case {name}");
            named.insert(name);
        }
        promises += 1;
    }
    assert!(
        promises >= 100 && named.len() >= 200,
        "the page was not read: {promises}, {} cases",
        named.len()
    );
}
