//! Where servers are: `http://host:port[,host:port…]`.

use qo_core::{Error, Result};
use std::fmt;

/// The servers of one namespace. A client uses one at a time, and moves on when it fails.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Addresses(Vec<String>);

/// The port of an address that names none.
const PORT: u16 = 7_700;
/// Most addresses of one URL.
const MOST: usize = 100;

impl Addresses {
    /// Reads a URL. Each address may repeat the scheme. An address without a port means port 7700.
    pub fn parse(url: &str) -> Result<Self> {
        let refused = |rule: &str| Err(Error::invalid("store", url, rule));
        let Some(rest) = url.strip_prefix("http://") else {
            return match url.starts_with("https://") {
                true => refused("this release has no TLS: use http:// to a server on this machine"),
                false => refused("must be http://host:port[,host:port…]"),
            };
        };
        let mut servers = Vec::new();
        for part in rest.trim_end_matches('/').split(',') {
            let part = part.strip_prefix("http://").unwrap_or(part);
            if part.contains('@') {
                return refused("must not hold a user or a password");
            }
            if part.is_empty() || part.contains(['/', '?', '#']) || part.contains(char::is_whitespace) {
                return refused("must be http://host:port[,host:port…], without a path");
            }
            servers.push(match with_port(part) {
                Some(server) => server,
                None => return refused("must name a port of 1 to 65535 after the last colon"),
            });
        }
        match servers.len() {
            1..=MOST => Ok(Self(servers)),
            _ => refused("must name at most 100 servers"),
        }
    }

    /// Each server, as `host:port`.
    pub fn servers(&self) -> &[String] {
        &self.0
    }
}

impl fmt::Display for Addresses {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "http://{}", self.0.join(","))
    }
}

/// The address with its port. `[::1]` is an address without one.
fn with_port(part: &str) -> Option<String> {
    let (host, port) = match part.rsplit_once(':') {
        Some((host, port)) if !port.ends_with(']') => (host, port.parse().ok().filter(|port| *port > 0)?),
        Some(_) | None => (part, PORT),
    };
    let is_literal = host.starts_with('[') && host.ends_with(']');
    let is_host = !host.is_empty() && (is_literal || !host.contains([':', '[', ']']));
    is_host.then(|| format!("{host}:{port}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_url_names_one_server_or_several() {
        for (url, servers) in [
            ("http://localhost:7700", vec!["localhost:7700"]),
            ("http://localhost/", vec!["localhost:7700"]),
            ("http://a:1,b:2", vec!["a:1", "b:2"]),
            ("http://a:1,http://b", vec!["a:1", "b:7700"]),
            ("http://[::1]:9,[::1]", vec!["[::1]:9", "[::1]:7700"]),
        ] {
            let read = Addresses::parse(url).map(|addresses| addresses.servers().to_vec());
            assert_eq!(read, Ok(servers.iter().map(|server| (*server).to_owned()).collect()), "{url}");
        }
    }

    #[test]
    fn a_url_that_is_not_one_says_what_is_wrong() {
        for (url, said) in [
            ("https://a:1", "this release has no TLS"),
            ("http://", "without a path"),
            ("http://a:1,", "without a path"),
            ("http://a:1/qo", "without a path"),
            ("http://a:0", "must name a port"),
            ("http://a:b", "must name a port"),
            ("http://::1", "must name a port"),
            ("http://user:word@a", "must not hold a user"),
            ("http:a", "must be http://host:port"),
        ] {
            let refused = Addresses::parse(url).expect_err(url).to_string();
            assert!(refused.contains(said), "{url}: {refused}");
        }
    }
}
