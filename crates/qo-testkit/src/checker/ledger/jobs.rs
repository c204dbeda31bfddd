//! Jobs in the ledger: accepted, granted, ended.

use super::claims::Claimed;
use super::{Fact, GroupIndex, Ledger, Tell};
use qo_core::{
    AttemptOutcome, DEFAULT_QUEUE_PRIORITY, FenceToken, GroupRef, JobProgress, JobState, Key, Name, NewJob,
};
use qo_core::{Progress, SessionId, Time, caps};

/// A job that was accepted.
#[derive(Debug, Clone)]
pub struct Job {
    /// As it was submitted.
    pub new: NewJob,
    /// Its group, given or of its task.
    pub group: Name,
    /// What it takes, group by group.
    pub needs: Vec<(GroupIndex, u32)>,
    /// Where it stands.
    pub state: JobState,
    /// When it was accepted.
    pub submitted_at: Time,
    /// Not before this time.
    pub run_at: Time,
    /// It expires if it has not started by then.
    pub good_until: Option<Time>,
    /// Attempts used.
    pub attempts_used: u32,
    /// It was cancelled while it ran.
    pub cancel_requested: bool,
    /// The grant that owns it while it runs.
    pub holding: Option<Holding>,
    /// The progress that its owner last reported.
    pub progress: Option<JobProgress>,
    /// The claim on it while it has not started.
    pub claimed: Option<Claimed>,
    /// Its grants that ended by a settle, of which session, and the state that followed.
    pub settled: Vec<(FenceToken, SessionId, JobState)>,
    /// Its newest fence token.
    pub newest: Option<FenceToken>,
    /// Its number in its workflow.
    pub step: Option<u32>,
    /// An operator skipped it in its workflow.
    pub skipped: bool,
    /// When it ended.
    pub finished_at: Option<Time>,
    /// An operator reopened it, once or more.
    pub reopened: bool,
    /// An attempt of it has ended.
    pub was_tried: bool,
    /// The schedule that it is a job of, and whether its jobs may overlap.
    pub schedule: Option<(Name, bool)>,
}

/// The grant that owns a running job.
#[derive(Debug, Clone, Copy)]
pub struct Holding {
    /// Its token.
    pub token: FenceToken,
    /// The session that owns the job.
    pub session: SessionId,
    /// When it was granted.
    pub since: Time,
    /// When the store ends it, even if the session renews.
    pub timeout_at: Option<Time>,
}

/// Which slots count as taken.
#[derive(Debug, Clone, Copy)]
pub struct Counted<'a> {
    /// As it was before these jobs were taken.
    pub before: &'a [usize],
    /// Claimed jobs count as if they ran.
    pub claims: bool,
}

impl Counted<'_> {
    /// What runs now.
    pub const NOW: Self = Counted { before: &[], claims: false };
}

impl Job {
    /// Whether `good_until` is over.
    pub fn is_spoiled(&self, now: Time) -> bool {
        self.good_until.is_some_and(|until| until <= now)
    }

    /// Where the end of an attempt leaves the job: the table of `docs/rules.md`.
    pub fn state_after(&self, outcome: AttemptOutcome, now: Time) -> JobState {
        let last = self.attempts_used + 1 >= self.new.max_attempts;
        let expired = self.is_spoiled(now);
        match outcome {
            AttemptOutcome::Succeeded => JobState::Succeeded,
            AttemptOutcome::Cancelled => JobState::Cancelled,
            _ if self.cancel_requested => JobState::Cancelled,
            AttemptOutcome::Failed => JobState::Failed,
            _ if outcome.uses_attempt() && last => JobState::Failed,
            _ if expired => JobState::Expired,
            _ => JobState::Pending,
        }
    }
}

/// Where a job stands in line: queue priority, job priority, `run_at`, acceptance.
pub type Order = (u32, i32, Time, usize);

impl Ledger {
    /// Where a job stands in line.
    pub fn order(&self, index: usize) -> Order {
        let job = &self.jobs[index];
        let queue = self.priorities.get(&job.new.queue).copied().unwrap_or(DEFAULT_QUEUE_PRIORITY);
        (queue, job.new.priority, job.run_at, index)
    }

    /// Whether a pending job is due and, for a step, next in its workflow.
    pub fn is_in_line(&self, index: usize) -> bool {
        self.jobs[index].run_at <= self.now && self.is_next(index)
    }

    /// Whether a pending job is in line and its queue is not paused.
    pub fn is_claimable(&self, index: usize) -> bool {
        !self.paused.contains(&self.jobs[index].new.queue) && self.is_in_line(index)
    }

    /// Whether every group of the job had room for it.
    pub fn had_room(&self, index: usize, counted: Counted<'_>) -> bool {
        let room = |&(group, need): &(GroupIndex, u32)| {
            self.free_slots_of(group, counted).is_none_or(|free| u64::from(need) <= free)
        };
        self.jobs[index].needs.iter().all(room)
    }

