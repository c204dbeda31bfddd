//! Program tasks: any executable as a handler.
//!
//! The payload is on its stdin, as one line of JSON. Its stdout is the output: JSON if it is JSON, else a string.
//! Empty stdout is `null`. Stdout that is not UTF-8 is `{"base64": "…"}`, without loss, and [`bytes`] reads it. Exit
//! code 0 succeeds, 75 retries, 100 fails for good, any other retries. The environment has `QO_JOB_ID`, `QO_ATTEMPT`,
//! `QO_FENCE_TOKEN`, `QO_TASK` and `QO_KEY` (empty if there is none).
//!
//! The end of its stderr is the error, and the last 64 KiB of it are the attempt's log, which can be read while it runs. The
//! first line of a log says how many bytes before it were [cut]; bytes that are not UTF-8 are shown as `\xNN`.
//!
//! It runs under a [`guard`]: neither the program nor a process that it started outlives the lease of the job. To stop
//! the program, the guard sends SIGTERM, and SIGKILL after the grace. When the program ends, the guard kills everything
//! that it leaves behind, daemons included.
//!
//! Exit code 0 is no success if the program was told to stop: by its worker at its timeout, or by a signal to the whole
//! tree of processes, as systemd sends it by default. The job runs again. If its worker is shutting down, no attempt is
//! used.

mod executable;
mod log;
mod output;

pub(crate) use executable::find;
pub(crate) use log::AttemptLogs;
pub use log::{cut, cut_mark, news};
pub use output::bytes;

use crate::CancelReason;
use crate::context::Context;
use crate::failure::Failure;
use crate::guard::{self, keeper, monotonic_ns};
use crate::handler::Handler;
use futures::future::{BoxFuture, FusedFuture, FutureExt};
use log::{Log, Tail};
use output::Head;
use qo_core::{Error, Json, Result};
use rustix::process::{Pid, Signal, kill_process_group};
use std::ffi::OsStr;
use std::io::{self, Write};
use std::net::Shutdown;
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::pin::pin;
use std::process::Stdio;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader};
use tokio::process::{Child, Command};
use tokio::task::JoinHandle;
use tokio::time::{Instant, timeout};

/// "Try again": `EX_TEMPFAIL`.
const EXIT_RETRY: i32 = 75;
/// "Give up."
const EXIT_FAIL: i32 = 100;
/// How long a pipe may stay open after every process that wrote to it should be gone.
const PIPE_PATIENCE: Duration = Duration::from_millis(500);
/// How long a signal to a whole tree of processes may take from the first process to the last.
const SIGNAL_PATIENCE: Duration = Duration::from_millis(250);
/// How many lines of stderr an error has at most, and how many bytes.
const ERROR_LINES: usize = 5;
const ERROR_BYTES: usize = 1 << 10;

/// A program as a handler.
#[derive(Clone)]
pub(crate) struct Program {
    logs: Arc<AttemptLogs>,
    command: Arc<[String]>,
    guard: PathBuf,
}

impl Program {
    /// Refuses a program that does not exist: every job of it would use up its attempts.
    pub fn new(logs: Arc<AttemptLogs>, command: Vec<String>, guard: Option<&Path>) -> Result<Self> {
        if command.first().is_none_or(String::is_empty) {
            return Err(Error::invalid("command", command.join(" "), "must name a program"));
        }
        if let Some(argument) = command.iter().find(|argument| argument.contains('\0')) {
            return Err(Error::invalid("command", argument, "must not contain a NUL"));
        }
        // It is started in the worker's own directory.
        find(&command[0], Path::new("")).map_err(|rule| Error::invalid("command", &command[0], rule))?;
        let guard = match guard {
            Some(guard) => guard.to_owned(),
            None => default_guard()?,
        };
        Ok(Self { logs, command: command.into(), guard })
    }
}

/// The current executable if it is `qo`, else `qo` on the `PATH`.
fn default_guard() -> Result<PathBuf> {
    let is_qo = std::env::current_exe().is_ok_and(|path| path.file_name() == Some(OsStr::new("qo")));
    let own = is_qo.then(guard::own_executable).and_then(io::Result::ok);
    own.or_else(|| find("qo", Path::new("")).ok()).ok_or_else(|| {
        let rule =
            "program tasks run under `qo guard`: put qo on the PATH, or name an executable that guards";
        Error::invalid("guard", "qo", rule)
    })
}

