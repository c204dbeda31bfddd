//! What Rust logs, on its way to Python's `logging`.
//!
//! A thread of its own waits for the interpreter. If it cannot keep up, lines are dropped and counted: no thread that
//! renews or settles waits for it.

use crate::runtime::end_before_exit;
use pyo3::prelude::*;
use std::fmt::{self, Write};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU8, AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, TrySendError, sync_channel};
use tracing::field::{Field, Visit};
use tracing::level_filters::LevelFilter;
use tracing::{Event, Level, Metadata, Subscriber};
use tracing_subscriber::layer::{Context, Layer, SubscriberExt};

/// Lines that wait for the interpreter.
const QUEUED: usize = 1_024;
/// The target of the lines about single jobs.
const JOBS: &str = "qo::job";

static FORWARD: OnceLock<()> = OnceLock::new();
/// The least important level that is passed on: of everything, and of lines about single jobs.
static LEVELS: [AtomicU8; 2] = [AtomicU8::new(30), AtomicU8::new(30)];

/// What the thread that waits for the interpreter is asked for.
enum Ask {
    /// Pass a line on.
    Line(Line),
    /// End, and say so.
    End(SyncSender<()>),
}

struct Line {
    level: u8,
    target: &'static str,
    text: String,
}

/// Passes log lines to `emit(level, logger, text)` from now on, those from this level on; lines about single jobs from
/// `jobs` on. Levels are Python's. Nothing happens if this process logs otherwise already.
#[pyfunction]
pub fn log_to(emit: Py<PyAny>, level: u8, jobs: u8) -> PyResult<()> {
    LEVELS[0].store(level, Ordering::Relaxed);
    LEVELS[1].store(jobs, Ordering::Relaxed);
    if FORWARD.set(()).is_ok() {
        let (said, asks) = sync_channel(QUEUED);
        let ending = said.clone();
        let forward = tracing_subscriber::registry().with(Forward { said, dropped: AtomicU64::new(0) });
        if tracing::subscriber::set_global_default(forward).is_ok() {
            // Without the thread, lines are dropped.
            let _ = std::thread::Builder::new().name("qo-log".into()).spawn(move || pass_on(&asks, &emit));
            // A thread whose line is full is stuck in a handler of `logging`.
            end_before_exit(std::process::id(), move |done| ending.try_send(Ask::End(done)).is_ok())?;
        }
    }
    tracing::callsite::rebuild_interest_cache();
    Ok(())
}

fn pass_on(asks: &Receiver<Ask>, emit: &Py<PyAny>) {
    while let Ok(ask) = asks.recv() {
        let Line { level, target, text } = match ask {
            Ask::Line(line) => line,
            Ask::End(done) => {
                // The interpreter waits for this.
                let _ = done.send(());
                return;
            }
        };
        let passed = Python::try_attach(|py| {
            // A handler of `logging` that raises has been told so by `logging` itself.
            let _ = emit.call1(py, (level, target.replace("::", "."), text));
        });
        if passed.is_none() {
            // The interpreter is at its end.
            return;
        }
    }
}

struct Forward {
    said: SyncSender<Ask>,
    dropped: AtomicU64,
}

/// A level as Python counts it.
fn number(level: Level) -> u8 {
    match level {
        Level::ERROR => 40,
        Level::WARN => 30,
        Level::INFO => 20,
        Level::DEBUG => 10,
        Level::TRACE => 5,
    }
}

fn is_wanted(metadata: &Metadata<'_>) -> bool {
    let least = LEVELS[usize::from(metadata.target() == JOBS)].load(Ordering::Relaxed);
    metadata.target().starts_with("qo") && number(*metadata.level()) >= least
}

impl<S: Subscriber> Layer<S> for Forward {
    fn enabled(&self, metadata: &Metadata<'_>, _: Context<'_, S>) -> bool {
        metadata.is_event() && is_wanted(metadata)
    }

    fn max_level_hint(&self) -> Option<LevelFilter> {
        let least = LEVELS.iter().map(|level| level.load(Ordering::Relaxed)).min().unwrap_or(30);
        Some(match least {
            0..=5 => LevelFilter::TRACE,
            6..=10 => LevelFilter::DEBUG,
            11..=20 => LevelFilter::INFO,
            21..=30 => LevelFilter::WARN,
            _ => LevelFilter::ERROR,
        })
    }

    fn on_event(&self, event: &Event<'_>, _: Context<'_, S>) {
        let mut text = Text::default();
        event.record(&mut text);
        let dropped = self.dropped.swap(0, Ordering::Relaxed);
        if dropped > 0 {
            text.fields.push_str(&format!(" ({dropped} lines before this one were dropped)"));
        }
        let (level, target) = (number(*event.metadata().level()), event.metadata().target());
        let line = Line { level, target, text: text.message + &text.fields };
        if let Err(TrySendError::Full(_)) = self.said.try_send(Ask::Line(line)) {
            self.dropped.fetch_add(dropped + 1, Ordering::Relaxed);
        }
    }
}

/// A message, and its fields behind it.
#[derive(Default)]
struct Text {
    message: String,
    fields: String,
}

impl Visit for Text {
    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        // Writing to a string does not fail.
        let _ = match field.name() {
            "message" => write!(self.message, "{value:?}"),
            name => write!(self.fields, " {name}={value:?}"),
        };
    }

    fn record_str(&mut self, field: &Field, value: &str) {
        let _ = match field.name() {
            "message" => write!(self.message, "{value}"),
            name => write!(self.fields, " {name}={value}"),
        };
    }
}
