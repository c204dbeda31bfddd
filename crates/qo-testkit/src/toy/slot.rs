//! Standalone slots: programs that are not jobs.

use super::state::{Counted, LAST_IN_LINE, Toy};
use super::{Flaw, conflict, fenced};
use qo_core::{Error, FenceToken, GroupRef, LeaseId, Name, Result, SlotLease, SlotRequest, Time, caps};

/// A program that holds slots.
#[derive(Clone)]
pub(super) struct Program {
    pub id: LeaseId,
    /// As it was asked for.
    pub group: GroupRef,
    pub slots: u32,
    pub holder: Name,
    pub lease: SlotLease,
}

impl Program {
    /// The slots that it takes: of its key, if any, and of its group.
    pub fn needs(&self) -> Vec<(GroupRef, u32)> {
        needs(&self.group, self.slots)
    }

    /// The slots that it takes in one group.
    pub fn need(&self, group: &GroupRef) -> u32 {
        self.needs().iter().filter(|(of, _)| of == group).map(|&(_, slots)| slots).sum()
    }
}

fn needs(group: &GroupRef, slots: u32) -> Vec<(GroupRef, u32)> {
    let whole = match group {
        GroupRef::Key(name, _) => Some((GroupRef::Group(name.clone()), slots)),
        _ => None,
    };
    [(group.clone(), slots)].into_iter().chain(whole).collect()
}

impl Toy {
    pub fn acquire(&mut self, request: &SlotRequest) -> Result<Option<SlotLease>> {
        request.check()?;
        let held = self.programs.iter().find(|program| program.id == request.id);
        if let Some(held) = held.filter(|held| held.lease.lease_until > self.now) {
            if held.group == request.group && held.slots == request.slots {
                return Ok(Some(held.lease));
            }
            return Err(conflict(format_args!("{} holds {} of {}", held.id, held.slots, held.group)));
        }
        let needs = needs(&request.group, request.slots);
        for (group, slots) in &needs {
            let own = request.limit.filter(|_| *group == request.group).map(Some);
            if let Some(limit) = self.limit_with(group, own).filter(|&limit| limit > 0 && *slots > limit) {
                return Err(Error::invalid("slots", slots, format_args!("{group} has a limit of {limit}")));
            }
        }
        self.end_what_is_over();
        let before = self.limits.get(&request.group).and_then(|limits| limits.submit);
        if request.limit.is_some() {
            self.set_submit_limit(&request.group, request.limit);
        }
        let full = needs.iter().find(|(group, slots)| !self.may_take(group, *slots));
        if let Some((full, _)) = full {
            self.set_submit_limit(&request.group, before);
            self.count_rejected(full);
            return Ok(None);
        }
        self.count_acquired(&needs);
        let lease_until = self.now.plus_ms(request.lease_ms);
        let lease = SlotLease { token: self.next_token(), since: self.now, lease_until };
        let SlotRequest { id, group, slots, holder, .. } = request.clone();
        self.programs.push(Program { id, group, slots, holder, lease });
        Ok(Some(lease))
    }

    /// Whether a program may take slots of a group: there is room, and no big job in line keeps it.
    fn may_take(&self, group: &GroupRef, slots: u32) -> bool {
        self.has_room(group, slots, Counted::Running)
            && (self.flaw == Flaw::ProgramsOvertake
                || self.reserved_for(LAST_IN_LINE, group, slots, Counted::Running).is_none())
    }

    pub fn extend(&mut self, id: LeaseId, token: FenceToken, lease_ms: u64) -> Result<SlotLease> {
        if !(caps::LEASE_MIN_MS..=caps::LEASE_MAX_MS).contains(&lease_ms) {
            let rule = format_args!("must be {} to {}", caps::LEASE_MIN_MS, caps::LEASE_MAX_MS);
            return Err(Error::invalid("lease_ms", lease_ms, rule));
        }
        let lease_until = self.now.plus_ms(lease_ms);
        self.revive(id, token);
        let held = self.programs.iter_mut().find(|program| program.id == id && program.lease.token == token);
        let held = held.ok_or_else(|| fenced(format_args!("token {token} of lease {id}")))?;
        held.lease.lease_until = lease_until;
        Ok(held.lease)
    }

    /// The flaw `ExtendRevives`.
    fn revive(&mut self, id: LeaseId, token: FenceToken) {
        if self.flaw == Flaw::ExtendRevives {
            let ended = self.ended_programs.iter();
            let ended =
                ended.enumerate().find(|(_, program)| program.id == id && program.lease.token == token);
            if let Some(at) = ended.map(|(at, _)| at) {
                let program = self.ended_programs.remove(at);
                self.programs.push(program);
            }
        }
    }

    pub fn give_slots_back(&mut self, id: LeaseId, token: FenceToken) -> Result<()> {
        let held = self.programs.iter().position(|program| program.id == id && program.lease.token == token);
        let at = held.ok_or_else(|| fenced(format_args!("token {token} of lease {id}")))?;
        let group = &self.programs[at].group;
        let at = match self.flaw {
            Flaw::ReturnByPosition => self.programs.iter().position(|program| program.group == *group),
            _ => Some(at),
        };
        self.free_program(at.expect("it holds slots"));
        Ok(())
    }

    pub fn free_program(&mut self, at: usize) {
        let ended = self.programs.remove(at);
        self.ended_programs.push(ended);
        self.drop_spent_limits();
    }

    /// Ends the leases that are over, by moment, then token; returns how many.
    pub fn end_leases(&mut self) -> u64 {
        let mut over: Vec<(Time, FenceToken)> = self
            .programs
            .iter()
            .map(|program| (program.lease.lease_until, program.lease.token))
            .filter(|&(until, _)| until <= self.now && self.flaw != Flaw::ProgramLeaseNeverEnds)
            .collect();
        over.sort();
        for &(_, token) in &over {
            let at = self.programs.iter().position(|program| program.lease.token == token);
            self.free_program(at.expect("it was just there"));
        }
        over.len() as u64
    }
}
