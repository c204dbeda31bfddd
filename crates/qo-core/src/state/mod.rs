//! The state: rows, and the indexes that are derived from them.
//!
//! Rows change only in the few functions of this module (`insert_job`, `change_job`, `set_limits`, …). Each of them
//! does three things:
//! 1. It notes the old row in the [journal] while a speculation is under way.
//! 2. It takes the row out of the derived indexes, changes it, and puts it back.
//! 3. It updates counts, lanes and workflows that depend on the row.
//!
//! So taking a decision back runs the same few functions in reverse, and no rule has to know about it.

mod app;
mod audit;
mod history;
mod intern;
mod journal;
mod limit;
pub(crate) mod ordered;
mod picture;
mod program;
pub(crate) mod row;
mod schedule;
mod session;
pub(crate) mod snapshot;
pub(crate) mod table;
mod token;
mod total;
mod view;
mod workflow;

use crate::Time;
use crate::lane::{Class, Desk, Lane};
use crate::{AuditEntry, Retention, SessionId, Token, TokenId};
use crate::{Configuration, FenceToken, GroupRef, JobId, JobProgress, Key, LeaseId, Limits, Name, Push};
use hashbrown::{DefaultHashBuilder, HashMap, HashTable};
use journal::Undo;
use row::{At, Group, Job, Label, Past, Phase, Program, Queue, ScheduleRow, Session, Task, Workflow};
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;
use table::{Ix, Table};
use total::Totals;

/// Everything that a namespace holds. See [`decide`](crate::decide()) and [`State::evolve`].
#[derive(Debug)]
pub struct State {
    pub(crate) now: Time,
    pub(crate) next_number: u64,
    pub(crate) next_token: u64,

    pub(crate) jobs: Table<Job>,
    /// Jobs that have ended, until they are forgotten.
    pub(crate) past: Table<Past>,
    pub(crate) retention: Retention,
    pub(crate) workflows: Table<Workflow>,
    /// Slots of programs.
    pub(crate) programs: Table<Program>,
    pub(crate) schedules: BTreeMap<Name, ScheduleRow>,
    pub(crate) sessions: Table<Session>,
    pub(crate) queues: Table<Queue>,
    pub(crate) tasks: Table<Task>,
    pub(crate) groups: Table<Group>,
    pub(crate) limits: BTreeMap<GroupRef, Limits>,
    /// The configuration of each app, in the order of their newest push. Where two name the same setting, the later one
    /// counts. The rows above hold the values that count.
    pub(crate) apps: Vec<Arc<Configuration>>,
    /// The last pushes that changed something, oldest first.
    pub(crate) pushes: VecDeque<Arc<Push>>,
    /// Sessions that ended, so that a late request cannot revive one.
    pub(crate) ended_sessions: BTreeMap<SessionId, Time>,
    /// Tokens, until they are revoked. An expired one may still be here.
    pub(crate) tokens: BTreeMap<TokenId, Arc<Token>>,
    /// The audit log, oldest first. Numbers have no gaps.
    pub(crate) audit_log: VecDeque<Arc<AuditEntry>>,

    // Derived from the rows above; see `lane`.
    pub(crate) desks: Table<Desk>,
    pub(crate) classes: Table<Class>,
    pub(crate) lanes: Table<Lane>,
    /// Slots that claimed jobs need when they start, for groups where there are any.
    claimed_slots: HashMap<Ix<Group>, u64>,
    /// Rows that may have no reference left. They are freed when no speculation can bring them back.
    vacant: Vec<Vacant>,
    /// How often slots were taken and refused, of groups that have a limit; beside what their rows have counted.
    pub(super) totals: BTreeMap<GroupRef, Totals>,
    /// How many submit-side limits there are. Each goes with the last live job of its group.
    submit_limits: usize,

