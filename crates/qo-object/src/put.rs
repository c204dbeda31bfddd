//! Putting a record at the end of the log, whatever the store answers.
//!
//! 1. Create record N unless there is one.
//! 2. If the store says that it was created, it is ours.
//! 3. Otherwise read record N. Our nonce: an earlier try created it, and it is ours once it is on the disk. Another
//!    nonce: the other writer was first. Nothing there: go back to step 1, up to [`Options::attempts`] times.
//!
//! Invariants: `Ours` means that the record is on the disk. `Unavailable` and `Invalid` mean that the record is not
//! there and will not be. All else is `Unknown`.

use crate::log::{Created, Log};
use crate::record::Record;
use crate::store::Options;
use qo_core::{Error, ErrorKind, Result};

/// The outcome for a record that was to be the next one.
pub(crate) enum Put {
    /// It is there, on the disk. It has this many bytes.
    Ours(usize),
    /// Another writer was first: its record, and how many bytes that has.
    Theirs(Box<Record>, usize),
}

/// Creates a record, or returns the one of the writer that was first. `Unavailable` if the record is not there and will
/// not be, `Invalid` if that is because the right to write is missing, else `Unknown`.
pub(crate) async fn put(log: &Log, record: &Record, options: &Options) -> Result<Put> {
    let (path, bytes) = (Log::path(record.number), record.encode()?);
    let size = bytes.len();
    let mut why = String::new();
    log.medium().still_there()?;
    for attempt in 0..options.attempts {
        if attempt > 0 {
            tokio::time::sleep(options.pause).await;
        }
        let created = log.create_record(record.number, bytes.clone()).await;
        match created {
            Created::Done => {
                // The directory may have gone meanwhile, and the record with it.
                log.medium().still_there().map_err(unknown)?;
                return Ok(Put::Ours(size));
            }
            Created::Exists => {}
            // Nothing was written, and another try would get the same answer.
            Created::Refused(error) if attempt == 0 => return Err(error),
            // An earlier try may have written: see below.
            Created::Refused(error) => why = error.message().to_owned(),
            Created::Unknown(error) => why = error,
        }
        // The record may be there all the same, and be ours: an answer can be lost after the write.
        match log.read_sized(record.number).await {
            Ok(Some((found, _))) if found.nonce == record.nonce => {
                // A record shows before it is on the disk.
                log.medium().sync().await?;
                return Ok(Put::Ours(size));
            }
            Ok(Some((found, size))) => return Ok(Put::Theirs(Box::new(found), size)),
            Ok(None) if why.is_empty() => why = format!("{path}: it exists, and it does not"),
            Ok(None) => {}
            Err(error) if error.kind() == ErrorKind::Data => return Err(error),
            Err(error) => why = error.message().to_owned(),
        }
    }
    // The directory was there at first, and the record may be in it.
    log.medium().still_there().map_err(unknown)?;
    let may_land = log.medium().policy().writes_land_late;
    let kind = match !may_land && matches!(log.read(record.number).await, Ok(None)) {
        true => ErrorKind::Unavailable,
        false => ErrorKind::Unknown,
    };
    Err(Error::new(kind, format!("{path}: {why}")))
}

/// The outcome in a directory that has gone since is unknown. That it is another directory is known.
fn unknown(error: Error) -> Error {
    match error.kind() {
        ErrorKind::Unavailable => Error::new(ErrorKind::Unknown, error.message()),
        _ => error,
    }
}
