//! Whole fleets, with crashes, pauses, wrong clocks and lost replies, over the real log: calls alternate between two
//! processes.

mod fixtures;

use fixtures::Logs;
use qo_testkit::simulation::{Profile, run};

#[test]
fn a_hundred_seeds_over_the_log_break_no_guarantee() {
    std::thread::scope(|scope| {
        for half in 0..2 {
            scope.spawn(move || {
                for seed in (1..=100).filter(|seed| seed % 2 == half) {
                    let outcome = run(seed, &Profile::default(), &Logs::in_memory());
                    assert_eq!(outcome.violations.first(), None, "seed {seed}");
                }
            });
        }
    });
}
