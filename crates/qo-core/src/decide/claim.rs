//! Claim: the walk along the line.
//!
//! The walk merges the lines of all desks that the session serves, in claim order:
//! 1. Put the first spot of each line (the ready classes and the open gates of each desk) on a heap.
//! 2. Take the first spot in claim order. A spot is a class and the lane of its first job.
//! 3. Visit it. The job runs if all its groups have room and enough slots are left for the big jobs ahead of it. It
//!    then takes all its slots at once.
//! 4. Otherwise pass it over: park the lane, send the class to a gate, or skip it for this walk.
//! 5. Take the next spot of the same line, or the first of the heap, until the claim is full or no spot is left.
//!
//! Prefetch is a second walk after the first. It counts claimed jobs as if they ran, and takes no slots.
//!
//! Invariants:
//! - Room only shrinks during a walk, and slots that are kept for a big job stay kept. So a job that was passed over
//!   once stays passed over, and each line only moves forward.
//! - A lane or class that lacks room is visited once and put away (see [`lane`](crate::lane)), so the walk costs what it
//!   grants.

use super::Decider;
use super::reserve::{Counting, LAST_PLACE};
use crate::lane::{Class, Desk, Lane, Rank};
use crate::state::row::{Group, Job, Queue, Session};
use crate::state::{State, table::Ix};
use crate::{Claim, Event, FenceToken, Granted, SessionId, Time, caps};
use smallvec::SmallVec;
use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet, BinaryHeap};

/// A line that the walk merges with the others. It yields only spots after a given rank, so the walk meets no spot
/// twice in one line.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Line {
    /// The classes of a desk that wait at no gate.
    Ready(Ix<Desk>),
    /// The first class of each gate that is open on a desk.
    Gates(Ix<Desk>),
    /// The classes of a desk at one gate, behind a class that was passed over.
    Gate(Ix<Desk>, Ix<Group>),
    /// The lanes of one class, behind a lane that was passed over.
    Class(Ix<Class>),
}

/// The next spot of a line. Queue priority and rank come first: spots compare in claim order.
type Spot = (u32, Rank, Line, Ix<Class>, Ix<Lane>);

/// What the walk finds at a spot.
#[derive(PartialEq, Eq)]
enum Verdict {
    Take,
    /// This lane cannot run. The next lane of its class may.
    PassLane,
    /// As `PassLane`, and the lane is parked until its key has room.
    ParkedLane,
    /// No lane of this class can run during this walk.
    PassClass,
    /// Nothing behind it in its line can run.
    PassLine,
    /// Another line came here first: it took the job or parked the lane.
    Gone,
    /// Nothing can run: the cluster is full.
    End,
}

/// One walk along the line.
struct Walk {
    claim: Claim,
    counting: Counting,
    spots: BinaryHeap<Reverse<Spot>>,
    /// Bytes of the payloads that were taken.
    payload_bytes: usize,
    /// Slots that are kept for big jobs, by group.
    kept: BTreeMap<Ix<Group>, u32>,
    /// How many jobs each queue gave, where the claim limits that.
    given: BTreeMap<Ix<Queue>, u32>,
    /// Gates and classes that have a line of their own.
    own_lines: BTreeSet<Line>,
    /// Groups where no big job keeps slots. Room only shrinks, so none will during this walk.
    unkept: BTreeSet<Ix<Group>>,
}

