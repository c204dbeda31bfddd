//! Histories of the simulator on a toy with one flaw.

use qo_testkit::checker::Violation;
use qo_testkit::simulation::{Outcome, Profile, run};
use qo_testkit::{Flaw, ToyFixtures};

/// How many seeds are simulated, at most.
const SEEDS: u64 = 100;

/// Runs of the simulator on a toy with this flaw, seed by seed.
pub fn runs(flaw: Flaw) -> impl Iterator<Item = Outcome> {
    // That flaw takes slots away from jobs, and cannot take them from programs.
    let programs = if flaw == Flaw::LoweringKills { 0 } else { 2 };
    let profile = Profile { operations: 600, rest_ms: 60_000, programs, ..Profile::default() };
    (1..=SEEDS).map(move |seed| run(seed, &profile, &ToyFixtures(flaw)))
}

/// The flaws that no seed makes `check` object to with the guarantee's name.
pub fn missed<const N: usize>(
    flaws: [(Flaw, &'static str); N],
    check: impl Fn(&Outcome) -> Vec<Violation>,
) -> Vec<(Flaw, &'static str)> {
    let is_missed = |&(flaw, guarantee): &(Flaw, &str)| {
        !runs(flaw).any(|run| check(&run).iter().any(|violation| violation.guarantee == guarantee))
    };
    flaws.into_iter().filter(is_missed).collect()
}
