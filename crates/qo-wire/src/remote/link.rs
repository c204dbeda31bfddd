//! The connections to the servers of one namespace, and how a call is made on them.
//!
//! 1. A call goes to the current server. If it did not get there (the connection was refused, or the server is about
//!    to end), it goes to the next one, and that becomes the current server.
//! 2. If a connection breaks after the call was sent, a look is made again at the next server. A call that changes
//!    something may have happened: its caller gets `Unknown` and repeats it with the same ids and numbers, at the next
//!    server.
//! 3. `Unavailable` from a server means that nothing happened, for example because it has lost its store. The call goes
//!    to the next server. If that one answers, it becomes the current server; else the client stays where it is.
//! 4. Any other error of qo is the answer. It moves nothing.
//! 5. A caller with little patience drops its call. If the call has then waited for a second or longer, the next server
//!    becomes the current one: this one may be gone without a word.
//!
//! One deadline holds for all tries of a call together.
//!
//! Before the first call to a server, and after a connection to it broke, comes a handshake. A server that speaks another
//! level of the protocol, or serves another namespace than the server before it, gets no call: a submit that is repeated
//! there would be stored twice.

use super::told::Told;
use crate::limits;
use crate::methods::{Effect, Method};
use crate::pb::queue_client::QueueClient;
use crate::remote::Options;
use crate::{Addresses, LEVEL, pb, status};
use prost::Message;
use qo_core::{Bearer, Error, ErrorKind, Result};
use std::error::Error as _;
use std::future::Future;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tokio::sync::watch;
use tokio::time::{Instant, timeout_at};
use tonic::metadata::{AsciiMetadataValue as AsciiValue, MetadataValue};
use tonic::transport::{Certificate, Channel, ClientTlsConfig, Endpoint};
use tonic::{Code, ConnectError, Request, Response, Status};

/// How long a connection may take to be made.
const CONNECT: Duration = Duration::from_secs(3);
/// How often an idle connection is tried out, and how long the answer may take. So a connection whose other end is
/// gone without a word is noticed within 15 s.
const KEEPALIVE: (Duration, Duration) = (Duration::from_secs(10), Duration::from_secs(5));

/// If a call is dropped after it has waited this long, its server may be gone.
const SUSPICIOUS: Duration = Duration::from_secs(1);

pub(crate) type Client = QueueClient<Channel>;

pub(crate) struct Link {
    servers: Vec<Server>,
    /// What each call shows.
    token: Option<AsciiValue>,
    /// Which of them is asked.
    current: watch::Sender<usize>,
    deadline: Duration,
    /// What the servers have told in their handshakes.
    told: Mutex<Told>,
}

struct Server {
    name: String,
    client: Client,
    /// It has answered a handshake since a connection to it broke.
    is_greeted: AtomicBool,
}

/// Why a call has no answer.
enum Failure {
    /// It did not get to the server: nothing happened there.
    NotSent(String),
    /// It may have got there.
    Lost(String),
    /// The server answers that it could not do it, and that nothing happened.
    Refused(Error),
    /// The answer is an error.
    Answered(Error),
    /// The server is none of this client's: it gets no calls.
    Stranger(Error),
}

/// The tries of a call that did nothing.
#[derive(Default)]
struct Tries {
    failed: Vec<(usize, String)>,
    refused: Option<Error>,
}

impl Tries {
    /// A try after which the call may be made elsewhere; the error that ends the call, if this is none.
    fn add(&mut self, link: &Link, at: usize, failure: Failure) -> Result<()> {
        let why = match failure {
            Failure::Answered(error) | Failure::Stranger(error) => return Err(error),
            // It answers other calls perhaps: a server that does better is found by the tries after this one.
            Failure::Refused(error) => self.refused.insert(error).message().to_owned(),
            Failure::NotSent(why) | Failure::Lost(why) => {
                link.leave(at);
                why
            }
        };
        self.failed.push((at, why));
        Ok(())
    }

    fn without_answer(self, link: &Link) -> Error {
        // The error of the only server has all its parts.
        let only = self.refused.filter(|_| link.servers.len() == 1);
        only.unwrap_or_else(|| link.failed(ErrorKind::Unavailable, &self.failed))
    }
}

/// Until when one of so many servers may take, so that each gets its turn before the deadline.
fn share(deadline: Instant, servers: usize) -> Instant {
    let now = Instant::now();
    let servers = u32::try_from(servers).unwrap_or(u32::MAX);
    now + deadline.saturating_duration_since(now) / servers
}

