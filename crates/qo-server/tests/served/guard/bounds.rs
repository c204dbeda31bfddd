//! Callers that send too much, too slowly, or too often: the server stays up, and its memory bounded.

use super::client::{ask, read};
use crate::stage::{PATIENCE, Served, block_on, remote};
use qo_core::{MemoryStore, Store};
use qo_server::Options;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::time::timeout;

async fn server() -> Served {
    Served::start(Arc::new(MemoryStore::new())).await
}

async fn is_well(server: SocketAddr) {
    let answer = ask(server, "GET", "/readyz", &[], "").await;
    assert_eq!((answer.status, answer.body.as_str()), (200, "ok\n"));
}

/// Memory of this process that is in RAM, in bytes.
fn resident() -> usize {
    let status = std::fs::read_to_string("/proc/self/status").expect("Linux");
    let line = status.lines().find(|line| line.starts_with("VmRSS:")).expect("a line");
    line.split_whitespace().nth(1).and_then(|kilobytes| kilobytes.parse::<usize>().ok()).expect("a number")
        << 10
}

#[test]
fn connections_that_say_little_are_closed() {
    block_on(async {
        let served = server().await;
        let beginnings: [&[u8]; 6] = [
            b"",
            b"P",
            b"PRI * HTTP/2.0\r\n\r\n",
            b"GET / HTTP/1.1\r\n",
            b"GET / HTTP/1.1\r\nHost: localhost\r\nX-Slow: ",
            b"\x16\x03\x01",
        ];
        let began = Instant::now();
        let closed = beginnings.map(|beginning| {
            tokio::spawn(async move {
                let mut stream = TcpStream::connect(served.address).await.expect("it listens");
                stream.write_all(beginning).await.expect("it is sent");
                let mut answer = Vec::new();
                let ended = timeout(PATIENCE, stream.read_to_end(&mut answer)).await;
                assert!(ended.is_ok(), "{:?} stays open", String::from_utf8_lossy(beginning));
            })
        });
        for closed in closed {
            closed.await.expect("it is closed");
        }
        assert!(began.elapsed() < Duration::from_secs(20), "{:?}", began.elapsed());
        is_well(served.address).await;
    });
}

