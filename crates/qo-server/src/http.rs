//! Whether a server lives and is ready, and what it answers where there is nothing.

use crate::refusal::{Asked, Refusal};
use crate::route::{Needs, Routes};
use crate::shared::Shared;
use axum::Extension;
use axum::extract::State;
use axum::http::{Method, StatusCode};
use axum::response::{IntoResponse, Response};
use std::time::Duration;
use tokio::time::timeout;

/// How long the store may take to answer for the server to be ready.
const READY: Duration = Duration::from_secs(1);

/// Whether the server lives, and is ready.
pub(crate) fn routes() -> Routes {
    Routes::new().add(Method::GET, "/healthz", Needs::Nothing, || async { "ok\n" }).add(
        Method::GET,
        "/readyz",
        Needs::Nothing,
        is_ready,
    )
}

/// The answer to a call or path that there is not, in the words of the caller's protocol.
pub(crate) async fn nothing_here(Extension(asked): Extension<Asked>) -> Response {
    if asked.is_grpc() {
        return tonic::Status::unimplemented("there is no such method").into_http();
    }
    Refusal::new(StatusCode::NOT_FOUND, "there is nothing here").into_response(&asked)
}

/// Whether the store answers. The text of its error stays in the log: it may name what callers should not know.
async fn is_ready(State(shared): State<Shared>) -> Response {
    match timeout(READY, shared.store.now()).await {
        Ok(Ok(_)) => "ok\n".into_response(),
        Ok(Err(error)) => {
            tracing::warn!("not ready: {error}");
            (StatusCode::SERVICE_UNAVAILABLE, "the store does not answer\n").into_response()
        }
        Err(_) => (StatusCode::SERVICE_UNAVAILABLE, "the store does not answer in time\n").into_response(),
    }
}
