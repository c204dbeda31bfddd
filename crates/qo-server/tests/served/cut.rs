//! A connection that is cut after the server got the call.

use crate::stage::{Served, block_on, remote};
use qo_core::{Claim, ErrorKind, Exchange, JobId, MemoryStore, Name, NewJob, NewSession, SessionId, Store};
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinHandle;
use uuid::Uuid;

/// Hands bytes on, in both directions. While it is deaf it swallows what the server answers, and cuts the connection as
/// soon as there is an answer.
struct Proxy {
    address: SocketAddr,
    is_deaf: Arc<AtomicBool>,
    accepting: JoinHandle<()>,
}

impl Drop for Proxy {
    fn drop(&mut self) {
        self.accepting.abort();
    }
}

impl Proxy {
    async fn to(server: SocketAddr) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let address = listener.local_addr().expect("an address");
        let is_deaf = Arc::new(AtomicBool::new(false));
        let deaf = Arc::clone(&is_deaf);
        let accepting = tokio::spawn(async move {
            while let Ok((client, _)) = listener.accept().await {
                let server = TcpStream::connect(server).await.expect("the server listens");
                tokio::spawn(hand_on(client, server, Arc::clone(&deaf)));
            }
        });
        Self { address, is_deaf, accepting }
    }
}

async fn hand_on(client: TcpStream, server: TcpStream, is_deaf: Arc<AtomicBool>) {
    let (mut from_client, mut to_client) = client.into_split();
    let (mut from_server, mut to_server) = server.into_split();
    let there = async { tokio::io::copy(&mut from_client, &mut to_server).await.map(|_| ()) };
    let back = async {
        let mut bytes = vec![0; 16 << 10];
        loop {
            let count = from_server.read(&mut bytes).await?;
            // The first answer of 100 bytes or more is the reply; smaller frames only acknowledge.
            if count == 0 || (is_deaf.load(Ordering::SeqCst) && count >= 100) {
                is_deaf.store(false, Ordering::SeqCst);
                return Ok::<(), std::io::Error>(());
            }
            to_client.write_all(&bytes[..count]).await?;
        }
    };
    // Whichever ends first cuts both.
    tokio::select! {
        result = there => result.ok(),
        result = back => result.ok(),
    };
}

fn name(text: &str) -> Name {
    Name::parse("name", text).expect("a name")
}

#[test]
fn an_exchange_whose_reply_was_cut_off_is_answered_again_by_its_number() {
    block_on(async {
        let store = Arc::new(MemoryStore::new());
        let served = Served::start(Arc::clone(&store) as Arc<dyn Store>).await;
        let proxy = Proxy::to(served.address).await;
        let client = remote(&[proxy.address]).await;
        let session = SessionId(Uuid::from_u128(1));
        let tasks = vec![name("mail")];
        let new = NewSession {
            id: session,
            worker: name("w"),
            queues: vec![],
            tasks,
            lease_ms: 60_000,
            permits: 9,
            owner: None,
        };
        client.open_session(new).await.expect("a session");
        let jobs: Vec<_> = (1..=3).map(|n| NewJob::new(JobId(Uuid::from_u128(n)), name("mail"))).collect();
        client.submit(jobs.clone()).await.expect("accepted");

        proxy.is_deaf.store(true, Ordering::SeqCst);
        let claim = Claim { max: 2, ..Claim::default() };
        let exchange = Exchange { claim, ..Exchange::renew(session, 1) };
        let lost = client.exchange(exchange.clone()).await.expect_err("its reply is cut off");
        assert_eq!(lost.kind(), ErrorKind::Unknown, "{lost}");
        let reply = client.exchange(exchange.clone()).await.expect("the same number again");
        let again = client.exchange(exchange).await.expect("and again");
        assert_eq!((reply.claimed.len(), &reply), (2, &again));
        assert_eq!(reply.claimed.iter().map(|job| job.attempt).collect::<Vec<_>>(), [1, 1]);

        // A submit whose reply is lost is repeated with the same ids.
        proxy.is_deaf.store(true, Ordering::SeqCst);
        let more: Vec<_> = (4..=9).map(|n| NewJob::new(JobId(Uuid::from_u128(n)), name("mail"))).collect();
        assert_eq!(client.submit(more.clone()).await.map_err(|error| error.kind()), Err(ErrorKind::Unknown));
        let outcomes = client.submit(more).await.expect("known");
        assert!(outcomes.iter().all(|outcome| matches!(outcome, Ok(qo_core::Submitted::Existing(_)))));
        assert_eq!(store.audit(), Ok(Vec::new()));
    });
}
