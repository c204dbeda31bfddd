//! What the jobs themselves record, line by line, into one pipe. The judge (`qo_judge`) reads nothing else.
//!
//! A job is planned under its number, and says its task and its key. A run lasts from its first line to its last. The
//! run of a killed program ends with its last line. A program that runs on although it should be dead shows itself by
//! its lines. So the recorded time is never longer than the real one, and the judge needs no dates of kills.

use qo_judge::{Line, What};
use rustix::fs::{CWD, FileType, Mode, mknodat};
use std::collections::BTreeSet;
use std::fs::{File, OpenOptions};
use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard};
use std::thread::JoinHandle;

/// All that was written so far.
#[derive(Debug, Default)]
pub struct Book {
    pub diary: qo_judge::Diary,
    /// Numbers of jobs that have ended, successfully or not.
    pub done: BTreeSet<u64>,
}

impl Book {
    /// Reads a line.
    pub fn add(&mut self, text: &str) {
        if let Some(Line { what: What::Ended(end), planned, .. }) = Line::parse(text) {
            self.done.extend(planned.parse::<u64>().ok().filter(|_| end.is_final()));
        }
        self.diary.add_text(text);
    }

    /// How many runs there are of jobs with these numbers.
    pub fn runs(&self, is_of: impl Fn(u64) -> bool) -> usize {
        let numbers = self.diary.runs().filter_map(|run| run.planned.parse().ok());
        numbers.filter(|number| is_of(*number)).count()
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
