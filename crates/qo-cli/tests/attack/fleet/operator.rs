//! The operator, which lowers limits and restores them, and pauses a queue, while the faults go on.

use super::ledger::START_SLACK;
use super::plan;
use super::stage::{Stage, pause};
use qo_judge::{Change, now_ns};
use qo_testkit::random::Random;
use std::time::Duration;

/// The changes. No limit is ever above that of the plan.
const CHANGES: [(&str, &[u32]); 4] =
    [("gpu", &[2, 0]), ("db", &[2]), ("queue:slow", &[0]), ("cluster", &[5])];
/// Tries until a change must have been acknowledged.
const TRIES: usize = 200;

/// Changes limits until the attack is over. The limits of the plan are in force when it returns.
pub fn operate(stage: &Stage, mut dice: Random) {
    let mut last: Option<&str> = None;
    // A change takes effect once the jobs that were claimed before it have started: the judge waits for a lease.
    let hold = stage.lease + START_SLACK;
    while stage.pace.rest(Duration::from_millis(dice.within(300..=900))) {
        let (group, limits) = dice.pick(&CHANGES);
        change(stage, group, dice.pick(limits));
        last = Some(group);
        if !stage.pace.rest(hold + Duration::from_millis(dice.within(500..=3_000))) {
            break;
        }
        change(stage, group, plan::limit(group));
        last = None;
    }
    if let Some(group) = last {
        change(stage, group, plan::limit(group));
    }
}

fn change(stage: &Stage, group: &str, limit: u32) {
    let (from, text) = (now_ns(), limit.to_string());
    // A limit of 0 for a queue stands for a pause.
    let arguments = match (group.strip_prefix("queue:"), limit) {
        (Some(queue), 0) => vec!["queues", "pause", queue],
        (Some(queue), _) => vec!["queues", "resume", queue],
        (None, _) => vec!["concurrency", "set", group, "--limit", &text],
    };
    // It may be in force before it is acknowledged.
    let asked = Change { from, until: u64::MAX, limit };
    stage.ledger().changes.entry(group.to_owned()).or_default().push(asked);
    for _ in 0..TRIES {
        let ran = stage.qo(&arguments);
        if ran.code == 0 {
            let mut ledger = stage.ledger();
            let changes = ledger.changes.get_mut(group).and_then(|changes| changes.last_mut());
            changes.expect("it was noted").until = now_ns();
            return;
        }
        let fine = ran.code == 75;
        stage.complain((!fine).then(|| format!("{arguments:?} ended with {}: {}", ran.code, ran.err)));
        pause(Duration::from_millis(50));
    }
    stage.complain(Some(format!("{arguments:?} was not acknowledged in {TRIES} tries")));
}