impl Decider<'_> {
    /// Starts up to `claim.max` jobs for a session, then claims others ahead of time. Returns both in claim order.
    pub(super) fn claim(&mut self, session: Ix<Session>, claim: Claim) -> (Vec<Granted>, Vec<Granted>) {
        let id = self.state.sessions[session].row.new.id;
        let mut walk = Walk::new(claim, Counting::Running);
        let started = self.walk(session, &mut walk, claim.max as usize, |this, job| this.start(id, job));

        let held = self.state.sessions[session].claimed.len();
        let Some(prefetch) = claim.prefetch.filter(|prefetch| prefetch.buffer as usize > held) else {
            return (started, Vec::new());
        };
        let until = self.state.now.plus_ms(prefetch.lease_ms);
        let mut walk = Walk {
            given: walk.given,
            payload_bytes: walk.payload_bytes,
            ..Walk::new(claim, Counting::Claimed)
        };
        let most = prefetch.buffer as usize - held;
        let claimed = self.walk(session, &mut walk, most, |this, job| this.claim_ahead(id, job, until));
        (started, claimed)
    }

    /// Walks the line and takes up to `most` jobs.
    fn walk(
        &mut self,
        session: Ix<Session>,
        walk: &mut Walk,
        most: usize,
        take: impl Fn(&mut Self, Ix<Job>) -> (Granted, usize),
    ) -> Vec<Granted> {
        let mut taken = Vec::new();
        if most == 0
            || walk.payload_bytes >= caps::CLAIM_BYTES
            || !self.state.has_room(State::CLUSTER, 1, walk.counting)
        {
            return taken;
        }
        walk.spots = self.state.first_spots(session).map(Reverse).collect();
        let mut next = walk.spots.pop();
        while let Some(Reverse((_, rank, line, class, lane))) = next {
            let verdict = walk.visit(self.state, line, class, lane, rank);
            match verdict {
                Verdict::Take => {
                    let (_, job) = self.state.lanes[lane]
                        .jobs
                        .first()
                        .unwrap_or_else(|| unreachable!("a seated lane has a job"));
                    let (granted, bytes) = take(self, job);
                    taken.push(granted);
                    walk.payload_bytes += bytes;
                    if taken.len() == most || walk.payload_bytes >= caps::CLAIM_BYTES {
                        break;
                    }
                }
                Verdict::End => break,
                _ => {}
            }
            next = walk.go_on(self.state, line, class, rank, &verdict);
        }
        taken
    }

    /// Starts a job that may run. Returns the grant and the size of its payload.
    pub(super) fn start(&mut self, session: SessionId, ix: Ix<Job>) -> (Granted, usize) {
        let (granted, bytes) = self.grant(ix);
        let Granted { token, timeout_ms, .. } = granted;
        let timeout_at = timeout_ms.map(|ms| self.state.now.plus_ms(ms).plus_ms(caps::TIMEOUT_GRACE_MS));
        let job = self.state.jobs[ix].id;
        self.happen_to(ix, Event::Started { job, session, token, timeout_at });
        (granted, bytes)
    }

    fn claim_ahead(&mut self, session: SessionId, ix: Ix<Job>, until: Time) -> (Granted, usize) {
        let (granted, bytes) = self.grant(ix);
        let (job, token) = (self.state.jobs[ix].id, granted.token);
        self.happen_to(ix, Event::Claimed { job, session, token, until });
        (granted, bytes)
    }

    /// What a worker that takes a job gets: the next token, the job's timeout and backoff, else the task's.
    fn grant(&self, ix: Ix<Job>) -> (Granted, usize) {
        let state = &self.state;
        let row = &state.jobs[ix];
        let task = state.tasks[state.desk(state.class(row.lane)).task].options();
        let own = row.options.as_deref();
        let timeout_ms = own.and_then(|own| own.timeout_ms).or_else(|| task?.timeout_ms);
        let retry = own.and_then(|own| own.retry).or_else(|| task?.retry).unwrap_or_default();
        (Granted { token: FenceToken(state.next_token), timeout_ms, retry }, row.payload.as_str().len())
    }
}

impl Walk {
    fn new(claim: Claim, counting: Counting) -> Self {
        Self {
            claim,
            counting,
            spots: BinaryHeap::new(),
            payload_bytes: 0,
            kept: BTreeMap::new(),
            given: BTreeMap::new(),
            own_lines: BTreeSet::new(),
            unkept: BTreeSet::new(),
        }
    }

