//! Submit and cancel.

use super::state::{Job, Toy, needs};
use super::{Flaw, at_most, not_found};
use qo_core::{
    AttemptOutcome, Error, ErrorKind, GroupRef, JobId, JobState, Name, NewJob, OnLimit, Result, Stop,
    StopReason,
};
use qo_core::{Submitted, caps};
use std::collections::BTreeMap;

impl Toy {
    pub fn submit(&mut self, jobs: Vec<NewJob>) -> Result<Vec<Result<Submitted>>> {
        at_most("jobs", jobs.len(), caps::SUBMIT_JOBS)?;
        at_most("payload", jobs.iter().map(|job| job.payload.as_str().len()).sum(), caps::SUBMIT_BYTES)?;
        for (index, job) in jobs.iter().enumerate() {
            job.check().map_err(|e| e.at_item("jobs", index))?;
        }
        let mut new = jobs.iter().enumerate().filter(|(_, job)| self.earlier(job).is_none());
        if let Some((index, error)) =
            new.find_map(|(index, job)| Some((index, self.check_groups(job).err()?)))
        {
            if self.flaw == Flaw::InvalidStoresHalf {
                jobs.into_iter().take(index).for_each(|job| drop(self.submit_one(job)));
            }
            return Err(error.at_item("jobs", index));
        }
        Ok(jobs.into_iter().map(|job| self.submit_one(job)).collect())
    }

    /// The job that an idempotency key or an id was used for before.
    fn earlier(&self, new: &NewJob) -> Option<&Job> {
        let key = new.idempotency_key.as_ref().filter(|_| self.flaw != Flaw::IdempotencyIgnored);
        let by_key =
            key.and_then(|key| self.jobs.iter().find(|j| j.new.idempotency_key.as_ref() == Some(key)));
        by_key.or_else(|| self.find(new.id))
    }

    fn group_of(&self, new: &NewJob) -> Name {
        let registered = || self.tasks.get(&new.task).and_then(|task| task.group.clone());
        new.group.clone().or_else(registered).unwrap_or_else(|| new.task.clone())
    }

    /// The rules that need the state and refuse the call: the job's groups, and what it costs there.
    fn check_groups(&self, new: &NewJob) -> Result<()> {
        let group = self.group_of(new);
        for extra in new.limits.keys() {
            if matches!(extra, GroupRef::Group(name) | GroupRef::Key(name, _) if *name == group) {
                return Err(Error::invalid("limits", extra, "is the job's own group"));
            }
        }
        let own = submit_limit_target(new, &group);
        for (group, slots) in needs(new, &group) {
            let limit = self.limit_with(&group, brought(new).filter(|_| group == own));
            if let Some(limit) = limit.filter(|&limit| limit > 0 && slots > limit) {
                let field = if new.limits.contains_key(&group) { "limits" } else { "cost" };
                return Err(Error::invalid(field, slots, format_args!("{group} has a limit of {limit}")));
            }
        }
        Ok(())
    }

