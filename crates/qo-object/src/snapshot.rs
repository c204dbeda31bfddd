//! Snapshots: the state as an object. A reader begins at the newest one and replays what came after it.

use crate::log::Log;
use crate::record::{decode, encode};
use object_store::path::Path;
use qo_core::{Error, ErrorKind, Result, SnapshotRow, State};
use serde::{Deserialize, Serialize};

/// The state after a record.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Snapshot {
    /// The last record that it covers.
    pub number: u64,
    /// The state, row by row.
    pub rows: Vec<SnapshotRow>,
}

impl Snapshot {
    /// The object of a snapshot.
    pub fn path(number: u64) -> Path {
        Path::from(format!("snapshot/{number:020}"))
    }

    /// Writes the state after a record, unless somebody has. It is a convenience: if it fails nothing is lost, and
    /// somebody else will write the next one.
    pub async fn write(log: &Log, number: u64, state: &State) -> Result<()> {
        let bytes = encode(&Self { number, rows: state.snapshot().collect() })?;
        log.create(&Self::path(number), bytes).await;
        Ok(())
    }

    /// The newest state that can be read, and the record that it covers; an empty one if there is no snapshot. A
    /// damaged snapshot is passed over: the records say the same.
    pub async fn newest(log: &Log) -> Result<(u64, State)> {
        for path in log.list("snapshot").await?.into_iter().rev() {
            let Some(bytes) = log.get(&path).await? else { continue };
            let restored = decode::<Self>(path.as_ref(), &bytes)
                .and_then(|snapshot| Ok((snapshot.number, State::restore(snapshot.rows)?)));
            match restored {
                Ok((number, state)) if Self::path(number) == path => return Ok((number, state)),
                Ok(_) => {}
                Err(error) if error.kind() == ErrorKind::Data => {}
                Err(error) => return Err(error),
            }
        }
        Ok((0, State::new()))
    }
}

/// A record that is missing although a later one, or a snapshot that covers it, is there.
pub(crate) fn missing(number: u64) -> Error {
    Error::new(ErrorKind::Data, format!("{}: is missing", Log::path(number)))
}
