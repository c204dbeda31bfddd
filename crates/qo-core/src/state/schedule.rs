//! Schedules: a handful of rows by name, and the next tick of each.

use super::State;
use super::journal::Undo;
use super::row::ScheduleRow;
use crate::Name;

impl State {
    /// Changes, makes or (with none) removes a schedule.
    pub(crate) fn set_schedule(&mut self, name: &Name, row: Option<ScheduleRow>) {
        let old = self.put_schedule(name, row);
        self.note(|| Undo::Schedule(name.clone(), old.map(Box::new)));
    }

    pub(super) fn put_schedule(&mut self, name: &Name, row: Option<ScheduleRow>) -> Option<ScheduleRow> {
        let next = row.as_ref().and_then(|row| row.next);
        let old = match row {
            Some(row) => self.schedules.insert(name.clone(), row),
            None => self.schedules.remove(name),
        };
        if let Some(before) = old.as_ref().and_then(|row| row.next) {
            self.ticks.remove(&(before, name.clone()));
        }
        if let Some(next) = next {
            self.ticks.insert((next, name.clone()));
        }
        old
    }
}
