//! Plain HTTP on the same port, and where a server may listen.

use crate::stage::{Served, block_on};
use qo_core::{ErrorKind, MemoryStore};
use qo_server::bind;
use std::net::SocketAddr;
use std::sync::Arc;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

/// The status line and the body of an answer.
async fn get(server: SocketAddr, path: &str, host: &str) -> (String, String) {
    let mut stream = TcpStream::connect(server).await.expect("it listens");
    let request = format!("GET {path} HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n\r\n");
    stream.write_all(request.as_bytes()).await.expect("it is sent");
    let mut answer = String::new();
    stream.read_to_string(&mut answer).await.expect("a text");
    let (head, body) = answer.split_once("\r\n\r\n").expect("a head and a body");
    (head.lines().next().unwrap_or_default().to_owned(), body.to_owned())
}

#[test]
fn a_server_says_whether_it_lives_and_is_ready() {
    block_on(async {
        let served = Served::start(Arc::new(MemoryStore::new())).await;
        for path in ["/healthz", "/readyz"] {
            let (status, body) = get(served.address, path, "localhost").await;
            assert_eq!((status.as_str(), body.as_str()), ("HTTP/1.1 200 OK", "ok\n"), "{path}");
        }
        let (status, _) = get(served.address, "/nothing", "localhost").await;
        assert_eq!(status, "HTTP/1.1 404 Not Found");
    });
}

#[test]
fn a_page_of_another_site_gets_no_answer() {
    block_on(async {
        let served = Served::start(Arc::new(MemoryStore::new())).await;
        for host in ["evil.example", "evil.example:7700", "10.0.0.1"] {
            let (status, body) = get(served.address, "/healthz", host).await;
            assert!(
                status.starts_with("HTTP/1.1 421") && body.contains("--allow-host"),
                "{host}: {status} {body}"
            );
        }
    });
}

#[test]
fn a_server_listens_on_this_machine_alone() {
    block_on(async {
        for address in ["0.0.0.0:0", "[::]:0", "192.0.2.1:7700"] {
            let refused = bind(address).await.expect_err(address);
            assert_eq!(refused.kind(), ErrorKind::Invalid);
            assert!(refused.message().contains("--tls-cert"), "{refused}");
        }
        assert_eq!(bind("nonsense").await.map_err(|error| error.kind()).err(), Some(ErrorKind::Invalid));
        let taken = bind("127.0.0.1:0").await.expect("a port");
        let address = taken.local_addr().expect("an address").to_string();
        assert_eq!(bind(&address).await.map_err(|error| error.kind()).err(), Some(ErrorKind::Unavailable));
    });
}