    /// The next spot after one that was visited in a line.
    fn go_on(
        &mut self,
        state: &State,
        line: Line,
        class: Ix<Class>,
        rank: Rank,
        verdict: &Verdict,
    ) -> Option<Reverse<Spot>> {
        // A spot that was passed over stays first in its class or gate, and the line yields only first spots. So the
        // spots behind it need a line of their own.
        if *verdict == Verdict::PassLane {
            self.branch(state, Line::Class(class), line, rank);
        }
        if matches!(verdict, Verdict::PassLane | Verdict::PassClass)
            && let Some(group) = state.classes[class].gate
        {
            self.branch(state, Line::Gate(state.classes[class].desk, group), line, rank);
        }
        let ends = match line {
            Line::Class(_) => matches!(verdict, Verdict::PassClass | Verdict::PassLine),
            // One gate is shut. The others may be open, unless the whole queue is done.
            Line::Gates(desk) => {
                *verdict == Verdict::PassLine && self.is_done(state, state.desks[desk].queue)
            }
            Line::Ready(_) | Line::Gate(..) => *verdict == Verdict::PassLine,
        };
        match (if ends { None } else { state.spot(line, Some(rank)) }, self.spots.peek()) {
            (Some(spot), Some(Reverse(other))) if spot > *other => {
                self.spots.push(Reverse(spot));
                self.spots.pop()
            }
            // The common case of a long lane: no heap operation.
            (Some(spot), _) => Some(Reverse(spot)),
            (None, _) => self.spots.pop(),
        }
    }

    fn branch(&mut self, state: &State, branch: Line, from: Line, rank: Rank) {
        if branch != from && self.own_lines.insert(branch) {
            self.spots.extend(state.spot(branch, Some(rank)).map(Reverse));
        }
    }

    /// Whether a queue can give nothing more in this walk.
    fn is_done(&self, state: &State, queue: Ix<Queue>) -> bool {
        let had_its_share =
            self.claim.max_claim_batch.is_some_and(|most| self.given.get(&queue) >= Some(&most));
        had_its_share || !state.has_room(state.queues[queue].group, 1, self.counting)
    }

    /// Whether no class at a gate can have slots of its group any more: one check instead of one per class.
    fn is_shut(&self, state: &State, line: Line, rank: Rank) -> bool {
        let group = match line {
            Line::Gate(_, group) => Some(group),
            Line::Gates(desk) => state.desks[desk].open.get(rank),
            Line::Ready(_) | Line::Class(_) => None,
        };
        group.is_some_and(|group| state.free(group, self.counting) == 0 || self.keeps(state, group, 1))
    }

    /// Whether taking `need` slots of a group would take slots that are kept for big jobs.
    fn keeps(&self, state: &State, group: Ix<Group>, need: u32) -> bool {
        let kept = self.kept.get(&group).copied().unwrap_or(0);
        kept > 0 && state.free(group, self.counting).saturating_sub(need.into()) < kept.into()
    }

    /// Decides about the first job of a lane. Parks or moves what cannot run until something changes.
    fn visit(
        &mut self,
        state: &mut State,
        line: Line,
        class_ix: Ix<Class>,
        lane: Ix<Lane>,
        rank: Rank,
    ) -> Verdict {
        if !state.has_room(State::CLUSTER, 1, self.counting) {
            return Verdict::End;
        }
        let class = &state.classes[class_ix];
        if class.lanes.get(rank) != Some(lane) {
            return Verdict::Gone;
        }
        let (queue_ix, queue) = (state.desk(class).queue, state.queue(class));
        if self.is_done(state, queue_ix) || self.is_shut(state, line, rank) {
            return Verdict::PassLine;
        }
        let (cost, place) = (class.cost, (queue.priority(), rank));
        let shared: SmallVec<[_; 4]> = class.shared().collect();
        if let Some(&(full, _)) =
            shared.iter().find(|&&(group, need)| !state.has_room(group, need, self.counting))
        {
            state.send_to_gate(class_ix, full);
            return Verdict::PassClass;
        }
        let key = state.lanes[lane].key;
        if key.is_some_and(|key| !state.groups[key].has_room(cost)) {
            state.park_lane(lane);
            return Verdict::ParkedLane;
        }
        if key.is_some_and(|key| !state.has_room(key, cost, self.counting)) {
            // Only claimed jobs fill the key. The lane is not parked, because a claim that starts jobs may still take
            // it.
            return Verdict::PassLane;
        }
        if self.counting == Counting::Claimed {
            // A big job is not claimed ahead of time: it must stay in line to keep slots until it can have them all.
            let is_big = |group: Ix<Group>, need| need >= 2 && state.groups[group].limit.is_some();
            if shared.iter().any(|&(group, need)| is_big(group, need)) {
                return Verdict::PassClass;
            }
            if key.is_some_and(|key| is_big(key, cost)) {
                return Verdict::PassLane;
            }
        }
        if let Some(held) = self.held_back(state, &shared, key.map(|key| (key, cost)), place) {
            return match held {
                Held::Shared(group) => {
                    state.send_to_gate(class_ix, group);
                    Verdict::PassClass
                }
                Held::Key => Verdict::PassLane,
            };
        }
        if self.claim.max_claim_batch.is_some() {
            *self.given.entry(queue_ix).or_default() += 1;
        }
        Verdict::Take
    }

