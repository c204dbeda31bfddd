//! Reopens ended jobs, changes many jobs at once, and drops jobs that the store archives.

use super::Decider;
use crate::state::State;
use crate::state::row::{At, Job, Past};
use crate::state::table::Ix;
use crate::{Answer, Change, Changed, Cursor, Error, Event, JobFilter, JobId, JobState, Result};
use crate::{caps, job::within};

impl Decider<'_> {
    pub(super) fn retry(&mut self, jobs: &[JobId]) -> Result<Answer> {
        within("jobs", jobs.len() as u64, 0, caps::CANCELS as u64)?;
        self.tick();
        Ok(Answer::Retried(jobs.iter().map(|&job| self.retry_one(job)).collect()))
    }

    fn retry_one(&mut self, id: JobId) -> Result<JobState> {
        let past = match self.state.find(id) {
            Some(At::Live(ix)) => {
                self.hurry(ix);
                return Ok(self.state.jobs[ix].state());
            }
            Some(At::Past(past)) => past,
            None => return Err(Error::not_found(format!("job {id}"))),
        };
        if self.state.past[past].state == JobState::Succeeded {
            return Err(Error::conflict(format!("job {id} succeeded: there is nothing to retry")));
        }
        if let Some(workflow) = self.state.cancelled_workflow(past) {
            return Err(Error::conflict(format!("job {id}: its workflow {workflow} was cancelled")));
        }
        self.reopen(past);
        Ok(JobState::Pending)
    }

    /// Makes a job that waits for its next attempt due now.
    fn hurry(&mut self, ix: Ix<Job>) {
        if self.state.waits_for_attempt(ix) {
            let (job, run_at) = (self.state.jobs[ix].id, self.state.now);
            self.happen_to(ix, Event::Hurried { job, run_at });
        }
    }

    pub(super) fn archive(&mut self, jobs: &[JobId]) -> Answer {
        for &job in jobs {
            if self.state.find_past(job).is_some_and(|ix| self.state.past[ix].may_be_archived()) {
                self.tick();
                self.happen(Event::Archived(job));
            }
        }
        Answer::Done
    }

    pub(super) fn reopen(&mut self, past: Ix<Past>) {
        let (row, run_at) = (&self.state.past[past], self.state.now);
        let good_until = row.good_until().filter(|good_until| *good_until > run_at);
        self.happen(Event::Reopened { job: row.id, run_at, good_until });
    }

    pub(super) fn change_matching(
        &mut self,
        change: Change,
        filter: &JobFilter,
        after: Option<Cursor>,
        limit: usize,
    ) -> Result<Answer> {
        within("limit", limit as u64, 1, caps::PAGE as u64)?;
        filter.check_change()?;
        self.tick();
        let mut last = None;
        let mut jobs = 0;
        // One more than asked for shows whether there is a next page. The search ends before the first change;
        // cancelling one step does not change whether another can be cancelled.
        let found: Vec<_> = self
            .state
            .matching(filter, after, State::state_at)
            .filter(|&(_, at)| self.state.can_change(change, at))
            .take(limit + 1)
            .collect();
        for &(number, at) in found.iter().take(limit) {
            match (change, at) {
                (Change::Cancel, At::Live(ix)) => {
                    self.cancel_live(ix);
                }
                (Change::Retry, At::Live(ix)) => self.hurry(ix),
                (_, At::Past(past)) => self.reopen(past),
            }
            jobs += 1;
            last = Some(Cursor(number));
        }
        Ok(Answer::Changed(Changed { jobs, next: last.filter(|_| found.len() > limit) }))
    }
}

impl State {
    fn can_change(&self, change: Change, at: At) -> bool {
        match (change, at) {
            (Change::Cancel, At::Live(ix)) => self.jobs[ix].run().is_none_or(|run| !run.cancel_requested),
            (Change::Retry, At::Past(past)) => {
                self.past[past].state != JobState::Succeeded && self.cancelled_workflow(past).is_none()
            }
            (Change::Retry, At::Live(ix)) => self.waits_for_attempt(ix),
            (Change::Cancel, At::Past(_)) => false,
        }
    }

    /// Whether a job has had an attempt and waits for the date of its next one.
    fn waits_for_attempt(&self, ix: Ix<Job>) -> bool {
        let job = &self.jobs[ix];
        job.state() == JobState::Pending && job.run_at > self.now && !job.attempts().is_empty()
    }
}
