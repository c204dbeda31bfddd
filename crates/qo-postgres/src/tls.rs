//! TLS to the server: what the URL says, in the words of libpq, and what rustls does about it.
//!
//! | `sslmode` | encrypted | the certificate's chain is checked | its name is checked |
//! |---|---|---|---|
//! | `disable` | never | | |
//! | `allow` | if the server refuses to go on without | as for `prefer` | no |
//! | `prefer` (default) | if the server can | if there is a root certificate | no |
//! | `require` | always | if there is a root certificate | no |
//! | `verify-ca` | always | always | no |
//! | `verify-full` | always | always | yes |
//!
//! Root certificates are those of `sslrootcert`: a file, by default `~/.postgresql/root.crt`, or `system`, those of the
//! machine, which demand `verify-full`. A client certificate and its key are the files `sslcert` and `sslkey`, by default
//! `~/.postgresql/postgresql.crt` and `.key`. Unlike libpq, a file that the URL names must be there, whatever the mode.
//!
//! The files are read again for every connection, so that certificates can be replaced while workers run.

use qo_core::{Error, Result};
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::client::verify_server_cert_signed_by_trust_anchor;
use rustls::crypto::{WebPkiSupportedAlgorithms, ring, verify_tls12_signature, verify_tls13_signature};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName, UnixTime};
use rustls::server::ParsedCertificate;
use rustls::version::{TLS12, TLS13};
use rustls::{ClientConfig, DigitallySignedStruct, RootCertStore, SignatureScheme, SupportedProtocolVersion};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// When a connection is encrypted, and what is checked.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Mode {
    Disable,
    Allow,
    Prefer,
    Require,
    VerifyCa,
    VerifyFull,
}

impl Mode {
    fn parse(text: &str) -> Result<Self> {
        Ok(match text {
            "disable" => Self::Disable,
            "allow" => Self::Allow,
            "prefer" => Self::Prefer,
            "require" => Self::Require,
            "verify-ca" => Self::VerifyCa,
            "verify-full" => Self::VerifyFull,
            _ => {
                let rule = "must be disable, allow, prefer, require, verify-ca or verify-full";
                return Err(Error::invalid("sslmode", text, rule));
            }
        })
    }
}

/// What a URL says about TLS.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct TlsSettings {
    mode: Option<Mode>,
    root: Option<PathBuf>,
    certificate: Option<PathBuf>,
    key: Option<PathBuf>,
    /// Whether the handshake leaves out the server's name.
    no_sni: bool,
    lowest: Option<Version>,
    highest: Option<Version>,
    /// Whether the handshake comes first, without a question whether the server can.
    direct: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Version {
    /// 1.0 and 1.1. No connection uses them; as a lower bound they mean 1.2.
    Old,
    Tls12,
    Tls13,
}

/// The value of `sslrootcert` that means the root certificates of the machine.
const SYSTEM: &str = "system";

impl TlsSettings {
    /// Takes a parameter of a URL. False if it does not concern TLS, or concerns the server's driver as well.
    pub fn take(&mut self, name: &str, value: &str) -> Result<bool> {
        match name {
            "sslmode" => self.mode = Some(Mode::parse(value)?),
            "sslrootcert" => self.root = path(value),
            "sslcert" => self.certificate = path(value),
            "sslkey" => self.key = path(value),
            "sslsni" => self.no_sni = !switch(name, value)?,
            "ssl_min_protocol_version" => self.lowest = version(name, value)?,
            "ssl_max_protocol_version" => self.highest = version(name, value)?,
            "sslnegotiation" => {
                self.direct = value == "direct";
                return Ok(false);
            }
            "sslcrl" | "sslcrldir" | "sslpassword" | "sslcompression" | "sslcertmode" | "requiressl" => {
                let rule = "is not supported; sslmode, sslrootcert, sslcert, sslkey, sslsni, sslnegotiation, \
                            ssl_min_protocol_version and ssl_max_protocol_version are";
                return Err(Error::invalid(name, "…", rule));
            }
            _ => return Ok(false),
        }
        Ok(true)
    }

