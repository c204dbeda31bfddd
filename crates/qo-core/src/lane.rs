//! Where jobs stand: the indexes that make a claim cost as much as it grants.
//!
//! - A **lane** holds the jobs in line that ask for exactly the same: queue, task, group, key, cost and extra limits. A
//!   check of its first job holds for all its jobs.
//! - A **class** is all lanes that differ only in their key. One check of the shared groups decides for all its lanes.
//! - A **desk** holds the classes of one queue and one task. A worker serves the desks of its queues and tasks.
//! - The **gate** of a group holds classes that wait for slots of that group.
//!
//! ```text
//! desk ─┬─ ready ── class ── lane ── jobs, by rank
//!       └─ open ─ group's gate ── class ── lane ── jobs
//! ```
//!
//! How a job that cannot run leaves the path of a claim:
//! 1. A job that is not due, or not the next step of its workflow, is in no lane.
//! 2. A lane whose key is full is *parked* on `GROUP/KEY`. The key wakes it when it has room.
//! 3. A class whose group or extra limit is full moves to the gate of that group. A gate is on its desks only while its
//!    group has a free slot. It comes and goes as a whole, so opening it costs the number of desks, not of waiting
//!    classes.
//! 4. The desks of a queue that is full or paused are not listed with their task, and a claim reads only listed desks.
//!
//! So jobs that cannot run cost a claim nothing, however many there are.
//!
//! Where a class waits is a cache, not a rule. Claims move classes lazily. Every placement that keeps these two
//! invariants gives the same grants (the audit in the tests checks them):
//! 1. The key of a parked lane has no room for it.
//! 2. A class is ready on its desk, or at a gate that is on that desk whenever the gate's group has a free slot.

use crate::Time;
use crate::state::row::{Group, Job, Queue, Spec, Task};
use crate::state::{State, ordered::Ordered, table::Ix};
use smallvec::SmallVec;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// A job's place in claim order, within queues of one priority.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Rank {
    pub(crate) priority: i32,
    pub(crate) run_at: Time,
    pub(crate) number: u64,
}

impl Rank {
    const FIRST: Self = Self { priority: i32::MIN, run_at: Time::from_millis(i64::MIN), number: 0 };
    pub(crate) const LAST: Self =
        Self { priority: i32::MAX, run_at: Time::from_millis(i64::MAX), number: u64::MAX };
}

#[derive(Debug)]
pub(crate) struct Lane {
    pub(crate) class: Ix<Class>,
    /// `GROUP/KEY`.
    pub(crate) key: Option<Ix<Group>>,
    pub(crate) jobs: Ordered<Rank, Ix<Job>>,
    /// It is not in its class, because its key has no room.
    pub(crate) parked: bool,
    /// How many live jobs refer to it.
    pub(crate) refs: u32,
}

impl Lane {
    fn head(&self) -> Option<Rank> {
        self.jobs.first().map(|(rank, _)| rank)
    }
}

#[derive(Debug)]
pub(crate) struct Class {
    pub(crate) desk: Ix<Desk>,
    pub(crate) group: Ix<Group>,
    pub(crate) cost: u32,
    /// By name, then key.
    pub(crate) extras: Box<[(Ix<Group>, u32)]>,
    /// Lanes that have a due job and are not parked, by the rank of their first job.
    pub(crate) lanes: Ordered<Rank, Ix<Lane>>,
    /// The group whose gate it waits at.
    pub(crate) gate: Option<Ix<Group>>,
    /// What its jobs have in common, as names. Made when the first of them ends.
    pub(crate) spec: Option<Arc<Spec>>,
    /// How many lanes refer to it.
    pub(crate) refs: u32,
}

impl Class {
    /// The groups that all its lanes share, and the slots each job needs there.
    pub(crate) fn shared(&self) -> impl Iterator<Item = (Ix<Group>, u32)> {
        std::iter::once((self.group, self.cost)).chain(self.extras.iter().copied())
    }

    fn head(&self) -> Option<Rank> {
        self.lanes.first().map(|(rank, _)| rank)
    }
}

#[derive(Debug)]
pub(crate) struct Desk {
    pub(crate) queue: Ix<Queue>,
    pub(crate) task: Ix<Task>,
    /// Classes that wait at no gate, by the rank of their first job.
    pub(crate) ready: Ordered<Rank, Ix<Class>>,
    /// Gates of groups that have a free slot, by the rank of the first job there.
    pub(crate) open: Ordered<Rank, Ix<Group>>,
    /// The desk has a ready class or an open gate.
    pub(crate) stands: bool,
    /// `stands`, and its queue is neither full nor paused: its task lists it.
    pub(crate) listed: bool,
    /// How many classes refer to it.
    pub(crate) refs: u32,
}

