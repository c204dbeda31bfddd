//! What holds jobs back, at a glance. A job's own page explains that job.

use super::text::number;
use super::{bar, link};
use maud::{Markup, html};
use qo_core::words::counted;
use qo_core::{GroupRef, GroupStatus, QueueStatus, WorkerStatus};

/// Most reasons that are shown.
const SHOWN: usize = 6;

/// One thing that holds jobs back.
struct Hold {
    /// How many jobs or slots wait because of it: the most come first.
    weight: u64,
    /// Nothing at all goes on because of it.
    is_all: bool,
    said: Markup,
}

/// What holds jobs back, or that nothing does. Nothing if no job is due.
pub fn why(queues: &[QueueStatus], groups: &[GroupStatus], workers: &[WorkerStatus]) -> Markup {
    let due: u64 = queues.iter().map(|queue| queue.due).sum();
    let mut holds: Vec<Hold> = for_workers(due, workers).into_iter().collect();
    holds.extend(queues.iter().filter_map(paused));
    holds.extend(groups.iter().filter_map(full));
    holds.sort_by_key(|hold| (!hold.is_all, std::cmp::Reverse(hold.weight)));
    if holds.is_empty() && due == 0 {
        return html! {};
    }
    let more = holds.len().saturating_sub(SHOWN);
    html! {
        section.why aria-labelledby="why" {
            h2 id="why" { "What holds jobs back" }
            @if holds.is_empty() {
                p { "Nothing: workers take the " (counted(due, "job")) " in line as fast as they can." }
            } @else {
                ul {
                    @for hold in holds.into_iter().take(SHOWN) { li class=[hold.is_all.then_some("all")] { (hold.said) } }
                    @if more > 0 { li { a href="/groups" { (number(more as u64)) " more" } } }
                }
            }
        }
    }
}

fn for_workers(due: u64, workers: &[WorkerStatus]) -> Option<Hold> {
    if due == 0 {
        return None;
    }
    let said = |is_all, said| Some(Hold { weight: due, is_all, said });
    if workers.is_empty() {
        return said(
            true,
            html! {
                b { "No worker is connected." } " " (number(due)) " in line. Start one: "
                code { "qo worker --task NAME=COMMAND" }
            },
        );
    }
    let busy = workers.iter().all(|worker| worker.saturated || worker.draining);
    busy.then_some(()).and_then(|()| {
        said(
            false,
            html! {
                a href="/workers" { b { "Every worker is busy" } }
                ": all " (counted(workers.len() as u64, "worker")) " saturated or draining. Start another one, or give them more permits."
            },
        )
    })
}

fn paused(queue: &QueueStatus) -> Option<Hold> {
    (queue.paused && queue.due > 0).then(|| Hold {
        weight: queue.due,
        is_all: false,
        said: html! {
            "Queue " a href=(link::jobs("queue", &queue.queue)) { b { (queue.queue) } } " is paused: "
            (counted(queue.due, "job")) " in line."
        },
    })
}

fn full(group: &GroupStatus) -> Option<Hold> {
    let limit = group.limit?;
    let wanted = bar::wanted(group);
    // The keys of `GROUP/*` are listed each by itself.
    if wanted == 0 || group.used < limit.into() || matches!(group.group, GroupRef::EveryKey(_)) {
        return None;
    }
    let name = html! { a href=(link::group(&group.group)) { b { (group.group) } } };
    let said = match limit {
        0 => html! { (name) " is held by limit 0: " (counted(wanted, "slot")) " wanted." },
        _ => html! {
            (name) " is full: " (number(group.used)) " of " (number(limit)) " taken, " (number(wanted)) " more wanted."
        },
    };
    Some(Hold { weight: wanted, is_all: limit == 0 && group.group == GroupRef::Cluster, said })
}
