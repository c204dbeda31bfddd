//! Limits by source, and the settings of queues and tasks.

use super::journal::Undo;
use super::row::{Group, Label, Queue, Task};
use super::table::Ix;
use super::{State, Vacant};
use crate::lane::Needs;
use crate::limit::in_force;
use crate::{GroupRef, Limits, TaskOptions};
use std::sync::Arc;

impl State {
    /// Changes the limits of one reference, and updates the effective limit of the groups that it concerns.
    pub(crate) fn change_limits(&mut self, group: &GroupRef, change: impl FnOnce(&mut Limits)) {
        let old = self.limits.get(group).cloned();
        let mut limits = old.clone().unwrap_or_default();
        change(&mut limits);
        if limits == old.clone().unwrap_or_default() {
            return;
        }
        if limits.is_empty() {
            self.forget_total(group);
        }
        self.put_limits(group, (!limits.is_empty()).then_some(limits));
        self.note(|| Undo::Limits(group.clone(), old.map(Box::new)));
    }

    pub(super) fn put_limits(&mut self, group: &GroupRef, limits: Option<Limits>) {
        let submit_limited =
            |limits: Option<&Limits>| usize::from(limits.is_some_and(|limits| limits.submit.is_some()));
        let after = submit_limited(limits.as_ref());
        let old = match limits {
            Some(limits) => self.limits.insert(group.clone(), limits),
            None => self.limits.remove(group),
        };
        self.submit_limits = self.submit_limits + after - submit_limited(old.as_ref());
        if let GroupRef::EveryKey(name) = group {
            let Some(parent) = self.find_group(&GroupRef::Group(name.clone())) else { return };
            let of_parent = |label: &Label| matches!(label, Label::Key(at, _) if *at == parent);
            let keys: Vec<_> =
                self.groups.iter().filter(|(_, row)| of_parent(&row.label)).map(|(ix, _)| ix).collect();
            for key in keys {
                self.refresh_limit(key);
            }
        } else if let Some(ix) = self.find_group(group) {
            self.refresh_limit(ix);
        }
    }

    pub(super) fn refresh_limit(&mut self, ix: Ix<Group>) {
        let limit = self.limit_of(&self.groups[ix].label).map(|(limit, _)| limit);
        if std::mem::replace(&mut self.groups[ix].limit, limit) != limit {
            self.room_changed(ix);
        }
    }

    pub(crate) fn limit_of(&self, label: &Label) -> Option<(u32, crate::LimitSource)> {
        if self.limits.is_empty() {
            return None;
        }
        let group = self.group_ref(label);
        let every_key = match &group {
            GroupRef::Key(name, _) => self.limits.get(&GroupRef::EveryKey(name.clone())),
            _ => None,
        };
        in_force(self.limits.get(&group), every_key)
    }

    /// Groups among these that have a submit-side limit.
    pub(crate) fn submit_limited(&self, needs: impl FnOnce(&Self) -> Needs) -> Vec<GroupRef> {
        if self.submit_limits == 0 {
            return Vec::new();
        }
        let groups = needs(self).into_iter().map(|(group, _)| self.group_ref(&self.groups[group].label));
        groups.filter(|group| self.limits.get(group).is_some_and(|limits| limits.submit.is_some())).collect()
    }

    /// Whether no live job and no program takes slots of a group.
    pub(crate) fn is_deserted(&self, group: &GroupRef) -> bool {
        self.find_group(group).is_none_or(|ix| self.groups[ix].live == 0)
    }

    pub(crate) fn change_queue(&mut self, ix: Ix<Queue>, priority: Option<u32>, paused: bool) {
        let old = self.put_queue(ix, priority, paused);
        self.note(|| Undo::Queue(ix, old.0, old.1));
    }

    pub(super) fn put_queue(
        &mut self,
        ix: Ix<Queue>,
        priority: Option<u32>,
        paused: bool,
    ) -> (Option<u32>, bool) {
        let queue = &mut self.queues[ix];
        let old = (queue.priority, queue.paused);
        (queue.priority, queue.paused) = (priority, paused);
        if old.1 != paused {
            self.list_desks(ix);
        }
        self.vacant.push(Vacant::Queue(ix));
        old
    }

    pub(crate) fn change_task(&mut self, ix: Ix<Task>, registered: Vec<Arc<TaskOptions>>) {
        let old = std::mem::replace(&mut self.tasks[ix].registered, registered);
        self.note(|| Undo::Task(ix, old));
    }
}
