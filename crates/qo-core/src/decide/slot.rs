//! Slots for programs that are not jobs. A request gets them at once or not at all; a program that waits asks again.

use super::Decider;
use super::reserve::{Counting, LAST_PLACE};
use crate::state::row::Program;
use crate::state::{State, table::Ix};
use crate::{
    Answer, Error, Event, FenceToken, GroupRef, LeaseId, Result, SlotLease, SlotRequest, SlotsFreedBy,
};
use std::sync::Arc;

impl Decider<'_> {
    pub(super) fn acquire_slots(&mut self, request: &SlotRequest) -> Result<Answer> {
        request.check()?;
        if let Some(lease) = self.held(request)? {
            return Ok(Answer::Acquired(Some(lease)));
        }
        let own = request.limit.map(|limit| (request.group.clone(), Some(limit)));
        for group in groups(&request.group) {
            self.state.check_need(&group, request.slots, own.as_ref(), |_| "slots".into())?;
        }
        self.tick();
        self.end_what_is_over(u64::MAX);
        if let Some(&ix) = self.state.program_by_id.get(&request.id) {
            // The lease of this id is over, and was spared because this process has not watched it. Its own holder may
            // give it up.
            self.free_slots(ix, SlotsFreedBy::LeaseEnd);
        }
        // Check room under the limit that the request brings: ending what is over may have removed the submit-side
        // limit.
        let limit = |state: &mut State| {
            if request.limit.is_some() {
                state.change_limits(&request.group, |limits| limits.submit = request.limit);
            }
        };
        if let Some(full) = self.state.suppose(limit, |state| state.has_no_room_for(request)) {
            self.reject(&full);
            return Ok(Answer::Acquired(None));
        }
        let now = self.state.now;
        let (token, lease_until) = (FenceToken(self.state.next_token), now.plus_ms(request.lease_ms));
        self.happen(Event::SlotsTaken { request: Arc::new(request.clone()), token, lease_until });
        Ok(Answer::Acquired(Some(SlotLease { token, since: now, lease_until })))
    }

    /// The lease that the same request got before, if it is not over.
    fn held(&self, request: &SlotRequest) -> Result<Option<SlotLease>> {
        let program = self.state.program_by_id.get(&request.id).map(|&ix| &self.state.programs[ix]);
        let Some(program) = program.filter(|program| program.until > self.now.max(self.state.now)) else {
            return Ok(None);
        };
        if (&program.request.group, program.request.slots) == (&request.group, request.slots) {
            return Ok(Some(lease(program)));
        }
        let (slots, group) = (program.request.slots, &program.request.group);
        Err(Error::conflict(format!("id {}: it holds {slots} slots of {group}", request.id)))
    }

    pub(super) fn extend_slots(&mut self, id: LeaseId, token: FenceToken, lease_ms: u64) -> Result<Answer> {
        crate::slot::check_lease(lease_ms)?;
        let ix = self.program_of(id, token)?;
        self.tick();
        let lease_until = self.state.now.plus_ms(lease_ms);
        self.happen(Event::SlotsExtended { lease: id, lease_until });
        Ok(Answer::Extended(lease(&self.state.programs[ix])))
    }

    pub(super) fn return_slots(&mut self, id: LeaseId, token: FenceToken) -> Result<Answer> {
        let ix = self.program_of(id, token)?;
        self.tick();
        self.free_slots(ix, SlotsFreedBy::Holder);
        Ok(Answer::Done)
    }

    pub(super) fn free_slots(&mut self, ix: Ix<Program>, by: SlotsFreedBy) {
        let program = &self.state.programs[ix];
        let (lease, submit_limited) =
            (program.request.id, self.state.submit_limited(|_| program.needs.clone()));
        self.happen(Event::SlotsFreed { lease, by });
        self.spend(submit_limited);
    }

    fn program_of(&self, id: LeaseId, token: FenceToken) -> Result<Ix<Program>> {
        let ix = self.state.program_by_id.get(&id).copied();
        ix.filter(|&ix| self.state.programs[ix].token == token)
            .ok_or_else(|| Error::fenced(format!("token {token} of lease {id} holds no slots")))
    }
}

impl State {
    /// The first of the groups of a request that has no room for it.
    fn has_no_room_for(&self, request: &SlotRequest) -> Option<GroupRef> {
        let slots = request.slots;
        let has_room = |group: &GroupRef| {
            let row = self.find_group(group);
            let used = row.map_or(0, |ix| self.groups[ix].used);
            let limit = self.limit_with(group, None);
            let fits = limit.is_none_or(|limit| used + u64::from(slots) <= u64::from(limit));
            fits && !row.is_some_and(|ix| self.is_kept(ix, slots, LAST_PLACE, Counting::Running))
        };
        groups(&request.group).find(|group| !has_room(group))
    }
}

fn lease(program: &Program) -> SlotLease {
    SlotLease { token: program.token, since: program.since, lease_until: program.until }
}

/// The groups of which a reference takes slots: key, group.
fn groups(group: &GroupRef) -> impl Iterator<Item = GroupRef> {
    let own = match group {
        GroupRef::Key(name, _) => Some(GroupRef::Group(name.clone())),
        _ => None,
    };
    [group.clone()].into_iter().chain(own)
}