/// A call that waits for its server. If it is dropped before the answer, after a long wait, the link leaves the server.
struct Waiting<'a> {
    link: &'a Link,
    at: usize,
    since: Instant,
    is_answered: bool,
}

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        if !self.is_answered && self.since.elapsed() >= SUSPICIOUS {
            self.link.leave(self.at);
        }
    }
}

impl Link {
    /// Connections are made when calls need them.
    ///
    /// `Invalid` if the token would go to another machine unencrypted.
    pub fn new(addresses: &Addresses, options: Options) -> Result<Self> {
        let Options { deadline, token, authorities, insecure } = options;
        if let (Some(_), Some(server), false) =
            (&token, addresses.elsewhere(), addresses.is_https() || insecure)
        {
            let rule = "must be https://: a token that goes to another machine unencrypted can be read on the way; \
                        QO_INSECURE=1 sends it all the same";
            return Err(Error::invalid("store", format_args!("http://{server}"), rule));
        }
        let tls = addresses.is_https().then(|| tls(authorities.as_deref()));
        let server = |name: &String| {
            let is_greeted = AtomicBool::new(false);
            Ok(Server { name: name.clone(), client: client(name, tls.as_ref())?, is_greeted })
        };
        let servers = addresses.servers().iter().map(server).collect::<Result<Vec<_>>>()?;
        let token = token.map(|token| shown(&token)).transpose()?;
        Ok(Self { servers, token, current: watch::Sender::new(0), deadline, told: Mutex::default() })
    }

    /// Finds the first server that answers. It becomes the current one.
    pub async fn connect(&self) -> Result<()> {
        let deadline = Instant::now() + self.deadline;
        let mut tries = Tries::default();
        for at in 0..self.servers.len() {
            let until = share(deadline, self.servers.len() - at);
            match self.greet(at, until).await {
                Ok(()) => {
                    self.stay(at, 0, at);
                    return Ok(());
                }
                Err(failure) => tries.add(self, at, failure)?,
            }
        }
        Err(tries.without_answer(self))
    }

    /// What the servers have told.
    pub fn told(&self) -> MutexGuard<'_, Told> {
        self.told.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A connection to the current server, for a stream, and which server that is. A server that gets no calls gets no
    /// stream.
    pub async fn current(&self) -> Option<(usize, Client)> {
        let at = *self.current.borrow();
        if self.greet(at, Instant::now() + self.deadline).await.is_err() {
            self.leave(at);
            return None;
        }
        Some((at, self.servers[at].client.clone()))
    }

    /// Makes sure that a server may get calls.
    async fn greet(&self, at: usize, until: Instant) -> std::result::Result<(), Failure> {
        let Server { client, is_greeted, name } = &self.servers[at];
        if is_greeted.load(Ordering::Acquire) {
            return Ok(());
        }
        let hello = pb::HandshakeRequest { level: LEVEL, version: env!("CARGO_PKG_VERSION").into() };
        let method = super::method("Handshake").map_err(Failure::Answered)?;
        let mut client = client.clone();
        let reply = match timeout_at(until, client.handshake(self.request(hello))).await {
            Ok(Ok(reply)) => reply.into_inner(),
            // The call itself was not sent.
            Ok(Err(status)) => {
                return Err(match failure(method, &status) {
                    Failure::Lost(why) => Failure::NotSent(why),
                    other => other,
                });
            }
            Err(_) => return Err(Failure::NotSent("no answer to the handshake".into())),
        };
        let accepted = self.told().accept(name, &reply);
        if let Err(error) = accepted {
            // The caller learns of the mistake; the next call goes elsewhere.
            self.leave(at);
            return Err(Failure::Stranger(error));
        }
        is_greeted.store(true, Ordering::Release);
        Ok(())
    }

    /// Waits until another server than this one is the current one.
    pub async fn moved_from(&self, at: usize) {
        // The sender is in `self`, so it is not gone.
        let _ = self.current.subscribe().wait_for(|current| *current != at).await;
    }

    /// The server after this one becomes the current one, unless another call has moved on already.
    pub fn leave(&self, at: usize) {
        self.servers[at].is_greeted.store(false, Ordering::Release);
        let next = (at + 1) % self.servers.len();
        self.current.send_if_modified(|current| {
            let moves = *current == at && next != at;
            if moves {
                *current = next;
                tracing::info!(server = %self.servers[next].name, "moved to another server");
            }
            moves
        });
    }

