//! Who calls, and the store as that caller may use it.
//!
//! Every handler, of gRPC, of HTTP and of the page, takes its store from here. So what a caller may do is decided in
//! one place, whatever it speaks.

use axum::extract::{FromRequestParts, Request, State};
use axum::http::StatusCode;
use axum::http::request::Parts;
use axum::middleware::Next;
use axum::response::Response;
#[allow(unused_imports, reason = "the page and the HTTP interface ask")]
pub(crate) use qo_core::Scope;
use qo_core::Store;
use std::sync::Arc;

/// The caller of a request.
#[derive(Clone)]
pub(crate) struct Caller {
    /// The store as this caller may use it: it refuses what the caller may not do.
    pub store: Arc<dyn Store>,
    /// What the caller's own forms carry.
    form_token: Arc<str>,
}

#[allow(dead_code, clippy::unused_self, reason = "the page and the HTTP interface ask")]
impl Caller {
    /// Whether the caller may do this. The store of the caller refuses the rest anyway; a page asks so that it offers
    /// nothing that would be refused.
    pub fn may(&self, _: Scope) -> bool {
        true
    }

    /// Who it is, for the page and the audit log.
    pub fn name(&self) -> &str {
        "local"
    }

    /// What a form of the page carries in its field `form_token`, so that no other site can send it.
    pub fn form_token(&self) -> &str {
        &self.form_token
    }

    /// Whether a form came from this caller's own page.
    pub fn is_form_token(&self, shown: &str) -> bool {
        *self.form_token == *shown
    }
}

/// Finds out who calls, before any handler runs.
pub(crate) async fn identify(
    State(store): State<Arc<dyn Store>>,
    mut request: Request,
    next: Next,
) -> Response {
    request.extensions_mut().insert(Caller { store, form_token: "local".into() });
    next.run(request).await
}

impl<S: Sync> FromRequestParts<S> for Caller {
    type Rejection = StatusCode;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self, StatusCode> {
        parts.extensions.get::<Self>().cloned().ok_or(StatusCode::INTERNAL_SERVER_ERROR)
    }
}
