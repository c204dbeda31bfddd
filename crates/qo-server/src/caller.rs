//! Who calls, and the store as that caller may use it.
//!
//! Every handler, of gRPC, of HTTP and of the page, takes its store from here. So what a caller may do is decided in
//! one place, whatever it speaks.

use crate::guarded::Guarded;
use crate::rights::Rights;
use axum::extract::FromRequestParts;
use axum::http::StatusCode;
use axum::http::request::Parts;
#[allow(unused_imports, reason = "the page and the HTTP interface ask")]
pub(crate) use qo_core::Scope;
use qo_core::{Result, SessionId, Store, TokenHash, TokenId};
use std::sync::Arc;

/// The caller of a request.
#[derive(Clone)]
pub(crate) struct Caller {
    /// The store as this caller may use it: it refuses what the caller may not do.
    pub store: Arc<dyn Store>,
    guarded: Arc<Guarded>,
    rights: Arc<Rights>,
    /// What the caller's own forms carry.
    form_token: Arc<str>,
}

#[allow(dead_code, reason = "the page and the HTTP interface ask")]
impl Caller {
    pub fn new(guarded: Guarded, rights: Arc<Rights>, form_token: Arc<str>) -> Self {
        let guarded = Arc::new(guarded);
        Self { store: Arc::clone(&guarded) as Arc<dyn Store>, guarded, rights, form_token }
    }

    /// Whether the caller may do this. The store of the caller refuses the rest anyway; a page asks so that it offers
    /// nothing that would be refused.
    pub fn may(&self, scope: Scope) -> bool {
        self.rights.may(scope)
    }

    /// An error unless the caller may do this: it says whether a token is missing, or a scope.
    pub fn need(&self, scope: Scope) -> Result<()> {
        self.rights.need(scope)
    }

    /// An error unless the caller may do one of these.
    pub fn need_one_of(&self, scopes: &[Scope]) -> Result<()> {
        self.rights.need_one_of(scopes)
    }

    /// An error if the caller is bound to some queues: what it asks for belongs to all of them.
    pub fn need_every_queue(&self, what: &str) -> Result<()> {
        self.rights.need_every_queue(what)
    }

    /// What tells callers apart that may see different things: the id of the token, or none.
    pub fn token(&self) -> Option<TokenId> {
        self.rights.token()
    }

    /// Whether the caller sees every queue. One that does not is refused lists of groups and of workflows.
    pub fn sees_every_queue(&self) -> bool {
        self.rights.queues().is_none()
    }

    /// An error unless the session is the caller's.
    pub async fn need_session(&self, session: SessionId) -> Result<()> {
        self.rights.need(Scope::Work)?;
        self.guarded.need_session(session).await
    }

    /// Whether it has a live token, or needs none.
    pub fn is_known(&self) -> bool {
        self.rights.known().is_ok()
    }

    /// Who it is, for the page and the audit log.
    pub fn name(&self) -> &str {
        self.rights.name()
    }

    /// What a form of the page carries in its field `form_token`, so that no other site can send it.
    pub fn form_token(&self) -> &str {
        &self.form_token
    }

    /// Whether a form came from this caller's own page. The comparison takes the same time wherever they differ.
    pub fn is_form_token(&self, shown: &str) -> bool {
        TokenHash::of(&self.form_token) == TokenHash::of(shown)
    }
}

impl<S: Sync> FromRequestParts<S> for Caller {
    type Rejection = StatusCode;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self, StatusCode> {
        parts.extensions.get::<Self>().cloned().ok_or(StatusCode::INTERNAL_SERVER_ERROR)
    }
}
