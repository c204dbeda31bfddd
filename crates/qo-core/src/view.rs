//! What clients and operators see: jobs, groups with their holders, queues, workers, workflows, schedules.

use crate::WorkflowState;
use crate::{
    Attempt, Error, FenceToken, GroupRef, IdPrefix, JobId, JobProgress, JobState, Json, Key, LeaseId,
    LimitSource, Limits, Name,
};
use crate::{OnFailure, Result, RetryPolicy, Schedule, SessionId, TickOutcome, Time, TokenId, Traceparent};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// One job, without its payload.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(not(feature = "testkit"), non_exhaustive)]
pub struct JobView {
    /// The job.
    pub id: JobId,
    /// Its state.
    pub state: JobState,
    /// Its queue.
    pub queue: Name,
    /// Its task.
    pub task: Name,
    /// Its group.
    pub group: Name,
    /// Its key.
    pub key: Option<Key>,
    /// Slots it takes in its group and key.
    pub cost: u32,
    /// Slots it takes in further groups.
    pub limits: BTreeMap<GroupRef, u32>,
    /// Lower runs first.
    pub priority: i32,
    /// When it was accepted.
    pub submitted_at: Time,
    /// It does not run before this time.
    pub run_at: Time,
    /// It expires if it has not started by then.
    pub good_until: Option<Time>,
    /// How long one attempt may run, as submitted. None leaves it to its task.
    #[serde(default)]
    pub timeout_ms: Option<u64>,
    /// Its backoff, as submitted. None leaves it to its task.
    #[serde(default)]
    pub retry: Option<RetryPolicy>,
    /// The limit that it brought for its group, or with a key for that key.
    #[serde(default)]
    pub limit: Option<u32>,
    /// The key under which a second submit is the same job.
    pub idempotency_key: Option<Key>,
    /// The trace that it belongs to.
    #[serde(default)]
    pub traceparent: Option<Traceparent>,
    /// Attempts used so far.
    pub attempts_used: u32,
    /// Attempts it may use.
    pub max_attempts: u32,
    /// A cancel was requested while it ran.
    pub cancel_requested: bool,
    /// The worker that runs it, if it runs.
    pub running: Option<Running>,
    /// The worker that has claimed it ahead of time, if it has not started.
    pub claimed: Option<Running>,
    /// The workflow that it is a step of.
    pub workflow: Option<Name>,
    /// Its number in the workflow, 1 for the first.
    pub step: Option<u32>,
    /// It ended without success, and was skipped in its workflow.
    pub skipped: bool,
    /// When it reached its terminal state.
    pub finished_at: Option<Time>,
    /// What is stored of it and cannot be read, and why. A stand-in is shown for that. None if all of it can be read.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub unreadable: Option<String>,
}

/// The worker that runs a job, or has claimed it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(not(feature = "testkit"), non_exhaustive)]
pub struct Running {
    /// The worker's name.
    pub worker: Name,
    /// The worker's session.
    pub session: SessionId,
    /// The token that owns the job.
    pub token: FenceToken,
    /// When it was claimed.
    pub since: Time,
    /// When its lease is over: the end of the session, or of its timeout or claim if that comes first.
    pub lease_until: Time,
    /// Its last progress report. None if it has not reported, or is only claimed.
    #[serde(default)]
    pub progress: Option<JobProgress>,
}

/// One job with all its details.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(not(feature = "testkit"), non_exhaustive)]
pub struct JobDetail {
    /// What a listing shows.
    #[serde(flatten)]
    pub view: JobView,
    /// What the handler gets.
    pub payload: Json,
    /// What the handler returned.
    pub output: Option<Json>,
    /// Its attempts, oldest first, at most [`ATTEMPTS_KEPT`](crate::caps::ATTEMPTS_KEPT).
    pub attempts: Vec<Attempt>,
}