    /// Makes a call, until a server has answered it or none can be reached.
    pub async fn call<Q, R, F>(
        &self,
        method: &Method,
        request: Q,
        send: impl Fn(Client, Request<Q>) -> F,
    ) -> Result<R>
    where
        Q: Clone + Message,
        F: Future<Output = std::result::Result<Response<R>, Status>>,
    {
        let bytes = request.encoded_len();
        if bytes > limits::REQUEST_BYTES {
            let most = limits::REQUEST_BYTES;
            let message = format!("the call has {bytes} bytes, and a message has at most {most}");
            return Err(Error::new(ErrorKind::Invalid, message));
        }
        let deadline = Instant::now() + self.deadline;
        let mut request = Some(request);
        let mut tries = Tries::default();
        let first = *self.current.borrow();
        let servers = self.servers.len();
        for turn in 0..servers {
            let at = (first + turn) % servers;
            let message = if turn + 1 == servers { request.take() } else { request.clone() };
            let Some(message) = message else { break };
            match self.ask(at, (deadline, servers - turn), message, method, &send).await {
                Ok(reply) => {
                    self.stay(at, first, turn);
                    return Ok(reply);
                }
                Err(Failure::Answered(error)) => {
                    self.stay(at, first, turn);
                    return Err(error);
                }
                Err(Failure::Lost(why)) if method.effect == Effect::Changes => {
                    self.leave(at);
                    return Err(self.failed(ErrorKind::Unknown, &[(at, why)]));
                }
                Err(failure) => tries.add(self, at, failure)?,
            }
        }
        Err(tries.without_answer(self))
    }

    /// Makes a call at one of so many servers that are left before the deadline.
    ///
    /// A handshake or a look is made again elsewhere, so it leaves time for the servers after this one.
    async fn ask<Q, R, F>(
        &self,
        at: usize,
        (deadline, left): (Instant, usize),
        message: Q,
        method: &Method,
        send: &impl Fn(Client, Request<Q>) -> F,
    ) -> std::result::Result<R, Failure>
    where
        F: Future<Output = std::result::Result<Response<R>, Status>>,
    {
        let mut waiting = Waiting { link: self, at, since: Instant::now(), is_answered: false };
        let greeted = self.greet(at, share(deadline, left)).await;
        if let Err(failure) = greeted {
            waiting.is_answered = true;
            return Err(failure);
        }
        let until = match method.effect {
            Effect::Changes => deadline,
            Effect::Looks => share(deadline, left),
        };
        let client = self.servers[at].client.clone();
        let answer = timeout_at(until, send(client, self.request(message))).await;
        waiting.is_answered = true;
        match answer {
            Ok(Ok(response)) => Ok(response.into_inner()),
            Ok(Err(status)) => Err(failure(method, &status)),
            Err(_) => Err(Failure::Lost(format!("no answer within {:.1?}", waiting.since.elapsed()))),
        }
    }

    /// A server has answered after those before it did not: it becomes the current one, unless another call has moved
    /// on already.
    fn stay(&self, at: usize, first: usize, turn: usize) {
        let servers = self.servers.len();
        self.current.send_if_modified(|current| {
            let was_tried = (0..turn).any(|turn| (first + turn) % servers == *current);
            if was_tried {
                *current = at;
                tracing::info!(server = %self.servers[at].name, "moved to another server");
            }
            was_tried
        });
    }

    /// A request with what every call says.
    pub fn request<Q>(&self, message: Q) -> Request<Q> {
        let mut request = Request::new(message);
        let bytes = MetadataValue::from_static("262144");
        debug_assert_eq!(bytes.to_str().ok(), Some(limits::ERROR_BYTES_MOST.to_string().as_str()));
        request.metadata_mut().insert(limits::ERROR_BYTES_HEADER, bytes);
        if let Some(token) = &self.token {
            request.metadata_mut().insert("authorization", token.clone());
        }
        request
    }

    /// The error of a stream that broke off. Streams only look.
    pub fn broke(&self, at: usize, method: &Method, status: &Status) -> Error {
        match failure(method, status) {
            Failure::Answered(error) | Failure::Refused(error) | Failure::Stranger(error) => error,
            Failure::NotSent(why) | Failure::Lost(why) => {
                self.leave(at);
                self.failed(ErrorKind::Unavailable, &[(at, why)])
            }
        }
    }

