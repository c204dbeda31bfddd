//! A proxy to a server, with faults: it hangs, refuses, loses a request or its answer, or leads elsewhere.

use std::net::SocketAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio::task::AbortHandle;

/// What happens to new connections.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Way {
    Open,
    /// What they send is swallowed, and nothing is answered.
    Hangs,
    /// They are closed at once.
    Refuses,
}

/// What happens to the next transaction, once.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Trap {
    /// Its COMMIT does not reach the server, and the connection is cut.
    LosesRequest,
    /// The server has committed it when the connection is cut, and the answer is lost.
    LosesAnswer,
    /// The same, but the whole answer comes back except that of COMMIT.
    LosesAcknowledgement,
    /// Everything but its COMMIT reaches the server, and from then on the client is silent; the server does not learn
    /// that it is gone.
    HoldsCommit,
}

/// What happens to open connections.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Order {
    GoOn,
    Hang,
    Cut,
}

struct State {
    target: SocketAddr,
    way: Way,
    trap: Option<Trap>,
    accepted: usize,
}

struct Shared {
    state: Mutex<State>,
    order: watch::Sender<Order>,
}

impl Shared {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

pub struct Proxy {
    port: u16,
    shared: Arc<Shared>,
    accepting: AbortHandle,
}

impl Drop for Proxy {
    fn drop(&mut self) {
        self.accepting.abort();
    }
}

impl Proxy {
    /// A proxy to the server at `url`.
    pub async fn to(url: &str) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let port = listener.local_addr().expect("an address").port();
        let state = State { target: address(url), way: Way::Open, trap: None, accepted: 0 };
        let shared = Arc::new(Shared { state: Mutex::new(state), order: watch::Sender::new(Order::GoOn) });
        let accepting = tokio::spawn(accept(listener, Arc::clone(&shared))).abort_handle();
        Self { port, shared, accepting }
    }

    /// The same URL through this proxy.
    pub fn url(&self, url: &str) -> String {
        let target = address(url).to_string();
        url.replace(&target, &format!("127.0.0.1:{}", self.port))
    }

    /// How many connections have come, let through or not.
    pub fn accepted(&self) -> usize {
        self.shared.state().accepted
    }

    /// From now on new connections are let through. Those that hang already go on hanging.
    pub fn open(&self) {
        self.shared.state().way = Way::Open;
    }

    /// All connections hang, open and new.
    pub fn hang(&self) {
        self.shared.state().way = Way::Hangs;
        self.shared.order.send_replace(Order::Hang);
    }

    /// Open connections are cut, new ones are closed at once.
    pub fn refuse(&self) {
        self.shared.state().way = Way::Refuses;
        self.cut();
    }

    /// Open connections are cut.
    pub fn cut(&self) {
        self.shared.order.send_replace(Order::Cut);
    }

    /// The next transaction meets this fault.
    pub fn set(&self, trap: Trap) {
        self.shared.state().trap = Some(trap);
    }

    /// Whether a transaction has met the fault.
    pub fn has_sprung(&self) -> bool {
        self.shared.state().trap.is_none()
    }

    /// From now on new connections lead to another server.
    pub fn lead_to(&self, url: &str) {
        self.shared.state().target = address(url);
    }

    /// The same, and open connections are cut.
    pub fn switch(&self, url: &str) {
        self.lead_to(url);
        self.cut();
    }
}

/// The host and port of a URL.
fn address(url: &str) -> SocketAddr {
    let rest = url.split_once('@').expect("a user").1;
    rest.split(['/', '?']).next().expect("a host").parse().expect("a numeric address")
}

async fn accept(listener: TcpListener, shared: Arc<Shared>) {
    loop {
        let Ok((client, _)) = listener.accept().await else { return };
        let (way, target) = {
            let mut state = shared.state();
            state.accepted += 1;
            (state.way, state.target)
        };
        match way {
            Way::Refuses => drop(client),
            Way::Hangs => drop(tokio::spawn(swallow(client))),
            Way::Open => drop(tokio::spawn(carry(client, target, Arc::clone(&shared)))),
        }
    }
}

/// Reads everything and answers nothing, until the other side has closed.
async fn swallow(mut from: TcpStream) {
    let mut buffer = [0; 4096];
    while matches!(from.read(&mut buffer).await, Ok(1..)) {}
}

/// COMMIT as bytes on their way to the server, and the answer to it.
const COMMIT: &[u8] = b"Q\0\0\0\x0bCOMMIT\0";
const COMMITTED: &[u8] = b"C\0\0\0\x0bCOMMIT\0";
const ROLLED_BACK: &[u8] = b"C\0\0\0\x0dROLLBACK\0";

fn find(bytes: &[u8], what: &[u8]) -> Option<usize> {
    bytes.windows(what.len()).position(|window| window == what)
}

/// Carries bytes both ways.
async fn carry(mut client: TcpStream, target: SocketAddr, shared: Arc<Shared>) {
    let mut order = shared.order.subscribe();
    let Ok(mut server) = TcpStream::connect(target).await else { return };
    let (mut up, mut down) = (vec![0; 65_536], vec![0; 65_536]);
    loop {
        tokio::select! {
            biased;
            _ = order.changed() => match *order.borrow_and_update() {
                Order::GoOn => {}
                Order::Cut => return,
                // The server does not learn that the client is gone.
                Order::Hang => break,
            },
            read = client.read(&mut up) => {
                let Ok(n @ 1..) = read else { return };
                let end = find(&up[..n], COMMIT);
                let trap = end.and_then(|_| shared.state().trap.take());
                match (trap, end) {
                    (Some(Trap::LosesRequest), _) => return,
                    (Some(Trap::HoldsCommit), Some(end)) => {
                        if server.write_all(&up[..end]).await.is_err() {
                            return;
                        }
                        break;
                    }
                    _ => {}
                }
                if server.write_all(&up[..n]).await.is_err() {
                    return;
                }
                if trap.is_some() {
                    let answer = ended(&mut server).await;
                    if let Some(end) = find(&answer, COMMITTED) {
                        if trap == Some(Trap::LosesAcknowledgement) {
                            client.write_all(&answer[..end]).await.ok();
                        }
                        return;
                    }
                    // The server rolled it back, so there is nothing to lose: wait for the next one.
                    shared.state().trap = trap;
                    if client.write_all(&answer).await.is_err() {
                        return;
                    }
                }
            }
            read = server.read(&mut down) => {
                let Ok(n @ 1..) = read else { return };
                if client.write_all(&down[..n]).await.is_err() {
                    return;
                }
            }
        }
    }
    swallow(client).await;
    // Outlives the client, so that the server does not learn of its end, until the server closes.
    swallow(server).await;
}

/// The server's answer, up to the end of a transaction.
async fn ended(server: &mut TcpStream) -> Vec<u8> {
    let mut answer = Vec::new();
    let is_over = |answer: &[u8]| [COMMITTED, ROLLED_BACK].iter().any(|end| find(answer, end).is_some());
    while !is_over(&answer) && matches!(server.read_buf(&mut answer).await, Ok(1..)) {}
    answer
}
