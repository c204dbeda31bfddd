//! Groups: their limits and what holds their slots.

use super::input::{Body, GroupPath, NoQuery, Query};
use super::problem::Problem;
use super::shape::{GroupPage, Limit, Release, WholeGroup};
use crate::caller::Caller;
use axum::Json;
use axum::extract::Path;
use qo_core::{Error, ErrorKind, FenceToken, GroupRef, Result, caps};
use qo_text::fields::number;
use qo_text::word;
use serde::Serialize;
use utoipa::ToSchema;

/// List groups that have live jobs or a limit, by name and key.
#[utoipa::path(
    get, path = "/api/v1/groups", tag = "groups",
    params(
        ("cursor" = Option<String>, Query, description = "`next` of an earlier page: a group. Those after it are listed."),
        ("limit" = Option<u32>, Query, minimum = 1, maximum = 1000, description = "Rows of a page. Defaults to 100."),
    ),
    responses((status = 200, description = "The groups.", body = GroupPage))
)]
pub(super) async fn list_groups(caller: Caller, mut query: Query) -> Result<Json<GroupPage>, Problem> {
    let (after, limit) = (query.take("cursor", word::group)?, query.limit()?);
    query.finish()?;
    Ok(Json(caller.store.groups(after, limit).await?.into()))
}

/// A group, and what holds its slots.
#[utoipa::path(
    get, path = "/api/v1/groups/{group}", tag = "groups",
    params(
        ("group" = String, Path, description = "`cluster`, `queue:NAME`, `GROUP`, `GROUP%2FKEY` or `GROUP%2F*`, percent-encoded.", example = "resize"),
        ("cursor" = Option<String>, Query, description = "`next` of an earlier page of holders."),
        ("limit" = Option<u32>, Query, minimum = 1, maximum = 1000, description = "Holders of a page. Defaults to 100."),
    ),
    responses((status = 200, description = "The group.", body = WholeGroup))
)]
pub(super) async fn get_group(
    caller: Caller,
    GroupPath(group): GroupPath,
    mut query: Query,
) -> Result<Json<WholeGroup>, Problem> {
    let (cursor, limit) = (query.cursor()?, query.limit()?);
    query.finish()?;
    let detail = caller.store.group(group).await?;
    Ok(Json(WholeGroup::new(detail, cursor.map(|cursor| cursor.0), limit)))
}

/// A limit to set.
#[derive(Serialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct NewLimit {
    /// How many slots the group has; 0 holds everything.
    #[schema(maximum = 1_000_000)]
    limit: u32,
}

/// Set a limit. It beats those of configurations, of code and of submits.
///
/// A lower limit does not stop running jobs; a higher one lets waiting jobs start at once.
#[utoipa::path(
    put, path = "/api/v1/groups/{group}/limit", tag = "groups", request_body = NewLimit,
    params(("group" = String, Path, description = "The group, percent-encoded.")),
    responses((status = 200, description = "The limit now.", body = Limit))
)]
pub(super) async fn set_limit(
    caller: Caller,
    GroupPath(group): GroupPath,
    _: NoQuery,
    body: Body,
) -> Result<Json<Limit>, Problem> {
    let mut fields = body.fields("a limit")?;
    let limit: u32 = fields.need("limit", number)?;
    fields.finish()?;
    if limit > caps::LIMIT {
        return Err(Error::invalid("limit", limit, format_args!("must be 0 to {}", caps::LIMIT)).into());
    }
    caller.store.set_limit(group.clone(), limit).await?;
    Ok(Json(Limit { group: group.to_string(), limit: Some(limit) }))
}

/// Take back the limit that an operator has set; that of the configuration or of code counts again.
#[utoipa::path(
    delete, path = "/api/v1/groups/{group}/limit", tag = "groups",
    params(("group" = String, Path, description = "The group, percent-encoded.")),
    responses((status = 200, description = "The limit now.", body = Limit))
)]
pub(super) async fn unset_limit(
    caller: Caller,
    GroupPath(group): GroupPath,
    _: NoQuery,
) -> Result<Json<Limit>, Problem> {
    caller.store.unset_limit(group.clone()).await?;
    let limit = match caller.store.group(group.clone()).await {
        Ok(detail) => detail.status.limit,
        Err(error) if error.kind() == ErrorKind::NotFound => None,
        Err(error) => return Err(error.into()),
    };
    Ok(Json(Limit { group: group.to_string(), limit }))
}

/// Take slots away from their holder: its attempt is used, and its handler is told to stop.
#[utoipa::path(
    post, path = "/api/v1/groups/{group}/slots/{slot}/release", tag = "groups",
    params(
        ("group" = String, Path, description = "The group, percent-encoded."),
        ("slot" = String, Path, description = "The fence token of the holder.", pattern = "^[0-9]{1,20}$"),
    ),
    responses((status = 200, description = "The slots are free.", body = Release))
)]
pub(super) async fn release_slot(
    caller: Caller,
    Path((group, slot)): Path<(String, String)>,
    _: NoQuery,
) -> Result<Json<Release>, Problem> {
    let group = GroupRef::parse("group", &group)?;
    let token = slot.parse().map_err(|_| Error::invalid("slot", &slot, "must be a fence token"))?;
    let token = FenceToken(token);
    caller.store.release_slot(group.clone(), token).await?;
    Ok(Json(Release { group: group.to_string(), released: token.into() }))
}
