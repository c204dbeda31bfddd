//! What the jobs themselves record: when they began and when they ended.
//!
//! Each worker process appends to a file of its own, a line for each record, with one write: a process that is killed
//! leaves whole lines, and at most half of a last one. Times are of the machine's monotonic clock, which all processes
//! share.

use super::plan::Payload;
use crate::machine::monotonic_ns;
use qo::core::{ErrorKind, FenceToken, JobId, Key, Name};
use qo::{Context, Error, Result};
use serde::{Deserialize, Serialize};
use std::fs::File;
use std::io::Write;
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};

/// An event of a job, as the job itself saw it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Event {
    /// It began.
    Began,
    /// It is done.
    Done,
    /// It was stopped before it was done.
    Stopped,
}

/// One line of a job.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Record {
    /// When, on the machine's monotonic clock.
    pub at_ns: u64,
    /// What.
    pub event: Event,
    /// The job.
    pub job: JobId,
    /// 1 for the first try.
    pub attempt: u32,
    /// The claim's token.
    pub token: FenceToken,
    /// Its task.
    pub task: Name,
    /// Its queue.
    pub queue: Name,
    /// Its group.
    pub group: Name,
    /// Its key.
    pub key: Option<Key>,
    /// Its workflow.
    pub workflow: Option<Name>,
    /// Its number in the workflow.
    pub step: Option<u32>,
}

/// The file that the jobs of one process write to.
#[derive(Debug, Clone)]
pub struct Pen {
    file: Arc<Mutex<File>>,
}

impl Pen {
    /// Makes the file.
    pub fn create(path: &Path) -> Result<Self> {
        let file = File::options().create_new(true).append(true).open(path);
        let file = file.map_err(|error| unusable(path, &error))?;
        Ok(Self { file: Arc::new(Mutex::new(file)) })
    }

    /// Records that a job begins. It ends when the returned value says so, or is dropped.
    pub fn begin(&self, context: &Context, payload: &Payload) -> std::io::Result<Running> {
        let record = Record {
            at_ns: monotonic_ns(),
            event: Event::Began,
            job: context.job(),
            attempt: context.attempt(),
            token: context.fence_token(),
            task: context.task().clone(),
            queue: context.queue().clone(),
            group: context.group().clone(),
            key: context.key().cloned(),
            workflow: payload.workflow.clone(),
            step: payload.step,
        };
        self.write(&record)?;
        Ok(Running { pen: self.clone(), record, over: false })
    }

    fn write(&self, record: &Record) -> std::io::Result<()> {
        let mut line = serde_json::to_vec(record)?;
        line.push(b'\n');
        self.file.lock().unwrap_or_else(PoisonError::into_inner).write_all(&line)
    }
}

/// A job that has recorded that it began.
#[derive(Debug)]
pub struct Running {
    pen: Pen,
    record: Record,
    over: bool,
}

impl Running {
    /// It is done.
    pub fn done(mut self) -> std::io::Result<()> {
        self.end(Event::Done)
    }

    fn end(&mut self, event: Event) -> std::io::Result<()> {
        self.over = true;
        self.pen.write(&Record { at_ns: monotonic_ns(), event, ..self.record.clone() })
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        if !self.over {
            // If the write fails, the job looks as if it had run on: the verdict errs on the strict side.
            let _ = self.end(Event::Stopped);
        }
    }
}

/// Reads what the jobs of one process wrote. A last line that was cut off is left out; any other that cannot be read is
/// `Data`.
pub fn read(path: &Path) -> Result<Vec<Record>> {
    let text = std::fs::read_to_string(path).map_err(|error| unusable(path, &error))?;
    let whole = text.rfind('\n').map_or("", |end| &text[..end]);
    let parse = |(number, line): (usize, &str)| {
        serde_json::from_str(line).map_err(|error| {
            Error::new(ErrorKind::Data, format!("{}:{}: {error}", path.display(), number + 1))
        })
    };
    whole.lines().enumerate().map(parse).collect()
}

pub(super) fn unusable(path: &Path, error: &std::io::Error) -> Error {
    Error::new(ErrorKind::Unavailable, format!("{}: {error}", path.display()))
}
