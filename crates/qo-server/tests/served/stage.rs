//! Servers in this process, and stores that are reached through them.

use crate::schemas::RUNTIME;
use async_trait::async_trait;
use futures::future::BoxFuture;
use qo_core::{Answer, Command, Error, Exchange, ExchangeReply, MemoryStore, Result, Store};
use qo_server::{Options, Server, Stopper, bind};
use qo_testkit::generator::call;
use qo_testkit::intercept::{Intercept, Intercepted};
use qo_testkit::{Fixture, Fixtures};
use qo_wire::{Addresses, RemoteStore};
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;
use tokio::task::JoinHandle;

/// Longest that anything here may take.
pub const PATIENCE: Duration = Duration::from_secs(30);

/// A server that runs.
pub struct Served {
    pub address: SocketAddr,
    pub stopper: Stopper,
    pub run: JoinHandle<Result<()>>,
}

impl Served {
    /// Serves a store at a free port. Nothing is swept: store time belongs to the test.
    pub async fn start(store: Arc<dyn Store>) -> Self {
        Self::start_with(store, Options { sweep_every: PATIENCE * 1_000, ..Options::default() }).await
    }

    /// The same for a test whose store holds or refuses tokens, and whose callers show none.
    pub async fn start_without_tokens(store: Arc<dyn Store>) -> Self {
        let options = Options { sweep_every: PATIENCE * 1_000, ..Options::default() };
        Self::run(Self::server(store, options).await.with_tokens_of(Arc::new(MemoryStore::new())))
    }

    pub async fn start_with(store: Arc<dyn Store>, options: Options) -> Self {
        Self::run(Self::server(store, options).await)
    }

    async fn server(store: Arc<dyn Store>, options: Options) -> Server {
        let listener = bind("127.0.0.1:0").await.expect("a free port");
        Server::new(listener, store, options).expect("a server")
    }

    fn run(server: Server) -> Self {
        let (address, stopper) = (server.address(), server.stopper());
        Self { address, stopper, run: tokio::spawn(server.run()) }
    }

    /// Ends as a process that is killed does.
    pub async fn kill(&mut self) {
        self.run.abort();
        (&mut self.run).await.ok();
    }

    /// Waits until it has drained.
    pub async fn ended(&mut self) -> Result<()> {
        self.stopper.stop();
        tokio::time::timeout(PATIENCE, &mut self.run).await.expect("it ends").expect("no panic")
    }
}

impl Drop for Served {
    fn drop(&mut self) {
        self.run.abort();
    }
}

/// The store behind servers.
pub async fn remote(servers: &[SocketAddr]) -> RemoteStore {
    let servers: Vec<String> = servers.iter().map(ToString::to_string).collect();
    let addresses = Addresses::parse(&format!("http://{}", servers.join(","))).expect("a url");
    RemoteStore::connect(&addresses, qo_wire::Options::default()).await.expect("a server answers")
}

/// Runs a test in the runtime of all tests.
pub fn block_on<T>(test: impl Future<Output = T>) -> T {
    RUNTIME.block_on(test)
}

/// Makes stores of another kind, each behind a server of its own.
pub struct Behind<F>(pub F);

#[async_trait]
impl<F: Fixtures> Fixtures for Behind<F> {
    async fn fresh(&self) -> Fixture {
        let Fixture { store, clock } = self.0.fresh().await;
        let served = Served::start_without_tokens(store).await;
        let store = remote(&[served.address]).await;
        Fixture { store: Arc::new(Intercepted(Remote { store, _served: served })), clock }
    }

    fn block_on(&self, test: BoxFuture<'_, ()>) {
        RUNTIME.block_on(test);
    }
}

struct Remote {
    store: RemoteStore,
    _served: Served,
}

#[async_trait]
impl Intercept for Remote {
    async fn command(&self, command: Command) -> Result<Answer> {
        call(&self.store, command).await
    }

    async fn fetch(&self, exchange: Exchange) -> Result<Option<ExchangeReply>> {
        self.store.fetch(exchange).await
    }

    fn look(&self) -> Result<&dyn Store> {
        Ok(&self.store)
    }
}

/// An error with everything that a program may read of it.
pub fn parts(error: &Error) -> String {
    let mistakes: Vec<_> =
        error.mistakes().iter().map(|mistake| (mistake.path(), mistake.message())).collect();
    format!(
        "{:?} {:?} {:?} {:?} {:?} {:?} {:?} {mistakes:?}",
        error.kind(),
        error.message(),
        error.path(),
        error.value(),
        error.rule(),
        error.origin(),
        error.cause()
    )
}
