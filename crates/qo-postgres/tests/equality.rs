//! PostgreSQL decides as the rule book does, script by script, with two processes that are called alternately.

mod fixtures;

use fixtures::{RUNTIME, Schemas};
use proptest::prelude::*;
use qo_testkit::generator::{crowds, equal, flows, lines, scripts};
use qo_testkit::{Fixtures, MemoryFixtures};

/// How many scripts run: `QO_EQUALITY`. Defaults to 256.
fn cases() -> u32 {
    std::env::var("QO_EQUALITY").ok().and_then(|cases| cases.parse().ok()).unwrap_or(256)
}

proptest! {
    #![proptest_config(ProptestConfig {
        cases: cases(),
        failure_persistence: None,
        // Each takes a second.
        max_shrink_iters: 200,
        ..ProptestConfig::default()
    })]

    #[test]
    fn the_schema_equals_the_rule_book(script in prop_oneof![3 => scripts(1..=60), 3 => crowds(1..=40), 3 => flows(1..=40), 2 => lines(1..=16)]) {
        let same = RUNTIME.block_on(async {
            let schemas = Schemas::on("QO_TEST_POSTGRES");
            equal(&MemoryFixtures.fresh().await, &schemas.fresh().await, &script).await
        });
        prop_assert_eq!(same, Ok(()));
    }
}
