//! The rule book equals the toy, command by command and view by view.

use futures::executor::block_on;
use proptest::prelude::*;
use proptest::strategy::ValueTree;
use proptest::test_runner::{RngAlgorithm, TestError, TestRng, TestRunner};
use qo_testkit::generator::{
    Script, answer_alike, bad_commands, bad_json, crowds, equal, flows, lines, minimal, scripts,
    something_to_lose, survives,
};
use qo_testkit::{Fixtures, MemoryFixtures, ToyFixtures};
use std::cell::Cell;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Once;

thread_local! {
    /// Whether a panic on this thread is a result, and not to be printed.
    static HUSHED: Cell<bool> = const { Cell::new(false) };
}

/// Runs a script on both. A panic is a difference too, so that a script that panics can be shrunk.
fn same(script: &Script) -> Result<(), String> {
    static HUSH: Once = Once::new();
    HUSH.call_once(|| {
        let loud = std::panic::take_hook();
        std::panic::set_hook(Box::new(move |panic| {
            if !HUSHED.get() {
                loud(panic);
            }
        }));
    });
    let both = || {
        block_on(async {
            equal(&ToyFixtures::default().fresh().await, &MemoryFixtures.fresh().await, script).await
        })
    };
    HUSHED.set(true);
    let same = catch_unwind(AssertUnwindSafe(both));
    HUSHED.set(false);
    same.unwrap_or_else(|panic| {
        let text = panic.downcast_ref::<String>().map(String::as_str);
        Err(format!("a panic: {}", text.or(panic.downcast_ref::<&str>().copied()).unwrap_or("without words")))
    })
}

/// The difference that the minimal failing script shows, and that script.
fn report(script: &Script) -> String {
    let least = minimal(script, |script| same(script).is_err());
    format!("{}\n{least:?}", same(&least).expect_err("it fails"))
}

/// A random source that is the same on every run.
fn runner(cases: u32, seed: u8) -> TestRunner {
    let config = ProptestConfig { cases, failure_persistence: None, ..ProptestConfig::default() };
    TestRunner::new_with_rng(config, TestRng::from_seed(RngAlgorithm::ChaCha, &[seed; 32]))
}

/// `CASES=20000 SEED=7 cargo test --test equality` runs more scripts.
fn from_env(name: &str) -> Option<u32> {
    std::env::var(name).ok()?.parse().ok()
}

fn all_are_equal(scripts: &impl Strategy<Value = Script>, cases: u32) {
    let seed = from_env("SEED").and_then(|seed| seed.try_into().ok()).unwrap_or(0);
    let run = runner(from_env("CASES").unwrap_or(cases), seed)
        .run(scripts, |script| same(&script).map_err(|_| TestCaseError::fail("they differ")));
    if let Err(TestError::Fail(_, script)) = run {
        panic!("{}", report(&script));
    }
}

#[test]
fn memory_equals_the_toy() {
    all_are_equal(&scripts(1..=120), 1_024);
}

#[test]
fn memory_equals_the_toy_in_a_crowd() {
    all_are_equal(&crowds(1..=60), 6_000);
}

#[test]
fn memory_equals_the_toy_in_long_lines() {
    all_are_equal(&lines(1..=16), 100);
}

#[test]
fn memory_equals_the_toy_in_workflows() {
    all_are_equal(&flows(1..=80), 1_000);
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 128, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn memory_survives_bad_json(texts in prop::collection::vec(bad_json(), 1..12)) {
        let commands: Vec<_> = texts.iter().filter_map(|text| serde_json::from_str(text).ok()).collect();
        let survived = block_on(async { survives(&MemoryFixtures.fresh().await, &commands).await });
        prop_assert_eq!(survived, Ok(()));
    }

    #[test]
    fn memory_answers_bad_commands_like_the_toy(commands in prop::collection::vec(bad_commands(), 1..20)) {
        let commands: Vec<_> = something_to_lose().into_iter().chain(commands).collect();
        let alike = block_on(async {
            answer_alike(&ToyFixtures::default().fresh().await, &MemoryFixtures.fresh().await, &commands).await
        });
        prop_assert_eq!(alike, Ok(()));
    }

    #[test]
    fn memory_survives_bad_commands(commands in prop::collection::vec(bad_commands(), 1..12)) {
        let survived = block_on(async { survives(&MemoryFixtures.fresh().await, &commands).await });
        prop_assert_eq!(survived, Ok(()));
    }
}

#[test]
fn memory_equals_the_toy_over_long_scripts() {
    for seed in 0..4 {
        let script = scripts(500..=500).new_tree(&mut runner(1, seed)).expect("a script").current();
        assert!(same(&script).is_ok(), "seed {seed}: {}", report(&script));
    }
}
