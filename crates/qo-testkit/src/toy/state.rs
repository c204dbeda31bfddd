//! What the toy keeps: a list of jobs, a list of sessions, and the settings of limits and queues. Nothing is cached:
//! every count is taken from the jobs, each time.

use super::Flaw;
use super::{slot::Program, workflow::Workflow};
use qo_core::{
    Attempt, AuditEntry, Configuration, ExchangeReply, FenceToken, GroupRef, JobId, JobProgress, JobState,
    Json, LimitSource, Limits, Name,
};
use qo_core::{
    NewJob, NewSession, Push, Retention, ScheduleStatus, SessionId, Stop, TaskOptions, Time, Token, caps,
    limit,
};
use std::collections::{BTreeMap, BTreeSet};

/// The whole namespace.
#[derive(Clone, Default)]
pub(super) struct Toy {
    pub flaw: Flaw,
    pub now: Time,
    /// In the order of their acceptance.
    pub jobs: Vec<Job>,
    pub sessions: Vec<Session>,
    /// When each ended.
    pub ended_sessions: BTreeMap<SessionId, Time>,
    pub limits: BTreeMap<GroupRef, Limits>,
    /// How often slots were taken and refused, of references that have a limit.
    pub totals: BTreeMap<GroupRef, (u64, u64)>,
    /// Of what apps registered, the values that count.
    pub tasks: BTreeMap<Name, TaskOptions>,
    /// What apps registered, the newest last.
    pub registrations: Vec<TaskOptions>,
    /// What the configuration of each app says, the newest push last.
    pub apps: Vec<Configuration>,
    /// Pushes that changed something, the newest last.
    pub pushes: Vec<Push>,
    pub queue_priorities: BTreeMap<Name, u32>,
    pub paused: BTreeSet<Name>,
    pub workflows: BTreeMap<Name, Workflow>,
    pub programs: Vec<Program>,
    /// Programs whose lease is over; only `ExtendRevives` reads it.
    pub ended_programs: Vec<Program>,
    pub schedules: BTreeMap<Name, ScheduleStatus>,
    pub retention: Retention,
    pub last_acceptance: u64,
    pub last_token: u64,
    /// Also those that have expired, until the next one is created.
    pub tokens: Vec<Token>,
    /// The oldest first.
    pub audit_log: Vec<AuditEntry>,
    /// Logs of attempts, by token.
    pub logs: BTreeMap<FenceToken, String>,
    /// Slots that flaws leaked or freed twice; empty in a correct toy.
    pub wrong: BTreeMap<GroupRef, i64>,
    /// The last token when the newest session opened; only `RestartForgetsHolders` reads it.
    pub token_at_last_open: u64,
}

/// A job and all that happened to it.
#[derive(Clone)]
pub(super) struct Job {
    /// As submitted, with its group filled in.
    pub new: NewJob,
    pub group: Name,
    pub acceptance: u64,
    pub submitted_at: Time,
    pub run_at: Time,
    pub state: JobState,
    pub attempts_used: u32,
    pub cancel_requested: bool,
    pub holding: Option<Holding>,
    pub ahead: Option<Ahead>,
    /// Its number in its workflow.
    pub step: Option<u32>,
    pub skipped: bool,
    pub finished_at: Option<Time>,
    pub output: Option<Json>,
    pub attempts: Vec<Attempt>,
    /// Its progress in the attempt before; only `ProgressOutlivesAttempt` keeps it.
    pub last_progress: Option<JobProgress>,
    /// The full group that it met; only `RaiseWakesNoJob` reads it.
    pub met_full: Option<GroupRef>,
    /// The limits of its groups when it was accepted; only `LimitForNewJobsOnly` reads it.
    pub limits_at_submit: BTreeMap<GroupRef, Option<u32>>,
}

/// The claim that a running job is under.
#[derive(Clone)]
pub(super) struct Holding {
    pub session: SessionId,
    pub worker: Name,
    pub token: FenceToken,
    pub since: Time,
    pub timeout_ms: Option<u64>,
    /// Its progress.
    pub progress: Option<JobProgress>,
}

/// The claim on a job that has not started.
#[derive(Clone)]
pub(super) struct Ahead {
    pub session: SessionId,
    pub worker: Name,
    pub token: FenceToken,
    pub since: Time,
    pub until: Time,
}

/// Which slots count as taken when room is checked.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Counted {
    /// Those of running jobs and of programs.
    Running,
    /// And those that claimed jobs will need.
    Claimed,
}

/// A place in line: lower goes first.
pub(super) type Place = (u32, i32, Time, u64);

/// The place of a program: behind every job.
pub(super) const LAST_IN_LINE: Place = (u32::MAX, i32::MAX, Time::from_millis(i64::MAX), u64::MAX);

/// A session that has not ended.
#[derive(Clone)]
pub(super) struct Session {
    pub new: NewSession,
    pub opened_at: Time,
    pub lease_until: Time,
    pub free_permits: u32,
    pub memory_percent: Option<u8>,
    pub draining: bool,
    /// The last exchange's number; 0 before the first.
    pub number: u64,
    pub reply: Option<ExchangeReply>,
    /// What its next exchange will tell it to stop.
    pub stops: BTreeMap<FenceToken, Stop>,
    /// The pauses as of its last exchange; only `PauseSeenLate` reads it.
    pub pauses_seen: BTreeSet<Name>,
}

impl Job {
    pub fn is_live(&self) -> bool {
        !self.state.is_terminal()
    }

    pub fn is_running(&self) -> bool {
        self.state == JobState::Running
    }

    pub fn is_due(&self, now: Time) -> bool {
        self.state == JobState::Pending && self.run_at <= now
    }

