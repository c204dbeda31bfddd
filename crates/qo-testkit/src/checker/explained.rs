//! `explain` (contract §10) must give exactly the reasons that follow from the ledger.

use super::ledger::{Counted, Job, Ledger};
use super::{Objections, Violation, Watch, read};
use crate::history::{Entry, History, What};
use qo_core::{Explanation, GroupRef, JobState, Name, Reason, SessionId, StepStatus, Time};
use std::collections::BTreeSet;

/// Watches explanations.
#[derive(Debug, Default)]
pub struct Explained;

/// Explanations with a reason too many or too few.
pub fn check(history: &History) -> Vec<Violation> {
    read(history, &mut [&mut Explained])
}

impl Watch for Explained {
    fn entry(&mut self, books: &Ledger, entry: &Entry, objections: &mut Objections) {
        let What::Audited(audit) = &entry.what else { return };
        let foreseen = books.foresee();
        for explanation in &audit.explanations {
            let Some(index) = books.find(explanation.job) else { continue };
            let (stored, books) = (books, books.shown(&foreseen, index));
            let given: BTreeSet<String> =
                explanation.reasons.iter().filter_map(|reason| named(reason, &books.jobs[index])).collect();
            let would_end = foreseen.jobs[index].state != stored.jobs[index].state
                && foreseen.jobs[index].state.is_terminal();
            let due = if would_end { due_of_end(stored, index) } else { due(books, index) };
            objections.unless(given == due, "explain", || {
                format!("{} is explained by {given:?}, by the books {due:?}", explanation.job)
            });
            let silent = explanation.reasons.is_empty();
            let fits = explanation.state == books.jobs[index].state
                && silent == !matches!(explanation.state, JobState::Pending | JobState::Claimed);
            objections.unless(fits, "explain", || unfit(explanation));
        }
    }
}

fn unfit(explanation: &Explanation) -> String {
    format!("{} is {:?}, because {:?}", explanation.job, explanation.state, explanation.reasons)
}

/// A reason by its name and what the ledger knows of it. The ledger does not know places in line.
fn named(reason: &Reason, job: &Job) -> Option<String> {
    Some(match reason {
        Reason::ScheduledUntil { run_at } | Reason::RetryAt { run_at } => format!("until {run_at}"),
        Reason::Expired { good_until } => format!("expired {good_until}"),
        Reason::QueuePaused { queue } if *queue == job.new.queue => "paused".into(),
        Reason::QueuePaused { queue } => format!("another queue paused: {queue}"),
        Reason::HeldByLimitZero { group } => held(group),
        Reason::CanNeverRun { group, cost, limit } => never(group, *cost, *limit),
        Reason::GroupFull { group, used, limit, cost, .. } => full(group, *used, *limit, *cost),
        Reason::NoLiveWorker { .. } => "no worker".into(),
        Reason::ReservedFor { group, .. } => reserved(group),
        Reason::WaitingForStep { workflow, waits_for } => waits(workflow, waits_for),
        Reason::WorkflowHalted { workflow, halted_by } => halted(workflow, halted_by),
        Reason::ClaimedByPrefetch { session, claim_until, .. } => claimed(*session, *claim_until),
        Reason::WorkersBusy { saturated, draining } => busy(*saturated, *draining),
        Reason::OnlyWaitingForClaim { .. } => return None,
        // The books never say this, so the checker objects.
        reason => format!("a reason without a check: {reason:?}"),
    })
}

fn held(group: &GroupRef) -> String {
    format!("{group} held by 0")
}

fn never(group: &GroupRef, cost: u32, limit: u32) -> String {
    format!("{group} never: {cost} of {limit}")
}

fn full(group: &GroupRef, used: u64, limit: u32, cost: u32) -> String {
    format!("{group} full: {used} of {limit}, needs {cost}")
}

fn waits(workflow: &Name, step: &StepStatus) -> String {
    format!("{workflow} waits for {step:?}")
}

fn halted(workflow: &Name, step: &StepStatus) -> String {
    format!("{workflow} halted by {step:?}")
}

fn claimed(session: SessionId, until: Time) -> String {
    format!("claimed by {session} until {until}")
}

fn busy(saturated: u32, draining: u32) -> String {
    format!("busy: {saturated} saturated, {draining} draining")
}

fn reserved(group: &GroupRef) -> String {
    format!("{group} reserved")
}

/// Of a job that would end, `explain` may only say that it expires.
fn due_of_end(books: &Ledger, index: usize) -> BTreeSet<String> {
    let job = &books.jobs[index];
    let waits = matches!(job.state, JobState::Pending | JobState::Claimed);
    let over = job.good_until.filter(|until| waits && *until <= books.now);
    over.map(|good_until| format!("expired {good_until}")).into_iter().collect()
}

fn due(books: &Ledger, index: usize) -> BTreeSet<String> {
    let mut due = BTreeSet::new();
    let job = &books.jobs[index];
    if let Some(by) = job.claimed {
        due.insert(claimed(by.session, by.until));
    }
    if job.state != JobState::Pending {
        return due;
    }
    if job.run_at > books.now {
        due.insert(format!("until {}", job.run_at));
    }
    if let Some(good_until) = job.good_until.filter(|until| *until <= books.now) {
        due.insert(format!("expired {good_until}"));
    }
    if books.paused.contains(&job.new.queue) {
        due.insert("paused".into());
    }
    due.extend(due_of_workflow(books, index));
    due.extend(due_of_workers(books, job));
    let order = Some(books.order(index));
    for &(group, need) in &job.needs {
        let (name, used) = (books.groups.name(group), books.groups.used(group));
        match books.groups.limit(group) {
            Some(0) => due.insert(held(name)),
            Some(limit) if need > limit => due.insert(never(name, need, limit)),
            Some(limit) if !books.groups.has_room(group, need) => due.insert(full(name, used, limit, need)),
            Some(_) if books.big_job_ahead(order, group, need, Counted::NOW).is_some() => {
                due.insert(reserved(name))
            }
            _ => false,
        };
    }
    due
}

fn due_of_workflow(books: &Ledger, index: usize) -> Option<String> {
    let (name, workflow) = (books.jobs[index].new.workflow.as_ref()?, books.workflow_of(index)?);
    if let Some(head) = books.halted_by(workflow) {
        return Some(halted(name, &books.step_status(head)));
    }
    if books.is_next(index) {
        return None;
    }
    let waits_for = books.running_step(workflow).or_else(|| books.head(workflow))?;
    Some(waits(name, &books.step_status(waits_for)))
}

fn due_of_workers(books: &Ledger, job: &Job) -> Option<String> {
    let serving: Vec<_> = books.sessions.values().filter(|session| session.serves(&job.new)).collect();
    if serving.is_empty() {
        return Some("no worker".into());
    }
    let draining = serving.iter().filter(|session| session.draining).count();
    let saturated = serving.iter().filter(|session| !session.draining && session.is_saturated()).count();
    (draining + saturated == serving.len()).then(|| busy(saturated as u32, draining as u32))
}
