//! What the jobs themselves record, line by line, into one pipe. The judge reads nothing else.
//!
//! A line is `WHAT MICROSECONDS WORKER NUMBER JOB ATTEMPT TOKEN TASK KEY`. A run lasts from its first line to its last.
//! The run of a killed program ends with its last line. A program that runs on although it should be dead shows itself
//! by its lines. So the recorded time is never longer than the real one, and the judge needs no dates of kills.

use rustix::fs::{CWD, FileType, Mode, mknodat};
use rustix::time::{ClockId, clock_gettime};
use std::collections::{BTreeMap, BTreeSet};
use std::fs::{File, OpenOptions};
use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard};
use std::thread::JoinHandle;

/// Microseconds on the machine's monotonic clock, which all its processes share.
pub fn now_us() -> u64 {
    let now = clock_gettime(ClockId::Monotonic);
    now.tv_sec as u64 * 1_000_000 + now.tv_nsec as u64 / 1_000
}

/// The end that a run recorded.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum End {
    Done,
    /// For good.
    Failed,
    /// It asks for another attempt.
    Retry,
}

/// One attempt of one job, as its program recorded it.
#[derive(Debug, Clone)]
pub struct Run {
    pub token: u64,
    pub worker: u32,
    pub number: u64,
    pub job: Box<str>,
    pub attempt: u64,
    pub from_us: u64,
    pub to_us: u64,
    pub end: Option<End>,
}

/// All that was written so far.
#[derive(Debug, Default)]
pub struct Book {
    /// By fence token.
    pub runs: BTreeMap<u64, Run>,
    /// Numbers of jobs that have ended, successfully or not.
    pub done: BTreeSet<u64>,
    /// The last line's time.
    pub last_us: u64,
    /// Lines that should not exist.
    pub strange: Vec<String>,
}

impl Book {
    /// Reads a line.
    pub fn add(&mut self, line: &str) {
        if self.read(line).is_none() {
            self.strange.push(format!("a line that should not be there: {line}"));
        }
    }

    fn read(&mut self, line: &str) -> Option<()> {
        let words: Vec<&str> = line.split_whitespace().collect();
        let [what, at, worker, number, job, attempt, token, _task, _key] = words[..] else { return None };
        let (at_us, token): (u64, u64) = (at.parse().ok()?, token.parse().ok()?);
        let number: u64 = number.parse().ok()?;
        self.last_us = self.last_us.max(at_us);
        if what == "start" {
            let (worker, attempt) = (worker.parse().ok()?, attempt.parse().ok()?);
            let (from_us, to_us) = (at_us, at_us);
            let run = Run { token, worker, number, job: job.into(), attempt, from_us, to_us, end: None };
            return self.runs.insert(token, run).is_none().then_some(());
        }
        let run = self.runs.get_mut(&token).filter(|run| *run.job == *job && run.end.is_none())?;
        run.to_us = run.to_us.max(at_us);
        run.end = match what {
            "beat" => None,
            "done" => Some(End::Done),
            "fail" => Some(End::Failed),
            "retry" => Some(End::Retry),
            _ => return None,
        };
        if matches!(run.end, Some(End::Done | End::Failed)) {
            self.done.insert(number);
        }
        Some(())
    }
}

/// The pipe, and the thread that reads it.
pub struct Diary {
    path: PathBuf,
    book: Arc<Mutex<Book>>,
    pipe: File,
    reader: Option<JoinHandle<()>>,
}

/// The line that ends the reader.
const LAST: &str = "last";

impl Diary {
    pub fn open(path: &Path) -> Self {
        mknodat(CWD, path, FileType::Fifo, Mode::RUSR | Mode::WUSR, 0).expect("a pipe");
        // Hold both ends: the pipe stays open when no job runs.
        let pipe = OpenOptions::new().read(true).write(true).open(path).expect("it opens");
        let book = Arc::new(Mutex::new(Book::default()));
        let (lines, taken) = (BufReader::new(pipe.try_clone().expect("a handle")).lines(), book.clone());
        let reader = std::thread::spawn(move || {
            for line in lines.map_while(Result::ok).take_while(|line| line != LAST) {
                taken.lock().expect("a book").add(&line);
            }
        });
        Self { path: path.to_owned(), book, pipe, reader: Some(reader) }
    }

    pub fn path(&self) -> &Path {
        &self.path
    }

    pub fn book(&self) -> MutexGuard<'_, Book> {
        self.book.lock().expect("a book")
    }
}

impl Drop for Diary {
    fn drop(&mut self) {
        if writeln!(self.pipe, "{LAST}").is_ok() {
            let _ = self.reader.take().map(JoinHandle::join);
        }
    }
}
