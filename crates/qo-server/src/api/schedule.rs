//! Schedules: enable, disable and trigger them.

use super::input::{Body, NamePath, NoQuery, Query, page};
use super::place::any;
use super::problem::Problem;
use super::shape::{Enabled, SchedulePage, Submitted};
use super::submit::submitted;
use crate::caller::Caller;
use axum::Json;
use axum::response::Response;
use qo_core::{Name, Result, ScheduleStatus};
use qo_text::fields::text;
use qo_text::{new_id, word};
use serde::Serialize;
use utoipa::ToSchema;

/// List schedules, by name.
#[utoipa::path(
    get, path = "/api/v1/schedules", tag = "schedules",
    params(
        ("cursor" = Option<String>, Query, description = "`next` of an earlier page."),
        ("limit" = Option<u32>, Query, minimum = 1, maximum = 1000, description = "Rows of a page. Defaults to 100."),
    ),
    responses((status = 200, description = "The schedules.", body = SchedulePage))
)]
pub(super) async fn list_schedules(caller: Caller, mut query: Query) -> Result<Json<SchedulePage>, Problem> {
    let (cursor, limit) = (query.take("cursor", any)?, query.limit()?);
    query.finish()?;
    let place = |schedule: &ScheduleStatus| schedule.schedule.to_string();
    let (schedules, next) = page(caller.store.schedules().await?, cursor.as_deref(), limit, place);
    Ok(Json(SchedulePage { schedules: schedules.into_iter().map(Into::into).collect(), next }))
}

/// Let a schedule fire.
#[utoipa::path(
    put, path = "/api/v1/schedules/{schedule}/enable", tag = "schedules",
    params(("schedule" = String, Path, description = "The schedule.")),
    responses((status = 200, description = "It fires.", body = Enabled))
)]
pub(super) async fn enable_schedule(
    caller: Caller,
    NamePath(schedule): NamePath,
    _: NoQuery,
) -> Result<Json<Enabled>, Problem> {
    enable(caller, schedule, true).await
}

/// Do not let a schedule fire. Ticks that pass meanwhile are not made up for.
#[utoipa::path(
    put, path = "/api/v1/schedules/{schedule}/disable", tag = "schedules",
    params(("schedule" = String, Path, description = "The schedule.")),
    responses((status = 200, description = "It does not fire.", body = Enabled))
)]
pub(super) async fn disable_schedule(
    caller: Caller,
    NamePath(schedule): NamePath,
    _: NoQuery,
) -> Result<Json<Enabled>, Problem> {
    enable(caller, schedule, false).await
}

async fn enable(caller: Caller, schedule: Name, enabled: bool) -> Result<Json<Enabled>, Problem> {
    caller.store.enable_schedule(schedule.clone(), enabled).await?;
    Ok(Json(Enabled { schedule: schedule.to_string(), enabled }))
}

/// The job that a schedule submits now.
#[derive(Serialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct Trigger {
    /// Its id, made by the client, so that a repeated request is the same job. Defaults to a new one.
    id: Option<uuid::Uuid>,
}

/// Submit a schedule's job now, enabled or not; its ticks stay as they are.
///
/// 429 if an earlier job of it has not ended, unless they may overlap.
#[utoipa::path(
    post, path = "/api/v1/schedules/{schedule}/trigger", tag = "schedules", request_body = Option<Trigger>,
    params(("schedule" = String, Path, description = "The schedule.")),
    responses(
        (status = 201, description = "The job is new.", body = Submitted, headers(("Location" = String, description = "The job."))),
        (status = 200, description = "The job was submitted before, or was skipped.", body = Submitted),
    )
)]
pub(super) async fn trigger_schedule(
    caller: Caller,
    NamePath(schedule): NamePath,
    _: NoQuery,
    body: Body,
) -> Result<Response, Problem> {
    let mut fields = body.fields("a job of a schedule")?;
    let id = fields.take("id", text(word::job))?.unwrap_or_else(new_id);
    fields.finish()?;
    Ok(submitted(caller.store.trigger_schedule(schedule, id).await?))
}
