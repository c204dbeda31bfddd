//! The views: rows as people and programs see them, at the time of the last event. A store lets time pass
//! ([`Event::Ticked`](crate::Event::Ticked)) before it looks, so that dates are judged by the present.

use super::State;
use super::row::{Group, Job, Label, Phase, Run};
use super::table::Ix;
use crate::lane::Lane;
use crate::{
    Cursor, Error, FenceToken, GroupDetail, GroupPage, GroupRef, GroupStatus, Holder, JobDetail, JobFilter,
};
use crate::{JobId, JobPage, JobView, Key, Name, QueueStatus, Result, Running, WorkerStatus, caps};
use std::collections::BTreeSet;

impl State {
    /// One job, whole.
    pub fn job(&self, job: JobId) -> Result<JobDetail> {
        let ix = self.find_job(job).ok_or_else(|| Error::not_found(format!("job {job}")))?;
        let row = &self.jobs[ix];
        let output = row.track.as_ref().and_then(|track| track.output.clone());
        let (payload, attempts) = (row.payload.clone(), row.attempts().to_vec());
        Ok(JobDetail { view: self.job_view(row), payload, output, attempts })
    }

    /// Jobs that match a filter, in the order of their acceptance.
    pub fn jobs(&self, filter: &JobFilter, after: Option<Cursor>, limit: usize) -> Result<JobPage> {
        crate::job::within("limit", limit as u64, 1, caps::PAGE as u64)?;
        let from = after.map_or(0, |Cursor(number)| number.saturating_add(1));
        let mut found =
            self.job_by_number.range(from..).filter(|&(_, &ix)| self.matches(&self.jobs[ix], filter));
        let mut jobs = Vec::new();
        let mut last = None;
        while jobs.len() < limit
            && let Some((&number, &ix)) = found.next()
        {
            jobs.push(self.job_view(&self.jobs[ix]));
            last = Some(Cursor(number));
        }
        Ok(JobPage { jobs, next: last.filter(|_| found.next().is_some()) })
    }

    fn matches(&self, job: &Job, filter: &JobFilter) -> bool {
        let lane = &self.lanes[job.lane];
        let class = &self.classes[lane.class];
        let desk = &self.desks[class.desk];
        (filter.states.is_empty() || filter.states.contains(&job.state()))
            && filter.queue.as_ref().is_none_or(|queue| self.queues[desk.queue].name == *queue)
            && filter.task.as_ref().is_none_or(|task| self.tasks[desk.task].name == *task)
            && filter.group.as_ref().is_none_or(|group| self.group_name(class.group) == *group)
            && filter.key.as_ref().is_none_or(|key| self.lane_key(lane).as_ref() == Some(key))
    }

    fn job_view(&self, job: &Job) -> JobView {
        let lane = &self.lanes[job.lane];
        let class = &self.classes[lane.class];
        let desk = &self.desks[class.desk];
        let extras =
            class.extras.iter().map(|&(group, need)| (self.group_ref(&self.groups[group].label), need));
        JobView {
            id: job.id,
            state: job.state(),
            queue: self.queues[desk.queue].name.clone(),
            task: self.tasks[desk.task].name.clone(),
            group: self.group_name(class.group),
            key: self.lane_key(lane),
            cost: class.cost,
            limits: extras.collect(),
            priority: job.priority,
            submitted_at: job.submitted_at,
            run_at: job.run_at,
            good_until: job.good_until(),
            idempotency_key: job.idempotency_key().cloned(),
            attempts_used: job.attempts_used,
            max_attempts: job.max_attempts,
            cancel_requested: job.run().is_some_and(|run| run.cancel_requested),
            running: job.run().map(|run| self.running(run)),
            claimed: None,
            workflow: None,
            step: None,
            skipped: false,
            finished_at: match job.phase() {
                Phase::Finished { at, .. } => Some(*at),
                Phase::Pending | Phase::Running(_) => None,
            },
        }
    }

