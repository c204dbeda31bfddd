//! Refusals as problem documents (RFC 9457).
//!
//! A handler returns a [`Problem`]. What refuses a request before a handler runs (the router, a check of the caller)
//! answers with a bare status; [`explain`] makes a problem document of it. It also gives each problem the id of its
//! request, and writes what the caller must not see into the log under that id.

use axum::extract::Request;
use axum::http::{HeaderValue, StatusCode, header};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use qo_core::{Cause, Error, ErrorKind};
use qo_wire::status;
use serde::Serialize;
use utoipa::ToSchema;

/// The content type of a problem document.
const CONTENT_TYPE: HeaderValue = HeaderValue::from_static("application/problem+json");
/// The header that names a request, so that an operator finds it in the log of the server.
const REQUEST_ID: &str = "x-request-id";
/// Paths whose refusals are problem documents.
const PATHS: &str = "/api/";

/// What went wrong.
#[derive(Debug, Clone, Serialize, ToSchema)]
#[schema(as = Problem)]
pub(crate) struct Document {
    /// `urn:qo:` and the kind.
    #[serde(rename = "type")]
    kind_uri: String,
    /// What the caller must do, in a few words.
    title: &'static str,
    /// The status of the answer.
    status: u16,
    /// What went wrong, for people.
    detail: String,
    /// `invalid`, `not_found`, `conflict`, `limit_reached`, `fenced`, `unavailable`, `unknown`, `data`, `internal`, or
    /// what HTTP refused: `unauthenticated`, `forbidden`, `method_not_allowed`, `too_large`, `unsupported_media_type`,
    /// `too_many_requests`.
    #[schema(value_type = String)]
    kind: &'static str,
    /// The field that is wrong, such as `jobs[3].cost`.
    #[serde(skip_serializing_if = "Option::is_none")]
    path: Option<String>,
    /// Its value, quoted and cut.
    #[serde(skip_serializing_if = "Option::is_none")]
    value: Option<String>,
    /// The rule that the value breaks.
    #[serde(skip_serializing_if = "Option::is_none")]
    rule: Option<String>,
    /// Every mistake, if there are several.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    mistakes: Vec<Mistake>,
    /// The request: the log of the server names it, too.
    #[serde(skip_serializing_if = "Option::is_none")]
    request_id: Option<String>,
}

impl Document {
    /// What the caller may read of an error.
    pub fn shown(error: &Error) -> String {
        shown(error.kind()).unwrap_or(error.message()).to_owned()
    }
}

/// One mistake of several.
#[derive(Debug, Clone, Serialize, ToSchema)]
pub(crate) struct Mistake {
    /// What is wrong, for people.
    detail: String,
    /// The field that is wrong.
    #[serde(skip_serializing_if = "Option::is_none")]
    path: Option<String>,
    /// Its value, quoted and cut.
    #[serde(skip_serializing_if = "Option::is_none")]
    value: Option<String>,
    /// The rule that the value breaks.
    rule: String,
}

/// A refusal.
#[derive(Debug, Clone)]
pub(crate) struct Problem(Box<Refusal>);

#[derive(Debug, Clone)]
struct Refusal {
    document: Document,
    /// What the log may say and the caller may not: errors of a store name paths, addresses and statements.
    hidden: Option<String>,
    /// After how many seconds the caller may try again.
    retry_after: Option<u32>,
}

impl Problem {
    fn new(status: u16, kind: &'static str, title: &'static str, detail: impl Into<String>) -> Self {
        let document = Document {
            kind_uri: format!("urn:qo:{kind}"),
            title,
            status,
            detail: detail.into(),
            kind,
            path: None,
            value: None,
            rule: None,
            mistakes: Vec::new(),
            request_id: None,
        };
        Self(Box::new(Refusal { document, hidden: None, retry_after: None }))
    }

    /// The server has no room for this request now.
    pub fn busy(detail: &str) -> Self {
        let (kind, title) = words(ErrorKind::Unavailable);
        let mut problem = Self::new(503, kind, title, detail);
        problem.0.retry_after = Some(1);
        problem
    }

    /// A body that is larger than this many bytes.
    pub fn too_large(most: usize) -> Self {
        Self::new(413, "too_large", "Send less.", format!("the body must have at most {most} bytes"))
    }

    /// A body of another content type than these.
    pub fn media_type(these: &str) -> Self {
        let detail = format!("Content-Type: must be {these}");
        Self::new(415, "unsupported_media_type", "Send another content type.", detail)
    }

    /// What a bare status says.
    fn of_status(status: StatusCode) -> Self {
        let (kind, title, detail) = match status.as_u16() {
            400 => ("invalid", "Fix the request.", "the request cannot be read"),
            401 => (
                "unauthenticated",
                "Show a token.",
                "Authorization: Bearer, with a live token, must be given",
            ),
            403 => ("forbidden", "Use another token.", "the caller may not do this"),
            404 => (
                "not_found",
                "There is no such thing.",
                "there is no such path; a / in a group is written %2F",
            ),
            405 => {
                ("method_not_allowed", "Use another method.", "the header Allow has the methods of this path")
            }
            408 => ("unavailable", "Try again later.", "the request did not arrive in time"),
            413 => ("too_large", "Send less.", "the request is too large"),
            415 => {
                ("unsupported_media_type", "Send another content type.", "the content type is not known here")
            }
            429 => ("too_many_requests", "Try again later.", "the caller sends too many requests"),
            503 => ("unavailable", "Try again later.", "the server has no room now, or is about to end"),
            code if code < 500 => ("invalid", "Fix the request.", "the request was refused"),
            _ => ("internal", "A fault of the server.", "the server has a fault"),
        };
        Self::new(status.as_u16(), kind, title, detail)
    }

