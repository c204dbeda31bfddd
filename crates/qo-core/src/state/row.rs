//! The rows: what the state knows about each job, workflow, program, session, queue, task and group.

use super::table::Ix;
use crate::lane::{ClassLine, Desk, Lane, Needs, Rank};
use crate::{
    Attempt, ExchangeReply, FenceToken, GroupRef, JobId, JobProgress, JobState, Json, Key, LastTick, Name,
};
use crate::{
    NewSession, OnFailure, RetryPolicy, Schedule, SlotRequest, Stop, TaskOptions, Time, Traceparent,
};
use smallvec::SmallVec;
use std::collections::{BTreeMap, BTreeSet};
use std::ops::{Deref, DerefMut};
use std::sync::Arc;

/// A live job. A pending job that never ran is one row of about 100 bytes. Options that few jobs have are behind a
/// pointer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Job {
    pub(crate) record: Record,
    pub(crate) lane: Ix<Lane>,
}

/// An ended job that is remembered. It holds its own names, because the lane, groups and queue that it went through may
/// be gone.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Past {
    pub(crate) record: Record,
    pub(crate) spec: Arc<Spec>,
    pub(crate) key: Option<Key>,
    pub(crate) finished_at: Time,
    pub(crate) state: JobState,
    /// It did not succeed, and an operator skipped it in its workflow.
    pub(crate) skipped: bool,
}

/// What all jobs of a class have in common, as names.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Spec {
    pub(crate) queue: Name,
    pub(crate) task: Name,
    pub(crate) group: Name,
    pub(crate) cost: u32,
    pub(crate) limits: BTreeMap<GroupRef, u32>,
}

/// What is known of a job, live or ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Record {
    pub(crate) id: JobId,
    /// Acceptance number: the last criterion of claim order.
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

/// Options that most jobs leave at the default.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct JobOptions {
    pub(crate) good_until: Option<Time>,
    pub(crate) timeout_ms: Option<u64>,
    pub(crate) retry: Option<RetryPolicy>,
    pub(crate) idempotency_key: Option<Key>,
    /// The submit-side limit that it brings, also when it is reopened.
    pub(crate) limit: Option<u32>,
    pub(crate) traceparent: Option<Traceparent>,
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
    /// Nearly always one, so it is stored inline, without another allocation.
    pub(crate) attempts: SmallVec<[Attempt; 1]>,
    pub(crate) output: Option<Json>,
    /// Its last progress report, while it runs.
    pub(crate) progress: Option<Box<JobProgress>>,
}

/// The phase of a live job.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) enum Phase {
    #[default]
    Pending,
    Claimed(Claimed),
    Running(Run),
}

/// A claim ahead of time: the session that may start the job, and until when.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Claimed {
    pub(crate) session: Ix<Session>,
    pub(crate) token: FenceToken,
    pub(crate) since: Time,
    pub(crate) until: Time,
}