    /// Whether slots that a job could have are kept for big jobs ahead of it.
    ///
    /// What they keep stays kept for the rest of the walk. A job that meets slots kept earlier in the walk adds nothing
    /// to `kept`.
    fn held_back(
        &mut self,
        state: &State,
        shared: &[(Ix<Group>, u32)],
        key: Option<(Ix<Group>, u32)>,
        place: (u32, Rank),
    ) -> Option<Held> {
        if let Some(&(group, _)) = shared.iter().find(|&&(group, need)| self.keeps(state, group, need)) {
            return Some(Held::Shared(group));
        }
        if key.is_some_and(|(key, need)| self.keeps(state, key, need)) {
            return Some(Held::Key);
        }
        let mut held = None;
        let groups = key.map(|key| (key, Held::Key));
        for ((group, need), by) in groups.into_iter().chain(shared.iter().map(|&at| (at, Held::Shared(at.0))))
        {
            if !state.has_big_jobs(group) || self.unkept.contains(&group) {
                continue;
            }
            if let Some(big) = state.big_job_ahead(group, need, place, self.counting) {
                let kept = self.kept.entry(group).or_default();
                *kept = big.wants.max(*kept);
                held = Some(by);
            } else if state.big_job_ahead(group, u32::MAX, LAST_PLACE, self.counting).is_none() {
                self.unkept.insert(group);
            }
        }
        held
    }
}

/// Where slots are kept from a job.
enum Held {
    Shared(Ix<Group>),
    Key,
}

impl State {
    fn first_spots(&self, session: Ix<Session>) -> impl Iterator<Item = Spot> {
        let row = &self.sessions[session].row;
        let desks = row.serves.tasks.iter().flat_map(|&task| &self.tasks[task].desks).copied();
        let served = desks.filter(move |&desk| row.serves_queue(self.desks[desk].queue));
        served
            .flat_map(|desk| [Line::Ready(desk), Line::Gates(desk)])
            .filter_map(|line| self.spot(line, None))
    }

    /// The first spot of a line, or the first after a rank.
    fn spot(&self, line: Line, after: Option<Rank>) -> Option<Spot> {
        let (rank, class) = match line {
            Line::Ready(desk) => self.desks[desk].ready.first_after(after)?,
            Line::Gates(desk) => {
                let (rank, group) = self.desks[desk].open.first_after(after)?;
                (rank, self.groups[group].line.as_ref()?.after(desk, None)?.1)
            }
            Line::Gate(desk, group) => self.groups[group].line.as_ref()?.after(desk, after)?,
            Line::Class(class) => (self.classes[class].lanes.first_after(after)?.0, class),
        };
        let row = &self.classes[class];
        let lane = row.lanes.get(rank)?;
        Some((self.queue(row).priority(), rank, line, class, lane))
    }
}
