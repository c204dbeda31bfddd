//! Which addresses a server may listen on.

use crate::Options;
use qo_core::{Error, ErrorKind, Result, Store};
use std::io;
use std::net::SocketAddr;
use tokio::net::{TcpListener, TcpSocket, lookup_host};

/// Connections that wait to be taken. A whole fleet connects at once after a server has ended, and the kernel refuses
/// what the line does not hold. It cuts this to its own most (`net.core.somaxconn`).
const BACKLOG: u32 = 4_096;

/// Listens on `HOST:PORT` of this machine alone; port 0 takes a free one.
///
/// `Invalid` for another address, `Unavailable` if the port is taken.
pub async fn bind(address: &str) -> Result<TcpListener> {
    bind_with(address, &Options::default()).await
}

/// Listens on `HOST:PORT`; port 0 takes a free one.
///
/// Beyond loopback it needs TLS, or the word that it may go without: `Invalid` else. `Unavailable` if the port is taken.
pub async fn bind_with(address: &str, options: &Options) -> Result<TcpListener> {
    let invalid = |rule: &str| Error::invalid("listen", address, rule);
    let all: Vec<SocketAddr> = lookup_host(address)
        .await
        .map_err(|error| invalid(&format!("must be HOST:PORT, as in 127.0.0.1:7700: {error}")))?
        .collect();
    let is_open = all.iter().any(|address| !address.ip().is_loopback());
    if is_open && options.tls.is_none() && !options.insecure {
        let rule = "must be an address of this machine alone, such as 127.0.0.1:7700, unless calls are encrypted: add \
                    --tls-cert FILE --tls-key FILE, or --insecure where a proxy or a private network does that";
        return Err(invalid(rule));
    }
    let first = all.first().ok_or_else(|| invalid("must be HOST:PORT, as in 127.0.0.1:7700"))?;
    open(*first).map_err(|error| Error::new(ErrorKind::Unavailable, format!("listen on {first}: {error}")))
}

/// An error if callers on other machines could use the store without a token.
pub(crate) async fn need_tokens(address: SocketAddr, store: &dyn Store, options: &Options) -> Result<()> {
    if address.ip().is_loopback() || options.insecure || !store.tokens().await?.is_empty() {
        return Ok(());
    }
    let rule = "must be an address of this machine alone, such as 127.0.0.1:7700, while the store has no token: make one \
                with qo token create ops --scope admin, or say --insecure to let every caller in";
    Err(Error::invalid("listen", address, rule))
}

fn open(address: SocketAddr) -> io::Result<TcpListener> {
    let socket = if address.is_ipv4() { TcpSocket::new_v4() } else { TcpSocket::new_v6() }?;
    // A server that starts again takes its port at once.
    socket.set_reuseaddr(true)?;
    socket.bind(address)?;
    socket.listen(BACKLOG)
}
