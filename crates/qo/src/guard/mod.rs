//! The guard: a small process between a worker and a program that it runs.
//!
//! A program must not outlive the lease of its job, and a worker that was killed or stopped cannot see to that. So the
//! worker starts `qo guard -- COMMAND…`, and the guard starts the program. The guard kills the program and every
//! descendant of it, with SIGKILL, when
//!
//! - its worker is gone, however it went: the socket between them closes;
//! - the last deadline that it was told passes on the machine's monotonic clock, which a stopped worker cannot hold up;
//! - the program itself has ended: what it left behind holds no slot;
//! - it was told to `stop`, and the program did not end within the grace after SIGTERM.
//!
//! It says that the program has ended when no descendant is left.
//!
//! # Which processes it reaches
//!
//! On Linux the guard is a child subreaper: a process whose parent has ended becomes its child, so every descendant is
//! in the tree below it, whatever process group or session it moved to (`timeout`, `setsid`, a daemon). `descendants`
//! walks that tree and signals by pidfd. Elsewhere the guard reaches the program's process group.
//!
//! # When the guard itself is killed
//!
//! 1. The program gets SIGKILL from the kernel. It is started through `qo guard launch`, which sets its parent-death
//!    signal and then becomes the program.
//! 2. Descendants have no such signal; they are found by their environment. Every program carries the mark of its worker
//!    process, `QO_GUARDED_BY`. A worker that lives kills what carries the mark and the job's id; if it died with its
//!    guards, its keeper does (`keeper.rs`).
//!
//! A guard calls itself `task-guard`, so that `pkill qo` means workers. It is the executable of its worker, even if that
//! file was replaced meanwhile (`own_executable`), so both speak the same release's protocol; a guard of another release
//! ignores words that it does not know.
//!
//! # Signals
//!
//! A guard has a process group of its own. A signal that asks it to end (SIGTERM, SIGINT, SIGHUP, SIGQUIT) was sent to a
//! whole tree or cgroup, as systemd does by default, and its program got it too. The guard goes on, and says so: a
//! program that then exits with 0 may have left its work undone. The signals of a tree come one by one; a guard whose
//! worker is being stopped waits for its own before it reports a success (`linger`).
//!
//! # The protocol
//!
//! They talk in lines over the socket that is the guard's stdin. The program writes straight to the worker's pipes.
//!
//! | from the worker | |
//! |---|---|
//! | `until NANOSECONDS` | the deadline, on the machine's monotonic clock |
//! | `payload BYTES` | followed by that many bytes: the program's stdin; then it is started |
//! | `stop MILLISECONDS` | SIGTERM now, SIGKILL after so long |
//! | `linger MILLISECONDS` | the worker is being stopped: wait so long for a signal before a success is reported |
//!
//! | from the guard | |
//! |---|---|
//! | `started PID` | the program runs, in the process group of that id |
//! | `failed TEXT` | it could not be started |
//! | `signalled NUMBER` | the guard got a signal that asks to end, and so did its program, probably |
//! | `exited CODE`, `killed SIGNAL` | the program has ended, and nothing of it is left |

mod descendants;
pub(crate) mod keeper;
mod launch;

use descendants::{Family, Status};
use futures::FutureExt;
use launch::Launched;
use rustix::process::Signal;
use rustix::time::{ClockId, clock_gettime};
use std::ffi::OsString;
use std::future::poll_fn;
use std::io::{self, Write};
use std::os::fd::AsFd;
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};
use std::task::Poll;
use std::time::Duration;
use tokio::io::{AsyncBufReadExt, AsyncReadExt, BufReader};
use tokio::signal::unix::{Signal as Heard, SignalKind, signal};
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};
use tokio::time::{Instant, sleep_until, timeout};

/// Largest payload that a guard accepts: what a store could ever be configured to, and the final newline.
const PAYLOAD_BYTES: usize = (16 << 20) + 1;

/// The exit code of a guard that failed itself.
pub(crate) const FAILED: u8 = 2;

/// What a guard is called: not `qo`, so that `pkill qo` and `killall qo` mean workers.
const NAME: &str = "task-guard";

/// What stands before a line that the shell reads.
///
/// A shell that dies of SIGTERM would take the grace from what it runs: it waits for that first, and then ends as that
/// did. `$?` may be 0 then although the line was cut short (`wait` was interrupted): it exits with 128 and the signal
/// instead, as a shell without a trap does.
pub(crate) const LINE: &str = "trap 'exit $(($? ? $? : 143))' TERM; ";

/// What the worker says.
enum Event {
    Until(u64),
    Payload(Vec<u8>),
    Stop(Duration),
    Linger(Duration),
    /// A word that this release does not know: its worker is of a newer one, and goes on without.
    Other,
    /// The worker is gone.
    Gone,
}