    // Lookups. Tables of handles: the keys are in the rows.
    job_by_id: HashTable<Ix<Job>>,
    pub(crate) job_by_number: BTreeMap<u64, Ix<Job>>,
    past_by_id: HashTable<Ix<Past>>,
    pub(crate) past_by_number: BTreeMap<u64, Ix<Past>>,
    job_by_idempotency_key: HashMap<Key, At>,
    pub(crate) workflow_by_name: BTreeMap<Name, Ix<Workflow>>,
    pub(crate) program_by_id: HashMap<LeaseId, Ix<Program>>,
    pub(crate) session_by_id: BTreeMap<SessionId, Ix<Session>>,
    pub(crate) queue_by_name: BTreeMap<Name, Ix<Queue>>,
    pub(crate) task_by_name: HashMap<Name, Ix<Task>>,
    group_by_label: HashTable<Ix<Group>>,
    desk_by_parts: HashMap<(Ix<Queue>, Ix<Task>), Ix<Desk>>,
    class_by_parts: HashTable<Ix<Class>>,
    lane_by_parts: HashTable<Ix<Lane>>,
    hasher: DefaultHashBuilder,
    /// The job of the event to come, where the rule that decides it knows the row. Saves a lookup.
    pub(crate) recent: Option<Ix<Job>>,

    // Timers: what becomes due, and when.
    pub(crate) scheduled: BTreeMap<(Time, u64), Ix<Job>>,
    pub(crate) expiries: BTreeMap<(Time, u64), Ix<Job>>,
    pub(crate) timeouts: BTreeMap<(Time, FenceToken), Ix<Job>>,
    pub(crate) claims: BTreeMap<(Time, FenceToken), Ix<Job>>,
    pub(crate) program_ends: BTreeMap<(Time, FenceToken), Ix<Program>>,
    pub(crate) session_ends: BTreeMap<(Time, SessionId), Ix<Session>>,
    pub(crate) ended_order: BTreeSet<(Time, SessionId)>,
    pub(crate) ticks: BTreeSet<(Time, Name)>,
    pub(crate) retained: history::Retained,

    journal: Option<Vec<Undo>>,
}

/// A row that may be freed if nothing refers to it any more.
#[derive(Debug, Clone, Copy)]
enum Vacant {
    Lane(Ix<Lane>),
    Queue(Ix<Queue>),
    Task(Ix<Task>),
    Group(Ix<Group>),
    Workflow(Ix<Workflow>),
}

impl Default for State {
    fn default() -> Self {
        Self::new()
    }
}

impl State {
    pub(crate) const CLUSTER: Ix<Group> = Ix::FIRST;

    /// An empty namespace.
    pub fn new() -> Self {
        let mut state = Self {
            now: Time::from_millis(i64::MIN),
            next_number: 1,
            next_token: 1,
            jobs: Table::default(),
            past: Table::default(),
            retention: Retention::default(),
            workflows: Table::default(),
            programs: Table::default(),
            schedules: BTreeMap::new(),
            sessions: Table::default(),
            queues: Table::default(),
            tasks: Table::default(),
            groups: Table::default(),
            limits: BTreeMap::new(),
            apps: Vec::new(),
            pushes: VecDeque::new(),
            ended_sessions: BTreeMap::new(),
            tokens: BTreeMap::new(),
            audit_log: VecDeque::new(),
            desks: Table::default(),
            classes: Table::default(),
            lanes: Table::default(),
            claimed_slots: HashMap::new(),
            vacant: Vec::new(),
            totals: BTreeMap::new(),
            submit_limits: 0,
            job_by_id: HashTable::new(),
            job_by_number: BTreeMap::new(),
            past_by_id: HashTable::new(),
            past_by_number: BTreeMap::new(),
            job_by_idempotency_key: HashMap::new(),
            workflow_by_name: BTreeMap::new(),
            program_by_id: HashMap::new(),
            session_by_id: BTreeMap::new(),
            queue_by_name: BTreeMap::new(),
            task_by_name: HashMap::new(),
            group_by_label: HashTable::new(),
            desk_by_parts: HashMap::new(),
            class_by_parts: HashTable::new(),
            lane_by_parts: HashTable::new(),
            hasher: DefaultHashBuilder::default(),
            recent: None,
            scheduled: BTreeMap::new(),
            expiries: BTreeMap::new(),
            timeouts: BTreeMap::new(),
            claims: BTreeMap::new(),
            program_ends: BTreeMap::new(),
            session_ends: BTreeMap::new(),
            ended_order: BTreeSet::new(),
            ticks: BTreeSet::new(),
            retained: history::Retained::default(),
            journal: None,
        };
        let cluster = state.intern_group(Label::Cluster);
        state.groups[cluster].refs += 1;
        debug_assert_eq!(cluster, Self::CLUSTER);
        state
    }

