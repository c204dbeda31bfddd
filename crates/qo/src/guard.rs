//! The guard: a small process between a worker and a program that it runs.
//!
//! A program must not outlive the lease of its job, and a worker that was killed or stopped cannot see to that. So the
//! worker starts `qo guard -- COMMAND…` and the guard starts the program, in a process group of its own. The guard kills
//! that group, with SIGKILL, when
//!
//! - its worker is gone, however it went: the socket between them closes;
//! - the last deadline that it was told passes on the machine's monotonic clock, which a stopped worker cannot hold up;
//! - the program itself has ended: what it left behind in its group holds no slot;
//! - it was told to `stop`, and the program did not end within the grace after SIGTERM.
//!
//! They talk in lines over the socket that is the guard's stdin. The program writes straight to the worker's pipes.
//!
//! | from the worker | |
//! |---|---|
//! | `until NANOSECONDS` | the deadline, on the machine's monotonic clock |
//! | `payload BYTES` | followed by that many bytes: the program's stdin; then it is started |
//! | `stop MILLISECONDS` | SIGTERM now, SIGKILL after so long |
//!
//! | from the guard | |
//! |---|---|
//! | `started PID` | the program runs, in the process group of that id |
//! | `failed TEXT` | it could not be started |
//! | `exited CODE`, `killed SIGNAL` | it has ended |

use rustix::process::{Pid, Signal, WaitId, WaitIdOptions, kill_process_group, waitid};
use rustix::time::{ClockId, clock_gettime};
use std::ffi::OsString;
use std::io::{self, BufRead, BufReader, Read, Write};
use std::os::fd::AsFd;
use std::os::unix::net::UnixStream;
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::process::{Child, Command, ExitCode, ExitStatus, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::thread;
use std::time::Duration;
use tokio::signal::unix::{SignalKind, signal};

/// Largest payload that a guard accepts: what a store could ever be configured to, and the final newline.
const PAYLOAD_BYTES: usize = (16 << 20) + 1;

/// What happens to a guard.
enum Event {
    Until(u64),
    Payload(Vec<u8>),
    Stop(Duration),
    /// The worker is gone.
    Gone,
    /// The program has ended; it has not been waited for.
    Ended,
}

/// Guards the command after `--` in the arguments of this process. It is what `qo guard` does; a program that runs
/// workers itself calls it when its first argument is `guard`.
pub fn main() -> ExitCode {
    let command: Vec<OsString> =
        std::env::args_os().skip_while(|argument| argument != "--").skip(1).collect();
    match guard(&command) {
        Ok(code) => ExitCode::from(code),
        Err(error) => {
            // There is nobody else to tell.
            let _ = writeln!(io::stderr(), "qo guard: {error}");
            ExitCode::from(2)
        }
    }
}

/// Nanoseconds on the machine's monotonic clock, which all its processes share.
pub(crate) fn monotonic_ns() -> u64 {
    let now = clock_gettime(ClockId::Monotonic);
    let (seconds, ns) = (u64::try_from(now.tv_sec).unwrap_or(0), u64::try_from(now.tv_nsec).unwrap_or(0));
    seconds * 1_000_000_000 + ns
}

fn guard(command: &[OsString]) -> io::Result<u8> {
    let Some((program, arguments)) = command.split_first() else {
        return Err(io::Error::new(
            io::ErrorKind::InvalidInput,
            "usage: qo guard -- COMMAND…, started by a worker",
        ));
    };
    let _deaf = ignore_signals()?;
    let mut socket = UnixStream::from(io::stdin().as_fd().try_clone_to_owned()?);
    let (send, events) = channel();
    let (reader, heard) = (BufReader::new(socket.try_clone()?), send.clone());
    thread::spawn(move || listen(reader, &heard));
    let Some((payload, until)) = begin(&events) else { return Ok(0) };
    let mut starting = Command::new(program);
    starting.args(arguments).process_group(0).stdin(Stdio::piped());
    let child = match starting.spawn() {
        Ok(child) => child,
        Err(error) => {
            let name = program.to_string_lossy();
            writeln!(socket, "failed cannot start {name}: {}", error.to_string().replace('\n', " "))?;
            return Ok(127);
        }
    };
    // A worker that is gone is noticed by the reader.
    let _ = writeln!(socket, "started {}", child.id());
    let status = Guarded::new(child, payload, send).watch(&events, until)?;
    let _ = match (status.code(), status.signal()) {
        (Some(code), _) => writeln!(socket, "exited {code}"),
        (None, signal) => writeln!(socket, "killed {}", signal.unwrap_or(0)),
    };
    let code = status.code().or_else(|| status.signal().map(|signal| 128 + signal));
    Ok(u8::try_from(code.unwrap_or(255)).unwrap_or(255))
}

/// Somebody who sends a signal to everything called `qo` means the workers. A guard that died of it would take its
/// program down with it; so it does not listen. Programs do not inherit that.
fn ignore_signals() -> io::Result<(tokio::runtime::Runtime, Vec<tokio::signal::unix::Signal>)> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_io().build()?;
    let entered = runtime.enter();
    let kinds = [SignalKind::terminate(), SignalKind::interrupt(), SignalKind::hangup(), SignalKind::quit()];
    let deaf = kinds.into_iter().map(signal).collect::<io::Result<Vec<_>>>()?;
    drop(entered);
    Ok((runtime, deaf))
}

