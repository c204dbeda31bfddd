//! Where servers are: `http://host:port[,host:port…]`, or `https://…`.

use qo_core::{Error, Result};
use std::fmt;
use std::net::IpAddr;

/// The servers of one namespace. A client uses one at a time, and moves on when it fails.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Addresses {
    servers: Vec<String>,
    is_https: bool,
}

/// The port of an address that names none.
const PORT: u16 = 7_700;
/// Most addresses of one URL.
const MOST: usize = 100;

impl Addresses {
    /// Reads a URL. Each address may repeat the scheme. An address without a port means port 7700.
    pub fn parse(url: &str) -> Result<Self> {
        let refused = |rule: &str| Err(Error::invalid("store", url, rule));
        let scheme = ["http://", "https://"].into_iter().find(|scheme| url.starts_with(scheme));
        let Some(scheme) = scheme else {
            return refused("must be http://host:port[,host:port…], or https://…");
        };
        let mut servers = Vec::new();
        for part in url[scheme.len()..].trim_end_matches('/').split(',') {
            let part = part.strip_prefix(scheme).unwrap_or(part);
            if part.contains("://") {
                return refused("must name either http:// or https:// for all of its servers");
            }
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
            1..=MOST => Ok(Self { servers, is_https: scheme == "https://" }),
            _ => refused("must name at most 100 servers"),
        }
    }

    /// Each server, as `host:port`.
    pub fn servers(&self) -> &[String] {
        &self.servers
    }

    /// Whether connections are encrypted.
    pub fn is_https(&self) -> bool {
        self.is_https
    }

    /// The first server that is not on this machine, as far as its name says.
    pub(crate) fn elsewhere(&self) -> Option<&str> {
        let is_here = |server: &str| {
            let host = server.rsplit_once(':').map_or(server, |(host, _)| host);
            let literal = host.trim_start_matches('[').trim_end_matches(']').parse::<IpAddr>();
            host.eq_ignore_ascii_case("localhost") || literal.is_ok_and(|address| address.is_loopback())
        };
        self.servers.iter().map(String::as_str).find(|server| !is_here(server))
    }
}

impl fmt::Display for Addresses {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}{}", if self.is_https { "https://" } else { "http://" }, self.servers.join(","))
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
    fn an_encrypted_url_names_servers_as_a_plain_one_does() {
        let read = Addresses::parse("https://a:1,https://b").expect("a url");
        assert_eq!((read.servers(), read.is_https()), (&["a:1".to_owned(), "b:7700".to_owned()][..], true));
        assert_eq!(read.to_string(), "https://a:1,b:7700");
    }

    #[test]
    fn a_server_on_another_machine_is_known_by_its_name() {
        for (url, elsewhere) in [
            ("http://localhost,127.0.0.1:1,[::1]:9", None),
            ("http://localhost,db:1", Some("db:1")),
            ("http://10.0.0.1", Some("10.0.0.1:7700")),
            ("http://localhost.evil", Some("localhost.evil:7700")),
        ] {
            assert_eq!(Addresses::parse(url).expect("a url").elsewhere(), elsewhere, "{url}");
        }
    }

    #[test]
    fn a_url_that_is_not_one_says_what_is_wrong() {
        for (url, said) in [
            ("http://a:1,https://b:1", "for all of its servers"),
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
