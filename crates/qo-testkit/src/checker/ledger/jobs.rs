//! Jobs of the books: accepted, granted, ended.

use super::{Fact, GroupIndex, Ledger, Tell};
use qo_core::{
    AttemptOutcome, ClaimedJob, DEFAULT_QUEUE_PRIORITY, FenceToken, GroupRef, JobState, Name, NewJob,
};
use qo_core::{SessionId, Time, caps};

/// A job that was accepted.
#[derive(Debug)]
pub struct Job {
    /// As it was submitted.
    pub new: NewJob,
    /// Its group, given or of its task.
    pub group: Name,
    /// What it takes, group by group.
    pub needs: Vec<(GroupIndex, u32)>,
    /// Where it stands.
    pub state: JobState,
    /// Not before this time.
    pub run_at: Time,
    /// Attempts used.
    pub attempts_used: u32,
    /// Somebody called it off while it ran.
    pub cancel_requested: bool,
    /// The claim that owns it.
    pub holding: Option<Holding>,
    /// Claims that it had settled, by whom, and where that left it.
    pub settled: Vec<(FenceToken, SessionId, JobState)>,
    /// Its newest claim.
    pub newest: Option<FenceToken>,
}

/// A claim that owns a job.
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

impl Job {
    /// Where the end of an attempt leaves the job: the table of `docs/rules.md`.
    pub fn state_after(&self, outcome: AttemptOutcome, now: Time) -> JobState {
        let last = self.attempts_used + 1 >= self.new.max_attempts;
        let expired = self.new.good_until.is_some_and(|until| until <= now);
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

    /// Whether a pending job has come to its time in a queue that gives jobs.
    pub fn is_due(&self, index: usize) -> bool {
        let job = &self.jobs[index];
        job.run_at <= self.now && !self.paused.contains(&job.new.queue)
    }

    /// Whether every group of the job has room for it.
    pub fn has_room(&self, index: usize) -> bool {
        self.had_room(index, &[])
    }

    /// Whether every group of the job had room for it before the grants of the jobs `since`.
    pub fn had_room(&self, index: usize, since: &[usize]) -> bool {
        let room = |&(group, need): &(GroupIndex, u32)| {
            self.free_before(group, since).is_none_or(|free| u64::from(need) <= free)
        };
        self.jobs[index].needs.iter().all(room)
    }

    /// Whether a big job ahead keeps one of the job's groups for itself now (`docs/rules.md`, "Reserved").
    pub fn is_reserved(&self, index: usize) -> bool {
        let needs = &self.jobs[index].needs;
        needs.iter().any(|&(group, need)| self.big_job_ahead(index, group, need, &[]).is_some())
    }

    /// What the first big job ahead wanted of a group, before the grants of the jobs `since`, and would not have
    /// got if this one had taken its slots there.
    pub fn big_job_ahead(&self, index: usize, group: GroupIndex, need: u32, since: &[usize]) -> Option<u32> {
        let (limit, free) = (self.groups.limit(group)?, self.free_before(group, since)?);
        let order = self.order(index);
        let wants = |other: usize| {
            let wanted = self.jobs[other].needs.iter().find(|(at, _)| *at == group).map(|&(_, wants)| wants);
            wanted.filter(|&wants| (2..=limit).contains(&wants) && free < u64::from(need) + u64::from(wants))
        };
        let reserves = |other: usize| {
            other != index
                && self.is_due(other)
                && self.order(other) < order
                && self.kept_slots(other, group, since)
        };
        let big = self.pending.iter().filter_map(|&other| Some((wants(other)?, other)));
        let first = big.filter(|&(_, other)| reserves(other)).min_by_key(|&(_, other)| self.order(other));
        first.map(|(wants, _)| wants)
    }

    /// Whether a big job keeps slots of a group: it lacked room nowhere else (for a slot of its key it may in its
    /// group), and somebody serves it.
    fn kept_slots(&self, index: usize, group: GroupIndex, since: &[usize]) -> bool {
        let job = &self.jobs[index];
        let of_key = matches!(self.groups.name(group), GroupRef::Key(name, _) if *name == job.group);
        let spared = |at: GroupIndex| {
            at == group
                || of_key && matches!(self.groups.name(at), GroupRef::Group(name) if *name == job.group)
        };
        let had_room = |&(at, need): &(GroupIndex, u32)| {
            self.free_before(at, since).is_none_or(|free| u64::from(need) <= free)
        };
        let served = self.sessions.values().any(|session| !session.draining && session.serves(&job.new));
        served && job.needs.iter().filter(|(at, _)| !spared(*at)).all(had_room)
    }

    /// Free slots of a group before the grants of the jobs `since`; none if it is unlimited.
    pub fn free_before(&self, group: GroupIndex, since: &[usize]) -> Option<u64> {
        let limit = u64::from(self.groups.limit(group)?);
        let taken =
            |job: &usize| self.jobs[*job].needs.iter().find(|(g, _)| *g == group).map_or(0, |(_, n)| *n);
        let taken_since: u64 = since.iter().map(|job| u64::from(taken(job))).sum();
        Some(limit.saturating_sub(self.groups.used(group) - taken_since))
    }

    /// The group that a job has if it is accepted now: given, else registered, else the task's name.
    pub fn group_of(&self, new: &NewJob) -> Name {
        let registered = || self.tasks.get(&new.task).map(|task| task.group().clone());
        new.group.clone().or_else(registered).unwrap_or_else(|| new.task.clone())
    }

    pub(super) fn accept(&mut self, new: &NewJob) {
        let group = self.group_of(new);
        let own = GroupRef::Group(group.clone());
        let keyed = new.key.as_ref().map(|key| GroupRef::Key(group.clone(), key.clone()));
        let mut needs =
            vec![(GroupRef::Cluster, 1), (GroupRef::Queue(new.queue.clone()), 1), (own.clone(), new.cost)];
        needs.extend(keyed.clone().map(|keyed| (keyed, new.cost)));
        needs.extend(new.limits.iter().map(|(group, &slots)| (group.clone(), slots)));
        let needs: Vec<_> = needs.iter().map(|(group, need)| (self.groups.index(group), *need)).collect();
        self.groups.enter(&needs);
        if let Some(limit) = new.limit {
            let limited = self.groups.index(&keyed.unwrap_or(own));
            self.groups.set_submitted(limited, limit);
        }
        let index = self.jobs.len();
        self.by_id.insert(new.id, index);
        if let Some(key) = &new.idempotency_key {
            self.by_idempotency_key.insert(key.clone(), index);
        }
        self.pending.insert(index);
        self.jobs.push(Job {
            group,
            needs,
            state: JobState::Pending,
            run_at: new.run_at.unwrap_or(self.now),
            attempts_used: 0,
            cancel_requested: false,
            holding: None,
            settled: Vec::new(),
            newest: None,
            new: new.clone(),
        });
    }

    pub(super) fn grant(&mut self, index: usize, session: SessionId, claimed: &ClaimedJob) {
        let job = &mut self.jobs[index];
        if let Some(overlapped) = job.holding.take() {
            // The owner's checker has objected; the books follow the newer claim.
            self.running.remove(&overlapped.token);
            self.groups.free_up(&job.needs);
        } else if job.state.is_terminal() {
            self.groups.enter(&job.needs);
        }
        let over = |timeout_ms: u64| self.now.plus_ms(timeout_ms).plus_ms(caps::TIMEOUT_GRACE_MS);
        let timeout_at = claimed.timeout_ms.map(over);
        job.holding = Some(Holding { token: claimed.token, session, since: self.now, timeout_at });
        job.state = JobState::Running;
        job.newest = job.newest.max(Some(claimed.token));
        self.groups.take(&job.needs);
        self.pending.remove(&index);
        self.running.insert(claimed.token, index);
    }

    pub(super) fn end_attempt(
        &mut self,
        index: usize,
        token: FenceToken,
        outcome: AttemptOutcome,
        then: JobState,
    ) {
        let job = &mut self.jobs[index];
        job.holding = None;
        job.state = then;
        job.attempts_used += u32::from(outcome.uses_attempt());
        self.running.remove(&token);
        self.groups.free_up(&job.needs);
        if then.is_terminal() {
            self.groups.leave(&job.needs);
        } else {
            self.pending.insert(index);
        }
    }

    pub(super) fn drop_pending(&mut self, index: usize, state: JobState, tell: &mut Tell<'_>) {
        tell(self, &Fact::Dropped(index, state));
        self.jobs[index].state = state;
        self.pending.remove(&index);
        self.groups.leave(&self.jobs[index].needs);
    }
}
