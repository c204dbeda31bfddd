//! A plea for a turn, in a bucket: whoever writes without a pause is to leave room for somebody else.
//!
//! A writer who is alone writes one record right after the other. Somebody who comes then has to see the last one before he
//! can write the next, and by then the first has written that: he could lose race after race. So who has lost some leaves an
//! object, `wanting/turn`, with his name and how long a record takes him; and every writer looks at it now and then, while a
//! record of his own is on its way. If it has changed he leaves room after each record, enough for the other, until that one
//! has written, or for some seconds.
//!
//! On a directory nobody needs it: there whoever wants to write can say so.

use crate::log::Log;
use std::time::Duration;
use tokio::time::Instant;
use uuid::Uuid;

/// Races that are lost before somebody pleads, and how long until he does it again.
const RACES: u32 = 3;
const AGAIN: Duration = Duration::from_secs(2);
/// A writer looks whether somebody pleads with every so many of his records.
const RECORDS: u32 = 16;
/// How long room is left for one who does not come.
const ROOM: Duration = Duration::from_secs(3);

/// What one writer knows of pleas, his own and others'.
#[derive(Debug, Default)]
pub(crate) struct Plea {
    pleaded: Option<Instant>,
    /// Records since somebody was last looked for; none if nobody was yet.
    records: Option<u32>,
    /// The plea that was seen last, or made.
    seen: Option<Vec<u8>>,
    room: Option<Room>,
}

/// Room that is left for somebody.
#[derive(Debug)]
struct Room {
    whose: Uuid,
    pace: Duration,
    until: Instant,
}

impl Plea {
    /// So many races in a row were lost by a writer whom a record takes so long: pleads for a turn if that is too many. Nothing
    /// rests on it.
    pub(crate) async fn lost(&mut self, log: &Log, races: u32, me: Uuid, pace: Duration) {
        let is_soon = self.pleaded.is_some_and(|at| at.elapsed() < AGAIN);
        if log.directory().is_some() || races < RACES || is_soon {
            return;
        }
        self.pleaded = Some(Instant::now());
        // The last word makes each of them another one.
        let plea = format!("{me} {} {}", pace.as_millis(), Uuid::new_v4()).into_bytes();
        self.seen = Some(plea.clone());
        log.replace(&path(), plea).await;
    }

    /// Looks whether somebody pleads, if that was not done with one of the last records.
    pub(crate) async fn look(&mut self, log: &Log) {
        let records = self.records.map_or(RECORDS, |records| records.saturating_add(1));
        let is_first = self.records.is_none();
        if log.directory().is_some() || records < RECORDS {
            self.records = Some(records);
            return;
        }
        let Ok(plea) = log.get(&path()).await else { return };
        self.records = Some(0);
        // One that was there before anybody looked may be of yesterday.
        if plea != self.seen && !is_first {
            self.room = plea.as_deref().and_then(Room::read);
        }
        self.seen = plea;
    }

    /// A record of this writer was seen: if it was he who pleaded, turns are taken from now on.
    pub(crate) fn saw(&mut self, writer: Uuid) {
        self.room.take_if(|room| room.whose == writer);
    }

    /// How long a record takes the one for whom room is to be left; none if that is nobody.
    pub(crate) fn heard(&self) -> Option<Duration> {
        self.room.as_ref().filter(|room| Instant::now() < room.until).map(|room| room.pace)
    }

    /// Whether room is to be left for somebody.
    pub(crate) fn is_heard(&self) -> bool {
        self.heard().is_some()
    }
}

impl Room {
    fn read(plea: &[u8]) -> Option<Self> {
        let mut words = std::str::from_utf8(plea).ok()?.split(' ');
        let (whose, pace_ms) = (words.next()?.parse().ok()?, words.next()?.parse().ok()?);
        Some(Self { whose, pace: Duration::from_millis(pace_ms), until: Instant::now() + ROOM })
    }
}

fn path() -> object_store::path::Path {
    object_store::path::Path::from("wanting/turn")
}
