//! `/workers`: the processes that run jobs; `/workers/SESSION`: what one of them runs.

use super::frame::{After, Answer, Frame, Section};
use super::moment::{Now, clock};
use super::text::number;
use super::{bar, link, piece};
use crate::caller::Caller;
use crate::shared::Shared;
use axum::extract::{Path, Query, State};
use maud::{Markup, html};
use qo_core::words::counted;
use qo_core::{Error, JobFilter, JobState, JobView, Name, Result, SessionId, WorkerStatus};
use serde::Deserialize;
use uuid::Uuid;

/// Workers of one page.
const PAGE: usize = 100;
/// Running jobs that are looked through for those of one worker, and how many of them are shown.
const LOOKED_AT: usize = 1_000;
const SHOWN: usize = 100;
/// Names of tasks and queues that are shown.
const NAMES: usize = 50;

/// Where the list begins.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub struct Asked {
    from: usize,
}

pub(crate) async fn list(
    State(shared): State<Shared>,
    caller: Caller,
    Query(asked): Query<Asked>,
    Query(done): Query<After>,
) -> Answer {
    shared.history.wake(&shared);
    let (now, workers) = tokio::try_join!(caller.store.now(), caller.store.workers())?;
    let from = asked.from.min(workers.len());
    let rest = &workers[from..];
    let shown = &rest[..rest.len().min(PAGE)];
    let title = counted(workers.len() as u64, "worker");
    let content = html! {
        h1 { "Workers" }
        p.lead { "A worker is a process that runs jobs. Its session is its lease on life." }
        (table(shown, Now(now)))
        (piece::pager(
            (from > 0).then(|| "/workers".into()),
            (rest.len() > PAGE).then(|| link::query("/workers", [("from", (from + PAGE).to_string())])),
        ))
    };
    Ok(Frame::new(&caller, Section::Workers, title).after(done).around(content))
}

/// Workers as a table.
pub fn table(workers: &[WorkerStatus], now: Now) -> Markup {
    if workers.is_empty() {
        return piece::nothing(
            "No worker is connected.",
            Some("Start one; any program can be a task."),
            Some("qo worker --task 'resize=./resize.sh'"),
        );
    }
    html! {
        div.scroll role="region" aria-label="Workers" tabindex="0" {
            table {
                thead {
                    tr {
                        th scope="col" { "Worker" }
                        th scope="col" { "Permits taken" }
                        th.wide.right scope="col" { "Memory" }
                        th.right scope="col" { "Up for" }
                    }
                }
                tbody {
                    @for worker in workers {
                        tr id={"worker-" (worker.session.0)} {
                            td.name { a href=(link::worker(worker.session)) { (worker.worker) } " " (condition(worker)) }
                            td { (permits(worker)) }
                            td.wide.right { (memory(worker)) }
                            td.right { (now.since(worker.opened_at)) }
                        }
                    }
                }
            }
        }
    }
}

fn condition(worker: &WorkerStatus) -> Markup {
    html! {
        @if worker.draining { span.state.held { "draining" } }
        @else if worker.saturated { span.state.claimed { "saturated" } }
    }
}

fn permits(worker: &WorkerStatus) -> Markup {
    html! {
        span.meter {
            (bar::drawn(worker.running, worker.permits.into(), "permits taken"))
            span.figures { b { (number(worker.running)) } " / " (number(worker.permits)) }
        }
    }
}

fn memory(worker: &WorkerStatus) -> Markup {
    html! { @if let Some(percent) = worker.memory_percent { (percent) " %" } @else { span.none { "not told" } } }
}

pub(crate) async fn one(State(shared): State<Shared>, caller: Caller, Path(session): Path<String>) -> Answer {
    shared.history.wake(&shared);
    let session = session.parse::<Uuid>().map(SessionId);
    let session = session.map_err(|_| Error::invalid("session", "", "must be the id of a session"))?;
    let (now, workers) = tokio::try_join!(caller.store.now(), caller.store.workers())?;
    let now = Now(now);
    let Some(worker) = workers.into_iter().find(|worker| worker.session == session) else {
        return Ok(gone(&caller, session));
    };
    let (jobs, is_whole) = jobs_of(&caller, &worker).await?;
    let title = format!("{}: {}", worker.worker, counted(worker.running, "job"));
    let content = html! {
        p.up { a href="/workers" { "Workers" } }
        h1 { (worker.worker) " " (condition(&worker)) }
        dl.facts {
            dt { "Permits" } dd { (permits(&worker)) }
            @if worker.claimed > 0 { dt { "Claimed ahead" } dd { (number(worker.claimed)) } }
            dt { "Memory" } dd { (memory(&worker)) }
            dt { "Session" } dd { span.id { (worker.session.0) } }
            @if let Some(owner) = &worker.owner { dt { "Opened by token" } dd { span.id { (owner) } } }
            dt { "Up for" } dd { (now.since(worker.opened_at)) ", since " (clock(worker.opened_at)) }
            dt { "Lease ends" } dd { (now.ago(worker.lease_until)) " unless it is renewed" }
            dt { "Queues" } dd { @if worker.queues.is_empty() { "all" } @else { (names(&worker.queues)) } }
            dt { "Tasks" } dd { (names(&worker.tasks)) }
        }
        section aria-labelledby="runs" {
            h2 id="runs" { "It runs" }
            @if jobs.is_empty() && worker.running == 0 { p.calm { "Nothing: it waits for work." } }
            @else if jobs.is_empty() { p.calm { (counted(worker.running, "job")) ", none of the newest " (LOOKED_AT) " that run." } }
            @else { (piece::jobs(&jobs, now, "Jobs that it runs")) }
            @if !is_whole { p.more { "More run on it: " a href="/jobs?state=running" { "all running jobs" } } }
        }
    };
    Ok(Frame::new(&caller, Section::Workers, title).around(content))
}

/// The jobs that a worker runs, and whether those are all.
async fn jobs_of(caller: &Caller, worker: &WorkerStatus) -> Result<(Vec<JobView>, bool)> {
    if worker.running + worker.claimed == 0 {
        return Ok((Vec::new(), true));
    }
    let states = vec![JobState::Running, JobState::Claimed];
    let filter = JobFilter { states, newest_first: true, ..JobFilter::default() };
    let page = caller.store.jobs(filter, None, LOOKED_AT).await?;
    let is_its = |job: &JobView| {
        let owner = job.running.as_ref().or(job.claimed.as_ref());
        owner.is_some_and(|owner| owner.session == worker.session)
    };
    let mut jobs: Vec<_> = page.jobs.into_iter().filter(is_its).collect();
    let is_whole = jobs.len() <= SHOWN && (page.next.is_none() || jobs.len() as u64 >= worker.running);
    jobs.truncate(SHOWN);
    Ok((jobs, is_whole))
}

fn names(names: &[Name]) -> Markup {
    html! {
        @for (at, name) in names.iter().take(NAMES).enumerate() { @if at > 0 { ", " } (name) }
        @if names.len() > NAMES { " and " (number((names.len() - NAMES) as u64)) " more" }
    }
}

fn gone(caller: &Caller, session: SessionId) -> axum::response::Response {
    let content = html! {
        p.up { a href="/workers" { "Workers" } }
        h1 { "This worker is gone" }
        p.lead { "Its session " span.id { (session.0) } " has ended. Jobs that it ran went back in line, or ended." }
    };
    Frame::new(caller, Section::Workers, "A worker that is gone").around(content)
}
