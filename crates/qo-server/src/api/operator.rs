//! Tokens, the audit log, configurations and pushes.

use super::input::{Body, NoQuery, Query, page};
use super::place::any;
use super::problem::Problem;
use super::shape::{Audit, ConfigurationPage, CreatedToken, PushList, RevokedToken, TokenPage, Wide};
use crate::caller::Caller;
use axum::Json;
use axum::extract::Path;
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use qo_core::{Bearer, Error, ErrorKind, NewToken, Result, Scope, Token, TokenId};
use qo_text::fields::{text, texts};
use qo_text::{Moment, Zone, word};
use rustix::rand::{GetRandomFlags, getrandom};
use serde::Serialize;
use utoipa::ToSchema;

/// List the tokens that are live, by name. Their secrets are nowhere.
#[utoipa::path(
    get, path = "/api/v1/tokens", tag = "tokens",
    params(
        ("cursor" = Option<String>, Query, description = "`next` of an earlier page."),
        ("limit" = Option<u32>, Query, minimum = 1, maximum = 1000, description = "Rows of a page. Defaults to 100."),
    ),
    responses((status = 200, description = "The tokens.", body = TokenPage))
)]
pub(super) async fn list_tokens(caller: Caller, mut query: Query) -> Result<Json<TokenPage>, Problem> {
    let (cursor, limit) = (query.take("cursor", any)?, query.limit()?);
    query.finish()?;
    let place = |token: &Token| token.name.to_string();
    let (tokens, next) = page(caller.store.tokens().await?, cursor.as_deref(), limit, place);
    Ok(Json(TokenPage { tokens: tokens.into_iter().map(Into::into).collect(), next }))
}

/// A token to create.
#[derive(Serialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct TokenRequest {
    /// Its name: no other live token has it.
    #[schema(pattern = "^[A-Za-z0-9_][A-Za-z0-9_.-]{0,127}$", example = "shop")]
    name: String,
    /// What its bearer may do, at least one of `read`, `submit`, `work` and `admin`.
    #[schema(min_items = 1)]
    scopes: Vec<String>,
    /// The queues whose jobs its bearer may see and change. Defaults to all of them.
    #[schema(min_items = 1, max_items = 100)]
    queues: Option<Vec<String>>,
    /// The app that its bearer may configure. Defaults to any.
    app: Option<String>,
    /// When it expires: RFC 3339 with an offset, or a length of time from now, such as `90d`. Defaults to never.
    expires: Option<String>,
}

fn scope(text: &str) -> Result<Scope, String> {
    text.parse().map_err(|error: Error| error.rule().to_owned())
}

fn moment(text: &str) -> Result<Moment, String> {
    Moment::parse(text, Zone::Given)
}

/// Create a token. The answer has its secret, this once.
#[utoipa::path(
    post, path = "/api/v1/tokens", tag = "tokens", request_body = TokenRequest,
    responses((status = 201, description = "The token.", body = CreatedToken))
)]
pub(super) async fn create_token(caller: Caller, _: NoQuery, body: Body) -> Result<Response, Problem> {
    let mut fields = body.fields("a token")?;
    let bearer = Bearer::from_random(random()?);
    let name = fields.need("name", text(word::name))?;
    let scopes = fields.need("scopes", texts(scope))?;
    let queues = fields.take("queues", texts(word::name))?;
    let app = fields.take("app", text(word::name))?;
    let expires = fields.take("expires", text(moment))?;
    fields.finish()?;
    let expires_at = match expires {
        Some(moment) => Some(moment.from(caller.store.now().await?)),
        None => None,
    };
    let token = NewToken {
        id: bearer.id(),
        name: name.clone(),
        hash: bearer.hash(),
        scopes: scopes.into_iter().collect(),
        queues: queues.map(|queues| queues.into_iter().collect()),
        app,
        expires_at,
    };
    caller.store.create_token(token, caller.name().into()).await?;
    let created =
        CreatedToken { id: bearer.id().to_string(), name: name.to_string(), token: bearer.secret_text() };
    Ok((StatusCode::CREATED, Json(created)).into_response())
}

