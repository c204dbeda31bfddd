//! Finds or makes the rows that names stand for. These rows are not state: one that nothing refers to is invisible and
//! is freed, and making one early changes nothing.

use super::row::{Group, Label, Queue, Serves, Task};
use super::table::Ix;
use super::{State, Vacant, ordered::Ordered};
use crate::lane::{Class, Desk, Lane};
use crate::{GroupRef, Key, Name, NewSession};
use hashbrown::DefaultHashBuilder;
use std::collections::{BTreeMap, BTreeSet};
use std::hash::{BuildHasher, Hash};

pub(super) fn hash_with(hasher: &DefaultHashBuilder, value: &impl Hash) -> u64 {
    hasher.hash_one(value)
}

impl State {
    pub(super) fn hash(&self, value: &impl Hash) -> u64 {
        hash_with(&self.hasher, value)
    }

    pub(crate) fn intern_queue(&mut self, name: &Name) -> Ix<Queue> {
        if let Some(&ix) = self.queue_by_name.get(name) {
            return ix;
        }
        let group = self.intern_group(Label::Queue(name.clone()));
        self.groups[group].refs += 1;
        let queue = Queue {
            name: name.clone(),
            priority: None,
            paused: false,
            group,
            refs: 0,
            desks: BTreeSet::new(),
            open: self.groups[group].free() > 0,
            due: 0,
            scheduled: 0,
            waiting: 0,
            claimed: 0,
        };
        let ix = self.queues.insert(queue);
        self.groups[group].queue = Some(ix);
        self.queue_by_name.insert(name.clone(), ix);
        ix
    }

    pub(crate) fn intern_task(&mut self, name: &Name) -> Ix<Task> {
        if let Some(&ix) = self.task_by_name.get(name) {
            return ix;
        }
        let task = Task {
            name: name.clone(),
            registered: Vec::new(),
            refs: 0,
            desks: BTreeSet::new(),
            sessions: Vec::new(),
        };
        let ix = self.tasks.insert(task);
        self.task_by_name.insert(name.clone(), ix);
        ix
    }

    pub(crate) fn intern_group(&mut self, label: Label) -> Ix<Group> {
        let hash = self.hash(&label);
        if let Some(&ix) = self.group_by_label.find(hash, |&ix| self.groups[ix].label == label) {
            return ix;
        }
        let limit = self.limit_of(&label).map(|(limit, _)| limit);
        if let Label::Key(parent, _) = label {
            self.groups[parent].refs += 1;
        }
        let ix = self.groups.insert(Group::new(label, limit));
        let (groups, hasher) = (&self.groups, &self.hasher);
        self.group_by_label.insert_unique(hash, ix, |&ix| hash_with(hasher, &groups[ix].label));
        ix
    }

    pub(super) fn intern_group_key(&mut self, name: &Name, key: &Key) -> Ix<Group> {
        let parent = self.intern_group(Label::Group(name.clone()));
        self.intern_group(Label::Key(parent, key.clone()))
    }

    /// The lane of jobs that ask for exactly this.
    pub(crate) fn intern_lane(
        &mut self,
        (queue, task, group): (&Name, &Name, &Name),
        key: Option<&Key>,
        cost: u32,
        limits: &BTreeMap<GroupRef, u32>,
    ) -> Ix<Lane> {
        let desk = self.intern_desk(queue, task);
        let class = self.intern_class(desk, group, cost, limits);
        let parent = self.classes[class].group;
        let key = key.map(|key| self.intern_group(Label::Key(parent, key.clone())));
        let hash = self.hash(&(class, key));
        let same = |lane: &Lane| lane.class == class && lane.key == key;
        if let Some(&ix) = self.lane_by_parts.find(hash, |&ix| same(&self.lanes[ix])) {
            return ix;
        }
        let ix = self.lanes.insert(Lane { class, key, jobs: Ordered::None, parked: false, refs: 0 });
        self.classes[class].refs += 1;
        if let Some(key) = key {
            self.groups[key].refs += 1;
        }
        let (lanes, hasher) = (&self.lanes, &self.hasher);
        self.lane_by_parts
            .insert_unique(hash, ix, |&ix| hash_with(hasher, &(lanes[ix].class, lanes[ix].key)));
        ix
    }