/// Which jobs a listing shows: those that match every field that is set; and in which order.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct JobFilter {
    /// In one of these states. Defaults to any.
    pub states: Vec<JobState>,
    /// In this queue. Defaults to any.
    pub queue: Option<Name>,
    /// Of this task. Defaults to any.
    pub task: Option<Name>,
    /// Of this group. Defaults to any.
    pub group: Option<Name>,
    /// With this key. Defaults to any.
    pub key: Option<Key>,
    /// Of this workflow. Defaults to any.
    pub workflow: Option<Name>,
    /// Accepted at this time or later. Defaults to any.
    pub submitted_from: Option<Time>,
    /// Accepted before this time. Defaults to any.
    pub submitted_before: Option<Time>,
    /// With an id that begins like this. Defaults to any.
    pub id_prefix: Option<IdPrefix>,
    /// The newest first. Defaults to the oldest first. A bulk change goes by the order of acceptance and refuses it.
    pub newest_first: bool,
}

impl JobFilter {
    /// Checks it as the filter of a bulk change. A store calls it before anything else.
    pub fn check_change(&self) -> Result<()> {
        if self.newest_first {
            let rule = "must not be set: a bulk change goes by the order of acceptance";
            return Err(Error::invalid("filter.newest_first", true, rule));
        }
        Ok(())
    }
}

/// A place in a listing of jobs: where the next page begins, in either order.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Cursor(pub u64);

/// Some jobs, in the order of their acceptance, or the newest first.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(not(feature = "testkit"), non_exhaustive)]
pub struct JobPage {
    /// The jobs, at most as many as asked for.
    pub jobs: Vec<JobView>,
    /// Where the next page begins. None if this is the last.
    pub next: Option<Cursor>,
}

/// A group: its limit and how much of it is taken.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(not(feature = "testkit"), non_exhaustive)]
pub struct GroupStatus {
    /// The group. `GROUP/*` sums over all keys of the group.
    pub group: GroupRef,
    /// The effective limit. None means unlimited.
    pub limit: Option<u32>,
    /// The source of the effective limit.
    pub source: Option<LimitSource>,
    /// What each source set for exactly this reference.
    pub sources: Limits,
    /// Slots taken by running jobs and by programs.
    pub used: u64,
    /// Slots that all live jobs (pending, claimed and running) would take together, plus those of programs.
    pub live: u64,
    /// Jobs and programs that have taken slots of it since it has had a limit. Keys are counted under `GROUP/*`, if
    /// that has a limit.
    #[serde(default)]
    pub acquired: u64,
    /// Submits and programs that it has refused since it has had a limit, because it had no room.
    #[serde(default)]
    pub rejected: u64,
}

/// Some groups, by name and key.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(not(feature = "testkit"), non_exhaustive)]
pub struct GroupPage {
    /// The groups, at most as many as asked for.
    pub groups: Vec<GroupStatus>,
    /// The last group of this page, if there are more. Ask for the groups after it.
    pub next: Option<GroupRef>,
}

/// A group and the holders of its slots.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(not(feature = "testkit"), non_exhaustive)]
pub struct GroupDetail {
    /// Its limit and how much of it is taken.
    pub status: GroupStatus,
    /// The holders of its slots, oldest claim first.
    pub holders: Vec<Holder>,
}

/// A running job, or a program, that holds slots of a group.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(not(feature = "testkit"), non_exhaustive)]
pub struct Holder {
    /// Its token. Operators name the slots by it.
    pub token: FenceToken,
    /// Slots it holds in the group.
    pub slots: u32,
    /// The worker that runs the job, or the program.
    pub worker: Name,
    /// When it took them.
    pub since: Time,
    /// When its lease is over unless it is renewed.
    pub lease_until: Time,
    /// The job or program.
    pub by: HeldBy,
}

impl Holder {
    /// The job, if it is one.
    pub fn job(&self) -> Option<JobId> {
        match self.by {
            HeldBy::Job { job, .. } => Some(job),
            HeldBy::Program { .. } => None,
        }
    }
}

/// What holds slots.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum HeldBy {
    /// A running job.
    Job {
        /// The job.
        job: JobId,
        /// Its task.
        task: Name,
        /// The session that owns it.
        session: SessionId,
    },
    /// A program.
    Program {
        /// The id of its lease.
        lease: LeaseId,
    },
}

