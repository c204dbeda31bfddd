//! Submit: a job is stored, found again, refused or skipped, in the same step as the count that decides it.

use super::Decider;
use crate::limit::in_force;
use crate::state::row::At;
use crate::{Answer, Error, ErrorKind, Event, GroupRef, LimitSource, Limits, Name, NewJob, OnLimit, Result};
use crate::{State, Submitted, caps};
use std::sync::Arc;

/// What becomes of one job.
pub(super) enum Admission {
    /// Nothing is stored.
    Decided(Submitted),
    /// This group has no room for it.
    Refused(GroupRef, Result<Submitted>),
    /// The job is stored.
    New(Box<NewJob>),
}

impl Decider<'_> {
    pub(super) fn submit(&mut self, jobs: &[NewJob]) -> Result<Answer> {
        check_call(jobs)?;
        for (index, job) in jobs.iter().enumerate() {
            self.check(job).map_err(|error| error.at_item("jobs", index))?;
        }
        self.tick();
        Ok(Answer::Submitted(jobs.iter().map(|job| self.submit_one(job)).collect()))
    }

    /// Stores jobs that the store has acknowledged (G3): no client is left to hear a refusal. A cost above a limit is
    /// accepted. Only a job that could not have been offered gets an error, and it alone.
    pub(super) fn admit_offered(&mut self, jobs: &[NewJob]) -> Answer {
        self.tick();
        let admitted = jobs.iter().map(|job| job.check_admission().and_then(|()| self.submit_one(job)));
        Answer::Submitted(admitted.collect())
    }

    pub(super) fn check(&self, job: &NewJob) -> Result<()> {
        job.check()?;
        if self.find_existing(job).is_some() {
            return Ok(());
        }
        let group = self.state.group_of(job);
        job.check_own_group(group)?;
        if job.cost == 1 && job.limits.values().all(|need| *need == 1) {
            // A limit is 0, which holds the job, or has room for one slot.
            return Ok(());
        }
        let own = brought(job, group);
        for (group, need) in needs(job, group) {
            let field = |group: &GroupRef| {
                if job.limits.contains_key(group) { format!("limits[{group}]") } else { "cost".into() }
            };
            self.state.check_need(&group, need, own.as_ref(), field)?;
        }
        Ok(())
    }

    fn find_existing(&self, job: &NewJob) -> Option<At> {
        let by_key = job.idempotency_key.as_ref().and_then(|key| self.state.find_by_idempotency_key(key));
        by_key.or_else(|| self.state.find(job.id))
    }

    pub(super) fn submit_one(&mut self, job: &NewJob) -> Result<Submitted> {
        let admission = self.admit(job)?;
        self.accept(admission)
    }

    pub(super) fn accept(&mut self, admission: Admission) -> Result<Submitted> {
        match admission {
            Admission::Decided(submitted) => Ok(submitted),
            Admission::Refused(group, answer) => {
                self.reject(&group);
                answer
            }
            Admission::New(job) => {
                let (id, now) = (job.id, self.state.now);
                // Leaves out the defaults, to keep records small: most jobs are due at once and in their task's group.
                let run_at = job.run_at.filter(|run_at| *run_at != now);
                let group = job.group.clone().filter(|group| *group != job.task);
                self.happen(Event::Accepted(Arc::new(NewJob { run_at, group, ..*job })));
                Ok(Submitted::Accepted(id))
            }
        }
    }

    /// Decides about one job. Nothing changes yet.
    pub(super) fn admit(&self, job: &NewJob) -> Result<Admission> {
        if let Some(at) = self.find_existing(job) {
            let old = self.state.record(at);
            // A job found by id without this key is no match: the key would not be kept, and a second job with it would
            // be let in.
            let same_key =
                job.idempotency_key.is_none() || old.idempotency_key() == job.idempotency_key.as_ref();
            if *self.state.task_at(at) == job.task && old.payload == job.payload && same_key {
                return Ok(Admission::Decided(Submitted::Existing(old.id)));
            }
            let by = match &job.idempotency_key {
                Some(key) if old.idempotency_key() == Some(key) => format!("idempotency_key {:?}", &**key),
                _ => format!("id {}", job.id),
            };
            return Err(Error::conflict(format!(
                "{by}: job {} has it, with another task, payload or idempotency key",
                old.id
            )));
        }
        let on_failure = job.workflow.as_ref().map(|name| self.join(name, job.on_failure)).transpose()?;
        let group = self.state.group_of(job).clone();
        if job.on_limit != OnLimit::Wait
            && let Some((full, error)) = self.refusal(job, &group)
        {
            let skip = job.on_limit == OnLimit::Skip;
            return Ok(Admission::Refused(full, if skip { Ok(Submitted::Skipped) } else { Err(error) }));
        }
        Ok(Admission::New(Box::new(NewJob { group: Some(group), on_failure, ..job.clone() })))
    }

    /// Counts that a group had no room, if it has a limit of its own.
    pub(super) fn reject(&mut self, group: &GroupRef) {
        if let Some(group) = self.state.counts_refusals_of(group) {
            self.happen(Event::Rejected { group, times: 1 });
        }
    }

    /// The group for which `reject` and `skip` refuse a job, and why: the first of its groups with a limit has no room for it beside its live
    /// jobs.
    fn refusal(&self, job: &NewJob, group: &Name) -> Option<(GroupRef, Error)> {
        let own = brought(job, group);
        let limited = |(group, need)| Some((self.state.limit_with(&group, own.as_ref())?, group, need));
        let (limit, group, need) = needs(job, group).find_map(limited)?;
        let live = self.state.find_group(&group).map_or(0, |ix| self.state.groups[ix].live);
        if live + u64::from(need) <= u64::from(limit) {
            return None;
        }
        let message =
            format!("{group}: {live} of {limit} slots are taken or waited for, the job needs {need}");
        Some((group, Error::new(ErrorKind::LimitReached, message)))
    }
}

