//! What may be looked at.

use super::not_found;
use super::state::{Job, Toy};
use qo_core::{
    Cursor, Error, GroupDetail, GroupPage, GroupRef, GroupStatus, Holder, JobDetail, JobFilter, JobId,
};
use qo_core::{JobPage, JobState, JobView, Name, QueueStatus, Result, Running, WorkerStatus, caps};
use std::collections::BTreeSet;

impl Toy {
    pub fn job(&self, job: JobId) -> Result<JobDetail> {
        let job = self.find(job).ok_or_else(|| not_found(job))?;
        Ok(JobDetail {
            view: self.view(job),
            payload: job.new.payload.clone(),
            output: job.output.clone(),
            attempts: job.attempts.clone(),
        })
    }

    pub fn jobs(&self, filter: &JobFilter, after: Option<Cursor>, limit: usize) -> Result<JobPage> {
        check_page(limit)?;
        let from = after.map_or(0, |cursor| cursor.0);
        let mut found: Vec<&Job> =
            self.jobs.iter().filter(|job| job.acceptance > from && matches(job, filter)).collect();
        let more = found.len() > limit;
        found.truncate(limit);
        let next = found.last().filter(|_| more).map(|job| Cursor(job.acceptance));
        Ok(JobPage { jobs: found.into_iter().map(|job| self.view(job)).collect(), next })
    }

    fn view(&self, job: &Job) -> JobView {
        JobView {
            id: job.new.id,
            state: job.state,
            queue: job.new.queue.clone(),
            task: job.new.task.clone(),
            group: job.group.clone(),
            key: job.new.key.clone(),
            cost: job.new.cost,
            limits: job.new.limits.clone(),
            priority: job.new.priority,
            submitted_at: job.submitted_at,
            run_at: job.run_at,
            good_until: job.new.good_until,
            idempotency_key: job.new.idempotency_key.clone(),
            attempts_used: job.attempts_used,
            max_attempts: job.new.max_attempts,
            cancel_requested: job.is_running() && job.cancel_requested,
            running: self.running(job),
            claimed: None,
            workflow: None,
            step: None,
            skipped: false,
            finished_at: job.finished_at,
        }
    }

    fn running(&self, job: &Job) -> Option<Running> {
        let holding = job.holding.as_ref()?;
        let session_until = self.session(holding.session)?.lease_until;
        Some(Running {
            worker: holding.worker.clone(),
            session: holding.session,
            token: holding.token,
            since: holding.since,
            lease_until: holding.timeout_at().map_or(session_until, |timeout| timeout.min(session_until)),
        })
    }

    pub fn groups(&self, after: Option<&GroupRef>, limit: usize) -> Result<GroupPage> {
        check_page(limit)?;
        let mut all: BTreeSet<GroupRef> = self.limits.keys().cloned().collect();
        all.extend(self.jobs.iter().filter(|job| job.is_live()).flat_map(Job::needs).map(|(group, _)| group));
        let mut found: Vec<GroupRef> =
            all.into_iter().filter(|group| after.is_none_or(|after| group > after)).collect();
        let more = found.len() > limit;
        found.truncate(limit);
        let next = found.last().filter(|_| more).cloned();
        Ok(GroupPage { groups: found.iter().map(|group| self.status(group)).collect(), next })
    }

    fn status(&self, group: &GroupRef) -> GroupStatus {
        let in_force = self.limit_in_force(group);
        let slots = |counts: fn(&Job) -> bool| {
            let jobs = self.jobs.iter().filter(|job| counts(job));
            jobs.map(|job| u64::from(slots_in(job, group))).sum()
        };
        GroupStatus {
            group: group.clone(),
            limit: in_force.map(|(limit, _)| limit),
            source: in_force.map(|(_, source)| source),
            sources: self.limits.get(group).cloned().unwrap_or_default(),
            used: slots(Job::is_running),
            live: slots(Job::is_live),
        }
    }

    pub fn group(&self, group: &GroupRef) -> Result<GroupDetail> {
        let status = self.status(group);
        if status.limit.is_none() && status.live == 0 {
            return Err(not_found(group));
        }
        Ok(GroupDetail { status, holders: self.holders(group) })
    }