/// A queue and its jobs.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(not(feature = "testkit"), non_exhaustive)]
pub struct QueueStatus {
    /// The queue.
    pub queue: Name,
    /// Lower goes first.
    pub priority: u32,
    /// Whether it is paused: no claim takes jobs of it.
    pub paused: bool,
    /// Most of its jobs that may run at once. None means unlimited.
    pub limit: Option<u32>,
    /// Jobs that run.
    pub running: u64,
    /// Jobs that are claimed ahead of time.
    pub claimed: u64,
    /// Jobs in line: their date has come and, for a step, it is next in its workflow.
    pub due: u64,
    /// Jobs that wait for their date.
    pub scheduled: u64,
    /// Steps that are not next in their workflow, whatever their date.
    pub waiting: u64,
    /// Since when the oldest of the jobs in line has been due. None if there is none.
    #[serde(default)]
    pub oldest_due: Option<Time>,
}

/// A live session.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(not(feature = "testkit"), non_exhaustive)]
pub struct WorkerStatus {
    /// The worker's name.
    pub worker: Name,
    /// Its session.
    pub session: SessionId,
    /// The queues it serves. Empty means all.
    pub queues: Vec<Name>,
    /// The tasks it has handlers for.
    pub tasks: Vec<Name>,
    /// The token that opened it, if a server knows of one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub owner: Option<TokenId>,
    /// How many jobs it can run at once.
    pub permits: u32,
    /// How many more it could take when it last reported.
    pub free_permits: u32,
    /// How full its memory was when it last reported, in percent. None if it does not tell.
    #[serde(default)]
    pub memory_percent: Option<u8>,
    /// Whether fewer than a tenth of its permits are free.
    pub saturated: bool,
    /// Whether it takes no more jobs.
    pub draining: bool,
    /// When it was opened.
    pub opened_at: Time,
    /// When it ends unless it is renewed.
    pub lease_until: Time,
    /// Jobs that it runs.
    pub running: u64,
    /// Jobs that it has claimed ahead of time.
    pub claimed: u64,
}

/// What is over and has not been ended yet: what the next exchange, sweep or request for slots ends, except jobs that
/// expire in line.
///
/// Of each kind the first [`PAGE`](crate::caps::PAGE).
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(not(feature = "testkit"), non_exhaustive)]
pub struct Over {
    /// Sessions, by the moment at which they were over.
    pub sessions: Vec<SessionOver>,
    /// Attempts of live sessions past their timeout, and leases of programs. Within each kind, by the moment at which
    /// they were over.
    pub leases: Vec<LeaseOver>,
}

/// A session that is over.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(not(feature = "testkit"), non_exhaustive)]
pub struct SessionOver {
    /// The session as it is stored.
    #[serde(flatten)]
    pub worker: WorkerStatus,
    /// Slots that its jobs hold, in all groups that have a limit.
    pub slots: u64,
}

/// A lease on slots that is over, of a live session or of a program.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(not(feature = "testkit"), non_exhaustive)]
pub struct LeaseOver {
    /// The narrowest group whose slots it holds.
    pub group: GroupRef,
    /// Its holder.
    pub holder: Holder,
}

/// A workflow.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(not(feature = "testkit"), non_exhaustive)]
pub struct WorkflowStatus {
    /// The workflow.
    pub workflow: Name,
    /// Its state.
    pub state: WorkflowState,
    /// What happens when a step does not succeed.
    pub on_failure: OnFailure,
    /// Steps that were ever accepted.
    pub steps: u32,
    /// Steps that have not ended.
    pub live: u32,
    /// The first step that is not passed: the one that runs or is next, or the one that halts the workflow.
    pub head: Option<StepStatus>,
}

/// A step of a workflow.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(not(feature = "testkit"), non_exhaustive)]
pub struct StepStatus {
    /// Its number, 1 for the first.
    pub step: u32,
    /// Its job.
    pub job: JobId,
    /// The state of that job.
    pub state: JobState,
}

/// Some workflows, by name.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(not(feature = "testkit"), non_exhaustive)]
pub struct WorkflowPage {
    /// The workflows, at most as many as asked for.
    pub workflows: Vec<WorkflowStatus>,
    /// The last workflow of this page, if there are more. Ask for the workflows after it.
    pub next: Option<Name>,
}

