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
use smallvec::SmallVec;
use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap};

/// A line that the walk merges with the others. What it yields next comes after a turn, so a class that was
/// passed over is not met again.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Line {
    /// The classes of a desk that wait at no gate.
    Desk(Ix<Desk>),
    /// The classes of a desk at a gate that is open.
    Gate(Ix<Desk>, Ix<Group>),
    /// The lanes of one class behind a lane that was passed over.
    Class(Ix<Class>),
}

/// The next stop of a line: queue priority and turn are claim order.
type Stop = (u32, Turn, Line, Ix<Class>, Ix<Lane>);

/// What the walk finds at a stop.
enum Verdict {
    Start,
    /// This lane cannot, the next one of its class may.
    PassLane,
    /// The same, and it has left its class until its key has room.
    ParkedLane,
    /// No lane of this class can, during this walk.
    PassClass,
    /// Nothing behind it in its line can.
    PassLine,
    /// Nothing can.
    End,
}

/// One walk along the line. Room only shrinks while it lasts, and what was kept for a big job stays kept: so
/// whatever was passed over stays passed over.
struct Walk {
    stops: BinaryHeap<Reverse<Stop>>,
    /// Slots that big jobs have kept in a group.
    kept: Vec<(Ix<Group>, u32)>,
    /// Jobs given by queue, where the claim limits them.
    given: BTreeMap<Ix<Queue>, u32>,
}