    fn intern_class(
        &mut self,
        desk: Ix<Desk>,
        group: &Name,
        cost: u32,
        limits: &BTreeMap<GroupRef, u32>,
    ) -> Ix<Class> {
        let group = self.intern_group(Label::Group(group.clone()));
        let extras: Box<[_]> = limits
            .iter()
            .filter_map(|(extra, &need)| match extra {
                GroupRef::Group(name) => Some((self.intern_group(Label::Group(name.clone())), need)),
                GroupRef::Key(name, key) => Some((self.intern_group_key(name, key), need)),
                // `NewJob::check` refuses these.
                GroupRef::Cluster | GroupRef::Queue(_) | GroupRef::EveryKey(_) => None,
            })
            .collect();
        let hash = self.hash(&(desk, group, cost, &extras));
        let same = |class: &Class| {
            (class.desk, class.group, class.cost, &class.extras) == (desk, group, cost, &extras)
        };
        if let Some(&ix) = self.class_by_parts.find(hash, |&ix| same(&self.classes[ix])) {
            return ix;
        }
        for (group, _) in std::iter::once((group, cost)).chain(extras.iter().copied()) {
            self.groups[group].refs += 1;
        }
        self.desks[desk].refs += 1;
        let (lanes, gate, spec) = (Ordered::None, None, None);
        let class = Class { desk, group, cost, extras, lanes, gate, spec, refs: 0 };
        let ix = self.classes.insert(class);
        let (classes, hasher) = (&self.classes, &self.hasher);
        self.class_by_parts.insert_unique(hash, ix, |&ix| class_hash(hasher, &classes[ix]));
        ix
    }

    fn intern_desk(&mut self, queue: &Name, task: &Name) -> Ix<Desk> {
        let (queue, task) = (self.intern_queue(queue), self.intern_task(task));
        if let Some(&ix) = self.desk_by_parts.get(&(queue, task)) {
            return ix;
        }
        let ix = self.desks.insert(Desk {
            queue,
            task,
            ready: Ordered::None,
            open: Ordered::None,
            stands: false,
            listed: false,
            refs: 0,
        });
        self.desk_by_parts.insert((queue, task), ix);
        self.queues[queue].refs += 1;
        self.tasks[task].refs += 1;
        ix
    }

    /// The queues and tasks of a session.
    pub(crate) fn intern_serves(&mut self, session: &NewSession) -> Serves {
        let mut queues: Vec<_> = session.queues.iter().map(|queue| self.intern_queue(queue)).collect();
        queues.sort_unstable();
        queues.dedup();
        let mut tasks: Vec<_> = session.tasks.iter().map(|task| self.intern_task(task)).collect();
        tasks.sort_unstable();
        tasks.dedup();
        Serves { queues: (!queues.is_empty()).then_some(queues), tasks }
    }

    /// The row of a group, if it has one. `GROUP/*` has none.
    pub(crate) fn find_group(&self, group: &GroupRef) -> Option<Ix<Group>> {
        let label = match group {
            GroupRef::Cluster => Label::Cluster,
            GroupRef::Queue(name) => Label::Queue(name.clone()),
            GroupRef::Group(name) => Label::Group(name.clone()),
            GroupRef::Key(name, key) => {
                Label::Key(self.find_group(&GroupRef::Group(name.clone()))?, key.clone())
            }
            GroupRef::EveryKey(_) => return None,
        };
        self.group_by_label.find(self.hash(&label), |&ix| self.groups[ix].label == label).copied()
    }

    pub(crate) fn group_ref(&self, label: &Label) -> GroupRef {
        match label {
            Label::Cluster => GroupRef::Cluster,
            Label::Queue(name) => GroupRef::Queue(name.clone()),
            Label::Group(name) => GroupRef::Group(name.clone()),
            Label::Key(parent, key) => GroupRef::Key(self.group_name(*parent), key.clone()),
        }
    }

