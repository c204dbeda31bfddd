//! Which names a server answers to, and which pages may change something.

use crate::peer::Peer;
use axum::extract::Request;
use axum::http::{HeaderMap, Method, header, uri::Authority};
use std::net::IpAddr;

/// The names that requests may be for.
///
/// A page of another site can give its own name the address of this server, and then speak to it from a browser inside
/// the network. The browser still sends that name.
#[derive(Debug)]
pub(crate) struct Names {
    allowed: Vec<String>,
}

impl Names {
    pub fn new(allowed: impl IntoIterator<Item = String>) -> Self {
        let allowed = allowed.into_iter().map(|name| bare(&name).to_ascii_lowercase());
        Self { allowed: allowed.collect() }
    }

    /// Whether the server answers to `HOST` or `HOST:PORT`: a loopback name, an allowed one, or the very address that
    /// the connection was made to.
    pub fn has(&self, host: &str, peer: Peer) -> bool {
        let name = bare(host);
        if let Ok(address) = name.parse::<IpAddr>() {
            let own = peer.local.ip().to_canonical();
            return address.is_loopback() && own.is_loopback()
                || !own.is_loopback() && address.to_canonical() == own
                || self.allowed.iter().any(|allowed| allowed == name);
        }
        let is_local = name.eq_ignore_ascii_case("localhost");
        is_local || self.allowed.iter().any(|allowed| name.eq_ignore_ascii_case(allowed))
    }
}

/// A host without its port, and without the brackets of IPv6.
fn bare(host: &str) -> &str {
    let name = match host.rsplit_once(':') {
        Some((name, port)) if port.bytes().all(|byte| byte.is_ascii_digit()) && !is_bare_v6(host) => name,
        Some(_) | None => host,
    };
    name.strip_prefix('[').and_then(|name| name.strip_suffix(']')).unwrap_or(name)
}

/// `::1` without brackets: its last part is no port.
fn is_bare_v6(host: &str) -> bool {
    !host.starts_with('[') && host.matches(':').count() > 1
}

/// The host that a request is for. HTTP/2 has it in the address of the request.
pub(crate) fn host(request: &Request) -> Option<&str> {
    let said = request.headers().get(header::HOST).and_then(|host| host.to_str().ok());
    said.or_else(|| request.uri().authority().map(Authority::as_str))
}

/// Whether a request changes something.
fn changes(method: &Method) -> bool {
    !matches!(*method, Method::GET | Method::HEAD | Method::OPTIONS)
}

/// Whether a request that changes something comes from a page of another site. Programs that are no browsers send
/// neither of the two headers.
pub(crate) fn is_foreign(request: &Request, host: &str, is_https: bool) -> bool {
    if !changes(request.method()) {
        return false;
    }
    let headers = request.headers();
    let site = headers.get_all("sec-fetch-site").iter();
    let is_cross = site.into_iter().any(|site| !matches!(site.as_bytes(), b"same-origin" | b"none"));
    is_cross
        || headers
            .get_all(header::ORIGIN)
            .iter()
            .any(|origin| !origin.to_str().is_ok_and(|origin| is_same(origin, host, is_https)))
}

/// Whether an origin is that of this server. A proxy may have taken HTTPS off the request.
fn is_same(origin: &str, host: &str, is_https: bool) -> bool {
    let own = |scheme: &str, port: &str| {
        let rest = origin.strip_prefix(scheme)?;
        let plain = |name: &str| name.strip_suffix(port).unwrap_or(name).to_ascii_lowercase();
        Some(plain(rest) == plain(host))
    };
    let by_http = !is_https && own("http://", ":80") == Some(true);
    by_http || own("https://", ":443") == Some(true)
}

/// Whether a request says that its body is packed. No handler unpacks one, so none can grow.
pub(crate) fn is_packed(headers: &HeaderMap) -> bool {
    let codings = headers.get_all(header::CONTENT_ENCODING).iter();
    codings.into_iter().any(|coding| !coding.as_bytes().eq_ignore_ascii_case(b"identity"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn peer(local: &str) -> Peer {
        Peer { remote: "127.0.0.1:1".parse().expect("an address"), local: local.parse().expect("an address") }
    }

    #[test]
    fn only_names_of_this_machine_are_answered() {
        let names = Names::new([]);
        let here = peer("127.0.0.1:7700");
        for host in ["localhost", "LocalHost:7700", "127.0.0.1:80", "127.9.9.9", "[::1]:7700", "[::1]", "::1"]
        {
            assert!(names.has(host, here), "{host}");
        }
        for host in
            ["", "evil.example", "localhost.evil.example:7700", "10.0.0.1", "0.0.0.0:1", "[fe80::1]", ":1"]
        {
            assert!(!names.has(host, here), "{host}");
        }
    }

    #[test]
    fn names_that_were_allowed_and_the_own_address_are_answered() {
        let names = Names::new(["qo.example".to_owned(), "Other:7700".to_owned()]);
        let there = peer("192.0.2.7:7700");
        for host in ["qo.example", "QO.example:443", "other", "192.0.2.7:7700", "localhost"] {
            assert!(names.has(host, there), "{host}");
        }
        for host in ["qo.example.evil", "192.0.2.8", "127.0.0.1"] {
            assert!(!names.has(host, there), "{host}");
        }
    }

    #[test]
    fn a_page_changes_something_only_from_its_own_site() {
        let request = |method: &str, header: &str, value: &str| {
            let built = axum::http::Request::builder().method(method).uri("/x").header(header, value);
            built.body(axum::body::Body::empty()).expect("a request")
        };
        let foreign =
            |method, header, value, https| is_foreign(&request(method, header, value), "qo:7700", https);
        for (header, value) in
            [("origin", "http://qo:7700"), ("origin", "https://QO:7700"), ("sec-fetch-site", "none")]
        {
            assert!(!foreign("POST", header, value, false), "{value}");
        }
        for (header, value) in [
            ("origin", "null"),
            ("origin", "http://evil"),
            ("origin", "http://qo"),
            ("origin", "http://qo:7700.evil"),
            ("sec-fetch-site", "cross-site"),
            ("sec-fetch-site", "same-site"),
        ] {
            assert!(foreign("POST", header, value, false), "{value}");
            assert!(!foreign("GET", header, value, false), "{value}: it changes nothing");
        }
        assert!(foreign("DELETE", "origin", "http://qo:7700", true), "a page of the plain site beside it");
    }
}
