//! What the program logs while it works, on stderr.
//!
//! A worker logs every job, and stderr may be a full pipe or a stopped terminal: a worker that waited for it would lose
//! its lease. So a worker's lines go through a queue to a thread that writes them. When the queue is full, lines are
//! dropped and counted. Every other command writes its lines at once.

use std::io::{self, IsTerminal, Write};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, TrySendError, sync_channel};
use std::time::Duration;
use tracing::{Level, Metadata};
use tracing_subscriber::EnvFilter;
use tracing_subscriber::fmt::MakeWriter;

/// Which command logs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Speaker {
    /// A worker. A quiet one shows warnings and errors only.
    Worker {
        /// `--quiet`
        quiet: bool,
    },
    /// Any other command. The workers of `demo` and `bench` are of this kind: they log nothing about single jobs.
    Command,
}

/// Lines that wait to be written.
const QUEUED: usize = 4_096;
/// How long the process waits for the queue at its end, or after an error.
const PATIENCE: Duration = Duration::from_millis(500);

/// Starts logging. `QO_LOG` says what is logged, as in `debug` or `qo=debug,warn`; `--quiet` beats it.
pub fn start(speaker: Speaker, colour: bool) {
    let default = match speaker {
        Speaker::Worker { quiet: false } => "info",
        Speaker::Worker { quiet: true } => "warn",
        Speaker::Command => "warn,qo::job=off",
    };
    let asked = std::env::var("QO_LOG").ok().filter(|asked| !asked.is_empty());
    let asked = asked.filter(|_| speaker != Speaker::Worker { quiet: true });
    let filter = asked.as_deref().map(EnvFilter::try_new);
    let mistake = filter.as_ref().and_then(|filter| filter.as_ref().err().map(ToString::to_string));
    let filter = filter.and_then(Result::ok).unwrap_or_else(|| EnvFilter::new(default));
    if matches!(speaker, Speaker::Worker { .. }) {
        queue();
    }
    let logging = tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_writer(Stderr)
        .with_ansi(colour && io::stderr().is_terminal())
        .with_target(false)
        // A line that cannot be written, because the disk is full or its reader is gone, is lost. Reporting that on the
        // same stderr would panic, in the middle of the worker's code.
        .log_internal_errors(false);
    // There is one logger, and this is the one place that starts it.
    let _ = logging.try_init();
    if let Some(mistake) = mistake {
        tracing::warn!("QO_LOG is ignored: {mistake}");
    }
}

/// Waits a moment until the queued lines are written.
pub fn finish() {
    if let Some(queue) = QUEUE.get() {
        queue.finish();
    }
}

/// The queue of this process, if it is a worker and could start the thread.
static QUEUE: OnceLock<Queue> = OnceLock::new();

struct Queue {
    said: SyncSender<Said>,
    /// Lines for which there was no room.
    dropped: AtomicU64,
    /// A wait for the thread has timed out, and the thread has written nothing since.
    stuck: AtomicBool,
}

enum Said {
    Line(Vec<u8>),
    /// Everything before this must be written.
    Finish(SyncSender<()>),
}

/// Starts the thread that writes. Without it, each line is written by the thread that logs it.
fn queue() {
    let (said, lines) = sync_channel(QUEUED);
    if std::thread::Builder::new().name("qo-stderr".into()).spawn(move || write(&lines)).is_ok() {
        let _ = QUEUE.set(Queue { said, dropped: AtomicU64::new(0), stuck: AtomicBool::new(false) });
    }
}

fn write(lines: &Receiver<Said>) {
    for said in lines {
        match said {
            Said::Line(line) => {
                let _ = io::stderr().write_all(&line);
                let Some(queue) = QUEUE.get() else { continue };
                queue.stuck.store(false, Ordering::Relaxed);
                let dropped = queue.dropped.swap(0, Ordering::Relaxed);
                if dropped > 0 {
                    let _ = writeln!(io::stderr(), "… {dropped} lines were dropped: stderr was not read …");
                }
            }
            Said::Finish(done) => {
                let _ = done.try_send(());
            }
        }
    }
}

impl Queue {
    fn say(&self, line: Vec<u8>) {
        if let Err(TrySendError::Full(_)) = self.said.try_send(Said::Line(line)) {
            self.dropped.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// Waits until all lines are written. It does not wait again for a stderr that was not read the last time.
    fn finish(&self) {
        let (done, written) = sync_channel(1);
        if self.stuck.load(Ordering::Relaxed) || self.said.try_send(Said::Finish(done)).is_err() {
            return;
        }
        if written.recv_timeout(PATIENCE).is_err() {
            self.stuck.store(true, Ordering::Relaxed);
        }
    }
}

/// Where lines go.
struct Stderr;

/// A line that is being composed. It is written as a whole when it is dropped.
struct Line {
    text: Vec<u8>,
    is_error: bool,
}

impl<'a> MakeWriter<'a> for Stderr {
    type Writer = Line;

    fn make_writer(&'a self) -> Line {
        Line { text: Vec::new(), is_error: false }
    }

    fn make_writer_for(&'a self, meta: &Metadata<'_>) -> Line {
        Line { text: Vec::new(), is_error: *meta.level() == Level::ERROR }
    }
}

impl Write for Line {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.text.write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl Drop for Line {
    fn drop(&mut self) {
        let text = std::mem::take(&mut self.text);
        match QUEUE.get() {
            None => {
                let _ = io::stderr().write_all(&text);
            }
            Some(queue) => {
                queue.say(text);
                // The process may be about to end because of it.
                if self.is_error {
                    queue.finish();
                }
            }
        }
    }
}
