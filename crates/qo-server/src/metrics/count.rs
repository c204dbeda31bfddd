//! What this server counts itself.

use super::LABELS;
use axum::extract::{MatchedPath, Request, State};
use axum::http::Method;
use axum::middleware::Next;
use axum::response::Response;
use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::registry::Registry;
use qo_core::{ExchangeReply, SessionId};
use qo_metrics::{OTHER, Waits};
use qo_wire::methods::method;
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};
use tonic::Code;

/// Most sessions of which the last number is remembered.
const SESSIONS: usize = 100_000;
/// Where calls of the protocol are.
const SERVICE: &str = "/qo.v1.Queue/";

/// A request of HTTP that was answered.
#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Answered {
    method: &'static str,
    route: String,
    status: u16,
}

/// A call of gRPC that was answered.
#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Called {
    method: &'static str,
    code: &'static str,
}

/// The counters of a server.
#[derive(Clone)]
pub(crate) struct Counts(Arc<Inner>);

struct Inner {
    requests: Family<Answered, Counter>,
    calls: Family<Called, Counter>,
    connections: Gauge,
    streams: Gauge,
    wake_ups: Counter,
    waits: Waits,
    /// The number of the last exchange of each session whose claims were counted.
    counted: Mutex<BTreeMap<SessionId, u64>>,
}

/// Counts down when it is dropped.
pub(crate) struct Open(Gauge);

impl Drop for Open {
    fn drop(&mut self) {
        self.0.dec();
    }
}

fn opened(gauge: &Gauge) -> Open {
    gauge.inc();
    Open(gauge.clone())
}

impl Counts {
    pub fn new() -> Self {
        Self(Arc::new(Inner {
            requests: Family::default(),
            calls: Family::default(),
            connections: Gauge::default(),
            streams: Gauge::default(),
            wake_ups: Counter::default(),
            waits: Waits::new(LABELS),
            counted: Mutex::default(),
        }))
    }

    pub fn register(&self, registry: &mut Registry) {
        let Inner { requests, calls, connections, streams, wake_ups, waits, counted: _ } = &*self.0;
        waits.register(registry);
        registry.register("qo_server_connections", "Connections that are open", connections.clone());
        registry.register("qo_server_streams", "Streams of wake-ups that are open", streams.clone());
        let help = "Wake-ups that were sent to workers and other clients";
        registry.register("qo_server_wake_ups", help, wake_ups.clone());
        let help = "Requests of HTTP that were answered, by method, route and status";
        registry.register("qo_server_http_requests", help, requests.clone());
        let help = "Calls of gRPC that were answered, by method and code; a stream when it began";
        registry.register("qo_server_grpc_calls", help, calls.clone());
    }

    /// A connection that is open until this is dropped.
    pub fn connection(&self) -> Open {
        opened(&self.0.connections)
    }

    /// A stream that is open until this is dropped.
    pub fn stream(&self) -> Open {
        opened(&self.0.streams)
    }

    /// A wake-up was sent.
    pub fn woke(&self) {
        self.0.wake_ups.inc();
    }

    /// An exchange was answered: its jobs have waited until now.
    ///
    /// A reply that is sent again, because its client had not got it, is counted once.
    pub fn exchanged(&self, session: SessionId, reply: &ExchangeReply) {
        if reply.claimed.is_empty() && reply.prefetched.is_empty() {
            return;
        }
        {
            let mut counted = self.0.counted.lock().unwrap_or_else(PoisonError::into_inner);
            if counted.get(&session).is_some_and(|&last| last >= reply.number) {
                return;
            }
            if counted.len() >= SESSIONS {
                counted.clear();
            }
            counted.insert(session, reply.number);
        }
        let ahead = reply.prefetched.iter().map(|ahead| &ahead.job);
        for job in reply.claimed.iter().chain(ahead) {
            if let Some(due_at) = job.due_at {
                self.0.waits.waited(&job.group, reply.now.ms_since(due_at));
            }
        }
    }

    /// A session was closed.
    pub fn closed(&self, session: SessionId) {
        self.0.counted.lock().unwrap_or_else(PoisonError::into_inner).remove(&session);
    }
}

/// Counts a request and its answer.
pub(crate) async fn count(State(counts): State<Counts>, request: Request, next: Next) -> Response {
    let called =
        request.uri().path().strip_prefix(SERVICE).map(|name| method(name).map(|method| method.name));
    if let Some(called) = called {
        let response = next.run(request).await;
        let called = Called { method: called.unwrap_or(OTHER), code: code(&response) };
        counts.0.calls.get_or_create(&called).inc();
        return response;
    }
    let verb = verb(request.method());
    let route = request.extensions().get::<MatchedPath>().map_or(OTHER, MatchedPath::as_str).to_owned();
    let response = next.run(request).await;
    let answered = Answered { method: verb, route, status: response.status().as_u16() };
    counts.0.requests.get_or_create(&answered).inc();
    response
}

/// The methods that routes have. A client may make up others.
fn verb(method: &Method) -> &'static str {
    const KNOWN: [(&Method, &str); 7] = [
        (&Method::GET, "GET"),
        (&Method::POST, "POST"),
        (&Method::PUT, "PUT"),
        (&Method::PATCH, "PATCH"),
        (&Method::DELETE, "DELETE"),
        (&Method::HEAD, "HEAD"),
        (&Method::OPTIONS, "OPTIONS"),
    ];
    KNOWN.iter().find(|(known, _)| *known == method).map_or(OTHER, |(_, name)| name)
}

/// An error of a call is in its headers. What begins well has no code there.
fn code(response: &Response) -> &'static str {
    let Some(code) = response.headers().get("grpc-status") else {
        return if response.status().is_success() { "OK" } else { "UNKNOWN" };
    };
    match Code::from_bytes(code.as_bytes()) {
        Code::Ok => "OK",
        Code::Cancelled => "CANCELLED",
        Code::Unknown => "UNKNOWN",
        Code::InvalidArgument => "INVALID_ARGUMENT",
        Code::DeadlineExceeded => "DEADLINE_EXCEEDED",
        Code::NotFound => "NOT_FOUND",
        Code::AlreadyExists => "ALREADY_EXISTS",
        Code::PermissionDenied => "PERMISSION_DENIED",
        Code::ResourceExhausted => "RESOURCE_EXHAUSTED",
        Code::FailedPrecondition => "FAILED_PRECONDITION",
        Code::Aborted => "ABORTED",
        Code::OutOfRange => "OUT_OF_RANGE",
        Code::Unimplemented => "UNIMPLEMENTED",
        Code::Internal => "INTERNAL",
        Code::Unavailable => "UNAVAILABLE",
        Code::DataLoss => "DATA_LOSS",
        Code::Unauthenticated => "UNAUTHENTICATED",
    }
}
