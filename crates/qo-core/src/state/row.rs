//! The rows: what the state knows about each job, workflow, program, session, queue, task and group.

use super::table::Ix;
use crate::lane::{ClassLine, Desk, Lane, Needs, Rank};
use crate::{
    Attempt, ExchangeReply, FenceToken, GroupRef, JobId, JobProgress, JobState, Json, Key, LastTick, Name,
};
use crate::{NewSession, OnFailure, RetryPolicy, Schedule, SlotRequest, Stop, TaskOptions, Time};
use smallvec::SmallVec;
use std::collections::{BTreeMap, BTreeSet};
use std::ops::{Deref, DerefMut};
use std::sync::Arc;

/// A live job. A pending job that never ran is one row of about 100 bytes; what only some jobs have hangs off it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Job {
    pub(crate) record: Record,
    pub(crate) lane: Ix<Lane>,
}

/// A job that has ended, remembered. It stands on its own: the lane, groups and queue that it went through may be
/// gone.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Past {
    pub(crate) record: Record,
    pub(crate) spec: Arc<Spec>,
    pub(crate) key: Option<Key>,
    pub(crate) finished_at: Time,
    pub(crate) state: JobState,
    /// It did not succeed, and its workflow passed over it.
    pub(crate) skipped: bool,
}

/// What all jobs of a class have in common, in names.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Spec {
    pub(crate) queue: Name,
    pub(crate) task: Name,
    pub(crate) group: Name,
    pub(crate) cost: u32,
    pub(crate) limits: BTreeMap<GroupRef, u32>,
}

/// What is known of a job whether it is live or not.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Record {
    pub(crate) id: JobId,
    /// Acceptance number: the last word in claim order.
    pub(crate) number: u64,
    pub(crate) submitted_at: Time,
    pub(crate) run_at: Time,
    pub(crate) payload: Json,
    pub(crate) options: Option<Arc<JobOptions>>,
    /// Present from the first claim on.
    pub(crate) track: Option<Box<Track>>,
    pub(crate) priority: i32,
    // Sixteen bits are enough for `caps::ATTEMPTS`, and keep the row small.
    pub(crate) attempts_used: u16,
    pub(crate) max_attempts: u16,
}

/// What most jobs leave at the default.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct JobOptions {
    pub(crate) good_until: Option<Time>,
    pub(crate) timeout_ms: Option<u64>,
    pub(crate) retry: Option<RetryPolicy>,
    pub(crate) idempotency_key: Option<Key>,
    /// The submit-side limit that it brings, again if it is opened again.
    pub(crate) limit: Option<u32>,
    pub(crate) membership: Option<Membership>,
}

/// The place of a job in its workflow.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Membership {
    pub(crate) workflow: Ix<Workflow>,
    /// 1 for the first.
    pub(crate) step: u32,
}

/// What happened to a job after it was accepted.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Track {
    /// Pending once it has ended.
    pub(crate) phase: Phase,
    /// One, nearly always: it is here, not behind another allocation.
    pub(crate) attempts: SmallVec<[Attempt; 1]>,
    pub(crate) output: Option<Json>,
    /// How far it says that it is, while it runs.
    pub(crate) progress: Option<Box<JobProgress>>,
}

/// Where a live job stands.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) enum Phase {
    #[default]
    Pending,
    Claimed(Claimed),
    Running(Run),
}

/// A claim ahead of time: who may start the job, and until when.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Claimed {
    pub(crate) session: Ix<Session>,
    pub(crate) token: FenceToken,
    pub(crate) since: Time,
    pub(crate) until: Time,
}

/// A run: who owns the job, and since when.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Run {
    pub(crate) session: Ix<Session>,
    pub(crate) token: FenceToken,
    pub(crate) since: Time,
    /// The end that its timeout sets, whatever the session does.
    pub(crate) timeout_at: Option<Time>,
    pub(crate) cancel_requested: bool,
}

impl Deref for Job {
    type Target = Record;
    fn deref(&self) -> &Record {
        &self.record
    }
}

