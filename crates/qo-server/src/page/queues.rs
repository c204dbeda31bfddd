//! `/queues`: the lines, and pausing them.

use super::action::Action;
use super::frame::{After, Answer, Frame, Section};
use super::text::number;
use super::{bar, link, piece};
use crate::caller::{Caller, Scope};
use crate::shared::Shared;
use axum::extract::{Query, State};
use maud::{Markup, html};
use qo_core::{GroupRef, QueueStatus};
use serde::Deserialize;

/// Queues of one page.
const PAGE: usize = 100;

/// Where the list begins.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub struct Asked {
    after: String,
}

pub(crate) async fn list(
    State(shared): State<Shared>,
    caller: Caller,
    Query(asked): Query<Asked>,
    Query(done): Query<After>,
) -> Answer {
    shared.history.wake(&shared);
    let queues = caller.store.queues().await?;
    let paused = queues.iter().filter(|queue| queue.paused).count() as u64;
    let title = if paused > 0 { format!("Queues, {} paused", number(paused)) } else { "Queues".into() };
    let from = queues.partition_point(|queue| *queue.queue <= *asked.after);
    let rest = &queues[from..];
    let shown = &rest[..rest.len().min(PAGE)];
    let next = shown.last().filter(|_| rest.len() > PAGE);
    let content = html! {
        h1 { "Queues" }
        p.lead { "A lower priority goes first. A paused queue takes jobs in, and gives none out." }
        (table(shown, &shared, Some(&caller)))
        (piece::pager(
            (from > 0).then(|| "/queues".into()),
            next.map(|last| link::query("/queues", [("after", &*last.queue)])),
        ))
    };
    Ok(Frame::new(&caller, Section::Queues, title).after(done).around(content))
}

/// Queues as a table, with what a caller may do about them.
pub fn table(queues: &[QueueStatus], shared: &Shared, caller: Option<&Caller>) -> Markup {
    let operates = caller.is_some_and(|caller| caller.may(Scope::Admin));
    let full = caller.is_some();
    if queues.is_empty() {
        return piece::nothing(
            "No queue has live jobs or settings.",
            full.then_some("The first job of a queue makes it."),
            full.then_some("qo submit resize '{\"width\": 64}' --queue images"),
        );
    }
    html! {
        div.scroll role="region" aria-label="Queues" tabindex="0" {
            table {
                thead {
                    tr {
                        th scope="col" { "Queue" }
                        @if full { th.wide.right scope="col" { "Priority" } th.wide scope="col" { "Slots" } }
                        th.right scope="col" { "Running" }
                        th.right scope="col" { "In line" }
                        th.wide.right scope="col" { "Scheduled" }
                        @if full {
                            th.wide.right scope="col" { "Behind a step" }
                            th.wide scope="col" { span.unseen { "The last minutes" } }
                        }
                        @if operates { th scope="col" { span.unseen { "Action" } } }
                    }
                }
                tbody { @for queue in queues { (row(queue, shared, full, operates)) } }
            }
        }
    }
}

fn row(queue: &QueueStatus, shared: &Shared, full: bool, operates: bool) -> Markup {
    let group = GroupRef::Queue(queue.queue.clone());
    html! {
        tr id={"queue-" (queue.queue)} {
            td.name {
                a href=(link::jobs("queue", &queue.queue)) { (queue.queue) }
                @if queue.paused { " " span.state.held { "paused" } }
            }
            @if full {
                td.wide.right { (queue.priority) }
                td.wide { a href=(link::group(&group)) { (bar::slots(queue.running, queue.limit)) } }
            }
            td.right { (number(queue.running)) }
            td.right { @if queue.due > 0 { b.waits { (number(queue.due)) } } @else { span.none { "0" } } }
            td.wide.right { (number(queue.scheduled)) }
            @if full {
                td.wide.right { (number(queue.waiting)) }
                td.wide { (bar::spark(&shared.history.of([&group], |sample| sample.used + sample.waiting), "running and in line")) }
            }
            @if operates {
                td.right {
                    @if queue.paused { (piece::button(&Action::ResumeQueue(queue.queue.clone()), "Resume")) }
                    @else { (piece::button(&Action::PauseQueue(queue.queue.clone()), "Pause")) }
                }
            }
        }
    }
}