#[test]
fn a_connection_that_waits_for_its_next_request_is_closed() {
    block_on(async {
        let served = server().await;
        let mut stream = TcpStream::connect(served.address).await.expect("it listens");
        stream.write_all(b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n").await.expect("it is sent");
        assert_eq!(read(&mut stream).await.status, 200);
        let mut rest = Vec::new();
        timeout(PATIENCE, stream.read_to_end(&mut rest)).await.expect("it is closed").ok();
        is_well(served.address).await;
    });
}

#[test]
fn bodies_that_are_too_large_or_packed_are_refused() {
    block_on(async {
        let served = server().await;
        let large = "x".repeat((64 << 10) + 1);
        let form = ("Content-Type", "application/x-www-form-urlencoded");
        for (headers, body, due) in [
            (vec![form], large.as_str(), 413),
            (vec![form, ("Content-Encoding", "gzip")], "packed", 415),
            (vec![form, ("Content-Encoding", "zstd, br")], "packed", 415),
            (vec![form, ("Content-Encoding", "identity")], "token=x", 401),
        ] {
            let answer = ask(served.address, "POST", "/login", &headers, body).await;
            assert_eq!(answer.status, due, "{headers:?}: {answer:?}");
        }
        // A body that does not say how long it is.
        let mut stream = TcpStream::connect(served.address).await.expect("it listens");
        let head = "POST /login HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\nContent-Type: \
                    application/x-www-form-urlencoded\r\n\r\n";
        stream.write_all(head.as_bytes()).await.expect("it is sent");
        for _ in 0..64 {
            let part = "x".repeat(16 << 10);
            if stream.write_all(format!("{:x}\r\n{part}\r\n", part.len()).as_bytes()).await.is_err() {
                break;
            }
        }
        stream.write_all(b"0\r\n\r\n").await.ok();
        let answer = timeout(PATIENCE, read(&mut stream)).await.expect("an answer");
        // It may have closed the connection before the whole answer was read.
        assert!(matches!(answer.status, 0 | 413), "{answer:?}");
        is_well(served.address).await;
    });
}

#[test]
fn a_packed_message_of_grpc_is_refused_before_it_is_unpacked() {
    block_on(async {
        let served = server().await;
        let channel = tonic::transport::Endpoint::from_shared(format!("http://{}", served.address));
        let channel = channel.expect("a url").connect().await.expect("it listens");
        let mut client = qo_wire::pb::queue_client::QueueClient::new(channel);
        let mut request = tonic::Request::new(qo_wire::pb::NowRequest {});
        request.metadata_mut().insert("grpc-encoding", "gzip".parse().expect("a header"));
        let refused = client.now(request).await.expect_err("refused");
        assert_eq!(refused.code(), tonic::Code::Unimplemented);
    });
}

#[test]
fn headers_that_are_too_many_or_too_long_are_refused() {
    block_on(async {
        let served = server().await;
        let long = "x".repeat(64 << 10);
        let names: Vec<String> = (0..200).map(|n| format!("X-{n}")).collect();
        let many: Vec<(&str, &str)> = names.iter().map(|name| (name.as_str(), "1")).collect();
        for headers in [vec![("X-Long", long.as_str())], many] {
            let answer = ask(served.address, "GET", "/healthz", &headers, "").await;
            assert!(matches!(answer.status, 0 | 431), "{answer:?}");
        }
        is_well(served.address).await;
    });
}

#[test]
fn a_caller_that_asks_too_often_is_told_to_come_back_later() {
    block_on(async {
        let options = Options { calls_per_second: 5, sweep_every: PATIENCE * 1_000, ..Options::default() };
        let served = Served::start_with(Arc::new(MemoryStore::new()), options).await;
        let mut refused = None;
        for _ in 0..30 {
            let answer = ask(served.address, "GET", "/healthz", &[], "").await;
            if answer.status != 200 {
                refused = Some(answer);
                break;
            }
        }
        let refused = refused.expect("thirty at once are more than ten");
        assert_eq!(refused.status, 429);
        assert!(
            refused.header("retry-after").is_some() && refused.body.contains("too many requests"),
            "{refused:?}"
        );
    });
}

#[test]
fn two_thousand_connections_at_once_are_borne() {
    // Each connection has two ends in this process.
    let files = std::fs::read_to_string("/proc/self/limits").expect("Linux");
    let line = files.lines().find(|line| line.starts_with("Max open files")).expect("a line");
    let allowed =
        line.split_whitespace().nth(3).and_then(|soft| soft.parse::<usize>().ok()).unwrap_or(usize::MAX);
    let most = 2_000.min(allowed.saturating_sub(400) / 2);
    assert!(most >= 100, "this process may open only {allowed} files");
    block_on(async {
        let served = server().await;
        let store = remote(&[served.address]).await;
        let before = resident();
        let mut open = Vec::new();
        for _ in 0..most {
            let mut stream = TcpStream::connect(served.address).await.expect("it listens");
            stream.write_all(b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n").await.expect("it is sent");
            open.push(stream);
        }
        for stream in &mut open {
            assert_eq!(timeout(PATIENCE, read(stream)).await.expect("an answer").status, 200);
        }
        store.now().await.expect("calls are answered meanwhile");
        let grown = resident().saturating_sub(before);
        assert!(grown < 256 << 20, "{most} connections take {grown} bytes");
        drop(open);
        is_well(served.address).await;
    });
}

#[test]
fn connections_beyond_the_most_wait_for_a_place() {
    block_on(async {
        let options = Options { connections: 2, sweep_every: PATIENCE * 1_000, ..Options::default() };
        let served = Served::start_with(Arc::new(MemoryStore::new()), options).await;
        let mut held = Vec::new();
        for _ in 0..2 {
            let mut stream = TcpStream::connect(served.address).await.expect("it listens");
            stream.write_all(b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n").await.expect("it is sent");
            assert_eq!(read(&mut stream).await.status, 200);
            held.push(stream);
        }
        let mut third = TcpStream::connect(served.address).await.expect("the kernel takes it");
        third.write_all(b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n").await.expect("it is sent");
        assert!(timeout(Duration::from_millis(200), third.readable()).await.is_err(), "there is no place");
        held.clear();
        assert_eq!(timeout(PATIENCE, read(&mut third)).await.expect("an answer").status, 200);
    });
}
