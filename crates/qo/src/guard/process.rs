//! A process under a guard, as its worker sees it.

use super::{FAILED, keeper, kill_left_behind, monotonic_ns};
use crate::Context;
use crate::worker::lease::Lease;
use rustix::process::{Pid, Signal, kill_process_group};
use std::fmt;
use std::io::{self, Write};
use std::net::Shutdown;
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::process::{Command, Stdio};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader};
use tokio::process::{ChildStderr, ChildStdout};
use tokio::task::JoinHandle;
use tokio::time::Instant;

/// A deadline that never comes.
pub const NEVER: u64 = u64::MAX;

/// The worker's end of the socket to a guard. When it is dropped the guard kills its program.
#[derive(Debug)]
pub(crate) struct Control(Mutex<UnixStream>);

impl Control {
    /// Sets the deadline of the program.
    pub fn until(&self, at: Instant) {
        self.say(&format!("until {}\n", until_ns(at)));
    }

    /// Takes the deadline away.
    pub fn never(&self) {
        self.say(&format!("until {NEVER}\n"));
    }

    pub fn stop(&self, grace: Duration) {
        self.say(&format!("stop {}\n", grace.as_millis()));
    }

    /// Tells the guard that the worker is shutting down, perhaps because of a signal to all processes that has not
    /// reached the guard yet. It waits this long for that signal.
    pub fn linger(&self, patience: Duration) {
        self.say(&format!("linger {}\n", patience.as_millis()));
    }

    fn say(&self, line: &str) {
        let mut stream = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        // A guard that is gone, or does not read, acts on its last deadline.
        let _ = stream.write_all(line.as_bytes());
    }
}

impl Drop for Control {
    fn drop(&mut self) {
        let stream = self.0.get_mut().unwrap_or_else(PoisonError::into_inner);
        let _ = stream.shutdown(Shutdown::Both);
    }
}

/// A moment on the machine's monotonic clock. If the process stalls between the two readings the result is too early.
pub(crate) fn until_ns(at: Instant) -> u64 {
    let now_ns = monotonic_ns();
    let left = at.saturating_duration_since(Instant::now());
    now_ns.saturating_add(u64::try_from(left.as_nanos()).unwrap_or(u64::MAX))
}

/// Signals that end processes, by name.
const NAMES: [(Signal, &str); 10] = [
    (Signal::ABORT, "SIGABRT"),
    (Signal::BUS, "SIGBUS"),
    (Signal::FPE, "SIGFPE"),
    (Signal::HUP, "SIGHUP"),
    (Signal::ILL, "SIGILL"),
    (Signal::INT, "SIGINT"),
    (Signal::KILL, "SIGKILL"),
    (Signal::QUIT, "SIGQUIT"),
    (Signal::SEGV, "SIGSEGV"),
    (Signal::TERM, "SIGTERM"),
];

/// How a guarded process ended, as its guard reported.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Ended {
    /// It exited with this code.
    Exited(i32),
    /// This signal killed it.
    Killed(i32),
    /// It could not be started.
    Failed(String),
    /// The guard was gone before it reported.
    Unguarded,
}

impl fmt::Display for Ended {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Exited(code) => write!(f, "exit code {code}"),
            Self::Killed(signal) => match NAMES.iter().find(|(number, _)| number.as_raw() == *signal) {
                Some((_, name)) => write!(f, "killed by signal {signal} ({name})"),
                None => write!(f, "killed by signal {signal}"),
            },
            Self::Failed(why) => f.write_str(why),
            Self::Unguarded => f.write_str("its guard is gone"),
        }
    }
}

/// A process that runs under a guard, for as long as this lives. Programs run so, each for one job; a handler may keep
/// one for many jobs.
pub struct Guarded {
    pub(crate) control: Arc<Control>,
    said: BufReader<tokio::net::UnixStream>,
    /// Ends when neither the guard nor a process below it is left.
    pub(crate) gone: JoinHandle<()>,
    pub(crate) stdout: Option<ChildStdout>,
    pub(crate) stderr: Option<ChildStderr>,
    /// It, or its guard, got this signal from another process than its worker.
    pub(crate) signalled: Option<i32>,
    /// Its process id, once the guard has told it.
    id: Option<i32>,
    /// The lease whose end is its deadline.
    lease: Option<Arc<Lease>>,
    /// The line of the guard that is being read.
    line: Vec<u8>,
}

impl fmt::Debug for Guarded {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Guarded").field("id", &self.id).finish_non_exhaustive()
    }
}

