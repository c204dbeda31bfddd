//! Callers of a server that say exactly what a test wants them to say.

use crate::stage::{PATIENCE, Served};
use qo_core::Bearer;
use qo_wire::{Addresses, Options, RemoteStore};
use std::net::SocketAddr;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::time::timeout;

/// The store behind a server, for the bearer of a token.
pub async fn remote_as(served: &Served, bearer: &Bearer) -> RemoteStore {
    connect(served, Some(bearer)).await.expect("let in")
}

/// A connection to a server.
pub async fn connect(served: &Served, bearer: Option<&Bearer>) -> qo_core::Result<RemoteStore> {
    let addresses = Addresses::parse(&format!("http://{}", served.address)).expect("a url");
    RemoteStore::connect(&addresses, Options { token: bearer.cloned(), ..Options::default() }).await
}

/// An answer of HTTP.
#[derive(Debug)]
pub struct Answer {
    pub status: u16,
    pub head: String,
    pub body: String,
}

impl Answer {
    /// The value of a header.
    pub fn header(&self, name: &str) -> Option<&str> {
        let mut lines = self.head.lines().skip(1).filter_map(|line| line.split_once(": "));
        lines.find(|(key, _)| key.eq_ignore_ascii_case(name)).map(|(_, value)| value)
    }
}

/// Sends a request over HTTP/1.1 and reads the answer. Of a stream that does not end only the head is read.
pub async fn ask(
    server: SocketAddr,
    method: &str,
    path: &str,
    headers: &[(&str, &str)],
    body: &str,
) -> Answer {
    let mut text = format!("{method} {path} HTTP/1.1\r\nConnection: close\r\n");
    if !headers.iter().any(|(name, _)| name.eq_ignore_ascii_case("host")) {
        text += &format!("Host: {server}\r\n");
    }
    for (name, value) in headers {
        text += &format!("{name}: {value}\r\n");
    }
    if !body.is_empty() || method == "POST" {
        text += &format!("Content-Length: {}\r\n", body.len());
    }
    text += "\r\n";
    text += body;
    let mut stream = TcpStream::connect(server).await.expect("it listens");
    // A server that refuses the head may close before it has read the body.
    stream.write_all(text.as_bytes()).await.ok();
    timeout(PATIENCE, read(&mut stream)).await.expect("an answer in time")
}

/// Reads one answer.
pub async fn read(stream: &mut TcpStream) -> Answer {
    let mut bytes = Vec::new();
    let mut part = [0; 16 << 10];
    loop {
        let text = String::from_utf8_lossy(&bytes);
        if let Some((head, body)) = text.split_once("\r\n\r\n") {
            let head = head.to_owned();
            let length = head.lines().find_map(|line| {
                let (name, value) = line.split_once(": ")?;
                name.eq_ignore_ascii_case("content-length").then(|| value.parse::<usize>().ok())?
            });
            let is_stream = head.to_ascii_lowercase().contains("event-stream");
            if is_stream || length.is_some_and(|length| body.len() >= length) {
                return answer(head, body.to_owned());
            }
        }
        match stream.read(&mut part).await {
            Ok(0) | Err(_) => break,
            Ok(count) => bytes.extend_from_slice(&part[..count]),
        }
    }
    let text = String::from_utf8_lossy(&bytes);
    let (head, body) = text.split_once("\r\n\r\n").unwrap_or((&text, ""));
    answer(head.to_owned(), body.to_owned())
}

fn answer(head: String, body: String) -> Answer {
    let status = head.split(' ').nth(1).and_then(|status| status.parse().ok()).unwrap_or(0);
    Answer { status, head, body }
}
