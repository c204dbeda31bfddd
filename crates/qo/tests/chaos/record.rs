//! What the jobs themselves record: when they began and when they ended.
//!
//! Each worker process appends to a file of its own, a line for each event, with one write: a process that is killed leaves
//! whole lines, and at most half of a last one. Times are of the machine's monotonic clock, which all processes share.

use qo::Context;
use qo::core::{FenceToken, JobId};
use rustix::time::{ClockId, clock_gettime};
use std::fs::{self, File};
use std::io::Write;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};

/// Microseconds on the machine's monotonic clock.
pub fn now_us() -> u64 {
    let now = clock_gettime(ClockId::Monotonic);
    now.tv_sec as u64 * 1_000_000 + now.tv_nsec as u64 / 1_000
}

/// What happened to a job, as it saw it itself.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Event {
    Began,
    /// Its handler returned.
    Done,
    /// Its handler was dropped before it returned.
    Stopped,
}

const WORDS: [(Event, &str); 3] =
    [(Event::Began, "began"), (Event::Done, "done"), (Event::Stopped, "stopped")];

/// One line.
#[derive(Debug, Clone, Copy)]
pub struct Record {
    pub event: Event,
    pub at_us: u64,
    pub token: FenceToken,
    pub job: JobId,
}

/// The file of a worker.
pub fn path(folder: &Path, worker: usize) -> PathBuf {
    folder.join(format!("worker-{worker}"))
}

/// Reads what the jobs of a worker wrote: nothing, if none of them began. A last line that was cut off is left out.
pub fn read(path: &Path) -> Vec<Record> {
    let text = fs::read_to_string(path).unwrap_or_default();
    let whole = text.rfind('\n').map_or("", |end| &text[..end]);
    whole.lines().map(parse).collect()
}

fn parse(line: &str) -> Record {
    let words: Vec<&str> = line.split(' ').collect();
    let [word, at, token, job] = words[..] else { panic!("a strange line: {line}") };
    let event = WORDS.iter().find(|(_, known)| *known == word).expect("a known event").0;
    let number = |text: &str| text.parse().expect("a number");
    let job = JobId(uuid::Uuid::parse_str(job).expect("an id"));
    Record { event, at_us: number(at), token: FenceToken(number(token)), job }
}

/// The file that the jobs of this process write to.
#[derive(Clone)]
pub struct Pen(Arc<Mutex<File>>);

impl Pen {
    pub fn create(path: &Path) -> Self {
        let file = File::options().create_new(true).append(true).open(path).expect("a file");
        Self(Arc::new(Mutex::new(file)))
    }

    /// Records that a handler begins. It ends when the returned value says so, or is dropped.
    pub fn begin(&self, context: &Context) -> Running {
        let running =
            Running { pen: self.clone(), token: context.fence_token(), job: context.job(), over: false };
        running.write(Event::Began);
        running
    }
}

/// A handler that runs.
pub struct Running {
    pen: Pen,
    token: FenceToken,
    job: JobId,
    over: bool,
}

impl Running {
    /// The handler has returned.
    pub fn done(mut self) {
        self.over = true;
        self.write(Event::Done);
    }

    fn write(&self, event: Event) {
        let word = WORDS.iter().find(|(known, _)| *known == event).expect("a word").1;
        let line = format!("{word} {} {} {}\n", now_us(), self.token.0, self.job.0);
        self.pen.0.lock().expect("no panic").write_all(line.as_bytes()).expect("written");
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        if !self.over {
            self.write(Event::Stopped);
        }
    }
}
