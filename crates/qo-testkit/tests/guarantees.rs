//! `docs/guarantees.md` names tests and sabotage that exist.

use qo_testkit::{conformance, museum};
use std::collections::BTreeSet;

#[test]
fn the_page_of_guarantees_names_only_what_exists() {
    let page = include_str!("../../../docs/guarantees.md");
    let cases: BTreeSet<&str> = conformance::cases().iter().map(|case| case.name).collect();
    let flaws: BTreeSet<String> = museum().iter().map(|exhibit| format!("{:?}", exhibit.flaw)).collect();
    let (mut tests, mut sabotage) = (0, 0);
    for line in page.lines() {
        for name in line.split('`').skip(1).step_by(2) {
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
