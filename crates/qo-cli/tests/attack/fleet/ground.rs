//! The ground of an attack: a store of its own, and the faults that it can have.

use super::attacker::Fault;
use super::served::{self, Served};
use qo_testkit::Bucket;
use qo_testkit::bucket::{self, FaultRates, Kind};
use qo_testkit::random::Random;
use rustix::process::Signal;
use std::fs::{self, File};
use std::io::Write;
use std::net::TcpListener;
use std::os::unix::fs::{MetadataExt, chown};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;
use tempfile::TempDir;
use tokio_postgres::NoTls;

/// A store, and the means to harm it.
pub enum Ground {
    Directory(Disk),
    Postgres(Server),
    Bucket(Bucket),
    Served(Served),
}

impl Ground {
    pub fn name(&self) -> &'static str {
        match self {
            Self::Directory(_) => "directory",
            Self::Postgres(_) => "postgres",
            Self::Bucket(_) => "bucket",
            Self::Served(_) => "served",
        }
    }

    /// The store's URL.
    pub fn url(&self) -> String {
        match self {
            Self::Directory(disk) => format!("file:{}", disk.folder.path().join("store").display()),
            Self::Postgres(server) => format!("{}?schema=attack", server.url()),
            Self::Bucket(_) => format!("s3://{}/attack", bucket::NAME),
            Self::Served(served) => served.url(),
        }
    }

    /// The URL of the store itself, where servers stand in front of it.
    pub fn behind(&self) -> Option<String> {
        match self {
            Self::Served(served) => Some(served.store()),
            _ => None,
        }
    }

    /// What the ground itself has to complain about at the end.
    pub fn complaint(&self) -> Option<String> {
        match self {
            Self::Served(served) => served.complaint(),
            _ => None,
        }
    }

    /// The environment that a process needs for the store.
    pub fn environment(&self) -> Vec<(&'static str, String)> {
        match self {
            Self::Bucket(bucket) => bucket.environment().to_vec(),
            _ => Vec::new(),
        }
    }

    /// The leases of the workers: short, so that jobs of dead workers are taken over all the time. Answers of a bucket
    /// carry whole seconds, so a lease there is longer.
    pub fn lease_secs(&self) -> u64 {
        if matches!(self, Self::Bucket(_)) { 6 } else { 3 }
    }

    /// How far a wall clock may be off, in seconds: a bucket refuses signatures that are minutes old.
    pub fn clock_shifts(&self) -> &'static [i64] {
        const YEARS: i64 = 365 * 86_400;
        if matches!(self, Self::Bucket(_)) { &[-200, 200] } else { &[-20 * YEARS, 20 * YEARS, -3_600, 3_600] }
    }

    /// The fault that cannot be caused here, and why.
    pub fn left_out(&self) -> Option<(Fault, &'static str)> {
        let cannot_fill = matches!(self, Self::Directory(disk) if !disk.mounted);
        cannot_fill.then_some((Fault::Outage, "this user may not mount a disk that can be filled"))
    }

    /// What would remain if a signal ended this process.
    pub fn leftovers(&self) -> Leftovers {
        match self {
            Self::Directory(disk) => Leftovers {
                mount: disk.mounted.then(|| disk.folder.path().to_owned()),
                folder: disk.folder.path().to_owned(),
                ..Leftovers::default()
            },
            Self::Postgres(server) => Leftovers {
                folder: server.folder.path().to_owned(),
                server: Some(server.data().join("postmaster.pid")),
                ..Leftovers::default()
            },
            Self::Served(served) => Leftovers {
                folder: served.folder().to_owned(),
                mark: Some(served.mark()),
                ..Leftovers::default()
            },
            Self::Bucket(_) => Leftovers::default(),
        }
    }

    /// Switches small faults on or off, which happen all the time during the attack.
    pub fn annoy(&self, on: bool) {
        if let Self::Bucket(bucket) = self {
            bucket.set_latency(Duration::from_millis(4));
            let rates =
                FaultRates { error: 1, slow_down: 1, reset_before: 1, truncated: 1, ..FaultRates::default() };
            let puts = FaultRates { conflict: 1, reset_after: 2, ..rates };
            let none = FaultRates::default();
            bucket.set_faults(Kind::ALL, if on { rates } else { none });
            bucket.set_faults(&[Kind::Put], if on { puts } else { none });
        }
    }

    /// Takes the store away and brings it back: a crash of the server, a full disk, a network that is down. `wait` lets
    /// time pass. Returns whether it could.
    pub fn outage(&mut self, dice: &mut Random, wait: impl FnOnce(Duration)) -> bool {
        let length = Duration::from_millis(dice.within(200..=900));
        match self {
            Self::Directory(disk) => return disk.fill(length, wait),
            Self::Postgres(server) => server.crash(),
            Self::Served(served) => served.kill(true, dice, wait),
            Self::Bucket(bucket) => {
                let all =
                    FaultRates { reset_before: 50, reset_after: 25, slow_down: 25, ..FaultRates::default() };
                bucket.set_faults(Kind::ALL, all);
                wait(length);
                self.annoy(true);
            }
        }
        true
    }
}

