//! Views.

use super::not_found;
use super::slot::Program;
use super::state::{Ahead, Job, Toy};
use qo_core::{
    Cursor, Error, GroupDetail, GroupPage, GroupRef, GroupStatus, HeldBy, Holder, JobDetail, JobFilter, JobId,
};
use qo_core::{
    FenceToken, JobPage, JobState, JobView, LeaseOver, Name, Over, QueueStatus, Result, Running, SessionOver,
    SlotLease, WorkerStatus, caps,
};
use std::collections::BTreeSet;

impl Toy {
    pub fn job(&self, job: JobId) -> Result<JobDetail> {
        let at = self.jobs.iter().position(|row| row.new.id == job).ok_or_else(|| not_found(job))?;
        let foreseen = self.foresee();
        let shown = self.shown(&foreseen, at);
        let job = &shown.jobs[at];
        Ok(JobDetail {
            view: shown.view(job),
            payload: job.new.payload.clone(),
            output: job.output.clone(),
            attempts: job.attempts.clone(),
        })
    }

    pub fn jobs(&self, filter: &JobFilter, after: Option<Cursor>, limit: usize) -> Result<JobPage> {
        check_page(limit)?;
        let behind = |job: &Job| match after {
            None => true,
            Some(cursor) if filter.newest_first => job.acceptance < cursor.0,
            Some(cursor) => job.acceptance > cursor.0,
        };
        let foreseen = self.foresee();
        let shown = (0..self.jobs.len()).map(|at| (self.shown(&foreseen, at), at));
        let shown = shown.map(|(toy, at)| (toy, &toy.jobs[at]));
        let mut found: Vec<(&Self, &Job)> =
            shown.filter(|(_, job)| behind(job) && matches(job, filter)).collect();
        if filter.newest_first {
            found.reverse();
        }
        let more = found.len() > limit;
        found.truncate(limit);
        let next = found.last().filter(|_| more).map(|(_, job)| Cursor(job.acceptance));
        Ok(JobPage { jobs: found.into_iter().map(|(toy, job)| toy.view(job)).collect(), next })
    }

