//! What a writer's callers are told when the store refuses its writes.

use qo_core::{Error, ErrorKind};
use std::time::Duration;
use tokio::time::Instant;

/// How long writes may be refused to a process that could write before.
const REFUSED: Duration = Duration::from_secs(60);

/// Whether this process could write, and since when its writes are refused.
#[derive(Debug, Default)]
pub(super) struct WriteRights {
    has_written: bool,
    refused_since: Option<Instant>,
}

impl WriteRights {
    /// A record is there.
    pub(super) fn wrote(&mut self) {
        (self.has_written, self.refused_since) = (true, None);
    }

    /// What callers are told about an error. Rights that this process never had are missing for good. Rights that it
    /// had may come back, as they do when policies are changed: for a while that is `Unavailable`.
    pub(super) fn refused(&mut self, error: Error) -> Error {
        if error.kind() != ErrorKind::Invalid || !self.has_written {
            return error;
        }
        let since = *self.refused_since.get_or_insert_with(Instant::now);
        match since.elapsed() < REFUSED {
            true => Error::new(ErrorKind::Unavailable, error.message()),
            false => error,
        }
    }
}
