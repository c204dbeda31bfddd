//! Big jobs: free slots of a group are kept for a job that needs two or more of them.
//!
//! The rule, evaluated anew at every place in claim order (nothing is stored):
//! 1. A job is *big* in a group if it needs two or more slots there, and no more than the limit.
//! 2. A big job in line *keeps* slots of that group if its queue is not paused, a session that is not draining serves
//!    its queue and task, and it lacks room in no other group. For slots of its own key it may lack room in its group
//!    too.
//! 3. A job may take `need` slots only if, for each big job ahead of it in claim order that keeps slots there, at least
//!    as many as that job needs are left.
//!
//! Invariants:
//! - The first big job in claim order is held back by no other job, so big jobs do not deadlock.
//! - A big job that no session serves holds back nothing.
//! - Within one walk kept slots stay kept (see `claim`).
//!
//! `docs/adr/0004-big-jobs.md` gives the reasons.

use crate::JobId;
use crate::lane::{Class, Desk, Lane, Rank};
use crate::state::row::Group;
use crate::state::{State, table::Ix};
use std::collections::BTreeSet;

/// What counts as taken when a claim looks for room.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Counting {
    /// Running jobs and programs: for a job that starts now.
    Running,
    /// Claimed jobs too, as if they ran: for a job that is claimed ahead of time.
    Claimed,
}

/// A place behind every job in claim order.
pub(super) const LAST_PLACE: (u32, Rank) = (u32::MAX, Rank::LAST);

/// A job ahead in claim order that needs two or more slots of a group.
pub(super) struct BigJob {
    place: (u32, Rank),
    lane: Ix<Lane>,
    pub(super) wants: u32,
}

impl State {
    /// Free slots of a group.
    pub(super) fn free(&self, group: Ix<Group>, counting: Counting) -> u64 {
        let free = self.groups[group].free();
        match counting {
            Counting::Running => free,
            Counting::Claimed if self.groups[group].limit.is_none() => free,
            Counting::Claimed => free.saturating_sub(self.claimed_slots(group)),
        }
    }

    /// Whether `need` more slots of a group keep within its limit.
    pub(super) fn has_room(&self, group: Ix<Group>, need: u32, counting: Counting) -> bool {
        self.groups[group].limit.is_none() || self.free(group, counting) >= need.into()
    }

    /// The big job that holds back a job at this place in claim order, which needs slots of a group.
    pub(crate) fn reserved_for(&self, group: Ix<Group>, need: u32, place: (u32, Rank)) -> Option<JobId> {
        let big = self.big_job_ahead(group, need, place, Counting::Running)?;
        self.lanes[big.lane].jobs.first().map(|(_, job)| self.jobs[job].id)
    }

    /// Whether slots of a group are kept from a job or program that needs some at a place in claim order.
    pub(super) fn is_kept(
        &self,
        group: Ix<Group>,
        need: u32,
        place: (u32, Rank),
        counting: Counting,
    ) -> bool {
        self.has_big_jobs(group) && self.big_job_ahead(group, need, place, counting).is_some()
    }

    /// Whether a job in line needs two or more slots of a group. Rarely true, so this cheap check comes first.
    pub(super) fn has_big_jobs(&self, group: Ix<Group>) -> bool {
        let row = &self.groups[group];
        let shared = row.line.as_ref().is_some_and(|line| !line.big.is_empty());
        row.limit.is_some() && (shared || row.lanes.iter().any(|lane| self.class(lane).cost >= 2))
    }

    /// The first big job ahead of a place that would have too few slots of a group left if a job there took `need` of
    /// them.
    pub(super) fn big_job_ahead(
        &self,
        group: Ix<Group>,
        need: u32,
        place: (u32, Rank),
        counting: Counting,
    ) -> Option<BigJob> {
        let row = &self.groups[group];
        let left = self.free(group, counting).saturating_sub(need.into());
        let limit = row.limit?;
        let is_big = |wants: u32| (2..=limit).contains(&wants) && u64::from(wants) > left;
        let line = row
            .line
            .as_ref()
            .filter(|line| line.big_needs.keys().next_back().is_some_and(|&most| u64::from(most) > left));
        let at_desks = line.iter().flat_map(|line| &line.big);
        let shared = at_desks
            .filter_map(|(&desk, classes)| self.big_job_at(desk, classes, (group, counting), &is_big, place));
        let keyed = row.lanes.iter().filter_map(|lane| {
            let class = self.class(lane);
            let rank = is_big(class.cost).then(|| self.lanes[lane].jobs.first())??.0;
            let big = BigJob { place: (self.queue(class).priority(), rank), lane, wants: class.cost };
            (big.place < place && self.keeps_slots(class, group, true, counting)).then_some(big)
        });
        shared.chain(keyed).min_by_key(|big| big.place)
    }

    /// The first such job at one desk.
    fn big_job_at(
        &self,
        desk: Ix<Desk>,
        classes: &BTreeSet<(Rank, Ix<Class>)>,
        (group, counting): (Ix<Group>, Counting),
        is_big: &impl Fn(u32) -> bool,
        place: (u32, Rank),
    ) -> Option<BigJob> {
        let queue = &self.queues[self.desks[desk].queue];
        let priority = queue.priority();
        if queue.paused || priority > place.0 || !self.is_served(&self.desks[desk]) {
            return None;
        }
        let mut first: Option<BigJob> = None;
        for &(head, class_ix) in classes {
            if (priority, head) >= first.as_ref().map_or(place, |first| first.place) {
                break;
            }
            let class = &self.classes[class_ix];
            let wants = class.shared().find(|&(at, _)| at == group)?.1;
            if !is_big(wants) || !self.keeps_slots(class, group, false, counting) {
                continue;
            }
            let lane = class.lanes.iter().find(|&(_, lane)| self.key_has_room(lane, counting));
            let big = lane.map(|(rank, lane)| BigJob { place: (priority, rank), lane, wants });
            let so_far = first.as_ref().map_or(place, |first| first.place);
            first = big.filter(|big| big.place < so_far).or(first);
        }
        first
    }

    /// Whether the first job of a class keeps slots of `group`, where it is big: a session serves it, and it lacks room
    /// in no other group.
    ///
    /// For slots of its own key (`of_key`) it may lack room in its group too. Otherwise small jobs of the same key,
    /// which hold slots of both, would starve it.
    fn keeps_slots(&self, class: &Class, group: Ix<Group>, of_key: bool, counting: Counting) -> bool {
        let queue = self.queue(class);
        let spared = |at: Ix<Group>| at == group || of_key && at == class.group;
        let mut others = [(queue.group, 1), (Self::CLUSTER, 1)].into_iter().chain(class.shared());
        !queue.paused
            && others.all(|(at, need)| spared(at) || self.has_room(at, need, counting))
            && self.is_served(self.desk(class))
    }

    fn key_has_room(&self, lane: Ix<Lane>, counting: Counting) -> bool {
        let lane = &self.lanes[lane];
        lane.key.is_none_or(|key| self.has_room(key, self.classes[lane.class].cost, counting))
    }

    /// Whether a live session that is not draining serves the desk's queue and task.
    fn is_served(&self, desk: &Desk) -> bool {
        self.tasks[desk.task].sessions.iter().any(|&session| {
            let row = &self.sessions[session].row;
            !row.draining && row.serves_queue(desk.queue)
        })
    }
}