/// The classes that wait for slots of one group.
#[derive(Debug, Default)]
pub(crate) struct ClassLine {
    /// Classes at this group's gate, by desk, then by the rank of their first job.
    pub(crate) waiting: BTreeSet<(Ix<Desk>, Rank, Ix<Class>)>,
    /// The desks that have this group's gate open, and the rank of the first job there.
    pub(crate) open_at: BTreeMap<Ix<Desk>, Rank>,
    /// Classes that need two or more slots here and have at least one lane that is not parked, whether the class is
    /// ready or at a gate. By desk, then rank.
    pub(crate) big: BTreeMap<Ix<Desk>, BTreeSet<(Rank, Ix<Class>)>>,
    /// How many of the classes in `big` need how many slots. The greatest need shows at once whether any of them could
    /// lack slots.
    pub(crate) big_needs: BTreeMap<u32, u32>,
    /// The group has a free slot: its gates are on their desks.
    pub(crate) open: bool,
}

impl Group {
    fn line(&mut self) -> &mut ClassLine {
        let open = self.free() > 0;
        self.line.get_or_insert_with(|| Box::new(ClassLine { open, ..ClassLine::default() }))
    }
}

impl ClassLine {
    /// The first class of a desk at this gate whose rank comes after `rank`.
    pub(crate) fn after(&self, desk: Ix<Desk>, rank: Option<Rank>) -> Option<(Rank, Ix<Class>)> {
        let from = rank.unwrap_or(Rank::FIRST);
        // Ranks are unique, so the first entry with the next number lies after every entry of `from`.
        let from = Rank { number: from.number + u64::from(rank.is_some()), ..from };
        let (at, rank, class) = *self.waiting.range((desk, from, Ix::FIRST)..).next()?;
        (at == desk).then_some((rank, class))
    }

    fn desks(&self) -> Vec<Ix<Desk>> {
        let mut desks = Vec::new();
        let mut next = self.waiting.first();
        while let Some(&(desk, ..)) = next {
            desks.push(desk);
            // Skips to the next desk: the classes between them are not visited.
            next = self.waiting.range((desk, Rank::LAST, Ix::LAST)..).next();
        }
        desks
    }
}

