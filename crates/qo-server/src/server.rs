//! Connections: how many there may be, how they begin, how they end.
//!
//! A server ends in three steps:
//!
//! 1. It takes no more connections, refuses new calls ("about to end, ask another server"), and ends the streams of
//!    wake-ups, so that their clients go to another server.
//! 2. Calls that run go on, for as long as [`Options::drain`].
//! 3. What still runs then is cut off. Its callers repeat it, as after any lost answer.

use crate::grpc::Service;
use crate::metrics::{Counts, Numbers};
use crate::route::{Route, Routes};
use crate::shared::Shared;
use crate::wake::Wakes;
use crate::{Options, api, caller, http, maintain, metrics, page};
use axum::Router;
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use hyper_util::server::conn::auto::Builder;
use hyper_util::server::graceful::GracefulShutdown;
use hyper_util::service::TowerToHyperService;
use qo_core::{Error, ErrorKind, Result, Store};
use qo_wire::limits;
use qo_wire::pb::queue_server::QueueServer;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;
use tokio::net::TcpListener;
use tokio::sync::{Semaphore, watch};
use tokio::task::JoinSet;
use tokio::time::{sleep, timeout};

/// How often an idle connection is tried out, and how long the answer may take.
const KEEPALIVE: (Duration, Duration) = (Duration::from_secs(10), Duration::from_secs(5));
/// How long a client may take to send the headers of a request.
const HEADERS: Duration = Duration::from_secs(10);
/// Most bytes of headers.
const HEADER_BYTES: u32 = 32 << 10;
/// The pause after a connection could not be taken, as when the process has too many files open.
const PAUSE: Duration = Duration::from_millis(100);

/// A server that listens.
pub struct Server {
    listener: TcpListener,
    address: SocketAddr,
    store: Arc<dyn Store>,
    options: Options,
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
    /// A server of a store on a listener from [`bind`](crate::bind).
    pub fn new(listener: TcpListener, store: Arc<dyn Store>, options: Options) -> Result<Self> {
        let address = listener
            .local_addr()
            .map_err(|error| Error::new(ErrorKind::Unavailable, format!("listen: {error}")))?;
        Ok(Self { listener, address, store, options, ending: watch::Sender::new(false) })
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
        let wakes = Wakes::new(Arc::clone(&self.store));
        let mut background = JoinSet::new();
        background.spawn(maintain::maintain(Arc::clone(&self.store), self.options.sweep_every));
        background.spawn(Arc::clone(&wakes).follow());
        background.spawn(Arc::clone(&wakes).wake());
        let counts = Counts::new();
        let router = self.router(&wakes, &counts)?;
        self.serve(router, counts).await;
        // Dropping `background` ends its tasks.
        Ok(())
    }

    fn router(&self, wakes: &Arc<Wakes>, counts: &Counts) -> Result<Router> {
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
            numbers: Numbers::new(Arc::clone(&self.store), counts, self.options.sample_every),
            options: Arc::new(self.options.clone()),
            ending: self.ending.subscribe(),
        };
        let router = grpc.into_axum_router().merge(routes().finish(shared));
        let router = router.fallback(http::nothing_here);
        let identify = axum::middleware::from_fn_with_state(Arc::clone(&self.store), caller::identify);
        let count = axum::middleware::from_fn_with_state(counts.clone(), metrics::count);
        Ok(router.layer(identify).layer(axum::middleware::from_fn(http::guard_host)).layer(count))
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
            let (Ok(place), Ok((stream, _))) = accepted else {
                sleep(PAUSE).await;
                continue;
            };
            // Answers are small, and a caller waits for each.
            stream.set_nodelay(true).ok();
            let service = TowerToHyperService::new(router.clone());
            let connection = builder.serve_connection(TokioIo::new(stream), service).into_owned();
            let connection = graceful.watch(connection);
            let open = counts.connection();
            connections.spawn(async move {
                // How a connection ends is of no interest: its calls have told their own callers.
                connection.await.ok();
                drop((place, open));
            });
        }
        drop(self.listener);
        timeout(self.options.drain, graceful.shutdown()).await.ok();
        connections.shutdown().await;
    }
}

/// Every route of HTTP. The calls of gRPC are in its descriptor.
fn routes() -> Routes {
    http::routes().merge(api::routes()).merge(page::routes()).merge(metrics::routes())
}

/// Each path and method of HTTP that a server answers, and what its caller must be allowed to do.
pub fn listed() -> Vec<Route> {
    routes().listed()
}

fn builder(options: &Options) -> Builder<TokioExecutor> {
    let mut builder = Builder::new(TokioExecutor::new());
    builder.http1().timer(TokioTimer::new()).header_read_timeout(HEADERS);
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
