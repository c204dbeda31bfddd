//! A plea for a turn, in a bucket: whoever writes without a pause is to leave room for somebody else.
//!
//! A writer who is alone writes one record right after the other. Somebody who comes then has to see the last one before he
//! can write the next, and by then the first has written that: he could lose race after race. So who has lost some leaves an
//! object, `wanting/turn`, and who is alone looks at it now and then, while a record of his own is on its way. If it has
//! changed he leaves a [moment](crate::turn) after each record for a while; and when the other has written, he is seen.
//!
//! On a directory nobody needs it: there whoever wants to write can say so.

use crate::log::Log;
use std::time::Duration;
use tokio::time::{Instant, timeout};
use uuid::Uuid;

/// Races that are lost before somebody pleads, and how long until he does it again.
const RACES: u32 = 3;
const AGAIN: Duration = Duration::from_secs(2);
/// Who is alone looks whether somebody pleads with every so many of his records.
const RECORDS: u32 = 16;
/// How long that may take: the record that is on its way meanwhile is not to wait for it.
const PATIENCE: Duration = Duration::from_millis(250);
/// How long he leaves room then.
const ROOM: Duration = Duration::from_secs(2);

/// What one writer knows of pleas, his own and others'.
#[derive(Debug, Default)]
pub(crate) struct Plea {
    pleaded: Option<Instant>,
    /// Records since somebody was last looked for; none if nobody was yet.
    records: Option<u32>,
    /// The plea that was seen last, or made.
    seen: Option<Vec<u8>>,
    room_until: Option<Instant>,
}

impl Plea {
    /// So many races in a row were lost: pleads for a turn if that is too many. Nothing rests on it.
    pub(crate) async fn lost(&mut self, log: &Log, races: u32) {
        let is_soon = self.pleaded.is_some_and(|at| at.elapsed() < AGAIN);
        if log.directory().is_some() || races < RACES || is_soon {
            return;
        }
        self.pleaded = Some(Instant::now());
        let plea = Uuid::new_v4().as_bytes().to_vec();
        self.seen = Some(plea.clone());
        log.replace(&path(), plea).await;
    }

    /// Looks whether somebody pleads, if that was not done with one of the last records.
    pub(crate) async fn look(&mut self, log: &Log) {
        let records = self.records.map_or(RECORDS, |records| records + 1);
        let is_first = self.records.replace(records).is_none();
        if log.directory().is_some() || records < RECORDS {
            return;
        }
        self.records = Some(0);
        let Ok(Ok(plea)) = timeout(PATIENCE, log.get(&path())).await else { return };
        // One that was there before anybody looked may be of yesterday.
        if plea.is_some() && plea != self.seen && !is_first {
            self.room_until = Some(Instant::now() + ROOM);
        }
        self.seen = plea;
    }

    /// Somebody else has written: from now on turns are taken.
    pub(crate) fn is_granted(&mut self) {
        self.room_until = None;
    }

    /// Whether room is to be left for others.
    pub(crate) fn is_heard(&self) -> bool {
        self.room_until.is_some_and(|until| Instant::now() < until)
    }
}

fn path() -> object_store::path::Path {
    object_store::path::Path::from("wanting/turn")
}