/// A schedule.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(not(feature = "testkit"), non_exhaustive)]
pub struct ScheduleStatus {
    /// The schedule.
    pub schedule: Name,
    /// As configured.
    pub spec: Schedule,
    /// Whether it fires.
    pub enabled: bool,
    /// Its next tick. None while it is disabled, or if there is no later tick.
    pub next: Option<Time>,
    /// The last tick that was due.
    pub last: Option<LastTick>,
    /// The job of the newest tick that had one.
    #[serde(default)]
    pub last_job: Option<JobId>,
}

/// A tick that was due.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(not(feature = "testkit"), non_exhaustive)]
pub struct LastTick {
    /// The tick.
    pub tick: Time,
    /// What became of it.
    pub outcome: TickOutcome,
}

/// The answer to "why is my job not running?".
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(not(feature = "testkit"), non_exhaustive)]
pub struct Explanation {
    /// The job.
    pub job: JobId,
    /// Its state.
    pub state: JobState,
    /// Everything that keeps it from running now. Empty if it runs or has ended.
    pub reasons: Vec<Reason>,
}

/// One thing that keeps a job from running.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", tag = "reason")]
#[non_exhaustive]
pub enum Reason {
    /// Its date has not come.
    ScheduledUntil {
        /// The date.
        run_at: Time,
    },
    /// It waits between two attempts, or was snoozed.
    RetryAt {
        /// When it is due.
        run_at: Time,
    },
    /// `good_until` has passed. The next exchange, sweep or request for slots ends the job.
    Expired {
        /// The date.
        good_until: Time,
    },
    /// Its queue is paused.
    QueuePaused {
        /// The queue.
        queue: Name,
    },
    /// An earlier step of its workflow has not ended, or another step runs.
    WaitingForStep {
        /// The workflow.
        workflow: Name,
        /// The step that it waits for.
        waits_for: StepStatus,
    },
    /// An earlier step of its workflow ended without success. Retry or skip that step, or cancel the workflow.
    WorkflowHalted {
        /// The workflow.
        workflow: Name,
        /// The step that halts it.
        halted_by: StepStatus,
    },
    /// A worker has claimed it ahead of time, and starts it when it has a free permit and there is room.
    ClaimedByPrefetch {
        /// The worker.
        worker: Name,
        /// The worker's session.
        session: SessionId,
        /// When the claim is over unless the job starts before.
        claim_until: Time,
    },
    /// A limit of 0 holds it back.
    HeldByLimitZero {
        /// The group.
        group: GroupRef,
    },
    /// It needs more slots than the limit of the group.
    CanNeverRun {
        /// The group.
        group: GroupRef,
        /// Slots it needs.
        cost: u32,
        /// The limit.
        limit: u32,
    },
    /// Too few slots of a group are free.
    GroupFull {
        /// The group.
        group: GroupRef,
        /// Slots taken.
        used: u64,
        /// The limit.
        limit: u32,
        /// Slots the job needs.
        cost: u32,
        /// The holders of the slots: the oldest, at most ten.
        holders: Vec<Holder>,
        /// Its place in the group's line, 1 for the next, counted up to [`POSITION`](crate::caps::POSITION).
        position: u32,
    },
    /// The free slots of a group are kept for a big job ahead of it.
    ReservedFor {
        /// The group.
        group: GroupRef,
        /// The big job.
        job: JobId,
    },
    /// No live worker serves its queue and task.
    NoLiveWorker {
        /// The queue.
        queue: Name,
        /// The task.
        task: Name,
    },
    /// Workers serve it, but all of them are saturated or draining.
    WorkersBusy {
        /// Workers with fewer than a tenth of their permits free.
        saturated: u32,
        /// Workers that take no more jobs.
        draining: u32,
    },
    /// Nothing keeps it. The next claim of a worker that serves it considers it.
    OnlyWaitingForClaim {
        /// Its place among the jobs of its queue and task, 1 for the next, counted up to
        /// [`POSITION`](crate::caps::POSITION).
        position: u32,
    },
}