    fn running(&self, run: &Run) -> Running {
        let session = &self.sessions[run.session].row;
        Running {
            worker: session.new.worker.clone(),
            session: session.new.id,
            token: run.token,
            since: run.since,
            lease_until: run.timeout_at.map_or(session.lease_until, |at| at.min(session.lease_until)),
        }
    }

    pub(crate) fn task_name(&self, job: &Job) -> &Name {
        &self.tasks[self.desk(self.class(job.lane)).task].name
    }

    pub(crate) fn lane_key(&self, lane: &Lane) -> Option<Key> {
        lane.key.and_then(|key| match &self.groups[key].label {
            Label::Key(_, key) => Some(key.clone()),
            Label::Cluster | Label::Queue(_) | Label::Group(_) => None,
        })
    }

    /// Groups that have live jobs or a limit, by name and key.
    pub fn groups(&self, after: Option<&GroupRef>, limit: usize) -> Result<GroupPage> {
        crate::job::within("limit", limit as u64, 1, caps::PAGE as u64)?;
        let is_after = |group: &GroupRef| after.is_none_or(|after| group > after);
        let live =
            self.groups.iter().filter(|(_, row)| row.live > 0).map(|(_, row)| self.group_ref(&row.label));
        let shown = live.chain(self.limits.keys().cloned()).filter(is_after);
        // Only one page is ever kept: with a key per job there may be millions.
        let mut page = BTreeSet::new();
        for group in shown {
            page.insert(group);
            if page.len() > limit + 1 {
                page.pop_last();
            }
        }
        let more = page.len() > limit;
        let groups: Vec<_> = page.iter().take(limit).map(|group| self.group_status(group)).collect();
        let next = groups.last().filter(|_| more).map(|last| last.group.clone());
        Ok(GroupPage { groups, next })
    }

    /// A group and the holders of its slots.
    pub fn group(&self, group: &GroupRef) -> Result<GroupDetail> {
        let status = self.group_status(group);
        if status.live == 0 && status.limit.is_none() && status.sources.is_empty() {
            return Err(Error::not_found(format!(
                "{group}: no live job names it and nobody has set a limit"
            )));
        }
        let holders = self.holders(group).map(|(_, job)| self.holder(group, job)).collect();
        Ok(GroupDetail { status, holders })
    }

    fn group_status(&self, group: &GroupRef) -> GroupStatus {
        let sources = self.limits.get(group).cloned().unwrap_or_default();
        let every_key = match group {
            GroupRef::Key(name, _) => self.limits.get(&GroupRef::EveryKey(name.clone())),
            _ => None,
        };
        let in_force = crate::limit::in_force(Some(&sources), every_key);
        let rows = self.rows_of(group);
        let (used, live) = rows.fold((0, 0), |(used, live), row| (used + row.used, live + row.live));
        let (limit, source) = in_force.unzip();
        GroupStatus { group: group.clone(), limit, source, sources, used, live }
    }