/// What would outlive this process: a mount, a server, their folder.
#[derive(Debug, Default)]
pub struct Leftovers {
    mount: Option<PathBuf>,
    folder: PathBuf,
    /// The file with the process id of a running server.
    server: Option<PathBuf>,
    /// The mark of running servers.
    mark: Option<String>,
}

impl Leftovers {
    pub fn remove(self) {
        self.mark.iter().for_each(|mark| served::end(mark));
        self.mount.iter().for_each(|folder| unmount(folder));
        let pid = self.server.and_then(|file| fs::read_to_string(file).ok());
        if let Some(pid) = pid.and_then(|text| text.lines().next()?.parse().ok()) {
            super::process::signal(pid, Signal::QUIT);
            while Path::new(&format!("/proc/{pid}")).exists() {
                super::stage::pause(Duration::from_millis(10));
            }
        }
        if !self.folder.as_os_str().is_empty() {
            let _ = fs::remove_dir_all(self.folder);
        }
    }
}

/// A directory; on a file system of its own, which can be filled, if this process may mount one.
pub struct Disk {
    folder: TempDir,
    mounted: bool,
}

impl Disk {
    pub fn new(megabytes: u32) -> Self {
        let folder = tempfile::tempdir().expect("a folder");
        let size = format!("size={megabytes}m,mode=0700");
        let mut mount = Command::new("mount");
        mount.args(["-t", "tmpfs", "-o", &size, "qo-attack"]).arg(folder.path());
        let mounted = mount.stdout(Stdio::null()).stderr(Stdio::null()).status();
        Self { folder, mounted: mounted.is_ok_and(|status| status.success()) }
    }

    /// Fills the disk for some time.
    fn fill(&self, length: Duration, wait: impl FnOnce(Duration)) -> bool {
        if !self.mounted {
            return false;
        }
        let ballast = self.folder.path().join("ballast");
        let mut file = File::create(&ballast).expect("a file");
        let block = vec![b'x'; 1 << 20];
        while file.write_all(&block).is_ok() {}
        // Fill the last pages byte by byte.
        while file.write_all(b"x").is_ok() {}
        wait(length);
        fs::remove_file(ballast).expect("removed");
        true
    }
}

impl Drop for Disk {
    fn drop(&mut self) {
        if self.mounted {
            unmount(self.folder.path());
        }
    }
}

fn unmount(folder: &Path) {
    let _ = Command::new("umount").arg("-l").arg(folder).status();
}

/// A PostgreSQL server of this test alone: other tests use the one of `make test` meanwhile.
pub struct Server {
    folder: TempDir,
    programs: PathBuf,
    owner: Option<(u32, u32)>,
    port: u16,
    process: Option<Child>,
}

fn variable(name: &str) -> PathBuf {
    let value = std::env::var_os(name);
    value.map(PathBuf::from).unwrap_or_else(|| {
        panic!("{name} must say where PostgreSQL is; `make test` knows: scripts/with_postgres.py")
    })
}

/// A port below those that the kernel gives to outgoing connections: none of those takes it during a restart.
fn free_port() -> u16 {
    free_ports(1)[0]
}

