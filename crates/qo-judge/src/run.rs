//! One run of a job.

use std::fmt;
use std::sync::Arc;

/// How a run ended, as far as its records say.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum End {
    /// It recorded no end.
    #[default]
    Open,
    /// It did its work.
    Done,
    /// It ended for good, without success.
    Failed,
    /// It asks for another attempt.
    Retry,
    /// It was stopped before it was done, and recorded that.
    Stopped,
    /// It recorded no end, and its worker was killed.
    Killed,
}

impl End {
    /// Whether the job needs no further run.
    pub fn is_final(self) -> bool {
        matches!(self, Self::Done | Self::Failed)
    }
}

/// One attempt of one job, from its first line to its last.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Run {
    /// The id of the job in the store.
    pub job: Arc<str>,
    /// The name by which the submitter knows the job; its id, unless the store may hold the job twice.
    pub planned: Arc<str>,
    /// What the job says about itself: task, queue, key.
    pub says: Arc<str>,
    /// The worker that ran it.
    pub worker: Arc<str>,
    /// The fence token of its claim.
    pub token: u64,
    /// When it began, on the machine's monotonic clock.
    pub from_ns: u64,
    /// When it ended, or wrote its last line.
    pub to_ns: u64,
    /// When it recorded in between that it runs.
    pub beats: Vec<u64>,
    /// How it ended.
    pub end: End,
}

impl fmt::Display for Run {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { planned, token, worker, from_ns, to_ns, end, .. } = self;
        write!(f, "job {planned} token {token} on {worker} {}–", from_ns / 1_000)?;
        match *to_ns {
            u64::MAX => write!(f, "… µs {end:?}"),
            to_ns => write!(f, "{} µs {end:?}", to_ns / 1_000),
        }
    }
}