    /// The state from which a job is shown: as a claim would find it, unless the claim would end the job.
    pub fn shown<'a>(&'a self, foreseen: &'a Self, at: usize) -> &'a Self {
        let would_end = self.jobs[at].is_live() && !foreseen.jobs[at].is_live();
        if would_end { self } else { foreseen }
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
            timeout_ms: job.new.timeout_ms,
            retry: job.new.retry,
            limit: job.new.limit,
            idempotency_key: job.new.idempotency_key.clone(),
            traceparent: job.new.traceparent,
            attempts_used: job.attempts_used,
            max_attempts: job.new.max_attempts,
            cancel_requested: job.is_running() && job.cancel_requested,
            running: self.running(job),
            claimed: self.claimed_view(job),
            workflow: job.new.workflow.clone(),
            step: job.step,
            skipped: job.skipped,
            finished_at: job.finished_at,
            unreadable: None,
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
            progress: holding.progress.clone(),
        })
    }

    fn claimed_view(&self, job: &Job) -> Option<Running> {
        let Ahead { session, worker, token, since, until } = job.ahead.clone()?;
        let lease_until = until.min(self.session(session)?.lease_until);
        Some(Running { worker, session, token, since, lease_until, progress: None })
    }

    pub fn groups(&self, after: Option<&GroupRef>, limit: usize) -> Result<GroupPage> {
        check_page(limit)?;
        let mut all: BTreeSet<GroupRef> = self.limits.keys().cloned().collect();
        all.extend(self.jobs.iter().filter(|job| job.is_live()).flat_map(Job::needs).map(|(group, _)| group));
        all.extend(self.programs.iter().flat_map(Program::needs).map(|(group, _)| group));
        let mut found: Vec<GroupRef> =
            all.into_iter().filter(|group| after.is_none_or(|after| group > after)).collect();
        let more = found.len() > limit;
        found.truncate(limit);
        let next = found.last().filter(|_| more).cloned();
        Ok(GroupPage { groups: found.iter().map(|group| self.status(group)).collect(), next })
    }

    fn status(&self, group: &GroupRef) -> GroupStatus {
        let in_force = self.limit_in_force(group);
        let of_programs = self.programs.iter().map(|program| u64::from(slots_of(&program.needs(), group)));
        let of_programs: u64 = of_programs.sum();
        let slots = |counts: fn(&Job) -> bool| {
            let jobs = self.jobs.iter().filter(|job| counts(job));
            jobs.map(|job| u64::from(slots_of(&job.needs(), group))).sum::<u64>() + of_programs
        };
        let (acquired, rejected) = self.totals.get(group).copied().unwrap_or_default();
        GroupStatus {
            group: group.clone(),
            limit: in_force.map(|(limit, _)| limit),
            source: in_force.map(|(_, source)| source),
            sources: self.limits.get(group).cloned().unwrap_or_default(),
            used: slots(Job::is_running),
            live: slots(Job::is_live),
            acquired,
            rejected,
        }
    }

    pub fn group(&self, group: &GroupRef) -> Result<GroupDetail> {
        let status = self.status(group);
        if status.limit.is_none() && status.live == 0 {
            return Err(not_found(group));
        }
        Ok(GroupDetail { status, holders: self.holders(group) })
    }

    /// The holders of slots of a group, the oldest claim first.
    pub fn holders(&self, group: &GroupRef) -> Vec<Holder> {
        let holder = |job: &Job| {
            let slots = slots_of(&job.needs(), group);
            let running = self.running(job).filter(|_| slots > 0)?;
            let Running { worker, session, token, since, lease_until, .. } = running;
            let by = HeldBy::Job { job: job.new.id, task: job.new.task.clone(), session };
            Some(Holder { token, slots, worker, since, lease_until, by })
        };
        let program = |program: &Program| {
            let slots = slots_of(&program.needs(), group);
            let SlotLease { token, since, lease_until } = program.lease;
            let by = HeldBy::Program { lease: program.id };
            (slots > 0).then(|| Holder {
                token,
                slots,
                worker: program.holder.clone(),
                since,
                lease_until,
                by,
            })
        };
        let jobs = self.jobs.iter().filter_map(holder);
        let mut holders: Vec<Holder> = jobs.chain(self.programs.iter().filter_map(program)).collect();
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
        let is_pending = |job: &Job| job.state == JobState::Pending;
        let in_line = self.jobs.iter().filter(|job| job.new.queue == *queue && self.is_in_line(job));
        QueueStatus {
            queue: queue.clone(),
            priority: self.queue_priorities.get(queue).copied().unwrap_or(qo_core::DEFAULT_QUEUE_PRIORITY),
            paused: self.paused.contains(queue),
            limit: self.limit(&GroupRef::Queue(queue.clone())),
            running: count(&Job::is_running),
            claimed: count(&|job| job.state == JobState::Claimed),
            due: count(&|job| self.is_in_line(job)),
            scheduled: count(&|job| is_pending(job) && job.run_at > self.now && self.is_next(job)),
            waiting: count(&|job| is_pending(job) && !self.is_next(job)),
            oldest_due: in_line.map(|job| job.run_at).min(),
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
                owner: session.new.owner,
                permits: session.new.permits,
                free_permits: session.free_permits,
                memory_percent: session.memory_percent,
                saturated: session.is_saturated(),
                draining: session.draining,
                opened_at: session.opened_at,
                lease_until: session.lease_until,
                running: self.held_by(session.new.id),
                claimed: self.claimed_by(session.new.id).len() as u64,
            })
            .collect();
        workers.sort_by(|a, b| (&a.worker, a.session).cmp(&(&b.worker, b.session)));
        workers
    }

    /// What is over and has not been ended yet.
    pub fn over(&self) -> Over {
        let limited = |job: &Job| {
            let needs = job.needs().into_iter().filter(|(group, _)| self.limit(group).is_some());
            needs.map(|(_, slots)| u64::from(slots)).sum::<u64>()
        };
        let held =
            |job: &Job, session| job.holding.as_ref().is_some_and(|holding| holding.session == session);
        let slots = |session| self.jobs.iter().filter(|job| held(job, session)).map(limited).sum();
        let workers = self.workers().into_iter().filter(|worker| worker.lease_until <= self.now);
        let mut sessions: Vec<SessionOver> =
            workers.map(|worker| SessionOver { slots: slots(worker.session), worker }).collect();
        sessions.sort_by_key(|over| (over.worker.lease_until, over.worker.session));
        let timed_out = |job: &&Job| {
            let holding = job.holding.as_ref().filter(|h| h.timeout_at().is_some_and(|at| at <= self.now));
            let session = holding.and_then(|holding| self.session(holding.session));
            session.is_some_and(|session| session.lease_until > self.now)
        };
        let jobs = self.jobs.iter().filter(timed_out);
        let mut jobs: Vec<LeaseOver> =
            jobs.filter_map(|job| self.lease_over(&job.needs(), job.holding.as_ref()?.token)).collect();
        let programs = self.programs.iter().filter(|program| program.lease.lease_until <= self.now);
        let mut programs: Vec<LeaseOver> =
            programs.filter_map(|program| self.lease_over(&program.needs(), program.lease.token)).collect();
        for leases in [&mut jobs, &mut programs] {
            leases.sort_by_key(|over| (over.holder.lease_until, over.holder.token));
        }
        Over { sessions, leases: [jobs, programs].concat() }
    }

    /// A lease, by the narrowest group of those that it holds slots of.
    fn lease_over(&self, needs: &[(GroupRef, u32)], token: FenceToken) -> Option<LeaseOver> {
        let group = needs.first()?.0.clone();
        let holder = self.holders(&group).into_iter().find(|holder| holder.token == token)?;
        Some(LeaseOver { group, holder })
    }

    fn held_by(&self, session: qo_core::SessionId) -> u64 {
        let held = |job: &&Job| job.holding.as_ref().is_some_and(|holding| holding.session == session);
        self.jobs.iter().filter(held).count() as u64
    }
}

