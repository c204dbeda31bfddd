//! `qo explain`: why is my job not running?

use super::argument::{self, state_name};
use crate::cli::Format;
use crate::output::{self, Screen, Style, Times, clean, counted};
use crate::place::{Place, SPEAK, times};
use crate::trouble::{Done, Trouble};
use clap::Args;
use qo::core::{GroupRef, HeldBy, Holder, JobDetail, JobId, JobState, Name, Reason, StepStatus, caps};

/// Say why a job is not running, and what to do about it.
#[derive(Debug, Args)]
#[command(
    after_help = "Examples:\n  qo explain 019a8a5e-7c1b-7a10-9d43-3e2a6f0c9b11\n  qo explain JOB --json"
)]
pub struct Explain {
    /// The job's id.
    #[arg(value_parser = argument::job)]
    job: JobId,
    #[command(flatten)]
    format: Format,
}

impl Explain {
    /// Explains.
    pub async fn run(self, place: &Place, screen: &mut Screen) -> Done {
        let store = place.open_existing().await?;
        let found = store.explain(self.job).await;
        let explanation = found.map_err(|error| {
            Trouble::from(error).hint("`qo jobs list` shows the jobs that are remembered")
        })?;
        if self.format.json {
            return screen.json(&output::explanation(&explanation));
        }
        let times = times(&store).await?;
        let detail = store.job(self.job).await?;
        let state = screen.styled(state_name(explanation.state), Style::Strong);
        screen.line(format_args!("job {} ({}) is {state}.", self.job, detail.view.task))?;
        if explanation.reasons.is_empty() {
            screen.line(settled(&detail, &times))?;
            return match gone(&detail, &times) {
                Some(advice) => screen.line(screen.styled(&format!("  → {advice}"), Style::Dim)),
                None => Ok(()),
            };
        }
        for reason in &explanation.reasons {
            let worker = |task: &Name| place.worker_for(task);
            let (why, advice) = told(reason, self.job, &times, worker);
            screen.line(format_args!("- {why}"))?;
            if let Some(advice) = advice {
                screen.line(screen.styled(&format!("  → {advice}"), Style::Dim))?;
            }
        }
        let by_cluster =
            |reason: &Reason| matches!(reason, Reason::HeldByLimitZero { group: GroupRef::Cluster });
        if explanation.reasons.iter().any(by_cluster)
            && let Some(hold) = place.hold(&store).await?
        {
            screen.line(format_args!("- the namespace is {hold}"))?;
            screen.line(screen.styled(&format!("  → {SPEAK}"), Style::Dim))?;
        }
        Ok(())
    }
}

/// What to do if the worker of a running job is gone: its lease is over, and no command has ended it yet.
fn gone(detail: &JobDetail, times: &Times) -> Option<String> {
    let run = detail.view.running.as_ref()?;
    let advice = "its worker is gone, and its lease is over: the next worker that claims ends it; start one";
    times.has_passed(run.lease_until).then(|| advice.to_owned())
}

/// A reason in a sentence, and what to do about it. `worker` is the command that starts a worker for a task.
pub fn told(
    reason: &Reason,
    job: JobId,
    times: &Times,
    worker: impl Fn(&Name) -> String,
) -> (String, Option<String>) {
    let Reason::NoLiveWorker { queue, task } = reason else { return sentences(reason, job, times) };
    let why = format!("No live worker has task {task} and serves queue {queue}.");
    (why, Some(format!("start one: {}; see the live workers: qo workers", worker(task))))
}

/// The answer for a job that runs or has ended.
fn settled(detail: &JobDetail, times: &Times) -> String {
    let view = &detail.view;
    let ended = view.finished_at.map(|at| times.full(at)).unwrap_or_default();
    let last = detail.attempts.iter().rev().find_map(|attempt| attempt.error.as_ref());
    // A program wrote it: it must not steer the terminal.
    let lines = |error: &str| error.trim_end().lines().map(clean).collect::<Vec<_>>().join("\n");
    let last = last.map(|error| format!(" Its last error: {}", lines(error.as_str()))).unwrap_or_default();
    match (view.state, &view.running) {
        (_, Some(run)) => {
            let cancel = if view.cancel_requested { " It was asked to stop." } else { "" };
            format!(
                "It runs on {} for {}; attempt {} of {}, fence token {}.{cancel}",
                run.worker,
                times.age(run.since),
                view.attempts_used + 1,
                view.max_attempts,
                run.token
            )
        }
        (JobState::Succeeded, _) => format!("It succeeded at {ended}."),
        (JobState::Failed, _) => {
            format!(
                "It failed at {ended} after {}.{last}\n  → try it again: qo jobs retry {}",
                counted(view.attempts_used.into(), "attempt"),
                view.id
            )
        }
        (JobState::Cancelled, _) => {
            format!("It was cancelled at {ended}.\n  → open it again: qo jobs retry {}", view.id)
        }
        (JobState::Expired, _) => {
            format!(
                "It was not started in time and expired at {ended}.\n  → open it again: qo jobs retry {}",
                view.id
            )
        }
        _ => String::new(),
    }
}

