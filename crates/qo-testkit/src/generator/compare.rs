//! Comparing two stores by one script.

use super::{ConfigurationSpec, Entry, ExchangeStep, Script, Seen, Step, Views, look, script::ask};
use crate::Fixture;
use qo_core::{Command, JobId};
use std::fmt::Debug;
use uuid::Uuid;

/// Runs a script on both stores and shows the first difference: the step, the command, both answers.
pub async fn equal(expected: &Fixture, actual: &Fixture, script: &Script) -> Result<(), String> {
    let (expected, actual) = (script.run(expected).await, script.run(actual).await);
    let both = expected.entries.iter().zip(&actual.entries);
    for (expected, actual) in both {
        if expected != actual {
            return Err(difference(expected, actual, script));
        }
    }
    Ok(())
}

/// Sends the same commands to both stores. Answers and views must be the same after each.
pub async fn answer_alike(expected: &Fixture, actual: &Fixture, commands: &[Command]) -> Result<(), String> {
    let jobs: Vec<JobId> = (0..9).map(|n| JobId(Uuid::from_u128(n))).collect();
    for command in commands {
        let answers =
            (ask(&*expected.store, command.clone()).await, ask(&*actual.store, command.clone()).await);
        if answers.0 != answers.1 {
            let command: String = format!("{command:?}").chars().take(2_000).collect();
            return Err(format!("command: {command}\n{}", pair("answers", &answers.0, &answers.1)));
        }
        let seen = (look(&*expected.store, &jobs).await, look(&*actual.store, &jobs).await);
        if seen.0 != seen.1 {
            let command: String = format!("{command:?}").chars().take(2_000).collect();
            return Err(format!(
                "command: {command}\nafter it the views differ:\n{}",
                views(&seen.0, &seen.1)
            ));
        }
    }
    Ok(())
}

/// A minimal failing script: drops steps and jobs one by one, as long as it still fails without them.
pub fn minimal(script: &Script, fails: impl Fn(&Script) -> bool) -> Script {
    let mut least = script.clone();
    loop {
        let smaller = (0..least.steps.len()).rev().flat_map(|at| without(&least, at));
        match smaller.into_iter().find(&fails) {
            Some(smaller) => least = smaller,
            None => return least,
        }
    }
}

/// The script without one step; if that step has several parts, also the script without one of those.
fn without(script: &Script, at: usize) -> Vec<Script> {
    let mut shorter = script.clone();
    let mut all = Vec::new();
    match shorter.steps.remove(at) {
        Step::Submit(jobs) if jobs.len() > 1 => {
            for job in 0..jobs.len() {
                let mut fewer = jobs.clone();
                fewer.remove(job);
                let mut steps = script.steps.clone();
                steps[at] = Step::Submit(fewer);
                all.push(Script { steps });
            }
        }
        Step::Exchange(exchange) => {
            let fewer = [
                ExchangeStep { settles: Vec::new(), ..exchange.clone() },
                ExchangeStep { starts: Vec::new(), ..exchange.clone() },
                ExchangeStep { prefetch: None, ..exchange.clone() },
                ExchangeStep { reports: Vec::new(), ..exchange.clone() },
            ];
            for fewer in fewer.into_iter().filter(|fewer| *fewer != exchange) {
                let mut steps = script.steps.clone();
                steps[at] = Step::Exchange(fewer);
                all.push(Script { steps });
            }
        }
        Step::Configure(configuration) => {
            let fewer = [
                ConfigurationSpec { app: 0, ..configuration.clone() },
                ConfigurationSpec { limits: Vec::new(), ..configuration.clone() },
                ConfigurationSpec { priorities: Vec::new(), ..configuration.clone() },
                ConfigurationSpec { schedules: Vec::new(), ..configuration.clone() },
                ConfigurationSpec { retention: [None; 4], ..configuration.clone() },
            ];
            for fewer in fewer.into_iter().filter(|fewer| *fewer != configuration) {
                let mut steps = script.steps.clone();
                steps[at] = Step::Configure(fewer);
                all.push(Script { steps });
            }
        }
        _ => {}
    }
    all.insert(0, shorter);
    all
}

fn difference(expected: &Entry, actual: &Entry, script: &Script) -> String {
    let step = &script.steps[expected.step];
    let head = format!("step {} of {}: {step:?}", expected.step, script.steps.len());
    match (&expected.seen, &actual.seen) {
        (Seen::Views(expected), Seen::Views(actual)) => {
            format!("{head}\nafter it the views differ:\n{}", views(expected, actual))
        }
        _ => {
            let command = expected.command.as_ref();
            format!("{head}\ncommand: {command:?}\n{}", pair("answers", &expected.seen, &actual.seen))
        }
    }
}

/// Only the views that differ, and of lists only the rows that do.
fn views(expected: &Views, actual: &Views) -> String {
    let mut parts = Vec::new();
    if expected.now != actual.now {
        parts.push(pair("now", &expected.now, &actual.now));
    }
    rows("job", &expected.jobs, &actual.jobs, &mut parts);
    rows("explain", &expected.explanations, &actual.explanations, &mut parts);
    rows("group", &expected.group_details, &actual.group_details, &mut parts);
    fallible_rows("groups", &expected.groups, &actual.groups, &mut parts);
    rows("workflow", &expected.workflow_details, &actual.workflow_details, &mut parts);
    fallible_rows("workflows", &expected.workflows, &actual.workflows, &mut parts);
    fallible_rows("schedules", &expected.schedules, &actual.schedules, &mut parts);
    fallible_rows("configurations", &expected.configurations, &actual.configurations, &mut parts);
    fallible_rows("pushes", &expected.pushes, &actual.pushes, &mut parts);
    fallible_rows("tokens", &expected.tokens, &actual.tokens, &mut parts);
    fallible_rows("audit", &expected.audit, &actual.audit, &mut parts);
    fallible_rows("queues", &expected.queues, &actual.queues, &mut parts);
    fallible_rows("workers", &expected.workers, &actual.workers, &mut parts);
    if expected.over != actual.over {
        parts.push(pair("over", &expected.over, &actual.over));
    }
    rows("work", &expected.work, &actual.work, &mut parts);
    rows("listing", &expected.listings, &actual.listings, &mut parts);
    parts.truncate(4);
    parts.join("\n")
}

fn fallible_rows<T: PartialEq + Debug, E: PartialEq + Debug>(
    what: &str,
    expected: &Result<Vec<T>, E>,
    actual: &Result<Vec<T>, E>,
    parts: &mut Vec<String>,
) {
    match (expected, actual) {
        (Ok(expected), Ok(actual)) => rows(what, expected, actual, parts),
        _ if expected == actual => {}
        _ => parts.push(pair(what, expected, actual)),
    }
}

fn rows<T: PartialEq + Debug>(what: &str, expected: &[T], actual: &[T], parts: &mut Vec<String>) {
    for at in 0..expected.len().max(actual.len()) {
        let (expected, actual) = (expected.get(at), actual.get(at));
        if expected != actual {
            parts.push(pair(&format!("{what}[{at}]"), &expected, &actual));
        }
    }
}

fn pair(what: &str, expected: &impl Debug, actual: &impl Debug) -> String {
    format!("{what}\n  expected: {expected:?}\n    actual: {actual:?}")
}
