//! The log decides like the rule book, script by script, with calls that alternate between two processes.

mod fixtures;

use fixtures::Logs;
use futures::executor::block_on;
use proptest::prelude::*;
use qo_testkit::generator::{crowds, equal, flows, lines, scripts};
use qo_testkit::{Fixtures, MemoryFixtures};

proptest! {
    #![proptest_config(ProptestConfig { cases: 96, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn the_log_equals_the_rule_book(script in prop_oneof![3 => scripts(1..=80), 3 => crowds(1..=60), 3 => flows(1..=60), 1 => lines(1..=16)]) {
        let same = block_on(async {
            equal(&MemoryFixtures.fresh().await, &Logs::in_memory().fresh().await, &script).await
        });
        prop_assert_eq!(same, Ok(()));
    }
}