/// The slots of a group, or of all keys of one, among those that a holder takes.
pub(super) fn slots_of(needs: &[(GroupRef, u32)], group: &GroupRef) -> u32 {
    let in_it = |of: &GroupRef| match (group, of) {
        (GroupRef::EveryKey(every), GroupRef::Key(name, _)) => every == name,
        _ => group == of,
    };
    needs.iter().filter(|(of, _)| in_it(of)).map(|&(_, slots)| slots).sum()
}

pub(super) fn matches(job: &Job, filter: &JobFilter) -> bool {
    (filter.states.is_empty() || filter.states.contains(&job.state))
        && filter.queue.as_ref().is_none_or(|queue| *queue == job.new.queue)
        && filter.task.as_ref().is_none_or(|task| *task == job.new.task)
        && filter.group.as_ref().is_none_or(|group| *group == job.group)
        && (filter.key.is_none() || filter.key == job.new.key)
        && (filter.workflow.is_none() || filter.workflow == job.new.workflow)
        && filter.submitted_from.is_none_or(|from| from <= job.submitted_at)
        && filter.submitted_before.is_none_or(|before| job.submitted_at < before)
        && filter.id_prefix.is_none_or(|prefix| job.new.id.to_string().starts_with(&prefix.to_string()))
}

pub(super) fn check_page(limit: usize) -> Result<()> {
    if (1..=caps::PAGE).contains(&limit) {
        return Ok(());
    }
    Err(Error::invalid("limit", limit, format_args!("must be 1 to {}", caps::PAGE)))
}
