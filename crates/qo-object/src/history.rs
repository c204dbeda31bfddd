//! History segments: jobs that succeeded some time ago, out of the state and into objects of their own.
//!
//! The state is what every process holds in memory and every snapshot repeats, so what is over leaves it: the oldest jobs
//! that succeeded, beyond the newest ten thousand that ended, go into a segment, thousands at a time. First the segment is
//! written, then a record says that they are gone from the state. They are found again by their id, until their time to be
//! remembered is over. Jobs with an idempotency key, steps of workflows, and jobs that did not succeed stay in the state.
//!
//! A job that has left the state is not recognised when its id is submitted again; so none leaves before every client that
//! still repeats its submit has given up.

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
    Ok(log.create(&path, encoder.finish()).await == Created::Done)
}

/// Looks for a job in all segments, the newest first.
pub(crate) async fn find(log: &Log, job: JobId) -> Result<Option<JobDetail>> {
    for path in log.list("history").await?.into_iter().rev() {
        let Some(bytes) = log.get(&path).await? else { continue };
        let mut lines = body(path.as_ref(), &bytes)?.split(|byte| *byte == b'\n');
        let contents: Contents = parse(path.as_ref(), lines.next().unwrap_or_default())?;
        if let Ok(at) = contents.ids.binary_search(&job)
            && let Some(line) = lines.nth(at)
        {
            let found: JobSnapshot = parse(path.as_ref(), line)?;
            return Ok(found.detail());
        }
    }
    Ok(None)
}

/// Deletes segments whose last job's time to be remembered is over.
pub(crate) async fn forget(log: &Log, now: Time, remembered_ms: u64) -> Result<()> {
    for path in log.list("history").await? {
        let until = path.filename().and_then(|name| name.split_once('-')).and_then(|(_, at)| at.parse().ok());
        if until.is_some_and(|at| now.ms_since(Time::from_millis(at)) > remembered_ms) {
            log.delete(&path).await?;
        }
    }
    Ok(())
}
