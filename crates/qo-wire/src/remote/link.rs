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
use crate::{Addresses, status};
use prost::Message;
use qo_core::{Error, ErrorKind, Result};
use std::error::Error as _;
use std::future::Future;
use std::time::Duration;
use tokio::sync::watch;
use tokio::time::timeout;
use tonic::metadata::MetadataValue;
use tonic::transport::{Channel, Endpoint};
use tonic::{Code, ConnectError, Request, Response, Status};

/// How long a connection may take to be made.
const CONNECT: Duration = Duration::from_secs(3);
/// How often an idle connection is tried out, and how long the answer may take. So a connection whose other end is
/// gone without a word is noticed within 15 s.
const KEEPALIVE: (Duration, Duration) = (Duration::from_secs(10), Duration::from_secs(5));

pub(crate) type Client = QueueClient<Channel>;

pub(crate) struct Link {
    servers: Vec<(String, Client)>,
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
    pub fn new(addresses: &Addresses, deadline: Duration) -> Result<Self> {
        let servers = addresses.servers().iter().map(|server| Ok((server.clone(), client(server)?)));
        let servers = servers.collect::<Result<Vec<_>>>()?;
        Ok(Self { servers, current: watch::Sender::new(0), deadline })
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

fn client(server: &str) -> Result<Client> {
    let endpoint = Endpoint::from_shared(format!("http://{server}"))
        .map_err(|error| Error::invalid("store", server, format_args!("must be host:port: {error}")))?
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
