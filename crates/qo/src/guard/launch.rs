//! How a guard starts its program.
//!
//! On Linux the program must get SIGKILL when its guard is gone. A process can only ask for that itself, so the guard
//! starts this executable again, as `guard launch`, which
//!
//! 1. sets its parent-death signal, which stays when it becomes another program;
//! 2. ends if its parent is not the guard any more: then the signal would never come;
//! 3. puts the payload's pipe in the place of its stdin, which is the socket on which it reports;
//! 4. becomes the program. The socket closes by that; if it cannot, it says why on it.

use rustix::process::Pid;
use std::ffi::{OsStr, OsString};
use std::io::{self, Read, Write};
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Command, Stdio};
use tokio::io::AsyncWriteExt;
use tokio::net::unix::pipe;

/// Says that this process is to become the program.
pub const WORD: &str = "launch";
/// This executable, even if its file was replaced.
pub const OWN: &str = "/proc/self/exe";

/// A program that was started.
pub struct Launched {
    pub program: Pid,
    stdin: Option<OwnedFd>,
    /// The socket on which it says why it could not be started, and the read end of its stdin, which it opens by its
    /// number in this process.
    report: Option<(UnixStream, io::PipeReader)>,
}

impl Launched {
    /// Starts a command, in a process group of its own.
    pub fn start(mark: Option<&OsString>, command: &[OsString]) -> io::Result<Self> {
        let (read, write) = io::pipe()?;
        let launches = cfg!(target_os = "linux") && Path::new(OWN).exists();
        let (mut starting, report) = if launches {
            let (ours, theirs) = UnixStream::pair()?;
            let mut starting = Command::new(OWN);
            starting.arg0(super::NAME).args(["guard", WORD]);
            starting.args([std::process::id().to_string(), read.as_raw_fd().to_string()]);
            starting.arg("--").args(command).stdin(OwnedFd::from(theirs));
            (starting, Some((ours, read)))
        } else {
            let mut starting = Command::new(&command[0]);
            starting.args(&command[1..]).stdin(Stdio::from(read));
            (starting, None)
        };
        starting.envs(mark.map(|mark| (super::keeper::VARIABLE, mark)));
        let child = starting.process_group(0).spawn()?;
        Ok(Self { program: Pid::from_child(&child), stdin: Some(write.into()), report })
    }

    /// Writes the program's stdin in the background. A program that does not read all of it may close its end.
    pub fn feed(&mut self, payload: Vec<u8>) -> io::Result<()> {
        if let Some(stdin) = self.stdin.take() {
            let mut stdin = pipe::Sender::from_owned_fd(stdin)?;
            tokio::spawn(async move { stdin.write_all(&payload).await.ok() });
        }
        Ok(())
    }

    /// Why it could not be started, if so. Call it when the program has ended.
    pub fn failure(self) -> Option<String> {
        let (mut report, _) = self.report?;
        let mut text = String::new();
        // The writer is gone.
        report.set_nonblocking(true).ok()?;
        let _ = report.read_to_string(&mut text);
        (!text.is_empty()).then_some(text)
    }
}

/// Why a program could not be started, in one line.
pub fn failure(program: &OsStr, error: &io::Error) -> String {
    format!("cannot start {}: {error}", program.to_string_lossy()).replace('\n', " ")
}

/// Becomes the program, in a process that the guard of this id started. `stdin` is the number of the program's stdin in
/// the guard.
#[cfg(target_os = "linux")]
pub fn become_program(guard: &OsStr, stdin: &OsStr, command: &[OsString]) -> io::Result<u8> {
    use rustix::process::{Signal, getppid, set_parent_process_death_signal};
    // Where a sandbox forbids this the program still runs: its guard is there.
    let _ = set_parent_process_death_signal(Some(Signal::KILL));
    let (guard, stdin) = (guard.to_string_lossy(), stdin.to_string_lossy());
    if getppid().map(|parent| parent.as_raw_nonzero().to_string()).as_deref() != Some(&*guard) {
        return Ok(127);
    }
    // Closed when this process becomes the program.
    let mut report = UnixStream::from(io::stdin().as_fd().try_clone_to_owned()?);
    let place_stdin = || -> io::Result<()> {
        let stdin = std::fs::File::open(format!("/proc/{guard}/fd/{stdin}"))?;
        Ok(rustix::stdio::dup2_stdin(&stdin)?)
    };
    let error = match place_stdin() {
        Ok(()) => Command::new(&command[0]).args(&command[1..]).exec(),
        Err(error) => error,
    };
    report.write_all(failure(&command[0], &error).as_bytes())?;
    Ok(127)
}

#[cfg(not(target_os = "linux"))]
pub fn become_program(_: &OsStr, _: &OsStr, _: &[OsString]) -> io::Result<u8> {
    Err(io::Error::new(io::ErrorKind::Unsupported, "only Linux launches programs this way"))
}
