//! A server of its own, for a test that stops it.

use crate::fixtures::connect;
use rustix::process::{Pid, Signal, kill_process};
use std::fs::Permissions;
use std::hash::{BuildHasher, RandomState};
use std::net::TcpListener;
use std::os::unix::fs::{MetadataExt, PermissionsExt, chown};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;
use tempfile::TempDir;
use tokio::time::interval;

/// A server. It is removed with this value.
pub struct Server {
    folder: TempDir,
    port: u16,
    process: Option<Child>,
}

impl Drop for Server {
    fn drop(&mut self) {
        self.stop(Signal::QUIT);
    }
}

fn variable(name: &str) -> PathBuf {
    std::env::var_os(name)
        .unwrap_or_else(|| panic!("{name} must be there; `make test` sees to it: scripts/with_postgres.py"))
        .into()
}

/// One of PostgreSQL's programs, run as the owner of the servers: none of them runs as root.
fn program(name: &str) -> Command {
    let mut command = Command::new(variable("QO_TEST_POSTGRES_BIN_15").join(name));
    command.current_dir("/").env("LC_ALL", "C").stdin(Stdio::null()).stdout(Stdio::null());
    if rustix::process::geteuid().is_root() {
        let (uid, gid) = owner();
        command.uid(uid).gid(gid);
    }
    command
}

fn owner() -> (u32, u32) {
    let data = std::fs::metadata(variable("QO_TEST_POSTGRES_DIR_15")).expect("a data directory");
    (data.uid(), data.gid())
}

fn run(command: &mut Command) {
    let output = command.stderr(Stdio::piped()).output().expect("it runs");
    assert!(output.status.success(), "{command:?}: {}", String::from_utf8_lossy(&output.stderr));
}

/// A port below those of outgoing connections, so that no other process takes it while the server is down.
fn free_port() -> u16 {
    loop {
        let port = 20_000 + u16::try_from(RandomState::new().hash_one(0) % 12_000).expect("it is small");
        if TcpListener::bind(("127.0.0.1", port)).is_ok() {
            return port;
        }
    }
}

impl Server {
    fn empty() -> Self {
        let folder = tempfile::tempdir().expect("a folder");
        if rustix::process::geteuid().is_root() {
            let (uid, gid) = owner();
            chown(folder.path(), Some(uid), Some(gid)).expect("it is given away");
        }
        Self { folder, port: free_port(), process: None }
    }

    /// A new one, up and empty.
    pub async fn new() -> Self {
        let mut server = Self::empty();
        // Independent of this machine's locale: qo works in UTF8 databases only.
        let mut init = program("initdb");
        init.args(["-U", "postgres", "-A", "trust", "--no-locale", "-E", "UTF8", "--no-sync", "-D"]);
        run(init.arg(server.data()));
        let settings = "fsync = off\nshared_buffers = 16MB\nmax_connections = 40\nunix_socket_directories = ''\n\
            listen_addresses = '127.0.0.1'\n";
        let settings = format!("{settings}port = {}\n", server.port);
        std::fs::write(server.data().join("postgresql.conf"), settings).expect("written");
        server.start().await;
        server
    }

    /// A standby of this server, which from now on acknowledges nothing that the standby does not have.
    pub async fn standby(&self) -> Self {
        let mut standby = Self::empty();
        let from = format!("host=127.0.0.1 port={} user=postgres", self.port);
        let mut copy = program("pg_basebackup");
        run(copy.args(["-c", "fast", "-R", "--no-sync", "-d", &from, "-D"]).arg(standby.data()));
        let settings = standby.data().join("postgresql.conf");
        let text = std::fs::read_to_string(&settings).expect("settings");
        let text = text.replace(&format!("port = {}", self.port), &format!("port = {}", standby.port));
        std::fs::write(settings, text).expect("written");
        standby.start().await;
        let primary = connect(&self.url()).await;
        primary.batch_execute("ALTER SYSTEM SET synchronous_standby_names = '*'").await.expect("it is set");
        primary.batch_execute("SELECT pg_reload_conf()").await.expect("it is read");
        let in_step = "SELECT EXISTS (SELECT FROM pg_stat_replication WHERE sync_state = 'sync')";
        let mut every = interval(Duration::from_millis(20));
        while !primary.query_one(in_step, &[]).await.expect("a look").get::<_, bool>(0) {
            every.tick().await;
        }
        standby
    }

    fn data(&self) -> PathBuf {
        Path::join(self.folder.path(), "data")
    }

    /// Writes a file of the server's, which no other user may read.
    pub fn write(&self, name: &str, content: &str) {
        let file = self.data().join(name);
        std::fs::write(&file, content).expect("written");
        std::fs::set_permissions(&file, Permissions::from_mode(0o600)).expect("it is ours");
        if rustix::process::geteuid().is_root() {
            let (uid, gid) = owner();
            chown(&file, Some(uid), Some(gid)).expect("it is given away");
        }
    }

    /// Adds settings, which count from its next start.
    pub fn set(&self, settings: &str) {
        let file = self.data().join("postgresql.conf");
        let text = std::fs::read_to_string(&file).expect("settings");
        std::fs::write(file, format!("{text}{settings}\n")).expect("written");
    }

    pub fn url(&self) -> String {
        format!("postgres://postgres@127.0.0.1:{}/postgres", self.port)
    }

    /// Starts it, and waits until it answers.
    pub async fn start(&mut self) {
        self.begin();
        let mut every = interval(Duration::from_millis(20));
        while tokio_postgres::connect(&self.url(), tokio_postgres::NoTls).await.is_err() {
            every.tick().await;
        }
    }

    /// Starts it.
    pub fn begin(&mut self) {
        let mut command = program("postgres");
        let process = command.arg("-D").arg(self.data()).stderr(Stdio::null()).spawn();
        self.process = Some(process.expect("it starts"));
    }

    /// Stops it: INT is a shutdown, QUIT is a crash. It is down when this returns.
    pub fn stop(&mut self, signal: Signal) {
        if let Some(mut process) = self.process.take() {
            kill_process(Pid::from_child(&process), signal).expect("it is there");
            process.wait().expect("it ends");
        }
    }

    /// Makes a standby the primary.
    pub async fn promote(&self) {
        let client = connect(&self.url()).await;
        let promoted = client.query_one("SELECT pg_promote()", &[]).await.expect("it is told");
        assert!(promoted.get::<_, bool>(0), "it is promoted");
    }
}
