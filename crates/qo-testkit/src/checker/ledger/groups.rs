//! Groups in the ledger: limits by source, slots taken.

use qo_core::{CodeLimit, GroupRef, Limits, TaskOptions};
use std::collections::{BTreeMap, HashMap};

/// A group's number in the ledger: names are compared once, numbers often.
pub type GroupIndex = usize;

/// All groups that were ever named.
#[derive(Debug, Clone, Default)]
pub struct Groups {
    index: HashMap<GroupRef, GroupIndex>,
    rows: Vec<Row>,
}

#[derive(Debug, Clone)]
struct Row {
    group: GroupRef,
    /// The `GROUP/*` of a `GROUP/KEY`.
    every_key: Option<GroupIndex>,
    limits: Limits,
    used: u64,
    /// Slots that claimed jobs will need once they start.
    claimed: u64,
    live: u64,
}

fn declared(limits: &Limits) -> Option<u32> {
    limits.operator.or(limits.config).or(limits.code.last().map(|code| code.limit))
}

impl Groups {
    /// The number of a group; a new one gets the next.
    pub fn index(&mut self, group: &GroupRef) -> GroupIndex {
        if let Some(&index) = self.index.get(group) {
            return index;
        }
        let every_key = match group {
            GroupRef::Key(name, _) => Some(self.index(&GroupRef::EveryKey(name.clone()))),
            _ => None,
        };
        let row =
            Row { group: group.clone(), every_key, limits: Limits::default(), used: 0, claimed: 0, live: 0 };
        self.rows.push(row);
        self.index.insert(group.clone(), self.rows.len() - 1);
        self.rows.len() - 1
    }

    /// The number of a group that was named before.
    pub fn find(&self, group: &GroupRef) -> Option<GroupIndex> {
        self.index.get(group).copied()
    }

    /// Every number.
    pub fn all(&self) -> std::ops::Range<GroupIndex> {
        0..self.rows.len()
    }

    /// The group of a number.
    pub fn name(&self, index: GroupIndex) -> &GroupRef {
        &self.rows[index].group
    }

    /// The number of the `GROUP/*` of a `GROUP/KEY`.
    pub fn every_key(&self, index: GroupIndex) -> Option<GroupIndex> {
        self.rows[index].every_key
    }

    /// Slots taken by running jobs and by programs.
    pub fn used(&self, index: GroupIndex) -> u64 {
        self.rows[index].used
    }

    /// Slots that claimed jobs will need once they start.
    pub fn claimed(&self, index: GroupIndex) -> u64 {
        self.rows[index].claimed
    }

    /// Slots of all live jobs and of programs.
    pub fn live(&self, index: GroupIndex) -> u64 {
        self.rows[index].live
    }

    /// Slots taken and slots of all live jobs; of `GROUP/*`, summed over the keys.
    pub fn totals(&self, index: GroupIndex) -> (u64, u64) {
        let mut total = (self.used(index), self.live(index));
        if matches!(self.rows[index].group, GroupRef::EveryKey(_)) {
            for row in self.rows.iter().filter(|row| row.every_key == Some(index)) {
                total = (total.0 + row.used, total.1 + row.live);
            }
        }
        total
    }

    /// The limit in force: exact before `GROUP/*`, then operator, configuration, code; a submit-side limit only where
    /// no other source set one.
    pub fn limit(&self, index: GroupIndex) -> Option<u32> {
        let row = &self.rows[index];
        declared(&row.limits)
            .or_else(|| row.every_key.and_then(|every| declared(&self.rows[every].limits)))
            .or(row.limits.submit)
    }

    /// The limit that would be in force after a submit sets the submit-side limit, or clears it.
    pub fn limit_with(&self, group: &GroupRef, set: Option<Option<u32>>) -> Option<u32> {
        let every_key = match group {
            GroupRef::Key(name, _) => self.find(&GroupRef::EveryKey(name.clone())),
            _ => None,
        };
        let row = self.find(group).map(|index| &self.rows[index].limits);
        let every_key = every_key.map(|index| &self.rows[index].limits);
        row.and_then(declared)
            .or_else(|| every_key.and_then(declared))
            .or_else(|| set.unwrap_or_else(|| row.and_then(|l| l.submit)))
    }

    /// Slots that are free; none if the group is unlimited.
    pub fn free(&self, index: GroupIndex) -> Option<u64> {
        self.limit(index).map(|limit| u64::from(limit).saturating_sub(self.used(index)))
    }

    /// Whether so many slots can be taken.
    pub fn has_room(&self, index: GroupIndex, need: u32) -> bool {
        self.free(index).is_none_or(|free| u64::from(need) <= free)
    }

    pub(super) fn set_operator(&mut self, group: &GroupRef, limit: Option<u32>) {
        let index = self.index(group);
        self.rows[index].limits.operator = limit;
    }

    /// Of what the apps say, the values that count.
    pub(super) fn configure(&mut self, limits: &BTreeMap<GroupRef, u32>) {
        self.rows.iter_mut().for_each(|row| row.limits.config = None);
        for (group, &limit) in limits {
            let index = self.index(group);
            self.rows[index].limits.config = Some(limit);
        }
    }

    pub(super) fn register(&mut self, task: &TaskOptions) {
        let mine = |code: &CodeLimit| code.task == task.task && code.app == task.app;
        self.rows.iter_mut().for_each(|row| row.limits.code.retain(|code| !mine(code)));
        if let Some(limit) = task.max_concurrent {
            let index = self.index(&GroupRef::Group(task.group().clone()));
            let code = CodeLimit { task: task.task.clone(), limit, app: task.app.clone() };
            self.rows[index].limits.code.push(code);
        }
    }

    /// Whether a source other than a submit limits exactly this group, or every key of it.
    pub fn is_declared(&self, index: GroupIndex) -> bool {
        let row = &self.rows[index];
        let every_key = row.every_key.and_then(|every| declared(&self.rows[every].limits));
        declared(&row.limits).or(every_key).is_some()
    }

    /// The submit-side limit of a group.
    pub(super) fn submitted(&self, index: GroupIndex) -> Option<u32> {
        self.rows[index].limits.submit
    }

    pub(super) fn set_submitted(&mut self, index: GroupIndex, limit: Option<u32>) {
        self.rows[index].limits.submit = limit;
    }

    pub(super) fn claim(&mut self, needs: &[(GroupIndex, u32)]) {
        needs.iter().for_each(|&(group, need)| self.rows[group].claimed += u64::from(need));
    }

    pub(super) fn unclaim(&mut self, needs: &[(GroupIndex, u32)]) {
        needs.iter().for_each(|&(group, need)| self.rows[group].claimed -= u64::from(need));
    }

    pub(super) fn take(&mut self, needs: &[(GroupIndex, u32)]) {
        needs.iter().for_each(|&(group, need)| self.rows[group].used += u64::from(need));
    }

    pub(super) fn free_up(&mut self, needs: &[(GroupIndex, u32)]) {
        needs.iter().for_each(|&(group, need)| self.rows[group].used -= u64::from(need));
    }

    pub(super) fn enter(&mut self, needs: &[(GroupIndex, u32)]) {
        needs.iter().for_each(|&(group, need)| self.rows[group].live += u64::from(need));
    }

    /// A job or program has ended. The submit-side limit of a group goes with the last of them.
    pub(super) fn leave(&mut self, needs: &[(GroupIndex, u32)]) {
        for &(group, need) in needs {
            let row = &mut self.rows[group];
            row.live -= u64::from(need);
            if row.live == 0 {
                row.limits.submit = None;
            }
        }
    }
}