/// Randomness of the operating system, for a token.
fn random() -> Result<[u8; 50]> {
    let mut random = [0; 50];
    // Requests of at most 256 bytes are answered whole.
    match getrandom(&mut random, GetRandomFlags::empty()) {
        Ok(filled) if filled == random.len() => Ok(random),
        Ok(_) => Err(Error::new(ErrorKind::Internal, "the system gave too little randomness")),
        Err(error) => {
            Err(Error::new(ErrorKind::Internal, format!("the system gives no randomness: {error}")))
        }
    }
}

/// Revoke a token, by its name or id: within 5 s no server accepts it.
#[utoipa::path(
    delete, path = "/api/v1/tokens/{token}", tag = "tokens",
    params(("token" = String, Path, description = "The token's name or id.")),
    responses((status = 200, description = "It is revoked.", body = RevokedToken))
)]
pub(super) async fn revoke_token(
    caller: Caller,
    Path(token): Path<String>,
    _: NoQuery,
) -> Result<Json<RevokedToken>, Problem> {
    let live = caller.store.tokens().await?;
    // Names first: a name may look like an id.
    let found = live.iter().find(|live| *live.name == *token);
    let found = found.or_else(|| live.iter().find(|live| Ok(live.id) == token.parse::<TokenId>()));
    let Some(Token { id, name, .. }) = found else {
        return Err(Error::new(ErrorKind::NotFound, format!("no live token is called {token:?}")).into());
    };
    caller.store.revoke_token(*id, caller.name().into()).await?;
    Ok(Json(RevokedToken { id: id.to_string(), name: name.to_string(), revoked: true }))
}

/// What operators did, the newest first.
#[utoipa::path(
    get, path = "/api/v1/audit", tag = "audit",
    params(
        ("cursor" = Option<String>, Query, description = "`next` of an earlier page."),
        ("limit" = Option<u32>, Query, minimum = 1, maximum = 1000, description = "Rows of a page. Defaults to 100."),
    ),
    responses((status = 200, description = "The entries.", body = Audit))
)]
pub(super) async fn list_audit(caller: Caller, mut query: Query) -> Result<Json<Audit>, Problem> {
    let (cursor, limit) = (query.cursor()?, query.limit()?);
    query.finish()?;
    let entries = caller.store.audit(cursor.map(|cursor| cursor.0), limit).await?;
    // Numbers begin with 1 and grow by one; the page after the first entry is empty.
    let last = entries.last().map(|entry| entry.number);
    let next = last.filter(|number| entries.len() == limit && *number > 1).map(Wide);
    Ok(Json(Audit { entries: entries.into_iter().map(Into::into).collect(), next }))
}

/// The configuration of each app.
#[utoipa::path(
    get, path = "/api/v1/configurations", tag = "configurations",
    params(
        ("cursor" = Option<String>, Query, description = "`next` of an earlier page."),
        ("limit" = Option<u32>, Query, minimum = 1, maximum = 1000, description = "Rows of a page. Defaults to 100."),
    ),
    responses((status = 200, description = "The configurations.", body = ConfigurationPage))
)]
pub(super) async fn list_configurations(
    caller: Caller,
    mut query: Query,
) -> Result<Json<ConfigurationPage>, Problem> {
    let (cursor, limit) = (query.take("cursor", any)?, query.limit()?);
    query.finish()?;
    // Their order says which one counts, so a page ends at a number, not at a name.
    let numbered = caller.store.configurations().await?.into_iter().enumerate().collect();
    let (configurations, next) = page(numbered, cursor.as_deref(), limit, |(at, _)| format!("{at:08}"));
    let configurations = configurations.into_iter().map(|(_, configuration)| configuration.into()).collect();
    Ok(Json(ConfigurationPage { configurations, next }))
}

/// The last pushes of configurations and registrations that changed something.
#[utoipa::path(
    get, path = "/api/v1/pushes", tag = "configurations",
    responses((status = 200, description = "The pushes.", body = PushList))
)]
pub(super) async fn list_pushes(caller: Caller, _: NoQuery) -> Result<Json<PushList>, Problem> {
    Ok(Json(PushList { pushes: caller.store.pushes().await?.into_iter().map(Into::into).collect() }))
}
