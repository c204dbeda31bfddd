//! Jobs that have ended: reopened, changed in bulk, forgotten.

use super::state::{Job, Toy};
use super::views::{check_page, matches};
use super::{Flaw, at_most, conflict, not_found, settle::is_over};
use qo_core::{Change, Changed, Cursor, JobFilter, JobId, JobState, Result, Time, caps};

impl Toy {
    pub fn retry(&mut self, jobs: &[JobId]) -> Result<Vec<Result<JobState>>> {
        at_most("jobs", jobs.len(), caps::CANCELS)?;
        Ok(jobs.iter().map(|&job| self.retry_one(job)).collect())
    }

    fn retry_one(&mut self, id: JobId) -> Result<JobState> {
        let at = self.jobs.iter().position(|job| job.new.id == id).ok_or_else(|| not_found(id))?;
        if self.jobs[at].state.is_terminal() {
            if !self.can_be_reopened(&self.jobs[at]) {
                return Err(conflict(format_args!("{id} succeeded, or its workflow is cancelled")));
            }
            self.reopen(at);
        }
        if self.waits_for_attempt(&self.jobs[at]) {
            self.jobs[at].run_at = self.now;
        }
        Ok(self.jobs[at].state)
    }

    /// Whether it was tried, and its next attempt has a date that has not come.
    fn waits_for_attempt(&self, job: &Job) -> bool {
        job.state == JobState::Pending
            && job.run_at > self.now
            && !job.attempts.is_empty()
            && self.flaw != Flaw::RetryLeavesTheWait
    }

    fn can_be_reopened(&self, job: &Job) -> bool {
        let workflow = job.new.workflow.as_ref().and_then(|name| self.workflows.get(name));
        job.state.is_terminal()
            && job.state != JobState::Succeeded
            && workflow.is_none_or(|workflow| !workflow.cancelled)
    }

    pub fn reopen(&mut self, at: usize) {
        let now = self.now;
        let job = &mut self.jobs[at];
        job.state = JobState::Pending;
        job.run_at = now;
        if self.flaw != Flaw::ReopenKeepsAttempts {
            job.attempts_used = 0;
        }
        job.cancel_requested = false;
        job.skipped = false;
        job.output = None;
        job.finished_at = None;
        if is_over(job.new.good_until, now) {
            job.new.good_until = None;
        }
        // Its own limit becomes the submit-side limit again.
        let (own, limit) = (super::submit::submit_limit_target(&job.new, &job.group), job.new.limit);
        if limit.is_some() {
            self.set_submit_limit(&own, limit);
        }
    }

    pub fn change_matching(
        &mut self,
        change: Change,
        filter: &JobFilter,
        after: Option<Cursor>,
        limit: usize,
    ) -> Result<Changed> {
        check_page(limit)?;
        filter.check_change()?;
        let mut changed = Changed { jobs: 0, next: None };
        let mut last = after;
        for at in 0..self.jobs.len() {
            let job = &self.jobs[at];
            let cursor = Cursor(job.acceptance);
            let is_behind = after.is_none_or(|after| cursor > after);
            if !is_behind || !matches(job, filter) || !self.can_change(change, job) {
                continue;
            }
            if changed.jobs as usize == limit {
                changed.next = last.filter(|_| self.flaw != Flaw::BulkStopsAfterPage);
                break;
            }
            match change {
                Change::Cancel => drop(self.cancel_one(self.jobs[at].new.id)?),
                Change::Retry => drop(self.retry_one(self.jobs[at].new.id)?),
            }
            changed.jobs += 1;
            last = Some(cursor);
        }
        Ok(changed)
    }

    fn can_change(&self, change: Change, job: &Job) -> bool {
        match change {
            Change::Cancel => job.is_live() && !(job.is_running() && job.cancel_requested),
            Change::Retry => self.can_be_reopened(job) || self.waits_for_attempt(job),
        }
    }

    /// Forgets finished jobs whose retention is over; returns how many.
    pub fn forget(&mut self) -> u64 {
        let over =
            self.jobs.iter().filter_map(|job| Some((self.forget_at(job)?, job.acceptance, job.new.id)));
        let mut over: Vec<_> = over.filter(|(at, ..)| *at <= self.now).collect();
        over.sort();
        over.truncate(caps::FORGOTTEN);
        let forgotten: Vec<JobId> = over.into_iter().map(|(.., id)| id).collect();
        self.jobs.retain(|job| !forgotten.contains(&job.new.id));
        let jobs = &self.jobs;
        self.workflows.retain(|name, _| jobs.iter().any(|job| job.new.workflow.as_ref() == Some(name)));
        forgotten.len() as u64
    }

    /// When a job may be forgotten, under the configuration in force.
    fn forget_at(&self, job: &Job) -> Option<Time> {
        let finished = job.finished_at?;
        let state = match job.state {
            JobState::Failed if self.flaw == Flaw::FailedForgottenEarly => JobState::Succeeded,
            state => state,
        };
        let has_key = job.new.idempotency_key.is_some() && self.flaw != Flaw::KeyForgottenEarly;
        let halts = self.flaw != Flaw::HaltingStepForgotten && self.halts_live_steps(job);
        (!halts).then(|| finished.plus_ms(self.retention.of(state, has_key)))
    }

    /// Whether it is a step that is not passed, of a workflow which has live steps.
    fn halts_live_steps(&self, job: &Job) -> bool {
        job.new
            .workflow
            .as_ref()
            .is_some_and(|workflow| !self.is_passed(job) && self.live_steps(workflow) > 0)
    }
}
