//! The demo's worker processes.

use super::evidence::{Kill, records_file};
use super::plan::Names;
use super::record::unusable;
use crate::host::Host;
use crate::machine::monotonic_ns;
use qo::core::ErrorKind;
use qo::{Error, Result};
use std::fs::File;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Stdio};
use std::time::Duration;

/// How long workers have to end by themselves.
const PATIENCE: Duration = Duration::from_secs(5);

/// The worker processes. None outlives this value, nor the process that holds it: they end when their stdin closes.
#[derive(Debug)]
pub struct Fleet {
    members: Vec<Member>,
}

/// One worker process.
#[derive(Debug)]
pub struct Member {
    /// Its name without the prefix of the run.
    pub name: String,
    /// Its process id.
    pub pid: u32,
    /// When it was killed, on the machine's monotonic clock.
    pub killed_ns: Option<u64>,
    child: Child,
    log: PathBuf,
}

impl Fleet {
    /// Starts workers on a store. The workers and their jobs write to files in a folder.
    pub fn start(count: usize, host: &Host, store: &str, names: &Names, folder: &Path) -> Result<Self> {
        let mut fleet = Self { members: Vec::new() };
        for number in 1..=count {
            fleet.members.push(Member::start(number, host, store, names, folder)?);
        }
        Ok(fleet)
    }

    /// All of them, also those that were killed.
    pub fn members(&self) -> &[Member] {
        &self.members
    }

    /// Kills one with SIGKILL, and waits until it is gone.
    pub fn kill(&mut self, name: &str) -> Result<Kill> {
        let failed = |error| Error::new(ErrorKind::Internal, format!("{name} cannot be killed: {error}"));
        let member = self.members.iter_mut().find(|member| member.name == name);
        let member = member.ok_or_else(|| Error::new(ErrorKind::NotFound, format!("no worker {name}")))?;
        member.child.kill().and_then(|()| member.child.wait()).map_err(failed)?;
        let at_ns = monotonic_ns();
        member.killed_ns = Some(at_ns);
        Ok(Kill { worker: name.to_owned(), at_ns })
    }

    /// An error if a worker has ended that the demo did not kill.
    pub fn check(&mut self) -> Result<()> {
        for member in self.members.iter_mut().filter(|member| member.killed_ns.is_none()) {
            if let Ok(Some(status)) = member.child.try_wait() {
                let said = std::fs::read_to_string(&member.log).unwrap_or_default();
                let last: Vec<&str> = said.lines().rev().take(5).collect();
                let said: String = last.into_iter().rev().map(|line| format!("\n  {line}")).collect();
                let what = format!("{} ended by itself, {status}:{said}", member.name);
                return Err(Error::new(ErrorKind::Internal, what));
            }
        }
        Ok(())
    }

    /// Lets all of them end, and kills those that do not.
    pub async fn end(mut self) {
        for member in &mut self.members {
            drop(member.child.stdin.take());
        }
        let all_ended = async {
            for member in &mut self.members {
                while matches!(member.child.try_wait(), Ok(None)) {
                    tokio::time::sleep(Duration::from_millis(5)).await;
                }
            }
        };
        // The drop of this value kills those that are left.
        let _ = tokio::time::timeout(PATIENCE, all_ended).await;
    }
}

impl Drop for Fleet {
    fn drop(&mut self) {
        for member in &mut self.members {
            // It may have ended by itself.
            let _ = member.child.kill();
            let _ = member.child.wait();
        }
    }
}

impl Member {
    fn start(number: usize, host: &Host, store: &str, names: &Names, folder: &Path) -> Result<Self> {
        let name = format!("worker-{number}");
        let failed = |error| Error::new(ErrorKind::Unavailable, format!("{name} does not start: {error}"));
        let log = folder.join(format!("{name}.log"));
        let stderr = File::create(&log).map_err(|error| unusable(&log, &error))?;
        let mut command = host.again().map_err(failed)?;
        command
            .args(["demo-worker", "--number", &number.to_string(), "--prefix", names.prefix(), "--records"])
            .arg(records_file(folder, &name))
            // In the environment, not as an argument: a list of processes must not show the password that the URL may
            // contain.
            .env("QO_STORE", store)
            .env("QO_LOG", "warn")
            .env_remove("QO_CONFIG")
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .stderr(stderr)
            // The demo handles Ctrl-C, and then ends its workers.
            .process_group(0);
        let child = command.spawn().map_err(failed)?;
        Ok(Self { pid: child.id(), name, killed_ns: None, child, log })
    }
}
