//! Who stands where: the indexes that make claiming cost as much as what it grants.
//!
//! - A **lane** holds the due jobs that ask for exactly the same: queue, task, group, key, cost and extra limits. What
//!   holds for its first job holds for all.
//! - A **class** is all lanes that differ only in their key: one look at the shared groups decides for all.
//! - A **desk** is where one queue's jobs of one task stand; a worker serves the desks of its queues and tasks.
//!
//! ```text
//! desk ─┬─ ready ── class ── lane ── jobs, by turn
//!       └─ open ─ group's gate ── class ── lane ── jobs
//! ```
//!
//! Blocked work leaves the desk: a lane whose key is full is *parked* on `GROUP/KEY`; a class whose group or
//! extra limit is full waits at the **gate** of that group. A full gate is not on the desk; it comes back, as a whole, when the group has a free
//! slot. Jobs of the future are not in a lane at all. So jobs that cannot run cost a claim nothing, however many there are.
//!
//! Where a class waits is a cache, never a rule: claims move classes lazily, and any placement that keeps
//! these two promises gives the same grants (the audit in the tests checks them):
//! 1. a parked lane's key has no room for it;
//! 2. a class is on its desk, or at a gate that is on its desk whenever the group has a free slot.

use crate::Time;
use crate::state::row::{Group, Job, Queue, Task};
use crate::state::{State, ordered::Ordered, table::Ix};
use smallvec::SmallVec;
use std::collections::BTreeSet;

/// A job's turn among jobs of queues of the same priority: claim order.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Turn {
    pub(crate) priority: i32,
    pub(crate) run_at: Time,
    pub(crate) number: u64,
}

#[derive(Debug)]
pub(crate) struct Lane {
    pub(crate) class: Ix<Class>,
    /// `GROUP/KEY`.
    pub(crate) key: Option<Ix<Group>>,
    pub(crate) jobs: Ordered<Turn, Ix<Job>>,
    /// Not in its class: its key has no room.
    pub(crate) parked: bool,
    /// Job rows, live or remembered.
    pub(crate) refs: u32,
}

#[derive(Debug)]
pub(crate) struct Class {
    pub(crate) desk: Ix<Desk>,
    pub(crate) group: Ix<Group>,
    pub(crate) cost: u32,
    /// By name, then key.
    pub(crate) extras: Box<[(Ix<Group>, u32)]>,
    /// Lanes that have a due job and are not parked, by the turn of their first job.
    pub(crate) lanes: Ordered<Turn, Ix<Lane>>,
    /// The group whose gate it waits at.
    pub(crate) gate: Option<Ix<Group>>,
    /// Lanes.
    pub(crate) refs: u32,
}

impl Class {
    /// The groups that all its lanes share, and the slots each job needs there.
    pub(crate) fn shared(&self) -> impl Iterator<Item = (Ix<Group>, u32)> {
        std::iter::once((self.group, self.cost)).chain(self.extras.iter().copied())
    }

    fn head(&self) -> Option<Turn> {
        self.lanes.first().map(|(turn, _)| turn)
    }
}

#[derive(Debug)]
pub(crate) struct Desk {
    pub(crate) queue: Ix<Queue>,
    pub(crate) task: Ix<Task>,
    /// Classes that wait at no gate, by the turn of their first job.
    pub(crate) ready: Ordered<Turn, Ix<Class>>,
    /// Groups that have a free slot and classes of this desk at their gate.
    pub(crate) open: BTreeSet<Ix<Group>>,
}

/// The classes of one group.
#[derive(Debug, Default)]
pub(crate) struct ClassLine {
    /// At this group's gate, by desk, then by the turn of their first job.
    pub(crate) waiting: BTreeSet<(Ix<Desk>, Turn, Ix<Class>)>,
    /// With a due job that needs two or more slots here, wherever they stand: by queue priority, then turn.
    pub(crate) big: BTreeSet<(u32, Turn, Ix<Class>)>,
    /// The gates are on their desks.
    pub(crate) open: bool,
}

impl Group {
    fn line(&mut self) -> &mut ClassLine {
        let open = self.free() > 0;
        self.line.get_or_insert_with(|| Box::new(ClassLine { open, ..ClassLine::default() }))
    }
}

