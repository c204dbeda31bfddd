//! What a server may use, and what it waits for.

use crate::peer::Cidr;
use crate::tls::TlsFiles;
use std::time::Duration;

/// How a server works.
#[derive(Debug, Clone)]
pub struct Options {
    /// Most connections at once. More of them wait until another one ends. Defaults to 4,000.
    pub connections: usize,
    /// Most calls and streams at once on one connection. Defaults to 1,000.
    pub calls_per_connection: u32,
    /// How many requests a second one caller may make, a token or an address without one, and twice as many at once.
    /// Defaults to 50,000: a whole fleet may share a token.
    pub calls_per_second: u32,
    /// How many wrong tokens a second one address may show, and ten times as many at once. Defaults to 5.
    pub wrong_tokens_per_second: u32,
    /// How long calls that run may go on once the server was told to stop. Defaults to 10 s.
    pub drain: Duration,
    /// How often it ends what is over and fires schedules, where a look costs nothing. Defaults to 1 s.
    pub sweep_every: Duration,
    /// The certificate and key. Defaults to none: nothing is encrypted.
    pub tls: Option<TlsFiles>,
    /// Listen beyond loopback also without TLS, and let callers in without a token while the store has none. Defaults
    /// to no.
    pub insecure: bool,
    /// No caller may do more than look. Defaults to no.
    pub read_only: bool,
    /// Names besides localhost that requests may be for. Defaults to none.
    pub allow_hosts: Vec<String>,
    /// Proxies whose `X-Forwarded-For` and `X-Forwarded-Proto` are believed. Defaults to none.
    pub trusted_proxies: Vec<Cidr>,
    /// How old what the store says may be when `/metrics` shows it. Defaults to 5 s.
    pub sample_every: Duration,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            connections: 4_000,
            calls_per_connection: 1_000,
            calls_per_second: 50_000,
            wrong_tokens_per_second: 5,
            drain: Duration::from_secs(10),
            sweep_every: Duration::from_secs(1),
            tls: None,
            insecure: false,
            read_only: false,
            allow_hosts: Vec::new(),
            trusted_proxies: Vec::new(),
            sample_every: Duration::from_secs(5),
        }
    }
}