    /// Whether a big job ahead keeps one of the job's groups for itself now (`docs/rules.md`, "Reserved").
    pub fn is_reserved(&self, index: usize) -> bool {
        let order = Some(self.order(index));
        let held_back = |&(group, need): &(GroupIndex, u32)| {
            self.big_job_ahead(order, group, need, Counted::NOW).is_some()
        };
        self.jobs[index].needs.iter().any(held_back)
    }

    /// How many slots of `group` the first big job before `order` needs, of those big jobs for which too few would be
    /// left if `need` slots were taken. `order` is None for a request behind all jobs.
    pub fn big_job_ahead(
        &self,
        order: Option<Order>,
        group: GroupIndex,
        need: u32,
        counted: Counted<'_>,
    ) -> Option<u32> {
        let (limit, free) = (self.groups.limit(group)?, self.free_slots_of(group, counted)?);
        let wants = |other: usize| {
            let wanted = self.jobs[other].needs.iter().find(|(at, _)| *at == group).map(|&(_, wants)| wants);
            wanted.filter(|&wants| (2..=limit).contains(&wants) && free < u64::from(need) + u64::from(wants))
        };
        let reserves = |other: usize| {
            order.is_none_or(|order| self.order(other) < order)
                && self.is_claimable(other)
                && self.keeps_slots(other, group, counted)
        };
        let big = self.pending.iter().filter_map(|&other| Some((wants(other)?, other)));
        let first = big.filter(|&(_, other)| reserves(other)).min_by_key(|&(_, other)| self.order(other));
        first.map(|(wants, _)| wants)
    }

    /// Whether a big job reserves slots of a group: a worker serves it, and it has room in all its other groups. If the
    /// group is its key, it may lack room in GROUP too.
    fn keeps_slots(&self, index: usize, group: GroupIndex, counted: Counted<'_>) -> bool {
        let job = &self.jobs[index];
        let of_key = matches!(self.groups.name(group), GroupRef::Key(name, _) if *name == job.group);
        let spared = |at: GroupIndex| {
            at == group
                || of_key && matches!(self.groups.name(at), GroupRef::Group(name) if *name == job.group)
        };
        let has_room = |&(at, need): &(GroupIndex, u32)| {
            self.free_slots_of(at, counted).is_none_or(|free| u64::from(need) <= free)
        };
        let served = self.sessions.values().any(|session| !session.draining && session.serves(&job.new));
        served && job.needs.iter().filter(|(at, _)| !spared(*at)).all(has_room)
    }

    /// Free slots of a group; none if it is unlimited.
    pub fn free_slots_of(&self, group: GroupIndex, counted: Counted<'_>) -> Option<u64> {
        let limit = u64::from(self.groups.limit(group)?);
        let need =
            |job: &usize| self.jobs[*job].needs.iter().find(|(g, _)| *g == group).map_or(0, |(_, n)| *n);
        let taken_since: u64 = counted.before.iter().map(|job| u64::from(need(job))).sum();
        let claimed = if counted.claims { self.groups.claimed(group) } else { 0 };
        Some(limit.saturating_sub(self.groups.used(group) + claimed - taken_since))
    }

    /// The group that a job has if it is accepted now: given, else registered, else the task's name.
    pub fn group_of(&self, new: &NewJob) -> Name {
        let registered = || self.tasks.get(&new.task).map(|task| task.group().clone());
        new.group.clone().or_else(registered).unwrap_or_else(|| new.task.clone())
    }

    /// The earlier job that this submit repeats: by idempotency key, then by id.
    pub fn find_like(&self, new: &NewJob) -> Option<usize> {
        let by_key = |key: &Key| self.by_idempotency_key.get(key).copied();
        new.idempotency_key.as_ref().and_then(by_key).or_else(|| self.find(new.id))
    }

    /// Live slots, the job's need and the limit of the first limited group: key, group, extras, queue, cluster.
    pub fn first_limited(&self, job: &NewJob) -> Option<(u64, u64, u64)> {
        let group = self.group_of(job);
        let own = GroupRef::Group(group.clone());
        let keyed = job.key.clone().map(|key| GroupRef::Key(group, key));
        let limited_by_job = keyed.clone().unwrap_or_else(|| own.clone());
        let mut line: Vec<(GroupRef, u32)> = keyed.into_iter().map(|keyed| (keyed, job.cost)).collect();
        line.push((own, job.cost));
        line.extend(job.limits.iter().map(|(group, &slots)| (group.clone(), slots)));
        line.extend([(GroupRef::Queue(job.queue.clone()), 1), (GroupRef::Cluster, 1)]);
        line.into_iter().find_map(|(group, need)| {
            let brings = group == limited_by_job && (job.clear_limit || job.limit.is_some());
            let limit = self.groups.limit_with(&group, brings.then_some(job.limit))?;
            let live = self.groups.find(&group).map_or(0, |index| self.groups.live(index));
            Some((live, need.into(), limit.into()))
        })
    }

