//! Connections, with TLS as the URL wants it.
//!
//! `prefer` and `allow` have two ways, as in libpq, and take the second if the first fails for a reason that concerns
//! TLS:
//!
//! - `prefer`: encrypted; then plain if the handshake fails, or the server refuses connections of that kind.
//! - `allow`: plain; then encrypted if the server refuses connections of that kind.

use crate::Url;
use crate::tls::Mode;
use deadpool_postgres::Connect;
use qo_core::{Cause, Error, ErrorKind, Result};
use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError};
use tokio::task::{JoinHandle, spawn_blocking};
use tokio_postgres::config::{Host, SslMode};
use tokio_postgres::error::SqlState;
use tokio_postgres::tls::MakeTlsConnect;
use tokio_postgres::{Client, Config, Connection, Socket};
use tokio_postgres_rustls::MakeRustlsConnect;

/// A connection that its caller polls.
pub(crate) type Opened = (Client, Connection<Socket, TlsStream>);
/// What an encrypted connection reads and writes.
pub(crate) type TlsStream = <MakeRustlsConnect as MakeTlsConnect<Socket>>::Stream;

type Tried<T> = std::result::Result<T, tokio_postgres::Error>;

/// Opens connections to the servers of a URL.
#[derive(Clone)]
pub(crate) struct Connector {
    url: Arc<Url>,
    /// By the files as they were when they could be read last.
    tls: Arc<Mutex<MakeRustlsConnect>>,
}

impl Connector {
    /// Reads the files that the URL names. `Invalid` if one cannot be read or used.
    pub fn new(url: &Url) -> Result<Self> {
        let tls = MakeRustlsConnect::new(url.tls.load()?);
        Ok(Self { url: Arc::new(url.clone()), tls: Arc::new(Mutex::new(tls)) })
    }

    /// Opens a connection. `config` is that of the URL, with time limits.
    pub async fn open(&self, config: &Config) -> Tried<Opened> {
        let mode = self.url.tls.mode();
        let (first, second) = match mode {
            // A socket of this machine needs no TLS, and the server has none there.
            _ if config.get_hosts().iter().all(|host| matches!(host, Host::Unix(_))) => {
                (SslMode::Disable, None)
            }
            Mode::Disable => (SslMode::Disable, None),
            Mode::Allow => (SslMode::Disable, Some(SslMode::Require)),
            Mode::Prefer => (SslMode::Prefer, Some(SslMode::Disable)),
            Mode::Require | Mode::VerifyCa | Mode::VerifyFull => (SslMode::Require, None),
        };
        let error = match self.try_to(config, first).await {
            Err(error) if concerns_tls(&error) => error,
            tried => return tried,
        };
        let Some(second) = second else { return Err(error) };
        // The first error says more than that of the way that is not meant.
        self.try_to(config, second).await.map_err(|_| error)
    }

    async fn try_to(&self, config: &Config, mode: SslMode) -> Tried<Opened> {
        let mut config = config.clone();
        config.ssl_mode(mode);
        let tls = if mode == SslMode::Disable { self.last() } else { self.newest().await };
        config.connect(tls).await
    }

    fn last(&self) -> MakeRustlsConnect {
        self.tls.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// By the files as they are now, or, while they are being replaced, as they were.
    async fn newest(&self) -> MakeRustlsConnect {
        let url = Arc::clone(&self.url);
        match spawn_blocking(move || url.tls.load()).await {
            Ok(Ok(config)) => {
                let tls = MakeRustlsConnect::new(config);
                *self.tls.lock().unwrap_or_else(PoisonError::into_inner) = tls.clone();
                return tls;
            }
            Ok(Err(error)) => tracing::warn!("the certificates as they were are used: {error}"),
            Err(error) => tracing::warn!("the certificates as they were are used: {error}"),
        }
        self.last()
    }
}

impl Connect for Connector {
    fn connect(
        &self,
        config: &Config,
    ) -> Pin<Box<dyn Future<Output = Tried<(Client, JoinHandle<()>)>> + Send + '_>> {
        let config = config.clone();
        Box::pin(async move {
            let (client, connection) = self.open(&config).await?;
            let task = tokio::spawn(async move {
                if let Err(error) = connection.await {
                    tracing::debug!(%error, "the connection has ended");
                }
            });
            Ok((client, task))
        })
    }
}

/// Whether another way of encryption may help: the handshake failed, or the server refuses connections of this kind.
fn concerns_tls(error: &tokio_postgres::Error) -> bool {
    is_handshake(error) || error.code() == Some(&SqlState::INVALID_AUTHORIZATION_SPECIFICATION)
}

/// Whether the TLS handshake failed. tokio-postgres tells this kind of error by its text alone.
fn is_handshake(error: &tokio_postgres::Error) -> bool {
    error.as_db_error().is_none() && error.to_string().starts_with("error performing TLS handshake")
}

/// What a failed handshake means to the caller: `Invalid` if the two sides cannot agree, however often they try. None
/// if something else failed.
pub(crate) fn handshake_failed(error: &tokio_postgres::Error) -> Option<Error> {
    if !is_handshake(error) {
        return None;
    }
    let mut source = std::error::Error::source(error);
    let mut why = "the handshake failed".to_owned();
    let mut kind = ErrorKind::Invalid;
    while let Some(error) = source {
        why = error.to_string();
        if let Some(io) = error.downcast_ref::<std::io::Error>()
            && io.kind() != std::io::ErrorKind::InvalidData
        {
            // The connection broke.
            kind = ErrorKind::Unavailable;
        }
        let inner = error.downcast_ref::<std::io::Error>().and_then(std::io::Error::get_ref);
        source = match inner {
            Some(inner) => Some(inner as &(dyn std::error::Error + 'static)),
            None => error.source(),
        };
    }
    let told = Error::new(kind, format!("PostgreSQL: no TLS to the server: {why}"));
    Some(if kind == ErrorKind::Invalid { told.with_cause(Cause::Refused) } else { told })
}
