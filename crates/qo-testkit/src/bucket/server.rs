//! The server: a thread that listens, and the handling of each request.

use super::client::{is_known, key_of};
use super::fault::Fault;
use super::objects::Operations;
use super::request::Kind;
use super::{SECRET_KEY, State};
use async_trait::async_trait;
use futures::{StreamExt, future, stream};
use hyper::body::{Bytes, Incoming};
use hyper::header::{AUTHORIZATION, CONTENT_TYPE, DATE, HeaderValue, IF_MATCH, IF_NONE_MATCH};
use hyper::server::conn::http1;
use hyper::{Method, Request, StatusCode};
use hyper_util::rt::TokioIo;
use s3s::auth::{S3Auth, SecretKey};
use s3s::dto::{StreamingBlob, TimestampFormat};
use s3s::service::{S3Service, S3ServiceBuilder};
use s3s::{Body, HttpError, HttpResponse, S3Result, s3_error};
use std::io;
use std::sync::Arc;
use std::thread::{self, JoinHandle};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{Notify, mpsc};
use tokio::time::{Instant, sleep_until};

/// Binds a port and serves it on a thread of its own until it is told to stop. Returns the address.
pub(super) fn start(state: Arc<State>, stop: Arc<Notify>) -> (String, JoinHandle<()>) {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").expect("a free port");
    listener.set_nonblocking(true).expect("a listener that does not block");
    let address = listener.local_addr().expect("the port's address");
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
    let thread = thread::Builder::new().name("bucket".to_owned()).spawn(move || {
        runtime.block_on(async {
            let listener = TcpListener::from_std(listener).expect("a listener");
            tokio::select! {
                () = listen(listener, state) => {}
                () = stop.notified() => {}
            }
        });
    });
    (format!("http://{address}"), thread.expect("a thread"))
}

async fn listen(listener: TcpListener, state: Arc<State>) {
    let mut builder = S3ServiceBuilder::new(Operations(state.clone()));
    builder.set_auth(OneAccount);
    let s3 = builder.build();
    loop {
        // `accept` fails when too many files are open; the clients report that.
        if let Ok((stream, _)) = listener.accept().await {
            tokio::spawn(serve(stream, state.clone(), s3.clone()));
        }
    }
}

/// How the server cuts a connection.
enum Cut {
    /// What was sent arrives.
    Close,
    /// The other side gets an error, even for what was sent.
    Reset,
}

async fn serve(stream: TcpStream, state: Arc<State>, s3: S3Service) {
    // With Nagle's algorithm an answer in two parts waits 40 ms for a delayed acknowledgement.
    let _ = stream.set_nodelay(true);
    let (cut, mut cuts) = mpsc::channel(1);
    let answers = hyper::service::service_fn(move |request| {
        Box::pin(answer(request, state.clone(), s3.clone(), cut.clone()))
    });
    let mut connection = http1::Builder::new().serve_connection(TokioIo::new(stream), answers);
    let cut = tokio::select! {
        // The connection first, so that bytes written before a cut are sent.
        biased;
        _ = &mut connection => return,
        cut = cuts.recv() => cut,
    };
    if matches!(cut, Some(Cut::Reset)) {
        let _ = connection.into_parts().io.inner().set_zero_linger();
    }
}

async fn answer(
    request: Request<Incoming>,
    state: Arc<State>,
    s3: S3Service,
    cut: mpsc::Sender<Cut>,
) -> Result<HttpResponse, HttpError> {
    let kind = Kind::of(&request);
    let authorization = request.headers().get(AUTHORIZATION).and_then(|value| value.to_str().ok());
    let key = key_of(authorization).unwrap_or_default();
    let conditional = [IF_MATCH, IF_NONE_MATCH].iter().any(|name| request.headers().contains_key(name));
    let (latency, fault) = state.plans().request(kind, conditional);
    let begun = Instant::now();
    wait(begun + latency / 2).await;
    let is_refused = state.clients().refuses(&key, kind);
    let mut response = match fault {
        _ if is_refused => refuse(request, StatusCode::FORBIDDEN, "AccessDenied").await,
        Some(Fault::ResetBefore) => return end(&cut, Cut::Reset).await,
        Some(Fault::Error) => refuse(request, StatusCode::INTERNAL_SERVER_ERROR, "InternalError").await,
        Some(Fault::SlowDown) => refuse(request, StatusCode::SERVICE_UNAVAILABLE, "SlowDown").await,
        Some(Fault::Conflict) => refuse(request, StatusCode::CONFLICT, "ConditionalRequestConflict").await,
        Some(Fault::Delay(time)) => {
            wait(begun + latency / 2 + time).await;
            s3.call(request.map(Body::from)).await?
        }
        Some(Fault::ResetAfter | Fault::Truncated) | None => s3.call(request.map(Body::from)).await?,
    };
    wait(begun + latency).await;
    match fault {
        Some(Fault::ResetAfter) => return end(&cut, Cut::Reset).await,
        Some(Fault::Truncated) if kind != Kind::Head => response = halved(response, cut).await?,
        _ => {}
    }
    stamp(&mut response, &state, &key);
    Ok(response)
}

/// A delay of zero returns at once; the runtime's timer would take a millisecond.
async fn wait(until: Instant) {
    if until > Instant::now() {
        sleep_until(until).await;
    }
}

/// Cuts the connection; there is no answer.
async fn end<T>(cut: &mpsc::Sender<Cut>, how: Cut) -> T {
    let _ = cut.send(how).await;
    future::pending().await
}

/// An error as S3 writes it, sent after the request is read: a client that is still sending would not read it.
async fn refuse(request: Request<Incoming>, status: StatusCode, code: &str) -> HttpResponse {
    let silent = request.method() == Method::HEAD;
    let _ = Body::from(request.into_body()).store_all_limited(usize::MAX).await;
    let text =
        format!("<?xml version=\"1.0\"?><Error><Code>{code}</Code><Message>By dice.</Message></Error>");
    let mut response = HttpResponse::new(if silent { Body::empty() } else { Body::from(text) });
    *response.status_mut() = status;
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("application/xml"));
    response
}

/// The answer with its full length and half of the body, after which the connection is closed.
async fn halved(response: HttpResponse, cut: mpsc::Sender<Cut>) -> Result<HttpResponse, HttpError> {
    let (mut head, mut body) = response.into_parts();
    let whole = body.store_all_limited(usize::MAX).await.map_err(HttpError::new)?;
    head.headers.insert(hyper::header::CONTENT_LENGTH, whole.len().into());
    let half: io::Result<Bytes> = Ok(whole.slice(..whole.len() / 2));
    let sent = stream::iter([half]).chain(stream::once(async move { end(&cut, Cut::Close).await }));
    Ok(HttpResponse::from_parts(head, StreamingBlob::wrap(sent).into()))
}

/// The time by the server's clock, or the wrong one for this client.
fn stamp(response: &mut HttpResponse, state: &State, key: &str) {
    let mut date = Vec::new();
    let wrong_ms = state.clients().wrong_ms(key);
    let told = state.objects().told(wrong_ms);
    let written = told.format(TimestampFormat::HttpDate, &mut date);
    if let (Ok(()), Ok(date)) = (written, HeaderValue::from_bytes(&date)) {
        response.headers_mut().insert(DATE, date);
    }
}

/// The only account; it has several keys.
struct OneAccount;

#[async_trait]
impl S3Auth for OneAccount {
    async fn get_secret_key(&self, access_key: &str) -> S3Result<SecretKey> {
        if is_known(access_key) { Ok(SECRET_KEY.into()) } else { Err(s3_error!(InvalidAccessKeyId)) }
    }
}