    pub(super) fn accept(&mut self, new: &NewJob, schedule: Option<(Name, bool)>) {
        let group = self.group_of(new);
        let own = GroupRef::Group(group.clone());
        let keyed = new.key.as_ref().map(|key| GroupRef::Key(group.clone(), key.clone()));
        let mut needs =
            vec![(GroupRef::Cluster, 1), (GroupRef::Queue(new.queue.clone()), 1), (own, new.cost)];
        needs.extend(keyed.map(|keyed| (keyed, new.cost)));
        needs.extend(new.limits.iter().map(|(group, &slots)| (group.clone(), slots)));
        let needs: Vec<_> = needs.iter().map(|(group, need)| (self.groups.index(group), *need)).collect();
        self.groups.enter(&needs);
        let index = self.jobs.len();
        self.by_id.insert(new.id, index);
        if let Some(key) = &new.idempotency_key {
            self.by_idempotency_key.insert(key.clone(), index);
        }
        let step = self.add_step(new, index);
        self.pending.insert(index);
        self.jobs.push(Job {
            group,
            needs,
            state: JobState::Pending,
            submitted_at: self.now,
            run_at: new.run_at.unwrap_or(self.now),
            good_until: new.good_until,
            attempts_used: 0,
            cancel_requested: false,
            holding: None,
            progress: None,
            claimed: None,
            settled: Vec::new(),
            newest: None,
            step,
            skipped: false,
            finished_at: None,
            reopened: false,
            was_tried: false,
            schedule,
            new: new.clone(),
        });
        if new.clear_limit {
            self.set_submitted(index, None);
        }
        self.bring_limit(index);
    }

    /// A job's own limit becomes the submit-side one of its key, or of its group.
    pub(super) fn bring_limit(&mut self, index: usize) {
        if let Some(limit) = self.jobs[index].new.limit {
            self.set_submitted(index, Some(limit));
        }
    }

    fn set_submitted(&mut self, index: usize, limit: Option<u32>) {
        let Job { new, group, .. } = &self.jobs[index];
        let limited = self.groups.index(&GroupRef::narrowest(group, new.key.as_ref()));
        self.groups.set_submitted(limited, limit);
    }

    pub(super) fn grant(
        &mut self,
        index: usize,
        session: SessionId,
        token: FenceToken,
        timeout_ms: Option<u64>,
    ) {
        self.take_over(index);
        let over = |timeout_ms: u64| self.now.plus_ms(timeout_ms).plus_ms(caps::TIMEOUT_GRACE_MS);
        let timeout_at = timeout_ms.map(over);
        let job = &mut self.jobs[index];
        job.holding = Some(Holding { token, session, since: self.now, timeout_at });
        job.progress = None;
        job.state = JobState::Running;
        job.newest = job.newest.max(Some(token));
        self.groups.take(&job.needs);
        self.running.insert(token, index);
    }

    /// A session gets a job. If another session had it, or it had ended, a checker has objected, and the ledger follows
    /// the store.
    pub(super) fn take_over(&mut self, index: usize) {
        self.end_claim(index);
        self.pending.remove(&index);
        let job = &mut self.jobs[index];
        if let Some(overlapped) = job.holding.take() {
            self.running.remove(&overlapped.token);
            self.groups.free_up(&job.needs);
        } else if job.state.is_terminal() {
            self.finished.remove(&index);
            self.groups.enter(&job.needs);
        }
    }

    /// A session reports progress: of a job that it owns, the newest report counts.
    pub(super) fn report(&mut self, session: SessionId, reports: &[Progress]) {
        for (&token, &index) in &self.running {
            let job = &mut self.jobs[index];
            let owner = job.holding.is_some_and(|holding| holding.session == session);
            let about = |report: &&Progress| owner && (report.token, report.job) == (token, job.new.id);
            let Some(Progress { percent, note, .. }) = reports.iter().rfind(about) else { continue };
            let known = job.progress.as_ref();
            if known.is_none_or(|known| (known.percent, &known.note) != (*percent, note)) {
                job.progress = Some(JobProgress { percent: *percent, note: note.clone(), at: self.now });
            }
        }
    }

    pub(super) fn end_attempt(
        &mut self,
        index: usize,
        token: FenceToken,
        outcome: AttemptOutcome,
        then: JobState,
    ) {
        let job = &mut self.jobs[index];
        (job.holding, job.progress, job.was_tried) = (None, None, true);
        job.attempts_used += u32::from(outcome.uses_attempt());
        self.running.remove(&token);
        self.groups.free_up(&job.needs);
        self.go_to(index, then);
    }

    pub(super) fn drop_pending(&mut self, index: usize, state: JobState, tell: &mut Tell<'_>) {
        tell(self, &Fact::Dropped(index, state));
        self.go_to(index, state);
    }

    /// A live job that neither runs nor is claimed any more is pending again, or has ended.
    pub(super) fn go_to(&mut self, index: usize, state: JobState) {
        let job = &mut self.jobs[index];
        job.state = state;
        if state.is_terminal() {
            job.finished_at = Some(self.now);
            self.pending.remove(&index);
            self.finished.insert(index);
            self.groups.leave(&job.needs);
        } else {
            self.pending.insert(index);
        }
    }
}
