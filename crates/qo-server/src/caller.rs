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

/// The caller of a request.
#[derive(Clone)]
pub(crate) struct Caller {
    /// The store as this caller may use it.
    pub store: Arc<dyn Store>,
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
