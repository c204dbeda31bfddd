//! An explanation in words: a reason as a sentence, and what to do about it. Terminals, the page and programs show the
//! same text.

use crate::{GroupRef, HeldBy, Holder, JobId, JobState, Name, Reason, StepStatus, Time, caps};

/// How a text shows moments and lengths of time.
pub trait Moments {
    /// A moment, and how far away it is: `2026-11-15 16:41:02 (3m ago)`.
    fn full(&self, time: Time) -> String;
    /// How far away a moment is: `3m ago`, `in 2h`, `now`.
    fn away(&self, time: Time) -> String;
    /// How old something is that began at a moment: `3m`.
    fn age(&self, time: Time) -> String;
}

/// How many there are of something: `1 job`, `2 jobs`.
pub fn counted(count: u64, what: &str) -> String {
    if count == 1 { format!("1 {what}") } else { format!("{count} {what}s") }
}

/// The name of a state: `pending`, `running`, `failed`.
pub fn state_name(state: JobState) -> &'static str {
    match state {
        JobState::Pending => "pending",
        JobState::Claimed => "claimed",
        JobState::Running => "running",
        JobState::Succeeded => "succeeded",
        JobState::Failed => "failed",
        JobState::Cancelled => "cancelled",
        JobState::Expired => "expired",
    }
}

/// A reason in a sentence, and what to do about it. `worker` is the command that starts a worker for a task.
pub fn told(
    reason: &Reason,
    job: JobId,
    times: &impl Moments,
    worker: impl Fn(&Name) -> String,
) -> (String, Option<String>) {
    let Reason::NoLiveWorker { queue, task } = reason else { return sentences(reason, job, times) };
    let why = format!("No live worker has task {task} and serves queue {queue}.");
    (why, Some(format!("start one: {}; see the live workers: qo workers", worker(task))))
}

/// A reason in a sentence, and what to do about it.
fn sentences(reason: &Reason, job: JobId, times: &impl Moments) -> (String, Option<String>) {
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
fn not_runnable_yet(reason: &Reason, job: JobId, times: &impl Moments) -> (String, Option<String>) {
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

fn held_by(holders: &[Holder], used: u64, times: &impl Moments) -> String {
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
