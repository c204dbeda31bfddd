//! `/jobs/JOB`: what one job is, why it waits, what its attempts did and said.

use super::action::Action;
use super::frame::{After, Answer, Frame, Pace, Section, Trouble, raw};
use super::moment::{Now, clock, length};
use super::text::{SHOWN, pretty, tail};
use super::{link, piece};
use crate::caller::{Caller, Scope};
use crate::shared::Shared;
use axum::extract::{Path, Query, State};
use maud::{Markup, html};
use qo_core::words::{self, state_name};
use qo_core::{Attempt, AttemptOutcome, Error, Explanation, FenceToken, JobDetail, JobId, JobState, JobView};
use qo_core::{GroupRef, Json, Result, Running};
use std::collections::BTreeMap;
use uuid::Uuid;

/// Attempts whose log is shown. Those of the others are one click away.
const LOGS: usize = 3;
/// Attempts that are shown.
const ATTEMPTS: usize = 20;

fn id(text: &str) -> Result<JobId> {
    let id = text.parse::<Uuid>().map(JobId);
    id.map_err(|_| Error::invalid("job", text, "must be the id of a job"))
}

pub(crate) async fn one(
    State(shared): State<Shared>,
    caller: Caller,
    Path(job): Path<String>,
    Query(after): Query<After>,
) -> Answer {
    shared.history.wake(&shared);
    let job = id(&job)?;
    let store = &caller.store;
    let (now, detail, explanation) = tokio::try_join!(store.now(), store.job(job), store.explain(job))?;
    let now = Now(now);
    let view = &detail.view;
    let logs = logs(&caller, &detail).await?;
    let title = format!("{} {}", view.task, state_name(view.state));
    let content = html! {
        p.up { a href="/jobs" { "Jobs" } }
        h1 { (view.task) " " (piece::state_of(view)) }
        p.lead { span.id { (view.id.0) } }
        @if let Some(unreadable) = &view.unreadable { p.bad role="alert" { "Part of it cannot be read: " (unreadable) } }
        @if caller.may(Scope::Admin) { (actions(view)) }
        (why(&explanation, view, now))
        @if let Some(run) = &view.running { (running(run, view, now, logs.get(&run.token))) }
        (facts(view, now))
        (json("payload", "Payload", Some(&detail.payload), view.id))
        (json("output", "Output", detail.output.as_ref(), view.id))
        (attempts(&detail, now, &logs))
    };
    let pace = if view.state == JobState::Running { Pace::Following } else { Pace::Usual };
    Ok(Frame::new(&caller, Section::Jobs, title).after(after).pace(pace).around(content))
}

/// The logs of the newest attempts, and of the one that runs.
async fn logs(caller: &Caller, detail: &JobDetail) -> Result<BTreeMap<FenceToken, String>> {
    let running = detail.view.running.iter().map(|run| run.token);
    let newest = detail.attempts.iter().rev().take(LOGS).map(|attempt| attempt.token);
    let mut logs = BTreeMap::new();
    for token in running.chain(newest) {
        if let Some(log) = caller.store.log(token).await? {
            logs.insert(token, log);
        }
    }
    Ok(logs)
}

fn actions(view: &JobView) -> Markup {
    let may_cancel = !view.state.is_terminal() && !view.cancel_requested;
    let waits = view.state == JobState::Pending && view.attempts_used > 0;
    let may_retry = waits || matches!(view.state, JobState::Failed | JobState::Cancelled | JobState::Expired);
    html! {
        @if may_cancel || may_retry {
            div.actions {
                @if may_retry { (piece::button(&Action::RetryJob(view.id), "Retry")) }
                @if may_cancel { (piece::danger(&Action::CancelJob(view.id), "Cancel")) }
            }
        }
    }
}

