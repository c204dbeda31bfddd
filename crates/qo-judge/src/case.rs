//! What a verdict compares the diary with: what was submitted, what was allowed, and what was done to the workers.

use std::collections::BTreeMap;

/// What was submitted, allowed and done.
#[derive(Debug, Clone, Default)]
pub struct Case {
    /// When it began, on the machine's monotonic clock. Messages count from here.
    pub began_ns: u64,
    /// How long a session lives after each exchange.
    pub lease_ns: u64,
    /// Every job, by the name by which its submitter knows it.
    pub jobs: BTreeMap<String, Job>,
    /// Every limit that the jobs were under.
    pub limits: Vec<Limit>,
    /// How to tell which value of a limit a claim was under.
    pub claimed: Claimed,
    /// How long a run lasts that recorded no end.
    pub open: OpenRuns,
    /// Killed workers, each with a time at which it was certainly dead.
    pub kills: BTreeMap<String, u64>,
    /// Workers that were stopped for longer than their lease.
    pub stops: Vec<Stop>,
    /// Whether everything is over: then what was promised must have been done.
    pub is_over: bool,
    /// How much of each limit must have been used.
    pub reach: Reach,
    /// Whether no fault but kills happened, so that a job that was done is done again only after a kill.
    pub done_once: bool,
    /// A worker was killed while it owned jobs, and these began again within this time.
    pub recovered_within_ns: Option<u64>,
    /// When the last fault was over, and how long a group with work waiting may stand still from then on.
    pub healed: Option<(u64, u64)>,
    /// Jobs that had not ended when the time was up, as the store says.
    pub stuck: Vec<String>,
    /// What the program that ran the case saw itself and must not be.
    pub complaints: Vec<String>,
}

/// A job that was sent.
#[derive(Debug, Clone, Default)]
pub struct Job {
    /// The groups that it takes slots of, and how many. Groups without a limit may be left out.
    pub needs: Vec<(String, u32)>,
    /// Its workflow, and its number there.
    pub step: Option<(String, u64)>,
    /// What its runs must say about themselves; none if that is not compared.
    pub says: Option<String>,
    /// What its submit was answered.
    pub promise: Promise,
    /// Whether the store may hold many jobs of this name, as a schedule makes them.
    pub is_many: bool,
}

/// What the answer to a submit promises.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Promise {
    /// It was acknowledged: it ends.
    #[default]
    Ends,
    /// The answer was lost: if it begins, it ends.
    EndsIfBegun,
    /// It was refused or skipped: it never begins.
    NeverBegins,
    /// It is no job of the store, or its end does not matter.
    Nothing,
}

/// A limit, and how it was changed.
#[derive(Debug, Clone, Default)]
pub struct Limit {
    /// The group: `NAME`, `NAME/KEY`, or `NAME/*` for each key that has no limit of its own.
    pub group: String,
    /// The limit before the first change.
    pub limit: u32,
    /// Its changes, in order.
    pub changes: Vec<Change>,
}

/// A change of a limit. Between the two marks the old and the new limit may both have been in force.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Change {
    /// The new limit.
    pub limit: u32,
    /// The first claim that may have been under the new limit.
    pub from: u64,
    /// The first claim that was certainly under the new limit.
    pub until: u64,
}

/// How to tell which value of a limit a claim was under.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Claimed {
    /// By the fence token: changes are marked with tokens.
    #[default]
    ByToken,
    /// By the time: changes are marked with times, and a run was claimed at most this long before it began.
    Within(u64),
}

/// How long a run lasts that recorded no end.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum OpenRuns {
    /// Until its worker was killed. If its worker was not killed, the run never ended, and that is a violation.
    #[default]
    GoOn,
    /// Until its last line. Jobs that record often that they run need no dates of kills.
    EndWithTheirLastLine,
}

/// A worker was stopped for longer than its lease: its runs count until then.
///
/// A thread that was stopped in the middle of a handler's step finishes that step when the worker goes on. No runtime
/// can prevent that.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Stop {
    /// The worker.
    pub worker: String,
    /// A time at which it was stopped.
    pub at_ns: u64,
    /// When it went on. Runs that it claimed afterwards count. None if no later run counts.
    pub until_ns: Option<u64>,
    /// Most lines that the stopped runs may write afterwards, other than that they were stopped; none if any number.
    pub writes: Option<usize>,
}

/// How much of each limit must have been used when all is over.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Reach {
    /// Nothing.
    #[default]
    Any,
    /// A slot of each.
    Used,
    /// All slots at once, under each value that the limit had, and for each key. A limit that is never reached proves
    /// nothing.
    Full,
}
