//! Live changes.

use super::{Stage, request};
use crate::logs::Logs;
use crate::stage::{PATIENCE, block_on};
use qo_testkit::Fixtures;
use std::net::SocketAddr;
use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader, Lines};
use tokio::net::TcpStream;
use tokio::time::timeout;

struct Stream(Lines<BufReader<TcpStream>>);

impl Stream {
    async fn open(server: SocketAddr, headers: &str) -> Self {
        let mut stream = TcpStream::connect(server).await.expect("it listens");
        stream.write_all(&request("GET", "/api/v1/events", headers, "")).await.expect("it is sent");
        Self(BufReader::new(stream).lines())
    }

    /// The rest of the next line that begins like this. None at the end of the stream.
    async fn next(&mut self, begins: &str) -> Option<String> {
        let find = async {
            while let Some(line) = self.0.next_line().await.expect("a line") {
                if let Some(rest) = line.strip_prefix(begins) {
                    return Some(rest.trim().to_owned());
                }
            }
            None
        };
        timeout(PATIENCE, find).await.expect("an event in time")
    }
}

#[test]
fn a_stream_tells_of_changes_and_goes_on_where_it_was_cut() {
    block_on(async {
        let stage = Stage::of(Logs::on_a_directory().fresh().await).await;
        let mut stream = Stream::open(stage.served.address, "").await;
        assert_eq!(stream.next("content-type:").await.as_deref(), Some("text/event-stream"));
        let first = stream.next("id:").await.expect("a first event");
        stage.submit(r#"{"task": "mail"}"#).await;
        let second = stream.next("id:").await.expect("an event");
        assert_ne!(first, second);
        drop(stream);
        let mut stream = Stream::open(stage.served.address, &format!("Last-Event-ID: {first}")).await;
        assert_eq!(stream.next("event:").await.as_deref(), Some("changed"), "what it missed comes at once");
        let data = stream.next("data:").await.expect("data");
        let data: serde_json::Value = serde_json::from_str(&data).expect("JSON");
        assert!(data["changes"].as_str().is_some_and(|changes| changes.parse::<u64>().is_ok()), "{data}");
    });
}

#[test]
fn a_stream_ends_when_the_server_ends() {
    block_on(async {
        let mut stage = Stage::in_memory().await;
        let mut stream = Stream::open(stage.served.address, "").await;
        stream.next("id:").await.expect("a first event");
        stage.served.ended().await.expect("well");
        assert_eq!(stream.next("no such line").await, None);
    });
}
