//! The guard: a small process between a worker and a program that the worker runs.
//!
//! A program must not outlive the lease of its job, and a worker that was killed or stopped cannot enforce that. So the
//! worker starts `qo guard -- COMMAND…`, and the guard starts the program. The guard kills the program and every
//! descendant of it, with SIGKILL, when
//!
//! - its worker is gone, for whatever reason: the socket between them closes;
//! - the last deadline that it was told passes on the machine's monotonic clock, which a stopped worker cannot hold up;
//! - the program itself has ended: a process that it left behind holds no slot;
//! - it was told to `stop`, and the program did not end within the grace after SIGTERM.
//!
//! It reports the end of the program when no descendant is left.
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
//! 2. Descendants have no such signal; they are found by their environment. Every program carries the id of its worker
//!    process, `QO_GUARDED_BY`, which is random and not a process id. A worker that lives kills every process that
//!    carries its id and the job's id. If the worker died with its guards, its keeper kills them (`keeper.rs`).
//!
//! A guard's process name is `task-guard`, so that `pkill qo` hits only workers. The guard of a `qo worker` runs the
//! executable of that worker, even if the file was replaced meanwhile (`own_executable`), so both normally speak the
//! same protocol. Without /proc the file may be newer, and a worker in another program uses the `qo` on its `PATH`; so
//! both ignore words that they do not know.
//!
//! # Signals
//!
//! A guard has a process group of its own. It assumes that a signal that asks it to end (SIGTERM, SIGINT, SIGHUP,
//! SIGQUIT) was sent to its whole tree or cgroup, as systemd does by default, so that the program got it too. The guard
//! does not end; it reports the signal, because a program that then exits with 0 may have left work undone. The
//! processes of a tree get their signals one by one. If its worker is shutting down, the guard waits for its own signal
//! before it reports a success (`linger`).
//!
//! # The protocol
//!
//! Worker and guard talk in lines over the socket that is the guard's stdin. The program writes straight to the
//! worker's pipes.
//!
//! | from the worker | |
//! |---|---|
//! | `until NANOSECONDS` | the deadline, on the machine's monotonic clock |
//! | `payload BYTES` | followed by that many bytes: the program's stdin; then it is started |
//! | `stop MILLISECONDS` | SIGTERM now, SIGKILL after this long |
//! | `linger MILLISECONDS` | the worker is shutting down: wait this long for a signal before reporting a success |
//!
//! | from the guard | |
//! |---|---|
//! | `started PID` | the program runs, in the process group of that id |
//! | `failed TEXT` | it could not be started |
//! | `signalled NUMBER` | the guard got a signal that asks to end, and its program probably did, too |
//! | `exited CODE`, `killed SIGNAL` | the program has ended, and nothing of it is left |

mod descendants;
pub(crate) mod keeper;
mod launch;
mod memory;
mod process;

pub use memory::{oom_kills, told};
pub(crate) use process::{Control, until_ns};
pub use process::{Ended, Guarded};

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

/// Largest payload that a guard accepts: the most that a store could ever be configured to, and the final newline.
const PAYLOAD_BYTES: usize = (16 << 20) + 1;

/// The exit code of a guard that itself failed.
pub(crate) const FAILED: u8 = 2;

/// The process name of a guard: not `qo`, so that `pkill qo` and `killall qo` hit only workers.
const NAME: &str = "task-guard";

/// The prefix of a command line that the shell reads.
///
/// A shell that dies of SIGTERM would take the grace from its child. With a trap it waits for the child first, and then
/// exits with the child's code. `$?` may be 0 although the line was cut short (`wait` was interrupted); the shell then
/// exits with 128 plus the signal, as a shell without a trap does.
pub(crate) const LINE: &str = "trap 'exit $(($? ? $? : 143))' TERM; ";

/// A message of the worker.
enum Event {
    Until(u64),
    Payload(Vec<u8>),
    Stop(Duration),
    Linger(Duration),
    /// A word that this release does not know: the worker is of a newer release, and works without an answer.
    Other,
    /// The worker is gone.
    Gone,
}

/// Guards the command after `--` in the arguments of this process. This is `qo guard`; a program that runs workers
/// itself calls it when its first argument is `guard`.
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
            "usage: qo guard [WORKER_ID] -- COMMAND…, started by a worker",
        )),
    };
    match result {
        Ok(code) => ExitCode::from(code),
        Err(error) => {
            // Stderr is the only way left to report it.
            let _ = writeln!(io::stderr(), "qo guard: {error}");
            ExitCode::from(FAILED)
        }
    }
}

/// The command that starts a guard, with this executable. The caller adds the command to guard, its environment, and
/// the socket as stdin. The first call starts this process's keeper.
pub fn command(executable: &Path) -> Command {
    let mut command = Command::new(executable);
    // The worker handles a Ctrl-C at the terminal: it drains.
    command.arg0(NAME).arg("guard").args(keeper::mark()).arg("--").process_group(0);
    // A worker that is itself a program of another worker carries that worker's id. Its guards must not: the other
    // worker's keeper would kill them before their programs.
    command.env_remove(keeper::VARIABLE);
    command
}

/// The executable of this process, even if its file was replaced or removed since.
pub fn own_executable() -> io::Result<PathBuf> {
    let own = Path::new(launch::OWN);
    if own.exists() { Ok(own.to_owned()) } else { std::env::current_exe() }
}

/// Kills the processes that a killed guard left behind: every process with the id of this worker process and with these
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

/// The moment at which that clock shows this time.
fn moment(ns: u64) -> Instant {
    // A deadline that far away is none.
    let left = Duration::from_nanos(ns.saturating_sub(monotonic_ns())).min(Duration::from_secs(1 << 30));
    Instant::now() + left
}

fn guard(mark: Option<&OsString>, command: &[OsString]) -> io::Result<u8> {
    // One thread, for two reasons. If a signal and the end of the program are both pending, the guard sees the signal
    // first. And the parent-death signal of a program follows the thread that started it.
    tokio::runtime::Builder::new_current_thread().enable_all().build()?.block_on(async {
        let signals = Signals::listen()?;
        #[cfg(target_os = "linux")]
        let _ = std::fs::write("/proc/self/comm", NAME);
        let socket = UnixStream::from(io::stdin().as_fd().try_clone_to_owned()?);
        socket.set_nonblocking(true)?;
        let (send, mut events) = unbounded_channel();
        tokio::spawn(listen(tokio::net::UnixStream::from_std(socket.try_clone()?)?, send));
        let Some((payload, until)) = begin(&mut events).await else { return Ok(0) };
        // Before the program starts: orphaned descendants must become children of this process.
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

/// Tells the worker. If the worker is gone, the reader notices. The socket has room for everything that a guard says.
fn say(mut socket: &UnixStream, words: std::fmt::Arguments<'_>) {
    let _ = socket.write_all(format!("{words}\n").as_bytes());
}

/// The signals that a guard handles, and that do not end it. Programs do not inherit the handlers.
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

    /// Waits for a signal that asks the guard to end, and returns its number.
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

/// Reads the worker's messages until the worker is gone.
async fn listen(socket: tokio::net::UnixStream, heard: UnboundedSender<Event>) {
    let mut reader = BufReader::new(socket);
    let mut line = String::new();
    loop {
        line.clear();
        let event = match reader.read_line(&mut line).await {
            // A line without an end means that the worker ended in the middle of it.
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

/// Waits for the payload; none if the worker stops the program or is gone before that.
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
            // While the worker works, the end of a program costs no wait, only a check for signals that have come.
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
