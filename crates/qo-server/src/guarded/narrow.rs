//! Calls of a caller that is bound to queues, narrowed to these.

use super::Guarded;
use crate::rights::not_allowed;
use qo_core::{Change, Changed, Configuration, Cursor, Error, ErrorKind, GroupRef, JobDetail, JobFilter};
use qo_core::{JobId, JobPage, JobState, Name, NewJob, NewSession, PartialRetention, Result, caps};

/// Pages of the store that one page of a caller with several queues may take.
const PAGES: usize = 20;

impl Guarded {
    /// A job that the caller sees.
    pub(super) async fn seen(&self, job: JobId) -> Result<JobDetail> {
        let detail = self.told(self.store.job(job).await)?;
        if !self.rights.sees(&detail.view.queue) {
            return Err(Error::new(ErrorKind::NotFound, format!("job {job}")));
        }
        if self.rights.queues().is_some() {
            self.owners.shown(&detail);
        }
        Ok(detail)
    }

    /// A page of jobs that the caller sees.
    ///
    /// With one queue the store lists that one. With several the store lists all, page by page, and foreign jobs are left
    /// out: a page may then hold fewer jobs than asked for, or none, and still have a next one.
    pub(super) async fn listed(
        &self,
        mut filter: JobFilter,
        mut after: Option<Cursor>,
        limit: usize,
    ) -> Result<JobPage> {
        let is_narrow = self.narrowed(&mut filter)?;
        let mut page = self.told(self.store.jobs(filter.clone(), after, limit).await)?;
        if is_narrow {
            return Ok(page);
        }
        let mut seen = Vec::new();
        for turn in 1..=PAGES {
            seen.extend(
                std::mem::take(&mut page.jobs).into_iter().filter(|job| self.rights.sees(&job.queue)),
            );
            after = page.next;
            if after.is_none() || seen.len() >= limit || turn == PAGES {
                break;
            }
            // Never more than are missing: the cursor stands at the last job that was read.
            page = self.told(self.store.jobs(filter.clone(), after, limit - seen.len()).await)?;
        }
        page.jobs = seen;
        page.next = after;
        Ok(page)
    }

    /// Changes jobs that match a filter, of one queue if the caller is bound to queues.
    pub(super) async fn changed_matching(
        &self,
        change: Change,
        mut filter: JobFilter,
        after: Option<Cursor>,
        limit: usize,
    ) -> Result<Changed> {
        if !self.narrowed(&mut filter)? {
            let message = "must name one of the token's queues: it is bound to several";
            return Err(not_allowed(message).at("filter.queue"));
        }
        self.told(self.operator().change_matching(change, filter, after, limit).await)
    }

    /// Cancels or retries jobs; foreign ones are `NotFound`.
    pub(super) async fn changed(&self, change: Change, jobs: Vec<JobId>) -> Result<Vec<Result<JobState>>> {
        let operator = self.operator();
        let call = async |jobs: Vec<JobId>| match change {
            Change::Cancel => operator.cancel(jobs).await,
            Change::Retry => operator.retry(jobs).await,
        };
        if self.rights.queues().is_none() {
            return self.told_each(call(jobs).await);
        }
        if jobs.len() > caps::PAGE {
            let rule = format!("must name at most {} jobs: the token is bound to queues", caps::PAGE);
            return Err(Error::invalid("jobs", jobs.len(), rule));
        }
        let mut outcomes = Vec::with_capacity(jobs.len());
        let mut own = Vec::new();
        for job in jobs {
            outcomes.push(match self.seen(job).await {
                Ok(_) => {
                    own.push(job);
                    None
                }
                Err(error) if error.kind() == ErrorKind::NotFound => Some(Err(error)),
                Err(error) => return Err(error),
            });
        }
        let mut changed = match own.is_empty() {
            true => Vec::new(),
            false => self.told_each(call(own).await)?,
        }
        .into_iter();
        let lost = || Err(Error::new(ErrorKind::Internal, "the store answered for fewer jobs than asked"));
        Ok(outcomes
            .into_iter()
            .map(|outcome| outcome.or_else(|| changed.next()).unwrap_or_else(lost))
            .collect())
    }

    /// Narrows a filter to the caller's queue. False if the caller is bound to several and the filter names none.
    fn narrowed(&self, filter: &mut JobFilter) -> Result<bool> {
        let Some(queues) = self.rights.queues() else { return Ok(true) };
        if let Some(queue) = &filter.queue {
            return self.rights.need_queue("filter.queue", queue).map(|()| true);
        }
        if queues.len() == 1 {
            filter.queue = queues.first().cloned();
        }
        Ok(filter.queue.is_some())
    }

    /// An error if a job of a submit goes to a foreign queue.
    pub(super) fn need_queues_of(&self, jobs: &[NewJob]) -> Result<()> {
        if self.rights.queues().is_none() {
            return Ok(());
        }
        let mut jobs = jobs.iter().enumerate();
        jobs.try_for_each(|(at, job)| {
            self.rights.need_queue("queue", &job.queue).map_err(|error| error.at_item("jobs", at))
        })
    }

    /// An error if a session would serve foreign queues. A session without queues serves all.
    pub(super) fn need_served(&self, session: &NewSession) -> Result<()> {
        if session.queues.is_empty() {
            return self.rights.need_every_queue("a session that names no queues");
        }
        session.queues.iter().try_for_each(|queue| self.rights.need_queue("queues", queue))
    }

    /// An error if a group holds jobs of foreign queues as a rule: of all groups only `queue:NAME` belongs to one.
    pub(super) fn need_group(&self, group: &GroupRef) -> Result<()> {
        match group {
            GroupRef::Queue(queue) => self.rights.need_queue("group", queue),
            _ => self.rights.need_every_queue(&format!("group {group}")),
        }
    }

    /// An error if slots of the group are not for callers that are bound to queues. A group of programs is.
    pub(super) fn need_slots(&self, group: &GroupRef) -> Result<()> {
        match group {
            GroupRef::Group(_) | GroupRef::Key(..) => Ok(()),
            GroupRef::Queue(_) | GroupRef::Cluster | GroupRef::EveryKey(_) => self.need_group(group),
        }
    }

    /// An error if a configuration is another app's, or says something of foreign queues.
    pub(super) fn need_own(&self, configuration: &Configuration) -> Result<()> {
        self.rights.need_app(&configuration.app)?;
        if self.rights.queues().is_none() {
            return Ok(());
        }
        for group in configuration.limits.keys() {
            self.need_slots(group).map_err(|error| error.at("limits"))?;
        }
        let queue = |field: &str, queue: &Name| self.rights.need_queue(field, queue);
        configuration.queue_priorities.keys().try_for_each(|name| queue("queue_priorities", name))?;
        configuration.schedules.values().try_for_each(|schedule| queue("schedules", &schedule.queue))?;
        if configuration.retention != PartialRetention::default() {
            return self.rights.need_every_queue("retention");
        }
        Ok(())
    }
}
