//! History segments: jobs that succeeded some time ago, out of the state and into objects of their own.
//!
//! The state is what every process holds in memory and every snapshot repeats, so what is over leaves it: the oldest jobs
//! that succeeded, beyond the newest ten thousand that ended, go into a segment, thousands at a time. First the segment is
//! written, then a record says that they are gone from the state. They are found again by their id, until their time to be
//! remembered is over. Jobs with an idempotency key, steps of workflows, and jobs that did not succeed stay in the state.
//!
//! A job that has left the state is not recognised when its id is submitted again; so none leaves before every client that
//! still repeats its submit has given up.

use crate::format;
use crate::log::{Created, Log};
use crate::record::{Encoder, body, parse};
use object_store::path::Path;
use qo_core::{JobDetail, JobId, JobSnapshot, Place, Result, State, Time};
use serde::{Deserialize, Serialize};

/// Ended jobs that the state keeps, whatever their age.
const KEPT: usize = 10_000;
/// Jobs in one segment, at most, and how many there must be for one.
const SEGMENT: (usize, usize) = (2_000, 10_000);
/// How long after its end a job may leave the state.
const LEAVES_AFTER_MS: u64 = 300_000;

/// How far a client's clock may be off before an id is looked for in vain.
const SPARE_MS: i64 = 86_400_000;

/// The first line of a segment.
#[derive(Serialize, Deserialize)]
struct Contents {
    /// The jobs, in the order of their ids; then they come, one in each line.
    ids: Vec<JobId>,
}

/// The jobs that may leave the state now, if they are worth a segment.
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

/// Writes a segment. The name says after which record it was written, and when the last of its jobs ended.
pub(crate) async fn write(log: &Log, after: u64, mut jobs: Vec<JobSnapshot>) -> Result<bool> {
    let until = jobs.iter().filter_map(ended_at).max().unwrap_or_default();
    jobs.sort_by_key(|job| job.id);
    let mut encoder = Encoder::new();
    encoder.line(&Contents { ids: jobs.iter().map(|job| job.id).collect() })?;
    jobs.iter().try_for_each(|job| encoder.line(job))?;
    let path = Path::from(format!("history/{after:020}-{}", until.as_millis()));
    if log.directory().is_none() {
        // In another namespace it would tell of records that its log never had.
        format::still_ours(log).await?;
    }
    Ok(log.create(&path, encoder.finish()).await == Created::Done)
}

/// Looks for a job in all segments that it can be in, the newest first. One that cannot be read hides only its own jobs; but
/// then nobody can say that there is no such job.
pub(crate) async fn find(log: &Log, job: JobId) -> Result<Option<JobDetail>> {
    let mut unread = None;
    for path in log.list("history").await?.into_iter().rev().filter(|path| may_hold(path, job)) {
        let Some(bytes) = log.get(&path).await? else { continue };
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

/// Whether a segment can hold a job. Ids say when they were made (by a client's clock, so with a day to spare), and a job is
/// not over before it was made.
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

/// Deletes segments whose last job's time to be remembered is over.
pub(crate) async fn forget(log: &Log, now: Time, remembered_ms: u64) -> Result<()> {
    for path in log.list("history").await? {
        if until(&path).is_some_and(|until| now.ms_since(until) > remembered_ms) {
            log.delete(&path).await?;
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
        assert!(find(&log, old).await.expect("it is in another one").is_some());
        for job in [new, JobId(Uuid::from_u128(3))] {
            assert_eq!(find(&log, job).await.expect_err("nobody can say").kind(), ErrorKind::Data);
        }
    }

    #[test]
    fn a_segment_that_ended_long_before_an_id_was_made_is_not_read() {
        let segment = Path::from(format!("history/{:020}-{}", 7, NOON.as_millis()));
        let made = |days: i64| {
            let ms = u64::try_from(NOON.as_millis() + days * 86_400_000).expect("after 1970");
            JobId(Builder::from_unix_timestamp_millis(ms, &[7; 10]).into_uuid())
        };
        assert!(may_hold(&segment, made(-3)));
        assert!(may_hold(&segment, made(0)));
        assert!(!may_hold(&segment, made(2)));
        assert!(may_hold(&segment, JobId(Uuid::from_u128(1))), "an id that does not say when it was made");
    }
}
