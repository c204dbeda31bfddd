//! What a namespace is: its format level, its identity, how far its log has reached, and whether a repair holds it.
//!
//! ```text
//! format/00000000000000000001        level 1; the identity of the namespace is in it
//! format/mark-00000000000000000300   (not in a directory) record 300 was there
//! format/hold-00000000000000000301   a repair lost records: nothing starts until an operator releases the hold
//! format/spoken-00000000000000000301 an operator did, and the hold could not be deleted
//! ```
//!
//! **Level.** The object `format/N` is created once; raising the level creates the next. A release refuses a namespace
//! whose level it does not know before it has written anything there.
//!
//! **Identity.** A random id, and store time when the namespace was made.
//!
//! 1. Several first users may create the format object at once. One creates it, the others read it.
//! 2. A process that has a namespace open compares its identity with the one that it finds: what is there may be
//!    another namespace, made after its own was moved, unmounted or deleted.
//! 3. The format object of an older release has no id; then the time alone tells.
//! 4. A damaged object is read once more, because bytes may be damaged on their way. If it is still damaged, it tells
//!    nothing, and the doctor reports it.
//!
//! **Mark.** A log that lost its last records looks like a shorter log. So a number that the log has reached is kept
//! beside it. In a directory it is the file `mark`, written after every record and not synced. Elsewhere it is an
//! object, and a PUT costs something, so these are marked:
//!
//! - record 1, and every [`MARK_EVERY`]th record;
//! - the last record of a process that ends in order, and one of its records in [`MARK_AFTER`] of a process that goes
//!   on;
//! - the end that a process finds when it opens the namespace, if that is ten records ahead of the mark.
//!
//! Invariant: a mark is written after its record is durable, so it is never ahead of the log. It may be behind.
//!
//! The listing that tells the level contains all of this, so a process that opens a namespace sends no further request.

use crate::log::{Created, Log, number_of, numbered};
use crate::record::{Encoder, LEVEL, body, parse};
use crate::snapshot::lost;
use futures::future::try_join;
use object_store::path::Path;
use qo_core::{Cause, Error, ErrorKind, GroupRef, Result, State, Time};
use serde::{Deserialize, Serialize};
use std::fmt;
use std::time::Duration;
use tokio::time::Instant;
use uuid::Uuid;

/// Where marks are objects, one of so many records is marked …
const MARK_EVERY: u64 = 100;
/// … and one in so long.
pub(crate) const MARK_AFTER: Duration = Duration::from_secs(600);
/// How often a process tries to make a namespace, and the pause between two tries.
const TRIES: (u32, Duration) = (10, Duration::from_millis(100));
/// Old marks that are kept.
const MARKS_KEPT: usize = 2;

/// Which namespace it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct Identity {
    /// A random id; none in a namespace that an older release made.
    pub id: Option<Uuid>,
    /// The store's time when it was made.
    pub made_at: Option<Time>,
}

impl fmt::Display for Identity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.id {
            Some(id) => write!(f, "namespace {id}")?,
            None => f.write_str("namespace without an id")?,
        }
        self.made_at.map_or(Ok(()), |at| write!(f, ", made {at}"))
    }
}

/// What to do where there is no namespace.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Absent {
    /// Make one.
    Make,
    /// `Unavailable`: it should be there, and may come back. For a mounted place.
    Refuse,
    /// `NotFound`: for a caller that only looks.
    NotFound,
}

/// What a repair that lost records leaves behind: nothing starts until an operator releases it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Hold {
    /// When the repair was made.
    pub at: Time,
    /// What was lost; if it is very much, the first of it.
    pub lost: Vec<String>,
    /// The operator's limit of `cluster` before the hold, which [`release`](crate::doctor::release) puts back.
    #[serde(default)]
    pub cluster: Option<u32>,
}

#[derive(Serialize, Deserialize)]
struct Level {
    level: u64,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    id: Option<Uuid>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    made_at: Option<Time>,
}

