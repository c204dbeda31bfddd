//! Programs in the ledger: leases on standalone slots.

use super::{AcquireVerdict, Counted, Fact, GroupIndex, Ledger, Tell};
use qo_core::{Answer, FenceToken, GroupRef, LeaseId, Result, SlotLease, SlotRequest, SlotsFreedBy};

/// A program that holds slots.
#[derive(Debug, Clone)]
pub struct Program {
    /// As it asked for them.
    pub request: SlotRequest,
    /// Its lease.
    pub lease: SlotLease,
    /// What it takes, group by group.
    pub needs: Vec<(GroupIndex, u32)>,
}

impl Ledger {
    pub(super) fn acquire(&mut self, request: &SlotRequest, answer: &Result<Answer>, tell: &mut Tell<'_>) {
        let said = match answer {
            Ok(Answer::Acquired(lease)) => Ok(*lease),
            Ok(_) => return,
            Err(error) => Err(error.clone()),
        };
        if let Some(held) = self.programs.get(&request.id).filter(|held| held.lease.lease_until > self.now) {
            let same = held.request.group == request.group && held.request.slots == request.slots;
            let due = if same { AcquireVerdict::Same(held.lease) } else { AcquireVerdict::Conflict };
            return tell(self, &Fact::Acquired(request, &said, due));
        }
        let whole = match &request.group {
            GroupRef::Key(name, _) => Some(GroupRef::Group(name.clone())),
            _ => None,
        };
        let taken = whole.iter().chain([&request.group]);
        let needs: Vec<_> = taken.map(|group| (self.groups.index(group), request.slots)).collect();
        let named = self.groups.index(&request.group);
        // Its own limit counts as if it were kept; it is, if the slots are granted.
        let limit_before = self.groups.submitted(named);
        if let Some(limit) = request.limit {
            self.groups.set_submitted(named, Some(limit));
        }
        let never = |&(group, need): &(GroupIndex, u32)| {
            self.groups.limit(group).is_some_and(|limit| limit > 0 && need > limit)
        };
        if needs.iter().any(never) {
            self.groups.set_submitted(named, limit_before);
            return tell(self, &Fact::Acquired(request, &said, AcquireVerdict::Invalid));
        }
        self.groups.set_submitted(named, limit_before);
        self.end_what_is_over(&mut qo_core::Swept::default(), tell);
        let limit_before = self.groups.submitted(named);
        if let Some(limit) = request.limit {
            self.groups.set_submitted(named, Some(limit));
        }
        let due = self.slots_due(&needs);
        tell(self, &Fact::Acquired(request, &said, due));
        match said {
            Ok(Some(lease)) => {
                tell(self, &Fact::SlotsTaken(request, lease.token, &needs));
                self.groups.take(&needs);
                self.groups.enter(&needs);
                self.programs.insert(request.id, Program { request: request.clone(), lease, needs });
            }
            _ => self.groups.set_submitted(named, limit_before),
        }
    }

    fn slots_due(&self, needs: &[(GroupIndex, u32)]) -> AcquireVerdict {
        if !needs.iter().all(|&(group, need)| self.groups.has_room(group, need)) {
            return AcquireVerdict::Refused("a group lacks room");
        }
        let held_back = |&(group, need): &(GroupIndex, u32)| {
            self.big_job_ahead(None, group, need, Counted::NOW).is_some()
        };
        if needs.iter().any(held_back) {
            return AcquireVerdict::Refused("a big job in line holds it back");
        }
        AcquireVerdict::Granted
    }

    /// A program extends its lease (by so many milliseconds) or gives its slots back.
    pub(super) fn hold(
        &mut self,
        lease: LeaseId,
        token: FenceToken,
        lease_ms: Option<u64>,
        answer: &Result<Answer>,
        tell: &mut Tell<'_>,
    ) {
        let held = self.programs.get(&lease).filter(|held| held.lease.token == token);
        let due =
            held.map(|held| lease_ms.map(|ms| SlotLease { lease_until: self.now.plus_ms(ms), ..held.lease }));
        tell(self, &Fact::Held(lease, token, answer, due));
        match due {
            Some(Some(extended)) if answer.is_ok() => {
                self.programs.get_mut(&lease).expect("it was just found").lease = extended;
            }
            Some(None) if answer.is_ok() => self.free_slots(lease, SlotsFreedBy::Holder, tell),
            _ => {}
        }
    }

    pub(super) fn free_slots(&mut self, lease: LeaseId, by: SlotsFreedBy, tell: &mut Tell<'_>) {
        tell(self, &Fact::SlotsFreed(lease, by));
        if let Some(program) = self.programs.remove(&lease) {
            self.groups.free_up(&program.needs);
            self.groups.leave(&program.needs);
        }
    }
}
