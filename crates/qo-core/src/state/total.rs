//! Totals: how often slots of a group that has a limit were taken, and how often they were refused.
//!
//! A claim counts in the row of each group, which it changes anyway. A row without references is freed; its count then
//! moves to `totals`. Keys are summed under `GROUP/*`, so that a million of them leave one total.
//!
//! Invariant: a total is there only while its group has a limit of its own. So totals need no more room than limits.

use super::State;
use super::journal::Undo;
use super::row::{Group, Label};
use super::table::Ix;
use crate::GroupRef;
use crate::lane::Needs;

/// How often slots of a group were taken and refused.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Totals {
    /// Jobs and programs that took slots.
    pub(crate) acquired: u64,
    /// Submits and programs that were refused.
    pub(crate) rejected: u64,
}

impl State {
    /// Where slots of a group are counted: keys together.
    fn counted_as(&self, label: &Label) -> GroupRef {
        match label {
            Label::Key(parent, _) => GroupRef::EveryKey(self.group_name(*parent)),
            label => self.group_ref(label),
        }
    }

    /// Where a refusal by a group is counted, if it is: it needs a limit there.
    pub(crate) fn counts_refusals_of(&self, group: &GroupRef) -> Option<GroupRef> {
        let counted = match group {
            GroupRef::Key(name, _) => GroupRef::EveryKey(name.clone()),
            group => group.clone(),
        };
        self.limits.contains_key(&counted).then_some(counted)
    }

    /// A job or program takes slots.
    pub(crate) fn count_acquired(&mut self, needs: Needs) {
        for (ix, _) in needs {
            let row = &self.groups[ix];
            let counts = match row.label {
                _ if row.limit.is_none() => false,
                // The limit may be that of this key alone.
                Label::Key(..) => self.limits.contains_key(&self.counted_as(&row.label)),
                Label::Cluster | Label::Queue(_) | Label::Group(_) => true,
            };
            if counts {
                self.groups[ix].acquired += 1;
                self.note(|| Undo::Acquired(ix));
            }
        }
    }

    /// A group refused submits or programs.
    pub(crate) fn count_rejected(&mut self, group: &GroupRef, times: u64) {
        if self.limits.contains_key(group) {
            let old = self.totals.get(group).copied();
            self.note(|| Undo::Total(group.clone(), old, Vec::new()));
            self.totals.entry(group.clone()).or_default().rejected += times;
        }
    }

    /// The last limit of a group goes.
    pub(super) fn forget_total(&mut self, group: &GroupRef) {
        let rows: Vec<(Ix<Group>, u64)> = match group {
            GroupRef::Key(..) => return,
            GroupRef::EveryKey(_) => self.keys_that_counted(group).collect(),
            group => self.find_group(group).map(|ix| (ix, self.groups[ix].acquired)).into_iter().collect(),
        };
        for (ix, _) in &rows {
            self.groups[*ix].acquired = 0;
        }
        let old = self.totals.remove(group);
        if old.is_some() || rows.iter().any(|(_, counted)| *counted > 0) {
            self.note(|| Undo::Total(group.clone(), old, rows));
        }
    }

    pub(super) fn put_total(&mut self, group: &GroupRef, total: Option<Totals>, rows: Vec<(Ix<Group>, u64)>) {
        match total {
            Some(total) => drop(self.totals.insert(group.clone(), total)),
            None => drop(self.totals.remove(group)),
        }
        for (ix, counted) in rows {
            self.groups[ix].acquired = counted;
        }
    }

    /// The row of a group is about to be freed.
    pub(super) fn keep_count(&mut self, row: &Group) {
        if row.acquired > 0 {
            let group = self.counted_as(&row.label);
            self.totals.entry(group).or_default().acquired += row.acquired;
        }
    }

    fn keys_that_counted(&self, every_key: &GroupRef) -> impl Iterator<Item = (Ix<Group>, u64)> {
        let of_group =
            |row: &Group| matches!(row.label, Label::Key(..)) && self.counted_as(&row.label) == *every_key;
        let counted = self.groups.iter().filter(move |(_, row)| row.acquired > 0 && of_group(row));
        counted.map(|(ix, row)| (ix, row.acquired))
    }

    /// How often slots of a group were taken and refused since it has had a limit. A key has no total of its own.
    pub(crate) fn total(&self, group: &GroupRef) -> Totals {
        let mut total = self.totals.get(group).copied().unwrap_or_default();
        total.acquired += match group {
            GroupRef::Key(..) => 0,
            GroupRef::EveryKey(_) => self.keys_that_counted(group).map(|(_, counted)| counted).sum(),
            group => self.find_group(group).map_or(0, |ix| self.groups[ix].acquired),
        };
        total
    }
}