/// Reads what the worker says until it is gone.
fn listen(mut reader: BufReader<UnixStream>, heard: &Sender<Event>) {
    let mut line = String::new();
    loop {
        line.clear();
        let event = match reader.read_line(&mut line) {
            Ok(1..) => understand(line.trim_end(), &mut reader),
            Ok(0) | Err(_) => None,
        };
        let last = event.is_none();
        // Whoever says what cannot be understood is no worker, or one that ended in the middle of a word.
        if heard.send(event.unwrap_or(Event::Gone)).is_err() || last {
            return;
        }
    }
}

fn understand(line: &str, reader: &mut impl Read) -> Option<Event> {
    let (word, number) = line.split_once(' ')?;
    let number: u64 = number.parse().ok()?;
    match word {
        "until" => Some(Event::Until(number)),
        "stop" => Some(Event::Stop(Duration::from_millis(number))),
        "payload" => {
            let length = usize::try_from(number).ok().filter(|length| *length <= PAYLOAD_BYTES)?;
            let mut payload = vec![0; length];
            reader.read_exact(&mut payload).ok()?;
            Some(Event::Payload(payload))
        }
        _ => None,
    }
}

/// Waits for the payload; none if the worker has changed its mind.
fn begin(events: &Receiver<Event>) -> Option<(Vec<u8>, u64)> {
    let mut until = 0;
    loop {
        match events.recv().ok()? {
            Event::Until(ns) => until = ns,
            Event::Payload(payload) => return Some((payload, until)),
            Event::Stop(_) | Event::Gone | Event::Ended => return None,
        }
    }
}

/// A program that runs.
struct Guarded {
    child: Child,
    group: Pid,
}

impl Guarded {
    fn new(mut child: Child, payload: Vec<u8>, events: Sender<Event>) -> Self {
        let group = Pid::from_child(&child);
        if let Some(mut stdin) = child.stdin.take() {
            // On a thread: a program that does not read must be watched all the same. One that does not want to read
            // all of it closes its end, which is its right.
            thread::spawn(move || stdin.write_all(&payload).ok());
        }
        thread::spawn(move || {
            // It is not waited for here: until it is, nobody else can get its id.
            let ended = WaitIdOptions::EXITED | WaitIdOptions::NOWAIT;
            while matches!(waitid(WaitId::Pid(group), ended), Err(rustix::io::Errno::INTR)) {}
            events.send(Event::Ended).ok();
        });
        Self { child, group }
    }

    fn signal(&self, signal: Signal) {
        // It may have ended just now.
        let _ = kill_process_group(self.group, signal);
    }

    /// Watches it until it has ended, one way or another.
    fn watch(mut self, events: &Receiver<Event>, mut until: u64) -> io::Result<ExitStatus> {
        let mut kill_at = u64::MAX;
        loop {
            let left = until.min(kill_at).saturating_sub(monotonic_ns());
            let event = match left {
                0 => Err(RecvTimeoutError::Timeout),
                left => events.recv_timeout(Duration::from_nanos(left)),
            };
            match event {
                Ok(Event::Until(ns)) => until = ns,
                Ok(Event::Stop(grace)) => {
                    self.signal(Signal::TERM);
                    let grace = u64::try_from(grace.as_nanos()).unwrap_or(u64::MAX);
                    kill_at = kill_at.min(monotonic_ns().saturating_add(grace));
                }
                Ok(Event::Payload(_)) => {}
                Ok(Event::Ended) => break,
                Ok(Event::Gone) | Err(_) => {
                    self.signal(Signal::KILL);
                    while !matches!(events.recv(), Ok(Event::Ended) | Err(_)) {}
                    break;
                }
            }
        }
        self.signal(Signal::KILL);
        self.child.wait()
    }
}
