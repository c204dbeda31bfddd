//! Reading a store's views, page by page, without faults.

use crate::history::Audit;
use futures::executor::block_on;
use qo_core::{GroupStatus, JobFilter, JobId, JobState, JobView, Store, WorkflowStatus, caps};

/// Every job that has not finished.
pub(super) fn live_jobs(store: &dyn Store) -> Vec<JobView> {
    jobs(store, vec![JobState::Pending, JobState::Claimed, JobState::Running])
}

fn jobs(store: &dyn Store, states: Vec<JobState>) -> Vec<JobView> {
    let filter = JobFilter { states, ..JobFilter::default() };
    let (mut all, mut after) = (Vec::new(), None);
    loop {
        let page = block_on(store.jobs(filter.clone(), after, caps::PAGE)).expect("the bare store answers");
        all.extend(page.jobs);
        after = page.next;
        if after.is_none() {
            return all;
        }
    }
}

/// Every group.
pub(super) fn groups(store: &dyn Store) -> Vec<GroupStatus> {
    let (mut all, mut after) = (Vec::new(), None);
    loop {
        let page = block_on(store.groups(after, caps::PAGE)).expect("the bare store answers");
        all.extend(page.groups);
        after = page.next;
        if after.is_none() {
            return all;
        }
    }
}

/// Every workflow.
pub(super) fn workflows(store: &dyn Store) -> Vec<WorkflowStatus> {
    let (mut all, mut after) = (Vec::new(), None);
    loop {
        let page = block_on(store.workflows(after, caps::PAGE)).expect("the bare store answers");
        all.extend(page.workflows);
        after = page.next;
        if after.is_none() {
            return all;
        }
    }
}

/// All views of live jobs, groups, queues, sessions, workflows and schedules; where `complete`, of finished jobs too,
/// each in full.
pub fn audit(store: &dyn Store, complete: bool) -> Audit {
    let groups = groups(store);
    let held = groups
        .iter()
        .filter(|status| status.used > 0 && !matches!(status.group, qo_core::GroupRef::EveryKey(_)));
    let holders = held.filter_map(|status| block_on(store.group(status.group.clone())).ok()).collect();
    let jobs = if complete { jobs(store, Vec::new()) } else { live_jobs(store) };
    let ids: Vec<JobId> = jobs.iter().filter(|_| complete).map(|view| view.id).collect();
    // Every tenth job: an explanation counts places in line, which is slow.
    let explained = jobs.iter().filter(|view| !view.state.is_terminal()).step_by(10);
    let explanations = explained.filter_map(|view| block_on(store.explain(view.id)).ok()).collect();
    Audit {
        groups,
        holders,
        jobs,
        queues: block_on(store.queues()).expect("the bare store answers"),
        workers: block_on(store.workers()).expect("the bare store answers"),
        workflows: workflows(store),
        schedules: block_on(store.schedules()).expect("the bare store answers"),
        details: single(store, &ids).details,
        explanations,
        complete,
    }
}

/// The views of single jobs; those that the store does not have are left out.
pub(super) fn single(store: &dyn Store, jobs: &[JobId]) -> Audit {
    let details = jobs.iter().filter_map(|job| block_on(store.job(*job)).ok()).collect();
    Audit { details, ..Audit::default() }
}