    /// Store time of the last event.
    pub fn now(&self) -> Time {
        self.now
    }

    /// How long ended jobs are remembered.
    pub fn retention(&self) -> Retention {
        self.retention
    }

    // ── jobs ────────────────────────────────────────────────────────────────────────────────────────

    pub(crate) fn insert_job(&mut self, job: Job) -> Ix<Job> {
        let ix = self.add_job(job);
        self.note(|| Undo::JobInserted(ix));
        ix
    }

    pub(crate) fn change_job(&mut self, ix: Ix<Job>, change: impl FnOnce(&mut Job)) {
        if self.journal.is_some() {
            let old = Box::new(self.jobs[ix].clone());
            self.note(|| Undo::JobChanged(ix, old));
        }
        self.unlink_job(ix);
        change(&mut self.jobs[ix]);
        self.link_job(ix);
        self.seat_workflow_of(ix);
    }

    /// Records the progress of a running job. No index depends on it.
    pub(crate) fn set_progress(&mut self, ix: Ix<Job>, progress: Option<Box<JobProgress>>) {
        let track = self.jobs[ix].track.as_deref_mut();
        let Some(track) = track else { return };
        let old = std::mem::replace(&mut track.progress, progress);
        self.note(|| Undo::Progress(ix, old));
    }

    /// Removes a job from the live ones and returns its row.
    pub(crate) fn remove_job(&mut self, ix: Ix<Job>) -> Job {
        let old = self.drop_job(ix);
        if self.journal.is_some() {
            let old = Box::new(old.clone());
            self.note(|| Undo::JobRemoved(ix, old));
        }
        old
    }

    fn add_job(&mut self, job: Job) -> Ix<Job> {
        let (id, number, key, lane) = (job.id, job.number, job.idempotency_key().cloned(), job.lane);
        let ix = self.jobs.insert(job);
        let hash = self.hash(&id);
        let (jobs, hasher) = (&self.jobs, &self.hasher);
        self.job_by_id.insert_unique(hash, ix, |&ix| intern::hash_with(hasher, &jobs[ix].id));
        self.job_by_number.insert(number, ix);
        if let Some(key) = key {
            self.job_by_idempotency_key.insert(key, At::Live(ix));
        }
        self.lanes[lane].refs += 1;
        self.count_live(lane, true);
        self.enroll(self.jobs[ix].membership(), At::Live(ix));
        self.link_job(ix);
        self.seat_workflow_of(ix);
        ix
    }

    fn drop_job(&mut self, ix: Ix<Job>) -> Job {
        self.unlink_job(ix);
        let job = self.jobs.remove(ix);
        self.count_live(job.lane, false);
        self.dismiss(job.membership(), At::Live(ix));
        let hash = self.hash(&job.id);
        if let Ok(entry) = self.job_by_id.find_entry(hash, |&at| at == ix) {
            entry.remove();
        }
        self.job_by_number.remove(&job.number);
        if let Some(key) = job.idempotency_key() {
            self.job_by_idempotency_key.remove(key);
        }
        let lane = &mut self.lanes[job.lane];
        lane.refs -= 1;
        if lane.refs == 0 {
            self.vacant.push(Vacant::Lane(job.lane));
        }
        job
    }

    /// Puts a job into every index of its phase, and counts its slots.
    fn link_job(&mut self, ix: Ix<Job>) {
        self.index_job(ix, true);
    }

    fn unlink_job(&mut self, ix: Ix<Job>) {
        self.index_job(ix, false);
    }

