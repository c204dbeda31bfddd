//! The rows: what the state knows about each job, session, queue, task and group.

use super::table::Ix;
use crate::lane::{ClassLine, Desk, Lane, Turn};
use crate::{
    Attempt, ExchangeReply, FenceToken, JobId, JobState, Json, Key, Name, NewSession, RetryPolicy, Stop,
};
use crate::{TaskOptions, Time};
use smallvec::SmallVec;
use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

/// A job, live or remembered. A pending job that never ran is one row of about 100 bytes; what only some
/// jobs have hangs off it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Job {
    pub(crate) id: JobId,
    pub(crate) lane: Ix<Lane>,
    pub(crate) priority: i32,
    /// Acceptance number: the last word in claim order.
    pub(crate) number: u64,
    pub(crate) submitted_at: Time,
    pub(crate) run_at: Time,
    pub(crate) attempts_used: u32,
    pub(crate) max_attempts: u32,
    pub(crate) payload: Json,
    pub(crate) options: Option<Arc<JobOptions>>,
    /// Present from the first claim, or from the end if it never ran.
    pub(crate) track: Option<Box<Track>>,
}

/// What most jobs leave at the default.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct JobOptions {
    pub(crate) good_until: Option<Time>,
    pub(crate) timeout_ms: Option<u64>,
    pub(crate) retry: Option<RetryPolicy>,
    pub(crate) idempotency_key: Option<Key>,
}

/// What happened to a job after it was accepted.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Track {
    pub(crate) phase: Phase,
    /// One, nearly always: it is here, not behind another allocation.
    pub(crate) attempts: SmallVec<[Attempt; 1]>,
    pub(crate) output: Option<Json>,
}

/// Where a job stands.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) enum Phase {
    #[default]
    Pending,
    Running(Run),
    Finished {
        state: JobState,
        at: Time,
    },
}

/// A claim: who owns the job, and since when.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Run {
    pub(crate) session: Ix<Session>,
    pub(crate) token: FenceToken,
    pub(crate) since: Time,
    /// The end that its timeout sets, whatever the session does.
    pub(crate) timeout_at: Option<Time>,
    pub(crate) cancel_requested: bool,
}

impl Job {
    pub(crate) fn phase(&self) -> &Phase {
        self.track.as_ref().map_or(&Phase::Pending, |track| &track.phase)
    }

    pub(crate) fn state(&self) -> JobState {
        match self.phase() {
            Phase::Pending => JobState::Pending,
            Phase::Running(_) => JobState::Running,
            Phase::Finished { state, .. } => *state,
        }
    }

    pub(crate) fn run(&self) -> Option<&Run> {
        match self.phase() {
            Phase::Running(run) => Some(run),
            Phase::Pending | Phase::Finished { .. } => None,
        }
    }

    pub(crate) fn turn(&self) -> Turn {
        Turn { priority: self.priority, run_at: self.run_at, number: self.number }
    }

    pub(crate) fn good_until(&self) -> Option<Time> {
        self.options.as_ref()?.good_until
    }

    pub(crate) fn idempotency_key(&self) -> Option<&Key> {
        self.options.as_ref()?.idempotency_key.as_ref()
    }

    pub(crate) fn attempts(&self) -> &[Attempt] {
        self.track.as_ref().map_or(&[], |track| &track.attempts)
    }
}

/// A live session.
#[derive(Debug)]
pub(crate) struct Session {
    pub(crate) row: SessionRow,
    /// What its next exchange must be told to stop.
    pub(crate) stops: BTreeMap<FenceToken, Stop>,
    /// Derived: the jobs that it owns.
    pub(crate) running: BTreeMap<FenceToken, Ix<Job>>,
}

/// What is stored of a session.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct SessionRow {
    pub(crate) new: Arc<NewSession>,
    pub(crate) serves: Arc<Serves>,
    pub(crate) opened_at: Time,
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
    /// Derived: pending jobs in line, and pending jobs that wait for their date.
    pub(crate) due: u64,
    pub(crate) scheduled: u64,
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
    pub(crate) options: Option<Arc<TaskOptions>>,
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
        self.refs == 0 && self.options.is_none()
    }
}

/// A group that live jobs, a queue or a key's parent refer to. `used` and `live` are caches of the job rows.
#[derive(Debug)]
pub(crate) struct Group {
    pub(crate) label: Label,
    /// The limit in force.
    pub(crate) limit: Option<u32>,
    /// Slots that running jobs hold.
    pub(crate) used: u64,
    /// Slots that all live jobs would hold.
    pub(crate) live: u64,
    /// Classes, lanes, queues and keys that point here.
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
