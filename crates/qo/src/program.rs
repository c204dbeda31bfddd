//! Program tasks: any executable as a handler.
//!
//! The payload is on its stdin, as one line of JSON. Its stdout is the output: JSON if it is JSON, else a string.
//! Empty stdout is `null`. Stdout that is not UTF-8 is `{"base64": "…"}`, without loss, and [`bytes`] reads it. Exit
//! code 0 succeeds, 75 retries, 100 fails for good, any other retries. The environment has `QO_JOB_ID`, `QO_ATTEMPT`,
//! `QO_FENCE_TOKEN`, `QO_TASK` and `QO_KEY` (empty if there is none), and `TRACEPARENT` if the job was submitted with one.
//! A `TRACEPARENT` of the worker's own environment is not handed on.
//!
//! The end of its stderr is the error, and the last 64 KiB of it are the attempt's log, which can be read while it runs. The
//! first line of a log says how many bytes before it were [cut](crate::log::cut); bytes that are not UTF-8 are shown as `\xNN`.
//!
//! It runs under a [`guard`]: neither the program nor a process that it started outlives the lease of the job. To stop
//! the program, the guard sends SIGTERM, and SIGKILL after the grace. When the program ends, the guard kills everything
//! that it leaves behind, daemons included.
//!
//! Exit code 0 is no success if the program was told to stop: by its worker at its timeout, or by a signal to the whole
//! tree of processes, as systemd sends it by default. The job runs again. If its worker is shutting down, no attempt is
//! used.

mod executable;
mod output;

pub(crate) use executable::find;
pub use output::bytes;

use crate::CancelReason;
use crate::context::Context;
use crate::failure::Failure;
use crate::guard::{self, Ended, Guarded, until_ns};
use crate::handler::Handler;
use crate::log::{AttemptLogs, Log, Tail};
use futures::future::{BoxFuture, FusedFuture, FutureExt};
use output::Head;
use qo_core::{Error, Json, Result};
use rustix::process::Signal;
use std::ffi::OsStr;
use std::io;
use std::path::{Path, PathBuf};
use std::pin::pin;
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::time::Duration;
use tokio::time::{Instant, timeout};

/// "Give up."
const EXIT_FAIL: i32 = 100;
/// How long a pipe may stay open after every process that wrote to it should be gone.
const PIPE_PATIENCE: Duration = Duration::from_millis(500);
/// How long a signal to a whole tree of processes may take from the first process to the last.
const SIGNAL_PATIENCE: Duration = Duration::from_millis(250);
/// How many lines of stderr an error has at most, and how many bytes.
const ERROR_LINES: usize = 5;
const ERROR_BYTES: usize = 1 << 10;

/// The variable by which a program gets the trace of its job.
const TRACEPARENT: &str = "TRACEPARENT";

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

/// Whether a signal that asks processes to end may have ended a program, by the program's own exit: a shell exits with
/// 128 plus the signal.
fn is_by_signal(ended: &Ended) -> bool {
    let asks_to_end = |signal: i32| {
        [Signal::TERM, Signal::INT, Signal::HUP, Signal::QUIT].map(Signal::as_raw).contains(&signal)
    };
    match ended {
        Ended::Exited(code) => asks_to_end(code - 128),
        Ended::Killed(signal) => asks_to_end(*signal),
        Ended::Failed(_) => false,
        Ended::Unguarded => true,
    }
}

fn judge(ended: &Ended, stdout: &Head, log: &str) -> Result<Json, Failure> {
    let because = |what: String| match tail(log) {
        "" => what,
        tail => format!("{what}: {tail}"),
    };
    match ended {
        Ended::Exited(0) => stdout.output(),
        Ended::Exited(EXIT_FAIL) => Err(Failure::fail(because(ended.to_string()))),
        Ended::Exited(_) | Ended::Killed(_) | Ended::Unguarded => {
            Err(Failure::retry(because(ended.to_string())))
        }
        Ended::Failed(why) => Err(Failure::retry(why)),
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

/// A program that runs under its guard.
struct Running {
    process: Guarded,
    stdout: Head,
    stderr: Tail,
    /// It was told to stop while it ran.
    stopped: bool,
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
        if is_final || (self.process.signalled.is_none() && !is_by_signal(ended)) {
            return None;
        }
        // The signal may reach the worker last.
        if attempt.worker_stops_within(SIGNAL_PATIENCE).await {
            attempt.cancel(CancelReason::ShuttingDown, Instant::now() + SIGNAL_PATIENCE);
            return Some(Failure::Cancelled);
        }
        let signal = self.process.signalled.filter(|_| *ended == Ended::Exited(0))?;
        Some(Failure::retry(format_args!(
            "exit code 0 after signal {signal}, which its worker did not send: its work may be unfinished"
        )))
    }

    async fn start(program: &Program, payload: &Json, context: &Context) -> Result<Self, Failure> {
        // The attempt lasts until the guard and its whole process tree are gone, even if the handler is dropped.
        let unfinished = context.unfinished_under_guard();
        let until = until_ns(context.state().lease.over_at());
        let (command, marks) = guarded(program, context);
        let process = Guarded::start_until(command, marks, until, payload.as_str(), unfinished).await;
        let mut process = process.map_err(|error| {
            Failure::retry(format_args!("cannot start the guard {}: {error}", program.guard.display()))
        })?;
        // Only now: a deadline must not be written into the middle of the payload.
        process.follow(context);
        Ok(Self { process, stdout: Head::default(), stderr: Tail::default(), stopped: false })
    }

    /// Waits for the end of the program, and for all that it wrote.
    async fn end(&mut self, context: &Context) -> Ended {
        let Self { process, stdout, stderr, stopped } = self;
        let control = Arc::clone(&process.control);
        let (mut child_stdout, mut child_stderr) = (process.stdout.take(), process.stderr.take());
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
            control.linger(SIGNAL_PATIENCE);
            std::future::pending::<()>().await;
        };
        let mut ended = pin!(process.ended());
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

/// The command that starts the guard of an attempt, and the variables by which its processes are known.
fn guarded(program: &Program, context: &Context) -> (Command, Vec<(&'static str, String)>) {
    let mut command = guard::command(&program.guard);
    command
        .args(program.command.iter())
        .env("QO_ATTEMPT", context.attempt().to_string())
        .env("QO_TASK", &**context.task())
        .env("QO_KEY", context.key().map_or("", |key| key))
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    match context.traceparent() {
        Some(traceparent) => command.env(TRACEPARENT, traceparent.to_string()),
        // That of the worker's own environment is of another trace.
        None => command.env_remove(TRACEPARENT),
    };
    let marks =
        vec![("QO_JOB_ID", context.job().to_string()), ("QO_FENCE_TOKEN", context.fence_token().to_string())];
    (command, marks)
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
