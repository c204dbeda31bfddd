//! Claim: the walk along the line.
//!
//! Due jobs are visited in claim order, from the desks that the session serves; a job that has room in
//! all its groups, and leaves enough for the big jobs ahead of it, is started and takes all its slots. What cannot
//! run is not visited (see [`lane`](crate::lane)), so the walk costs what it grants.

use super::Decider;
use crate::lane::{Class, Desk, Lane, Turn};
use crate::state::row::{Group, Queue, Session};
use crate::state::{State, table::Ix};
use crate::{Claim, Event, FenceToken, JobId, SessionId};
use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap};

/// A line that the walk merges with the others. What it yields next comes after a turn, so a class that was passed
/// over is not met again.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Line {
    /// The classes of a desk that wait at no gate.
    Desk(Ix<Desk>),
    /// The classes of a desk at a gate that is open.
    Gate(Ix<Desk>, Ix<Group>),
    /// The lanes of one class behind a lane that was passed over.
    Class(Ix<Class>),
}

/// The next stop of the walk: queue priority and turn are claim order.
type Stop = (u32, Turn, Line, Ix<Class>, Ix<Lane>);

/// What the walk finds at a stop.
enum Verdict {
    Start,
    /// This lane cannot, the next one of its class may.
    PassLane,
    /// The same, and it has left its class until its key has room.
    ParkedLane,
    /// No lane of this class can.
    PassClass,
    /// Nothing in this queue can.
    PassQueue,
    /// Nothing can.
    End,
}

impl Decider<'_> {
    /// Starts up to `claim.max` jobs for a session and returns their tokens, in claim order.
    pub(super) fn claim(&mut self, session: Ix<Session>, claim: Claim) -> Vec<FenceToken> {
        if claim.max == 0 {
            return Vec::new();
        }
        let session_id = self.state.sessions[session].row.new.id;
        let mut walk: BinaryHeap<Reverse<Stop>> = self.state.first_stops(session).map(Reverse).collect();
        let mut claimed = Vec::with_capacity(walk.len().min(1) * claim.max as usize);
        let mut from_queue: BTreeMap<Ix<Queue>, u32> = BTreeMap::new();
        let most_per_queue = claim.max_per_queue.unwrap_or(u32::MAX);

        let mut next = walk.pop();
        while let Some(Reverse((priority, turn, line, class, lane))) = next {
            let queue = self.state.desks[self.state.classes[class].desk].queue;
            let queue_had_its_share = from_queue.get(&queue).is_some_and(|&given| given >= most_per_queue);
            if queue_had_its_share || self.state.is_shut(line, (priority, turn)) {
                next = walk.pop();
                continue;
            }
            let goes_on = match self.state.visit(class, lane, turn) {
                Verdict::Start => {
                    claimed.push(self.start(session_id, lane));
                    if claimed.len() == claim.max as usize {
                        break;
                    }
                    if claim.max_per_queue.is_some() {
                        *from_queue.entry(queue).or_default() += 1;
                    }
                    true
                }
                Verdict::PassLane => {
                    // Its class stays where it is, at this turn; the lanes behind it need a line of their own.
                    if line != Line::Class(class) {
                        walk.extend(self.state.stop_after(Line::Class(class), turn).map(Reverse));
                    }
                    true
                }
                Verdict::ParkedLane => true,
                Verdict::PassClass => line != Line::Class(class),
                Verdict::PassQueue => false,
                Verdict::End => break,
            };
            let following = if goes_on { self.state.stop_after(line, turn) } else { None };
            next = match (following, walk.peek()) {
                (Some(stop), Some(Reverse(other))) if stop > *other => {
                    walk.push(Reverse(stop));
                    walk.pop()
                }
                // The common case of a long lane: go on without touching the heap.
                (Some(stop), _) => Some(Reverse(stop)),
                (None, _) => walk.pop(),
            };
        }
        claimed
    }

    fn start(&mut self, session: SessionId, lane: Ix<Lane>) -> FenceToken {
        let state = &self.state;
        let (_, ix) =
            state.lanes[lane].jobs.first().unwrap_or_else(|| unreachable!("a seated lane has a job"));
        let row = &state.jobs[ix];
        let (job, timeout_ms) = (row.id, state.timeout_ms(row));
        let token = FenceToken(state.next_token);
        self.happen_to(ix, Event::Started { job, session, token, timeout_ms });
        token
    }
}

impl State {
    fn first_stops(&self, session: Ix<Session>) -> impl Iterator<Item = Stop> {
        let row = &self.sessions[session].row;
        let desks = row.serves.tasks.iter().flat_map(|&task| &self.tasks[task].desks).copied();
        let served = desks.filter(move |&desk| {
            let queue = self.desks[desk].queue;
            !self.queues[queue].paused && row.serves_queue(queue)
        });
        served.flat_map(|desk| {
            let gates = self.desks[desk].open.iter().map(move |&group| Line::Gate(desk, group));
            std::iter::once(Line::Desk(desk)).chain(gates).filter_map(|line| self.stop(line, None))
        })
    }

    fn stop_after(&self, line: Line, turn: Turn) -> Option<Stop> {
        self.stop(line, Some(turn))
    }