impl DerefMut for Job {
    fn deref_mut(&mut self) -> &mut Record {
        &mut self.record
    }
}

impl Deref for Past {
    type Target = Record;
    fn deref(&self) -> &Record {
        &self.record
    }
}

impl Past {
    /// Whether a store may keep it elsewhere: nothing here will ever ask for it. What did not succeed may be opened
    /// again, an idempotency key is looked up, and a workflow counts its steps.
    pub(crate) fn may_be_archived(&self) -> bool {
        self.state == JobState::Succeeded && self.idempotency_key().is_none() && self.membership().is_none()
    }
}

impl Job {
    pub(crate) fn phase(&self) -> &Phase {
        self.track.as_ref().map_or(&Phase::Pending, |track| &track.phase)
    }

    pub(crate) fn state(&self) -> JobState {
        match self.phase() {
            Phase::Pending => JobState::Pending,
            Phase::Claimed(_) => JobState::Claimed,
            Phase::Running(_) => JobState::Running,
        }
    }

    pub(crate) fn run(&self) -> Option<&Run> {
        match self.phase() {
            Phase::Running(run) => Some(run),
            Phase::Pending | Phase::Claimed(_) => None,
        }
    }

    pub(crate) fn claimed(&self) -> Option<&Claimed> {
        match self.phase() {
            Phase::Claimed(claimed) => Some(claimed),
            Phase::Pending | Phase::Running(_) => None,
        }
    }

    pub(crate) fn rank(&self) -> Rank {
        Rank { priority: self.priority, run_at: self.run_at, number: self.number }
    }
}

impl Record {
    pub(crate) fn good_until(&self) -> Option<Time> {
        self.options.as_ref()?.good_until
    }

    pub(crate) fn idempotency_key(&self) -> Option<&Key> {
        self.options.as_ref()?.idempotency_key.as_ref()
    }

    pub(crate) fn membership(&self) -> Option<Membership> {
        self.options.as_ref()?.membership
    }

    pub(crate) fn attempts(&self) -> &[Attempt] {
        self.track.as_ref().map_or(&[], |track| &track.attempts)
    }

    pub(crate) fn progress(&self) -> Option<&JobProgress> {
        self.track.as_ref()?.progress.as_deref()
    }

    pub(crate) fn set_phase(&mut self, phase: Phase) {
        if phase != Phase::Pending || self.track.is_some() {
            self.track.get_or_insert_default().phase = phase;
        }
    }
}

/// Who holds slots.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Held {
    Job(Ix<Job>),
    Program(Ix<Program>),
}

/// Where a job row is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum At {
    Live(Ix<Job>),
    Past(Ix<Past>),
}

/// A workflow. What is stored of it, and what follows from its steps.
#[derive(Debug)]
pub(crate) struct Workflow {
    pub(crate) name: Name,
    pub(crate) row: WorkflowRow,
    /// Derived: its steps, live or remembered, and those of them that are not passed.
    pub(crate) steps: BTreeMap<u32, At>,
    pub(crate) open: BTreeMap<u32, At>,
    /// Derived: steps that have not ended, and the one that runs.
    pub(crate) live: u32,
    pub(crate) running: Option<u32>,
    /// Derived: the live step that may run next; if it is pending it is in line or waits for its date.
    pub(crate) next: Option<Ix<Job>>,
}

/// What is stored of a workflow.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct WorkflowRow {
    pub(crate) on_failure: OnFailure,
    pub(crate) cancelled: bool,
    /// Steps accepted so far.
    pub(crate) accepted: u32,
}

impl Workflow {
    pub(crate) fn new(name: Name, row: WorkflowRow) -> Self {
        Self { name, row, steps: BTreeMap::new(), open: BTreeMap::new(), live: 0, running: None, next: None }
    }

    pub(crate) fn head(&self) -> Option<(u32, At)> {
        self.open.first_key_value().map(|(&step, &at)| (step, at))
    }