/// Why it does not run, in the words of `qo explain`.
fn why(explanation: &Explanation, view: &JobView, now: Now) -> Markup {
    if explanation.reasons.is_empty() {
        return html! {};
    }
    let worker = |task: &qo_core::Name| format!("qo worker --task {task}=COMMAND");
    html! {
        section.why aria-labelledby="why" {
            h2 id="why" { "Why it waits" }
            ul {
                @for reason in &explanation.reasons {
                    @let (why, advice) = words::told(reason, view.id, &now, worker);
                    li {
                        p.sentence { (why) }
                        @if let Some(advice) = advice { p.advice { (advice) } }
                    }
                }
            }
        }
    }
}

fn running(run: &Running, view: &JobView, now: Now, log: Option<&String>) -> Markup {
    html! {
        section aria-labelledby="running" {
            h2 id="running" { "Attempt " (view.attempts_used + 1) " runs" }
            p {
                "On " a href=(link::worker(run.session)) { (run.worker) } " for " (now.since(run.since))
                "; its lease ends " (now.ago(run.lease_until)) " unless it is renewed."
            }
            @if let Some(progress) = &run.progress {
                p.progress {
                    progress max="100" value=(progress.percent) aria-label="Progress" { (progress.percent) " %" }
                    " " b { (progress.percent) " %" } " " bdi { (progress.note) }
                }
            }
            (log_of(view.id, run.token, log, true))
        }
    }
}

fn log_of(job: JobId, token: FenceToken, log: Option<&String>, follows: bool) -> Markup {
    let Some(log) = log else {
        return html! { @if follows { p.calm { "It has logged nothing yet." } } };
    };
    let (shown, is_whole) = tail(log, SHOWN);
    let label = if follows { "Log, as it is written" } else { "Log" };
    html! {
        @if !is_whole {
            p.more { "The end of the log. " a href={(link::job(job)) "/logs/" (token.0)} { "All of it" } }
        }
        pre.log id={"log-" (token.0)} tabindex="0" role="region" aria-label=(label) { (shown) }
    }
}

fn facts(view: &JobView, now: Now) -> Markup {
    let group = GroupRef::narrowest(&view.group, view.key.as_ref());
    html! {
        section aria-labelledby="facts" {
            h2.unseen id="facts" { "What it is" }
            dl.facts {
                dt { "Queue" } dd { a href=(link::jobs("queue", &view.queue)) { (view.queue) } }
                dt { "Group" } dd { a href=(link::group(&group)) { bdi { (group) } } }
                @if view.cost != 1 { dt { "Cost" } dd { (words::counted(view.cost.into(), "slot")) } }
                @if !view.limits.is_empty() {
                    dt { "Further limits" }
                    dd {
                        @for (at, (group, slots)) in view.limits.iter().enumerate() {
                            @if at > 0 { ", " }
                            a href=(link::group(group)) { bdi { (group) } } " " (slots)
                        }
                    }
                }
                @if view.priority != 0 { dt { "Priority" } dd { (view.priority) } }
                dt { "Attempts" } dd { (view.attempts_used) " of " (view.max_attempts) " used" }
                dt { "Submitted" } dd { (now.ago(view.submitted_at)) ", " (clock(view.submitted_at)) }
                @if view.run_at > view.submitted_at { dt { "Runs from" } dd { (now.ago(view.run_at)) ", " (clock(view.run_at)) } }
                @if let Some(until) = view.good_until { dt { "Good until" } dd { (now.ago(until)) ", " (clock(until)) } }
                @if let Some(at) = view.finished_at { dt { "Ended" } dd { (now.ago(at)) ", " (clock(at)) } }
                @if let Some(ms) = view.timeout_ms { dt { "Timeout" } dd { (length(ms)) } }
                @if let Some(workflow) = &view.workflow {
                    dt { "Workflow" }
                    dd { a href=(link::workflow(workflow)) { (workflow) } @if let Some(step) = view.step { ", step " (step) } }
                }
                @if let Some(key) = &view.idempotency_key { dt { "Idempotency key" } dd { bdi { (&**key) } } }
                @if let Some(trace) = &view.traceparent { dt { "Trace" } dd { span.id { (trace) } } }
            }
        }
    }
}

