//! The generator means something, and stores survive what it makes.

use futures::executor::block_on;
use proptest::prelude::*;
use proptest::strategy::ValueTree;
use proptest::test_runner::{RngAlgorithm, TestRng, TestRunner};
use qo_core::{Answer, Command};
use qo_testkit::generator::{
    Script, Seen, Transcript, bad_commands, bad_json, scripts, survives, text_survives,
};
use qo_testkit::{Fixtures, ToyFixtures};

/// The n-th random script, the same on every run.
fn script(seed: u8, length: usize) -> Script {
    let rng = TestRng::from_seed(RngAlgorithm::ChaCha, &[seed; 32]);
    let mut runner = TestRunner::new_with_rng(ProptestConfig::default(), rng);
    scripts(length..=length).new_tree(&mut runner).expect("a script").current()
}

fn run(script: &Script) -> Transcript {
    block_on(async { script.run(&ToyFixtures::default().fresh().await).await })
}

#[test]
fn a_script_gives_the_same_transcript_every_time() {
    let script = script(1, 120);
    assert_eq!(run(&script), run(&script));
}

/// A generator that only makes errors proves nothing.
#[test]
fn most_commands_are_meaningful() {
    let (mut claimed, mut settled, mut fenced, mut stops, mut asked, mut refused) = (0, 0, 0, 0, 0, 0);
    for seed in 0..20 {
        for entry in run(&script(seed, 100)).entries {
            let Seen::Answer(answer) = entry.seen else { continue };
            asked += 1;
            refused += usize::from(answer.is_err());
            if let Ok(Answer::Exchanged(reply)) = answer {
                claimed += reply.claimed.len();
                settled += reply.settled.iter().filter(|result| result.is_ok()).count();
                fenced += reply.settled.iter().filter(|result| result.is_err()).count();
                stops += reply.stop.len();
            }
        }
    }
    let counts = format!(
        "{asked} asked, {refused} refused, {claimed} claimed, {settled} settled, {fenced} fenced, {stops} stops"
    );
    assert!(refused * 2 < asked && claimed > 200 && settled > 100 && fenced > 20 && stops > 5, "{counts}");
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 128, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn bad_commands_change_nothing(commands in prop::collection::vec(bad_commands(), 1..12)) {
        let survived = block_on(async { survives(&ToyFixtures::default().fresh().await, &commands).await });
        prop_assert_eq!(survived, Ok(()));
    }

    #[test]
    fn bad_json_is_refused_or_a_command(texts in prop::collection::vec(bad_json(), 1..12)) {
        let commands: Vec<Command> = texts.iter().filter_map(|text| serde_json::from_str(text).ok()).collect();
        let survived = block_on(async { survives(&ToyFixtures::default().fresh().await, &commands).await });
        prop_assert_eq!(survived, Ok(()));
    }

    #[test]
    fn any_text_is_taken_as_it_is_or_refused(text in prop_oneof![".*", "[a-z/:*\u{0}\" ]{0,9}", "[a-z]{100,300}"]) {
        prop_assert_eq!(text_survives(&text), Ok(()));
    }
}
