//! History segments: jobs that succeeded some time ago, out of the state and into objects of their own.
//!
//! Every process holds the state in memory and every snapshot repeats it, so ended jobs leave it:
//!
//! 1. The oldest jobs that succeeded, beyond the newest [`KEPT`] that ended, are written to a segment, thousands at a
//!    time.
//! 2. A record archives them: they leave the state.
//! 3. They are found by their id, until their retention is over.
//!
//! Jobs with an idempotency key, steps of workflows, and jobs that did not succeed stay in the state.
//!
//! Invariant: the state does not recognise the id of a job that left, so none leaves before every client that still
//! repeats its submit has given up ([`LEAVES_AFTER_MS`]).

use crate::format;
use crate::log::{Created, Log};
use crate::record::{Encoder, body, parse};
use object_store::path::Path;
use qo_core::{JobDetail, JobId, JobSnapshot, Place, Result, State, Time};
use serde::{Deserialize, Serialize};

/// Ended jobs that the state keeps, whatever their age.
const KEPT: usize = 10_000;
/// How many jobs there must be for a segment, and how many it holds at most.
const SEGMENT: (usize, usize) = (2_000, 10_000);
/// How long after its end a job may leave the state.
const LEAVES_AFTER_MS: u64 = 300_000;

/// How far a client's clock may be off, by which it dates the ids of its jobs.
const SPARE_MS: i64 = 86_400_000;

/// The first line of a segment.
#[derive(Serialize, Deserialize)]
struct Contents {
    /// The ids, in order. The jobs follow in the same order, one in each line.
    ids: Vec<JobId>,
}

/// The jobs that may leave the state now, if they are enough for a segment.
pub(crate) fn leaving(state: &State, now: Time) -> Vec<JobSnapshot> {
    let mut jobs = state.archivable(KEPT, SEGMENT.1);
    jobs.retain(|job| ended_at(job).is_some_and(|at| now.ms_since(at) >= LEAVES_AFTER_MS));
    if jobs.len() < SEGMENT.0 { Vec::new() } else { jobs }
}

fn ended_at(job: &JobSnapshot) -> Option<Time> {
    match job.place {
        Place::Ended { at, .. } => Some(at),
        Place::Pending | Place::Claimed { .. } | Place::Running { .. } => None,
    }
}

/// Writes a segment. Its name tells after which record it was written, and when the last of its jobs ended.
pub(crate) async fn write(log: &Log, after: u64, mut jobs: Vec<JobSnapshot>) -> Result<bool> {
    let until = jobs.iter().filter_map(ended_at).max().unwrap_or_default();
    jobs.sort_by_key(|job| job.id);
    let mut encoder = Encoder::new();
    encoder.line(&Contents { ids: jobs.iter().map(|job| job.id).collect() })?;
    jobs.iter().try_for_each(|job| encoder.line(job))?;
    let path = Path::from(format!("history/{after:020}-{}", until.as_millis()));
    // In another namespace the segment would name a record that its log never had.
    format::confirm(log).await?;
    Ok(log.create(&path, encoder.finish()).await == Created::Done)
}

/// Looks for a job in all segments that can hold it, the newest first. A segment that cannot be read hides its own jobs
/// only; but then a job that is found nowhere is an error, and not absent.
pub(crate) async fn find(log: &Log, job: JobId) -> Result<Option<JobDetail>> {
    let mut unread = None;
    for path in log.medium().list("history").await?.into_iter().rev().filter(|path| may_hold(path, job)) {
        let Some(bytes) = log.medium().get(&path).await? else { continue };
        match find_in(path.as_ref(), &bytes, job) {
            Ok(None) => {}
            Ok(found) => return Ok(found),
            Err(error) => unread = Some(error),
        }
    }
    unread.map_or(Ok(None), Err)
}

