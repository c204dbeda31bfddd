//! What a server answers to plain HTTP, and which names it answers to.

use crate::route::{Needs, Routes};
use crate::shared::Shared;
use axum::Json;
use axum::extract::{Request, State};
use axum::http::{Method, StatusCode, header};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use std::net::IpAddr;
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
pub(crate) async fn nothing_here(request: Request) -> Response {
    let kind = request.headers().get(header::CONTENT_TYPE).map(|kind| kind.as_bytes());
    if kind.is_some_and(|kind| kind.starts_with(b"application/grpc")) {
        return tonic::Status::unimplemented("there is no such method").into_http();
    }
    (StatusCode::NOT_FOUND, "there is nothing here\n").into_response()
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

/// Refuses requests for a name that is not this machine's.
///
/// A page of another site can give its own name the address 127.0.0.1 and then speak to this server from a browser. The
/// browser still sends that name.
pub(crate) async fn guard_host(request: Request, next: Next) -> Response {
    let host = request.headers().get(header::HOST).and_then(|host| host.to_str().ok());
    // HTTP/2 has it in the address of the request.
    let host = host.or_else(|| request.uri().authority().map(axum::http::uri::Authority::as_str));
    match host {
        Some(host) if is_this_machine(host) => next.run(request).await,
        Some(_) | None => {
            let body = serde_json::json!({
                "kind": "invalid",
                "message": "Host: must be localhost or a loopback address",
            });
            (StatusCode::MISDIRECTED_REQUEST, Json(body)).into_response()
        }
    }
}

fn is_this_machine(host: &str) -> bool {
    let name = match host.rsplit_once(':') {
        Some((name, port)) if port.bytes().all(|byte| byte.is_ascii_digit()) => name,
        Some(_) | None => host,
    };
    let literal = name.trim_start_matches('[').trim_end_matches(']').parse::<IpAddr>();
    name.eq_ignore_ascii_case("localhost") || literal.is_ok_and(|address| address.is_loopback())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_names_of_this_machine_are_answered() {
        for host in ["localhost", "LocalHost:7700", "127.0.0.1:80", "127.9.9.9", "[::1]:7700", "[::1]"] {
            assert!(is_this_machine(host), "{host}");
        }
        for host in ["", "evil.example", "localhost.evil.example:7700", "10.0.0.1", "0.0.0.0:1", "[fe80::1]"]
        {
            assert!(!is_this_machine(host), "{host}");
        }
    }
}