/// The submit-side limit that a job brings, and the group that it is for. A limit of None clears the one that is there.
type Brought = (GroupRef, Option<u32>);

fn brought(job: &NewJob, group: &Name) -> Option<Brought> {
    let brings = job.clear_limit || job.limit.is_some();
    brings.then(|| (GroupRef::narrowest(group, job.key.as_ref()), job.limit))
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

/// The groups of a job and the slots it needs there, narrowest first.
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
        let registered = || self.tasks[*self.task_by_name.get(&job.task)?].options()?.group.as_ref();
        job.group.as_ref().or_else(registered).unwrap_or(&job.task)
    }

    /// The effective limit of a group once a job or program with a limit of its own has been let in.
    pub(super) fn limit_with(&self, group: &GroupRef, own: Option<&Brought>) -> Option<u32> {
        let exact = self.limits.get(group);
        let every_key = match group {
            GroupRef::Key(name, _) => self.limits.get(&GroupRef::EveryKey(name.clone())),
            _ => None,
        };
        let limit = in_force(exact, every_key).filter(|(_, source)| *source != LimitSource::Submit);
        let own = own.filter(|(at, _)| at == group);
        let submit = own.map_or_else(|| exact.and_then(|limits: &Limits| limits.submit), |&(_, limit)| limit);
        limit.map(|(limit, _)| limit).or(submit)
    }

    /// `Invalid` if the limit of a group is too low for a need ever to be met.
    pub(super) fn check_need(
        &self,
        group: &GroupRef,
        need: u32,
        own: Option<&Brought>,
        field: impl FnOnce(&GroupRef) -> String,
    ) -> Result<()> {
        match self.limit_with(group, own) {
            Some(limit @ 1..) if need > limit => {
                let rule = format_args!("must be at most the limit of {group}, {limit}: it could never run");
                Err(Error::invalid(field(group), need, rule))
            }
            Some(_) | None => Ok(()),
        }
    }
}
