//! The rule book equals the toy, command by command and view by view.

use async_trait::async_trait;
use futures::executor::block_on;
use proptest::prelude::*;
use proptest::strategy::ValueTree;
use proptest::test_runner::{RngAlgorithm, TestRng, TestRunner};
use qo_core::{ManualClock, MemoryStore};
use qo_testkit::generator::{Script, bad_commands, equal, scripts, survives};
use qo_testkit::{Fixture, Fixtures, START, ToyFixtures};
use std::sync::Arc;

struct MemoryFixtures;

#[async_trait]
impl Fixtures for MemoryFixtures {
    async fn fresh(&self) -> Fixture {
        let clock = Arc::new(ManualClock::new(START));
        Fixture { store: Arc::new(MemoryStore::with_clock(clock.clone())), clock }
    }
}

fn same(script: &Script) -> Result<(), String> {
    block_on(async {
        equal(&ToyFixtures::default().fresh().await, &MemoryFixtures.fresh().await, script).await
    })
}

proptest! {
    #![proptest_config(ProptestConfig {
        cases: std::env::var("CASES").ok().and_then(|n| n.parse().ok()).unwrap_or(256), failure_persistence: None, max_shrink_iters: 20_000, ..ProptestConfig::default()
    })]

    #[test]
    fn memory_equals_the_toy(script in scripts(1..=120)) {
        if let Err(difference) = same(&script) {
            return Err(TestCaseError::fail(difference));
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 128, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn memory_survives_bad_commands(commands in prop::collection::vec(bad_commands(), 1..12)) {
        let survived = block_on(async { survives(&MemoryFixtures.fresh().await, &commands).await });
        prop_assert_eq!(survived, Ok(()));
    }
}

#[test]
fn memory_equals_the_toy_over_long_scripts() {
    for seed in 0..4 {
        let rng = TestRng::from_seed(RngAlgorithm::ChaCha, &[seed; 32]);
        let mut runner = TestRunner::new_with_rng(ProptestConfig::default(), rng);
        let script = scripts(500..=500).new_tree(&mut runner).expect("a script").current();
        if let Err(difference) = same(&script) {
            panic!("seed {seed}: {difference}");
        }
    }
}