/// A run: the session that owns the job, and since when.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Run {
    pub(crate) session: Ix<Session>,
    pub(crate) token: FenceToken,
    pub(crate) since: Time,
    /// When its timeout ends the attempt, even if the session renews.
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
    /// Whether a store may archive it, because no rule needs it any more. Jobs that did not succeed may be reopened,
    /// idempotency keys are looked up, and a workflow counts its steps.
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

    pub(crate) fn traceparent(&self) -> Option<Traceparent> {
        self.options.as_ref()?.traceparent
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

/// A holder of slots.
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

/// A workflow: its stored row, and what follows from its steps.
#[derive(Debug)]
pub(crate) struct Workflow {
    pub(crate) name: Name,
    pub(crate) row: WorkflowRow,
    /// Derived: its steps, live or remembered. `open` holds those that are not passed.
    pub(crate) steps: BTreeMap<u32, At>,
    pub(crate) open: BTreeMap<u32, At>,
    /// Derived: how many steps are live, and which one runs.
    pub(crate) live: u32,
    pub(crate) running: Option<u32>,
    /// Derived: the live step that is next. If it is pending, it is in line or waits for its date.
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

    /// Whether an ended step lets the next step run.
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
    /// What its next exchange tells it to stop.
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
    /// How full the worker's memory was when it last reported.
    pub(crate) memory_percent: Option<u8>,
    pub(crate) draining: bool,
    /// The last exchange that was answered; 0 before the first.
    pub(crate) number: u64,
    /// The reply to that exchange, repeated if the worker asks again.
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

/// A queue that a job, session, limit or configuration names.
#[derive(Debug)]
pub(crate) struct Queue {
    pub(crate) name: Name,
    /// As configured. None is the default.
    pub(crate) priority: Option<u32>,
    pub(crate) paused: bool,
    /// `queue:NAME`.
    pub(crate) group: Ix<Group>,
    /// How many desks, and sessions that name it, refer to it.
    pub(crate) refs: u32,
    /// Derived: desks with a ready class or an open gate, and whether its group has a free slot.
    pub(crate) desks: BTreeSet<Ix<Desk>>,
    pub(crate) open: bool,
    /// Derived: how many pending jobs are in line, wait for their date, or are steps that are not next; and how many
    /// jobs are claimed.
    pub(crate) due: u64,
    pub(crate) scheduled: u64,
    pub(crate) waiting: u64,
    pub(crate) claimed: u64,
}

impl Queue {
    /// Nothing refers to it, and all its settings are the default.
    pub(crate) fn is_vacant(&self) -> bool {
        self.refs == 0 && self.priority.is_none() && !self.paused
    }

    pub(crate) fn priority(&self) -> u32 {
        self.priority.unwrap_or(crate::DEFAULT_QUEUE_PRIORITY)
    }
}

/// A task that a job, session or registration names.
#[derive(Debug)]
pub(crate) struct Task {
    pub(crate) name: Name,
    /// What apps registered, one row per app. The newest is last, and counts.
    pub(crate) registered: Vec<Arc<TaskOptions>>,
    /// How many desks, and sessions that name it, refer to it.
    pub(crate) refs: u32,
    /// Derived: desks that have a ready class or an open gate, in a queue that is neither full nor paused.
    pub(crate) desks: BTreeSet<Ix<Desk>>,
    /// Derived: live sessions that have a handler for it.
    pub(crate) sessions: Vec<Ix<Session>>,
}

impl Task {
    /// Nothing refers to it, and no app registered it.
    pub(crate) fn is_vacant(&self) -> bool {
        self.refs == 0 && self.registered.is_empty()
    }

    /// The registration that counts.
    pub(crate) fn options(&self) -> Option<&TaskOptions> {
        self.registered.last().map(|options| &**options)
    }
}

/// A group that live jobs, programs, a queue or a key of it refer to. `used` and `live` are caches over the rows of
/// jobs and programs.
#[derive(Debug)]
pub(crate) struct Group {
    pub(crate) label: Label,
    /// The effective limit.
    pub(crate) limit: Option<u32>,
    /// Slots that running jobs and programs hold.
    pub(crate) used: u64,
    /// Slots that all live jobs would hold together, plus those of programs.
    pub(crate) live: u64,
    /// Jobs and programs that have taken slots of it since the row was made. [`State::total`](super::State::total) has
    /// the whole sum.
    pub(crate) acquired: u64,
    /// How many classes, lanes, queues, keys and programs refer to it.
    pub(crate) refs: u32,
    /// `queue:NAME`: the queue.
    pub(crate) queue: Option<Ix<Queue>>,
    /// `GROUP/KEY`: its lanes in line. A parked one waits for room here.
    pub(crate) lanes: KeyLanes,
    /// For a group or an extra limit of jobs: the classes that wait at its gate, and those that need two or more slots.
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

/// The name of a group. A key refers to its group instead of repeating its name.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) enum Label {
    Cluster,
    Queue(Name),
    Group(Name),
    Key(Ix<Group>, Key),
}

impl Group {
    pub(crate) fn new(label: Label, limit: Option<u32>) -> Self {
        Self {
            label,
            limit,
            used: 0,
            live: 0,
            acquired: 0,
            refs: 0,
            queue: None,
            lanes: KeyLanes::default(),
            line: None,
        }
    }

    pub(crate) fn free(&self) -> u64 {
        self.limit.map_or(u64::MAX, |limit| u64::from(limit).saturating_sub(self.used))
    }

    /// Whether `need` more slots stay within the limit.
    pub(crate) fn has_room(&self, need: u32) -> bool {
        self.limit.is_none_or(|limit| self.used + u64::from(need) <= u64::from(limit))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A million pending jobs with a key each have a million of each of these three rows, so a new field must be
    /// noticed.
    #[test]
    fn rows_are_small() {
        assert!(size_of::<Job>() <= 88, "a job takes {} bytes", size_of::<Job>());
        assert!(size_of::<Lane>() <= 48, "a lane takes {} bytes", size_of::<Lane>());
        assert!(size_of::<Group>() <= 88, "a group takes {} bytes", size_of::<Group>());
    }
}
