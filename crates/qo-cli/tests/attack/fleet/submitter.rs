//! Submits files of jobs and records what was acknowledged. Some submits are killed on the way.

use super::attacker::Fault;
use super::plan::{Again, Job, Plan};
use super::stage::{Stage, pause};
use qo_testkit::random::Random;
use serde_json::Value;
use std::process::Stdio;
use std::time::Duration;

/// Most jobs that wait: the rest must be done within seconds after the attack.
const BACKLOG: usize = 50;
/// Tries of one submit, about one in a tenth of a second, or as long as `qo submit` itself tries.
const TRIES: usize = 100;

/// Submits until the attack is over, as one of several.
pub fn submit(stage: &Stage, mut dice: Random, first: u64, stride: u64) {
    let (mut plan, name) = (Plan::new(dice.fork(), first, stride), format!("batch-{first}"));
    while stage.pace.rest(Duration::from_millis(dice.within(20..=200))) {
        if stage.open().len() < BACKLOG {
            let (again, jobs) = plan.batch();
            submit_batch(stage, &mut dice, &name, again, jobs);
        }
    }
}

fn submit_batch(stage: &Stage, dice: &mut Random, name: &str, again: Again, jobs: Vec<Job>) {
    let file = format!("{name}.ndjson");
    let lines: String = jobs.iter().map(|job| format!("{}\n", job.line)).collect();
    stage.here.write(&file, &lines);
    // Recorded before it is sent: a job may run before its submit is acknowledged.
    stage.ledger().jobs.extend(jobs.iter().map(|job| (job.number, job.clone())));
    for _ in 0..TRIES {
        match attempt(stage, dice, &file) {
            Some(outcomes) => {
                let mut ledger = stage.ledger();
                for (job, outcome) in jobs.iter().zip(&outcomes) {
                    match outcome["outcome"].as_str() {
                        Some("accepted" | "existing") => ledger.acknowledged.insert(job.number),
                        _ => ledger.refused.insert(job.number),
                    };
                }
                return;
            }
            None if again == Again::Never => return,
            None => pause(Duration::from_millis(50)),
        }
    }
    stage.complain(Some(format!("a submit had no answer in {TRIES} tries: {lines}")));
}

/// One try: the outcome of each line; none if it is unknown.
fn attempt(stage: &Stage, dice: &mut Random, file: &str) -> Option<Vec<Value>> {
    let mut command = stage.command(&["submit", "--file", file, "--json"]);
    if dice.percent(10) && stage.set_wrong_clock(&mut command, dice) {
        stage.ledger().count(Fault::WrongClock);
    }
    let mut child = command.stdout(Stdio::piped()).spawn().expect("qo starts");
    if dice.percent(10) {
        pause(Duration::from_millis(dice.within(5..=80)));
        let _ = child.kill();
        stage.ledger().count(Fault::KillSubmit);
    }
    let output = child.wait_with_output().expect("it ends");
    let said = String::from_utf8_lossy(&output.stderr);
    match output.status.code() {
        Some(0) => Some(serde_json::from_slice(&output.stdout).expect("an array")),
        // Killed, or the store is away.
        None | Some(75) => None,
        code => {
            stage.complain(Some(format!("a submit ended with {code:?}: {said}")));
            None
        }
    }
}