    fn index_job(&mut self, ix: Ix<Job>, link: bool) {
        let job = &self.jobs[ix];
        let (lane, number, rank) = (job.lane, job.number, job.rank());
        let (queue, membership) = (self.desk(self.class(lane)).queue, job.membership());
        match *job.phase() {
            Phase::Pending => {
                let (run_at, good_until) = (job.run_at, job.good_until());
                let waits = membership.is_some_and(|at| self.workflows[at.workflow].next != Some(ix));
                let due = run_at <= self.now;
                let queue = &mut self.queues[queue];
                let count = match (waits, due) {
                    (true, _) => &mut queue.waiting,
                    (false, true) => &mut queue.due,
                    (false, false) => &mut queue.scheduled,
                };
                *count = if link { *count + 1 } else { *count - 1 };
                match (waits, due, link) {
                    (true, ..) => {}
                    (false, true, true) => self.enter_lane(lane, rank, ix),
                    (false, true, false) => self.leave_lane(lane, rank),
                    (false, false, _) => toggle(&mut self.scheduled, (run_at, number), ix, link),
                }
                if let Some(good_until) = good_until {
                    toggle(&mut self.expiries, (good_until, number), ix, link);
                }
            }
            Phase::Claimed(claim) => {
                toggle(&mut self.sessions[claim.session].claimed, claim.token, ix, link);
                toggle(&mut self.claims, (claim.until, claim.token), ix, link);
                let claimed = &mut self.queues[queue].claimed;
                *claimed = if link { *claimed + 1 } else { *claimed - 1 };
                self.count_claimed(lane, link);
            }
            Phase::Running(run) => {
                if let Some(at) = membership {
                    self.workflows[at.workflow].running = link.then_some(at.step);
                }
                let running = &mut self.sessions[run.session].running;
                toggle(running, run.token, ix, link);
                if let Some(at) = run.timeout_at {
                    toggle(&mut self.timeouts, (at, run.token), ix, link);
                }
                self.count_used(lane, link);
            }
        }
    }

    /// A job counts from its acceptance to its end, in every phase.
    fn count_live(&mut self, lane: Ix<Lane>, link: bool) {
        for (group, need) in self.needs(lane) {
            let live = &mut self.groups[group].live;
            *live = if link { *live + u64::from(need) } else { *live - u64::from(need) };
        }
    }

    fn count_claimed(&mut self, lane: Ix<Lane>, link: bool) {
        for (group, need) in self.needs(lane) {
            let claimed = self.claimed_slots.entry(group).or_default();
            *claimed = if link { *claimed + u64::from(need) } else { *claimed - u64::from(need) };
            if *claimed == 0 {
                self.claimed_slots.remove(&group);
            }
        }
    }

    /// Slots of a group that claimed jobs need when they start.
    pub(crate) fn claimed_slots(&self, group: Ix<Group>) -> u64 {
        if self.claimed_slots.is_empty() {
            return 0;
        }
        self.claimed_slots.get(&group).copied().unwrap_or(0)
    }

    fn count_used(&mut self, lane: Ix<Lane>, link: bool) {
        for (group, need) in self.needs(lane) {
            let used = &mut self.groups[group].used;
            *used = if link { *used + u64::from(need) } else { *used - u64::from(need) };
            self.room_changed(group);
        }
    }

    pub(crate) fn find_job(&self, id: JobId) -> Option<Ix<Job>> {
        self.job_by_id.find(self.hash(&id), |&ix| self.jobs[ix].id == id).copied()
    }

    pub(crate) fn find_by_idempotency_key(&self, key: &Key) -> Option<At> {
        self.job_by_idempotency_key.get(key).copied()
    }

    // ── time ────────────────────────────────────────────────────────────────────────────────────────

    pub(crate) fn set_now(&mut self, now: Time) {
        let old = std::mem::replace(&mut self.now, now);
        let mut due = Vec::new();
        while let Some(first) = self.scheduled.first_entry().filter(|first| first.key().0 <= now) {
            let job = first.remove();
            self.stand_in_line(job, true);
            due.push(job);
        }
        self.note(|| Undo::Time(old, due));
    }

    /// Moves a job between `scheduled` and its lane. When it becomes due, the caller has taken it out of `scheduled`.
    fn stand_in_line(&mut self, ix: Ix<Job>, due: bool) {
        let job = &self.jobs[ix];
        let (lane, rank) = (job.lane, job.rank());
        let queue = self.desk(self.class(lane)).queue;
        let queue = &mut self.queues[queue];
        if due {
            queue.scheduled -= 1;
            queue.due += 1;
            self.enter_lane(lane, rank, ix);
        } else {
            queue.due -= 1;
            queue.scheduled += 1;
            self.leave_lane(lane, rank);
            self.scheduled.insert((rank.run_at, rank.number), ix);
        }
    }
}

fn toggle<K: Ord, V>(map: &mut BTreeMap<K, V>, key: K, value: V, insert: bool) {
    if insert {
        map.insert(key, value);
    } else {
        map.remove(&key);
    }
}
