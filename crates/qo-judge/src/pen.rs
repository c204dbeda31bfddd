//! How a job writes its lines.

use crate::line::{Line, What};
use crate::run::End;
use rustix::time::{ClockId, clock_gettime};
use std::fs::File;
use std::io::{self, Write};
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};

/// Nanoseconds on the machine's monotonic clock, which all its processes share.
pub fn now_ns() -> u64 {
    let now = clock_gettime(ClockId::Monotonic);
    let (seconds, ns) = (u64::try_from(now.tv_sec).unwrap_or(0), u64::try_from(now.tv_nsec).unwrap_or(0));
    seconds * 1_000_000_000 + ns
}

/// The file or pipe that the jobs of one process write to.
///
/// Each line is one write: lines of several processes do not mix, and a process that is killed leaves whole lines and
/// at most a part of a last one.
#[derive(Debug, Clone)]
pub struct Pen {
    file: Arc<Mutex<File>>,
    worker: Arc<str>,
}

impl Pen {
    /// Writes to a file, which it makes if it is not there, or to a pipe. Lines bear the name of the worker.
    pub fn open(path: &Path, worker: &str) -> io::Result<Self> {
        let file = File::options().create(true).append(true).open(path)?;
        Ok(Self { file: Arc::new(Mutex::new(file)), worker: worker.into() })
    }

    /// Records that a job begins. It ends when the returned value says so, or is dropped.
    pub fn begin(&self, token: u64, job: &str, planned: &str, says: &str) -> io::Result<Running> {
        let line = Line {
            what: What::Began,
            at_ns: 0,
            worker: Arc::clone(&self.worker),
            token,
            job: job.into(),
            planned: planned.into(),
            says: says.into(),
        };
        let mut running = Running { pen: self.clone(), line, is_over: false };
        running.write(What::Began)?;
        Ok(running)
    }
}

/// A job that has recorded that it began.
#[derive(Debug)]
pub struct Running {
    pen: Pen,
    line: Line,
    is_over: bool,
}

impl Running {
    /// Records that it still runs.
    pub fn beat(&mut self) -> io::Result<()> {
        self.write(What::Beat)
    }

    /// Records how it ends.
    pub fn end(mut self, end: End) -> io::Result<()> {
        self.is_over = true;
        self.write(What::Ended(end))
    }

    fn write(&mut self, what: What) -> io::Result<()> {
        (self.line.what, self.line.at_ns) = (what, now_ns());
        let text = format!("{}\n", self.line);
        self.pen.file.lock().unwrap_or_else(PoisonError::into_inner).write_all(text.as_bytes())
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        if !self.is_over {
            // If the write fails, the run looks as if it had gone on: the judge is then too strict, not too lenient.
            let _ = self.write(What::Ended(End::Stopped));
        }
    }
}
