//! The suite catches every broken toy. `conformance_toy.rs` shows that it passes the correct one.

use futures::executor::block_on;
use proptest::prelude::*;
use proptest::strategy::ValueTree;
use proptest::test_runner::{RngAlgorithm, TestRng, TestRunner};
use qo_testkit::conformance::{Case, cases, run};
use qo_testkit::generator::{Script, crowds, equal, flows, scripts};
use qo_testkit::{Exhibit, Fixtures, Flaw, ToyFixtures, museum};
use std::collections::BTreeSet;

/// The names of the cases that a flaw fails.
fn caught_by(flaw: Flaw, cases: &[Case]) -> Vec<String> {
    let fails = |case: &&Case| run(case, &ToyFixtures(flaw)).is_err();
    cases.iter().filter(fails).map(|case| format!("{}::{}", case.area, case.name)).collect()
}

/// The case that an exhibit names must catch it; others may too.
fn is_caught(exhibit: &Exhibit, caught: &[String]) -> bool {
    caught.iter().any(|case| case == exhibit.case)
}

fn row(exhibit: &Exhibit, caught: &[String]) -> String {
    let missed = if is_caught(exhibit, caught) { "" } else { "NOT CAUGHT BY " };
    format!("{:<24} {:>3}  {missed}{}", format!("{:?}", exhibit.flaw), caught.len(), exhibit.case)
}

#[test]
#[allow(clippy::print_stdout)] // The table is the point: `cargo test --test sabotage -- --nocapture`.
fn every_exhibit_is_caught() {
    let museum_is_here = std::thread::current().id();
    // Hundreds of cases panic on this thread, as they should; panics of other threads are printed.
    let loud = std::panic::take_hook();
    std::panic::set_hook(Box::new(move |panic| {
        if std::thread::current().id() != museum_is_here {
            loud(panic);
        }
    }));
    // The toy recounts everything each time and needs seconds for very many jobs: these cases come last.
    let (scale, everyday): (Vec<Case>, Vec<Case>) =
        cases().into_iter().partition(|case| case.area == "scale");
    // A case that the correct toy fails catches nothing.
    let passes = |case: &Case| run(case, &ToyFixtures(Flaw::None)).is_ok();
    let everyday: Vec<Case> = everyday.into_iter().filter(passes).collect();
    let caught = |flaw| match caught_by(flaw, &everyday) {
        nothing if nothing.is_empty() => caught_by(flaw, &scale),
        caught => caught,
    };
    let rows: Vec<(bool, String)> = museum()
        .iter()
        .map(|exhibit| (exhibit, caught(exhibit.flaw)))
        .map(|(exhibit, caught)| (!is_caught(exhibit, &caught), row(exhibit, &caught)))
        .collect();
    drop(std::panic::take_hook());
    let table: Vec<&str> = rows.iter().map(|(_, row)| row.as_str()).collect();
    println!("\n{}", table.join("\n"));
    assert!(rows.iter().all(|(missed, _)| !missed), "\n{}", table.join("\n"));
}

#[test]
fn every_flaw_is_on_show_once() {
    let shown: BTreeSet<Flaw> = museum().iter().map(|exhibit| exhibit.flaw).collect();
    assert_eq!(shown.len(), museum().len());
    assert!(!shown.contains(&Flaw::None));
    let last = shown.last().copied().expect("there are exhibits");
    assert_eq!(last as usize, shown.len(), "a flaw is not on show");
}

/// Flaws that need more sessions, or longer logs, than a script has.
const TOO_BIG_FOR_A_SCRIPT: [Flaw; 3] =
    [Flaw::SweepStopsAfterPage, Flaw::SweepStarved, Flaw::LogKeepsItsBeginning];

/// How many random scripts it takes until a flaw shows: a test of the generator.
fn scripts_until_seen(flaw: Flaw) -> Option<u32> {
    let mut runner = TestRunner::new_with_rng(
        ProptestConfig::default(),
        TestRng::from_seed(RngAlgorithm::ChaCha, &[1; 32]),
    );
    (1..=800).find(|_| {
        let script = scripts(60..=60).new_tree(&mut runner).expect("a script").current();
        let crowd = crowds(40..=40).new_tree(&mut runner).expect("a script").current();
        let shows = |script: &Script| {
            let both = async {
                let (correct, flawed) =
                    (ToyFixtures::default().fresh().await, ToyFixtures(flaw).fresh().await);
                equal(&correct, &flawed, script).await
            };
            block_on(both).is_err()
        };
        let flow = flows(60..=60).new_tree(&mut runner).expect("a script").current();
        shows(&script) || shows(&crowd) || shows(&flow)
    })
}

#[test]
#[allow(clippy::print_stdout)]
fn random_scripts_find_the_exhibits_too() {
    let mut missed = Vec::new();
    for exhibit in museum().iter().filter(|exhibit| !TOO_BIG_FOR_A_SCRIPT.contains(&exhibit.flaw)) {
        let scripts = scripts_until_seen(exhibit.flaw);
        println!("{:<24} {scripts:?}", format!("{:?}", exhibit.flaw));
        missed.extend(scripts.is_none().then_some(exhibit.flaw));
    }
    assert!(missed.is_empty(), "no script shows {missed:?}");
}
