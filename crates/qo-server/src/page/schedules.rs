//! `/schedules`: jobs that the clock submits, and when it does next.

use super::action::Action;
use super::frame::{After, Answer, Frame, Section};
use super::moment::{Now, clock};
use super::{link, piece};
use crate::caller::{Caller, Scope};
use crate::shared::Shared;
use axum::extract::{Query, State};
use maud::{Markup, html};
use qo_core::{ScheduleStatus, TickOutcome, Time};
use serde::Deserialize;

/// Schedules of one page, and ticks of one schedule.
const PAGE: usize = 50;
const TICKS: usize = 3;

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
    let (now, schedules) = tokio::try_join!(caller.store.now(), caller.store.schedules())?;
    let from = schedules.partition_point(|schedule| *schedule.schedule <= *asked.after);
    let rest = &schedules[from..];
    let shown = &rest[..rest.len().min(PAGE)];
    let next = shown.last().filter(|_| rest.len() > PAGE);
    let content = html! {
        h1 { "Schedules" }
        p.lead { "A tick runs once across the fleet. Ticks that pass while a schedule is disabled are not made up for." }
        @if schedules.is_empty() {
            (piece::nothing(
                "No schedule is configured.",
                Some("Name one in .qo.toml; a worker or qo config apply pushes it."),
                Some("[schedules.nightly]\ncron = \"0 3 * * *\"\ntimezone = \"Europe/Berlin\"\ntask = \"report\""),
            ))
        } @else { (table(shown, Now(now), &caller)) }
        (piece::pager(
            (from > 0).then(|| "/schedules".into()),
            next.map(|last| link::query("/schedules", [("after", &*last.schedule)])),
        ))
    };
    Ok(Frame::new(&caller, Section::Schedules, "Schedules").after(done).around(content))
}

fn table(schedules: &[ScheduleStatus], now: Now, caller: &Caller) -> Markup {
    let operates = caller.may(Scope::Admin);
    html! {
        div.scroll role="region" aria-label="Schedules" tabindex="0" {
            table {
                thead {
                    tr {
                        th scope="col" { "Schedule" }
                        th.wide scope="col" { "When" }
                        th scope="col" { "Next ticks" }
                        th.wide scope="col" { "Last tick" }
                        @if operates { th scope="col" { span.unseen { "Actions" } } }
                    }
                }
                tbody { @for schedule in schedules { (row(schedule, now, operates)) } }
            }
        }
    }
}

fn row(schedule: &ScheduleStatus, now: Now, operates: bool) -> Markup {
    let name = &schedule.schedule;
    html! {
        tr id={"schedule-" (name)} {
            td.name {
                b { (name) } @if !schedule.enabled { " " span.state.held { "disabled" } }
                span.note { "runs " a href=(link::jobs("task", &schedule.spec.task)) { (schedule.spec.task) } }
            }
            td.wide { code { (schedule.spec.cron) } span.note { (schedule.spec.timezone) } }
            td {
                @if schedule.enabled {
                    ul.ticks { @for tick in ticks(schedule) { li { (now.ago(tick)) span.note { (clock(tick)) } } } }
                    @if schedule.next.is_none() { "never again" }
                } @else { span.none { "none while it is disabled" } }
            }
            td.wide { (last(schedule, now)) }
            @if operates {
                td.right {
                    div.actions {
                        (piece::button(&Action::TriggerSchedule(name.clone(), None), "Run now"))
                        @if schedule.enabled { (piece::button(&Action::DisableSchedule(name.clone()), "Disable")) }
                        @else { (piece::button(&Action::EnableSchedule(name.clone()), "Enable")) }
                    }
                }
            }
        }
    }
}

/// The next ticks. The store knows the first one; the others follow from the expression.
fn ticks(schedule: &ScheduleStatus) -> Vec<Time> {
    let after = |tick: &Time| schedule.spec.first_after(*tick).ok().flatten();
    std::iter::successors(schedule.next, after).take(TICKS).collect()
}

fn last(schedule: &ScheduleStatus, now: Now) -> Markup {
    let Some(last) = &schedule.last else { return html! { span.none { "none yet" } } };
    html! {
        (now.ago(last.tick)) " "
        @match &last.outcome {
            TickOutcome::Accepted(job) | TickOutcome::Existing(job) => a href=(link::job(*job)) { "its job" },
            TickOutcome::Skipped => { span.state.held { "skipped" } " an earlier job had not ended" },
            TickOutcome::Refused(why) => { span.state.failed { "refused" } " " (why) },
        }
        @if let Some(job) = schedule.last_job.filter(|_| matches!(last.outcome, TickOutcome::Skipped)) {
            " " a href=(link::job(job)) { "the last job" }
        }
    }
}