    /// What refused a request before a handler saw it, in the words of HTTP where it has some.
    pub fn refused(status: StatusCode, error: &Error, request: &str) -> Self {
        let mut problem = Self::of_status(status);
        if problem.0.document.kind == "invalid" || problem.0.document.kind == "internal" {
            problem = Self::from(error.clone());
            problem.0.document.status = status.as_u16();
        } else if shown(error.kind()).is_none() {
            problem.0.document.detail = error.message().to_owned();
        }
        problem.named(request)
    }

    fn named(mut self, request: &str) -> Self {
        self.0.document.request_id = Some(request.to_owned());
        self
    }
}

/// The kind as programs know it, and what the caller must do.
fn words(kind: ErrorKind) -> (&'static str, &'static str) {
    match kind {
        ErrorKind::Invalid => ("invalid", "Fix the request."),
        ErrorKind::NotFound => ("not_found", "There is no such thing."),
        ErrorKind::Conflict => ("conflict", "Read again, then decide."),
        ErrorKind::LimitReached => ("limit_reached", "A limit refuses it."),
        ErrorKind::Fenced => ("fenced", "Stop: it is no longer yours."),
        ErrorKind::Unavailable => ("unavailable", "Try again later."),
        ErrorKind::Unknown => ("unknown", "It may have happened: repeat it with the same id."),
        ErrorKind::Data => ("data", "What is stored cannot be read."),
        ErrorKind::Internal => ("internal", "A fault of the server."),
    }
}

/// What a caller is told instead of an error that comes from inside the store.
fn shown(kind: ErrorKind) -> Option<&'static str> {
    match kind {
        ErrorKind::Unavailable => Some("the store cannot be reached; nothing happened"),
        ErrorKind::Unknown => Some("the store did not answer; it may have happened"),
        ErrorKind::Data => Some("what is stored cannot be read; the log of the server says more"),
        ErrorKind::Internal => Some("the server has a fault; its log says more"),
        ErrorKind::Invalid
        | ErrorKind::NotFound
        | ErrorKind::Conflict
        | ErrorKind::LimitReached
        | ErrorKind::Fenced => None,
    }
}

impl From<Error> for Problem {
    fn from(error: Error) -> Self {
        let (kind, title) = match error.cause() {
            Some(Cause::NoToken) => ("unauthenticated", "Show a token."),
            Some(Cause::NotAllowed) => ("forbidden", "Use another token."),
            _ => words(error.kind()),
        };
        let status = status::http_of(&error);
        if let Some(detail) = shown(error.kind()) {
            let mut problem = Self::new(status, kind, title, detail);
            problem.0.hidden = Some(error.to_string());
            return problem;
        }
        let mut problem = Self::new(status, kind, title, error.message());
        let document = &mut problem.0.document;
        document.path = error.path();
        document.value = error.value().map(str::to_owned);
        document.rule = Some(error.rule().to_owned()).filter(|rule| *rule != document.detail);
        let mistake = |mistake: &Error| Mistake {
            detail: mistake.message().to_owned(),
            path: mistake.path(),
            value: mistake.value().map(str::to_owned),
            rule: mistake.rule().to_owned(),
        };
        document.mistakes = error.mistakes().iter().map(mistake).collect();
        problem
    }
}

impl IntoResponse for Problem {
    fn into_response(self) -> Response {
        let status =
            StatusCode::from_u16(self.0.document.status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
        // Plain data: it cannot fail.
        let body = serde_json::to_vec(&self.0.document).unwrap_or_default();
        let mut response = (status, [(header::CONTENT_TYPE, CONTENT_TYPE)], body).into_response();
        if let Some(seconds) = self.0.retry_after {
            response.headers_mut().insert(header::RETRY_AFTER, seconds.into());
        }
        response.extensions_mut().insert(self);
        response
    }
}

/// Makes every refusal of the interface a problem document that names its request.
pub(crate) async fn explain(request: Request, next: Next) -> Response {
    if !request.uri().path().starts_with(PATHS) {
        return next.run(request).await;
    }
    // Not the whole path: it may hold what does not belong in a log.
    let part = request.uri().path().split('/').nth(3).unwrap_or_default();
    let call = format!("{} {part}", request.method());
    let response = next.run(request).await;
    let status = response.status();
    let is_refused = status.is_client_error() || status.is_server_error();
    let is_foreign = response.extensions().get::<Problem>().is_none()
        && response.headers().get(header::CONTENT_TYPE) == Some(&CONTENT_TYPE);
    if !is_refused || is_foreign {
        return response;
    }
    let known = response.headers().get(REQUEST_ID).and_then(|id| id.to_str().ok());
    let id = known.map_or_else(|| uuid::Uuid::now_v7().simple().to_string(), str::to_owned);
    let (parts, _) = response.into_parts();
    let problem = parts.extensions.get::<Problem>().cloned();
    let problem = problem.unwrap_or_else(|| Problem::of_status(status)).named(&id);
    if let Some(hidden) = &problem.0.hidden {
        tracing::warn!(request = %id, "{call}: {hidden}");
    }
    let mut explained = problem.into_response();
    for (name, value) in &parts.headers {
        if name != header::CONTENT_TYPE && name != header::CONTENT_LENGTH {
            explained.headers_mut().insert(name, value.clone());
        }
    }
    if let Ok(id) = HeaderValue::from_str(&id) {
        explained.headers_mut().insert(REQUEST_ID, id);
    }
    explained
}
