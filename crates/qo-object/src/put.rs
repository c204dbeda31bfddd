//! Putting a record at the end of the log, whatever the store answers.

use crate::log::{Created, Log};
use crate::record::Record;
use crate::store::Options;
use qo_core::{Error, ErrorKind, Result};

/// What became of a record that was to be the next one.
pub(crate) enum Put {
    /// It is there, on the disk, and ours. It has this many bytes.
    Ours(usize),
    /// Somebody else was first.
    Theirs(Box<Record>, usize),
}

/// Creates a record, or says who was first. `Unavailable` means that it is not there and will not be, `Invalid` the same
/// because the right to write is missing, `Unknown` that nobody knows.
pub(crate) async fn put(log: &Log, record: &Record, options: &Options) -> Result<Put> {
    let (path, bytes) = (Log::path(record.number), record.encode()?);
    let size = bytes.len();
    let mut why = String::new();
    log.still_there()?;
    for attempt in 0..options.attempts {
        if attempt > 0 {
            tokio::time::sleep(options.pause).await;
        }
        let created = log.create_record(record.number, bytes.clone()).await;
        match created {
            Created::Done => {
                // It may have gone meanwhile, and the record with it.
                log.still_there().map_err(unknown)?;
                return Ok(Put::Ours(size));
            }
            Created::Exists => {}
            // Not of the first try either: nothing is there, and asking again would bring the same answer.
            Created::Refused(error) if attempt == 0 => return Err(error),
            // What an earlier try did is another matter: that is looked up below.
            Created::Refused(error) => why = error.message().to_owned(),
            Created::Unknown(error) => why = error,
        }
        // It may be there all the same, and be ours: an answer can be lost after the deed.
        match log.read_sized(record.number).await {
            Ok(Some((found, _))) if found.nonce == record.nonce => {
                // It can be seen; that does not mean that it is on the disk.
                log.sync().await?;
                return Ok(Put::Ours(size));
            }
            Ok(Some((found, size))) => return Ok(Put::Theirs(Box::new(found), size)),
            Ok(None) if why.is_empty() => why = format!("{path}: it exists, and it does not"),
            Ok(None) => {}
            Err(error) if error.kind() == ErrorKind::Data => return Err(error),
            Err(error) => why = error.message().to_owned(),
        }
    }
    // It was there at first, and a record may be in it.
    log.still_there().map_err(unknown)?;
    // A directory does what it does at once: what is not there now will not come. A bucket may still be at it.
    let kind = match log.directory().is_some() && matches!(log.read(record.number).await, Ok(None)) {
        true => ErrorKind::Unavailable,
        false => ErrorKind::Unknown,
    };
    Err(Error::new(kind, format!("{path}: {why}")))
}

/// Of a store that has gone since nobody knows what happened in it; that it is another one is known.
fn unknown(error: Error) -> Error {
    match error.kind() {
        ErrorKind::Unavailable => Error::new(ErrorKind::Unknown, error.message()),
        _ => error,
    }
}