impl Handler for Program {
    fn call(&self, payload: Json, context: Context) -> BoxFuture<'static, Result<Json, Failure>> {
        let program = self.clone();
        Box::pin(async move {
            let mut running = match Running::start(&program, &payload, &context).await {
                Ok(running) => running,
                Err(failure) => return Err(not_started(failure, &context).await),
            };
            let mut log = Log::new(program.logs, context.fence_token(), running.stderr.clone());
            let ended = tokio::select! {
                biased;
                ended = running.end(&context) => ended,
                never = log.keep() => match never {},
            };
            let log = log.finish(context.job()).await;
            if let Some(failure) = running.cut_short(&ended, &context).await {
                return Err(failure);
            }
            judge(&ended, &running.stdout, &log)
        })
    }
}

/// The outcome of an attempt whose guard did not start. A signal to all processes may have ended the guard before it
/// installed its handlers; then the job is given back.
async fn not_started(failure: Failure, context: &Context) -> Failure {
    if context.state().worker_stops_within(SIGNAL_PATIENCE).await {
        context.state().cancel(CancelReason::ShuttingDown, Instant::now() + SIGNAL_PATIENCE);
    }
    failure
}

/// How a program ended, as its guard reported.
#[derive(Debug, PartialEq, Eq)]
enum Ended {
    Exited(i32),
    Killed(i32),
    /// It could not be started.
    Failed(String),
    /// The guard was gone before it reported.
    Unguarded,
}

impl Ended {
    /// Whether a signal that asks processes to end may have ended it, by the program's own exit: a shell exits with 128
    /// plus the signal.
    fn is_by_signal(&self) -> bool {
        let asks_to_end = |signal: i32| {
            [Signal::TERM, Signal::INT, Signal::HUP, Signal::QUIT].map(Signal::as_raw).contains(&signal)
        };
        match self {
            Self::Exited(code) => asks_to_end(code - 128),
            Self::Killed(signal) => asks_to_end(*signal),
            Self::Failed(_) => false,
            Self::Unguarded => true,
        }
    }
}

fn judge(ended: &Ended, stdout: &Head, log: &str) -> Result<Json, Failure> {
    let because = |what: String| match tail(log) {
        "" => what,
        tail => format!("{what}: {tail}"),
    };
    match ended {
        Ended::Exited(0) => stdout.output(),
        Ended::Exited(EXIT_FAIL) => Err(Failure::fail(because(format!("exit code {EXIT_FAIL}")))),
        Ended::Exited(EXIT_RETRY) => Err(Failure::retry(because(format!("exit code {EXIT_RETRY}")))),
        Ended::Exited(code) => Err(Failure::retry(because(format!("exit code {code}")))),
        Ended::Killed(signal) => Err(Failure::retry(because(format!("killed by signal {signal}")))),
        Ended::Failed(why) => Err(Failure::retry(why)),
        Ended::Unguarded => Err(Failure::retry(because("its guard is gone".to_owned()))),
    }
}

/// The last lines of a text.
fn tail(text: &str) -> &str {
    let text = text.trim_end();
    let mut from = text.rmatch_indices('\n').nth(ERROR_LINES - 1).map_or(0, |(at, _)| at + 1);
    if text.len() - from > ERROR_BYTES {
        from = text.ceil_char_boundary(text.len() - ERROR_BYTES);
    }
    text[from..].trim_start()
}

/// The worker's end of the socket to a guard. When it is dropped the guard kills its program.
#[derive(Debug)]
pub(crate) struct Control(Mutex<UnixStream>);

impl Control {
    /// Sets the deadline of the program.
    pub fn until(&self, at: Instant) {
        self.say(&format!("until {}\n", until_ns(at)));
    }

    fn stop(&self, grace: Duration) {
        self.say(&format!("stop {}\n", grace.as_millis()));
    }

