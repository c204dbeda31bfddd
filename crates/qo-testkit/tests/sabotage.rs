//! The suite passes the correct toy and catches every broken one.

use qo_testkit::conformance::{Case, cases, run};
use qo_testkit::{Exhibit, Flaw, ToyFixtures, museum};
use std::collections::BTreeSet;

/// The area whose cases have so many jobs that a store which counts everything each time needs seconds: the
/// correct toy runs them, the broken ones do not.
const HEAVY: &str = "scale";

#[test]
fn the_correct_toy_passes_the_whole_suite() {
    let failure = |case: &Case| {
        let broken = run(case, &ToyFixtures(Flaw::None)).err()?;
        Some(format!("{}::{}: {broken}", case.area, case.name))
    };
    let failures: Vec<String> = cases().iter().filter_map(failure).collect();
    assert!(failures.is_empty(), "{}", failures.join("\n"));
}

/// The names of the cases that a flaw fails.
fn caught_by(flaw: Flaw, cases: &[Case]) -> Vec<String> {
    let fails = |case: &&Case| run(case, &ToyFixtures(flaw)).is_err();
    cases.iter().filter(fails).map(|case| format!("{}::{}", case.area, case.name)).collect()
}

fn row(exhibit: &Exhibit, caught: &[String]) -> String {
    let first = caught.first().map_or("NOT CAUGHT", String::as_str);
    format!("{:<24} {:>3}  {first}", format!("{:?}", exhibit.flaw), caught.len())
}

#[test]
#[allow(clippy::print_stdout)] // The table is the point: `cargo test --test sabotage -- --nocapture`.
fn every_exhibit_is_caught() {
    // Hundreds of cases panic here, as they should.
    std::panic::set_hook(Box::new(|_| {}));
    let cases: Vec<Case> = cases().into_iter().filter(|case| case.area != HEAVY).collect();
    let rows: Vec<(bool, String)> = museum()
        .iter()
        .map(|exhibit| (exhibit, caught_by(exhibit.flaw, &cases)))
        .map(|(exhibit, caught)| (caught.is_empty(), row(exhibit, &caught)))
        .collect();
    let _ = std::panic::take_hook();
    let table: Vec<&str> = rows.iter().map(|(_, row)| row.as_str()).collect();
    println!("{}", table.join("\n"));
    assert!(rows.iter().all(|(missed, _)| !missed), "\n{}", table.join("\n"));
}

#[test]
fn no_exhibit_is_shown_twice() {
    let shown: BTreeSet<Flaw> = museum().iter().map(|exhibit| exhibit.flaw).collect();
    assert_eq!(shown.len(), museum().len());
    assert!(!shown.contains(&Flaw::None));
}