/// What is found in `format/`.
#[derive(Debug, Clone, Default)]
pub(crate) struct Found {
    /// None if no process has written to the namespace.
    pub(crate) level: Option<u64>,
    pub(crate) identity: Option<Identity>,
    /// What is wrong with the format object, if it is damaged.
    pub(crate) damage: Option<String>,
    /// The highest record that is known to have been there.
    pub(crate) mark: u64,
    /// Repairs that hold the namespace, oldest first.
    pub(crate) holds: Vec<Path>,
    /// Marks that newer ones replace.
    pub(crate) old_marks: Vec<Path>,
}

/// The format object of this release.
pub(crate) fn path() -> Path {
    numbered("format", LEVEL.into())
}

/// The level of a namespace; none if it has none yet.
pub(crate) async fn level(log: &Log) -> Result<Option<u64>> {
    Ok(find(log).await?.level)
}

/// Looks at `format/`. The listing and the format object are requested in parallel.
pub(crate) async fn find(log: &Log) -> Result<Found> {
    let (names, object) = try_join(log.medium().list("format"), read_identity(log)).await?;
    let numbers = |kind: &str| {
        let prefix = format!("format/{kind}-");
        let number = |path: &Path| {
            let number = path.as_ref().strip_prefix(&prefix)?;
            number_of(&Path::from(format!("format/{number}")))
        };
        names.iter().filter_map(number).collect::<Vec<_>>()
    };
    // A listing may be late.
    let level = names.iter().filter_map(number_of).max().or(object.as_ref().map(|_| LEVEL.into()));
    let mut marks = numbers("mark");
    marks.sort_unstable();
    let mark = marks.last().copied().unwrap_or(0).max(log.medium().marked());
    let spoken = numbers("spoken").into_iter().max();
    let is_open = |number: &u64| spoken.is_none_or(|spoken| *number > spoken);
    let holds = numbers("hold").into_iter().filter(is_open).map(hold_path).collect();
    let (identity, damage) = match object {
        Some(Ok(identity)) => (Some(identity), None),
        Some(Err(damage)) => (None, Some(damage.message().to_owned())),
        None => (None, None),
    };
    marks.truncate(marks.len().saturating_sub(MARKS_KEPT));
    let old_marks = marks.into_iter().map(mark_path).collect();
    Ok(Found { level, identity, damage, mark, holds, old_marks })
}

/// The identity that the format object of this release tells, or what is wrong with the object; none if there is no
/// such object.
async fn read_identity(log: &Log) -> Result<Option<Result<Identity>>> {
    let read = async || {
        let found = log.medium().get_stamped(&path()).await?;
        Ok::<_, Error>(found.map(|(bytes, written)| {
            let identity = identity_in(&bytes)?;
            Ok(Identity { made_at: identity.made_at.or(Some(written)), ..identity })
        }))
    };
    match read().await? {
        // Bytes that were damaged on their way are whole the next time.
        Some(Err(_)) => read().await,
        told => Ok(told),
    }
}

/// The identity in the bytes of a format object. `Data` if they are damaged.
pub(crate) fn identity_in(bytes: &[u8]) -> Result<Identity> {
    let name = path();
    let level = body(name.as_ref(), bytes).and_then(|body| parse::<Level>(name.as_ref(), body))?;
    Ok(Identity { id: level.id, made_at: level.made_at })
}

/// Whether there is no namespace at a place, so that the caller makes one. `Unavailable` or `NotFound` if it may not,
/// `Data` if there was one.
pub(crate) async fn is_to_be_made(log: &Log, absent: Absent, place: &str) -> Result<bool> {
    let found = find(log).await?;
    if found.level.is_some() {
        return Ok(false);
    }
    if found.mark > 0 || !log.numbers("log").await?.is_empty() || !log.numbers("snapshot").await?.is_empty() {
        // Another process may have made it meanwhile, and written.
        return if find(log).await?.level.is_some() { Ok(false) } else { Err(without_format(place)) };
    }
    if absent == Absent::Make { Ok(true) } else { Err(self::absent(absent, place)) }
}