    fn failed(&self, kind: ErrorKind, failed: &[(usize, String)]) -> Error {
        let each = failed.iter().map(|(at, why)| format!("{}: {why}", self.servers[*at].name));
        Error::new(kind, each.collect::<Vec<_>>().join("; "))
    }
}

/// A token as a header, which is kept out of tables of headers and of logs.
fn shown(token: &Bearer) -> Result<AsciiValue> {
    let value = format!("Bearer {}", token.secret_text());
    let mut value: AsciiValue =
        value.parse().map_err(|_| Error::invalid("token", "..", "must fit into a header"))?;
    value.set_sensitive(true);
    Ok(value)
}

fn tls(authorities: Option<&[u8]>) -> ClientTlsConfig {
    let config = ClientTlsConfig::new();
    match authorities {
        Some(authorities) => config.ca_certificate(Certificate::from_pem(authorities)),
        None => config.with_native_roots(),
    }
}

fn client(server: &str, tls: Option<&ClientTlsConfig>) -> Result<Client> {
    let scheme = if tls.is_some() { "https" } else { "http" };
    let invalid = |error| Error::invalid("store", server, format_args!("must be host:port: {error}"));
    let mut endpoint = Endpoint::from_shared(format!("{scheme}://{server}")).map_err(invalid)?;
    if let Some(tls) = tls {
        let unusable = |error| {
            Error::invalid("QO_CA_FILE", "..", format_args!("must hold certificates in PEM: {error}"))
        };
        endpoint = endpoint.tls_config(tls.clone()).map_err(unusable)?;
    }
    let endpoint = endpoint
        .connect_timeout(CONNECT)
        .tcp_nodelay(true)
        .tcp_keepalive(Some(KEEPALIVE.0))
        .http2_keep_alive_interval(KEEPALIVE.0)
        .keep_alive_timeout(KEEPALIVE.1)
        .keep_alive_while_idle(true)
        .initial_stream_window_size(limits::STREAM_WINDOW)
        .initial_connection_window_size(limits::CONNECTION_WINDOW)
        .http2_max_header_list_size(limits::TRAILER_BYTES);
    Ok(QueueClient::new(endpoint.connect_lazy()).max_decoding_message_size(limits::REPLY_BYTES))
}

/// What a status means to the caller.
fn failure(method: &Method, status: &Status) -> Failure {
    if status::is_ending(status) {
        return Failure::NotSent("it is about to end".into());
    }
    if let Some(error) = status::error(status) {
        return match error.kind() {
            ErrorKind::Unavailable => Failure::Refused(error),
            _ => Failure::Answered(error),
        };
    }
    if was_not_sent(status) {
        return Failure::NotSent(why(status));
    }
    match status.code() {
        // A server with other limits refused the call before it read it, or the call is done and its reply is too large
        // for this client. The status does not say which: a call that changes something may have happened.
        Code::OutOfRange if method.effect == Effect::Looks => {
            let rule = format!("the call or its reply is too large for a message: {}", status.message());
            Failure::Answered(Error::new(ErrorKind::Invalid, rule))
        }
        Code::Unimplemented => {
            let name = method.name;
            let message =
                format!("the server's release does not know the call {name}: it must be upgraded first");
            Failure::Answered(Error::new(ErrorKind::Conflict, message))
        }
        _ => Failure::Lost(why(status)),
    }
}

/// Whether no connection was made, or the one that there was had been closed before the call was written to it.
fn was_not_sent(status: &Status) -> bool {
    let mut source = status.source();
    while let Some(error) = source {
        // hyper calls a request cancelled only if it still has the whole of it.
        let is_unsent = error.downcast_ref::<hyper::Error>().is_some_and(hyper::Error::is_canceled);
        if is_unsent || error.is::<ConnectError>() {
            return true;
        }
        source = error.source();
    }
    false
}

/// The innermost error says most.
fn why(status: &Status) -> String {
    let mut source = status.source();
    let mut why = status.message().to_owned();
    while let Some(error) = source {
        why = error.to_string();
        source = error.source();
    }
    why
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::methods::method;

    #[test]
    fn a_reply_that_is_too_large_may_be_that_of_a_call_that_is_done() {
        let status = Status::out_of_range("decoded message length too large");
        let of = |name| failure(method(name).expect("a method"), &status);
        assert!(matches!(of("Submit"), Failure::Lost(_)));
        assert!(matches!(of("GetJob"), Failure::Answered(error) if error.kind() == ErrorKind::Invalid));
    }
}