/// Several such ports.
pub fn free_ports(count: usize) -> Vec<u16> {
    let from = 10_000 + (std::process::id() % 9_000) as u16;
    let is_free = |port: &u16| TcpListener::bind(("127.0.0.1", *port)).is_ok();
    let free: Vec<u16> = (from..20_000).filter(is_free).take(count).collect();
    assert_eq!(free.len(), count, "free ports");
    free
}

impl Server {
    pub fn start() -> Self {
        let programs = variable("QO_TEST_POSTGRES_BIN_15");
        let folder = tempfile::tempdir().expect("a folder");
        // A server does not run as root.
        let owner = rustix::process::geteuid().is_root().then(|| {
            let other = fs::metadata(variable("QO_TEST_POSTGRES_DIR_15")).expect("a data directory");
            chown(folder.path(), Some(other.uid()), Some(other.gid())).expect("its own");
            (other.uid(), other.gid())
        });
        let mut server = Self { folder, programs, owner, port: free_port(), process: None };
        let mut init = server.command("initdb");
        init.args(["-U", "postgres", "--auth=trust", "--no-locale", "-E", "UTF8", "-N", "-D"]);
        let made = init.arg(server.data()).stdout(Stdio::null()).output().expect("initdb runs");
        assert!(made.status.success(), "{}", String::from_utf8_lossy(&made.stderr));
        server.process = Some(server.postgres());
        server.wait();
        server
    }

    fn data(&self) -> PathBuf {
        self.folder.path().join("data")
    }

    fn command(&self, program: &str) -> Command {
        let mut command = Command::new(self.programs.join(program));
        command.current_dir("/").stdin(Stdio::null());
        if let Some((user, group)) = self.owner {
            command.uid(user).gid(group);
        }
        command
    }

    fn postgres(&self) -> Child {
        let log =
            File::options().create(true).append(true).open(self.folder.path().join("log")).expect("a log");
        let mut command = self.command("postgres");
        command.arg("-D").arg(self.data()).args([
            "-p",
            &self.port.to_string(),
            "-h",
            "127.0.0.1",
            "-k",
            "",
            "-F",
        ]);
        command.args(["-c", "max_connections=200"]).stdout(Stdio::null()).stderr(log);
        command.process_group(0).spawn().expect("postgres starts")
    }

    pub fn url(&self) -> String {
        format!("postgres://postgres@127.0.0.1:{}/postgres", self.port)
    }

    /// Runs a statement on the server; returns whether that succeeded.
    fn sql(&self, statements: &str) -> bool {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
        runtime.block_on(async {
            let Ok((client, connection)) = tokio_postgres::connect(&self.url(), NoTls).await else {
                return false;
            };
            tokio::spawn(connection);
            client.batch_execute(statements).await.is_ok()
        })
    }

    fn wait(&self) {
        crate::fixture::until("the server answers", || self.sql("SELECT 1"));
    }

    /// Ends it without a checkpoint, as a crash does, and starts it again.
    fn crash(&mut self) {
        if let Some(mut process) = self.process.take() {
            super::process::signal(process.id(), Signal::QUIT);
            process.wait().expect("it ends");
        }
        self.process = Some(self.postgres());
        self.wait();
    }

    /// Cuts every connection of qo.
    pub fn cut(&self) -> bool {
        self.sql("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name = 'qo'")
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        if let Some(mut process) = self.process.take() {
            super::process::signal(process.id(), Signal::QUIT);
            let _ = process.wait();
        }
    }
}

/// A library that shifts the wall clock of a process that loads it, and no other clock. None where there is no
/// compiler.
pub fn wrong_clock(folder: &Path) -> Option<PathBuf> {
    let (source, library) = (folder.join("clock.c"), folder.join("clock.so"));
    fs::write(&source, include_str!("clock.c")).expect("written");
    let mut compile = Command::new("cc");
    compile.args(["-shared", "-fPIC", "-O1", "-o"]).arg(&library).arg(&source).stderr(Stdio::null());
    compile.status().is_ok_and(|status| status.success()).then_some(library)
}
