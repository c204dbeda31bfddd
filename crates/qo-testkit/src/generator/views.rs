//! Everything that can be looked at, at one moment, in a form that two stores can be compared by.

use super::step::{STATES, all_limited, queue, task};
use qo_core::{
    ErrorKind, Explanation, GroupDetail, GroupRef, GroupStatus, JobDetail, JobFilter, JobId, JobView,
};
use qo_core::{QueueStatus, Store, Time, WorkerStatus};

/// All views of a store.
#[derive(Debug, Clone, PartialEq)]
pub struct Views {
    /// Store time.
    pub now: Result<Time, ErrorKind>,
    /// Each job that was ever submitted.
    pub jobs: Vec<Result<JobDetail, ErrorKind>>,
    /// Why each of them is not running.
    pub explanations: Vec<Result<Explanation, ErrorKind>>,
    /// Listings, each read page by page: all jobs, then by several filters.
    pub listings: Vec<Result<Vec<JobView>, ErrorKind>>,
    /// The listing of groups, read page by page.
    pub groups: Result<Vec<GroupStatus>, ErrorKind>,
    /// Each group that a script may speak of.
    pub group_details: Vec<(GroupRef, Result<GroupDetail, ErrorKind>)>,
    /// The queues.
    pub queues: Result<Vec<QueueStatus>, ErrorKind>,
    /// The workers.
    pub workers: Result<Vec<WorkerStatus>, ErrorKind>,
}

/// Looks at everything: at the given jobs one by one, at the rest by listing it.
pub async fn look(store: &dyn Store, jobs: &[JobId]) -> Views {
    let mut views = Views {
        now: store.now().await.map_err(|e| e.kind()),
        jobs: Vec::new(),
        explanations: Vec::new(),
        listings: Vec::new(),
        groups: all_groups(store).await,
        group_details: Vec::new(),
        queues: store.queues().await.map_err(|e| e.kind()),
        workers: store.workers().await.map_err(|e| e.kind()),
    };
    for &job in jobs {
        views.jobs.push(store.job(job).await.map(without_store_texts).map_err(|e| e.kind()));
        views.explanations.push(store.explain(job).await.map_err(|e| e.kind()));
    }
    for filter in filters() {
        views.listings.push(all_jobs(store, filter).await);
    }
    for group in all_limited() {
        let detail = store.group(group.clone()).await.map_err(|e| e.kind());
        views.group_details.push((group, detail));
    }
    views
}

/// What a store itself says of an attempt that it ended is for people: stores may word it differently.
fn without_store_texts(mut job: JobDetail) -> JobDetail {
    for attempt in job.attempts.iter_mut().filter(|attempt| !attempt.outcome.is_settled()) {
        attempt.error = attempt.error.take().map(|_| "the store's words".into());
    }
    job
}

fn filters() -> Vec<JobFilter> {
    let mut filters = vec![JobFilter::default()];
    filters.extend(STATES.map(|state| JobFilter { states: vec![state], ..JobFilter::default() }));
    filters.push(JobFilter { queue: Some(queue(1)), task: Some(task(0)), ..JobFilter::default() });
    let group = Some(super::step::group(0));
    filters.push(JobFilter { group, key: Some(super::step::key(0)), ..JobFilter::default() });
    filters
}

/// Page sizes are odd and small, so that pages end in all places.
async fn all_jobs(store: &dyn Store, filter: JobFilter) -> Result<Vec<JobView>, ErrorKind> {
    let (mut jobs, mut after) = (Vec::new(), None);
    loop {
        let page = store.jobs(filter.clone(), after, 7).await.map_err(|e| e.kind())?;
        jobs.extend(page.jobs);
        match page.next {
            Some(next) => after = Some(next),
            None => return Ok(jobs),
        }
    }
}

async fn all_groups(store: &dyn Store) -> Result<Vec<GroupStatus>, ErrorKind> {
    let (mut groups, mut after) = (Vec::new(), None);
    loop {
        let page = store.groups(after, 3).await.map_err(|e| e.kind())?;
        groups.extend(page.groups);
        match page.next {
            Some(next) => after = Some(next),
            None => return Ok(groups),
        }
    }
}