impl Guarded {
    /// Starts a process that has no deadline yet: see [`follow`](Self::follow). `guard` is a
    /// [guard's command](super::command) with the command to run. `mark` is a variable that the process and its
    /// descendants have in their environment, and no other process has.
    pub async fn start(guard: Command, mark: (&'static str, String)) -> io::Result<Self> {
        Self::start_until(guard, vec![mark], NEVER, "", ()).await
    }

    /// Starts a process with a deadline on the monotonic clock, and this line on its stdin. `held` is dropped when no
    /// process of it is left.
    pub(crate) async fn start_until(
        mut guard: Command,
        marks: Vec<(&'static str, String)>,
        until_ns: u64,
        line: &str,
        held: impl Send + 'static,
    ) -> io::Result<Self> {
        let (ours, theirs) = UnixStream::pair()?;
        ours.set_nonblocking(true)?;
        let clone = ours.try_clone()?;
        guard.envs(marks.iter().map(|(name, value)| (name, value)));
        guard.stdin(Stdio::from(OwnedFd::from(theirs)));
        let mut child = tokio::process::Command::from(guard).spawn()?;
        let (stdout, stderr) = (child.stdout.take(), child.stderr.take());
        let gone = tokio::spawn(async move {
            let status = child.wait().await;
            // A guard that exits has ended its program. A guard that was killed, or that failed before, has not.
            if status.is_ok_and(|status| status.code().is_none_or(|code| code == i32::from(FAILED))) {
                kill_left_behind(&marks).await;
            }
            drop(held);
        });
        let control = Arc::new(Control(Mutex::new(clone)));
        let mut stream = tokio::net::UnixStream::from_std(ours)?;
        stream.write_all(format!("until {until_ns}\npayload {}\n", line.len() + 1).as_bytes()).await?;
        stream.write_all(line.as_bytes()).await?;
        stream.write_all(b"\n").await?;
        let said = BufReader::new(stream);
        Ok(Self {
            control,
            said,
            gone,
            stdout,
            stderr,
            signalled: None,
            id: None,
            lease: None,
            line: Vec::new(),
        })
    }

    /// From now on its deadline is the end of the lease of this attempt: if that is over, the guard kills it, even if
    /// this process is stopped or dead.
    pub fn follow(&mut self, context: &Context) {
        let lease = &context.state().lease;
        if self.lease.as_ref().is_none_or(|old| !Arc::ptr_eq(old, lease)) {
            self.leave();
            lease.guard(&self.control);
            self.lease = Some(Arc::clone(lease));
        }
    }

    /// It runs nothing of the attempt that it followed: it has no deadline until it follows another one. A process that
    /// is kept for many jobs need not leave the lease of one job before it follows the next.
    pub fn leave(&mut self) {
        if let Some(lease) = self.lease.take() {
            lease.unguard(&self.control);
        }
    }

    /// Whether it has a deadline: it follows an attempt.
    pub fn follows(&self) -> bool {
        self.lease.is_some()
    }

    /// Asks it to end (SIGTERM), and kills it after the grace.
    pub fn stop(&self, grace: Duration) {
        self.control.stop(grace);
    }

    /// Its process id, once it has started and [`ended`](Self::ended) was polled.
    pub fn id(&self) -> Option<i32> {
        self.id
    }

    /// Waits until neither it nor a process that it started is left, and returns how it ended. May be dropped and
    /// called again.
    pub async fn ended(&mut self) -> Ended {
        loop {
            // If this future is dropped, the next call reads the rest of the line.
            let is_read = self.said.read_until(b'\n', &mut self.line).await.is_ok_and(|bytes| bytes > 0);
            let line = if is_read { std::mem::take(&mut self.line) } else { Vec::new() };
            if !is_read {
                // The guard was killed, and the program must not go on without it. Where processes carry no mark, only
                // its process group is known.
                if let (Some(group), None) = (self.id.and_then(Pid::from_raw), keeper::mark()) {
                    let _ = kill_process_group(group, Signal::KILL);
                }
                let _ = (&mut self.gone).await;
                return Ended::Unguarded;
            }
            let text = String::from_utf8_lossy(&line);
            let (word, rest) = text.trim_end().split_once(' ').unwrap_or_default();
            match (word, rest.parse::<i32>()) {
                ("started", Ok(id)) => self.id = Some(id),
                ("signalled", Ok(number)) => self.signalled = Some(number),
                ("exited", Ok(code)) => return Ended::Exited(code),
                ("killed", Ok(signal)) => return Ended::Killed(signal),
                ("failed", _) => return Ended::Failed(rest.to_owned()),
                _ => {}
            }
        }
    }
}