/// A reason in a sentence, and what to do about it.
fn sentences(reason: &Reason, job: JobId, times: &Times) -> (String, Option<String>) {
    match reason {
        Reason::HeldByLimitZero { group } => (
            format!("The limit of {group} is 0, which holds everything."),
            Some(format!(
                "qo concurrency set {group} --limit N, or take an operator's 0 back: qo concurrency unset {group}"
            )),
        ),
        Reason::CanNeverRun { group, cost, limit } => (
            format!("It asks for {} of {group}, which has only {limit}: it can never run.", slots(*cost)),
            Some(format!("qo concurrency set {group} --limit {cost}, or cancel it")),
        ),
        Reason::GroupFull { group, used, limit, cost, holders, position } => (
            full(group, *used, *limit, *cost, *position) + &held_by(holders, *used, times),
            Some(format!(
                "raise the limit: qo concurrency set {group} --limit N; see what holds it: qo concurrency status {group}"
            )),
        ),
        Reason::ReservedFor { group, job } => (
            format!(
                "The free slots of {group} are reserved for job {job}, which asks for many and comes first."
            ),
            Some(format!("qo explain {job}")),
        ),
        Reason::WorkersBusy { saturated, draining } => (
            busy(*saturated, *draining),
            Some("start another worker, or raise --max-concurrent-tasks; see them: qo workers".into()),
        ),
        Reason::OnlyWaitingForClaim { position } => (
            format!(
                "Nothing holds it back: it is {} in line and waits for the next claim.",
                place(*position)
            ),
            None,
        ),
        _ => not_runnable_yet(reason, job, times),
    }
}

/// The reasons that have to do with dates, queues and order.
fn not_runnable_yet(reason: &Reason, job: JobId, times: &Times) -> (String, Option<String>) {
    match reason {
        Reason::ScheduledUntil { run_at } => {
            (format!("Its date has not come: it may start at {}.", times.full(*run_at)), None)
        }
        Reason::RetryAt { run_at } => (
            format!("It waits for its next attempt, at {}.", times.full(*run_at)),
            Some(format!("run it now: qo jobs retry {job}; the errors of its attempts: qo jobs show {job}")),
        ),
        Reason::Expired { good_until } => (
            format!(
                "It was good until {} and expires with the next claim or sweep.",
                times.full(*good_until)
            ),
            None,
        ),
        Reason::QueuePaused { queue } => {
            (format!("Its queue {queue} is paused."), Some(format!("qo queues resume {queue}")))
        }
        Reason::WaitingForStep { workflow, waits_for } => (
            format!("It waits for {} of workflow {workflow}.", step(waits_for)),
            Some(format!("qo explain {}", waits_for.job)),
        ),
        Reason::WorkflowHalted { workflow, halted_by } => (
            format!("Its workflow {workflow} is halted by {}.", step(halted_by)),
            Some(format!("qo workflows retry {workflow}, or skip it: qo workflows skip {workflow}")),
        ),
        Reason::ClaimedByPrefetch { worker, claim_until, .. } => (
            format!(
                "Worker {worker} has claimed it ahead of time and starts it when there is room, or gives it back {}.",
                times.away(*claim_until)
            ),
            None,
        ),
        // `sentences` handles the others.
        other => (format!("{other:?}"), None),
    }
}

fn step(step: &StepStatus) -> String {
    format!("step {} ({}, job {})", step.step, state_name(step.state), step.job)
}

fn place(position: u32) -> String {
    if position >= caps::POSITION {
        format!("number {} or later", caps::POSITION)
    } else {
        format!("number {position}")
    }
}

fn full(group: &GroupRef, used: u64, limit: u32, cost: u32, position: u32) -> String {
    let place = place(position);
    match u64::from(limit).saturating_sub(used) {
        0 => {
            let needs = if cost == 1 { String::new() } else { format!(", and it needs {cost}") };
            let taken = if limit == 1 { "its slot is taken" } else { "slots are taken" };
            let taken = if limit == 1 { taken.to_owned() } else { format!("{used} of {limit} {taken}") };
            format!("Group {group} is full: {taken}{needs}. It is {place} in line.")
        }
        free => format!(
            "Group {group} has too few free slots: {free} of {limit} {} free, and it needs {cost}. It is {place} in line.",
            if free == 1 { "is" } else { "are" }
        ),
    }
}

/// A number of slots.
fn slots(count: u32) -> String {
    counted(count.into(), "slot")
}

fn held_by(holders: &[Holder], used: u64, times: &Times) -> String {
    if holders.is_empty() {
        return String::new();
    }
    let one = |holder: &Holder| {
        let by = match &holder.by {
            HeldBy::Job { job, task, .. } => format!("job {job} ({task})"),
            HeldBy::Program { .. } => "a program".into(),
        };
        format!("\n    {by} on {}, {}, for {}", holder.worker, slots(holder.slots), times.age(holder.since))
    };
    let shown: u64 = holders.iter().map(|holder| u64::from(holder.slots)).sum();
    let more = if used > shown { "\n    and others" } else { "" };
    format!(" Its slots are held by:{}{more}", holders.iter().map(one).collect::<String>())
}

fn busy(saturated: u32, draining: u32) -> String {
    match (saturated, draining) {
        (1, 0) => "The only worker that has its task is saturated.".into(),
        (0, 1) => "The only worker that has its task is draining.".into(),
        (saturated, 0) => format!("All {saturated} workers that have its task are saturated."),
        (0, draining) => format!("All {draining} workers that have its task are draining."),
        (saturated, draining) => {
            format!(
                "Of the workers that have its task {saturated} are saturated and {draining} are draining."
            )
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_full_group_is_told_from_one_with_too_few_free_slots() {
        let group = GroupRef::parse("group", "gpu").expect("a group");
        assert_eq!(full(&group, 1, 1, 1, 2), "Group gpu is full: its slot is taken. It is number 2 in line.");
        assert!(full(&group, 3, 3, 1, 1).starts_with("Group gpu is full: 3 of 3 slots are taken. It"));
        let too_few =
            "Group gpu has too few free slots: 2 of 3 are free, and it needs 3. It is number 1 in line.";
        assert_eq!(full(&group, 1, 3, 3, 1), too_few);
        assert!(full(&group, 2, 3, 2, 1).contains("1 of 3 is free, and it needs 2"));
        assert_eq!((slots(1), slots(2)), ("1 slot".into(), "2 slots".into()));
    }
}