    /// The row of a group; of `GROUP/*` those of all its keys.
    fn rows_of(&self, group: &GroupRef) -> Box<dyn Iterator<Item = &Group> + '_> {
        if let GroupRef::EveryKey(name) = group {
            let parent = self.find_group(&GroupRef::Group(name.clone()));
            let of_parent = move |row: &&Group| matches!(row.label, Label::Key(at, _) if Some(at) == parent);
            return Box::new(self.groups.iter().map(|(_, row)| row).filter(of_parent));
        }
        Box::new(self.find_group(group).map(|ix| &self.groups[ix]).into_iter())
    }

    /// The running jobs that hold slots of a group, by token.
    pub(crate) fn holders(&self, group: &GroupRef) -> impl Iterator<Item = (FenceToken, Ix<Job>)> {
        let running = self.sessions.iter().flat_map(|(_, session)| &session.running);
        let mut held: Vec<_> = running
            .map(|(&token, &job)| (token, job))
            .filter(|&(_, job)| self.slots(group, job) > 0)
            .collect();
        held.sort_unstable_by_key(|&(token, _)| token);
        held.into_iter()
    }

    fn slots(&self, group: &GroupRef, job: Ix<Job>) -> u32 {
        let needs = self.needs(self.jobs[job].lane).into_iter();
        let of_group = |ix: Ix<Group>| match (group, &self.groups[ix].label) {
            (GroupRef::EveryKey(name), Label::Key(parent, _)) => self.group_name(*parent) == *name,
            (_, label) => self.group_ref(label) == *group,
        };
        needs.filter(|&(ix, _)| of_group(ix)).map(|(_, need)| need).sum()
    }

    pub(crate) fn holder(&self, group: &GroupRef, ix: Ix<Job>) -> Holder {
        let job = &self.jobs[ix];
        let run = job.run().unwrap_or_else(|| unreachable!("only running jobs hold slots"));
        let Running { worker, session, token, since, lease_until } = self.running(run);
        let by = crate::HeldBy::Job { job: job.id, task: self.task_name(job).clone(), session };
        Holder { token, slots: self.slots(group, ix), worker, since, lease_until, by }
    }

    /// All queues that have live jobs, a limit, a priority or a pause, by name.
    pub fn queues(&self) -> Vec<QueueStatus> {
        let mut names: BTreeSet<Name> = self.queue_by_name.keys().cloned().collect();
        names.extend(self.limits.keys().filter_map(|group| match group {
            GroupRef::Queue(name) => Some(name.clone()),
            _ => None,
        }));
        names.into_iter().filter_map(|name| self.queue_status(name)).collect()
    }

    fn queue_status(&self, queue: Name) -> Option<QueueStatus> {
        let row = self.queue_by_name.get(&queue).map(|&ix| &self.queues[ix]);
        let running = row.map_or(0, |row| self.groups[row.group].used);
        let group = GroupRef::Queue(queue.clone());
        let status = QueueStatus {
            queue,
            priority: row.map_or(crate::DEFAULT_QUEUE_PRIORITY, |row| row.priority()),
            paused: row.is_some_and(|row| row.paused),
            limit: crate::limit::in_force(self.limits.get(&group), None).map(|(limit, _)| limit),
            running,
            due: row.map_or(0, |row| row.due),
            scheduled: row.map_or(0, |row| row.scheduled),
            claimed: 0,
            waiting: 0,
        };
        let configured =
            row.is_some_and(|row| row.priority.is_some() || row.paused) || status.limit.is_some();
        (configured || status.running + status.due + status.scheduled > 0).then_some(status)
    }

    /// All sessions that have not ended, by worker name, then session.
    pub fn workers(&self) -> Vec<WorkerStatus> {
        let mut workers: Vec<_> = self
            .sessions
            .iter()
            .map(|(_, session)| {
                let row = &session.row;
                WorkerStatus {
                    worker: row.new.worker.clone(),
                    session: row.new.id,
                    queues: row.new.queues.clone(),
                    tasks: row.new.tasks.clone(),
                    permits: row.new.permits,
                    free_permits: row.free_permits,
                    saturated: row.is_saturated(),
                    draining: row.draining,
                    opened_at: row.opened_at,
                    lease_until: row.lease_until,
                    running: session.running.len() as u64,
                    claimed: 0,
                }
            })
            .collect();
        workers.sort_by(|a, b| (&a.worker, a.session).cmp(&(&b.worker, b.session)));
        workers
    }

    /// Workflows that are remembered, by name.
    pub fn workflows(&self, _after: Option<&Name>, _limit: usize) -> Result<crate::WorkflowPage> {
        Err(Error::not_found("not yet"))
    }

    /// One workflow.
    pub fn workflow(&self, _workflow: &Name) -> Result<crate::WorkflowStatus> {
        Err(Error::not_found("not yet"))
    }

    /// All schedules, by name.
    pub fn schedules(&self) -> Vec<crate::ScheduleStatus> {
        Vec::new()
    }
}