    /// Who holds slots of a group, the oldest claim first.
    pub fn holders(&self, group: &GroupRef) -> Vec<Holder> {
        let holder = |job: &Job| {
            let slots = slots_in(job, group);
            let running = self.running(job).filter(|_| slots > 0)?;
            let Running { worker, session, token, since, lease_until } = running;
            let by = qo_core::HeldBy::Job { job: job.new.id, task: job.new.task.clone(), session };
            Some(Holder { token, slots, worker, since, lease_until, by })
        };
        let mut holders: Vec<Holder> = self.jobs.iter().filter_map(holder).collect();
        holders.sort_by_key(|holder| holder.token);
        holders
    }

    pub fn queues(&self) -> Vec<QueueStatus> {
        let limited = self.limits.keys().filter_map(|group| match group {
            GroupRef::Queue(queue) => Some(queue),
            _ => None,
        });
        let with_jobs = self.jobs.iter().filter(|job| job.is_live()).map(|job| &job.new.queue);
        let named = self.queue_priorities.keys().chain(&self.paused);
        let queues: BTreeSet<&Name> = named.chain(limited).chain(with_jobs).collect();
        queues.into_iter().map(|queue| self.queue(queue)).collect()
    }

    fn queue(&self, queue: &Name) -> QueueStatus {
        let count = |counts: &dyn Fn(&Job) -> bool| {
            self.jobs.iter().filter(|job| job.new.queue == *queue && counts(job)).count() as u64
        };
        let pending = count(&|job| job.state == JobState::Pending);
        let due = count(&|job| job.is_due(self.now));
        QueueStatus {
            queue: queue.clone(),
            priority: self.queue_priorities.get(queue).copied().unwrap_or(qo_core::DEFAULT_QUEUE_PRIORITY),
            paused: self.paused.contains(queue),
            limit: self.limit(&GroupRef::Queue(queue.clone())),
            running: count(&Job::is_running),
            due,
            scheduled: pending - due,
            claimed: 0,
            waiting: 0,
        }
    }

    pub fn workers(&self) -> Vec<WorkerStatus> {
        let mut workers: Vec<WorkerStatus> = self
            .sessions
            .iter()
            .map(|session| WorkerStatus {
                worker: session.new.worker.clone(),
                session: session.new.id,
                queues: session.new.queues.clone(),
                tasks: session.new.tasks.clone(),
                permits: session.new.permits,
                free_permits: session.free_permits,
                saturated: session.is_saturated(),
                draining: session.draining,
                opened_at: session.opened_at,
                lease_until: session.lease_until,
                running: self.held_by(session.new.id),
                claimed: 0,
            })
            .collect();
        workers.sort_by(|a, b| (&a.worker, a.session).cmp(&(&b.worker, b.session)));
        workers
    }

    fn held_by(&self, session: qo_core::SessionId) -> u64 {
        let held = |job: &&Job| job.holding.as_ref().is_some_and(|holding| holding.session == session);
        self.jobs.iter().filter(held).count() as u64
    }
}

/// Slots that a job takes in a group, or in all keys of one.
pub(super) fn slots_in(job: &Job, group: &GroupRef) -> u32 {
    let in_it = |of: &GroupRef| match (group, of) {
        (GroupRef::EveryKey(every), GroupRef::Key(name, _)) => every == name,
        _ => group == of,
    };
    job.needs().iter().filter(|(of, _)| in_it(of)).map(|&(_, slots)| slots).sum()
}

fn matches(job: &Job, filter: &JobFilter) -> bool {
    (filter.states.is_empty() || filter.states.contains(&job.state))
        && filter.queue.as_ref().is_none_or(|queue| *queue == job.new.queue)
        && filter.task.as_ref().is_none_or(|task| *task == job.new.task)
        && filter.group.as_ref().is_none_or(|group| *group == job.group)
        && (filter.key.is_none() || filter.key == job.new.key)
}

fn check_page(limit: usize) -> Result<()> {
    if (1..=caps::PAGE).contains(&limit) {
        return Ok(());
    }
    Err(Error::invalid("limit", limit, format_args!("must be 1 to {}", caps::PAGE)))
}