    /// Checks what the parameters mean together.
    pub fn check(&self) -> Result<()> {
        if self.is_system() && self.mode() != Mode::VerifyFull {
            let rule = "must name a file with this sslmode; the root certificates of the machine, which vouch for any \
                        host, demand sslmode=verify-full";
            return Err(Error::invalid("sslrootcert", SYSTEM, rule));
        }
        if self.direct && self.mode() < Mode::Require {
            let rule = "needs sslmode=require, verify-ca or verify-full";
            return Err(Error::invalid("sslnegotiation", "direct", rule));
        }
        if self.versions().is_empty() {
            let rule = "must allow TLSv1.2 or TLSv1.3 together with ssl_min_protocol_version";
            return Err(Error::invalid("ssl_max_protocol_version", "…", rule));
        }
        Ok(())
    }

    pub fn mode(&self) -> Mode {
        let usual = if self.is_system() { Mode::VerifyFull } else { Mode::Prefer };
        self.mode.unwrap_or(usual)
    }

    fn is_system(&self) -> bool {
        self.root.as_deref() == Some(Path::new(SYSTEM))
    }

    fn versions(&self) -> Vec<&'static SupportedProtocolVersion> {
        let known = [(Version::Tls12, &TLS12), (Version::Tls13, &TLS13)];
        let allowed = |version| {
            self.lowest.is_none_or(|lowest| lowest <= version)
                && self.highest.is_none_or(|highest| version <= highest)
        };
        known.into_iter().filter(|(version, _)| allowed(*version)).map(|(_, known)| known).collect()
    }

    /// What rustls needs. Reads the files.
    pub fn load(&self) -> Result<ClientConfig> {
        let provider = Arc::new(ring::default_provider());
        let builder = ClientConfig::builder_with_provider(Arc::clone(&provider))
            .with_protocol_versions(&self.versions())
            .map_err(|error| Error::invalid("ssl_min_protocol_version", "…", error))?;
        let checked = match (self.roots()?, self.mode()) {
            (Some(roots), Mode::VerifyFull) => builder.with_root_certificates(roots),
            (roots, _) => {
                let verifier =
                    Arc::new(AnyName { roots, algorithms: provider.signature_verification_algorithms });
                builder.dangerous().with_custom_certificate_verifier(verifier)
            }
        };
        let mut config = match self.identity()? {
            Some((chain, key)) => {
                let file = self.certificate_file().unwrap_or_default();
                checked.with_client_auth_cert(chain, key).map_err(|error| bad("sslcert", &file, error))?
            }
            None => checked.with_no_client_auth(),
        };
        config.enable_sni = !self.no_sni;
        if self.direct {
            config.alpn_protocols = vec![b"postgresql".to_vec()];
        }
        Ok(config)
    }

    fn roots(&self) -> Result<Option<RootCertStore>> {
        if self.is_system() {
            return machine_roots().map(Some);
        }
        let named = self.root.is_some();
        let Some(file) = self.root.clone().or_else(|| by_default("root.crt")) else {
            return if self.mode() < Mode::VerifyCa { Ok(None) } else { Err(no_root(Path::new("~"))) };
        };
        if !named && !file.exists() {
            return if self.mode() < Mode::VerifyCa { Ok(None) } else { Err(no_root(&file)) };
        }
        let mut roots = RootCertStore::empty();
        for certificate in certificates("sslrootcert", &file)? {
            roots.add(certificate).map_err(|error| bad("sslrootcert", &file, error))?;
        }
        Ok(Some(roots))
    }

    fn certificate_file(&self) -> Option<PathBuf> {
        let usual = || by_default("postgresql.crt").filter(|file| file.exists());
        self.certificate.clone().or_else(usual)
    }

    fn identity(&self) -> Result<Option<(Vec<CertificateDer<'static>>, PrivateKeyDer<'static>)>> {
        let Some(file) = self.certificate_file() else { return Ok(None) };
        let chain = certificates("sslcert", &file)?;
        let file = self.key.clone().or_else(|| by_default("postgresql.key")).unwrap_or_default();
        check_private(&file)?;
        let key = PrivateKeyDer::from_pem_file(&file).map_err(|error| {
            bad("sslkey", &file, format_args!("must hold a private key in PEM, without a password: {error}"))
        })?;
        Ok(Some((chain, key)))
    }
}

