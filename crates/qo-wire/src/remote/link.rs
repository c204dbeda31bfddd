//! The connections to the servers of one namespace, and how a call is made on them.
//!
//! 1. A call goes to the current server. If it did not get there (the connection was refused, or the server is about
//!    to end), it goes to the next one, and that becomes the current server.
//! 2. If a connection breaks after the call was sent, a look is made again at the next server. A call that changes
//!    something may have happened: its caller gets `Unknown` and repeats it with the same ids and numbers, at the next
//!    server.
//! 3. An error of qo is the answer. It moves nothing.

use crate::limits;
use crate::methods::{Effect, Method};
use crate::pb::queue_client::QueueClient;
use crate::remote::Options;
use crate::{Addresses, status};
use prost::Message;
use qo_core::{Bearer, Error, ErrorKind, Result};
use std::error::Error as _;
use std::future::Future;
use std::time::Duration;
use tokio::sync::watch;
use tokio::time::timeout;
use tonic::metadata::{AsciiMetadataValue as AsciiValue, MetadataValue};
use tonic::transport::{Certificate, Channel, ClientTlsConfig, Endpoint};
use tonic::{Code, ConnectError, Request, Response, Status};

/// How long a connection may take to be made.
const CONNECT: Duration = Duration::from_secs(3);
/// How often an idle connection is tried out, and how long the answer may take. So a connection whose other end is
/// gone without a word is noticed within 15 s.
const KEEPALIVE: (Duration, Duration) = (Duration::from_secs(10), Duration::from_secs(5));

pub(crate) type Client = QueueClient<Channel>;

pub(crate) struct Link {
    servers: Vec<(String, Client)>,
    /// What each call shows.
    token: Option<AsciiValue>,
    /// Which of them is asked.
    current: watch::Sender<usize>,
    deadline: Duration,
}

/// Why a call has no answer.
enum Failure {
    /// It did not get to the server: nothing happened there.
    NotSent(String),
    /// It may have got there.
    Lost(String),
    /// The answer is an error.
    Answered(Error),
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
        let servers = addresses.servers().iter();
        let servers = servers.map(|server| Ok((server.clone(), client(server, tls.as_ref())?)));
        let servers = servers.collect::<Result<Vec<_>>>()?;
        let token = token.map(|token| shown(&token)).transpose()?;
        Ok(Self { servers, token, current: watch::Sender::new(0), deadline })
    }

    /// A connection to the current server, and which one that is.
    pub fn current(&self) -> (usize, Client) {
        let at = *self.current.borrow();
        (at, self.servers[at].1.clone())
    }

    /// Waits until another server than this one is the current one.
    pub async fn moved_from(&self, at: usize) {
        // The sender is in `self`, so it is not gone.
        let _ = self.current.subscribe().wait_for(|current| *current != at).await;
    }

    /// The server after this one becomes the current one, unless another call has moved on already.
    pub fn leave(&self, at: usize) {
        let next = (at + 1) % self.servers.len();
        self.current.send_if_modified(|current| {
            let moves = *current == at && next != at;
            if moves {
                *current = next;
                tracing::info!(server = %self.servers[next].0, "moved to another server");
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
        let mut request = Some(request);
        let mut failed = Vec::new();
        for turn in 1..=self.servers.len() {
            let (at, client) = self.current();
            let is_last = turn == self.servers.len();
            let message = if is_last { request.take() } else { request.clone() };
            let Some(message) = message else { break };
            let failure = match timeout(self.deadline, send(client, self.request(message))).await {
                Ok(Ok(response)) => return Ok(response.into_inner()),
                Ok(Err(status)) => failure(method, &status),
                Err(_) => Failure::Lost(format!("no answer within {:?}", self.deadline)),
            };
            let why = match failure {
                Failure::Answered(error) => return Err(error),
                Failure::Lost(why) if method.effect == Effect::Changes => {
                    self.leave(at);
                    return Err(self.failed(ErrorKind::Unknown, &[(at, why)]));
                }
                Failure::NotSent(why) | Failure::Lost(why) => why,
            };
            self.leave(at);
            failed.push((at, why));
        }
        Err(self.failed(ErrorKind::Unavailable, &failed))
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
            Failure::Answered(error) => error,
            Failure::NotSent(why) | Failure::Lost(why) => {
                self.leave(at);
                self.failed(ErrorKind::Unavailable, &[(at, why)])
            }
        }
    }

    fn failed(&self, kind: ErrorKind, failed: &[(usize, String)]) -> Error {
        let each = failed.iter().map(|(at, why)| format!("{}: {why}", self.servers[*at].0));
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
        return Failure::Answered(error);
    }
    if was_not_sent(status) {
        return Failure::NotSent(why(status));
    }
    match status.code() {
        // Refused by a server with other limits, before it was read.
        Code::OutOfRange => {
            let rule = format!("the call is too large for a message: {}", status.message());
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