/// Guards the command after `--` in the arguments of this process. It is what `qo guard` does; a program that runs
/// workers itself calls it when its first argument is `guard`.
pub fn main() -> ExitCode {
    let mut arguments = std::env::args_os().skip(2);
    let before: Vec<OsString> = arguments.by_ref().take_while(|argument| argument != "--").collect();
    let command: Vec<OsString> = arguments.collect();
    let result = match (&before[..], command.is_empty()) {
        ([word, guard, stdin], false) if word == launch::WORD => {
            launch::become_program(guard, stdin, &command)
        }
        ([] | [_], false) => guard(before.first(), &command),
        _ => Err(io::Error::new(
            io::ErrorKind::InvalidInput,
            "usage: qo guard [MARK] -- COMMAND…, started by a worker",
        )),
    };
    match result {
        Ok(code) => ExitCode::from(code),
        Err(error) => {
            // Nothing else listens.
            let _ = writeln!(io::stderr(), "qo guard: {error}");
            ExitCode::from(FAILED)
        }
    }
}

/// Starts a guard, by this executable: add the command to guard, its environment, and the socket as stdin. The first
/// call starts this process's keeper.
pub fn command(executable: &Path) -> Command {
    let mut command = Command::new(executable);
    // A Ctrl-C at the terminal is for the worker, which drains.
    command.arg0(NAME).arg("guard").args(keeper::mark()).arg("--").process_group(0);
    // A worker that is itself a program of another worker has that one's mark; its guards see to their own programs, and
    // must not be killed before those.
    command.env_remove(keeper::VARIABLE);
    command
}

/// The executable of this process, even if its file was replaced or removed since.
pub fn own_executable() -> io::Result<PathBuf> {
    let own = Path::new(launch::OWN);
    if own.exists() { Ok(own.to_owned()) } else { std::env::current_exe() }
}

/// Kills what a guard left behind that was itself killed: every process with the mark of this process and with these
/// variables in its environment. Returns when none is left.
pub async fn kill_left_behind(variables: &[(&str, String)]) {
    if let Some(mark) = keeper::mark() {
        let variables = variables.iter().map(|(name, value)| format!("{name}={value}"));
        let mark = format!("{}={mark}", keeper::VARIABLE);
        keeper::kill_marked(variables.chain([mark]).collect()).await;
    }
}

/// Nanoseconds on the machine's monotonic clock, which all its processes share.
pub(crate) fn monotonic_ns() -> u64 {
    let now = clock_gettime(ClockId::Monotonic);
    let (seconds, ns) = (u64::try_from(now.tv_sec).unwrap_or(0), u64::try_from(now.tv_nsec).unwrap_or(0));
    seconds * 1_000_000_000 + ns
}

/// The moment at which that clock shows so much.
fn moment(ns: u64) -> Instant {
    // A deadline in a thousand years is none.
    let left = Duration::from_nanos(ns.saturating_sub(monotonic_ns())).min(Duration::from_secs(1 << 30));
    Instant::now() + left
}

fn guard(mark: Option<&OsString>, command: &[OsString]) -> io::Result<u8> {
    // One thread: a signal that was sent before the program ended is heard before its end is, and the parent-death
    // signal of a program follows the thread that started it.
    tokio::runtime::Builder::new_current_thread().enable_all().build()?.block_on(async {
        let signals = Signals::listen()?;
        #[cfg(target_os = "linux")]
        let _ = std::fs::write("/proc/self/comm", NAME);
        let socket = UnixStream::from(io::stdin().as_fd().try_clone_to_owned()?);
        socket.set_nonblocking(true)?;
        let (send, mut events) = unbounded_channel();
        tokio::spawn(listen(tokio::net::UnixStream::from_std(socket.try_clone()?)?, send));
        let Some((payload, until)) = begin(&mut events).await else { return Ok(0) };
        // Before the program starts: what it leaves behind must become a child of this process.
        descendants::adopt()?;
        let mut launched = match Launched::start(mark, command) {
            Ok(launched) => launched,
            Err(error) => {
                say(&socket, format_args!("failed {}", launch::failure(&command[0], &error)));
                return Ok(127);
            }
        };
        say(&socket, format_args!("started {}", launched.program));
        launched.feed(payload)?;
        let mut watch = Watch {
            family: Family::new(launched.program),
            linger: Duration::ZERO,
            kill_at: u64::MAX,
            signalled: None,
            socket,
            signals,
            events,
            until,
        };
        let status = watch.run().await?;
        if let Some(why) = launched.failure() {
            say(&watch.socket, format_args!("failed {why}"));
            return Ok(127);
        }
        watch.report(status).await
    })
}

/// Tells the worker. That it is gone is for the reader to notice; its socket has room for all that a guard says.
fn say(mut socket: &UnixStream, words: std::fmt::Arguments<'_>) {
    let _ = socket.write_all(format!("{words}\n").as_bytes());
}

/// The signals that a guard hears, and does not end of. Programs do not inherit that.
struct Signals {
    stop: [(i32, Heard); 4],
    /// A child has ended.
    child: Heard,
}

impl Signals {
    fn listen() -> io::Result<Self> {
        let stop = |kind: SignalKind| Ok::<_, io::Error>((kind.as_raw_value(), signal(kind)?));
        Ok(Self {
            stop: [
                stop(SignalKind::terminate())?,
                stop(SignalKind::interrupt())?,
                stop(SignalKind::hangup())?,
                stop(SignalKind::quit())?,
            ],
            child: signal(SignalKind::child())?,
        })
    }