fn path(value: &str) -> Option<PathBuf> {
    (!value.is_empty()).then(|| value.into())
}

fn switch(name: &str, value: &str) -> Result<bool> {
    match value {
        "1" => Ok(true),
        "0" => Ok(false),
        _ => Err(Error::invalid(name, value, "must be 0 or 1")),
    }
}

fn version(name: &str, value: &str) -> Result<Option<Version>> {
    Ok(Some(match value {
        "" => return Ok(None),
        "TLSv1" | "TLSv1.1" => Version::Old,
        "TLSv1.2" => Version::Tls12,
        "TLSv1.3" => Version::Tls13,
        _ => return Err(Error::invalid(name, value, "must be TLSv1.2 or TLSv1.3")),
    }))
}

/// A file of `~/.postgresql`.
fn by_default(name: &str) -> Option<PathBuf> {
    Some(std::env::home_dir()?.join(".postgresql").join(name))
}

fn bad(parameter: &str, file: &Path, why: impl std::fmt::Display) -> Error {
    Error::invalid(parameter, file.display(), why)
}

fn no_root(file: &Path) -> Error {
    let rule = "must be there to check the server's certificate: name the file of its certificate authority, or \
                sslrootcert=system for the root certificates of the machine, or another sslmode, which checks less";
    bad("sslrootcert", file, rule)
}

fn certificates(parameter: &str, file: &Path) -> Result<Vec<CertificateDer<'static>>> {
    let read =
        CertificateDer::pem_file_iter(file).and_then(Iterator::collect::<std::result::Result<Vec<_>, _>>);
    match read {
        Ok(read) if read.is_empty() => Err(bad(parameter, file, "must hold a certificate in PEM")),
        Ok(read) => Ok(read),
        Err(error) => Err(bad(parameter, file, format_args!("must hold certificates in PEM: {error}"))),
    }
}

/// As libpq: a key that other users may read is no secret.
fn check_private(file: &Path) -> Result<()> {
    let metadata = std::fs::metadata(file)
        .map_err(|error| bad("sslkey", file, format_args!("must hold the key of sslcert: {error}")))?;
    let allowed = if metadata.uid() == 0 { 0o640 } else { 0o600 };
    if metadata.mode() & 0o777 & !allowed != 0 {
        let rule = "must not be open to other users: chmod 600, or 640 if root owns it";
        return Err(bad("sslkey", file, rule));
    }
    Ok(())
}

fn machine_roots() -> Result<RootCertStore> {
    let mut roots = RootCertStore::empty();
    let found = rustls_native_certs::load_native_certs();
    roots.add_parsable_certificates(found.certs);
    if roots.is_empty() {
        let rule = "must find root certificates on this machine, and finds none: is the package ca-certificates there?";
        return Err(Error::invalid("sslrootcert", SYSTEM, rule));
    }
    Ok(roots)
}

/// Accepts a certificate for any host: one that the roots vouch for, or without roots any.
///
/// The signature of the handshake is always checked: the server has the key of the certificate that it shows.
#[derive(Debug)]
struct AnyName {
    roots: Option<RootCertStore>,
    algorithms: WebPkiSupportedAlgorithms,
}

impl ServerCertVerifier for AnyName {
    fn verify_server_cert(
        &self,
        certificate: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        _: &ServerName<'_>,
        _: &[u8],
        now: UnixTime,
    ) -> std::result::Result<ServerCertVerified, rustls::Error> {
        if let Some(roots) = &self.roots {
            let certificate = ParsedCertificate::try_from(certificate)?;
            let algorithms = self.algorithms.all;
            verify_server_cert_signed_by_trust_anchor(&certificate, roots, intermediates, now, algorithms)?;
        }
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> std::result::Result<HandshakeSignatureValid, rustls::Error> {
        verify_tls12_signature(message, certificate, signed, &self.algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> std::result::Result<HandshakeSignatureValid, rustls::Error> {
        verify_tls13_signature(message, certificate, signed, &self.algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.algorithms.supported_schemes()
    }
}
