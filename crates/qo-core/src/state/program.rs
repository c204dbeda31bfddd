//! Slots that programs hold. They count in their groups like the slots of running jobs.

use super::journal::Undo;
use super::row::{Group, Label, Program};
use super::{State, Vacant, table::Ix};
use crate::lane::Needs;
use crate::{GroupRef, Time};

impl State {
    /// The groups of which a program that names this reference takes slots, and how many: key, group.
    pub(crate) fn intern_needs(&mut self, group: &GroupRef, slots: u32) -> Needs {
        let (name, key) = match group {
            GroupRef::Key(name, key) => (name, Some(key)),
            GroupRef::Group(name) => (name, None),
            // `SlotRequest::check` refuses these.
            GroupRef::Queue(_) | GroupRef::EveryKey(_) | GroupRef::Cluster => return Needs::new(),
        };
        let own = self.intern_group(Label::Group(name.clone()));
        let key = key.map(|key| self.intern_group_key(name, key));
        key.into_iter().chain([own]).map(|group| (group, slots)).collect()
    }

    pub(crate) fn insert_program(&mut self, program: Program) {
        let ix = self.add_program(program);
        self.note(|| Undo::ProgramInserted(ix));
    }

    pub(crate) fn extend_program(&mut self, ix: Ix<Program>, until: Time) {
        let old = self.put_program_end(ix, self.now, until);
        self.note(|| Undo::ProgramExtended(ix, old));
    }

    pub(crate) fn remove_program(&mut self, ix: Ix<Program>) {
        let old = self.drop_program(ix);
        self.note(|| Undo::ProgramRemoved(ix, Box::new(old)));
    }

    pub(super) fn add_program(&mut self, program: Program) -> Ix<Program> {
        let (id, end, needs) = (program.request.id, (program.until, program.token), program.needs.clone());
        let ix = self.programs.insert(program);
        self.program_by_id.insert(id, ix);
        self.program_ends.insert(end, ix);
        for (group, need) in needs {
            self.groups[group].refs += 1;
            self.count_hold(group, need, true);
        }
        ix
    }

    pub(super) fn drop_program(&mut self, ix: Ix<Program>) -> Program {
        let program = self.programs.remove(ix);
        self.program_by_id.remove(&program.request.id);
        self.program_ends.remove(&(program.until, program.token));
        for &(group, need) in &program.needs {
            self.count_hold(group, need, false);
            self.groups[group].refs -= 1;
            self.vacant.push(Vacant::Group(group));
        }
        program
    }

    /// Sets when a lease was renewed and when it ends. Returns the old values.
    pub(super) fn put_program_end(&mut self, ix: Ix<Program>, renewed_at: Time, until: Time) -> (Time, Time) {
        let program = &mut self.programs[ix];
        let old = (program.renewed_at, program.until);
        (program.renewed_at, program.until) = (renewed_at, until);
        let token = program.token;
        self.program_ends.remove(&(old.1, token));
        self.program_ends.insert((until, token), ix);
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
