//! `/metrics` of a process that serves nothing else.

use crate::exposition::{Format, text};
use http_body_util::Full;
use hyper::body::{Bytes, Incoming};
use hyper::header::{ACCEPT, CONTENT_TYPE, HOST};
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper::{Method, Request, Response, StatusCode};
use hyper_util::rt::{TokioIo, TokioTimer};
use prometheus_client::registry::Registry;
use std::convert::Infallible;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Semaphore;
use tokio::task::JoinSet;
use tokio::time::{sleep, timeout};

/// Connections at once. A scraper needs one.
const CONNECTIONS: usize = 16;
/// How long a scraper may take to send its request.
const HEADERS: Duration = Duration::from_secs(5);
/// How long a connection may last.
const LONGEST: Duration = Duration::from_secs(60);
/// The pause after a connection could not be taken, as when the process has too many files open.
const PAUSE: Duration = Duration::from_millis(100);

/// An address at which a process shows its metrics.
#[derive(Debug)]
pub struct Endpoint {
    listener: std::net::TcpListener,
    address: SocketAddr,
}

impl Endpoint {
    /// Takes the address; port 0 takes a free one.
    pub fn bind(address: SocketAddr) -> io::Result<Self> {
        let listener = std::net::TcpListener::bind(address)?;
        listener.set_nonblocking(true)?;
        let address = listener.local_addr()?;
        Ok(Self { listener, address })
    }

    /// Where it listens.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Shows a registry until it is dropped. An error if the runtime does no I/O.
    pub async fn serve(self, registry: Arc<Registry>) -> io::Result<()> {
        let listener = TcpListener::from_std(self.listener)?;
        let local = self.address.ip().is_loopback();
        let places = Arc::new(Semaphore::new(CONNECTIONS));
        let mut connections = JoinSet::new();
        loop {
            while connections.try_join_next().is_some() {}
            let Ok(place) = Arc::clone(&places).acquire_owned().await else { return Ok(()) };
            let Ok((stream, _)) = listener.accept().await else {
                sleep(PAUSE).await;
                continue;
            };
            let registry = Arc::clone(&registry);
            connections.spawn(async move {
                timeout(LONGEST, connection(stream, registry, local)).await.ok();
                drop(place);
            });
        }
    }
}

async fn connection(stream: TcpStream, registry: Arc<Registry>, local: bool) {
    let service = service_fn(move |request: Request<Incoming>| {
        let answer = answer(&request, &registry, local);
        async move { Ok::<_, Infallible>(answer) }
    });
    let served = http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(HEADERS)
        .serve_connection(TokioIo::new(stream), service);
    // How a connection ends is of no interest here.
    served.await.ok();
}

fn answer(request: &Request<Incoming>, registry: &Registry, local: bool) -> Response<Full<Bytes>> {
    let header = |name| request.headers().get(name).and_then(|value| value.to_str().ok());
    // A page of another site can give its own name the address 127.0.0.1; the browser still sends that name.
    if local && !header(HOST).is_some_and(is_this_machine) {
        return said(StatusCode::MISDIRECTED_REQUEST, "Host: must be localhost or a loopback address\n");
    }
    if request.uri().path() != "/metrics" {
        return said(StatusCode::NOT_FOUND, "there is nothing here but /metrics\n");
    }
    if !matches!(*request.method(), Method::GET | Method::HEAD) {
        return said(StatusCode::METHOD_NOT_ALLOWED, "it can only be read\n");
    }
    let format = Format::accepted(header(ACCEPT));
    match text(registry, format) {
        Ok(text) => {
            let mut response = Response::new(Full::from(text));
            let kind = hyper::header::HeaderValue::from_static(format.content_type());
            response.headers_mut().insert(CONTENT_TYPE, kind);
            response
        }
        Err(_) => said(StatusCode::INTERNAL_SERVER_ERROR, "the metrics cannot be written\n"),
    }
}

fn said(status: StatusCode, text: &'static str) -> Response<Full<Bytes>> {
    let mut response = Response::new(Full::from(text));
    *response.status_mut() = status;
    response
}

/// Whether a `Host` header names this machine: `localhost` or a loopback address.
pub fn is_this_machine(host: &str) -> bool {
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
    use prometheus_client::metrics::counter::Counter;
    use tokio::io::{AsyncReadExt, AsyncWriteExt};

    async fn get(server: SocketAddr, request: &str) -> String {
        let mut stream = TcpStream::connect(server).await.expect("it listens");
        stream.write_all(request.as_bytes()).await.expect("it is sent");
        let mut answer = String::new();
        stream.read_to_string(&mut answer).await.expect("a text");
        answer
    }

    #[tokio::test]
    async fn an_endpoint_shows_its_metrics_and_nothing_else() {
        let mut registry = Registry::default();
        let counter: Counter = Counter::default();
        counter.inc();
        registry.register("tries", "Tries", counter);
        let endpoint = Endpoint::bind("127.0.0.1:0".parse().expect("an address")).expect("a free port");
        let address = endpoint.address();
        let serving = tokio::spawn(endpoint.serve(Arc::new(registry)));
        for (request, host, status, body) in [
            ("GET /metrics", "localhost:1", "200 OK", "tries_total 1\n"),
            ("HEAD /metrics", "127.0.0.1", "200 OK", ""),
            ("POST /metrics", "localhost", "405", "only be read"),
            ("GET /", "localhost", "404", "nothing here"),
            ("GET /metrics", "evil.example", "421", "Host"),
        ] {
            let request = format!("{request} HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n\r\n");
            let answer = get(address, &request).await;
            assert!(
                answer.starts_with(&format!("HTTP/1.1 {status}")) && answer.contains(body),
                "{request}{answer}"
            );
        }
        serving.abort();
    }
}
