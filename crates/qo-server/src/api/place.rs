//! Queues, workers and totals.

use super::input::{NamePath, NoQuery, Query, page};
use super::problem::Problem;
use super::shape::{Paused, QueuePage, Status, StatusJobs, StatusWorkers, WorkerPage};
use crate::caller::Caller;
use axum::Json;
use qo_core::{Name, QueueStatus, Result, WorkerStatus};

/// What reads a cursor that the server wrote itself.
#[expect(clippy::unnecessary_wraps, reason = "every reader of a parameter may refuse")]
pub(super) fn any(text: &str) -> Result<String, String> {
    Ok(text.to_owned())
}

/// List queues that have live jobs, a limit, a priority or a pause, by name.
#[utoipa::path(
    get, path = "/api/v1/queues", tag = "queues",
    params(
        ("cursor" = Option<String>, Query, description = "`next` of an earlier page."),
        ("limit" = Option<u32>, Query, minimum = 1, maximum = 1000, description = "Rows of a page. Defaults to 100."),
    ),
    responses((status = 200, description = "The queues.", body = QueuePage))
)]
pub(super) async fn list_queues(caller: Caller, mut query: Query) -> Result<Json<QueuePage>, Problem> {
    let (cursor, limit) = (query.take("cursor", any)?, query.limit()?);
    query.finish()?;
    let place = |queue: &QueueStatus| queue.queue.to_string();
    let (queues, next) = page(caller.store.queues().await?, cursor.as_deref(), limit, place);
    Ok(Json(QueuePage { queues: queues.into_iter().map(Into::into).collect(), next }))
}

/// Start nothing more from a queue. Running jobs go on, and submits are accepted.
#[utoipa::path(
    put, path = "/api/v1/queues/{queue}/pause", tag = "queues",
    params(("queue" = String, Path, description = "The queue.")),
    responses((status = 200, description = "It is paused.", body = Paused))
)]
pub(super) async fn pause_queue(
    caller: Caller,
    NamePath(queue): NamePath,
    _: NoQuery,
) -> Result<Json<Paused>, Problem> {
    pause(caller, queue, true).await
}

/// Start jobs from a queue again.
#[utoipa::path(
    put, path = "/api/v1/queues/{queue}/resume", tag = "queues",
    params(("queue" = String, Path, description = "The queue.")),
    responses((status = 200, description = "It runs.", body = Paused))
)]
pub(super) async fn resume_queue(
    caller: Caller,
    NamePath(queue): NamePath,
    _: NoQuery,
) -> Result<Json<Paused>, Problem> {
    pause(caller, queue, false).await
}

async fn pause(caller: Caller, queue: Name, paused: bool) -> Result<Json<Paused>, Problem> {
    caller.store.pause_queue(queue.clone(), paused).await?;
    Ok(Json(Paused { queue: queue.to_string(), paused }))
}

/// List live workers, by name, then session.
#[utoipa::path(
    get, path = "/api/v1/workers", tag = "workers",
    params(
        ("cursor" = Option<String>, Query, description = "`next` of an earlier page."),
        ("limit" = Option<u32>, Query, minimum = 1, maximum = 1000, description = "Rows of a page. Defaults to 100."),
    ),
    responses((status = 200, description = "The workers.", body = WorkerPage))
)]
pub(super) async fn list_workers(caller: Caller, mut query: Query) -> Result<Json<WorkerPage>, Problem> {
    let (cursor, limit) = (query.take("cursor", any)?, query.limit()?);
    query.finish()?;
    // No name has a space, which comes before every character of a name, so places are in the order of the list.
    let place = |worker: &WorkerStatus| format!("{} {}", worker.worker, worker.session);
    let (workers, next) = page(caller.store.workers().await?, cursor.as_deref(), limit, place);
    Ok(Json(WorkerPage { workers: workers.into_iter().map(Into::into).collect(), next }))
}

/// Totals: how much runs and waits, and how many workers there are.
#[utoipa::path(
    get, path = "/api/v1/status", tag = "status",
    responses((status = 200, description = "The totals.", body = Status))
)]
pub(super) async fn get_status(caller: Caller, _: NoQuery) -> Result<Json<Status>, Problem> {
    let (queues, workers) = (caller.store.queues().await?, caller.store.workers().await?);
    let mut jobs = StatusJobs::default();
    for queue in &queues {
        jobs.running += queue.running;
        jobs.claimed += queue.claimed;
        jobs.due += queue.due;
        jobs.scheduled += queue.scheduled;
        jobs.waiting += queue.waiting;
    }
    let mut live = StatusWorkers::default();
    for worker in &workers {
        live.live += 1;
        live.permits += u64::from(worker.permits);
        live.free_permits += u64::from(worker.free_permits);
    }
    Ok(Json(Status {
        version: env!("CARGO_PKG_VERSION"),
        now: caller.store.now().await?.into(),
        jobs,
        queues: queues.len(),
        paused_queues: queues.iter().filter(|queue| queue.paused).count(),
        workers: live,
    }))
}
