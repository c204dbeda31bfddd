//! PostgreSQL decides like the rule book, script by script, with two processes that take turns.

mod fixtures;

use fixtures::{RUNTIME, Schemas};
use proptest::prelude::*;
use qo_testkit::generator::{crowds, equal, flows, scripts};
use qo_testkit::{Fixtures, MemoryFixtures};

/// As many scripts as `QO_EQUALITY` says. Defaults to 256.
fn cases() -> u32 {
    std::env::var("QO_EQUALITY").ok().and_then(|cases| cases.parse().ok()).unwrap_or(256)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: cases(), failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn the_schema_equals_the_rule_book(script in prop_oneof![scripts(1..=60), crowds(1..=40), flows(1..=40)]) {
        let same = RUNTIME.block_on(async {
            let schemas = Schemas::on("QO_TEST_POSTGRES");
            equal(&MemoryFixtures.fresh().await, &schemas.fresh().await, &script).await
        });
        prop_assert_eq!(same, Ok(()));
    }
}
