//! The steps of a script: commands in symbols. Names are numbers into small pools, so that jobs meet in
//! the same groups; jobs, sessions and tokens are picked among those that the script has seen so far.

use qo_core::{GroupRef, JobState, Key, Name, OnLimit};

/// The k-th of what there is, counted round and round.
pub type Pick = u8;

/// One step of a script.
#[derive(Debug, Clone, PartialEq)]
pub enum Step {
    /// Store time passes, in milliseconds.
    Advance(u64),
    /// Submit some jobs.
    Submit(Vec<JobSpec>),
    /// Submit a job once more, word for word.
    SubmitAgain(Pick),
    /// Cancel some jobs.
    Cancel(Vec<Pick>),
    /// Register some tasks.
    Register(Vec<TaskSpec>),
    /// Push a configuration: limits, and priorities of queues.
    Configure(Vec<(Pick, u32)>, Vec<(Pick, u32)>),
    /// An operator sets a limit.
    SetLimit(Pick, u32),
    /// An operator takes a limit back.
    UnsetLimit(Pick),
    /// Pause or resume a queue.
    Pause(Pick, bool),
    /// Open a session.
    Open(SessionSpec),
    /// Open a session with an id that was used before.
    OpenAgain(Pick),
    /// Exchange.
    Exchange(ExchangeStep),
    /// Close a session.
    Close(Pick),
    /// Release the slot that a token, any that was ever seen, holds in a group.
    ReleaseSlot(Pick, Pick),
    /// Release the slot that a token holds in a group of its job.
    ReleaseOwnSlot(Pick),
    /// Sweep.
    Sweep,
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
    /// Which idempotency key.
    pub idempotency: Option<Pick>,
    /// What to do when the group is taken.
    pub on_limit: OnLimit,
    /// The id of a job from before instead of a new one.
    pub old_id: Option<Pick>,
}

/// A task's registration in symbols.
#[derive(Debug, Clone, PartialEq)]
pub struct TaskSpec {
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
    pub max_per_queue: Option<u32>,
    /// What it reports.
    pub free_permits: u32,
    /// Whether it drains; it claims nothing then.
    pub draining: bool,
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
    /// One that this session was given and has not settled.
    Held(Pick),
    /// Any that was ever given to anybody.
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

/// Every state, for filters.
pub(super) const STATES: [JobState; 6] = [
    JobState::Pending,
    JobState::Running,
    JobState::Succeeded,
    JobState::Failed,
    JobState::Cancelled,
    JobState::Expired,
];

const TASKS: [&str; 3] = ["mail", "resize", "report"];
const QUEUES: [&str; 3] = ["default", "slow", "stripe"];
const GROUPS: [&str; 3] = ["api", "mail", "gpu"];
const KEYS: [&str; 2] = ["ann", "bob/1"];
const EXTRAS: [&str; 7] = ["gpu", "disk", "disk/ann", "disk/zoe", "api/ann", "mail/ann", "api"];
const WORKERS: [&str; 2] = ["w1", "w2"];
const LIMITED: [&str; 17] = [
    "cluster",
    "queue:default",
    "queue:slow",
    "api",
    "mail",
    "gpu",
    "disk",
    "resize",
    "api/*",
    "mail/*",
    "disk/*",
    "api/ann",
    "mail/ann",
    "mail/bob/1",
    "resize/ann",
    "disk/zoe",
    "nobody",
];

fn pick<'a>(pool: &[&'a str], k: Pick) -> &'a str {
    pool[usize::from(k) % pool.len()]
}

fn name(pool: &[&str], k: Pick) -> Name {
    Name::parse("name", pick(pool, k)).expect("the pools hold names")
}

pub(super) fn task(k: Pick) -> Name {
    name(&TASKS, k)
}

pub(super) fn queue(k: Pick) -> Name {
    name(&QUEUES, k)
}

pub(super) fn group(k: Pick) -> Name {
    name(&GROUPS, k)
}

pub(super) fn worker(k: Pick) -> Name {
    name(&WORKERS, k)
}

pub(super) fn key(k: Pick) -> Key {
    Key::parse("key", pick(&KEYS, k)).expect("the pools hold keys")
}

pub(super) fn extra(k: Pick) -> GroupRef {
    pick(&EXTRAS, k).parse().expect("the pools hold groups")
}

pub(super) fn limited(k: Pick) -> GroupRef {
    pick(&LIMITED, k).parse().expect("the pools hold groups")
}

/// Every group that a script may speak of, whether or not it is there.
pub(super) fn all_limited() -> Vec<GroupRef> {
    LIMITED.iter().chain(&EXTRAS).map(|text| text.parse().expect("the pools hold groups")).collect()
}
