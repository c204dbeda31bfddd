//! Slots that programs hold: they count in their groups like those of running jobs.

use super::journal::Undo;
use super::row::{Group, Hold, Label};
use super::{State, Vacant, table::Ix};
use crate::lane::Needs;
use crate::{GroupRef, Time};

impl State {
    /// The groups of a reference that a program may name, and what it needs there: key, group.
    pub(crate) fn intern_needs(&mut self, group: &GroupRef, slots: u32) -> Needs {
        let (name, key) = match group {
            GroupRef::Key(name, key) => (name, Some(key)),
            GroupRef::Group(name) => (name, None),
            // Refused by `SlotRequest::check`.
            GroupRef::Queue(_) | GroupRef::EveryKey(_) | GroupRef::Cluster => return Needs::new(),
        };
        let own = self.intern_group(Label::Group(name.clone()));
        let key = key.map(|key| self.intern_group_key(name, key));
        key.into_iter().chain([own]).map(|group| (group, slots)).collect()
    }

    pub(crate) fn insert_hold(&mut self, hold: Hold) {
        let ix = self.add_hold(hold);
        self.note(|| Undo::HoldInserted(ix));
    }

    pub(crate) fn extend_hold(&mut self, ix: Ix<Hold>, until: Time) {
        let old = self.put_hold_end(ix, self.now, until);
        self.note(|| Undo::HoldExtended(ix, old));
    }

    pub(crate) fn remove_hold(&mut self, ix: Ix<Hold>) {
        let old = self.drop_hold(ix);
        self.note(|| Undo::HoldRemoved(ix, Box::new(old)));
    }

    pub(super) fn add_hold(&mut self, hold: Hold) -> Ix<Hold> {
        let (id, end, needs) = (hold.request.id, (hold.until, hold.token), hold.needs.clone());
        let ix = self.holds.insert(hold);
        self.hold_by_id.insert(id, ix);
        self.hold_ends.insert(end, ix);
        for (group, need) in needs {
            self.groups[group].refs += 1;
            self.count_hold(group, need, true);
        }
        ix
    }

    pub(super) fn drop_hold(&mut self, ix: Ix<Hold>) -> Hold {
        let hold = self.holds.remove(ix);
        self.hold_by_id.remove(&hold.request.id);
        self.hold_ends.remove(&(hold.until, hold.token));
        for &(group, need) in &hold.needs {
            self.count_hold(group, need, false);
            self.groups[group].refs -= 1;
            self.vacant.push(Vacant::Group(group));
        }
        hold
    }

    /// Sets when a lease was renewed and when it ends. Returns what these were.
    pub(super) fn put_hold_end(&mut self, ix: Ix<Hold>, renewed_at: Time, until: Time) -> (Time, Time) {
        let hold = &mut self.holds[ix];
        let old = (hold.renewed_at, hold.until);
        (hold.renewed_at, hold.until) = (renewed_at, until);
        let token = hold.token;
        self.hold_ends.remove(&(old.1, token));
        self.hold_ends.insert((until, token), ix);
        old
    }

    fn count_hold(&mut self, ix: Ix<Group>, need: u32, taken: bool) {
        let group = &mut self.groups[ix];
        for count in [&mut group.used, &mut group.live] {
            *count = if taken { *count + u64::from(need) } else { *count - u64::from(need) };
        }
        self.room_changed(ix);
    }
}
