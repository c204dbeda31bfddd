//! `/`: what runs, what waits, and why.

use super::frame::{After, Answer, Frame, Pace, Section};
use super::moment::{Now, length};
use super::recent::Answer as Answered;
use super::text::number;
use super::{bar, groups, link, piece, queues, why, workers};
use crate::caller::Caller;
use crate::shared::Shared;
use axum::extract::{Query, State};
use maud::{Markup, html};
use qo_core::millis;
use qo_core::words::counted;
use qo_core::{
    GroupRef, GroupStatus, JobFilter, JobPage, JobState, JobView, QueueStatus, Result, Store, WorkerStatus,
};
use std::sync::Arc;
use std::time::Duration;

/// Groups that are looked at: the first by name.
const GROUPS: usize = 1_000;
/// From when on a page says how old it is.
const LATE: Duration = Duration::from_secs(2);
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
    let views = &shared.history.views;
    let (whose, store) = (caller.token(), &caller.store);
    let (of_queues, of_groups, of_failed) = (Arc::clone(store), Arc::clone(store), Arc::clone(store));
    let (now, workers, queues, groups, failed) = tokio::try_join!(
        store.now(),
        store.workers(),
        views.queues.get(whose, async move { of_queues.queues().await }),
        views.groups.get(whose, async move { of_groups.groups(None, GROUPS).await }),
        views.failed.get(whose, async move { failures(&*of_failed).await })
    )?;
    let late = [age(queues.as_ref()), age(groups.as_ref()), age(failed.as_ref())];
    let is_whole = late.iter().all(Option::is_some);
    let late = late.into_iter().flatten().max().unwrap_or_default();
    let queues = queues.map(|answer| answer.value).unwrap_or_default();
    let (groups, is_cut) =
        groups.map_or((Vec::new(), false), |answer| (answer.value.groups, answer.value.next.is_some()));
    let failed = failed.map(|answer| answer.value.jobs).unwrap_or_default();
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
        @if !is_whole {
            p.calm role="status" { "The store has very much to look through. What is missing here comes as soon as it has." }
        } @else if late > LATE {
            p.calm { "The store has very much to look through: part of this is " (length(millis(late))) " old." }
        }
        (why::why(&queues, &groups, &workers))
        (busiest(&shared, &groups, is_cut))
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
    // What is kept or missing is asked for again soon.
    let pace = if is_whole && late.is_zero() { Pace::Usual } else { Pace::Following };
    Ok(Frame::new(&caller, Section::Overview, title).after(after).pace(pace).around(content))
}

async fn failures(store: &dyn Store) -> Result<JobPage> {
    let filter = JobFilter { states: vec![JobState::Failed], newest_first: true, ..JobFilter::default() };
    store.jobs(filter, None, FAILURES).await
}

fn age<T>(answer: Option<&Answered<T>>) -> Option<Duration> {
    answer.map(|answer| answer.age)
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

fn recent(failed: &[JobView], now: Now) -> Markup {
    html! {
        section aria-labelledby="failures" {
            h2 id="failures" { a href=(link::jobs("state", "failed")) { "Recent failures" } }
            @if failed.is_empty() {
                p.calm { "No failed job is remembered." }
            } @else {
                (piece::jobs(failed, now, "The newest jobs that failed"))
            }
        }
    }
}
