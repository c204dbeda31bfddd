//! Connections: how many there may be, how they begin, how they end.
//!
//! A server ends in three steps:
//!
//! 1. It takes no more connections, refuses new calls ("about to end, ask another server"), and ends the streams of
//!    wake-ups, so that their clients go to another server.
//! 2. Calls that run go on, for as long as [`Options::drain`].
//! 3. What still runs then is cut off. Its callers repeat it, as after any lost answer.

use crate::connection::Counted;
use crate::gate::{self, Gate};
use crate::grpc::Service;
use crate::metrics::{Counts, Numbers};
use crate::origin::Names;
use crate::peer::Peer;
use crate::route::{Route, Routes};
use crate::shared::Shared;
use crate::tls::Tls;
use crate::wake::Wakes;
use crate::{Options, api, http, listen, maintain, metrics, page, sign_in};
use axum::middleware::AddExtension;
use axum::{Extension, Router};
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use hyper_util::server::conn::auto::Builder;
use hyper_util::server::graceful::{GracefulShutdown, Watcher};
use hyper_util::service::TowerToHyperService;
use qo_core::{Error, ErrorKind, Result, Store};
use qo_wire::limits;
use qo_wire::pb::queue_server::QueueServer;
use std::net::SocketAddr;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpListener;
use tokio::sync::{Semaphore, watch};
use tokio::task::JoinSet;
use tokio::time::{sleep, timeout};
use tower_layer::Layer;

/// How often an idle connection is tried out, and how long the answer may take.
const KEEPALIVE: (Duration, Duration) = (Duration::from_secs(10), Duration::from_secs(5));
/// How long a client may take to greet, to send the headers of a request, and to send the next request.
const HEADERS: Duration = Duration::from_secs(10);
/// Most bytes of headers.
const HEADER_BYTES: u32 = 32 << 10;
/// Most headers of a request.
const HEADER_COUNT: usize = 100;
/// A connection that has sent fewer bytes has not even said which version of HTTP it speaks.
const GREETING: usize = 24;
/// The pause after a connection could not be taken, as when the process has too many files open.
const PAUSE: Duration = Duration::from_millis(100);

/// A server that listens.
pub struct Server {
    listener: TcpListener,
    address: SocketAddr,
    store: Arc<dyn Store>,
    options: Options,
    tls: Option<Arc<Tls>>,
    /// The store whose tokens count.
    tokens: Arc<dyn Store>,
    ending: watch::Sender<bool>,
}

/// Tells a server to stop.
#[derive(Clone)]
pub struct Stopper(watch::Sender<bool>);

impl Stopper {
    /// The server takes no more calls, and ends when those that run have ended.
    pub fn stop(&self) {
        self.0.send_replace(true);
    }
}

impl Server {
    /// A server of a store on a listener from [`bind`](crate::bind). `Invalid` if the certificate cannot be used.
    pub fn new(listener: TcpListener, store: Arc<dyn Store>, options: Options) -> Result<Self> {
        let address = listener
            .local_addr()
            .map_err(|error| Error::new(ErrorKind::Unavailable, format!("listen: {error}")))?;
        let tls = options.tls.clone().map(Tls::read).transpose()?.map(Arc::new);
        let tokens = Arc::clone(&store);
        Ok(Self { listener, address, store, options, tls, tokens, ending: watch::Sender::new(false) })
    }

    /// The same server, where the tokens of another store count. Defaults to those of the store that it serves.
    #[must_use]
    pub fn with_tokens_of(self, tokens: Arc<dyn Store>) -> Self {
        Self { tokens, ..self }
    }

    /// An error if it may not serve: callers on other machines could use the store without a token.
    pub async fn check(&self) -> Result<()> {
        listen::need_tokens(self.address, &*self.tokens, &self.options).await
    }

    /// Where it listens.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// What tells it to stop.
    pub fn stopper(&self) -> Stopper {
        Stopper(self.ending.clone())
    }

    /// Serves until it is told to stop, and then until its calls have ended.
    pub async fn run(self) -> Result<()> {
        self.check().await?;
        let names = Names::new(self.options.allow_hosts.iter().cloned());
        let gate =
            Arc::new(Gate::new(Arc::clone(&self.store), Arc::clone(&self.tokens), names, &self.options)?);
        if let Err(error) = gate.tokens.read().await {
            // No caller is let in until they can be read.
            tracing::warn!("the tokens cannot be read: {error}");
        }
        let wakes = Wakes::new(Arc::clone(&self.store));
        let mut background = JoinSet::new();
        background.spawn(maintain::maintain(Arc::clone(&self.store), self.options.sweep_every));
        background.spawn(Arc::clone(&wakes).follow());
        background.spawn(Arc::clone(&wakes).wake());
        background.spawn(Arc::clone(&gate.tokens).follow());
        if let Some(tls) = &self.tls {
            background.spawn(Arc::clone(tls).follow());
        }
        let waits = api::Waits::new(Arc::clone(&self.store));
        background.spawn(Arc::clone(&waits).look(Arc::clone(&wakes)));
        let counts = Counts::new();
        let router = self.router(&wakes, &gate, &counts, &waits)?;
        let stopper = self.stopper();
        let mut serving = std::pin::pin!(self.serve(router, counts));
        // Dropping `background` ends its tasks. None ends by itself: without it the server would answer, and wake or sweep
        // nothing.
        tokio::select! {
            () = &mut serving => Ok(()),
            ended = background.join_next() => {
                stopper.stop();
                serving.await;
                let why = ended.and_then(Result::err).map(|error| format!(": {error}")).unwrap_or_default();
                Err(Error::new(ErrorKind::Internal, format!("a background task of the server ended{why}")))
            }
        }
    }

