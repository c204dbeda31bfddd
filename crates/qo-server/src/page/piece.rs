//! Parts that several pages show: states, empty lists, the way to the next page, the buttons of actions.

use super::action::Action;
use super::{link, moment::Now};
use maud::{Markup, html};
use qo_core::words::state_name;
use qo_core::{JobId, JobState, JobView};

/// A state as a word with a colour. The word says it, the colour helps.
pub fn state(state: JobState) -> Markup {
    let name = state_name(state);
    html! { span class={"state " (name)} { (name) } }
}

/// What a job's state is, with what else is to say about it.
pub fn state_of(job: &JobView) -> Markup {
    html! {
        (state(job.state))
        @if job.skipped { " " span.state.cancelled { "skipped" } }
        @if job.cancel_requested { " " span.state.held { "asked to stop" } }
    }
}

/// An id, short: its beginning says when, its end tells it apart.
pub fn short(id: JobId) -> Markup {
    let id = id.0.to_string();
    html! { span.id title=(id) { (id[..8]) "…" (id[30..]) } }
}

/// A list that is empty: why, and what to do next.
pub fn nothing(why: &str, advice: Option<&str>, command: Option<&str>) -> Markup {
    html! {
        div.empty {
            p { (why) }
            @if let Some(advice) = advice { p.hint { (advice) } }
            @if let Some(command) = command { pre { code { (command) } } }
        }
    }
}

/// The way to the next page, if there is one, and back to the first.
pub fn pager(first: Option<String>, next: Option<String>) -> Markup {
    if first.is_none() && next.is_none() {
        return html! {};
    }
    html! {
        nav.pager aria-label="Pages" {
            @if let Some(first) = first { a href=(first) { "First page" } }
            @if let Some(next) = next { a href=(next) rel="next" { "Next page" } }
        }
    }
}

/// A button that asks before it acts: it leads to the page that says what the action will do.
pub fn button(action: &Action, label: &str) -> Markup {
    ask(action, label, "")
}

/// A button of an action that takes something away.
pub fn danger(action: &Action, label: &str) -> Markup {
    ask(action, label, "danger")
}

fn ask(action: &Action, label: &str, class: &str) -> Markup {
    html! {
        form.action method="get" action=(action.path()) data-ask {
            @for (name, value) in action.fields() { input type="hidden" name=(name) value=(value); }
            button class=(class) type="submit" aria-label=[action.label(label)] { (label) }
        }
    }
}

/// Jobs as a table.
pub fn jobs(jobs: &[JobView], now: Now, caption: &str) -> Markup {
    html! {
        div.scroll role="region" aria-label=(caption) tabindex="0" {
            table {
                caption.unseen { (caption) }
                thead {
                    tr {
                        th scope="col" { "State" }
                        th scope="col" { "Task" }
                        th.wide scope="col" { "Job" }
                        th.wide scope="col" { "Queue" }
                        th.wide scope="col" { "Key" }
                        th.wide.right scope="col" { "Attempts" }
                        th.right scope="col" { "Submitted" }
                    }
                }
                tbody {
                    @for job in jobs {
                        tr id={"job-" (job.id.0)} {
                            td { (state_of(job)) }
                            td.name { a href=(link::job(job.id)) { (job.task) } }
                            td.wide { (short(job.id)) }
                            td.wide { (job.queue) }
                            td.wide.key { @if let Some(key) = &job.key { bdi { (&**key) } } }
                            td.wide.right { (job.attempts_used + u32::from(job.running.is_some())) " of " (job.max_attempts) }
                            td.right { (now.ago(job.submitted_at)) }
                        }
                    }
                }
            }
        }
    }
}
