//! Two servers in front of a directory, each behind a proxy. The fleet reaches the store only through the proxies, which
//! delay, slow down, swallow and cut what passes.

use super::process::{marked, signal};
use crate::fixture::until;
use qo_testkit::random::Random;
use rustix::process::Signal;
use std::fs::File;
use std::net::{Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;
use tempfile::TempDir;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};
use tokio::net::{TcpListener, TcpStream};
use tokio::runtime::Runtime;
use tokio::sync::watch;
use tokio::time::sleep;

/// An environment entry of the servers, and of no other process.
const MARK: &str = "ATTACK_SERVER";
/// How many servers there are.
const SERVERS: usize = 2;
/// Longest that a server may take to drain.
const PATIENCE: Duration = Duration::from_secs(30);

/// How the network between the fleet and a server behaves.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Network {
    /// It hands bytes on at once.
    Well,
    /// It hands bytes on this much later.
    Late(Duration),
    /// It hands on a kilobyte a second.
    Slow,
    /// It swallows bytes without a word, as a firewall that has forgotten the connection. When it is well again, it
    /// resets the connections that lost bytes.
    HalfOpen,
}

/// A directory, and the servers in front of it.
pub struct Served {
    folder: TempDir,
    fronts: Vec<Front>,
    // Its tasks hand the bytes on, so it goes last.
    _runtime: Runtime,
}

/// A server and the proxy before it.
struct Front {
    port: u16,
    process: Option<Child>,
    proxy: Proxy,
}

impl Served {
    pub fn start() -> Self {
        let folder = tempfile::tempdir().expect("a folder");
        let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build();
        let runtime = runtime.expect("a runtime");
        let mut served = Self { folder, fronts: Vec::new(), _runtime: runtime };
        for port in super::ground::free_ports(SERVERS) {
            let proxy = served._runtime.block_on(Proxy::to(port));
            served.fronts.push(Front { port, process: None, proxy });
        }
        // The first one makes the namespace.
        (0..SERVERS).for_each(|at| served.serve(at));
        served
    }

    /// Where the fleet finds the servers.
    pub fn url(&self) -> String {
        let addresses: Vec<String> =
            self.fronts.iter().map(|front| front.proxy.address.to_string()).collect();
        format!("http://{}", addresses.join(","))
    }

    /// The store behind the servers.
    pub fn store(&self) -> String {
        format!("file:{}", self.folder.path().join("store").display())
    }

    pub fn folder(&self) -> &Path {
        self.folder.path()
    }

    /// What every server has in its environment.
    pub fn mark(&self) -> String {
        format!("{MARK}={}", self.folder.path().display())
    }

    fn log(&self, at: usize) -> PathBuf {
        self.folder.path().join(format!("server-{at}.log"))
    }

    /// Starts a server, and waits until it answers.
    fn serve(&mut self, at: usize) {
        let port = self.fronts[at].port;
        let log = File::options().create(true).append(true).open(self.log(at)).expect("a log");
        let mut command = Command::new(env!("CARGO_BIN_EXE_qo"));
        command.args(["serve", "--listen", &format!("127.0.0.1:{port}"), "--store", &self.store()]);
        command.current_dir(self.folder.path()).env(MARK, self.folder.path());
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(log);
        let mut process = command.spawn().expect("qo starts");
        until("the server listens", || {
            let ended = process.try_wait().expect("a child");
            assert!(ended.is_none(), "a server ended with {ended:?}: {}", self.said());
            std::net::TcpStream::connect((Ipv4Addr::LOCALHOST, port)).is_ok()
        });
        self.fronts[at].process = Some(process);
    }

    /// Kills some servers. They are back when this returns.
    pub fn kill(&mut self, all: bool, dice: &mut Random, wait: impl FnOnce(Duration)) {
        let victims: Vec<usize> = if all { (0..SERVERS).collect() } else { vec![dice.below(SERVERS)] };
        for at in &victims {
            if let Some(mut process) = self.fronts[*at].process.take() {
                signal(process.id(), Signal::KILL);
                process.wait().expect("it ends");
            }
        }
        wait(Duration::from_millis(dice.within(0..=900)));
        victims.into_iter().for_each(|at| self.serve(at));
    }

    /// Tells a server to drain, and starts it again. Returns what is wrong with how it ended.
    pub fn drain(&mut self, dice: &mut Random) -> Option<String> {
        let at = dice.below(SERVERS);
        let mut process = self.fronts[at].process.take()?;
        signal(process.id(), Signal::TERM);
        let asked = std::time::Instant::now();
        let ended = loop {
            let ended = process.try_wait().expect("a child");
            if ended.is_some() || asked.elapsed() > PATIENCE {
                break ended;
            }
            super::stage::pause(Duration::from_millis(10));
        };
        let complaint = (ended.and_then(|status| status.code()) != Some(0))
            .then(|| format!("a server that was told to drain ended with {ended:?}: {}", self.said()));
        let _ = process.kill();
        let _ = process.wait();
        self.serve(at);
        complaint
    }

