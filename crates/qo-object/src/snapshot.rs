//! Snapshots: the state as an object. A reader begins at the newest one, and replays the records after it.

use crate::format;
use crate::log::{Created, Log, number_of, numbered};
use crate::record::{Encoder, body, parse};
use crate::store::Host;
use object_store::path::Path;
use qo_core::{Error, ErrorKind, Result, State};
use serde::{Deserialize, Serialize};
use uuid::Uuid;

/// The place of a snapshot in the log: its first line.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Covered {
    /// The last record that it covers.
    pub(crate) number: u64,
    /// The nonce of that record.
    pub(crate) nonce: Uuid,
}

impl Covered {
    pub(crate) const NOTHING: Self = Self { number: 0, nonce: Uuid::nil() };
}

/// The state at a place of the log.
pub(crate) struct Snapshot {
    pub(crate) covered: Covered,
    pub(crate) state: State,
    /// Its size.
    pub(crate) bytes: usize,
}

/// The object of a snapshot.
pub(crate) fn path(number: u64) -> Path {
    numbered("snapshot", number)
}

/// The state after a record, as an object.
pub(crate) fn encode(covered: Covered, state: &State) -> Result<Vec<u8>> {
    let mut encoder = Encoder::new();
    encoder.line(&covered)?;
    state.snapshot().try_for_each(|row| encoder.line(&row))?;
    Ok(encoder.finish())
}

/// Writes a snapshot, unless there is one. If that fails nothing is lost, and another process writes the next one.
pub(crate) async fn write(log: &Log, number: u64, bytes: Vec<u8>) -> bool {
    // Another namespace in the place of the one that was opened would begin with it.
    if format::confirm(log).await.is_err() {
        return false;
    }
    matches!(log.create(&path(number), bytes).await, Created::Done | Created::Exists)
}

impl Snapshot {
    fn decode(name: &str, bytes: &[u8]) -> Result<Self> {
        let mut lines = body(name, bytes)?.split(|byte| *byte == b'\n');
        let covered: Covered = parse(name, lines.next().unwrap_or_default())?;
        let mut failed = None;
        let rows = lines.map_while(|line| parse(name, line).map_err(|error| failed = Some(error)).ok());
        let state = State::restore(rows);
        match failed {
            Some(error) => Err(error),
            None => Ok(Self { covered, state: state?, bytes: bytes.len() }),
        }
    }

    /// Reads a snapshot. `Data` if it is damaged.
    pub(crate) async fn read(log: &Log, path: &Path) -> Result<Option<Self>> {
        let Some(bytes) = log.medium().get(path).await? else { return Ok(None) };
        let snapshot = Self::decode(path.as_ref(), &bytes)?;
        if Some(snapshot.covered.number) != number_of(path) {
            let what = format!("{path}: is damaged: it says that it covers {}", snapshot.covered.number);
            return Err(Error::new(ErrorKind::Data, what));
        }
        Ok(Some(snapshot))
    }

    /// The newest snapshot that can be read; an empty state if there is none. A reader skips a damaged snapshot: the
    /// records say the same.
    pub(crate) async fn newest(log: &Log) -> Result<Self> {
        for number in log.numbers("snapshot").await?.into_iter().rev() {
            match Self::read(log, &path(number)).await {
                Ok(Some(snapshot)) => return Ok(snapshot),
                Ok(None) => {}
                Err(error) if error.kind() == ErrorKind::Data => {
                    tracing::warn!("{error}; an older snapshot and the records say the same");
                }
                Err(error) => return Err(error),
            }
        }
        Ok(Self { covered: Covered::NOTHING, state: State::new(), bytes: 0 })
    }

    /// Which record the newest snapshot covers, from its name alone.
    pub(crate) async fn newest_number(log: &Log) -> Result<u64> {
        Ok(log.numbers("snapshot").await?.pop().unwrap_or(0))
    }

    /// Whether a state can be restored from a snapshot, which a checksum does not tell: the records that it covers may
    /// be deleted then. It is restored beside the log's thread, which serves calls meanwhile, unless `host` is the
    /// runtime of a simulation.
    pub(crate) async fn can_be_restored(log: &Log, number: u64, host: Host) -> Result<bool> {
        let path = path(number);
        let Some(bytes) = log.medium().get(&path).await? else { return Ok(false) };
        let restore = move || Self::decode(path.as_ref(), &bytes).map(|snapshot| snapshot.covered.number);
        let restored = match host {
            Host::Runtime => restore(),
            Host::Thread => tokio::task::spawn_blocking(restore).await.unwrap_or_else(|error| {
                Err(Error::new(ErrorKind::Internal, format!("a snapshot could not be restored: {error}")))
            }),
        };
        match restored {
            Ok(covered) => Ok(covered == number),
            Err(error) => {
                tracing::warn!("{error}; no record is swept until a newer snapshot can be restored");
                Ok(false)
            }
        }
    }
}

/// Whether a log that seems to end at record `end` was swept beyond it: the next records were written, covered and
/// deleted.
///
/// Where records are swept in order: if the record before the end is there, the record after it was not swept, whatever
/// any clock says. (The end itself does not tell: a late writer may have created it in a place that was swept.) If it
/// is not there, a snapshot tells: a record is swept only if a newer one is covered too.
pub(crate) async fn is_swept_beyond(log: &Log, end: u64) -> Result<bool> {
    if end > 1 && log.has(end - 1).await? {
        return Ok(false);
    }
    Ok(Snapshot::newest_number(log).await? > end)
}

/// The error of records that are missing at the end of a log that had reached further.
pub(crate) fn lost(first: u64, last: u64) -> Error {
    let records = match last - first {
        0 => format!("{}: is missing", Log::path(first)),
        _ => format!("{} to {}: are missing", Log::path(first), Log::path(last)),
    };
    let what = format!("{records}: the log had reached record {last}; run qo doctor");
    Error::new(ErrorKind::Data, what)
}

/// The error of a record that is missing although a later one, or a snapshot that covers it, is there.
pub(crate) fn missing(number: u64) -> Error {
    Error::new(ErrorKind::Data, format!("{}: is missing", Log::path(number)))
}