    /// The name of a job's group or of a key's group.
    pub(crate) fn group_name(&self, ix: Ix<Group>) -> Name {
        match &self.groups[ix].label {
            Label::Group(name) | Label::Queue(name) => name.clone(),
            Label::Cluster | Label::Key(..) => unreachable!("a job's group and a key's group have names"),
        }
    }

    /// Frees rows that nothing refers to any more. Not during a speculation, which may bring references back.
    pub(crate) fn free_vacant(&mut self) {
        if self.journal.is_some() {
            return;
        }
        while let Some(vacant) = self.vacant.pop() {
            match vacant {
                Vacant::Lane(ix) if self.lanes.get(ix).is_some_and(|lane| lane.refs == 0) => {
                    self.free_lane(ix)
                }
                Vacant::Queue(ix) if self.queues.get(ix).is_some_and(Queue::is_vacant) => self.free_queue(ix),
                Vacant::Task(ix) if self.tasks.get(ix).is_some_and(Task::is_vacant) => self.free_task(ix),
                Vacant::Group(ix) if self.groups.get(ix).is_some_and(|group| group.refs == 0) => {
                    self.free_group(ix)
                }
                Vacant::Workflow(ix) if self.workflows.get(ix).is_some_and(|row| row.steps.is_empty()) => {
                    let name = self.workflows.remove(ix).name;
                    self.workflow_by_name.remove(&name);
                }
                Vacant::Lane(_) | Vacant::Queue(_) | Vacant::Task(_) => {}
                Vacant::Group(_) | Vacant::Workflow(_) => {}
            }
        }
    }

    fn free_lane(&mut self, ix: Ix<Lane>) {
        let lane = self.lanes.remove(ix);
        let hash = self.hash(&(lane.class, lane.key));
        if let Ok(entry) = self.lane_by_parts.find_entry(hash, |&at| at == ix) {
            entry.remove();
        }
        if let Some(key) = lane.key {
            self.release_group(key);
        }
        self.classes[lane.class].refs -= 1;
        if self.classes[lane.class].refs == 0 {
            self.free_class(lane.class);
        }
    }

    fn free_class(&mut self, ix: Ix<Class>) {
        let class = self.classes.remove(ix);
        let hash = class_hash(&self.hasher, &class);
        if let Ok(entry) = self.class_by_parts.find_entry(hash, |&at| at == ix) {
            entry.remove();
        }
        for (group, _) in class.shared() {
            self.release_group(group);
        }
        self.desks[class.desk].refs -= 1;
        if self.desks[class.desk].refs == 0 {
            let desk = self.desks.remove(class.desk);
            self.desk_by_parts.remove(&(desk.queue, desk.task));
            self.release_queue(desk.queue);
            self.release_task(desk.task);
        }
    }

    pub(super) fn release_queue(&mut self, ix: Ix<Queue>) {
        self.queues[ix].refs -= 1;
        self.vacant.push(Vacant::Queue(ix));
    }

    pub(super) fn release_task(&mut self, ix: Ix<Task>) {
        self.tasks[ix].refs -= 1;
        self.vacant.push(Vacant::Task(ix));
    }

    fn free_queue(&mut self, ix: Ix<Queue>) {
        let queue = self.queues.remove(ix);
        self.queue_by_name.remove(&queue.name);
        self.release_group(queue.group);
    }

    fn free_task(&mut self, ix: Ix<Task>) {
        let task = self.tasks.remove(ix);
        self.task_by_name.remove(&task.name);
    }

    fn release_group(&mut self, ix: Ix<Group>) {
        self.groups[ix].refs -= 1;
        if self.groups[ix].refs == 0 {
            self.free_group(ix);
        }
    }

    fn free_group(&mut self, ix: Ix<Group>) {
        let hash = hash_with(&self.hasher, &self.groups[ix].label);
        if let Ok(entry) = self.group_by_label.find_entry(hash, |&at| at == ix) {
            entry.remove();
        }
        let row = self.groups.remove(ix);
        self.keep_count(&row);
        if let Label::Key(parent, _) = row.label {
            self.release_group(parent);
        }
    }
}

fn class_hash(hasher: &DefaultHashBuilder, class: &Class) -> u64 {
    hash_with(hasher, &(class.desk, class.group, class.cost, &class.extras))
}
