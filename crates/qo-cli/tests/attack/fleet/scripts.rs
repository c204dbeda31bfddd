//! Scripts that take slots of a group beside its jobs, with `qo slot run`. Some are killed, some are stopped past their
//! lease.

use super::attacker::Fault;
use super::plan::{Job, SCRIPTS};
use super::probe::{self, DIARY, Orders, WORKER};
use super::process::signal;
use super::stage::{Stage, pause};
use qo_testkit::random::Random;
use rustix::process::Signal;
use serde_json::Value;
use std::fs::File;
use std::io::Write;
use std::process::{Child, Stdio};
use std::time::{Duration, Instant};

/// Longest that a script may take. It waits for its slot for a third of that.
const PATIENCE: Duration = Duration::from_secs(60);

/// Runs one script after another until the attack is over.
pub fn run(stage: &Stage, mut dice: Random) {
    let mut number = SCRIPTS;
    while stage.pace.rest(Duration::from_millis(dice.within(50..=500))) {
        number += 1;
        let slots = dice.within(1..=2);
        let needs = vec![("db".to_owned(), slots as u32)];
        let job = Job { number, needs, workflow: None, line: Value::Null };
        stage.ledger().jobs.insert(number, job);
        let orders = Orders { number, ms: dice.within(50..=400), ..Orders::default() };
        let mut script = start(stage, slots, orders);
        pause(Duration::from_millis(dice.within(30..=500)));
        match dice.below(3) {
            0 => {
                let _ = script.kill();
                stage.ledger().count(Fault::KillScript);
            }
            1 => {
                signal(script.id(), Signal::STOP);
                pause(stage.lease + Duration::from_millis(dice.within(200..=900)));
                signal(script.id(), Signal::CONT);
                stage.ledger().count(Fault::StopScript);
            }
            _ => {}
        }
        end(stage, script, number);
    }
}

fn start(stage: &Stage, slots: u64, orders: Orders) -> Child {
    let (lease, slots) = (format!("{}s", stage.lease.as_secs()), slots.to_string());
    let wait = format!("{}s", PATIENCE.as_secs() / 3);
    let taking =
        ["slot", "run", "--group", "db", "--slots", &slots, "--lease", &lease, "--wait", &wait, "--"];
    let mut command = stage.command(&taking);
    command.args(probe::command()).env(DIARY, stage.diary.path()).env(WORKER, "0");
    let said = File::create(stage.here.path("script.log")).expect("a log");
    let mut script =
        command.stdin(Stdio::piped()).stdout(Stdio::null()).stderr(said).spawn().expect("qo starts");
    let text = serde_json::to_string(&orders).expect("JSON");
    // A script that has ended already does not read it.
    let _ = script.stdin.take().expect("a pipe").write_all(text.as_bytes());
    script
}

/// Waits for its end.
fn end(stage: &Stage, mut script: Child, number: u64) {
    let started = Instant::now();
    let said = || std::fs::read_to_string(stage.here.path("script.log")).unwrap_or_default();
    while started.elapsed() < PATIENCE {
        if let Some(status) = script.try_wait().expect("a child") {
            // Done; no slot in time; the store was away or the lease was lost; killed with its lease.
            let fine = matches!(status.code(), None | Some(0 | 4 | 75 | 137));
            stage.complain((!fine).then(|| format!("script {number} ended with {status}: {}", said())));
            return;
        }
        pause(Duration::from_millis(10));
    }
    let _ = script.kill();
    let _ = script.wait();
    stage.complain(Some(format!("script {number} did not end within {PATIENCE:?}: {}", said())));
}