impl Decider<'_> {
    /// Starts up to `claim.max` jobs for a session and returns their tokens, in claim order.
    pub(super) fn claim(&mut self, session: Ix<Session>, claim: Claim) -> Vec<FenceToken> {
        if claim.max == 0 {
            return Vec::new();
        }
        let session_id = self.state.sessions[session].row.new.id;
        let stops = self.state.first_stops(session).map(Reverse).collect();
        let mut walk = Walk { stops, kept: Vec::new(), given: BTreeMap::new() };
        let mut claimed = Vec::new();

        let mut next = walk.stops.pop();
        while let Some(Reverse((_, turn, line, class, lane))) = next {
            let verdict = if walk.is_shut(self.state, line) {
                Verdict::PassLine
            } else {
                walk.visit(self.state, class, lane, turn, &claim)
            };
            let goes_on = match verdict {
                Verdict::Start => {
                    claimed.push(self.start(session_id, lane));
                    if claimed.len() == claim.max as usize {
                        break;
                    }
                    true
                }
                Verdict::PassLane => {
                    // Its class stays where it is, at this turn; the lanes behind it need a line of their own.
                    if line != Line::Class(class) {
                        walk.stops.extend(self.state.stop(Line::Class(class), Some(turn)).map(Reverse));
                    }
                    true
                }
                Verdict::ParkedLane => true,
                Verdict::PassClass => line != Line::Class(class),
                Verdict::PassLine => false,
                Verdict::End => break,
            };
            let following = if goes_on { self.state.stop(line, Some(turn)) } else { None };
            next = walk.next(following);
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

impl Walk {
    /// The next stop, given the one that follows in the line just visited.
    fn next(&mut self, following: Option<Stop>) -> Option<Reverse<Stop>> {
        match (following, self.stops.peek()) {
            (Some(stop), Some(Reverse(other))) if stop > *other => {
                self.stops.push(Reverse(stop));
                self.stops.pop()
            }
            // The common case of a long lane: go on without touching the heap.
            (Some(stop), _) => Some(Reverse(stop)),
            (None, _) => self.stops.pop(),
        }
    }

    /// Whether nobody at a gate can have slots of its group any more: one look instead of one for each class.
    fn is_shut(&self, state: &State, line: Line) -> bool {
        let Line::Gate(_, group) = line else { return false };
        state.groups[group].free() == 0 || self.keeps(state, group, 1)
    }

    /// Whether `need` slots of a group are among those kept for big jobs.
    fn keeps(&self, state: &State, group: Ix<Group>, need: u32) -> bool {
        let left = || state.groups[group].free().saturating_sub(need.into());
        self.kept.iter().any(|&(at, kept)| at == group && left() < kept.into())
    }

    /// Decides about the first job of a lane, and puts away what cannot run until something changes.
    fn visit(
        &mut self,
        state: &mut State,
        class_ix: Ix<Class>,
        lane: Ix<Lane>,
        turn: Turn,
        claim: &Claim,
    ) -> Verdict {
        if !state.groups[State::CLUSTER].has_room(1) {
            return Verdict::End;
        }
        let class = &state.classes[class_ix];
        let (queue_ix, queue) = (state.desk(class).queue, state.queue(class));
        let had_its_share = claim.max_per_queue.is_some_and(|most| self.given.get(&queue_ix) >= Some(&most));
        if had_its_share || !state.groups[queue.group].has_room(1) {
            return Verdict::PassLine;
        }
        let (cost, place) = (class.cost, (queue.priority(), turn));
        let shared: SmallVec<[_; 4]> = class.shared().collect();
        if let Some(&(full, _)) = shared.iter().find(|&&(group, need)| !state.groups[group].has_room(need)) {
            state.send_to_gate(class_ix, full);
            return Verdict::PassClass;
        }
        let key = state.lanes[lane].key;
        if key.is_some_and(|key| !state.groups[key].has_room(cost)) {
            state.park_lane(lane);
            return Verdict::ParkedLane;
        }
        let kept = shared.iter().find(|&&(group, need)| self.keeps(state, group, need));
        let key_kept = || key.is_some_and(|key| self.keeps(state, key, cost));
        let verdict = match kept {
            Some(&(group, _)) => Some((Verdict::PassClass, Some(group))),
            None if key_kept() => Some((Verdict::PassLane, None)),
            None => self.hold_back(state, &shared, key.map(|key| (key, cost)), place),
        };
        if let Some((verdict, gate)) = verdict {
            if let Some(group) = gate {
                state.send_to_gate(class_ix, group);
            }
            return verdict;
        }
        if claim.max_per_queue.is_some() {
            *self.given.entry(queue_ix).or_default() += 1;
        }
        Verdict::Start
    }

    /// Whether big jobs ahead of a place hold back a job that has room everywhere. If so, what they keep of its
    /// groups stays kept for the rest of the walk.
    fn hold_back(
        &mut self,
        state: &State,
        shared: &[(Ix<Group>, u32)],
        key: Option<(Ix<Group>, u32)>,
        place: (u32, Turn),
    ) -> Option<(Verdict, Option<Ix<Group>>)> {
        let mut held = None;
        for (is_key, &(group, need)) in
            key.iter().map(|key| (true, key)).chain(shared.iter().map(|at| (false, at)))
        {
            if let Some(wants) = state.big_jobs_ahead(group, need, place).map(|(_, _, wants)| wants).max() {
                self.kept.push((group, wants));
                held =
                    Some(if is_key { (Verdict::PassLane, None) } else { (Verdict::PassClass, Some(group)) });
            }
        }
        held
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
        Some((self.queue(row).priority(), turn, line, class, lane))
    }

    /// The big job ahead of a place in claim order that holds back a job that needs slots of a group there; the
    /// first of them.
    pub(crate) fn reserved_for(&self, group: Ix<Group>, need: u32, place: (u32, Turn)) -> Option<JobId> {
        let first = self.big_jobs_ahead(group, need, place).min_by_key(|&(place, ..)| place);
        let (_, lane, _) = first?;
        self.lanes[lane].jobs.first().map(|(_, job)| self.jobs[job].id)
    }

    /// The big jobs ahead of a place that would have too few slots of a group left if `need` of them were taken
    /// there: each with its place, its lane and the slots it wants.
    fn big_jobs_ahead(
        &self,
        group: Ix<Group>,
        need: u32,
        place: (u32, Turn),
    ) -> impl Iterator<Item = ((u32, Turn), Ix<Lane>, u32)> {
        let row = &self.groups[group];
        let left = row.free().saturating_sub(need.into());
        let limit = row.limit.unwrap_or(0);
        let is_big = move |wants: u32| (2..=limit).contains(&wants) && u64::from(wants) > left;

        let classes = row.line.iter().flat_map(move |line| line.big.range(..(place.0, place.1, Ix::FIRST)));
        let shared = classes.filter_map(move |&(priority, _, class)| {
            let row = &self.classes[class];
            let wants = row.shared().find(|&(at, _)| at == group)?.1;
            let only_lacks = is_big(wants) && self.only_lacks(row, group);
            let (turn, lane) =
                only_lacks.then(|| row.lanes.iter().find(|&(_, lane)| self.key_has_room(lane)))??;
            Some(((priority, turn), lane, wants))
        });
        let keyed = row.lanes.iter().filter_map(move |lane| {
            let class = self.class(lane);
            let turn = is_big(class.cost).then(|| self.lanes[lane].jobs.first())??.0;
            self.only_lacks(class, group).then(|| ((self.queue(class).priority(), turn), lane, class.cost))
        });
        shared.chain(keyed).filter(move |&(ahead, ..)| ahead < place)
    }

    /// Whether somebody serves a class and it has room in every shared group but perhaps `group`.
    fn only_lacks(&self, class: &Class, group: Ix<Group>) -> bool {
        let queue = self.queue(class);
        let mut others = [(queue.group, 1), (Self::CLUSTER, 1)].into_iter().chain(class.shared());
        !queue.paused
            && others.all(|(at, need)| at == group || self.groups[at].has_room(need))
            && self.is_served(self.desk(class))
    }

    fn key_has_room(&self, lane: Ix<Lane>) -> bool {
        let lane = &self.lanes[lane];
        lane.key.is_none_or(|key| self.groups[key].has_room(self.classes[lane.class].cost))
    }

    /// Whether a live session that is not draining has the desk's queue and task.
    fn is_served(&self, desk: &Desk) -> bool {
        self.tasks[desk.task].sessions.iter().any(|&session| {
            let row = &self.sessions[session].row;
            !row.draining && row.serves_queue(desk.queue)
        })
    }
}
