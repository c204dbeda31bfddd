//! The suite catches every broken toy (that it passes the correct one, `conformance_toy.rs` shows).

use qo_testkit::conformance::{Case, cases, run};
use qo_testkit::{Exhibit, Flaw, ToyFixtures, museum};
use std::collections::BTreeSet;

/// Cases with so many jobs that a store which counts everything each time needs seconds, forty times over.
const HEAVY: [&str; 3] = [
    "a_full_call_of_ten_thousand_jobs_is_accepted_whole",
    "raising_every_key_wakes_very_many_keys",
    "very_many_full_keys_delay_no_other_key",
];

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
    let cases: Vec<Case> = cases().into_iter().filter(|case| !HEAVY.contains(&case.name)).collect();
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
