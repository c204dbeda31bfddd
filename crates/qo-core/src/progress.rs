//! Progress: how far along a running job is, by its own report. No rule depends on it; the store refuses and renews
//! nothing because of it.

use crate::{Error, FenceToken, JobId, Result, Time, caps, job};
use serde::{Deserialize, Serialize};
use std::{fmt, sync::Arc};

/// A worker's report on a job that it runs. It rides in the [exchange](crate::Exchange).
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Progress {
    /// The job.
    pub job: JobId,
    /// The token that owns it.
    pub token: FenceToken,
    /// How much of it is done, 0 to 100.
    pub percent: u8,
    /// A note in words. Defaults to none.
    #[serde(default)]
    pub note: Note,
}

impl Progress {
    /// Checks every rule that needs no state.
    pub fn check(&self) -> Result<()> {
        if self.percent > 100 {
            return Err(Error::invalid("percent", self.percent, "must be 0 to 100"));
        }
        Ok(())
    }
}

/// The newest report on a running job.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(not(feature = "testkit"), non_exhaustive)]
pub struct JobProgress {
    /// How much of it is done, 0 to 100.
    pub percent: u8,
    /// A note in words.
    pub note: Note,
    /// When this was first reported.
    pub at: Time,
}

/// A handler's note on its progress, at most [`caps::NOTE_BYTES`] long. A longer text is cut, and a NUL is replaced.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(from = "String", into = "String")]
pub struct Note(Arc<str>);

impl Note {
    /// The text itself.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl Default for Note {
    fn default() -> Self {
        "".into()
    }
}

impl From<&str> for Note {
    fn from(text: &str) -> Self {
        Self(job::bounded(text, caps::NOTE_BYTES))
    }
}

impl From<String> for Note {
    fn from(text: String) -> Self {
        text.as_str().into()
    }
}

impl From<Note> for String {
    fn from(note: Note) -> Self {
        note.0.as_ref().into()
    }
}

impl fmt::Display for Note {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}
