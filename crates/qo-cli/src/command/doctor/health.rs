//! Is anything stuck? It uses the same calls as every other command, so it works on any store.

use super::sweep;
use super::{Finding, Level};
use crate::command::concurrency::{all_groups, is_named_for_nothing};
use crate::output::{clean, counted};
use crate::place::{Place, listed};
use crate::trouble::Done;
use qo::Store;
use qo::core::{GroupRef, GroupStatus, JobFilter, JobState, JobView, Reason, WorkflowState, caps};
use std::collections::BTreeMap;
use std::sync::Arc;

/// How many groups, workflows and waiting jobs it looks at: enough to see what is wrong.
const LOOKED_AT: usize = 1_000;
/// For how many waiting jobs it asks why they wait.
const ASKED: usize = 200;

/// Looks at sessions, groups, workflows and waiting jobs.
pub async fn examine(place: &Place) -> Done<Vec<Finding>> {
    let store = place.open_existing().await?;
    let mut findings = alive(&store).await?;
    let looked_at = all_groups(&store, LOOKED_AT).await?;
    let over = sweep::over(&store.over().await?, store.now().await?);
    let mut stuck = groups(&store, &looked_at).await?;
    if over.is_empty() && stuck.is_empty() {
        let what = format!("{} looked at, none is stuck", looked_at.len());
        stuck.push(Finding::new(Level::Ok, "groups", what));
    }
    findings.extend(over);
    findings.extend(stuck);
    findings.extend(workflows(&store).await?);
    findings.extend(waiting(&store).await?);
    Ok(findings)
}

async fn alive(store: &Arc<dyn Store>) -> Done<Vec<Finding>> {
    let (workers, queues) = (store.workers().await?, store.queues().await?);
    let due: u64 = queues.iter().map(|queue| queue.due).sum();
    let running: u64 = workers.iter().map(|worker| worker.running).sum();
    let mut findings = Vec::new();
    if workers.is_empty() && due > 0 {
        let what = format!("none is alive; {} due", counted(due, "job"));
        findings.push(Finding::new(Level::Note, "workers", what).advice("start one: qo worker"));
    } else {
        let what = format!("{} alive; {} running, {due} due", workers.len(), counted(running, "job"));
        findings.push(Finding::new(Level::Ok, "workers", what));
    }
    let paused: Vec<String> =
        queues.iter().filter(|queue| queue.paused).map(|queue| queue.queue.to_string()).collect();
    if !paused.is_empty() {
        let advice = "qo queues resume NAME";
        findings
            .push(Finding::new(Level::Note, "queues", format!("paused: {}", listed(&paused))).advice(advice));
    }
    Ok(findings)
}

async fn groups(store: &Arc<dyn Store>, groups: &[GroupStatus]) -> Done<Vec<Finding>> {
    let mut findings = Vec::new();
    for status in groups {
        findings.extend(group(store, status).await?);
    }
    Ok(findings)
}

async fn group(store: &Arc<dyn Store>, status: &GroupStatus) -> Done<Option<Finding>> {
    let about = status.group.to_string();
    let set = format!("qo concurrency set {about} --limit N");
    let waiting = status.live.saturating_sub(status.used);
    let is_sum = matches!(status.group, GroupRef::EveryKey(_));
    Ok(match status.limit {
        Some(0) if waiting > 0 => {
            let what = format!("limit 0 holds back jobs that ask for {}", counted(waiting, "slot"));
            Some(Finding::new(Level::Note, about, what).advice(set))
        }
        Some(limit) if status.used > limit.into() && !is_sum => {
            let what =
                format!("slots taken: {} of {limit}: the limit was lowered while these run", status.used);
            Some(Finding::new(Level::Note, about, what))
        }
        None if is_named_for_nothing(store, status).await? => {
            let what = "jobs name it, but it has no limit: is it misspelled?";
            Some(Finding::new(Level::Note, about, what).advice(set))
        }
        _ => None,
    })
}

async fn workflows(store: &Arc<dyn Store>) -> Done<Vec<Finding>> {
    let workflows = store.workflows(None, LOOKED_AT.min(caps::PAGE)).await?.workflows;
    let halted = workflows.iter().filter(|status| status.state == WorkflowState::Halted);
    let halted: Vec<String> = halted.map(|status| status.workflow.to_string()).collect();
    if halted.is_empty() {
        return Ok(Vec::new());
    }
    let advice = "qo workflows retry NAME, or qo workflows skip NAME";
    Ok(vec![Finding::new(Level::Note, "workflows", format!("halted: {}", listed(&halted))).advice(advice)])
}

/// Why the first of the waiting jobs wait, where an operator must act.
async fn waiting(store: &Arc<dyn Store>) -> Done<Vec<Finding>> {
    let filter = JobFilter { states: vec![JobState::Pending], ..JobFilter::default() };
    let page = store.jobs(filter, None, ASKED).await?;
    let mut findings: Vec<Finding> = page.jobs.iter().filter_map(unreadable).collect();
    let mut reasons: BTreeMap<(String, String), (u64, String)> = BTreeMap::new();
    for job in &page.jobs {
        let Ok(explanation) = store.explain(job.id).await else { continue };
        for reason in explanation.reasons {
            let (about, what) = match reason {
                Reason::NoLiveWorker { task, .. } => (format!("task {task}"), "no live worker has it"),
                Reason::CanNeverRun { group, .. } => {
                    (group.to_string(), "asks for more slots than there are and can never run")
                }
                _ => continue,
            };
            let entry = reasons.entry((about, what.to_owned())).or_insert_with(|| (0, job.id.to_string()));
            entry.0 += 1;
        }
    }
    let finding = |((about, what), (jobs, first)): ((String, String), (u64, String))| {
        let level = if what.contains("never") { Level::Problem } else { Level::Note };
        Finding::new(level, about, format!("{what}: {jobs} of the first {} waiting jobs", page.jobs.len()))
            .advice(format!("qo explain {first}"))
    };
    findings.extend(reasons.into_iter().map(finding));
    Ok(findings)
}

/// A job that breaks a rule. It fails as soon as a worker claims it; if no worker can, it waits for ever.
fn unreadable(job: &JobView) -> Option<Finding> {
    let what = format!("cannot be read: {}", clean(job.unreadable.as_ref()?));
    let finding = Finding::new(Level::Problem, format!("job {}", job.id), what);
    Some(finding.advice(format!("qo jobs cancel {}", job.id)))
}