fn json(name: &str, title: &str, value: Option<&Json>, job: JobId) -> Markup {
    let Some(value) = value else { return html! {} };
    let (shown, is_whole) = pretty(value.as_str(), SHOWN);
    html! {
        section aria-labelledby=(name) {
            h2 id=(name) { (title) }
            pre tabindex="0" role="region" aria-label=(title) { (shown) }
            @if !is_whole {
                p.more {
                    "The beginning of " (words::counted(value.as_str().len() as u64, "byte")) ". "
                    a href={(link::job(job)) "/" (name)} { "All of it" }
                }
            }
        }
    }
}

fn attempts(detail: &JobDetail, now: Now, logs: &BTreeMap<FenceToken, String>) -> Markup {
    let job = detail.view.id;
    let all = detail.attempts.len();
    html! {
        @if all > 0 {
            section aria-labelledby="attempts" {
                h2 id="attempts" { "Attempts" }
                ol.attempts {
                    @for attempt in detail.attempts.iter().rev().take(ATTEMPTS) {
                        li id={"attempt-" (attempt.token.0)} {
                            p {
                                b { "Attempt " (attempt.number) } " " (outcome(attempt)) " on "
                                a href=(link::worker(attempt.session)) { (attempt.worker) }
                                ", " (now.ago(attempt.started_at)) ", for " (length(attempt.duration_ms()))
                            }
                            @if let Some(error) = &attempt.error { pre.error tabindex="0" role="region" aria-label="Error" { (error) } }
                            @match logs.get(&attempt.token) {
                                Some(log) => {
                                    details id={"details-" (attempt.token.0)} {
                                        summary { "Log" }
                                        (log_of(job, attempt.token, Some(log), false))
                                    }
                                },
                                None => { p.more { a href={(link::job(job)) "/logs/" (attempt.token.0)} { "Log" } } },
                            }
                        }
                    }
                }
                @if all > ATTEMPTS { p.more { "The newest " (ATTEMPTS) " of " (all) "." } }
            }
        }
    }
}

fn outcome(attempt: &Attempt) -> Markup {
    let (class, said) = match attempt.outcome {
        AttemptOutcome::Succeeded => ("succeeded", "succeeded"),
        AttemptOutcome::Retried => ("held", "asked for another attempt"),
        AttemptOutcome::Failed => ("failed", "failed"),
        AttemptOutcome::Snoozed => ("pending", "snoozed"),
        AttemptOutcome::Released => ("pending", "given back"),
        AttemptOutcome::Cancelled => ("cancelled", "cancelled"),
        AttemptOutcome::LeaseEnded => ("failed", "lease ended"),
        AttemptOutcome::TimedOut => ("failed", "timed out"),
        AttemptOutcome::ReleasedByOperator => ("failed", "released by operator"),
        _ => ("pending", "ended"),
    };
    html! { span class={"state " (class)} { (said) } }
}

pub(crate) async fn payload(caller: Caller, Path(job): Path<String>) -> Answer {
    let detail = caller.store.job(id(&job)?).await?;
    Ok(raw(detail.payload.as_str().to_owned()))
}

pub(crate) async fn output(caller: Caller, Path(job): Path<String>) -> Answer {
    let detail = caller.store.job(id(&job)?).await?;
    let output = detail.output.ok_or_else(Trouble::nothing_here)?;
    Ok(raw(output.as_str().to_owned()))
}

/// The log of one attempt. The token must be one of the job's, so that no other job's log is found by a guess.
pub(crate) async fn log(caller: Caller, Path((job, token)): Path<(String, u64)>) -> Answer {
    let detail = caller.store.job(id(&job)?).await?;
    let token = FenceToken(token);
    let runs = detail.view.running.as_ref().is_some_and(|run| run.token == token);
    if !runs && detail.attempts.iter().all(|attempt| attempt.token != token) {
        return Err(Trouble::nothing_here());
    }
    let log = caller.store.log(token).await?;
    Ok(raw(log.unwrap_or_else(|| "no log is kept of this attempt\n".into())))
}
