//! Submitting jobs: one, or many.

use super::input::{Kind, NoQuery, Text};
use super::problem::Problem;
use super::shape::{Batch, Line, NewJob, Submitted};
use crate::caller::Caller;
use axum::Json;
use axum::extract::Request;
use axum::http::{HeaderMap, StatusCode, header};
use axum::response::{IntoResponse, Response};
use qo_core::{Error, ErrorKind, Key, NewJob as Job, Result, Store, Time, caps};
use qo_text::{JobText, Zone};
use serde_json::value::RawValue;
use std::sync::Arc;

/// Most bytes of a job: its payload, and room for everything else.
const JOB_BYTES: usize = caps::PAYLOAD_BYTES + (64 << 10);
/// Most bytes of a batch: as many payloads as a call may carry, and as much again for everything else.
const BATCH_BYTES: usize = 2 * caps::SUBMIT_BYTES;
/// The header that carries an idempotency key.
const IDEMPOTENCY_KEY: &str = "idempotency-key";
/// How often a submit is made whose answer was lost on the way to the store. The jobs keep their ids.
const TRIES: u32 = 3;

/// Submit a job.
///
/// 201 if it is new, 200 if it was submitted before or was skipped. After a lost answer send the same request again:
/// with an `id` or an idempotency key it is the same job.
#[utoipa::path(
    post, path = "/api/v1/jobs", tag = "jobs",
    params(("Idempotency-Key" = Option<String>, Header, description = "A second submission with the same key is the same job.")),
    request_body = NewJob,
    responses(
        (status = 201, description = "The job is new.", body = Submitted, headers(("Location" = String, description = "The job."))),
        (status = 200, description = "The job was submitted before, or was skipped.", body = Submitted),
    )
)]
pub(super) async fn submit_job(
    caller: Caller,
    _: NoQuery,
    headers: HeaderMap,
    request: Request,
) -> Result<Response, Problem> {
    let body = Text::read(request, JOB_BYTES, false).await?;
    let mut job = JobText::parse(&body.text, Zone::Given)?;
    job.idempotency_key = idempotency_key(&headers, job.idempotency_key)?;
    let now = now(&caller.store, job.needs_now()).await?;
    let outcomes =
        submit(&caller.store, vec![job.job(now)?]).await.map_err(|error| error.without_item("jobs"))?;
    let outcome = outcomes.into_iter().next().unwrap_or_else(|| {
        Err(Error::new(ErrorKind::Internal, "the store did not say what became of the job"))
    })?;
    Ok(submitted(outcome))
}

/// The answer to a submit of one job.
pub(super) fn submitted(outcome: qo_core::Submitted) -> Response {
    let is_new = matches!(outcome, qo_core::Submitted::Accepted(_));
    let submitted = Submitted::from(outcome);
    let location = submitted.id.map(|id| format!("/api/v1/jobs/{id}"));
    match location.filter(|_| is_new) {
        Some(location) => {
            (StatusCode::CREATED, [(header::LOCATION, location)], Json(submitted)).into_response()
        }
        None => Json(submitted).into_response(),
    }
}

/// Submit up to 10,000 jobs in one step.
///
/// The body is an array of jobs, or with `Content-Type: application/x-ndjson` a job on each line. A mistake in one of
/// them refuses all; otherwise each has an outcome of its own.
#[utoipa::path(
    post, path = "/api/v1/jobs/batch", tag = "jobs",
    request_body(content((Vec<NewJob> = "application/json"), (String = "application/x-ndjson")), description = "The jobs."),
    responses((status = 200, description = "What became of each.", body = Batch))
)]
pub(super) async fn submit_jobs(
    caller: Caller,
    _: NoQuery,
    headers: HeaderMap,
    request: Request,
) -> Result<Json<Batch>, Problem> {
    if let Some(key) = headers.get(IDEMPOTENCY_KEY) {
        let rule = "must not be given for a batch: each job has an idempotency_key of its own";
        return Err(Error::invalid("Idempotency-Key", String::from_utf8_lossy(key.as_bytes()), rule).into());
    }
    let body = Text::read(request, BATCH_BYTES, true).await?;
    let texts = match body.kind {
        Kind::Json => of_array(&body.text)?,
        Kind::Lines => of_lines(&body.text)?,
    };
    let now = now(&caller.store, texts.iter().any(|(_, job)| job.needs_now())).await?;
    let lines: Vec<usize> = texts.iter().map(|(line, _)| *line).collect();
    let jobs: Vec<Job> = texts.into_iter().map(|(_, job)| job.job(now)).collect::<Result<_>>()?;
    let outcomes = submit(&caller.store, jobs).await?;
    let jobs = lines.into_iter().zip(outcomes).map(|(line, outcome)| Line::new(line, outcome)).collect();
    Ok(Json(Batch { jobs }))
}

