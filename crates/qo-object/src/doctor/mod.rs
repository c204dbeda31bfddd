//! The doctor: checks that every object is there that a reader needs, and repairs a damaged namespace.
//!
//! Objects beside the log tell what it should hold: a mark that the log has reached, history segments, and logs of
//! attempts, whose names are fence tokens that a record must have granted. So a log without its last records is not
//! taken for a shorter one.
//!
//! A record that is torn, flipped or missing, and that no snapshot covers, stops every reader. An operator may decide
//! to go on without it: see [`repair()`].
//!
//! | module | what it holds |
//! |---|---|
//! | `examination` | reading every object |
//! | `repair` | going on without lost records |

mod examination;
mod repair;

use crate::bucket::Bucket;
use crate::format::{self, Absent, Found, Hold, Identity};
use crate::log::{Created, Log};
use crate::slots;
use crate::store::{LogStore, Options, existing_log};
use examination::Examination;
use object_store::path::Path;
use qo_core::{GroupRef, JobId, Result, Store};
use repair::repair_log;
use serde::Serialize;
use std::sync::Arc;
use uuid::Uuid;

/// What the doctor found.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Health {
    /// The format of the namespace; none if it is new.
    pub format: Option<u64>,
    /// Which namespace it is; none if it is new.
    pub identity: Option<Identity>,
    /// The record that the log has reached at least, by its mark; 0 if there is none.
    pub mark: u64,
    /// A repair lost records, and no operator has released the hold since.
    pub hold: Option<Hold>,
    /// Records in the log.
    pub records: u64,
    /// The record up to which the newest snapshot that can be read reaches; 0 if there is none.
    pub snapshot: u64,
    /// The last record.
    pub last: u64,
    /// What is damaged or missing.
    pub damage: Vec<Damage>,
}

impl Health {
    /// Whether the namespace can be opened.
    pub fn is_usable(&self) -> bool {
        self.damage.iter().all(|damage| !damage.needed)
    }
}

/// Something that is damaged or missing.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Damage {
    /// The object, and what is wrong with it.
    pub what: String,
    /// Whether a reader needs it.
    pub needed: bool,
    /// What does not work because of it, although no reader needs it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub hinders: Option<&'static str>,
}

impl Damage {
    fn new(what: impl Into<String>, needed: bool) -> Self {
        Self { what: what.into(), needed, hinders: None }
    }
}

/// What an unreadable snapshot hinders if it is one of the two newest.
const SWEEP: &str = "no record that it covers is swept before two newer snapshots can be read";
/// What a damaged format object hinders.
const IDENTITY: &str = "no process can tell this namespace from another one in its place; stop all workers, then: \
                        qo doctor --repair, which makes the object anew";

/// What a repair did, and what it cost.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct Repair {
    /// Records whose content is lost.
    pub lost: Vec<String>,
    /// Records after the first lost one. They can be read, but their decisions rest on what was lost.
    pub not_used: u64,
    /// Jobs that only those records have, or that were offered and not admitted: submitted again.
    pub submitted_again: Vec<JobId>,
    /// Jobs that only those records have, and that were not submitted again, with the reason.
    pub not_submitted: Vec<(JobId, String)>,
    /// Jobs that ended in those records and were submitted before them: they will run again.
    pub runs_again: Vec<JobId>,
    /// Limits, pauses and switches of schedules in those records: set again.
    pub set_again: Vec<String>,
    /// Where the objects that were not used are now.
    pub moved: Vec<String>,
    /// The namespace is on hold, because a lost record may have set a limit. None if no record was lost.
    pub hold: Option<Hold>,
}

/// Reads every object of the namespace in a directory. It changes nothing, and makes nothing: `NotFound` if there is no
/// such directory.
pub async fn examine(directory: impl AsRef<std::path::Path>) -> Result<Health> {
    Ok(Examination::of(&existing_log(directory.as_ref())?).await?.health)
}

/// Repairs a damaged namespace in a directory, and says exactly what that cost. `Conflict` if there is nothing to
/// repair. Stop all workers first: those that run stop by themselves, with an error.
///
/// 1. The doctor reads to the first lost record. From the records behind it, it takes what does not rest on what was
///    lost: jobs are submitted again, limits and pauses are set again.
/// 2. It closes `cluster`: a lost record may have set a limit, paused a queue or cancelled a job, so nothing starts
///    until an operator [releases](release) the hold.
/// 3. It writes the result as a snapshot at the number of the *last* record, under a fresh nonce, and one record after
///    it. A process that still runs on what was lost finds that its log does not go on, and stops.
/// 4. It moves the records that were not used to `damaged/`. Nothing is deleted.
pub async fn repair(directory: impl AsRef<std::path::Path>) -> Result<Repair> {
    repair_log(&existing_log(directory.as_ref())?).await
}

/// The format level of a directory's namespace, and the one that this release works with.
pub async fn format_levels(directory: impl AsRef<std::path::Path>) -> Result<(Option<u64>, u64)> {
    let level = format::level(&existing_log(directory.as_ref())?).await?;
    Ok((level, crate::record::LEVEL.into()))
}

/// Reads every object of the namespace in a bucket, and tries out whether its server can be relied upon, for a log and,
/// if there are any or were, for slots. It changes nothing: the trial deletes what it writes.
pub async fn examine_bucket(bucket: &Bucket) -> Result<Health> {
    let log = bucket_log(bucket).await?;
    match slots::are_used(log.medium().object_store()).await? {
        true => slots::try_out(bucket, log.medium().object_store()).await?,
        false => bucket.probe(log.medium().object_store()).await?,
    }
    Ok(Examination::of(&log).await?.health)
}

