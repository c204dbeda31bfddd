//! The generator makes meaningful commands, and stores survive all of them.

use futures::executor::block_on;
use proptest::prelude::*;
use proptest::strategy::ValueTree;
use proptest::test_runner::{RngAlgorithm, TestRng, TestRunner};
use qo_core::{Answer, Command, ErrorKind, JobId, JobState, Reason, TickOutcome, WorkflowState, default_app};
use qo_testkit::generator::{
    Entry, Script, Seen, Transcript, Views, bad_commands, bad_json, crowds, scripts, survives, text_survives,
};
use qo_testkit::{Fixtures, ToyFixtures};
use std::collections::BTreeMap;

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

/// A generator that only makes errors tests nothing.
#[test]
fn most_commands_are_meaningful() {
    let (mut claimed, mut settled, mut fenced, mut stops, mut asked, mut refused) = (0, 0, 0, 0, 0, 0);
    for seed in 0..20 {
        for entry in run(&script(seed, 100)).entries {
            let Seen::Answer(answer) = entry.seen else { continue };
            asked += 1;
            refused += usize::from(answer.is_err());
            if let Ok(Answer::Exchanged(reply)) = answer {
                claimed += reply.claimed.len() + reply.started.iter().filter(|start| start.is_ok()).count();
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

type Tally = BTreeMap<&'static str, usize>;

/// What an answer shows of the newer rules.
fn tally_answer(command: &Command, answer: &Result<Answer, ErrorKind>, tally: &mut Tally) {
    let mut add = |what, count| *tally.entry(what).or_default() += count;
    match (command, answer) {
        (_, Ok(Answer::Exchanged(reply))) => {
            add("claimed ahead", reply.prefetched.len());
            let then = |state| {
                let started = reply.started.iter().filter_map(|started| started.as_ref().ok());
                started.filter(|started| started.then == state).count()
            };
            add("started", then(JobState::Running));
            add("parked", then(JobState::Pending));
            add("expired at start", then(JobState::Expired));
            add("start fenced", reply.started.iter().filter(|started| started.is_err()).count());
        }
        (_, Ok(Answer::Swept(swept))) => {
            add("fired by a sweep", swept.fired as usize);
            add("claims over", swept.claims as usize);
            add("leases over", swept.slots as usize);
            add("forgotten", swept.forgotten as usize);
        }
        (_, Ok(Answer::Changed(changed))) => {
            add("changed in bulk", changed.jobs as usize);
            add("bulk goes on", usize::from(changed.next.is_some()));
        }
        (_, Ok(Answer::Acquired(Some(_)))) => add("program granted", 1),
        (_, Ok(Answer::Acquired(None))) => add("program refused", 1),
        (Command::AcquireSlots(_), Err(ErrorKind::Conflict)) => add("program in conflict", 1),
        (Command::ExtendSlots { .. }, Ok(_)) => add("extended", 1),
        (Command::ExtendSlots { .. } | Command::ReturnSlots(..), Err(_)) => add("program fenced", 1),
        (Command::ReturnSlots(..), Ok(_)) => add("returned", 1),
        (Command::SteerWorkflow(..), Ok(_)) => add("steered", 1),
        (Command::SteerWorkflow(..), Err(ErrorKind::Conflict)) => add("not halted", 1),
        (Command::TriggerSchedule(..), Ok(_)) => add("triggered", 1),
        (Command::TriggerSchedule(..), Err(ErrorKind::LimitReached)) => add("trigger refused", 1),
        (Command::Configure(configuration), Ok(Answer::Pushed(pushed))) => {
            let of_another = configuration.app != default_app() && !pushed.changes.is_empty();
            add("pushed by another app", usize::from(of_another));
        }
        (Command::Retry(_), Ok(Answer::Retried(states))) => {
            add("retried", states.iter().filter(|state| **state == Ok(JobState::Pending)).count());
        }
        _ => {}
    }
}

fn tally_views(views: &Views, tally: &mut Tally) {
    let mut add = |what, count| *tally.entry(what).or_default() += count;
    for workflow in views.workflows.as_ref().expect("a listing") {
        match workflow.state {
            WorkflowState::Active => add("active", 1),
            WorkflowState::Halted => add("halted", 1),
            WorkflowState::Finished => add("finished", 1),
            WorkflowState::Cancelled => add("workflow cancelled", 1),
        }
    }
    for last in views.schedules.as_ref().expect("a listing").iter().filter_map(|row| row.last.as_ref()) {
        match last.outcome {
            TickOutcome::Accepted(_) => add("tick accepted", 1),
            TickOutcome::Existing(_) => add("tick existing", 1),
            TickOutcome::Skipped => add("tick skipped", 1),
            TickOutcome::Refused(_) => add("tick refused", 1),
        }
    }
    let explanations = views.explanations.iter().filter_map(|explained| explained.as_ref().ok());
    for reason in explanations.flat_map(|explanation| &explanation.reasons) {
        match reason {
            Reason::WaitingForStep { waits_for, .. } if waits_for.state == JobState::Running => {
                add("waits for a running step", 1);
            }
            Reason::WaitingForStep { .. } => add("waits for a step", 1),
            Reason::WorkflowHalted { .. } => add("waits for an operator", 1),
            Reason::ClaimedByPrefetch { .. } => add("claimed", 1),
            Reason::ReservedFor { .. } => add("kept for a big job", 1),
            _ => {}
        }
    }
    let over = views.over.as_ref().expect("a listing");
    add("views with a session over", usize::from(!over.sessions.is_empty()));
    add("views with a lease over", usize::from(!over.leases.is_empty()));
    let jobs = views.jobs.iter().filter_map(|job| job.as_ref().ok());
    add("skipped steps", jobs.filter(|job| job.view.skipped).count());
}

/// Jobs that were retried although they had not ended: one that is opened again has used no attempts.
fn tally_hurried(retried: &mut Vec<JobId>, views: &Views, tally: &mut Tally) {
    let jobs = views.jobs.iter().filter_map(|job| job.as_ref().ok());
    let hurried = jobs.filter(|job| {
        retried.contains(&job.view.id) && job.view.state == JobState::Pending && job.view.attempts_used > 0
    });
    *tally.entry("hurried").or_default() += hurried.count();
    retried.clear();
}

fn tally(scripts: impl Iterator<Item = Script>) -> Tally {
    let mut tally = Tally::new();
    let mut retried = Vec::new();
    for Entry { command, seen, .. } in scripts.flat_map(|script| run(&script).entries) {
        match (command, seen) {
            (Some(command), Seen::Answer(answer)) => {
                tally_answer(&command, &answer, &mut tally);
                if let Command::Retry(jobs) = command {
                    retried.extend(jobs);
                }
            }
            (_, Seen::Views(views)) => {
                tally_views(&views, &mut tally);
                tally_hurried(&mut retried, &views, &mut tally);
            }
            _ => {}
        }
    }
    tally
}

#[track_caller]
fn each_at_least(tally: &Tally, least: &[(&'static str, usize)]) {
    let count = |what| tally.get(what).copied().unwrap_or(0);
    let rare: Vec<_> = least.iter().filter(|(what, least)| count(what) < *least).collect();
    assert!(rare.is_empty(), "too rare: {rare:?}\nof {tally:#?}");
}

/// A rule that no script reaches is not tested by them.
#[test]
fn scripts_come_to_the_newer_rules() {
    let tally = tally((0..=255).map(|seed| script(seed, 200)));
    let often = [
        "claimed ahead",
        "started",
        "parked",
        "start fenced",
        "claims over",
        "leases over",
        "forgotten",
        "program granted",
        "program refused",
        "program fenced",
        "extended",
        "returned",
        "changed in bulk",
        "bulk goes on",
        "retried",
        "steered",
        "not halted",
        "active",
        "halted",
        "finished",
        "workflow cancelled",
        "skipped steps",
        "waits for a step",
        "waits for a running step",
        "waits for an operator",
        "claimed",
        "tick accepted",
        "tick skipped",
        "fired by a sweep",
        "triggered",
        "trigger refused",
        "pushed by another app",
        "views with a session over",
        "views with a lease over",
        "hurried",
    ];
    let rare = ["expired at start", "program in conflict", "tick refused"];
    each_at_least(&tally, &often.map(|what| (what, 10)));
    each_at_least(&tally, &rare.map(|what| (what, 1)));
}

#[test]
fn crowds_come_to_starts_beside_big_jobs_steps_and_programs() {
    let crowd = |seed: u8| {
        let rng = TestRng::from_seed(RngAlgorithm::ChaCha, &[seed; 32]);
        let mut runner = TestRunner::new_with_rng(ProptestConfig::default(), rng);
        crowds(60..=60).new_tree(&mut runner).expect("a script").current()
    };
    let often = [
        "claimed ahead",
        "started",
        "parked",
        "kept for a big job",
        "waits for a step",
        "waits for a running step",
        "program granted",
        "program refused",
    ];
    each_at_least(&tally((0..120).map(crowd)), &often.map(|what| (what, 10)));
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