fn find_in(name: &str, bytes: &[u8], job: JobId) -> Result<Option<JobDetail>> {
    let mut lines = body(name, bytes)?.split(|byte| *byte == b'\n');
    let contents: Contents = parse(name, lines.next().unwrap_or_default())?;
    let Ok(at) = contents.ids.binary_search(&job) else { return Ok(None) };
    let Some(line) = lines.nth(at) else { return Ok(None) };
    Ok(parse::<JobSnapshot>(name, line)?.detail())
}

/// Whether a segment can hold a job. An id tells when it was made, by a client's clock; a job does not end before that.
fn may_hold(segment: &Path, job: JobId) -> bool {
    let Some((seconds, _)) = job.0.get_timestamp().map(|made| made.to_unix()) else { return true };
    let made_ms = i64::try_from(seconds).unwrap_or(i64::MAX).saturating_mul(1_000);
    until(segment).is_none_or(|until| made_ms.saturating_sub(SPARE_MS) <= until.as_millis())
}

/// When the last job of a segment ended.
fn until(segment: &Path) -> Option<Time> {
    let (_, until) = segment.filename()?.split_once('-')?;
    until.parse().ok().map(Time::from_millis)
}

/// Deletes segments of which the retention of the last job is over.
pub(crate) async fn forget(log: &Log, now: Time, remembered_ms: u64) -> Result<()> {
    for path in log.medium().list("history").await? {
        if until(&path).is_some_and(|until| now.ms_since(until) > remembered_ms) {
            log.medium().delete(&path).await?;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use object_store::{ObjectStoreExt, memory::InMemory};
    use qo_core::ErrorKind;
    use std::sync::Arc;
    use uuid::{Builder, Uuid};

    const NOON: Time = Time::from_millis(1_800_000_000_000);

    /// A segment of one job.
    async fn segment(log: &Log, after: u64, job: JobId) -> Path {
        let mut encoder = Encoder::new();
        encoder.line(&Contents { ids: vec![job] }).expect("encodes");
        encoder.line(&row(job)).expect("encodes");
        let path = Path::from(format!("history/{after:020}-{}", NOON.as_millis()));
        assert_eq!(log.create(&path, encoder.finish()).await, Created::Done);
        path
    }

    fn row(job: JobId) -> serde_json::Value {
        serde_json::json!({
            "id": job, "number": 1, "queue": "default", "task": "t", "group": "t", "submitted_at": 0, "run_at": 0,
            "payload": "null", "max_attempts": 3, "attempts_used": 1, "attempts": [],
            "place": {"ended": {"at": NOON, "state": "succeeded", "skipped": false}},
        })
    }

    #[tokio::test]
    async fn a_damaged_segment_hides_its_own_jobs_and_no_others() {
        let objects = Arc::new(InMemory::new());
        let log = Log::new(objects.clone());
        let (old, new) = (JobId(Uuid::from_u128(1)), JobId(Uuid::from_u128(2)));
        segment(&log, 1, old).await;
        let newest = segment(&log, 2, new).await;
        assert!(find(&log, new).await.expect("readable").is_some());
        assert_eq!(find(&log, JobId(Uuid::from_u128(3))).await, Ok(None));
        objects.put(&newest, "qo 1 torn".into()).await.expect("damaged");
        assert!(find(&log, old).await.expect("it is in the other segment").is_some());
        for job in [new, JobId(Uuid::from_u128(3))] {
            assert_eq!(
                find(&log, job).await.expect_err("it may be in the damaged one").kind(),
                ErrorKind::Data
            );
        }
    }

    #[test]
    fn a_segment_older_than_an_id_is_not_read() {
        let segment = Path::from(format!("history/{:020}-{}", 7, NOON.as_millis()));
        let made = |days: i64| {
            let ms = u64::try_from(NOON.as_millis() + days * 86_400_000).expect("after 1970");
            JobId(Builder::from_unix_timestamp_millis(ms, &[7; 10]).into_uuid())
        };
        assert!(may_hold(&segment, made(-3)));
        assert!(may_hold(&segment, made(0)));
        assert!(!may_hold(&segment, made(2)));
        assert!(may_hold(&segment, JobId(Uuid::from_u128(1))), "an id without a date");
    }
}