    /// Whether a step that has ended lets the next one go.
    pub(crate) fn passes(&self, past: &Past) -> bool {
        past.state == JobState::Succeeded
            || past.skipped
            || self.row.cancelled
            || self.row.on_failure == OnFailure::Continue
    }
}

/// Slots that a program holds.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Program {
    pub(crate) request: Arc<SlotRequest>,
    pub(crate) token: FenceToken,
    pub(crate) since: Time,
    /// When the lease was granted or last extended.
    pub(crate) renewed_at: Time,
    pub(crate) until: Time,
    /// Its groups and the slots that it holds there: key, group.
    pub(crate) needs: Needs,
}

/// A schedule that the configuration names.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct ScheduleRow {
    pub(crate) spec: Schedule,
    pub(crate) enabled: bool,
    pub(crate) next: Option<Time>,
    pub(crate) last: Option<LastTick>,
    pub(crate) last_job: Option<JobId>,
}

/// A live session.
#[derive(Debug)]
pub(crate) struct Session {
    pub(crate) row: SessionRow,
    /// What its next exchange must be told to stop.
    pub(crate) stops: BTreeMap<FenceToken, Stop>,
    /// Derived: the jobs that it runs, and those that it has claimed ahead of time.
    pub(crate) running: BTreeMap<FenceToken, Ix<Job>>,
    pub(crate) claimed: BTreeMap<FenceToken, Ix<Job>>,
}

/// What is stored of a session.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct SessionRow {
    pub(crate) new: Arc<NewSession>,
    pub(crate) serves: Arc<Serves>,
    pub(crate) opened_at: Time,
    /// When it was opened or last renewed.
    pub(crate) renewed_at: Time,
    pub(crate) lease_until: Time,
    pub(crate) free_permits: u32,
    pub(crate) draining: bool,
    /// The last exchange that was answered; 0 before the first.
    pub(crate) number: u64,
    /// What it was answered: a lost reply loses nothing.
    pub(crate) reply: Option<Arc<ExchangeReply>>,
}

/// The queues and tasks of a session.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Serves {
    /// Sorted; none means all.
    pub(crate) queues: Option<Vec<Ix<Queue>>>,
    pub(crate) tasks: Vec<Ix<Task>>,
}

impl SessionRow {
    pub(crate) fn serves_queue(&self, queue: Ix<Queue>) -> bool {
        self.serves.queues.as_ref().is_none_or(|queues| queues.binary_search(&queue).is_ok())
    }

    /// Fewer than a tenth of the permits are free.
    pub(crate) fn is_saturated(&self) -> bool {
        u64::from(self.free_permits) * 10 < u64::from(self.new.permits)
    }
}

/// A queue that somebody named.
#[derive(Debug)]
pub(crate) struct Queue {
    pub(crate) name: Name,
    /// As configured; none is the default.
    pub(crate) priority: Option<u32>,
    pub(crate) paused: bool,
    /// `queue:NAME`.
    pub(crate) group: Ix<Group>,
    /// Desks, and sessions that name it.
    pub(crate) refs: u32,
    /// Derived: desks where somebody stands, and whether its group has a free slot.
    pub(crate) desks: BTreeSet<Ix<Desk>>,
    pub(crate) open: bool,
    /// Derived: pending jobs in line, those that wait for their date, steps that are not next, and claimed jobs.
    pub(crate) due: u64,
    pub(crate) scheduled: u64,
    pub(crate) waiting: u64,
    pub(crate) claimed: u64,
}

impl Queue {
    /// Nobody refers to it, and it says nothing that the default does not.
    pub(crate) fn is_vacant(&self) -> bool {
        self.refs == 0 && self.priority.is_none() && !self.paused
    }

    pub(crate) fn priority(&self) -> u32 {
        self.priority.unwrap_or(crate::DEFAULT_QUEUE_PRIORITY)
    }
}