    /// Lets the network before one server, or before all, behave like this for some time.
    pub fn disturb(&self, network: Network, dice: &mut Random, wait: impl FnOnce(Duration)) {
        let one = dice.percent(50).then(|| dice.below(SERVERS));
        let disturbed = self.fronts.iter().enumerate().filter(|(at, _)| one.is_none_or(|one| one == *at));
        let disturbed: Vec<&Proxy> = disturbed.map(|(_, front)| &front.proxy).collect();
        for proxy in &disturbed {
            proxy.network.send_replace(network);
        }
        wait(Duration::from_millis(dice.within(300..=4_000)));
        for proxy in disturbed {
            proxy.network.send_replace(Network::Well);
        }
    }

    /// Resets every connection.
    pub fn cut(&self) {
        self.fronts.iter().for_each(|front| front.proxy.cuts.send_modify(|cuts| *cuts += 1));
    }

    /// What the servers logged that no server may say.
    pub fn complaint(&self) -> Option<String> {
        let said = self.said();
        said.contains("panicked").then(|| format!("a server panicked: {said}"))
    }

    fn said(&self) -> String {
        let logs = (0..SERVERS).map(|at| std::fs::read_to_string(self.log(at)).unwrap_or_default());
        logs.collect()
    }
}

impl Drop for Served {
    fn drop(&mut self) {
        end(&self.mark());
        for process in self.fronts.iter_mut().filter_map(|front| front.process.as_mut()) {
            let _ = process.wait();
        }
    }
}

/// Kills the servers with this mark.
pub fn end(mark: &str) {
    marked(mark).into_iter().for_each(|pid| signal(pid, Signal::KILL));
}

/// Hands bytes on between the fleet and a server.
struct Proxy {
    address: SocketAddr,
    network: watch::Sender<Network>,
    /// Counts how often every connection was reset.
    cuts: watch::Sender<u64>,
}

impl Proxy {
    async fn to(server: u16) -> Self {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.expect("a port");
        let address = listener.local_addr().expect("an address");
        let (network, cuts) = (watch::Sender::new(Network::Well), watch::Sender::new(0));
        let (follow, cut) = (network.subscribe(), cuts.subscribe());
        tokio::spawn(async move {
            while let Ok((client, _)) = listener.accept().await {
                tokio::spawn(connect(client, server, follow.clone(), cut.clone()));
            }
        });
        Self { address, network, cuts }
    }
}

/// One connection, until one of its ends closes it or it is cut.
async fn connect(
    client: TcpStream,
    server: u16,
    network: watch::Receiver<Network>,
    mut cuts: watch::Receiver<u64>,
) {
    cuts.mark_unchanged();
    let Ok(server) = TcpStream::connect((Ipv4Addr::LOCALHOST, server)).await else { return };
    for stream in [&client, &server] {
        stream.set_nodelay(true).expect("an option");
        // A connection that is dropped is reset.
        stream.set_zero_linger().expect("an option");
    }
    let ((from_client, to_client), (from_server, to_server)) = (client.into_split(), server.into_split());
    tokio::select! {
        () = hand_on(from_client, to_server, network.clone()) => {}
        () = hand_on(from_server, to_client, network) => {}
        _ = cuts.changed() => {}
    }
}

/// Hands bytes on in one direction, as the network behaves.
async fn hand_on(mut from: OwnedReadHalf, mut to: OwnedWriteHalf, mut network: watch::Receiver<Network>) {
    const PIECE: usize = 100;
    let mut bytes = vec![0; 16 << 10];
    loop {
        let most = if *network.borrow() == Network::Slow { PIECE } else { bytes.len() };
        let Ok(count @ 1..) = from.read(&mut bytes[..most]).await else { return };
        let now = *network.borrow();
        match now {
            Network::Well => {}
            Network::Late(by) => sleep(by).await,
            Network::Slow => sleep(Duration::from_millis(PIECE as u64)).await,
            Network::HalfOpen => {
                // Even the end of the other side passes unnoticed.
                let swallow = async { while from.read(&mut bytes).await.is_ok_and(|count| count > 0) {} };
                let well = network.wait_for(|network| *network != Network::HalfOpen);
                tokio::select! {
                    _ = well => return,
                    () = swallow => {}
                }
                let _ = network.wait_for(|network| *network != Network::HalfOpen).await;
                return;
            }
        }
        if to.write_all(&bytes[..count]).await.is_err() {
            return;
        }
    }
}
