//! Who calls, and the store as that caller may use it.
//!
//! Every handler, of gRPC, of HTTP and of the page, takes its store from here. So what a caller may do is decided in
//! one place, whatever it speaks.

use axum::extract::{FromRequestParts, Request, State};
use axum::http::StatusCode;
use axum::http::request::Parts;
use axum::middleware::Next;
use axum::response::Response;
use qo_core::Store;
use std::sync::Arc;

/// What a caller may do.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[expect(dead_code, reason = "the page asks for them")]
pub(crate) enum Scope {
    /// See jobs, groups, workers and everything else.
    Read,
    /// Submit jobs.
    Submit,
    /// Run jobs.
    Work,
    /// What operators do: limits, pauses, cancels, retries, releases.
    Admin,
}

/// The caller of a request.
#[derive(Clone)]
pub(crate) struct Caller {
    /// The store as this caller may use it.
    pub store: Arc<dyn Store>,
}

impl Caller {
    /// Whether the caller may do this. The store of the caller refuses the rest anyway; a page asks so that it offers
    /// nothing that would be refused.
    #[expect(
        dead_code,
        clippy::unused_self,
        reason = "the page asks; without tokens every caller may do everything"
    )]
    pub fn may(&self, _: Scope) -> bool {
        true
    }
}

/// Finds out who calls, before any handler runs.
pub(crate) async fn identify(
    State(store): State<Arc<dyn Store>>,
    mut request: Request,
    next: Next,
) -> Response {
    request.extensions_mut().insert(Caller { store });
    next.run(request).await
}

impl<S: Sync> FromRequestParts<S> for Caller {
    type Rejection = StatusCode;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self, StatusCode> {
        parts.extensions.get::<Self>().cloned().ok_or(StatusCode::INTERNAL_SERVER_ERROR)
    }
}
