//! `/`: what runs, what waits, and why.

use super::frame::{After, Answer, Frame, Section};
use super::moment::Now;
use super::text::number;
use super::{bar, groups, link, piece, queues, why, workers};
use crate::caller::Caller;
use crate::shared::Shared;
use axum::extract::{Query, State};
use maud::{Markup, html};
use qo_core::words::counted;
use qo_core::{GroupRef, GroupStatus, JobFilter, JobPage, JobState, QueueStatus, Result, WorkerStatus};

/// Groups that are looked at: the first by name.
const GROUPS: usize = 1_000;
/// Rows of each list.
const SHOWN: usize = 8;
/// Failures that are shown.
const FAILURES: usize = 5;

pub(crate) async fn overview(
    State(shared): State<Shared>,
    caller: Caller,
    Query(after): Query<After>,
) -> Answer {
    shared.history.wake(&shared);
    let store = &caller.store;
    let (now, queues, groups, workers, failed) = tokio::try_join!(
        store.now(),
        store.queues(),
        store.groups(None, GROUPS),
        store.workers(),
        failures(&caller)
    )?;
    let now = Now(now);
    let sum = |figure: fn(&QueueStatus) -> u64| queues.iter().map(figure).sum::<u64>();
    let (running, due) = (sum(|queue| queue.running), sum(|queue| queue.due));
    let title = if running + due == 0 {
        "Idle".to_owned()
    } else {
        format!("{} running, {} in line", number(running), number(due))
    };
    let content = html! {
        h1 { (title) }
        (totals(&shared, &queues, &workers))
        (why::why(&queues, &groups.groups, &workers))
        (busiest(&shared, &groups.groups, groups.next.is_some()))
        div.pair {
            section aria-labelledby="queues" {
                h2 id="queues" { a href="/queues" { "Queues" } }
                (queues::table(&queues[..queues.len().min(SHOWN)], &shared, None))
                (more(queues.len(), "/queues"))
            }
            section aria-labelledby="workers" {
                h2 id="workers" { a href="/workers" { "Workers" } }
                (workers::table(&workers[..workers.len().min(SHOWN)], now))
                (more(workers.len(), "/workers"))
            }
        }
        (recent(&failed, now))
    };
    Ok(Frame::new(&caller, Section::Overview, title).after(after).around(content))
}

async fn failures(caller: &Caller) -> Result<JobPage> {
    let filter = JobFilter { states: vec![JobState::Failed], newest_first: true, ..JobFilter::default() };
    caller.store.jobs(filter, None, FAILURES).await
}

fn totals(shared: &Shared, queues: &[QueueStatus], workers: &[WorkerStatus]) -> Markup {
    let sum = |figure: fn(&QueueStatus) -> u64| queues.iter().map(figure).sum::<u64>();
    let names: Vec<_> = queues.iter().map(|queue| GroupRef::Queue(queue.queue.clone())).collect();
    let running = shared.history.of(&names, |sample| sample.used);
    let due = shared.history.of(&names, |sample| sample.waiting);
    let permits: u64 = workers.iter().map(|worker| u64::from(worker.permits)).sum();
    let free: u64 = workers.iter().map(|worker| u64::from(worker.free_permits)).sum();
    let total = |name: &str, count: u64, link: &str, note: Markup| {
        html! {
            li {
                a href=(link) {
                    span.label { (name) }
                    span.total { (number(count)) }
                }
                (note)
            }
        }
    };
    html! {
        ul.totals aria-label="Totals" {
            (total("Running", sum(|queue| queue.running), "/jobs?state=running", bar::spark(&running, "running")))
            (total("In line", sum(|queue| queue.due), "/jobs?state=pending", bar::spark(&due, "in line")))
            (total("Scheduled", sum(|queue| queue.scheduled), "/jobs?state=pending", html! { span.note { "their date comes later" } }))
            (total("Behind a step", sum(|queue| queue.waiting), "/workflows", html! { span.note { "not next in their workflow" } }))
            (total("Workers", workers.len() as u64, "/workers", html! {
                span.note { (number(free)) " of " (counted(permits, "permit")) " free" }
            }))
        }
    }
}

/// The groups with the most waiting, then the most running.
fn busiest(shared: &Shared, groups: &[GroupStatus], is_cut: bool) -> Markup {
    let mut sorted: Vec<_> = groups.iter().filter(|group| group.live > 0 || group.limit == Some(0)).collect();
    let is_limited = |group: &GroupStatus| group.limit.is_some();
    sorted.sort_by_key(|group| (!is_limited(group), std::cmp::Reverse((bar::wanted(group), group.used))));
    let shown: Vec<_> = sorted.iter().take(SHOWN).copied().collect();
    html! {
        section aria-labelledby="groups" {
            h2 id="groups" { a href="/groups" { "Groups" } }
            @if shown.is_empty() {
                (piece::nothing(
                    "No job is live, so no slot is taken.",
                    Some("Submit one; its task is its group."),
                    Some("qo submit resize '{\"width\": 64}'"),
                ))
            } @else {
                (groups::table(&shown, shared))
                @if is_cut {
                    p.more { "The busiest of the first " (number(GROUPS as u64)) " by name. " a href="/groups" { "All groups" } }
                } @else {
                    (more(sorted.len(), "/groups"))
                }
            }
        }
    }
}

fn more(count: usize, link: &str) -> Markup {
    let more = count.saturating_sub(SHOWN);
    html! { @if more > 0 { p.more { a href=(link) { (number(more as u64)) " more" } } } }
}

fn recent(failed: &JobPage, now: Now) -> Markup {
    html! {
        section aria-labelledby="failures" {
            h2 id="failures" { a href=(link::jobs("state", "failed")) { "Recent failures" } }
            @if failed.jobs.is_empty() {
                p.calm { "No failed job is remembered." }
            } @else {
                (piece::jobs(&failed.jobs, now, "The newest jobs that failed"))
            }
        }
    }
}