    fn submit_one(&mut self, mut new: NewJob) -> Result<Submitted> {
        if let Some(earlier) = self.earlier(&new) {
            let same_key =
                new.idempotency_key.is_none() || earlier.new.idempotency_key == new.idempotency_key;
            if earlier.new.task == new.task && earlier.new.payload == new.payload && same_key {
                return Ok(Submitted::Existing(earlier.new.id));
            }
            let was = match new.idempotency_key {
                Some(key) if earlier.new.idempotency_key.as_ref() == Some(&key) => {
                    format!("idempotency_key {key}")
                }
                _ => format!("id {}", new.id),
            };
            return Err(Error::new(
                ErrorKind::Conflict,
                format!("{was} is that of another job, {}", earlier.new.id),
            ));
        }
        let group = self.group_of(&new);
        self.check_workflow(&new)?;
        let own = submit_limit_target(&new, &group);
        let before = self.limits.get(&own).and_then(|limits| limits.submit);
        let totals = self.totals.clone();
        if let Some(limit) = brought(&new) {
            self.set_submit_limit(&own, limit);
        }
        let full = self.full_among_live(&new, &group);
        if let Some(full) = full.filter(|_| new.on_limit != OnLimit::Wait) {
            self.set_submit_limit(&own, before);
            self.totals = totals;
            self.count_rejected(&full);
            return match new.on_limit {
                OnLimit::Skip => Ok(Submitted::Skipped),
                _ => Err(Error::new(ErrorKind::LimitReached, format!("{group} is taken"))),
            };
        }
        self.last_acceptance += 1;
        new.group = Some(group.clone());
        let step = self.next_step(&new);
        let id = new.id;
        self.jobs.push(Job {
            limits_at_submit: self.limits_now(&new, &group),
            run_at: new.run_at.unwrap_or(self.now),
            new,
            group,
            acceptance: self.last_acceptance,
            submitted_at: self.now,
            state: JobState::Pending,
            attempts_used: 0,
            cancel_requested: false,
            holding: None,
            ahead: None,
            step,
            skipped: false,
            finished_at: None,
            output: None,
            attempts: Vec::new(),
            last_progress: None,
            met_full: None,
        });
        Ok(Submitted::Accepted(id))
    }

    /// The first limited group of a job, if it has no room for it among all its live jobs.
    fn full_among_live(&self, new: &NewJob, group: &Name) -> Option<GroupRef> {
        let limited = needs(new, group).into_iter().find_map(|(g, slots)| Some((self.limit(&g)?, g, slots)));
        let (limit, group, slots) = limited?;
        let taken = match self.flaw {
            Flaw::OnLimitCountsRunning => self.used(&group),
            Flaw::ProgramsNotCounted => self.sum(&group, Job::is_live),
            _ => self.live(&group),
        };
        (taken + u64::from(slots) > u64::from(limit)).then_some(group)
    }

    fn limits_now(&self, new: &NewJob, group: &Name) -> BTreeMap<GroupRef, Option<u32>> {
        if self.flaw != Flaw::LimitForNewJobsOnly {
            return BTreeMap::new();
        }
        needs(new, group).into_iter().map(|(group, _)| (group.clone(), self.limit(&group))).collect()
    }

    pub fn cancel(&mut self, jobs: &[JobId]) -> Result<Vec<Result<JobState>>> {
        at_most("jobs", jobs.len(), caps::CANCELS)?;
        Ok(jobs.iter().map(|&job| self.cancel_one(job)).collect())
    }

    pub fn cancel_one(&mut self, id: JobId) -> Result<JobState> {
        let at = self.jobs.iter().position(|job| job.new.id == id).ok_or_else(|| not_found(id))?;
        let job = &mut self.jobs[at];
        match &job.holding {
            None if job.state == JobState::Pending => self.finish(at, JobState::Cancelled),
            None if job.state == JobState::Claimed => {
                let ahead = job.ahead.take().expect("it is claimed");
                self.finish(at, JobState::Cancelled);
                let stop = Stop { job: id, token: ahead.token, reason: StopReason::Cancelled };
                self.tell(ahead.session, stop);
            }
            Some(_) if self.flaw == Flaw::CancelFreesSlots => {
                self.take_away(at, AttemptOutcome::Cancelled, "cancelled");
            }
            Some(holding) if !job.cancel_requested => {
                job.cancel_requested = true;
                let (session, token) = (holding.session, holding.token);
                self.tell(session, Stop { job: id, token, reason: StopReason::Cancelled });
            }
            _ => {}
        }
        Ok(self.jobs[at].state)
    }
}

/// What a job does to the submit-side limit: sets it, clears it, or (None) leaves it.
fn brought(new: &NewJob) -> Option<Option<u32>> {
    (new.clear_limit || new.limit.is_some()).then_some(new.limit)
}

/// The group that a job's own `limit` is for.
pub(super) fn submit_limit_target(new: &NewJob, group: &Name) -> GroupRef {
    match &new.key {
        Some(key) => GroupRef::Key(group.clone(), key.clone()),
        None => GroupRef::Group(group.clone()),
    }
}