    /// Waits for a signal that asks the guard to end: its number.
    async fn stop(stop: &mut [(i32, Heard); 4]) -> i32 {
        poll_fn(|task| {
            let heard = stop
                .iter_mut()
                .find_map(|(number, heard)| heard.poll_recv(task).is_ready().then_some(*number));
            heard.map_or(Poll::Pending, Poll::Ready)
        })
        .await
    }
}

/// Reads what the worker says until it is gone.
async fn listen(socket: tokio::net::UnixStream, heard: UnboundedSender<Event>) {
    let mut reader = BufReader::new(socket);
    let mut line = String::new();
    loop {
        line.clear();
        let event = match reader.read_line(&mut line).await {
            // A line without an end is a worker that ended in the middle of it.
            Ok(1..) if line.ends_with('\n') => understand(line.trim_end(), &mut reader).await,
            Ok(_) | Err(_) => None,
        };
        let last = event.is_none();
        if heard.send(event.unwrap_or(Event::Gone)).is_err() || last {
            return;
        }
    }
}

async fn understand(line: &str, reader: &mut BufReader<tokio::net::UnixStream>) -> Option<Event> {
    let (word, number) = line.split_once(' ').unwrap_or((line, ""));
    let number = || number.parse::<u64>().ok();
    match word {
        "until" => number().map(Event::Until),
        "stop" => number().map(Duration::from_millis).map(Event::Stop),
        "linger" => number().map(Duration::from_millis).map(Event::Linger),
        "payload" => {
            let length = usize::try_from(number()?).ok().filter(|length| *length <= PAYLOAD_BYTES)?;
            let mut payload = vec![0; length];
            reader.read_exact(&mut payload).await.ok()?;
            Some(Event::Payload(payload))
        }
        _ => Some(Event::Other),
    }
}

/// Waits for the payload; none if the worker has changed its mind.
async fn begin(events: &mut UnboundedReceiver<Event>) -> Option<(Vec<u8>, u64)> {
    let mut until = 0;
    loop {
        match events.recv().await? {
            Event::Until(ns) => until = ns,
            Event::Payload(payload) => return Some((payload, until)),
            Event::Linger(_) | Event::Other => {}
            Event::Stop(_) | Event::Gone => return None,
        }
    }
}

/// The watch over a program that runs.
struct Watch {
    socket: UnixStream,
    signals: Signals,
    events: UnboundedReceiver<Event>,
    family: Family,
    /// The deadline, on the monotonic clock.
    until: u64,
    /// When the grace of a program that was told to stop is over, on the same clock.
    kill_at: u64,
    /// How long to wait for a signal before a success is reported.
    linger: Duration,
    /// The signal that asked this guard to end.
    signalled: Option<i32>,
}

impl Watch {
    /// Watches the program until nothing of it is left.
    async fn run(&mut self) -> io::Result<Status> {
        while !self.family.has_ended()? {
            let deadline = moment(self.until.min(self.kill_at));
            tokio::select! {
                biased;
                number = Signals::stop(&mut self.signals.stop) => self.heard(number),
                _ = self.signals.child.recv() => {}
                event = self.events.recv() => match event {
                    Some(Event::Until(ns)) => self.until = ns,
                    Some(Event::Stop(grace)) => self.stop(grace),
                    Some(Event::Linger(linger)) => self.linger = linger,
                    Some(Event::Payload(_) | Event::Other) => {}
                    Some(Event::Gone) | None => break,
                },
                () = sleep_until(deadline) => break,
            }
        }
        self.family.end(&mut self.signals.child).await
    }

    fn stop(&mut self, grace: Duration) {
        self.family.signal(Signal::TERM);
        let grace = u64::try_from(grace.as_nanos()).unwrap_or(u64::MAX);
        self.kill_at = self.kill_at.min(monotonic_ns().saturating_add(grace));
    }

    fn heard(&mut self, number: i32) {
        if self.signalled.replace(number).is_none() {
            say(&self.socket, format_args!("signalled {number}"));
        }
    }

    /// Says how the program ended. The exit code of the guard is the program's.
    async fn report(&mut self, status: Status) -> io::Result<u8> {
        while let Ok(event) = self.events.try_recv() {
            if let Event::Linger(linger) = event {
                self.linger = linger;
            }
        }
        if status == Status::Exited(0) && self.signalled.is_none() {
            let stop = Signals::stop(&mut self.signals.stop);
            // A program that ends while its worker works costs no wait, only a look at what has come.
            let heard = if self.linger.is_zero() {
                tokio::task::yield_now().await;
                stop.now_or_never()
            } else {
                timeout(self.linger, stop).await.ok()
            };
            heard.into_iter().for_each(|number| self.heard(number));
        }
        let code = match status {
            Status::Exited(code) => {
                say(&self.socket, format_args!("exited {code}"));
                code
            }
            Status::Killed(signal) => {
                say(&self.socket, format_args!("killed {signal}"));
                128 + signal
            }
        };
        Ok(u8::try_from(code).unwrap_or(255))
    }
}