    fn router(
        &self,
        wakes: &Arc<Wakes>,
        gate: &Arc<Gate>,
        counts: &Counts,
        waits: &Arc<api::Waits>,
    ) -> Result<Router> {
        let service = Service::new(Arc::clone(wakes), counts.clone(), self.ending.subscribe());
        let queue = QueueServer::new(service)
            .max_decoding_message_size(limits::REQUEST_BYTES)
            .max_encoding_message_size(limits::REPLY_BYTES);
        let reflection = tonic_reflection::server::Builder::configure()
            .register_encoded_file_descriptor_set(qo_wire::pb::DESCRIPTORS)
            .build_v1()
            .map_err(|error| Error::new(ErrorKind::Internal, format!("reflection: {error}")))?;
        let (reporter, health) = tonic_health::server::health_reporter();
        let mut ending = self.ending.subscribe();
        tokio::spawn(async move {
            reporter.set_serving::<QueueServer<Service>>().await;
            if ending.wait_for(|ending| *ending).await.is_ok() {
                reporter.set_not_serving::<QueueServer<Service>>().await;
            }
        });
        let grpc = tonic::service::Routes::new(queue).add_service(reflection).add_service(health);
        let shared = Shared {
            store: Arc::clone(&self.store),
            wakes: Arc::clone(wakes),
            gate: Arc::clone(gate),
            numbers: Numbers::new(Arc::clone(&self.store), counts, self.options.sample_every),
            waits: Arc::clone(waits),
            history: Arc::default(),
            options: Arc::new(self.options.clone()),
            ending: self.ending.subscribe(),
        };
        let router = grpc.into_axum_router().merge(routes().finish(shared));
        let router = router.fallback(http::nothing_here);
        let guard = axum::middleware::from_fn_with_state(Arc::clone(gate), gate::guard);
        let explain = axum::middleware::from_fn(api::explain);
        let count = axum::middleware::from_fn_with_state(counts.clone(), metrics::count);
        Ok(router.layer(guard).layer(explain).layer(count))
    }

    async fn serve(self, router: Router, counts: Counts) {
        let builder = builder(&self.options);
        let graceful = GracefulShutdown::new();
        let mut ending = self.ending.subscribe();
        let places = Arc::new(Semaphore::new(self.options.connections));
        let mut connections = JoinSet::new();
        loop {
            let place = Arc::clone(&places).acquire_owned();
            let accepted = tokio::select! {
                accepted = async { (place.await, self.listener.accept().await) } => accepted,
                _ = ending.wait_for(|ending| *ending) => break,
                Some(_) = connections.join_next() => continue,
            };
            let (Ok(place), Ok((stream, remote))) = accepted else {
                sleep(PAUSE).await;
                continue;
            };
            let Ok(local) = stream.local_addr() else { continue };
            // Answers are small, and a caller waits for each.
            stream.set_nodelay(true).ok();
            let router = Extension(Peer { remote, local }).layer(router.clone());
            let (builder, watcher, tls) = (builder.clone(), graceful.watcher(), self.tls.clone());
            let open = counts.connection();
            connections.spawn(async move {
                match tls {
                    // A caller that only begins to greet would hold its place for ever.
                    Some(tls) => match timeout(HEADERS, tls.acceptor().accept(stream)).await {
                        Ok(Ok(stream)) => converse(stream, router, &builder, watcher).await,
                        Ok(Err(error)) => tracing::debug!(%remote, "no TLS: {error}"),
                        Err(_) => tracing::debug!(%remote, "no TLS in time"),
                    },
                    None => converse(stream, router, &builder, watcher).await,
                }
                drop((place, open));
            });
        }
        drop(self.listener);
        timeout(self.options.drain, graceful.shutdown()).await.ok();
        connections.shutdown().await;
    }
}

/// A connection's router: it knows both ends.
type Addressed = AddExtension<Router, Peer>;

/// Serves a connection until it ends.
async fn converse<S>(stream: S, router: Addressed, builder: &Builder<TokioExecutor>, watcher: Watcher)
where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    let (stream, read) = Counted::new(stream);
    let connection = builder.serve_connection(TokioIo::new(stream), TowerToHyperService::new(router));
    let mut connection = pin!(watcher.watch(connection));
    // Until the version of HTTP is known, no timer of that version runs.
    tokio::select! {
        // How a connection ends is of no interest: its calls have told their own callers.
        _ = &mut connection => return,
        () = sleep(HEADERS) => if read.load(Ordering::Relaxed) < GREETING { return },
    }
    connection.await.ok();
}

/// Every route of HTTP. The calls of gRPC are in its descriptor.
fn routes() -> Routes {
    http::routes()
        .merge(sign_in::routes())
        .merge(api::routes())
        .merge(page::routes())
        .merge(metrics::routes())
}

/// Each path and method of HTTP that a server answers, and what its caller must be allowed to do.
pub fn listed() -> Vec<Route> {
    routes().listed()
}

fn builder(options: &Options) -> Builder<TokioExecutor> {
    let mut builder = Builder::new(TokioExecutor::new());
    builder
        .http1()
        .timer(TokioTimer::new())
        .header_read_timeout(HEADERS)
        .max_headers(HEADER_COUNT)
        .max_buf_size(HEADER_BYTES as usize);
    builder
        .http2()
        .timer(TokioTimer::new())
        .max_concurrent_streams(options.calls_per_connection)
        .max_header_list_size(HEADER_BYTES)
        .initial_stream_window_size(limits::STREAM_WINDOW)
        .initial_connection_window_size(limits::CONNECTION_WINDOW)
        .keep_alive_interval(KEEPALIVE.0)
        .keep_alive_timeout(KEEPALIVE.1);
    builder
}
