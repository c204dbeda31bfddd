//! Jobs: look at them, cancel them, open them again, ask why they wait.

use super::{Client, Page};
use qo_core::{
    Change, Cursor, Explanation, FenceToken, JobDetail, JobFilter, JobId, JobPage, JobState, Result,
};

/// Jobs that one call of a bulk change looks at.
const BULK: usize = 1_000;

impl Client {
    /// One job, whole: its state, options, attempts and output. `NotFound` if there is none or it was forgotten.
    pub async fn job(&self, job: JobId) -> Result<JobDetail> {
        self.again(|| self.store.job(job)).await
    }

    /// Jobs that match a filter, in the order of their acceptance, one page at a time.
    ///
    /// ```
    /// # async fn example(client: qo::Client) -> qo::Result<()> {
    /// use qo::{JobFilter, JobState, Page};
    ///
    /// let failed = JobFilter { states: vec![JobState::Failed], ..JobFilter::default() };
    /// let mut page = Page::default();
    /// loop {
    ///     let found = client.jobs(&failed, page).await?;
    ///     found.jobs.iter().for_each(|job| println!("{} {}", job.id, job.task));
    ///     let Some(next) = found.next else { break };
    ///     page = Page::after(next);
    /// }
    /// # Ok(())
    /// # }
    /// ```
    pub async fn jobs(&self, filter: &JobFilter, page: Page<Cursor>) -> Result<JobPage> {
        self.again(|| self.store.jobs(filter.clone(), page.after, page.limit)).await
    }

    /// Why a job is not running. `NotFound` if there is none or it was forgotten.
    pub async fn explain(&self, job: JobId) -> Result<Explanation> {
        self.again(|| self.store.explain(job)).await
    }

    /// What an attempt has logged, also while it runs; the last 64 KiB. A program logs by writing to stderr, a handler by
    /// [`Context::log`](crate::Context::log). None if it logged nothing.
    pub async fn log(&self, attempt: FenceToken) -> Result<Option<String>> {
        self.again(|| self.store.log(attempt)).await
    }

    /// Calls a job off and returns its state now. A pending job is cancelled at once. A running one is told to stop,
    /// and keeps its slots until it has. A job that has ended stays as it is. `NotFound` if there is none.
    pub async fn cancel(&self, job: JobId) -> Result<JobState> {
        self.of_one(|| self.store.cancel(vec![job])).await
    }

    /// Opens a failed, cancelled or expired job again, with all its attempts; one that waits for its next attempt is
    /// due now. Returns its state now. `Conflict` if it succeeded or its workflow was cancelled, `NotFound` if there is
    /// none.
    pub async fn retry(&self, job: JobId) -> Result<JobState> {
        self.of_one(|| self.store.retry(vec![job])).await
    }

    /// [Cancels](Self::cancel) every job that matches a filter, and returns how many were cancelled or told to stop.
    /// Jobs that are submitted meanwhile may be left out.
    pub async fn cancel_matching(&self, filter: &JobFilter) -> Result<u64> {
        self.change_matching(Change::Cancel, filter).await
    }

    /// [Opens](Self::retry) every job that matches a filter again, and returns how many there were.
    pub async fn retry_matching(&self, filter: &JobFilter) -> Result<u64> {
        self.change_matching(Change::Retry, filter).await
    }

    async fn change_matching(&self, change: Change, filter: &JobFilter) -> Result<u64> {
        let (mut jobs, mut after) = (0, None);
        loop {
            let changed =
                self.again(|| self.store.change_matching(change, filter.clone(), after, BULK)).await?;
            jobs += changed.jobs;
            match changed.next {
                Some(next) => after = Some(next),
                None => return Ok(jobs),
            }
        }
    }
}