    /// The first stop of a line, or the first after a turn.
    fn stop(&self, line: Line, after: Option<Turn>) -> Option<Stop> {
        let (turn, class) = match line {
            Line::Desk(desk) => {
                let ready = &self.desks[desk].ready;
                after.map_or_else(|| ready.first(), |turn| ready.after(turn))?
            }
            Line::Gate(desk, group) => self.groups[group].line.as_ref()?.after(desk, after)?,
            Line::Class(class) => (self.classes[class].lanes.after(after?)?.0, class),
        };
        let row = &self.classes[class];
        let lane = match line {
            Line::Class(_) => row.lanes.after(after?)?.1,
            Line::Desk(_) | Line::Gate(..) => row.lanes.first()?.1,
        };
        let priority = self.queue(row).priority();
        Some((priority, turn, line, class, lane))
    }

    /// Whether nothing behind this place at a gate can have slots of its group: one look instead of one for
    /// each class that waits there.
    fn is_shut(&self, line: Line, place: (u32, Turn)) -> bool {
        let Line::Gate(_, group) = line else { return false };
        self.groups[group].free() == 0 || self.reserved_for(group, 1, place).is_some()
    }

    /// Decides about the first job of a lane, and puts away what cannot run until something changes.
    fn visit(&mut self, class_ix: Ix<Class>, lane_ix: Ix<Lane>, turn: Turn) -> Verdict {
        if !self.groups[Self::CLUSTER].has_room(1) {
            return Verdict::End;
        }
        let class = &self.classes[class_ix];
        let queue = self.queue(class);
        let priority = queue.priority();
        if !self.groups[queue.group].has_room(1) {
            return Verdict::PassQueue;
        }
        let full = class.shared().find(|&(group, need)| !self.groups[group].has_room(need));
        let reserved =
            || class.shared().any(|(at, need)| self.reserved_for(at, need, (priority, turn)).is_some());
        let (cost, reserved) = (class.cost, full.is_none() && reserved());
        if let Some((full, _)) = full {
            self.send_to_gate(class_ix, full);
            return Verdict::PassClass;
        }
        if reserved {
            return Verdict::PassClass;
        }
        if let Some(key) = self.lanes[lane_ix].key {
            if !self.groups[key].has_room(cost) {
                self.park_lane(lane_ix);
                return Verdict::ParkedLane;
            }
            if self.reserved_for(key, cost, (priority, turn)).is_some() {
                return Verdict::PassLane;
            }
        }
        Verdict::Start
    }

    /// The big job ahead of a place in claim order that would have too few slots of `group` left if `need` of
    /// them were taken there; the first such, in claim order.
    pub(crate) fn reserved_for(&self, group: Ix<Group>, need: u32, place: (u32, Turn)) -> Option<JobId> {
        let row = &self.groups[group];
        let left = row.free().saturating_sub(need.into());
        let limit = row.limit?;
        let shared = row.line.iter().flat_map(|line| line.big.range(..(place.0, place.1, Ix::FIRST)));
        let shared = shared.filter_map(|&(priority, _, class)| {
            let row = &self.classes[class];
            let wants = row.shared().find(|&(at, _)| at == group)?.1;
            let fits = wants <= limit && u64::from(wants) > left && self.only_lacks(class, group);
            let lane = fits.then(|| row.lanes.iter().find(|&(_, lane)| self.key_has_room(lane)))??;
            Some((priority, lane.0, lane.1))
        });
        let keyed = row.lanes.iter().filter_map(|lane| {
            let class = &self.classes[self.lanes[lane].class];
            let wants = class.cost;
            let big = (2..=limit).contains(&wants) && u64::from(wants) > left;
            let turn = big.then(|| self.lanes[lane].jobs.first())??.0;
            let priority = self.queue(class).priority();
            self.only_lacks(self.lanes[lane].class, group).then_some((priority, turn, lane))
        });
        let ahead = shared.chain(keyed).filter(|&(priority, turn, _)| (priority, turn) < place);
        let (_, _, lane) = ahead.min_by_key(|&(priority, turn, _)| (priority, turn))?;
        self.lanes[lane].jobs.first().map(|(_, job)| self.jobs[job].id)
    }

    /// Whether somebody serves a class and it has room in every shared group but perhaps `group`.
    fn only_lacks(&self, class: Ix<Class>, group: Ix<Group>) -> bool {
        let row = &self.classes[class];
        let queue = self.queue(row);
        let mut outer = [(queue.group, 1), (Self::CLUSTER, 1)].into_iter().chain(row.shared());
        !queue.paused
            && outer.all(|(at, need)| at == group || self.groups[at].has_room(need))
            && self.is_served(row.desk)
    }

    fn key_has_room(&self, lane: Ix<Lane>) -> bool {
        let lane = &self.lanes[lane];
        lane.key.is_none_or(|key| self.groups[key].has_room(self.classes[lane.class].cost))
    }

    /// Whether a live session that is not draining has the desk's queue and task.
    fn is_served(&self, desk: Ix<Desk>) -> bool {
        let Desk { queue, task, .. } = self.desks[desk];
        self.tasks[task].sessions.iter().any(|&session| {
            let row = &self.sessions[session].row;
            !row.draining && row.serves_queue(queue)
        })
    }
}
