//! The steps of a script: commands in symbols. Names are numbers into the pools; jobs, sessions and tokens are picked among those that the script has seen so far.

use qo_core::{Change, Missed, OnFailure, OnLimit, Steer};

/// The k-th of what there is, modulo their number.
pub type Pick = u8;

/// One step of a script.
#[derive(Debug, Clone, PartialEq)]
pub enum Step {
    /// Store time passes, in milliseconds.
    Advance(u64),
    /// Submit some jobs.
    Submit(Vec<JobSpec>),
    /// Submit a job once more, byte for byte.
    SubmitAgain(Pick),
    /// Cancel some jobs.
    Cancel(Vec<Pick>),
    /// Register some tasks.
    Register(Vec<TaskSpec>),
    /// Push a configuration.
    Configure(ConfigurationSpec),
    /// An operator sets a limit.
    SetLimit(Pick, u32),
    /// An operator takes a limit back.
    UnsetLimit(Pick),
    /// Pause or resume a queue.
    Pause(Pick, bool),
    /// Open a session.
    Open(SessionSpec),
    /// Open a session with an id that was used before: its owner does, or another token.
    OpenAgain(Pick, Owner),
    /// Exchange.
    Exchange(ExchangeStep),
    /// Close a session.
    Close(Pick),
    /// Release the slot that a token, any that was ever seen, holds in a group.
    ReleaseSlot(Pick, Pick),
    /// Release the slot that a token, a job's or a program's, holds in its group.
    ReleaseOwnSlot(Pick),
    /// Sweep.
    Sweep,
    /// Retry some jobs.
    Retry(Vec<Pick>),
    /// Cancel or retry in bulk.
    ChangeMatching(BulkSpec),
    /// Retry, skip or cancel a workflow.
    Steer(Pick, Steer),
    /// A program asks for slots.
    Acquire(SlotSpec),
    /// A program extends its lease.
    Extend(ProgramPick, u64),
    /// A program gives its slots back.
    Return(ProgramPick),
    /// Enable or disable a schedule.
    Enable(Pick, bool),
    /// Trigger a schedule, with a new id or with one from before.
    Trigger(Pick, Option<Pick>),
    /// Create a token.
    CreateToken(TokenSpec),
    /// Revoke a token.
    RevokeToken(Pick),
    /// Record what an operator did.
    Record(Pick),
}

/// Who opens a session again.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Owner {
    /// The owner that opened it.
    Same,
    /// No token, or this one.
    Other(Option<Pick>),
}

/// A token in symbols.
#[derive(Debug, Clone, PartialEq)]
pub struct TokenSpec {
    /// Which id.
    pub id: Pick,
    /// Which name.
    pub name: Pick,
    /// Which queues; none means all.
    pub queues: Option<Vec<Pick>>,
    /// Which app; none means any.
    pub app: Option<Pick>,
    /// When it expires, as milliseconds from now.
    pub expires_at: Option<i64>,
}

/// A job in symbols.
#[derive(Debug, Clone, PartialEq)]
pub struct JobSpec {
    /// Which task.
    pub task: Pick,
    /// Which queue.
    pub queue: Pick,
    /// Which payload.
    pub payload: Pick,
    /// Its priority.
    pub priority: i32,
    /// Its date, as milliseconds from now.
    pub run_at: Option<i64>,
    /// When it expires, as milliseconds from now.
    pub good_until: Option<i64>,
    /// Its attempts.
    pub max_attempts: u32,
    /// Its timeout.
    pub timeout_ms: Option<u64>,
    /// Which group, if it is given.
    pub group: Option<Pick>,
    /// Which key.
    pub key: Option<Pick>,
    /// Its cost.
    pub cost: u32,
    /// Which extra limits.
    pub extras: Vec<(Pick, u32)>,
    /// Its own limit.
    pub limit: Option<u32>,
    /// Whether it clears the submit-side limit; only without a limit of its own.
    pub clear_limit: bool,
    /// Which idempotency key.
    pub idempotency: Option<Pick>,
    /// What to do when the limit is reached.
    pub on_limit: OnLimit,
    /// The id of a job from before instead of a new one.
    pub old_id: Option<Pick>,
    /// Which workflow.
    pub workflow: Option<Pick>,
    /// Its `on_failure`; only with a workflow.
    pub on_failure: Option<OnFailure>,
    /// Which trace.
    pub trace: Option<Pick>,
}

