//! Slots for programs that are not jobs.

use super::input::{Body, NoQuery, Query};
use super::problem::Problem;
use super::shape::SlotLease;
use crate::caller::Caller;
use axum::Json;
use axum::extract::Path;
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use qo_core::{Error, ErrorKind, FenceToken, LeaseId, Result, SlotRequest};
use qo_text::fields::{duration, number, text, wide};
use qo_text::word;
use serde::Serialize;
use utoipa::ToSchema;
use uuid::Uuid;

/// Slots to take.
#[derive(Serialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct NewSlots {
    /// The id of the lease, made by the client: the same id again, while the slots are held, gets the same lease.
    /// Defaults to a new one.
    id: Option<Uuid>,
    /// `GROUP`, or `GROUP/KEY`, which takes slots of both.
    group: String,
    /// How many slots. Defaults to 1.
    #[schema(minimum = 1, maximum = 1_000_000)]
    slots: Option<u32>,
    /// The program's name: a label for operators.
    #[schema(pattern = "^[A-Za-z0-9_][A-Za-z0-9_.-]{0,127}$", example = "backup")]
    holder: String,
    /// How long it holds them unless it extends the lease, such as `30s`.
    #[schema(example = "30s")]
    lease: String,
    /// A limit for the group where no other source has set one. Defaults to none.
    #[schema(maximum = 1_000_000)]
    limit: Option<u32>,
}

/// Take slots of a group for a program that is not a job: all of them, or none.
///
/// It does not wait: 429 if too few are free. Without an extension the lease ends after `lease`.
#[utoipa::path(
    post, path = "/api/v1/slots", tag = "slots", request_body = NewSlots,
    responses((status = 201, description = "The program holds them.", body = SlotLease))
)]
pub(super) async fn acquire_slots(caller: Caller, _: NoQuery, body: Body) -> Result<Response, Problem> {
    let mut fields = body.fields("a request for slots")?;
    let id = fields.take("id", text(lease_id))?.unwrap_or_else(|| LeaseId(Uuid::now_v7()));
    let request = SlotRequest {
        id,
        group: fields.need("group", text(word::group))?,
        slots: fields.take("slots", number)?.unwrap_or(1),
        holder: fields.need("holder", text(word::name))?,
        lease_ms: fields.need("lease", duration)?,
        limit: fields.take("limit", number)?,
    };
    fields.finish()?;
    let full = format!("group {} has fewer than {} free slots", request.group, request.slots);
    match caller.store.acquire_slots(request).await? {
        Some(lease) => Ok((StatusCode::CREATED, Json(SlotLease::new(id, lease))).into_response()),
        None => Err(Error::new(ErrorKind::LimitReached, full).into()),
    }
}

fn lease_id(text: &str) -> Result<LeaseId, String> {
    Uuid::try_parse(text).map(LeaseId).map_err(|_| "must be the id of a lease".to_owned())
}

fn token(text: &str) -> Result<FenceToken, String> {
    text.parse().map(FenceToken).map_err(|_| "must be the token of the lease".to_owned())
}

/// An extension of a lease.
#[derive(Serialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct Extension {
    /// The token of the lease.
    #[schema(pattern = "^[0-9]{1,20}$", example = "1042")]
    token: String,
    /// How long it holds them from now on, such as `30s`.
    #[schema(example = "30s")]
    lease: String,
}

/// Extend the lease on slots. 412 if that token holds no slots any more: the program must stop.
#[utoipa::path(
    put, path = "/api/v1/slots/{lease}", tag = "slots", request_body = Extension,
    params(("lease" = Uuid, Path, description = "The id of the lease.")),
    responses((status = 200, description = "The lease now.", body = SlotLease))
)]
pub(super) async fn extend_slots(
    caller: Caller,
    Path(lease): Path<String>,
    _: NoQuery,
    body: Body,
) -> Result<Json<SlotLease>, Problem> {
    let id = lease_id(&lease).map_err(|rule| Error::invalid("lease", &lease, rule))?;
    let mut fields = body.fields("an extension")?;
    let token = FenceToken(fields.need("token", wide)?);
    let lease_ms = fields.need("lease", duration)?;
    fields.finish()?;
    Ok(Json(SlotLease::new(id, caller.store.extend_slots(id, token, lease_ms).await?)))
}

/// Return slots. 412 if that token holds no slots any more.
#[utoipa::path(
    delete, path = "/api/v1/slots/{lease}", tag = "slots",
    params(
        ("lease" = Uuid, Path, description = "The id of the lease."),
        ("token" = String, Query, description = "The token of the lease.", pattern = "^[0-9]{1,20}$"),
    ),
    responses((status = 204, description = "The slots are free."))
)]
pub(super) async fn return_slots(
    caller: Caller,
    Path(lease): Path<String>,
    mut query: Query,
) -> Result<StatusCode, Problem> {
    let id = lease_id(&lease).map_err(|rule| Error::invalid("lease", &lease, rule))?;
    let token = query.take("token", token)?;
    query.finish()?;
    let token = token.ok_or_else(|| Error::invalid("token", "", "must be given"))?;
    caller.store.return_slots(id, token).await?;
    Ok(StatusCode::NO_CONTENT)
}