/// Tries out whether the credentials may write to a bucket, and delete what they wrote. It leaves an object behind only
/// if they may write and not delete. `Invalid` if they may not write.
pub async fn may_write_to_bucket(bucket: &Bucket) -> Result<MayWrite> {
    let log = bucket_log(bucket).await?;
    let path = Path::from(format!("probe/{}", Uuid::new_v4()));
    match log.create(&path, Vec::new()).await {
        Created::Done => {}
        Created::Exists => return Ok(MayWrite::NotKnown(format!("{path}: it exists, although it is new"))),
        Created::Refused(error) => return Err(error),
        Created::Unknown(why) => return Ok(MayWrite::NotKnown(why)),
    }
    Ok(match log.medium().delete(&path).await {
        Ok(()) => MayWrite::AndDelete,
        Err(error) => MayWrite::NotDelete(error.message().to_owned()),
    })
}

/// What credentials may do besides reading.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum MayWrite {
    /// Write and delete.
    AndDelete,
    /// Write; deleting was refused, or failed, for this reason.
    NotDelete(String),
    /// Unknown, for this reason.
    NotKnown(String),
}

/// Repairs a damaged namespace in a bucket; see [`repair()`].
pub async fn repair_bucket(bucket: &Bucket) -> Result<Repair> {
    repair_log(&bucket_log(bucket).await?).await
}

/// The format level of a bucket's namespace, and the one that this release works with.
pub async fn format_levels_of_bucket(bucket: &Bucket) -> Result<(Option<u64>, u64)> {
    let level = format::level(&bucket_log(bucket).await?).await?;
    Ok((level, crate::record::LEVEL.into()))
}

/// What is known of the namespace in a directory without reading its log. `NotFound` if there is no such directory,
/// none if there is no namespace in it.
pub async fn namespace(directory: impl AsRef<std::path::Path>) -> Result<Option<Namespace>> {
    Namespace::of(&existing_log(directory.as_ref())?).await
}

/// What is known of the namespace in a bucket without reading its log; none if there is none.
pub async fn namespace_of_bucket(bucket: &Bucket) -> Result<Option<Namespace>> {
    Namespace::of(&bucket_log(bucket).await?).await
}

/// Ends the hold of a namespace in a directory for an operator, and restores the operator's limit of `cluster`. Returns
/// what had been lost; none if the namespace is not on hold.
pub async fn release(directory: impl AsRef<std::path::Path>) -> Result<Option<Hold>> {
    let options = Options { absent: Absent::NotFound, ..Options::default() };
    let store = LogStore::open_directory(directory.as_ref(), options).await?;
    let log = existing_log(directory.as_ref())?;
    let hold = reopen(&log, &store).await?;
    format::end_holds(&log).await.map(|()| hold)
}

/// Ends the hold of a namespace in a bucket; see [`release`].
pub async fn release_bucket(bucket: &Bucket) -> Result<Option<Hold>> {
    let options = Options { absent: Absent::NotFound, ..Options::bucket() };
    let store = LogStore::open_bucket(bucket, options).await?;
    let log = bucket_log(bucket).await?;
    let hold = reopen(&log, &store).await?;
    store.finish().await;
    format::end_holds(&log).await.map(|()| hold)
}

/// Restores the limit that `cluster` had before the hold. None if it is not closed: a hold that is there all the same
/// was left behind, and must not undo what an operator has set since.
async fn reopen(log: &Log, store: &LogStore) -> Result<Option<Hold>> {
    let Found { holds, .. } = format::find(log).await?;
    let Some(hold) = format::held(log, &holds).await? else { return Ok(None) };
    let cluster = store.group(GroupRef::Cluster).await;
    if !cluster.is_ok_and(|group| group.status.sources.operator == Some(0)) {
        return Ok(None);
    }
    match hold.cluster {
        Some(limit) => store.set_limit(GroupRef::Cluster, limit).await?,
        None => store.unset_limit(GroupRef::Cluster).await?,
    }
    Ok(Some(hold))
}

/// What is known of a namespace without reading its log.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Namespace {
    /// Which one it is; none if its format object is missing or damaged.
    pub identity: Option<Identity>,
    /// What is wrong with its format object, if that is damaged.
    pub damage: Option<Damage>,
    /// A repair lost records. The namespace is on hold if the limit of `cluster` is 0.
    pub hold: Option<Hold>,
}

impl Namespace {
    async fn of(log: &Log) -> Result<Option<Self>> {
        let Found { level, identity, damage, mark, holds, .. } = format::find(log).await?;
        let is_there = level.is_some()
            || mark > 0
            || !log.numbers("log").await?.is_empty()
            || !log.numbers("snapshot").await?.is_empty();
        let hold = format::held(log, &holds).await?;
        let damage = damage.map(of_format);
        Ok(is_there.then_some(Self { identity, damage, hold }))
    }
}

fn of_format(what: String) -> Damage {
    Damage { hinders: Some(IDENTITY), ..Damage::new(what, false) }
}

async fn bucket_log(bucket: &Bucket) -> Result<Log> {
    let traffic = Arc::default();
    let log = Log::in_bucket(bucket.objects(&traffic)?, traffic).at(bucket);
    bucket.check(log.medium().object_store()).await?;
    Ok(log)
}
