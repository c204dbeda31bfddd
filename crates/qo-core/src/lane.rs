//! Who stands where: the indexes that make claiming cost as much as what it grants.
//!
//! - A **lane** holds the due jobs that ask for exactly the same: queue, task, group, key, cost and extra limits. What
//!   holds for its first job holds for all.
//! - A **class** is all lanes that differ only in their key: one look at the shared groups decides for all.
//! - A **desk** is where one queue's jobs of one task stand; a worker serves the desks of its queues and tasks.
//!
//! ```text
//! desk ─┬─ ready ── class ── lane ── jobs, by rank
//!       └─ open ─ group's gate ── class ── lane ── jobs
//! ```
//!
//! Blocked work leaves the desk: a lane whose key is full is *parked* on `GROUP/KEY`; a class whose group or
//! extra limit is full waits at the **gate** of that group. A full gate is not on the desk; it comes back, as a whole, when the group has a free
//! slot. The desks of a queue that is full or paused are not listed. Jobs of the future are not in a lane at all. So jobs that cannot run cost a claim nothing, however many there are.
//!
//! Where a class waits is a cache, never a rule: claims move classes lazily, and any placement that keeps
//! these two promises gives the same grants (the audit in the tests checks them):
//! 1. a parked lane's key has no room for it;
//! 2. a class is on its desk, or at a gate that is on its desk whenever the group has a free slot.

use crate::Time;
use crate::state::row::{Group, Job, Queue, Spec, Task};
use crate::state::{State, ordered::Ordered, table::Ix};
use smallvec::SmallVec;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// A job's place in claim order among the jobs of queues of one priority.
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
    /// Not in its class: its key has no room.
    pub(crate) parked: bool,
    /// Live jobs.
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
    /// What its jobs have in common, in names: made when the first of them ends.
    pub(crate) spec: Option<Arc<Spec>>,
    /// Lanes.
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
    /// Somebody stands at it.
    pub(crate) stands: bool,
    /// And its queue would let him go: its task lists it.
    pub(crate) listed: bool,
    /// Classes.
    pub(crate) refs: u32,
}

/// The classes of one group.
#[derive(Debug, Default)]
pub(crate) struct ClassLine {
    /// At this group's gate, by desk, then by the rank of their first job.
    pub(crate) waiting: BTreeSet<(Ix<Desk>, Rank, Ix<Class>)>,
    /// The desks that this group's gate is on, and the rank that it is there for.
    pub(crate) open_at: BTreeMap<Ix<Desk>, Rank>,
    /// With a due job that needs two or more slots here, wherever they stand: by desk, then rank.
    pub(crate) big: BTreeMap<Ix<Desk>, BTreeSet<(Rank, Ix<Class>)>>,
    /// What those classes need, and how many of them need it: one look tells if none can be held up.
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
        // Turns are unique, so the first handle with the next number lies after every entry of `from`.
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

    /// A job leaves the line, from any place in it.
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

    /// Keeps the line of big jobs in each group where the class needs two or more slots.
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

    /// Moves a class that cannot have slots of `group` to its gate.
    pub(crate) fn send_to_gate(&mut self, class_ix: Ix<Class>, group: Ix<Group>) {
        let class = &self.classes[class_ix];
        if class.gate != Some(group) {
            let head = class.head();
            self.seat_class(class_ix, head, None);
            self.classes[class_ix].gate = Some(group);
            self.seat_class(class_ix, None, head);
        }
    }

    /// Puts a gate on its desk, or takes it off, as its group and its classes want it.
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

    /// Lists a desk with its task while somebody stands at it whom the queue would let go: a claim looks at no
    /// other.
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

    /// A queue was paused, resumed, filled or emptied.
    pub(crate) fn list_desks(&mut self, queue: Ix<Queue>) {
        for desk in self.queues[queue].desks.clone() {
            self.list_desk(desk);
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