impl ClassLine {
    /// The first class of a desk at this gate whose turn comes after `turn`.
    pub(crate) fn after(&self, desk: Ix<Desk>, turn: Option<Turn>) -> Option<(Turn, Ix<Class>)> {
        let from =
            turn.unwrap_or(Turn { priority: i32::MIN, run_at: Time::from_millis(i64::MIN), number: 0 });
        // Turns are unique, so the first handle with the next number lies after every entry of `from`.
        let from = Turn { number: from.number + u64::from(turn.is_some()), ..from };
        let (at, turn, class) = *self.waiting.range((desk, from, Ix::FIRST)..).next()?;
        (at == desk).then_some((turn, class))
    }

    fn desks(&self) -> Vec<Ix<Desk>> {
        let last = Turn { priority: i32::MAX, run_at: Time::from_millis(i64::MAX), number: u64::MAX };
        let mut desks = Vec::new();
        let mut next = self.waiting.first();
        while let Some(&(desk, ..)) = next {
            desks.push(desk);
            // Skips to the next desk: the classes between them are not visited.
            next = self.waiting.range((desk, last, Ix::LAST)..).next();
        }
        desks
    }
}

/// The groups of a lane and the slots that each of its jobs needs there, the narrowest first: key, group,
/// extra limits by name, queue, cluster.
pub(crate) type Needs = SmallVec<[(Ix<Group>, u32); 6]>;

impl State {
    pub(crate) fn class(&self, lane: Ix<Lane>) -> &Class {
        &self.classes[self.lanes[lane].class]
    }

    pub(crate) fn desk(&self, class: &Class) -> &Desk {
        &self.desks[class.desk]
    }

    pub(crate) fn queue(&self, class: &Class) -> &Queue {
        &self.queues[self.desks[class.desk].queue]
    }

    pub(crate) fn needs(&self, lane: Ix<Lane>) -> Needs {
        let lane = &self.lanes[lane];
        let class = &self.classes[lane.class];
        let queue = self.desks[class.desk].queue;
        let key = lane.key.map(|key| (key, class.cost));
        let outer = [(self.queues[queue].group, 1), (State::CLUSTER, 1)];
        key.into_iter().chain(class.shared()).chain(outer).collect()
    }

    /// A due job takes its place in line.
    pub(crate) fn enter_lane(&mut self, lane: Ix<Lane>, turn: Turn, job: Ix<Job>) {
        let before = self.lanes[lane].jobs.first();
        self.lanes[lane].jobs.insert(turn, job);
        self.lane_changed(lane, before.map(|(turn, _)| turn));
    }

    /// A job leaves the line, from any place in it.
    pub(crate) fn leave_lane(&mut self, lane: Ix<Lane>, turn: Turn) {
        let before = self.lanes[lane].jobs.first();
        let was_there = self.lanes[lane].jobs.remove(turn);
        debug_assert!(was_there, "a due job stands in its lane");
        self.lane_changed(lane, before.map(|(turn, _)| turn));
    }

    /// Takes a lane whose key is full out of its class.
    pub(crate) fn park_lane(&mut self, lane: Ix<Lane>) {
        let head = self.lanes[lane].jobs.first().map(|(turn, _)| turn);
        self.seat_lane(lane, head, None);
        self.lanes[lane].parked = true;
    }

    fn lane_changed(&mut self, lane: Ix<Lane>, before: Option<Turn>) {
        let row = &self.lanes[lane];
        if !row.parked {
            let after = row.jobs.first().map(|(turn, _)| turn);
            self.seat_lane(lane, before, after);
        }
    }

    fn seat_lane(&mut self, lane: Ix<Lane>, before: Option<Turn>, after: Option<Turn>) {
        if before == after {
            return;
        }
        let class_ix = self.lanes[lane].class;
        let class = &mut self.classes[class_ix];
        let class_before = class.head();
        if let Some(turn) = before {
            class.lanes.remove(turn);
        }
        if let Some(turn) = after {
            class.lanes.insert(turn, lane);
        }
        let class_after = class.head();
        self.seat_class(class_ix, class_before, class_after);
    }

