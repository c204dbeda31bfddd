//! Jobs: looking at them, waiting for them, changing them.

use super::filter::Filter;
use super::input::{self, Body, JobPath, NoQuery, Query};
use super::problem::Problem;
use super::shape::{Change, Changes, Explanation, JobPage, Log, State, WholeJob, Wide};
use crate::caller::Caller;
use crate::shared::Shared;
use axum::Json;
use axum::extract::State as Shares;
use axum::http::{HeaderValue, header};
use axum::response::{IntoResponse, Response};
use qo_core::{Change as Change_, Error, ErrorKind, FenceToken, JobDetail, JobFilter, JobId, Result, caps};
use qo_text::fields::{number, text, texts, truth};
use qo_text::word;
use serde::Serialize;
use std::time::Duration;
use utoipa::ToSchema;

/// List jobs, in the order in which they were accepted or the newest first.
#[utoipa::path(
    get, path = "/api/v1/jobs", tag = "jobs",
    params(
        ("state" = Option<Vec<State>>, Query, style = Form, explode = false, description = "In one of these states, separated by commas."),
        ("queue" = Option<String>, Query, description = "In this queue."),
        ("task" = Option<String>, Query, description = "Of this task."),
        ("group" = Option<String>, Query, description = "Of this group."),
        ("key" = Option<String>, Query, description = "With this key."),
        ("workflow" = Option<String>, Query, description = "Of this workflow."),
        ("since" = Option<String>, Query, description = "Submitted at this moment or later: RFC 3339 with an offset, or how long ago, such as `2h`."),
        ("until" = Option<String>, Query, description = "Submitted before this moment."),
        ("id" = Option<String>, Query, description = "With an id that begins like this."),
        ("newest" = Option<bool>, Query, description = "The newest first."),
        ("cursor" = Option<String>, Query, description = "`next` of an earlier page."),
        ("limit" = Option<u32>, Query, minimum = 1, maximum = 1000, description = "Rows of a page. Defaults to 100."),
    ),
    responses((status = 200, description = "The jobs.", body = JobPage))
)]
pub(super) async fn list_jobs(caller: Caller, mut query: Query) -> Result<Json<JobPage>, Problem> {
    let filter = Filter::of_query(&mut query)?;
    let newest_first = query.take("newest", input::truth)?.unwrap_or(false);
    let (cursor, limit) = (query.cursor()?, query.limit()?);
    query.finish()?;
    let filter = JobFilter { newest_first, ..filter.at(&caller.store).await? };
    Ok(Json(caller.store.jobs(filter, cursor, limit).await?.into()))
}

/// Look at a job, or wait until it has ended.
///
/// With `wait` the answer comes when the job has ended, or after that time with the job as it is then.
#[utoipa::path(
    get, path = "/api/v1/jobs/{job}", tag = "jobs",
    params(
        ("job" = uuid::Uuid, Path, description = "The job."),
        ("wait" = Option<String>, Query, description = "Wait this long for its end, at most `60s`."),
    ),
    responses((status = 200, description = "The job.", body = WholeJob))
)]
pub(super) async fn get_job(
    caller: Caller,
    Shares(shared): Shares<Shared>,
    JobPath(job): JobPath,
    mut query: Query,
) -> Result<Json<WholeJob>, Problem> {
    let wait = query.wait()?.filter(|wait| !wait.is_zero());
    query.finish()?;
    let detail = match wait {
        None => caller.store.job(job).await?,
        Some(patience) => ended(&caller, &shared, job, patience).await?,
    };
    Ok(Json(detail.into()))
}

/// The job when it has ended, or as it is after that time.
async fn ended(
    caller: &Caller,
    shared: &Shared,
    job: JobId,
    patience: Duration,
) -> Result<JobDetail, Problem> {
    let _place = shared.waits.place()?;
    // Before the look, so that an end right after it is not missed.
    let mut end = shared.waits.end_of(job);
    let detail = caller.store.job(job).await?;
    if detail.view.state.is_terminal() {
        return Ok(detail);
    }
    let mut ending = shared.ending.clone();
    tokio::select! {
        _ = end.wait_for(|ended| *ended) => {}
        _ = ending.wait_for(|ending| *ending) => {}
        () = tokio::time::sleep(patience) => {}
    }
    Ok(caller.store.job(job).await?)
}