type Numbered = Vec<(usize, JobText)>;

fn of_array(text: &str) -> Result<Numbered> {
    let all: Vec<&RawValue> = serde_json::from_str(text)
        .map_err(|error| Error::invalid("body", text, format_args!("must be an array of jobs: {error}")))?;
    read(all.into_iter().map(RawValue::get).zip(1..), |error, _| error)
}

fn of_lines(text: &str) -> Result<Numbered> {
    let lines = text.lines().zip(1..).filter(|(line, _)| !line.trim().is_empty());
    read(lines, |error, line| error.found_in(format_args!("line {line}")))
}

/// Reads jobs, and lists every mistake. `place` adds where in the body it is.
fn read<'a>(
    texts: impl Iterator<Item = (&'a str, usize)>,
    place: impl Fn(Error, usize) -> Error,
) -> Result<Numbered> {
    let (mut jobs, mut mistakes) = (Vec::new(), Vec::new());
    for (at, (text, line)) in texts.enumerate() {
        if at == caps::SUBMIT_JOBS {
            let rule = format_args!("must be at most {}", caps::SUBMIT_JOBS);
            return Err(Error::invalid("jobs", "more", rule));
        }
        // Its dates are not those of the store, but whatever needs no time is found out here, for all jobs at once.
        let read = |text| {
            let job = JobText::parse(text, Zone::Given)?;
            job.clone().job(Time::from_millis(0))?;
            Ok(job)
        };
        match read(text) {
            Ok(job) => jobs.push((line, job)),
            Err(error) => mistakes.push(place(Error::at_item(error, "jobs", at), line)),
        }
        if mistakes.len() == caps::MISTAKES {
            break;
        }
    }
    Error::all(mistakes)?;
    Ok(jobs)
}

/// The idempotency key of a job: from the body, or from the header.
fn idempotency_key(headers: &HeaderMap, given: Option<Key>) -> Result<Option<Key>> {
    let Some(header) = headers.get(IDEMPOTENCY_KEY) else { return Ok(given) };
    let text = header.to_str().unwrap_or_default();
    // The draft of the header writes a string in quotes; most clients leave them out.
    let inner = text.strip_prefix('"').and_then(|text| text.strip_suffix('"')).unwrap_or(text);
    let key = Key::parse("Idempotency-Key", inner)?;
    match given {
        Some(given) if given != key => {
            let rule = "must be that of the body, or be left out";
            Err(Error::invalid("Idempotency-Key", text, rule))
        }
        _ => Ok(Some(key)),
    }
}

/// The store's time, if a job needs it.
async fn now(store: &Arc<dyn Store>, needed: bool) -> Result<Time> {
    if needed { store.now().await } else { Ok(Time::from_millis(0)) }
}

/// Submits. The same ids again are the same jobs, so a lost answer does no harm.
async fn submit(store: &Arc<dyn Store>, jobs: Vec<Job>) -> Result<Vec<Result<qo_core::Submitted>>> {
    let mut left = TRIES;
    loop {
        left -= 1;
        match store.submit(jobs.clone()).await {
            Err(error) if error.kind() == ErrorKind::Unknown && left > 0 => {}
            answer => return answer,
        }
    }
}