    fn seat_class(&mut self, class_ix: Ix<Class>, before: Option<Turn>, after: Option<Turn>) {
        if before == after {
            return;
        }
        self.unseat_class(class_ix, before);
        let class = &self.classes[class_ix];
        let (desk_ix, gate) = (class.desk, class.gate);
        let Some(turn) = after else { return };
        match gate {
            None => self.desks[desk_ix].ready.insert(turn, class_ix),
            Some(group) => {
                self.line_mut(group).waiting.insert((desk_ix, turn, class_ix));
                self.seat_gate(group, desk_ix);
            }
        }
        self.for_each_big(class_ix, |priority, line| {
            line.big.insert((priority, turn, class_ix));
        });
    }

    fn unseat_class(&mut self, class_ix: Ix<Class>, before: Option<Turn>) {
        let Some(turn) = before else { return };
        let class = &self.classes[class_ix];
        let (desk_ix, gate) = (class.desk, class.gate);
        match gate {
            None => {
                self.desks[desk_ix].ready.remove(turn);
            }
            Some(group) => {
                self.line_mut(group).waiting.remove(&(desk_ix, turn, class_ix));
                self.seat_gate(group, desk_ix);
            }
        }
        self.for_each_big(class_ix, |priority, line| {
            line.big.remove(&(priority, turn, class_ix));
        });
    }

    /// Moves a class that found `group` full to its gate.
    pub(crate) fn send_to_gate(&mut self, class_ix: Ix<Class>, group: Ix<Group>) {
        let class = &self.classes[class_ix];
        if class.gate == Some(group) {
            return;
        }
        let head = class.head();
        self.unseat_class(class_ix, head);
        self.classes[class_ix].gate = Some(group);
        self.seat_class(class_ix, None, head);
    }

    /// Puts a gate on its desk, or takes it off, as its group and its classes want it.
    fn seat_gate(&mut self, group: Ix<Group>, desk: Ix<Desk>) {
        let line = self.line_mut(group);
        if line.open && line.after(desk, None).is_some() {
            self.desks[desk].open.insert(group);
        } else {
            self.desks[desk].open.remove(&group);
        }
    }

    /// A group has more or less room than before: opens or closes its gates, and wakes parked lanes.
    pub(crate) fn room_changed(&mut self, group_ix: Ix<Group>) {
        let group = &mut self.groups[group_ix];
        let open = group.free() > 0;
        if let Some(line) = &mut group.line
            && line.open != open
        {
            line.open = open;
            for desk in line.desks() {
                self.seat_gate(group_ix, desk);
            }
        }
        if open && !self.groups[group_ix].lanes.is_empty() {
            self.wake_lanes(group_ix);
        }
    }

    fn wake_lanes(&mut self, key: Ix<Group>) {
        for at in 0.. {
            let Some(lane_ix) = self.groups[key].lanes.get(at) else { break };
            let lane = &self.lanes[lane_ix];
            if lane.parked && self.groups[key].has_room(self.classes[lane.class].cost) {
                let head = lane.jobs.first().map(|(turn, _)| turn);
                self.lanes[lane_ix].parked = false;
                self.seat_lane(lane_ix, None, head);
            }
        }
    }

    /// A queue's priority changes: its big jobs stand elsewhere in their groups' lines.
    pub(crate) fn set_queue_priority(&mut self, queue: Ix<Queue>, priority: Option<u32>) {
        let classes: Vec<_> = self
            .classes
            .iter()
            .filter(|(_, class)| self.desks[class.desk].queue == queue)
            .filter_map(|(ix, class)| Some((ix, class.head()?)))
            .collect();
        for &(class, head) in &classes {
            self.unseat_class(class, Some(head));
        }
        self.queues[queue].priority = priority;
        for &(class, head) in &classes {
            self.seat_class(class, None, Some(head));
        }
    }

    fn for_each_big(&mut self, class_ix: Ix<Class>, mut change: impl FnMut(u32, &mut ClassLine)) {
        let class = &self.classes[class_ix];
        if class.cost < 2 && class.extras.iter().all(|&(_, need)| need < 2) {
            return;
        }
        let priority = self.queue(class).priority();
        for (group, need) in class.shared() {
            if need >= 2 {
                change(priority, self.groups[group].line());
            }
        }
    }

    fn line_mut(&mut self, group: Ix<Group>) -> &mut ClassLine {
        self.groups[group].line()
    }
}