/// Why a job does not run.
#[utoipa::path(
    get, path = "/api/v1/jobs/{job}/explain", tag = "jobs",
    params(("job" = uuid::Uuid, Path, description = "The job.")),
    responses((status = 200, description = "Everything that keeps it from running.", body = Explanation))
)]
pub(super) async fn explain_job(
    caller: Caller,
    JobPath(job): JobPath,
    _: NoQuery,
) -> Result<Json<Explanation>, Problem> {
    Ok(Json(caller.store.explain(job).await?.into()))
}

/// The logs of a job's attempts, also while they run.
#[utoipa::path(
    get, path = "/api/v1/jobs/{job}/logs", tag = "jobs",
    params(
        ("job" = uuid::Uuid, Path, description = "The job."),
        ("attempt" = Option<u32>, Query, description = "Only of this attempt, 1 for the first."),
    ),
    responses((status = 200, description = "The logs, the oldest first.", body = Vec<Log>))
)]
pub(super) async fn list_logs(
    caller: Caller,
    JobPath(job): JobPath,
    mut query: Query,
) -> Result<Json<Vec<Log>>, Problem> {
    let attempt = query.take("attempt", attempt)?;
    query.finish()?;
    let mut logs = Vec::new();
    for (attempt, token, running) in tries(&caller.store.job(job).await?, attempt)? {
        let log = caller.store.log(token).await?;
        logs.push(Log { attempt, token: token.into(), running, log });
    }
    Ok(Json(logs))
}

/// The log of a job's newest attempt, or of another one, as text.
#[utoipa::path(
    get, path = "/api/v1/jobs/{job}/log", tag = "jobs",
    params(
        ("job" = uuid::Uuid, Path, description = "The job."),
        ("attempt" = Option<u32>, Query, description = "Of this attempt, 1 for the first."),
    ),
    responses((status = 200, description = "The log; empty if it has logged nothing.", body = String, content_type = "text/plain"))
)]
pub(super) async fn get_log(
    caller: Caller,
    JobPath(job): JobPath,
    mut query: Query,
) -> Result<Response, Problem> {
    let attempt = query.take("attempt", attempt)?;
    query.finish()?;
    let newest = tries(&caller.store.job(job).await?, attempt)?.pop();
    let log = match newest {
        Some((_, token, _)) => caller.store.log(token).await?.unwrap_or_default(),
        None => String::new(),
    };
    let text = HeaderValue::from_static("text/plain; charset=utf-8");
    Ok(([(header::CONTENT_TYPE, text)], log).into_response())
}

fn attempt(text: &str) -> Result<u32, String> {
    text.parse().map_err(|_| "must be the number of an attempt, 1 for the first".to_owned())
}

/// The attempts that are asked for, the oldest first, and whether they still run.
fn tries(job: &JobDetail, wanted: Option<u32>) -> Result<Vec<(u32, FenceToken, bool)>> {
    let running = job.view.running.as_ref().map(|run| (job.view.attempts_used + 1, run.token, true));
    let ended = job.attempts.iter().map(|attempt| (attempt.number, attempt.token, false));
    let is_wanted = |number: u32| wanted.is_none_or(|wanted| wanted == number);
    let tries: Vec<_> = ended.chain(running).filter(|(number, ..)| is_wanted(*number)).collect();
    match wanted {
        Some(wanted) if tries.is_empty() => {
            Err(Error::new(ErrorKind::NotFound, format!("job {} has no attempt {wanted}", job.view.id)))
        }
        _ => Ok(tries),
    }
}

/// Cancel a job: a waiting one ends at once, a running one is told to stop.
#[utoipa::path(
    post, path = "/api/v1/jobs/{job}/cancel", tag = "jobs",
    params(("job" = uuid::Uuid, Path, description = "The job.")),
    responses((status = 200, description = "Its state now; `running` means that it was asked to stop.", body = Change))
)]
pub(super) async fn cancel_job(
    caller: Caller,
    JobPath(job): JobPath,
    _: NoQuery,
) -> Result<Json<Change>, Problem> {
    one(job, caller.store.cancel(vec![job]).await?)
}

/// Reopen a failed, cancelled or expired job with all its attempts; one that waits for its next attempt runs now.
#[utoipa::path(
    post, path = "/api/v1/jobs/{job}/retry", tag = "jobs",
    params(("job" = uuid::Uuid, Path, description = "The job.")),
    responses((status = 200, description = "Its state now.", body = Change))
)]
pub(super) async fn retry_job(
    caller: Caller,
    JobPath(job): JobPath,
    _: NoQuery,
) -> Result<Json<Change>, Problem> {
    one(job, caller.store.retry(vec![job]).await?)
}

