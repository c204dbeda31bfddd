//! Yield requests, in a bucket: a newcomer that keeps losing races asks a busy writer for room.
//!
//! A writer that is alone leaves no pause between two records. By the time a newcomer has read the last record the next
//! one is there, so the newcomer could lose race after race.
//!
//! 1. After [`RACES`] lost races the newcomer replaces the object `wanting/turn` with its id and the time that a record
//!    takes it.
//! 2. Every writer reads that object with each [`RECORDS`]th of its records, in parallel with the write.
//! 3. If the object has changed, the writer leaves room after each of its records, as long as the newcomer needs by its
//!    own account.
//! 4. It stops when it reads a record of the newcomer, or after [`ROOM`].
//!
//! Invariant: a request changes when a writer writes, never what it writes. A request that is lost costs time only.
//!
//! Where writers show by locks that they want to write, no request is made.

use crate::medium::Medium;
use std::time::Duration;
use tokio::time::Instant;
use uuid::Uuid;

/// Lost races in a row before a writer makes a request, and how long until it makes the next.
const RACES: u32 = 3;
const AGAIN: Duration = Duration::from_secs(2);
/// A writer looks for requests with every so many of its records.
const RECORDS: u32 = 16;
/// How long a writer leaves room for a newcomer that does not write.
const ROOM: Duration = Duration::from_secs(3);

/// What one process knows of yield requests, its own and those of other writers.
#[derive(Debug, Default)]
pub(crate) struct YieldRequest {
    /// When this process made its last request.
    made: Option<Instant>,
    /// Records since this process last read the object; none if it has not read it yet.
    records: Option<u32>,
    /// The request that this process read or made last.
    seen: Option<Vec<u8>>,
    room: Option<Room>,
}

/// Room that is left for a newcomer.
#[derive(Debug)]
struct Room {
    newcomer: Uuid,
    /// How long a record takes it.
    write_time: Duration,
    until: Instant,
}

impl YieldRequest {
    /// Makes a request if this writer, whose records take it `write_time` each, has lost too many races in a row.
    pub(crate) async fn lost(&mut self, medium: &Medium, races: u32, me: Uuid, write_time: Duration) {
        let is_soon = self.made.is_some_and(|at| at.elapsed() < AGAIN);
        if medium.policy().has_locks || races < RACES || is_soon {
            return;
        }
        self.made = Some(Instant::now());
        // The last word makes this request differ from the one before.
        let request = format!("{me} {} {}", write_time.as_millis(), Uuid::new_v4()).into_bytes();
        self.seen = Some(request.clone());
        medium.replace(&path(), request).await;
    }

    /// Looks for a request of another writer, with every [`RECORDS`]th call.
    pub(crate) async fn look(&mut self, medium: &Medium) {
        let records = self.records.map_or(RECORDS, |records| records.saturating_add(1));
        let is_first = self.records.is_none();
        if medium.policy().has_locks || records < RECORDS {
            self.records = Some(records);
            return;
        }
        let Ok(request) = medium.get(&path()).await else { return };
        self.records = Some(0);
        // The first look only learns what is there: that request may be a day old.
        if request != self.seen && !is_first {
            self.room = request.as_deref().and_then(Room::read);
        }
        self.seen = request;
    }

    /// A record of this writer was read. If it is the newcomer, the write order has it from now on.
    pub(crate) fn saw(&mut self, writer: Uuid) {
        self.room.take_if(|room| room.newcomer == writer);
    }

    /// How long a record takes the newcomer for which room must be left; none if there is none.
    pub(crate) fn heard(&self) -> Option<Duration> {
        self.room.as_ref().filter(|room| Instant::now() < room.until).map(|room| room.write_time)
    }

    /// Whether room must be left for a newcomer.
    pub(crate) fn is_heard(&self) -> bool {
        self.heard().is_some()
    }
}

impl Room {
    fn read(request: &[u8]) -> Option<Self> {
        let mut words = std::str::from_utf8(request).ok()?.split(' ');
        let (newcomer, write_ms) = (words.next()?.parse().ok()?, words.next()?.parse().ok()?);
        Some(Self { newcomer, write_time: Duration::from_millis(write_ms), until: Instant::now() + ROOM })
    }
}

fn path() -> object_store::path::Path {
    object_store::path::Path::from("wanting/turn")
}
