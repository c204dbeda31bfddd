//! Which addresses a server may listen on.

use qo_core::{Error, ErrorKind, Result};
use std::io;
use std::net::SocketAddr;
use tokio::net::{TcpListener, TcpSocket, lookup_host};

/// Connections that wait to be taken. A whole fleet connects at once after a server has ended, and the kernel refuses
/// what the line does not hold. It cuts this to its own most (`net.core.somaxconn`).
const BACKLOG: u32 = 4_096;

/// Listens on `HOST:PORT`; port 0 takes a free one.
///
/// Only loopback: this release checks no caller, and encrypts nothing. `Invalid` for another address,
/// `Unavailable` if the port is taken.
pub async fn bind(address: &str) -> Result<TcpListener> {
    let invalid = |rule: &str| Error::invalid("listen", address, rule);
    let all: Vec<SocketAddr> = lookup_host(address)
        .await
        .map_err(|error| invalid(&format!("must be HOST:PORT, as in 127.0.0.1:7700: {error}")))?
        .collect();
    if all.iter().any(|address| !address.ip().is_loopback()) {
        let rule = "must be an address of this machine alone, such as 127.0.0.1:7700: this release has neither tokens \
                    nor TLS, so every process that reaches the server could use the store";
        return Err(invalid(rule));
    }
    let first = all.first().ok_or_else(|| invalid("must be HOST:PORT, as in 127.0.0.1:7700"))?;
    open(*first).map_err(|error| Error::new(ErrorKind::Unavailable, format!("listen on {first}: {error}")))
}

fn open(address: SocketAddr) -> io::Result<TcpListener> {
    let socket = if address.is_ipv4() { TcpSocket::new_v4() } else { TcpSocket::new_v6() }?;
    // A server that starts again takes its port at once.
    socket.set_reuseaddr(true)?;
    socket.bind(address)?;
    socket.listen(BACKLOG)
}
