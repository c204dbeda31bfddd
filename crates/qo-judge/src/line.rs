//! One line of a diary: `WHAT NANOSECONDS WORKER TOKEN JOB PLANNED SAYS`.
//!
//! `SAYS` is the rest of the line and may be empty. No other part holds a space.

use crate::run::End;
use std::fmt;
use std::sync::Arc;

/// What a job records.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum What {
    /// It begins.
    Began,
    /// It still runs.
    Beat,
    /// It ends.
    Ended(End),
}

const WORDS: [(What, &str); 6] = [
    (What::Began, "began"),
    (What::Beat, "beat"),
    (What::Ended(End::Done), "done"),
    (What::Ended(End::Failed), "failed"),
    (What::Ended(End::Retry), "retry"),
    (What::Ended(End::Stopped), "stopped"),
];

/// A line that a job wrote.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Line {
    /// What it records.
    pub what: What,
    /// When, on the machine's monotonic clock.
    pub at_ns: u64,
    /// The worker that runs it.
    pub worker: Arc<str>,
    /// The fence token of its claim.
    pub token: u64,
    /// The id of the job in the store.
    pub job: Arc<str>,
    /// The name by which the submitter knows the job.
    pub planned: Arc<str>,
    /// What the job says about itself.
    pub says: Arc<str>,
}

impl Line {
    /// Reads a line; none if it is no line of a diary.
    pub fn parse(text: &str) -> Option<Self> {
        let mut parts = text.trim_end_matches('\n').splitn(7, ' ');
        let mut next = || parts.next();
        let word = next()?;
        let what = WORDS.iter().find(|(_, known)| *known == word)?.0;
        let (at_ns, worker, token) = (next()?.parse().ok()?, next()?.into(), next()?.parse().ok()?);
        let (job, planned) = (next()?.into(), next()?.into());
        Some(Self { what, at_ns, worker, token, job, planned, says: next().unwrap_or_default().into() })
    }
}

impl fmt::Display for Line {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { what, at_ns, worker, token, job, planned, says } = self;
        // A job records no other end; a reader would find this line strange.
        let word = WORDS.iter().find(|(known, _)| known == what).map_or("ended", |(_, word)| word);
        write!(f, "{word} {at_ns} {worker} {token} {job} {planned} {says}")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_is_read_as_it_was_written() {
        for (what, _) in WORDS {
            let line = Line {
                what,
                at_ns: 17,
                worker: "w1".into(),
                token: 3,
                job: "id".into(),
                planned: "7".into(),
                says: "task queue key with spaces".into(),
            };
            assert_eq!(Line::parse(&format!("{line}\n")), Some(line));
        }
    }

    #[test]
    fn a_line_of_another_kind_is_not_read() {
        for text in ["", "began", "began x w 1 id id ", "slept 1 w 1 id id ", "began 1 w 1 id"] {
            assert_eq!(Line::parse(text), None, "{text:?}");
        }
    }
}
