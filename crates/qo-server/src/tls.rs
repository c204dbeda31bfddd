//! TLS: the certificate and key from two files, read again when they change.
//!
//! A new pair counts for the connections that come after it. A pair that cannot be used is logged, and the old one stays:
//! a certificate that is copied in two steps must not take the server down.

use qo_core::{Error, Result};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::{ServerConfig, crypto::ring};
use std::path::{Path, PathBuf};
use std::sync::{Arc, PoisonError, RwLock};
use std::time::{Duration, SystemTime};
use tokio::time::sleep;
use tokio_rustls::TlsAcceptor;

/// How often the files are looked at.
const EVERY: Duration = Duration::from_secs(2);

/// The files of a certificate and its key, in PEM.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TlsFiles {
    /// The certificate, and those between it and its authority.
    pub cert: PathBuf,
    /// Its private key.
    pub key: PathBuf,
}

/// What a look at a file shows of it: when it was written, and how long it is.
type Seen = [Option<(SystemTime, u64)>; 2];

/// What connections are encrypted with.
pub(crate) struct Tls {
    files: TlsFiles,
    config: RwLock<Arc<ServerConfig>>,
}

impl Tls {
    /// Reads the files. `Invalid` if they cannot be used.
    pub fn read(files: TlsFiles) -> Result<Self> {
        let config = config(&files)?;
        Ok(Self { files, config: RwLock::new(config) })
    }

    /// What takes the next connection.
    pub fn acceptor(&self) -> TlsAcceptor {
        TlsAcceptor::from(Arc::clone(&self.config.read().unwrap_or_else(PoisonError::into_inner)))
    }

    /// Reads the files whenever they change.
    pub async fn follow(self: Arc<Self>) {
        let mut seen = self.seen();
        loop {
            sleep(EVERY).await;
            let now = self.seen();
            if now == seen {
                continue;
            }
            seen = now;
            match config(&self.files) {
                Ok(config) => {
                    *self.config.write().unwrap_or_else(PoisonError::into_inner) = config;
                    tracing::info!("the certificate was read anew");
                }
                Err(error) => tracing::error!("the certificate stays as it was: {error}"),
            }
        }
    }

    fn seen(&self) -> Seen {
        let look = |path: &Path| {
            let file = std::fs::metadata(path).ok()?;
            Some((file.modified().ok()?, file.len()))
        };
        [look(&self.files.cert), look(&self.files.key)]
    }
}

fn config(files: &TlsFiles) -> Result<Arc<ServerConfig>> {
    let TlsFiles { cert, key } = files;
    let bad = |flag: &str, path: &Path, why: &dyn std::fmt::Display| {
        Error::invalid(flag, path.display(), format_args!("must be a file in PEM that can be used: {why}"))
    };
    let chain =
        CertificateDer::pem_file_iter(cert).and_then(Iterator::collect::<std::result::Result<Vec<_>, _>>);
    let chain = chain.map_err(|error| bad("tls-cert", cert, &error))?;
    let key_der = PrivateKeyDer::from_pem_file(key).map_err(|error| bad("tls-key", key, &error))?;
    let config = ServerConfig::builder_with_provider(Arc::new(ring::default_provider()))
        .with_safe_default_protocol_versions()
        .map_err(|error| bad("tls-cert", cert, &error))?
        .with_no_client_auth()
        .with_single_cert(chain, key_der);
    let mut config = config.map_err(|error| bad("tls-key", key, &error))?;
    config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
    Ok(Arc::new(config))
}
