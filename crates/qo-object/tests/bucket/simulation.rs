//! Whole fleets, with crashes, pauses, wrong clocks and lost replies, over the log in a bucket: calls alternate between
//! two processes, each with connections of its own. The log has the simulation's clock; its requests go to a real
//! server all the same, and take real time.

use crate::fixtures::{Logs, RUNTIME};
use qo_testkit::Bucket;
use qo_testkit::bucket::{FaultRates, Kind};
use qo_testkit::simulation::{Profile, run};
use std::ops::RangeInclusive;

/// Two at a time, each on a server of its own.
fn simulate(seeds: RangeInclusive<u64>, rates: FaultRates) {
    std::thread::scope(|scope| {
        for half in 0..2 {
            let seeds = seeds.clone().filter(move |seed| seed % 2 == half);
            scope.spawn(move || {
                let _runtime = RUNTIME.enter();
                for seed in seeds {
                    let server = Bucket::start(seed);
                    server.set_faults(Kind::ALL, rates);
                    let outcome = run(seed, &Profile::default(), &Logs::in_a_bucket(server.url()));
                    assert_eq!(outcome.violations.first(), None, "seed {seed}");
                }
            });
        }
    });
}

#[test]
fn eight_seeds_in_a_bucket_break_no_guarantee() {
    simulate(1..=8, FaultRates::default());
}

/// Faults that the client retries, and faults that the log has to handle: an answer that is lost after the write, and a
/// bucket that could not decide.
#[test]
fn twelve_seeds_in_a_bucket_that_fails_break_no_guarantee() {
    let rates =
        FaultRates { error: 1, slow_down: 1, conflict: 1, reset_before: 1, reset_after: 2, truncated: 0 };
    simulate(9..=20, rates);
}
