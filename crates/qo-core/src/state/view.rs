//! The views: rows as clients see them, at the time of the last event.
//!
//! A store first lets time pass for the look ([`State::at`]) and ends what is over for it ([`State::foresee`]), so that
//! leases and dates are judged by the present. Views of jobs judge their own lease instead, so that reading one job
//! costs no more than one job.

use super::State;
use super::ordered::Ordered;
use super::row::{At, Claimed, Group, Held, Job, Label, Queue, ScheduleRow, Session, Spec, Workflow};
use super::table::Ix;
use super::total::Totals;
use crate::decide::GoesBack;
use crate::lane::{Lane, Rank};
use crate::unreadable;
use crate::{
    Attempt, Cursor, Error, FenceToken, GroupDetail, GroupPage, GroupRef, GroupStatus, HeldBy, Holder,
};
use crate::{
    JobDetail, JobFilter, JobId, JobPage, JobState, JobView, Key, Name, QueueStatus, Result, Running,
};
use crate::{
    LeaseOver, Over, ScheduleStatus, SessionOver, StepStatus, Time, WorkerStatus, WorkflowPage,
    WorkflowState, WorkflowStatus, caps,
};
use std::collections::{BTreeMap, BTreeSet};
use std::ops::{Bound, Range};

impl State {
    /// One job with all its details.
    pub fn job(&self, job: JobId) -> Result<JobDetail> {
        let at = self.find(job).ok_or_else(|| Error::not_found(format!("job {job}")))?;
        let record = self.record(at);
        let output = record.track.as_ref().and_then(|track| track.output.clone());
        let (payload, mut attempts) = (record.payload.clone(), record.attempts().to_vec());
        if let Some(over) = self.live_at(at).and_then(|job| self.attempt_over(job)) {
            if attempts.len() == caps::ATTEMPTS_KEPT {
                attempts.remove(0);
            }
            attempts.push(over);
        }
        Ok(JobDetail { view: self.job_view(at), payload, output, attempts })
    }

    /// The attempt that a claim would end now, sending its job back in line, as it would be remembered.
    fn attempt_over(&self, job: &Job) -> Option<Attempt> {
        let (run, Some(GoesBack::Attempt(outcome, error))) = (job.run()?, self.goes_back(job)) else {
            return None;
        };
        let session = &self.sessions[run.session].row.new;
        Some(Attempt {
            number: u32::from(job.attempts_used) + 1,
            token: run.token,
            worker: session.worker.clone(),
            session: session.id,
            started_at: run.since,
            ended_at: self.now,
            outcome,
            error: Some(error.into()),
            then: JobState::Pending,
        })
    }

    /// The state of a job as a claim would find it. A job that would end is shown as it is stored: only a command ends
    /// it.
    fn shown_state(&self, at: At) -> JobState {
        let goes_back = self.live_at(at).is_some_and(|job| self.goes_back(job).is_some());
        if goes_back { JobState::Pending } else { self.state_at(at) }
    }

    /// Jobs that match a filter, in the filter's order.
    pub fn jobs(&self, filter: &JobFilter, after: Option<Cursor>, limit: usize) -> Result<JobPage> {
        crate::job::within("limit", limit as u64, 1, caps::PAGE as u64)?;
        let mut found = self.matching(filter, after, Self::shown_state);
        let mut jobs = Vec::new();
        let mut last = None;
        while jobs.len() < limit
            && let Some((number, at)) = found.next()
        {
            jobs.push(self.job_view(at));
            last = Some(Cursor(number));
        }
        Ok(JobPage { jobs, next: last.filter(|_| found.next().is_some()) })
    }