/// The groups of a lane and the slots that each of its jobs needs there, narrowest first: key, group, extra limits by
/// name, queue, cluster.
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

    /// Puts a job in line.
    pub(crate) fn enter_lane(&mut self, lane: Ix<Lane>, rank: Rank, job: Ix<Job>) {
        let before = self.lanes[lane].head();
        self.lanes[lane].jobs.insert(rank, job);
        if before.is_none()
            && let Some(key) = self.lanes[lane].key
        {
            self.groups[key].lanes.insert(lane);
        }
        self.lane_changed(lane, before);
    }

    /// Takes a job out of line, from any place in it.
    pub(crate) fn leave_lane(&mut self, lane: Ix<Lane>, rank: Rank) {
        let before = self.lanes[lane].head();
        let was_there = self.lanes[lane].jobs.remove(rank);
        debug_assert!(was_there, "a due job stands in its lane");
        self.lane_changed(lane, before);
        let row = &mut self.lanes[lane];
        if row.head().is_none()
            && let Some(key) = row.key
        {
            row.parked = false;
            self.groups[key].lanes.remove(lane);
        }
    }

    /// Takes a lane whose key is full out of its class.
    pub(crate) fn park_lane(&mut self, lane: Ix<Lane>) {
        let head = self.lanes[lane].head();
        self.seat_lane(lane, head, None);
        self.lanes[lane].parked = true;
    }

    fn lane_changed(&mut self, lane: Ix<Lane>, before: Option<Rank>) {
        let row = &self.lanes[lane];
        if !row.parked {
            let after = row.head();
            self.seat_lane(lane, before, after);
        }
    }

    fn seat_lane(&mut self, lane: Ix<Lane>, before: Option<Rank>, after: Option<Rank>) {
        if before == after {
            return;
        }
        let class_ix = self.lanes[lane].class;
        let class = &mut self.classes[class_ix];
        let class_before = class.head();
        class.lanes.reseat(before, after, lane);
        let class_after = class.head();
        self.seat_class(class_ix, class_before, class_after);
    }

    fn seat_class(&mut self, class_ix: Ix<Class>, before: Option<Rank>, after: Option<Rank>) {
        if before == after {
            return;
        }
        let class = &self.classes[class_ix];
        let (desk_ix, gate) = (class.desk, class.gate);
        match gate {
            None => {
                self.desks[desk_ix].ready.reseat(before, after, class_ix);
            }
            Some(group) => {
                let place = |rank| (desk_ix, rank, class_ix);
                reseat(&mut self.groups[group].line().waiting, before.map(place), after.map(place));
                self.seat_gate(group, desk_ix);
            }
        }
        self.list_desk(desk_ix);
        self.seat_big(class_ix, before, after);
    }

    /// Updates `big` and `big_needs` of each group where the class needs two or more slots.
    fn seat_big(&mut self, class_ix: Ix<Class>, before: Option<Rank>, after: Option<Rank>) {
        let class = &self.classes[class_ix];
        for (group, need) in class.shared().filter(|&(_, need)| need >= 2) {
            let line = self.groups[group].line();
            let at_desk = line.big.entry(class.desk).or_default();
            let place = |rank| (rank, class_ix);
            reseat(at_desk, before.map(place), after.map(place));
            if at_desk.is_empty() {
                line.big.remove(&class.desk);
            }
            let count = line.big_needs.entry(need).or_default();
            *count = *count + u32::from(after.is_some()) - u32::from(before.is_some());
            if *count == 0 {
                line.big_needs.remove(&need);
            }
        }
    }

    /// Moves a class that lacks room in `group` to its gate.
    pub(crate) fn send_to_gate(&mut self, class_ix: Ix<Class>, group: Ix<Group>) {
        let class = &self.classes[class_ix];
        if class.gate != Some(group) {
            let head = class.head();
            self.seat_class(class_ix, head, None);
            self.classes[class_ix].gate = Some(group);
            self.seat_class(class_ix, None, head);
        }
    }

    /// Opens or closes a group's gate on a desk, according to the group's room and the classes that wait there.
    fn seat_gate(&mut self, group: Ix<Group>, desk: Ix<Desk>) {
        let line = self.groups[group].line();
        let after = line.after(desk, None).map(|(rank, _)| rank).filter(|_| line.open);
        let before = match after {
            Some(rank) => line.open_at.insert(desk, rank),
            None => line.open_at.remove(&desk),
        };
        if before != after {
            self.desks[desk].open.reseat(before, after, group);
        }
    }

    /// Lists a desk with its task while it has jobs and its queue is neither full nor paused. A claim reads only listed
    /// desks.
    fn list_desk(&mut self, ix: Ix<Desk>) {
        let desk = &self.desks[ix];
        let stands = desk.ready.first().is_some() || desk.open.first().is_some();
        let queue = &mut self.queues[desk.queue];
        if desk.stands != stands {
            if stands {
                queue.desks.insert(ix)
            } else {
                queue.desks.remove(&ix)
            };
        }
        let listed = stands && !queue.paused && self.groups[queue.group].has_room(1);
        let desk = &mut self.desks[ix];
        desk.stands = stands;
        if std::mem::replace(&mut desk.listed, listed) != listed {
            let desks = &mut self.tasks[desk.task].desks;
            if listed {
                desks.insert(ix)
            } else {
                desks.remove(&ix)
            };
        }
    }

    /// Updates the list of desks after a queue was paused, resumed, filled or emptied.
    pub(crate) fn list_desks(&mut self, queue: Ix<Queue>) {
        for desk in self.queues[queue].desks.clone() {
            self.list_desk(desk);
        }
    }

    /// Opens or closes the gates of a group whose room has changed, and wakes parked lanes.
    pub(crate) fn room_changed(&mut self, group_ix: Ix<Group>) {
        let group = &mut self.groups[group_ix];
        let open = group.free() > 0;
        if let Some(line) = &mut group.line
            && line.open != open
        {
            line.open = open;
            for desk in line.desks() {
                self.seat_gate(group_ix, desk);
                self.list_desk(desk);
            }
        }
        if open && !self.groups[group_ix].lanes.is_empty() {
            self.wake_lanes(group_ix);
        }
        if let Some(queue) = self.groups[group_ix].queue
            && self.queues[queue].open != open
        {
            self.queues[queue].open = open;
            self.list_desks(queue);
        }
    }

    fn wake_lanes(&mut self, key: Ix<Group>) {
        let group = &self.groups[key];
        let has_room = |lane: &Lane| group.has_room(self.classes[lane.class].cost);
        let awake = |&lane: &Ix<Lane>| self.lanes[lane].parked && has_room(&self.lanes[lane]);
        let awake: SmallVec<[_; 4]> = group.lanes.iter().filter(awake).collect();
        for lane in awake {
            self.lanes[lane].parked = false;
            self.seat_lane(lane, None, self.lanes[lane].head());
        }
    }
}

fn reseat<T: Ord>(set: &mut BTreeSet<T>, before: Option<T>, after: Option<T>) {
    if let Some(place) = before {
        set.remove(&place);
    }
    if let Some(place) = after {
        set.insert(place);
    }
}