    /// Tells the guard that the worker is shutting down, perhaps because of a signal to all processes that has not
    /// reached the guard yet.
    fn linger(&self) {
        self.say(&format!("linger {}\n", SIGNAL_PATIENCE.as_millis()));
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
fn until_ns(at: Instant) -> u64 {
    let now_ns = monotonic_ns();
    let left = at.saturating_duration_since(Instant::now());
    now_ns.saturating_add(u64::try_from(left.as_nanos()).unwrap_or(u64::MAX))
}

/// A program that runs under its guard.
struct Running {
    control: Arc<Control>,
    said: BufReader<tokio::net::UnixStream>,
    /// Ends when neither the guard nor a process of the program is left.
    guarded: JoinHandle<()>,
    child_stdout: Option<tokio::process::ChildStdout>,
    child_stderr: Option<tokio::process::ChildStderr>,
    stdout: Head,
    stderr: Tail,
    /// It was told to stop while it ran.
    stopped: bool,
    /// It, or its guard, got this signal from another process than its worker.
    signalled: Option<i32>,
}

impl Running {
    /// The outcome of an attempt whose program was told to stop, by its worker or by a signal to all processes. Many
    /// programs exit with 0 then although their work is not done. If the program ended before it was told, its exit
    /// code counts.
    async fn cut_short(&self, ended: &Ended, context: &Context) -> Option<Failure> {
        let attempt = context.state();
        match attempt.stopping().map(|stopping| stopping.reason) {
            Some(CancelReason::Cancelled | CancelReason::TimedOut | CancelReason::ShuttingDown)
                if self.stopped =>
            {
                return (*ended == Ended::Exited(0)).then_some(Failure::Cancelled);
            }
            // The job does not run again, so the exit code of the program counts.
            Some(CancelReason::Cancelled) => return None,
            _ => {}
        }
        let is_final = matches!(ended, Ended::Exited(EXIT_FAIL) | Ended::Failed(_));
        if is_final || (self.signalled.is_none() && !ended.is_by_signal()) {
            return None;
        }
        // The signal may reach the worker last.
        if attempt.worker_stops_within(SIGNAL_PATIENCE).await {
            attempt.cancel(CancelReason::ShuttingDown, Instant::now() + SIGNAL_PATIENCE);
            return Some(Failure::Cancelled);
        }
        let signal = self.signalled.filter(|_| *ended == Ended::Exited(0))?;
        Some(Failure::retry(format_args!(
            "exit code 0 after signal {signal}, which its worker did not send: its work may be unfinished"
        )))
    }

    async fn start(program: &Program, payload: &Json, context: &Context) -> Result<Self, Failure> {
        let cannot = |what: &str, error: io::Error| Failure::retry(format_args!("cannot {what}: {error}"));
        let (ours, theirs) = UnixStream::pair().map_err(|error| cannot("make a socket", error))?;
        ours.set_nonblocking(true).map_err(|error| cannot("make a socket", error))?;
        let shown = || format!("start the guard {}", program.guard.display());
        let mut child = spawn(program, theirs, context).map_err(|error| cannot(&shown(), error))?;
        let (child_stdout, child_stderr) = (child.stdout.take(), child.stderr.take());
        // The attempt lasts until the guard and its whole process tree are gone, even if the handler is dropped.
        let unfinished = context.unfinished();
        let marks =
            [("QO_JOB_ID", context.job().to_string()), ("QO_FENCE_TOKEN", context.fence_token().to_string())];
        let guarded = tokio::spawn(async move {
            let status = child.wait().await;
            // A guard that exits has ended its program. A guard that was killed, or that failed (2) before, has not.
            if status.is_ok_and(|status| status.code().is_none_or(|code| code == i32::from(guard::FAILED))) {
                guard::kill_left_behind(&marks).await;
            }
            drop(unfinished);
        });
        let clone = ours.try_clone().map_err(|error| cannot("make a socket", error))?;
        let control = Arc::new(Control(Mutex::new(clone)));
        let mut stream =
            tokio::net::UnixStream::from_std(ours).map_err(|error| cannot("make a socket", error))?;
        let until = until_ns(context.state().lease.over_at());
        let payload = payload.as_str();
        let header = format!("until {until}\npayload {}\n", payload.len() + 1);
        let talk = async {
            stream.write_all(header.as_bytes()).await?;
            stream.write_all(payload.as_bytes()).await?;
            stream.write_all(b"\n").await
        };
        talk.await.map_err(|error| cannot("talk to the guard", error))?;
        // Only now: a deadline must not be written into the middle of the payload.
        context.state().lease.guard(&control);
        let said = BufReader::new(stream);
        Ok(Self {
            control,
            said,
            guarded,
            child_stdout,
            child_stderr,
            stdout: Head::default(),
            stderr: Tail::default(),
            stopped: false,
            signalled: None,
        })
    }

    /// Waits for the end of the program, and for all that it wrote.
    async fn end(&mut self, context: &Context) -> Ended {
        let Self { control, said, guarded, child_stdout, child_stderr, stdout, stderr, stopped, signalled } =
            self;
        let reading = async {
            tokio::join!(stdout.read(child_stdout.as_mut()), stderr.read(child_stderr.as_mut()));
        };
        let mut reading = pin!(reading.fuse());
        let stopping = async {
            let stopping = context.state().told_to_stop().await;
            // A fifth of the grace is left for the guard's report and the log.
            let grace = stopping.drop_at.saturating_duration_since(Instant::now()) * 4 / 5;
            control.stop(grace);
            *stopped = true;
            std::future::pending::<()>().await;
        };
        let lingering = async {
            context.state().worker_stops().await;
            control.linger();
            std::future::pending::<()>().await;
        };
        let mut ended = pin!(said_of(said, signalled, guarded));
        let (mut stopping, mut lingering) = (pin!(stopping), pin!(lingering));
        let ended = loop {
            tokio::select! {
                biased;
                ended = &mut ended => break ended,
                () = &mut reading, if !reading.is_terminated() => {}
                () = &mut stopping => unreachable!("it pends"),
                () = &mut lingering => unreachable!("it pends"),
            }
        };
        if !reading.is_terminated() {
            // A process that is out of the guard's reach may hold the pipes open for ever.
            let _ = timeout(PIPE_PATIENCE, reading).await;
        }
        ended
    }
}

/// Reads what the guard reports of the program, to its end.
async fn said_of(
    said: &mut BufReader<tokio::net::UnixStream>,
    signalled: &mut Option<i32>,
    guarded: &mut JoinHandle<()>,
) -> Ended {
    let mut group = None;
    let mut line = String::new();
    loop {
        line.clear();
        if !said.read_line(&mut line).await.is_ok_and(|bytes| bytes > 0) {
            // The guard was killed, and the program must not go on without it. Where processes carry no mark, only its
            // process group is known.
            if let (Some(group), None) = (group.and_then(Pid::from_raw), keeper::mark()) {
                let _ = kill_process_group(group, Signal::KILL);
            }
            let _ = guarded.await;
            return Ended::Unguarded;
        }
        let (word, rest) = line.trim_end().split_once(' ').unwrap_or_default();
        match (word, rest.parse::<i32>()) {
            ("started", Ok(pid)) => group = Some(pid),
            ("signalled", Ok(number)) => *signalled = Some(number),
            ("exited", Ok(code)) => return Ended::Exited(code),
            ("killed", Ok(signal)) => return Ended::Killed(signal),
            ("failed", _) => return Ended::Failed(rest.to_owned()),
            _ => {}
        }
    }
}

/// Starts the guard, which waits for the payload.
fn spawn(program: &Program, theirs: UnixStream, context: &Context) -> io::Result<Child> {
    let mut command = Command::from(guard::command(&program.guard));
    command
        .args(program.command.iter())
        .env("QO_JOB_ID", context.job().to_string())
        .env("QO_ATTEMPT", context.attempt().to_string())
        .env("QO_FENCE_TOKEN", context.fence_token().to_string())
        .env("QO_TASK", &**context.task())
        .env("QO_KEY", context.key().map_or("", |key| key))
        .stdin(Stdio::from(OwnedFd::from(theirs)))
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    command.spawn()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_error_has_the_last_lines() {
        assert_eq!(tail("a\nb\n"), "a\nb");
        assert_eq!(tail("1\n2\n3\n4\n5\n6\n7\n\n"), "3\n4\n5\n6\n7");
        assert_eq!(tail(&"ü".repeat(10_000)).len(), ERROR_BYTES);
        assert_eq!(tail(""), "");
    }
}
