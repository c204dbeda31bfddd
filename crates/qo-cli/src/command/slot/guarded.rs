//! A command under a guard: see `qo::guard` for the protocol.

use crate::host::Host;
use qo::{Error, ErrorKind, Result};
use rustix::time::{ClockId, clock_gettime};
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::process::Stdio;
use std::time::Duration;
use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader};
use tokio::net::unix::{OwnedReadHalf, OwnedWriteHalf};
use tokio::process::{Child, Command};
use tokio::time::Instant;

/// How a command ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Ended {
    /// By itself.
    Exited(i32),
    /// By a signal.
    Killed(i32),
    /// It did not start.
    Failed(String),
}

/// A command that runs.
pub struct Guarded {
    guard: Child,
    heard: BufReader<OwnedReadHalf>,
    tell: OwnedWriteHalf,
    line: Vec<u8>,
    /// The command, or its guard, got this signal from another process.
    signalled: Option<i32>,
    /// Kept open for the command.
    _stdin: Option<OwnedFd>,
}

fn cannot(what: &str, error: &std::io::Error) -> Error {
    Error::new(ErrorKind::Unavailable, format!("cannot {what}: {error}"))
}

impl Guarded {
    /// Starts a command that may run until the given moment.
    pub async fn start(
        command: &[String],
        variables: &[(&str, String)],
        stdin: Option<OwnedFd>,
        until: Instant,
        host: &Host,
    ) -> Result<Self> {
        let executable = host.guard().map_err(|error| cannot("find the guard", &error))?;
        let (ours, theirs) = UnixStream::pair().map_err(|error| cannot("make a socket", &error))?;
        ours.set_nonblocking(true).map_err(|error| cannot("make a socket", &error))?;
        let ours = tokio::net::UnixStream::from_std(ours).map_err(|error| cannot("make a socket", &error))?;
        let guard = Command::from(qo::guard::command(&executable))
            .args(with_stdin(command, stdin.as_ref()))
            .envs(variables.iter().map(|(name, value)| (name, value)))
            .stdin(Stdio::from(OwnedFd::from(theirs)))
            .spawn()
            .map_err(|error| cannot("start the guard", &error))?;
        let (heard, tell) = ours.into_split();
        let heard = BufReader::new(heard);
        let mut guarded = Self { guard, heard, tell, line: Vec::new(), signalled: None, _stdin: stdin };
        guarded.until(until).await;
        guarded.say("payload 0\n").await;
        Ok(guarded)
    }

    async fn say(&mut self, text: &str) {
        // If the guard is gone, `ended` notices.
        let _ = self.tell.write_all(text.as_bytes()).await;
    }

    /// Lets the command run until a later moment.
    pub async fn until(&mut self, until: Instant) {
        let now = clock_gettime(ClockId::Monotonic);
        let part = |number: i64| u64::try_from(number).unwrap_or(0);
        let now_ns = part(now.tv_sec) * 1_000_000_000 + part(now.tv_nsec);
        let left = until.saturating_duration_since(Instant::now());
        let left_ns = u64::try_from(left.as_nanos()).unwrap_or(u64::MAX);
        self.say(&format!("until {}\n", now_ns.saturating_add(left_ns))).await;
    }

    /// Tells the command to stop, and kills it after the grace.
    pub async fn stop(&mut self, grace: Duration) {
        self.say(&format!("stop {}\n", grace.as_millis())).await;
    }

    /// The signal that asked the command to end, if another process sent it.
    pub fn signalled(&self) -> Option<i32> {
        self.signalled
    }

    /// Waits for the end of the command. May be dropped and called again.
    pub async fn ended(&mut self) -> Result<Ended> {
        loop {
            // If this future is dropped, the part of a line that was read stays in `line`.
            let read = self.heard.read_until(b'\n', &mut self.line).await;
            if read.is_err() || !self.line.ends_with(b"\n") {
                let status = self.guard.wait().await.map_err(|error| cannot("wait for the guard", &error))?;
                // The slot is given back after this: no process of the command may run then.
                qo::guard::kill_left_behind(&[]).await;
                return Err(Error::new(ErrorKind::Internal, format!("the guard ended early: {status}")));
            }
            let line = String::from_utf8_lossy(&std::mem::take(&mut self.line)).into_owned();
            let (word, rest) = line.trim_end().split_once(' ').unwrap_or_default();
            let ended = match (word, rest.parse()) {
                ("exited", Ok(code)) => Ended::Exited(code),
                ("killed", Ok(signal)) => Ended::Killed(signal),
                ("failed", _) => Ended::Failed(rest.to_owned()),
                ("signalled", Ok(number)) => {
                    self.signalled = Some(number);
                    continue;
                }
                _ => continue,
            };
            let _ = self.guard.wait().await;
            return Ok(ended);
        }
    }
}

/// The command, with its own stdin in place of the guard's. A shell puts it there.
fn with_stdin(command: &[String], stdin: Option<&OwnedFd>) -> Vec<String> {
    let Some(stdin) = stdin else { return command.to_vec() };
    let number = stdin.as_raw_fd();
    // Not every shell accepts descriptor numbers of two digits.
    let script = match number {
        0..=9 => format!("exec \"$@\" <&{number} {number}<&-"),
        _ => format!("exec \"$@\" </dev/fd/{number}"),
    };
    ["sh".to_owned(), "-c".to_owned(), script, "sh".to_owned()]
        .into_iter()
        .chain(command.iter().cloned())
        .collect()
}