    /// Jobs that match a filter, live and remembered, with their number, in the filter's order. A view matches the state
    /// that it shows, a command the state that is stored.
    pub(crate) fn matching<'a>(
        &'a self,
        filter: &'a JobFilter,
        after: Option<Cursor>,
        state_at: fn(&Self, At) -> JobState,
    ) -> impl Iterator<Item = (u64, At)> + 'a {
        let range = match (after, filter.newest_first) {
            (None, _) => 0..u64::MAX,
            (Some(Cursor(number)), false) => number.saturating_add(1)..u64::MAX,
            (Some(Cursor(number)), true) => 0..number,
        };
        let found: Box<dyn Iterator<Item = (u64, At)> + 'a> = match (&filter.workflow, filter.newest_first) {
            (None, false) => Box::new(self.in_order(range.clone())),
            (None, true) => Box::new(self.in_reverse(range.clone())),
            (Some(workflow), newest_first) => {
                let steps = self.find_workflow(workflow).map(|ix| self.workflows[ix].steps.values());
                let steps = steps.into_iter().flatten().map(|&at| (self.record(at).number, at));
                if newest_first { Box::new(steps.rev()) } else { Box::new(steps) }
            }
        };
        found.filter(move |(number, at)| {
            range.contains(number) && self.matches(*at, state_at(self, *at), filter)
        })
    }

    pub(super) fn in_order(&self, range: Range<u64>) -> impl Iterator<Item = (u64, At)> {
        let mut live = self.job_by_number.range(range.clone()).peekable();
        let mut past = self.past_by_number.range(range).peekable();
        std::iter::from_fn(move || {
            let live_first = match (live.peek(), past.peek()) {
                (Some((live, _)), Some((past, _))) => live < past,
                (live, _) => live.is_some(),
            };
            if live_first {
                live.next().map(|(&number, &ix)| (number, At::Live(ix)))
            } else {
                past.next().map(|(&number, &ix)| (number, At::Past(ix)))
            }
        })
    }

    fn in_reverse(&self, range: Range<u64>) -> impl Iterator<Item = (u64, At)> {
        let mut live = self.job_by_number.range(range.clone()).rev().peekable();
        let mut past = self.past_by_number.range(range).rev().peekable();
        std::iter::from_fn(move || {
            let live_first = match (live.peek(), past.peek()) {
                (Some((live, _)), Some((past, _))) => live > past,
                (live, _) => live.is_some(),
            };
            if live_first {
                live.next().map(|(&number, &ix)| (number, At::Live(ix)))
            } else {
                past.next().map(|(&number, &ix)| (number, At::Past(ix)))
            }
        })
    }

    fn matches(&self, at: At, state: JobState, filter: &JobFilter) -> bool {
        let record = self.record(at);
        if !filter.states.is_empty() && !filter.states.contains(&state)
            || filter.id_prefix.is_some_and(|prefix| !prefix.matches(record.id))
            || filter.submitted_from.is_some_and(|from| record.submitted_at < from)
            || filter.submitted_before.is_some_and(|before| record.submitted_at >= before)
        {
            return false;
        }
        let is = |asked: &Option<Name>, name: &Name| asked.as_ref().is_none_or(|asked| asked == name);
        match at {
            At::Live(ix) => {
                let lane = &self.lanes[self.jobs[ix].lane];
                let class = &self.classes[lane.class];
                let desk = &self.desks[class.desk];
                is(&filter.queue, &self.queues[desk.queue].name)
                    && is(&filter.task, &self.tasks[desk.task].name)
                    && is(&filter.group, &self.group_name(class.group))
                    && filter.key.as_ref().is_none_or(|key| self.lane_key(lane).as_ref() == Some(key))
            }
            At::Past(ix) => {
                let past = &self.past[ix];
                is(&filter.queue, &past.spec.queue)
                    && is(&filter.task, &past.spec.task)
                    && is(&filter.group, &past.spec.group)
                    && filter.key.as_ref().is_none_or(|key| past.key.as_ref() == Some(key))
            }
        }
    }

    fn job_view(&self, at: At) -> JobView {
        let (record, stored) = (self.record(at), self.live_at(at));
        let over = stored.and_then(|job| self.goes_back(job));
        let job = stored.filter(|_| over.is_none());
        let just_used = u32::from(matches!(over, Some(GoesBack::Attempt(..))));
        let (membership, options) = (record.membership(), record.options.as_deref());
        let (spec, key) = self.asked_for(at);
        let past = match at {
            At::Live(_) => None,
            At::Past(ix) => Some(&self.past[ix]),
        };
        JobView {
            id: record.id,
            state: self.shown_state(at),
            queue: spec.queue,
            task: spec.task,
            group: spec.group,
            key,
            cost: spec.cost,
            limits: spec.limits,
            priority: record.priority,
            submitted_at: record.submitted_at,
            run_at: record.run_at,
            good_until: record.good_until(),
            timeout_ms: options.and_then(|own| own.timeout_ms),
            retry: options.and_then(|own| own.retry),
            limit: options.and_then(|own| own.limit),
            idempotency_key: record.idempotency_key().cloned(),
            traceparent: record.traceparent(),
            attempts_used: u32::from(record.attempts_used) + just_used,
            max_attempts: record.max_attempts.into(),
            cancel_requested: job.and_then(Job::run).is_some_and(|run| run.cancel_requested),
            running: job.and_then(|job| self.running(job)),
            claimed: job.and_then(Job::claimed).map(|claimed| self.claimed_by(claimed)),
            workflow: membership.map(|at| self.workflows[at.workflow].name.clone()),
            step: membership.map(|at| at.step),
            skipped: past.is_some_and(|past| past.skipped),
            finished_at: past.map(|past| past.finished_at),
            unreadable: unreadable::said(&record.payload).map(Into::into),
        }
    }

    fn live_at(&self, at: At) -> Option<&Job> {
        match at {
            At::Live(ix) => Some(&self.jobs[ix]),
            At::Past(_) => None,
        }
    }

    pub(super) fn asked_for(&self, at: At) -> (Spec, Option<Key>) {
        match at {
            At::Live(ix) => {
                let lane = &self.lanes[self.jobs[ix].lane];
                (self.spec(&self.classes[lane.class]), self.lane_key(lane))
            }
            At::Past(ix) => (Spec::clone(&self.past[ix].spec), self.past[ix].key.clone()),
        }
    }

    fn claimed_by(&self, claimed: &Claimed) -> Running {
        let session = &self.sessions[claimed.session].row;
        Running {
            worker: session.new.worker.clone(),
            session: session.new.id,
            token: claimed.token,
            since: claimed.since,
            lease_until: claimed.until.min(session.lease_until),
            progress: None,
        }
    }

    fn running(&self, job: &Job) -> Option<Running> {
        let run = job.run()?;
        let session = &self.sessions[run.session].row;
        Some(Running {
            worker: session.new.worker.clone(),
            session: session.new.id,
            token: run.token,
            since: run.since,
            lease_until: run.timeout_at.map_or(session.lease_until, |at| at.min(session.lease_until)),
            progress: job.progress().cloned(),
        })
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
        // Keep only one page at a time: with a key per job there may be millions of groups.
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
            return Err(Error::not_found(format!("{group}: no live job names it and no limit is set")));
        }
        let holders = self.holding(group).map(|(_, held)| self.holder(group, held)).collect();
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
        let Totals { acquired, rejected } = self.total(group);
        GroupStatus { group: group.clone(), limit, source, sources, used, live, acquired, rejected }
    }

    /// The row of a group. For `GROUP/*`, the rows of all its keys.
    fn rows_of(&self, group: &GroupRef) -> Box<dyn Iterator<Item = &Group> + '_> {
        if let GroupRef::EveryKey(name) = group {
            let parent = self.find_group(&GroupRef::Group(name.clone()));
            let of_parent = move |row: &&Group| matches!(row.label, Label::Key(at, _) if Some(at) == parent);
            return Box::new(self.groups.iter().map(|(_, row)| row).filter(of_parent));
        }
        Box::new(self.find_group(group).map(|ix| &self.groups[ix]).into_iter())
    }

    /// The holders of slots of a group, by token.
    pub(crate) fn holding(&self, group: &GroupRef) -> impl Iterator<Item = (FenceToken, Held)> {
        let running = self.sessions.iter().flat_map(|(_, session)| &session.running);
        let running = running.map(|(&token, &job)| (token, Held::Job(job)));
        let programs = self.programs.iter().map(|(ix, program)| (program.token, Held::Program(ix)));
        let mut held: Vec<_> =
            running.chain(programs).filter(|&(_, held)| self.slots(group, held) > 0).collect();
        held.sort_unstable_by_key(|&(token, _)| token);
        held.into_iter()
    }

    fn slots(&self, group: &GroupRef, held: Held) -> u32 {
        let needs = match held {
            Held::Job(job) => self.needs(self.jobs[job].lane),
            Held::Program(program) => self.programs[program].needs.clone(),
        };
        let of_group = |ix: Ix<Group>| match (group, &self.groups[ix].label) {
            (GroupRef::EveryKey(name), Label::Key(parent, _)) => self.group_name(*parent) == *name,
            (_, label) => self.group_ref(label) == *group,
        };
        needs.into_iter().filter(|&(ix, _)| of_group(ix)).map(|(_, need)| need).sum()
    }

    pub(crate) fn holder(&self, group: &GroupRef, held: Held) -> Holder {
        let slots = self.slots(group, held);
        match held {
            Held::Job(ix) => {
                let job = &self.jobs[ix];
                let running = self.running(job);
                let Running { worker, session, token, since, lease_until, .. } =
                    running.unwrap_or_else(|| unreachable!("only running jobs hold slots"));
                let by = HeldBy::Job { job: job.id, task: self.task_name(job).clone(), session };
                Holder { token, slots, worker, since, lease_until, by }
            }
            Held::Program(ix) => {
                let program = &self.programs[ix];
                let (worker, by) =
                    (program.request.holder.clone(), HeldBy::Program { lease: program.request.id });
                Holder {
                    token: program.token,
                    slots,
                    worker,
                    since: program.since,
                    lease_until: program.until,
                    by,
                }
            }
        }
    }

    /// All queues that have live jobs, a limit, a priority or a pause, by name.
    pub fn queues(&self) -> Vec<QueueStatus> {
        let mut oldest: BTreeMap<Ix<Queue>, Time> = BTreeMap::new();
        for (_, lane) in self.lanes.iter() {
            let Some(due) = oldest_of(&lane.jobs) else { continue };
            let queue = self.desk(&self.classes[lane.class]).queue;
            oldest.entry(queue).and_modify(|at| *at = due.min(*at)).or_insert(due);
        }
        let mut names: BTreeSet<Name> = self.queue_by_name.keys().cloned().collect();
        names.extend(self.limits.keys().filter_map(|group| match group {
            GroupRef::Queue(name) => Some(name.clone()),
            _ => None,
        }));
        names.into_iter().filter_map(|name| self.queue_status(name, &oldest)).collect()
    }

    fn queue_status(&self, queue: Name, oldest: &BTreeMap<Ix<Queue>, Time>) -> Option<QueueStatus> {
        let ix = self.queue_by_name.get(&queue).copied();
        let row = ix.map(|ix| &self.queues[ix]);
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
            claimed: row.map_or(0, |row| row.claimed),
            waiting: row.map_or(0, |row| row.waiting),
            oldest_due: ix.and_then(|ix| oldest.get(&ix).copied()),
        };
        let configured =
            row.is_some_and(|row| row.priority.is_some() || row.paused) || status.limit.is_some();
        let pending = status.due + status.scheduled + status.waiting;
        (configured || status.running + status.claimed + pending > 0).then_some(status)
    }

    /// All sessions that have not ended, by worker name, then session.
    pub fn workers(&self) -> Vec<WorkerStatus> {
        let mut workers: Vec<_> = self.sessions.iter().map(|(_, session)| worker_status(session)).collect();
        workers.sort_by(|a, b| (&a.worker, a.session).cmp(&(&b.worker, b.session)));
        workers
    }

    /// What is over and has not been ended yet.
    pub fn over(&self) -> Over {
        let is_over = |at: Time| at <= self.now;
        let sessions = self.session_ends.iter().take_while(|((at, _), _)| is_over(*at)).take(caps::PAGE);
        let sessions = sessions.map(|(_, &ix)| {
            let session = &self.sessions[ix];
            let needs = session.running.values().flat_map(|&job| self.needs(self.jobs[job].lane));
            let limited = needs.filter(|&(group, _)| self.groups[group].limit.is_some());
            let slots = limited.map(|(_, need)| u64::from(need)).sum();
            SessionOver { worker: worker_status(session), slots }
        });
        let of_live = |job: Ix<Job>| {
            let session = self.jobs[job].run().map(|run| &self.sessions[run.session].row);
            session.is_some_and(|session| !is_over(session.lease_until))
        };
        let jobs = self.timeouts.iter().take_while(|((at, _), _)| is_over(*at)).map(|(_, &job)| job);
        let jobs = jobs.filter(|&job| of_live(job)).take(caps::PAGE).map(Held::Job);
        let programs = self.program_ends.iter().take_while(|((at, _), _)| is_over(*at)).take(caps::PAGE);
        let programs = programs.map(|(_, &program)| Held::Program(program));
        let leases = jobs.chain(programs).filter_map(|held| {
            let narrowest = match held {
                Held::Job(job) => self.needs(self.jobs[job].lane).first().map(|need| need.0),
                Held::Program(program) => self.programs[program].needs.first().map(|need| need.0),
            };
            let group = self.group_ref(&self.groups[narrowest?].label);
            Some(LeaseOver { holder: self.holder(&group, held), group })
        });
        Over { sessions: sessions.collect(), leases: leases.collect() }
    }

    /// Workflows that are remembered, by name.
    pub fn workflows(&self, after: Option<&Name>, limit: usize) -> Result<WorkflowPage> {
        crate::job::within("limit", limit as u64, 1, caps::PAGE as u64)?;
        let from = after.map_or(Bound::Unbounded, Bound::Excluded);
        let mut found = self.workflow_by_name.range::<Name, _>((from, Bound::Unbounded));
        let found = found.by_ref().filter(|&(_, &ix)| !self.workflows[ix].steps.is_empty());
        let mut workflows: Vec<_> =
            found.take(limit + 1).map(|(_, &ix)| self.workflow_status(&self.workflows[ix])).collect();
        let more = workflows.len() > limit;
        workflows.truncate(limit);
        let next = workflows.last().filter(|_| more).map(|last| last.workflow.clone());
        Ok(WorkflowPage { workflows, next })
    }

    /// One workflow.
    pub fn workflow(&self, workflow: &Name) -> Result<WorkflowStatus> {
        let ix = self.find_workflow(workflow);
        let ix = ix.ok_or_else(|| Error::not_found(format!("workflow {workflow}")))?;
        Ok(self.workflow_status(&self.workflows[ix]))
    }

    fn workflow_status(&self, workflow: &Workflow) -> WorkflowStatus {
        let state = match workflow.head() {
            _ if workflow.row.cancelled => WorkflowState::Cancelled,
            Some((_, At::Past(_))) => WorkflowState::Halted,
            Some((_, At::Live(_))) => WorkflowState::Active,
            None => WorkflowState::Finished,
        };
        WorkflowStatus {
            workflow: workflow.name.clone(),
            state,
            on_failure: workflow.row.on_failure,
            steps: workflow.row.accepted,
            live: workflow.live,
            head: workflow.head().map(|(step, at)| self.step_status(step, at)),
        }
    }

    pub(crate) fn step_status(&self, step: u32, at: At) -> StepStatus {
        StepStatus { step, job: self.record(at).id, state: self.shown_state(at) }
    }

    /// All schedules, by name.
    pub fn schedules(&self) -> Vec<ScheduleStatus> {
        let status = |(schedule, row): (&Name, &ScheduleRow)| ScheduleStatus {
            schedule: schedule.clone(),
            spec: row.spec.clone(),
            enabled: row.enabled,
            next: row.next,
            last: row.last.clone(),
            last_job: row.last_job,
        };
        self.schedules.iter().map(status).collect()
    }
}

/// Since when the oldest of the jobs in a lane has been due. They stand by priority, then by date, so it is the first of
/// one of the priorities.
fn oldest_of(jobs: &Ordered<Rank, Ix<Job>>) -> Option<Time> {
    let (mut oldest, mut next) = (None, jobs.first());
    while let Some((rank, _)) = next {
        oldest = Some(oldest.map_or(rank.run_at, |oldest: Time| oldest.min(rank.run_at)));
        next = jobs.first_after(Some(Rank { priority: rank.priority, ..Rank::LAST }));
    }
    oldest
}

fn worker_status(session: &Session) -> WorkerStatus {
    let row = &session.row;
    WorkerStatus {
        worker: row.new.worker.clone(),
        session: row.new.id,
        queues: row.new.queues.clone(),
        tasks: row.new.tasks.clone(),
        owner: row.new.owner,
        permits: row.new.permits,
        free_permits: row.free_permits,
        memory_percent: row.memory_percent,
        saturated: row.is_saturated(),
        draining: row.draining,
        opened_at: row.opened_at,
        lease_until: row.lease_until,
        running: session.running.len() as u64,
        claimed: session.claimed.len() as u64,
    }
}