    /// The slots that it takes, in the order in which its groups are checked.
    pub fn needs(&self) -> Vec<(GroupRef, u32)> {
        needs(&self.new, &self.group)
    }

    /// The slots that it takes in one group.
    pub fn need(&self, group: &GroupRef) -> u32 {
        match group {
            GroupRef::Cluster => 1,
            GroupRef::Queue(queue) => u32::from(*queue == self.new.queue),
            GroupRef::Group(name) if *name == self.group => self.new.cost,
            GroupRef::Key(name, key) if *name == self.group && Some(key) == self.new.key.as_ref() => {
                self.new.cost
            }
            extra => self.new.limits.get(extra).copied().unwrap_or(0),
        }
    }
}

/// The slots that a job takes: key, group, extra limits by name and key, queue, cluster.
pub(super) fn needs(job: &NewJob, group: &Name) -> Vec<(GroupRef, u32)> {
    let mut needs = Vec::new();
    if let Some(key) = &job.key {
        needs.push((GroupRef::Key(group.clone(), key.clone()), job.cost));
    }
    needs.push((GroupRef::Group(group.clone()), job.cost));
    needs.extend(job.limits.iter().map(|(group, &slots)| (group.clone(), slots)));
    needs.push((GroupRef::Queue(job.queue.clone()), 1));
    needs.push((GroupRef::Cluster, 1));
    needs
}

impl Holding {
    /// When its timeout ends the lease, if it has one.
    pub fn timeout_at(&self) -> Option<Time> {
        self.timeout_ms.map(|ms| self.since.plus_ms(ms).plus_ms(caps::TIMEOUT_GRACE_MS))
    }
}

impl Session {
    pub fn serves_queue(&self, job: &Job) -> bool {
        self.new.queues.is_empty() || self.new.queues.contains(&job.new.queue)
    }

    pub fn serves(&self, job: &Job) -> bool {
        self.serves_queue(job) && self.new.tasks.contains(&job.new.task)
    }

    pub fn is_saturated(&self) -> bool {
        u64::from(self.free_permits) * 10 < u64::from(self.new.permits)
    }
}

impl Toy {
    pub fn find(&self, job: JobId) -> Option<&Job> {
        self.jobs.iter().find(|j| j.new.id == job)
    }

    pub fn session(&self, session: SessionId) -> Option<&Session> {
        self.sessions.iter().find(|s| s.new.id == session)
    }

    pub fn session_mut(&mut self, session: SessionId) -> Option<&mut Session> {
        self.sessions.iter_mut().find(|s| s.new.id == session)
    }

    /// The limit in force of a group, and its source.
    pub fn limit_in_force(&self, group: &GroupRef) -> Option<(u32, LimitSource)> {
        let exact = self.limits.get(group);
        if self.flaw == Flaw::SubmitLimitWins
            && let Some(limit) = exact.and_then(|limits| limits.submit)
        {
            return Some((limit, LimitSource::Submit));
        }
        let every_key = match group {
            GroupRef::Key(group, _) => self.limits.get(&GroupRef::EveryKey(group.clone())),
            _ => None,
        };
        limit::in_force(exact, every_key)
    }

    pub fn limit(&self, group: &GroupRef) -> Option<u32> {
        self.limit_in_force(group).map(|(limit, _)| limit)
    }

    /// Slots of a group that running jobs and programs take.
    pub fn used(&self, group: &GroupRef) -> u64 {
        self.sum(group, Job::is_running) + self.used_by_programs(group)
    }

    pub fn used_by_programs(&self, group: &GroupRef) -> u64 {
        self.programs.iter().map(|program| u64::from(program.need(group))).sum()
    }

    /// Slots of a group that claimed jobs will need, if they count.
    pub fn claimed(&self, group: &GroupRef, counted: Counted) -> u64 {
        match counted {
            Counted::Running => 0,
            Counted::Claimed if self.flaw == Flaw::PrefetchByCount => 0,
            Counted::Claimed => self.sum(group, |job| job.state == JobState::Claimed),
        }
    }

    /// Slots of a group that all live jobs would take at once, and those of programs.
    pub fn live(&self, group: &GroupRef) -> u64 {
        self.sum(group, Job::is_live) + self.used_by_programs(group)
    }

    /// Whether a group has so many free slots.
    pub fn has_room(&self, group: &GroupRef, slots: u32, counted: Counted) -> bool {
        let used = || self.used(group) + self.claimed(group, counted);
        self.limit(group).is_none_or(|limit| used() + u64::from(slots) <= u64::from(limit))
    }

    pub fn sum(&self, group: &GroupRef, counts: impl Fn(&Job) -> bool) -> u64 {
        self.jobs.iter().filter(|job| counts(job)).map(|job| u64::from(job.need(group))).sum()
    }

    /// A job's place in line: lower goes first.
    pub fn claim_order(&self, job: &Job) -> Place {
        let default = qo_core::DEFAULT_QUEUE_PRIORITY;
        let queue = self.queue_priorities.get(&job.new.queue).copied().unwrap_or(default);
        let priority = if self.flaw == Flaw::PriorityReversed { -job.new.priority } else { job.new.priority };
        (queue, priority, job.run_at, job.acceptance)
    }

    /// Whether a job is pending and due and, for a step, next in its workflow.
    pub fn is_in_line(&self, job: &Job) -> bool {
        job.is_due(self.now) && self.is_next(job)
    }

    pub fn next_token(&mut self) -> FenceToken {
        self.last_token += 1;
        FenceToken(self.last_token)
    }

    /// The jobs in line, in claim order.
    pub fn line(&self) -> Vec<&Job> {
        let mut line: Vec<&Job> = self.jobs.iter().filter(|job| self.is_in_line(job)).collect();
        line.sort_by_key(|job| self.claim_order(job));
        line
    }
}