/// There is no namespace, and none is made.
pub(crate) fn absent(absent: Absent, place: &str) -> Error {
    match absent {
        Absent::Refuse => {
            let why = "and none is made: the URL says create=never. Is it mounted? `qo migrate up` with a URL that does \
                       not say so makes one";
            Error::new(ErrorKind::Unavailable, format!("there is no namespace at {place}, {why}"))
                .with_cause(Cause::MustNotCreate)
        }
        Absent::Make | Absent::NotFound => {
            Error::new(ErrorKind::NotFound, format!("there is no namespace at {place}"))
                .with_cause(Cause::NoNamespace)
        }
    }
}

fn without_format(place: &str) -> Error {
    let what = format!("{place}: {} is missing, and there are records: run qo doctor", path());
    Error::new(ErrorKind::Data, what)
}

/// Makes a namespace. False if another process was first.
pub(crate) async fn make(log: &Log) -> Result<bool> {
    let made_at = log.medium().time_of_making().await;
    let (id, mut encoder) = (Some(Uuid::new_v4()), Encoder::new());
    encoder.line(&Level { level: LEVEL.into(), id, made_at })?;
    let (bytes, mut why) = (encoder.finish(), String::new());
    for attempt in 0..TRIES.0 {
        if attempt > 0 {
            tokio::time::sleep(TRIES.1).await;
        }
        match log.create(&path(), bytes.clone()).await {
            Created::Done => return Ok(true),
            Created::Exists => {}
            Created::Refused(error) => return Err(error),
            Created::Unknown(error) => why = error,
        }
        // An answer can be lost after the write: the id tells which process made the namespace. And a server may refuse
        // both of two processes that try at once.
        match read_identity(log).await {
            Ok(Some(Ok(identity))) => return Ok(identity.id == id),
            Ok(Some(Err(damage))) => return Err(damage),
            Ok(None) if why.is_empty() => why = "it exists, and it does not".into(),
            Ok(None) => {}
            Err(error) => why = error.message().to_owned(),
        }
    }
    Err(Error::new(ErrorKind::Unavailable, format!("{}: {why}", path())))
}

/// Checks that this release can work with the namespace, and that it is the one that this process has opened. Returns
/// what was found.
pub(crate) async fn check(log: &Log) -> Result<Found> {
    let (found, ours) = (find(log).await?, u64::from(LEVEL));
    match found.level {
        Some(level) if level == ours => {}
        Some(level) => {
            let advice = if level > ours { "use a newer release of qo" } else { "run qo migrate up" };
            let what = format!(
                "store: it has format {level}, this release of qo works with format {ours}: {advice}"
            );
            return Err(Error::new(ErrorKind::Data, what).with_cause(Cause::OtherFormat));
        }
        None if found.mark > 0 || log.has(1).await? => return Err(without_format("store")),
        None => return Err(away()),
    }
    if let Some(identity) = found.identity {
        log.recognise(identity)?;
    }
    Ok(found)
}

/// Asks the store whether the namespace is still the one that this process has opened, where the medium does not notice
/// by itself. If the store does not answer, or the object is damaged, this is no error: the caller's own request gets
/// it.
pub(crate) async fn confirm(log: &Log) -> Result<()> {
    if !log.medium().policy().asks_for_identity {
        return Ok(());
    }
    match read_identity(log).await {
        Ok(Some(Ok(identity))) => log.recognise(identity),
        Ok(None) => Err(away()),
        Ok(Some(Err(_))) | Err(_) => Ok(()),
    }
}

/// When the namespace was last seen to be the one that was opened. A namespace that was emptied, and made anew by
/// another process, must get no record that follows those of the old one.
pub(crate) struct Recognition {
    every: Duration,
    at: Instant,
}

impl Recognition {
    /// The namespace was opened now, and is asked for again every so often.
    pub(crate) fn new(every: Duration) -> Self {
        Self { every, at: Instant::now() }
    }

    /// The namespace was seen now.
    pub(crate) fn renew(&mut self) {
        self.at = Instant::now();
    }

    /// Asks the store if the last time is long ago, where the medium does not notice by itself.
    pub(crate) async fn confirm(&mut self, log: &Log) -> Result<()> {
        if log.medium().policy().asks_for_identity && self.at.elapsed() >= self.every {
            confirm(log).await?;
            self.renew();
        }
        Ok(())
    }
}

