//! The interface over HTTP: real TCP, real stores, each route as its callers use it.

mod document;
mod events;
mod jobs;
mod operate;
mod refusals;
mod waits;

use crate::logs::Logs;
use crate::schemas::Schemas;
use crate::stage::{PATIENCE, Served, block_on};
use qo_core::{Claim, ClaimedJob, Exchange, Name, NewSession, Outcome, SessionId, Settle, Store};
use qo_testkit::{Fixture, Fixtures, MemoryFixtures, TestClock};
use serde_json::Value;
use std::net::SocketAddr;
use std::sync::Arc;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::time::timeout;
use uuid::Uuid;

/// A server of a fresh store, and the store itself.
pub struct Stage {
    pub served: Served,
    pub store: Arc<dyn Store>,
    pub clock: Arc<dyn TestClock>,
}

/// What a server answered.
#[derive(Debug)]
pub struct Answer {
    pub status: u16,
    head: String,
    pub body: String,
}

impl Answer {
    /// A header. Its name is in small letters.
    pub fn header(&self, name: &str) -> Option<&str> {
        let line =
            self.head.lines().skip(1).find(|line| line.to_lowercase().starts_with(&format!("{name}:")))?;
        line.split_once(':').map(|(_, value)| value.trim())
    }

    /// The document, which must come with this status.
    #[track_caller]
    pub fn json(&self, status: u16) -> Value {
        assert_eq!(self.status, status, "{}", self.body);
        serde_json::from_str(&self.body).unwrap_or_else(|error| panic!("{error}: {}", self.body))
    }

    /// The problem document, which must have this status and kind.
    #[track_caller]
    pub fn problem(&self, status: u16, kind: &str) -> Value {
        let problem = self.json(status);
        assert_eq!(self.header("content-type"), Some("application/problem+json"), "{}", self.head);
        assert_eq!((&problem["kind"], &problem["status"]), (&kind.into(), &status.into()), "{problem}");
        assert_eq!(problem["type"], format!("urn:qo:{kind}"));
        assert_eq!(problem["request_id"].as_str(), self.header("x-request-id"), "{problem}");
        assert!(problem["title"].is_string() && problem["detail"].is_string(), "{problem}");
        problem
    }
}

/// Sends a request as it is and reads the whole answer.
pub async fn send(server: SocketAddr, request: &[u8]) -> Answer {
    let exchange = async {
        let mut stream = TcpStream::connect(server).await.expect("it listens");
        // A server that refuses a large body may answer and close before all of it is sent.
        stream.write_all(request).await.ok();
        let mut answer = Vec::new();
        stream.read_to_end(&mut answer).await.ok();
        String::from_utf8(answer).expect("a text")
    };
    let answer = timeout(PATIENCE, exchange).await.expect("an answer in time");
    let (head, body) = answer.split_once("\r\n\r\n").expect("a head and a body");
    let status = head.split(' ').nth(1).and_then(|status| status.parse().ok()).expect("a status");
    Answer { status, head: head.to_owned(), body: body.to_owned() }
}

/// A request, with headers of its own, one on each line.
pub fn request(method: &str, path: &str, headers: &str, body: &str) -> Vec<u8> {
    let headers: String = headers.lines().map(|line| format!("{line}\r\n")).collect();
    let length = body.len();
    format!(
        "{method} {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\nContent-Length: {length}\r\n{headers}\r\n{body}"
    )
    .into_bytes()
}

impl Stage {
    async fn of(fixture: Fixture) -> Self {
        let Fixture { store, clock } = fixture;
        Self { served: Served::start(Arc::clone(&store)).await, store, clock }
    }

    /// In front of the rule book in memory.
    pub async fn in_memory() -> Self {
        Self::of(MemoryFixtures.fresh().await).await
    }

    pub async fn get(&self, path: &str) -> Answer {
        self.call("GET", path, "").await
    }

    /// Sends a JSON body, or none if it is empty.
    pub async fn call(&self, method: &str, path: &str, body: &str) -> Answer {
        let json = if body.is_empty() { "" } else { "Content-Type: application/json" };
        self.call_with(method, path, json, body).await
    }

    pub async fn call_with(&self, method: &str, path: &str, headers: &str, body: &str) -> Answer {
        send(self.served.address, &request(method, &format!("/api/v1{path}"), headers, body)).await
    }

    /// Submits a job and returns its id.
    pub async fn submit(&self, job: &str) -> String {
        let answer = self.call("POST", "/jobs", job).await.json(201);
        answer["id"].as_str().expect("an id").to_owned()
    }

    /// A worker of these tasks.
    pub async fn worker(&self, tasks: &[&str]) -> Worker {
        let session = SessionId(Uuid::from_u128(0x7000_8000_0000_0000_0000 | 1));
        let tasks = tasks.iter().map(|task| Name::parse("task", task).expect("a name")).collect();
        let worker = Name::parse("worker", "ann").expect("a name");
        let new = NewSession {
            id: session,
            worker,
            queues: vec![],
            tasks,
            lease_ms: 60_000,
            permits: 10,
            owner: None,
        };
        self.store.open_session(new).await.expect("a session");
        Worker { store: Arc::clone(&self.store), session, number: 0 }
    }
}

/// A worker that works on the store itself.
pub struct Worker {
    store: Arc<dyn Store>,
    session: SessionId,
    number: u64,
}

impl Worker {
    /// Settles and claims.
    async fn exchange(&mut self, settles: Vec<Settle>, max: u32) -> Vec<ClaimedJob> {
        self.number += 1;
        let exchange = Exchange {
            settles,
            claim: Claim { max, ..Claim::default() },
            free_permits: 10,
            ..Exchange::renew(self.session, self.number)
        };
        self.store.exchange(exchange).await.expect("an exchange").claimed
    }

    /// Claims one job.
    pub async fn claim(&mut self) -> ClaimedJob {
        self.exchange(vec![], 1).await.pop().expect("a job")
    }

    /// Settles a job that it has claimed.
    pub async fn settle(&mut self, job: &ClaimedJob, outcome: Outcome) {
        self.exchange(vec![Settle { job: job.id, token: job.token, outcome }], 0).await;
    }
}

/// Runs a test on the rule book in memory, on a directory and on PostgreSQL.
fn on_each_store(test: impl AsyncFn(Stage)) {
    let (directory, postgres) = (Logs::on_a_directory(), Schemas::on("QO_TEST_POSTGRES"));
    let grounds: [&dyn Fixtures; 3] = [&MemoryFixtures, &directory, &postgres];
    block_on(async {
        for ground in grounds {
            test(Stage::of(ground.fresh().await).await).await;
        }
    });
}