/// A task's registration in symbols.
#[derive(Debug, Clone, PartialEq)]
pub struct TaskSpec {
    /// Which app.
    pub app: Pick,
    /// Which task.
    pub task: Pick,
    /// Which group.
    pub group: Option<Pick>,
    /// Its limit.
    pub limit: Option<u32>,
    /// Its timeout.
    pub timeout_ms: Option<u64>,
    /// The base of its backoff.
    pub retry_base_ms: Option<u64>,
}

/// A session in symbols.
#[derive(Debug, Clone, PartialEq)]
pub struct SessionSpec {
    /// Which worker name.
    pub worker: Pick,
    /// Which queues; none means all.
    pub queues: Vec<Pick>,
    /// Which tasks.
    pub tasks: Vec<Pick>,
    /// Its lease.
    pub lease_ms: u64,
    /// Its permits.
    pub permits: u32,
    /// Which token opens it, if one does.
    pub owner: Option<Pick>,
}

/// An exchange in symbols.
#[derive(Debug, Clone, PartialEq)]
pub struct ExchangeStep {
    /// Which session.
    pub session: Pick,
    /// Which number.
    pub number: Number,
    /// What it settles.
    pub settles: Vec<SettleSpec>,
    /// How many it wants.
    pub max: u32,
    /// How many from one queue.
    pub max_claim_batch: Option<u32>,
    /// What it starts.
    pub starts: Vec<Whose>,
    /// Progress of jobs: the job's token, and the report.
    pub reports: Vec<(Whose, Pick)>,
    /// How many it wants to hold ahead of time, and for how long.
    pub prefetch: Option<(u32, u64)>,
    /// What it reports.
    pub free_permits: u32,
    /// Whether it drains; it claims nothing then.
    pub draining: bool,
    /// How long its session is to live if it holds nothing; it asks for nothing then.
    pub idle_ms: Option<u64>,
}

/// An exchange's number in symbols.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Number {
    /// The next one: as it should be.
    Next,
    /// The last one again: the reply was lost.
    Last,
    /// One from long ago.
    Old,
    /// One that skips some.
    Ahead,
}

/// A settle in symbols.
#[derive(Debug, Clone, PartialEq)]
pub struct SettleSpec {
    /// Whose token.
    pub whose: Whose,
    /// What became of the job.
    pub outcome: OutcomeSpec,
}

/// A token in symbols.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Whose {
    /// One that this session was given to run and has not settled.
    Held(Pick),
    /// The one of those at this index, if there are so many: two indices are two jobs.
    Nth(Pick),
    /// One that this session was given ahead of time and has not started.
    Claimed(Pick),
    /// Any that was ever given to any session.
    Any(Pick),
    /// The first job's under the second's token.
    Mixed(Pick, Pick),
}

/// An outcome in symbols.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum OutcomeSpec {
    /// Succeed.
    Succeed,
    /// Retry after a delay.
    Retry(u64),
    /// Fail.
    Fail,
    /// Snooze for a delay.
    Snooze(u64),
    /// Release.
    Release,
    /// Cancelled.
    Cancelled,
}

/// A configuration in symbols.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct ConfigurationSpec {
    /// Which app.
    pub app: Pick,
    /// Which limits.
    pub limits: Vec<(Pick, u32)>,
    /// Priorities of which queues.
    pub priorities: Vec<(Pick, u32)>,
    /// Which schedules.
    pub schedules: Vec<ScheduleSpec>,
    /// How long succeeded, failed, cancelled and expired jobs are remembered, each if it says so.
    pub retention: [Option<u64>; 4],
}

/// A schedule in symbols.
#[derive(Debug, Clone, PartialEq)]
pub struct ScheduleSpec {
    /// Which one.
    pub schedule: Pick,
    /// How it ticks.
    pub ticks: Pick,
    /// Which task.
    pub task: Pick,
    /// Which payload.
    pub payload: Pick,
    /// What becomes of missed ticks.
    pub missed: Missed,
    /// Whether its jobs may overlap.
    pub overlap: bool,
}

/// A change in bulk, in symbols.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct BulkSpec {
    /// What to do.
    pub change: Change,
    /// To which jobs.
    pub filter: Pick,
    /// Continue where the last one ended.
    pub go_on: bool,
    /// How many.
    pub limit: usize,
}

/// A program's request in symbols.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct SlotSpec {
    /// Which group.
    pub group: Pick,
    /// How many slots.
    pub slots: u32,
    /// For how long.
    pub lease_ms: u64,
    /// Its own limit.
    pub limit: Option<u32>,
    /// The id of a request from before instead of a new one.
    pub old_id: Option<Pick>,
}

/// A program's lease and token in symbols.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ProgramPick {
    /// One that was granted.
    Granted(Pick),
    /// The first one's lease under the second's token.
    Mixed(Pick, Pick),
}