/// A task that somebody named.
#[derive(Debug)]
pub(crate) struct Task {
    pub(crate) name: Name,
    /// What apps registered, one row an app, the newest last: that one counts.
    pub(crate) registered: Vec<Arc<TaskOptions>>,
    /// Desks, and sessions that name it.
    pub(crate) refs: u32,
    /// Derived: desks where somebody stands.
    pub(crate) desks: BTreeSet<Ix<Desk>>,
    /// Derived: live sessions that have a handler for it.
    pub(crate) sessions: Vec<Ix<Session>>,
}

impl Task {
    /// Nobody refers to it, and nobody registered it.
    pub(crate) fn is_vacant(&self) -> bool {
        self.refs == 0 && self.registered.is_empty()
    }

    /// What counts of what apps registered.
    pub(crate) fn options(&self) -> Option<&TaskOptions> {
        self.registered.last().map(|options| &**options)
    }
}

/// A group that live jobs, programs, a queue or a key's parent refer to. `used` and `live` are caches of the rows of
/// jobs and programs.
#[derive(Debug)]
pub(crate) struct Group {
    pub(crate) label: Label,
    /// The limit in force.
    pub(crate) limit: Option<u32>,
    /// Slots that running jobs and programs hold.
    pub(crate) used: u64,
    /// Slots that all live jobs would hold, and those of programs.
    pub(crate) live: u64,
    /// Classes, lanes, queues, keys and programs that point here.
    pub(crate) refs: u32,
    /// `queue:NAME`: the queue.
    pub(crate) queue: Option<Ix<Queue>>,
    /// `GROUP/KEY`: its lanes in line. A parked one waits for room here.
    pub(crate) lanes: KeyLanes,
    /// Where jobs take slots as their group or an extra limit: the classes that wait here, and those that need
    /// many slots.
    pub(crate) line: Option<Box<ClassLine>>,
}

/// The lanes of one key that have a job in line: nearly always one, and there may be a million keys.
#[derive(Debug, Default)]
pub(crate) struct KeyLanes {
    first: Option<Ix<Lane>>,
    // Boxed so that the common form stays small.
    #[allow(clippy::box_collection)]
    rest: Option<Box<BTreeSet<Ix<Lane>>>>,
}

impl KeyLanes {
    pub(crate) fn is_empty(&self) -> bool {
        self.first.is_none()
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = Ix<Lane>> {
        self.first.into_iter().chain(self.rest.iter().flat_map(|rest| rest.iter().copied()))
    }

    pub(crate) fn insert(&mut self, lane: Ix<Lane>) {
        if self.first.is_none() {
            self.first = Some(lane);
        } else {
            self.rest.get_or_insert_default().insert(lane);
        }
    }

    pub(crate) fn remove(&mut self, lane: Ix<Lane>) {
        if self.first == Some(lane) {
            self.first = self.rest.as_mut().and_then(|rest| rest.pop_first());
        } else if let Some(rest) = &mut self.rest {
            rest.remove(&lane);
        }
        self.rest.take_if(|rest| rest.is_empty());
    }
}

/// What a group is called, without repeating the name of a key's group.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) enum Label {
    Cluster,
    Queue(Name),
    Group(Name),
    Key(Ix<Group>, Key),
}

impl Group {
    pub(crate) fn new(label: Label, limit: Option<u32>) -> Self {
        Self { label, limit, used: 0, live: 0, refs: 0, queue: None, lanes: KeyLanes::default(), line: None }
    }

    pub(crate) fn free(&self) -> u64 {
        self.limit.map_or(u64::MAX, |limit| u64::from(limit).saturating_sub(self.used))
    }

    /// Whether `need` more slots keep within the limit.
    pub(crate) fn has_room(&self, need: u32) -> bool {
        self.limit.is_none_or(|limit| self.used + u64::from(need) <= u64::from(limit))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A million pending jobs with a key each are a million of these three: a field more is seen here first.
    #[test]
    fn rows_are_small() {
        assert!(size_of::<Job>() <= 88, "a job takes {} bytes", size_of::<Job>());
        assert!(size_of::<Lane>() <= 48, "a lane takes {} bytes", size_of::<Lane>());
        assert!(size_of::<Group>() <= 80, "a group takes {} bytes", size_of::<Group>());
    }
}
