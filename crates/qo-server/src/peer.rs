//! Which machine a request comes from.

use axum::http::HeaderMap;
use qo_core::{Error, Result};
use std::fmt;
use std::net::{IpAddr, SocketAddr};
use std::str::FromStr;

/// The two ends of a connection.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Peer {
    /// The caller's end, or that of a proxy.
    pub remote: SocketAddr,
    /// This server's end.
    pub local: SocketAddr,
}

/// A range of addresses: `10.0.0.0/8`, or one address.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Cidr {
    address: IpAddr,
    bits: u8,
}

impl Cidr {
    /// Whether an address lies in it.
    pub fn contains(&self, address: IpAddr) -> bool {
        let same = |own: &[u8], other: &[u8]| {
            let (whole, rest) = (usize::from(self.bits / 8), self.bits % 8);
            let mask = !(0xff_u8.checked_shr(rest.into()).unwrap_or(0));
            own[..whole] == other[..whole] && (rest == 0 || own[whole] & mask == other[whole] & mask)
        };
        match (self.address, address.to_canonical()) {
            (IpAddr::V4(own), IpAddr::V4(other)) => same(&own.octets(), &other.octets()),
            (IpAddr::V6(own), IpAddr::V6(other)) => same(&own.octets(), &other.octets()),
            (IpAddr::V4(_), IpAddr::V6(_)) | (IpAddr::V6(_), IpAddr::V4(_)) => false,
        }
    }
}

impl FromStr for Cidr {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self> {
        let refused = || Error::invalid("cidr", text, "must be an address or a range, as in 10.0.0.0/8");
        let (address, bits) =
            text.split_once('/').map_or((text, None), |(address, bits)| (address, Some(bits)));
        let address: IpAddr = address.parse().map_err(|_| refused())?;
        let most = if address.is_ipv4() { 32 } else { 128 };
        let bits = bits.map_or(Some(most), |bits| bits.parse().ok().filter(|bits| *bits <= most));
        Ok(Self { address, bits: bits.ok_or_else(refused)? })
    }
}

impl fmt::Display for Cidr {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.address, self.bits)
    }
}

/// The caller's address. What `X-Forwarded-For` says counts only behind a proxy that is trusted: then it is the last
/// address that is no trusted proxy, because everything before that was written by the caller.
pub(crate) fn caller(peer: Peer, headers: &HeaderMap, proxies: &[Cidr]) -> IpAddr {
    let is_proxy = |address: IpAddr| proxies.iter().any(|cidr| cidr.contains(address));
    let mut caller = peer.remote.ip().to_canonical();
    let said = headers.get_all("x-forwarded-for").iter().filter_map(|value| value.to_str().ok());
    let said: Vec<&str> = said.flat_map(|value| value.split(',')).map(str::trim).collect();
    for address in said.iter().rev() {
        if !is_proxy(caller) {
            break;
        }
        match address.parse::<IpAddr>() {
            Ok(address) => caller = address.to_canonical(),
            // The proxy's own address stands for what cannot be read.
            Err(_) => break,
        }
    }
    caller
}

/// Whether a trusted proxy says that the caller came to it by HTTPS.
pub(crate) fn came_by_https(peer: Peer, headers: &HeaderMap, proxies: &[Cidr]) -> bool {
    proxies.iter().any(|cidr| cidr.contains(peer.remote.ip()))
        && headers.get("x-forwarded-proto").is_some_and(|scheme| scheme.as_bytes() == b"https")
}

#[cfg(test)]
mod tests {
    use super::*;
    use axum::http::HeaderValue;

    fn cidr(text: &str) -> Cidr {
        text.parse().expect("a range")
    }

    #[test]
    fn a_range_holds_the_addresses_of_its_prefix() {
        for (range, inside, outside) in [
            ("10.0.0.0/8", "10.255.1.2", "11.0.0.0"),
            ("192.0.2.128/25", "192.0.2.200", "192.0.2.127"),
            ("127.0.0.1", "::ffff:127.0.0.1", "127.0.0.2"),
            ("fd00::/8", "fdff::1", "fe00::1"),
            ("0.0.0.0/0", "8.8.8.8", "::1"),
        ] {
            let is_in = |address: &str| cidr(range).contains(address.parse().expect("an address"));
            assert!(is_in(inside) && !is_in(outside), "{range}");
        }
        for bad in ["", "10.0.0.0/33", "fd00::/129", "host", "10.0.0.0/", "10.0.0.0/8/8"] {
            assert!(bad.parse::<Cidr>().is_err(), "{bad}");
        }
    }

    #[test]
    fn a_trusted_proxy_alone_says_where_a_caller_is() {
        let remote = |address: &str| Peer {
            remote: format!("{address}:1").parse().expect("an address"),
            local: "127.0.0.1:1".parse().expect("an address"),
        };
        let proxies = [cidr("10.0.0.0/8")];
        for (from, said, caller_is) in [
            ("192.0.2.1", "127.0.0.1", "192.0.2.1"),
            ("10.0.0.1", "192.0.2.9", "192.0.2.9"),
            ("10.0.0.1", "127.0.0.1, 192.0.2.9, 10.0.0.2", "192.0.2.9"),
            ("10.0.0.1", "nonsense", "10.0.0.1"),
            ("10.0.0.1", "", "10.0.0.1"),
        ] {
            let mut headers = HeaderMap::new();
            headers.insert("x-forwarded-for", HeaderValue::from_str(said).expect("a header"));
            let found = caller(remote(from), &headers, &proxies);
            assert_eq!(found, caller_is.parse::<IpAddr>().expect("an address"), "{from} {said}");
        }
    }
}