fn one(job: JobId, became: Vec<Result<qo_core::JobState>>) -> Result<Json<Change>, Problem> {
    let became = became.into_iter().next();
    let missing = || Err(Error::new(ErrorKind::Internal, "the store did not say what became of the job"));
    let state = became.unwrap_or_else(missing)?;
    Ok(Json(Change::new(job, Ok(state))))
}

/// Which jobs to change: by `jobs`, by a filter, or with `all`.
#[derive(Serialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct Selection {
    /// The jobs, at most 10,000.
    #[schema(max_items = 10_000)]
    jobs: Option<Vec<uuid::Uuid>>,
    /// Every job that can be changed.
    all: Option<bool>,
    /// In one of these states.
    state: Option<Vec<State>>,
    /// In this queue.
    queue: Option<String>,
    /// Of this task.
    task: Option<String>,
    /// Of this group.
    group: Option<String>,
    /// With this key.
    key: Option<String>,
    /// Of this workflow.
    workflow: Option<String>,
    /// Submitted at this moment or later: RFC 3339 with an offset, or how long ago, such as `2h`.
    since: Option<String>,
    /// Submitted before this moment.
    until: Option<String>,
    /// With an id that begins like this.
    id: Option<String>,
    /// `next` of an earlier answer.
    cursor: Option<String>,
    /// Most jobs that this request changes. Defaults to 1,000.
    #[schema(minimum = 1, maximum = 1_000)]
    limit: Option<u32>,
}

/// Cancel many jobs.
///
/// By a filter it changes up to `limit` jobs; send it again with `cursor` until `next` is null.
#[utoipa::path(
    post, path = "/api/v1/jobs/cancel", tag = "jobs", request_body = Selection,
    responses((status = 200, description = "What was changed.", body = Changes))
)]
pub(super) async fn cancel_jobs(caller: Caller, _: NoQuery, body: Body) -> Result<Json<Changes>, Problem> {
    change(caller, body, Change_::Cancel).await
}

/// Retry many jobs.
///
/// By a filter it changes up to `limit` jobs; send it again with `cursor` until `next` is null.
#[utoipa::path(
    post, path = "/api/v1/jobs/retry", tag = "jobs", request_body = Selection,
    responses((status = 200, description = "What was changed.", body = Changes))
)]
pub(super) async fn retry_jobs(caller: Caller, _: NoQuery, body: Body) -> Result<Json<Changes>, Problem> {
    change(caller, body, Change_::Retry).await
}

async fn change(caller: Caller, body: Body, change: Change_) -> Result<Json<Changes>, Problem> {
    let mut fields = body.fields("a selection of jobs")?;
    let jobs = fields.take("jobs", texts(word::job))?;
    let all = fields.take("all", truth)?.unwrap_or(false);
    let filter = Filter::of_fields(&mut fields)?;
    let cursor = fields.take("cursor", text(input::cursor))?;
    let limit = fields.take("limit", |raw| input::limit(&number::<u64>(raw)?.to_string()))?;
    fields.finish()?;
    let filter = filter.at(&caller.store).await?;
    let is_empty = filter == JobFilter::default();
    match (jobs, is_empty, all) {
        (Some(jobs), true, false) => by_id(&caller, jobs, change).await,
        (None, false, false) | (None, true, true) => {
            let limit = limit.unwrap_or(caps::PAGE);
            let changed = caller.store.change_matching(change, filter, cursor, limit).await?;
            let next = changed.next.map(|cursor| Wide(cursor.0));
            Ok(Json(Changes { changed: changed.jobs, jobs: None, next }))
        }
        (None, true, false) => {
            Err(Error::invalid("jobs", "", "must be given, or a filter such as task, or all").into())
        }
        _ => {
            let rule = "must be the only choice: name jobs, or a filter, or all";
            Err(Error::invalid("jobs", "", rule).into())
        }
    }
}

async fn by_id(caller: &Caller, jobs: Vec<JobId>, change: Change_) -> Result<Json<Changes>, Problem> {
    let became = match change {
        Change_::Cancel => caller.store.cancel(jobs.clone()).await?,
        Change_::Retry => caller.store.retry(jobs.clone()).await?,
    };
    let jobs: Vec<_> = jobs.into_iter().zip(became).map(|(job, became)| Change::new(job, became)).collect();
    let changed = jobs.iter().filter(|change| change.is_done()).count() as u64;
    Ok(Json(Changes { changed, jobs: Some(jobs), next: None }))
}