fn away() -> Error {
    Error::new(ErrorKind::Unavailable, "store: the namespace is not there any more")
}

/// Another namespace is in the place of the one that was opened.
pub(crate) fn another(opened: Identity, found: Identity) -> Error {
    let what = format!("store: opened was {opened}; there now is another one, {found}: start again");
    Error::new(ErrorKind::Data, what).with_cause(Cause::OtherNamespace)
}

/// `Data` if a log ends before its mark.
pub(crate) fn check_mark(end: u64, mark: u64) -> Result<()> {
    if end < mark { Err(lost(end + 1, mark)) } else { Ok(()) }
}

/// Marks that the log has reached a record, where marks are objects. If that fails, the next mark makes up for it.
/// Another namespace in the place of the one that was opened gets no mark: it would seem to have lost the end of its
/// log.
pub(crate) async fn mark(log: &Log, number: u64) -> bool {
    if !log.medium().policy().marks_by_objects {
        return true;
    }
    if confirm(log).await.is_err() {
        return false;
    }
    let marked = log.create(&mark_path(number), Vec::new()).await;
    matches!(marked, Created::Done | Created::Exists)
}

/// Whether a record is one that every process marks, however short it lives.
pub(crate) fn is_marked(number: u64) -> bool {
    number == 1 || number.is_multiple_of(MARK_EVERY)
}

fn mark_path(number: u64) -> Path {
    Path::from(format!("format/mark-{number:020}"))
}

/// Deletes marks that newer ones replace.
pub(crate) async fn sweep_marks(log: &Log) -> Result<()> {
    log.medium().delete_all(find(log).await?.old_marks).await
}

fn hold_path(number: u64) -> Path {
    Path::from(format!("format/hold-{number:020}"))
}

/// Puts the namespace on hold.
pub(crate) async fn hold(log: &Log, number: u64, hold: &Hold) -> Result<()> {
    let (path, mut encoder) = (hold_path(number), Encoder::new());
    encoder.line(hold)?;
    match log.create(&path, encoder.finish()).await {
        Created::Done | Created::Exists => Ok(()),
        Created::Refused(error) => Err(error),
        Created::Unknown(why) => Err(Error::new(ErrorKind::Unavailable, format!("{path}: {why}"))),
    }
}

/// Whether no job may start, as on hold.
pub(crate) fn is_closed(state: &State) -> bool {
    state.group(&GroupRef::Cluster).is_ok_and(|group| group.status.limit == Some(0))
}

/// The last hold. It has the limit that was set before the first one, because a repair of a namespace that is on hold
/// carries that over. A killed process may have left an earlier hold behind.
pub(crate) async fn held(log: &Log, holds: &[Path]) -> Result<Option<Hold>> {
    for path in holds.iter().rev() {
        let Some(bytes) = log.medium().get(path).await? else { continue };
        let hold = body(path.as_ref(), &bytes).and_then(|body| parse(path.as_ref(), body));
        return Ok(Some(hold.unwrap_or_else(|error| Hold {
            at: Time::default(),
            lost: vec![error.message().to_owned()],
            // The limit before the hold is lost: only an operator that sets one opens `cluster`.
            cluster: Some(0),
        })));
    }
    Ok(None)
}

/// Ends all holds: an operator released them. Credentials that may not delete leave an object beside the holds that
/// says so.
pub(crate) async fn end_holds(log: &Log) -> Result<()> {
    let holds = find(log).await?.holds;
    let Some(last) = holds.last().and_then(|path| path.as_ref().strip_prefix("format/hold-")) else {
        return Ok(());
    };
    let spoken = Path::from(format!("format/spoken-{last}"));
    let Err(error) = log.medium().delete_all(holds.clone()).await else { return Ok(()) };
    match log.create(&spoken, Vec::new()).await {
        Created::Done | Created::Exists => Ok(()),
        Created::Refused(_) | Created::Unknown(_) => Err(error),
    }
}
