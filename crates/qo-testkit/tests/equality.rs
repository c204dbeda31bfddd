//! The rule book equals the toy, command by command and view by view.

use async_trait::async_trait;
use futures::executor::block_on;
use proptest::prelude::*;
use proptest::strategy::ValueTree;
use proptest::test_runner::{RngAlgorithm, TestError, TestRng, TestRunner};
use qo_core::{ManualClock, MemoryStore};
use qo_testkit::generator::{Script, bad_commands, equal, minimal, scripts, survives};
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

/// The difference that the least failing script makes, and that script.
fn report(script: &Script) -> String {
    let least = minimal(script, |script| same(script).is_err());
    format!("{}\n{least:?}", same(&least).expect_err("it fails"))
}

#[test]
fn memory_equals_the_toy() {
    let cases = std::env::var("CASES").ok().and_then(|n| n.parse().ok()).unwrap_or(256);
    let config = ProptestConfig { cases, failure_persistence: None, ..ProptestConfig::default() };
    let run = TestRunner::new(config)
        .run(&scripts(1..=120), |script| same(&script).map_err(|_| TestCaseError::fail("they differ")));
    if let Err(TestError::Fail(_, script)) = run {
        panic!("{}", report(&script));
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
        assert!(same(&script).is_ok(), "seed {seed}: {}", report(&script));
    }
}
