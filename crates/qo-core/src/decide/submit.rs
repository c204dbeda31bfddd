//! Submit: a job is stored, found again, refused or skipped, in one step with the count that decides it.

use super::Decider;
use crate::limit::in_force;
use crate::state::row::Job;
use crate::{
    Answer, Error, ErrorKind, Event, GroupRef, Limits, Name, NewJob, OnLimit, Result, State, Submitted, caps,
};
use std::sync::Arc;

impl Decider<'_> {
    pub(super) fn submit(&mut self, jobs: &[NewJob]) -> Result<Answer> {
        check_call(jobs)?;
        for (index, job) in jobs.iter().enumerate() {
            self.check(job).map_err(|error| error.at(format_args!("jobs[{index}]")))?;
        }
        self.tick();
        Ok(Answer::Submitted(jobs.iter().map(|job| self.submit_one(job)).collect()))
    }

    fn check(&self, job: &NewJob) -> Result<()> {
        job.check()?;
        if self.find_existing(job).is_some() {
            return Ok(());
        }
        let group = self.state.group_of(job);
        for extra in job.limits.keys() {
            if let GroupRef::Group(name) | GroupRef::Key(name, _) = extra
                && name == group
            {
                return Err(Error::invalid(
                    "limits",
                    extra,
                    "is the job's own group; use cost and key for that",
                ));
            }
        }
        for (group, need) in needs(job, group) {
            if let Some(limit) = self.state.limit_for(job, &group)
                && limit > 0
                && need > limit
            {
                let field =
                    if job.limits.contains_key(&group) { format!("limits[{group}]") } else { "cost".into() };
                let rule = format_args!("must be at most the limit of {group}, {limit}: it could never run");
                return Err(Error::invalid(field, need, rule));
            }
        }
        Ok(())
    }

    fn find_existing(&self, job: &NewJob) -> Option<&Job> {
        let by_key = job.idempotency_key.as_ref().and_then(|key| self.state.find_by_idempotency_key(key));
        by_key.or_else(|| self.state.find_job(job.id)).map(|ix| &self.state.jobs[ix])
    }

    fn submit_one(&mut self, job: &NewJob) -> Result<Submitted> {
        if let Some(old) = self.find_existing(job) {
            if *self.state.task_name(old) == job.task && old.payload == job.payload {
                return Ok(Submitted::Existing(old.id));
            }
            let by = match &job.idempotency_key {
                Some(key) if old.idempotency_key() == Some(key) => format!("idempotency_key {:?}", &**key),
                _ => format!("id {}", job.id),
            };
            return Err(Error::conflict(format!(
                "{by}: job {} has it, with another task or payload",
                old.id
            )));
        }
        let group = self.state.group_of(job).clone();
        if job.on_limit != OnLimit::Wait
            && let Some(error) = self.refusal(job, &group)
        {
            return if job.on_limit == OnLimit::Skip { Ok(Submitted::Skipped) } else { Err(error) };
        }
        let run_at = job.run_at.or(Some(self.state.now));
        self.happen(Event::Accepted(Arc::new(NewJob { group: Some(group), run_at, ..job.clone() })));
        Ok(Submitted::Accepted(job.id))
    }

    /// Why `reject` and `skip` refuse a job: the first of its groups that has a limit has no room for it
    /// among its live jobs.
    fn refusal(&self, job: &NewJob, group: &Name) -> Option<Error> {
        let limited = |(group, need)| Some((self.state.limit_for(job, &group)?, group, need));
        let (limit, group, need) = needs(job, group).find_map(limited)?;
        let live = self.state.find_group(&group).map_or(0, |ix| self.state.groups[ix].live);
        if live + u64::from(need) <= u64::from(limit) {
            return None;
        }
        let message =
            format!("{group}: {live} of {limit} slots are taken or waited for, the job needs {need}");
        Some(Error::new(ErrorKind::LimitReached, message))
    }
}

fn check_call(jobs: &[NewJob]) -> Result<()> {
    if jobs.len() > caps::SUBMIT_JOBS {
        let rule = format_args!("must be at most {} in one call", caps::SUBMIT_JOBS);
        return Err(Error::invalid("jobs", jobs.len(), rule));
    }
    let bytes: usize = jobs.iter().map(|job| job.payload.as_str().len()).sum();
    if bytes > caps::SUBMIT_BYTES {
        let rule = format_args!("must be at most {} bytes of payload in one call", caps::SUBMIT_BYTES);
        return Err(Error::invalid("jobs", bytes, rule));
    }
    Ok(())
}

/// The groups of a job and the slots it needs there, the narrowest first.
fn needs<'a>(job: &'a NewJob, group: &Name) -> impl Iterator<Item = (GroupRef, u32)> + use<'a> {
    let key = job.key.as_ref().map(|key| (GroupRef::Key(group.clone(), key.clone()), job.cost));
    let own = (GroupRef::Group(group.clone()), job.cost);
    let extras = job.limits.iter().map(|(group, &need)| (group.clone(), need));
    let outer = [(GroupRef::Queue(job.queue.clone()), 1), (GroupRef::Cluster, 1)];
    key.into_iter().chain([own]).chain(extras).chain(outer)
}

impl State {
    /// A job's group: given, else its task's registered one, else the task's name.
    fn group_of<'a>(&'a self, job: &'a NewJob) -> &'a Name {
        let registered = || self.tasks[*self.task_by_name.get(&job.task)?].options.as_deref()?.group.as_ref();
        job.group.as_ref().or_else(registered).unwrap_or(&job.task)
    }

    /// The limit that would be in force for one of the job's groups once it is accepted.
    fn limit_for(&self, job: &NewJob, group: &GroupRef) -> Option<u32> {
        let exact = self.limits.get(group);
        let every_key = match group {
            GroupRef::Key(name, _) => self.limits.get(&GroupRef::EveryKey(name.clone())),
            _ => None,
        };
        let limit = in_force(exact, every_key).filter(|(_, source)| *source != crate::LimitSource::Submit);
        let own_group = match (group, &job.key) {
            (GroupRef::Key(_, key), Some(own)) => key == own && !job.limits.contains_key(group),
            (GroupRef::Group(_), None) => !job.limits.contains_key(group),
            _ => false,
        };
        let submit = job.limit.filter(|_| own_group).or(exact.and_then(|limits: &Limits| limits.submit));
        limit.map(|(limit, _)| limit).or(submit)
    }
}
