//! The audit: counts everything again from the rows, and checks the two invariants of [`lane`](crate::lane). It reads
//! every row, so it is for tests and `doctor`.

use super::State;
use super::row::{At, Group, Job, Label, Phase, Record, Workflow};
use super::table::Ix;
use crate::lane::{Class, Desk, Lane, Rank};
use std::collections::{BTreeMap, BTreeSet};

/// Faults found so far.
type Faults = Vec<String>;

impl State {
    /// Every difference between the indexes and what follows from the rows. Empty if there is none.
    pub fn audit(&self) -> Vec<String> {
        let mut faults = Faults::new();
        self.audit_counts(&mut faults);
        self.audit_refs(&mut faults);
        self.audit_timers(&mut faults);
        self.audit_apps(&mut faults);
        for (ix, lane) in self.lanes.iter() {
            self.audit_lane(ix, lane, &mut faults);
        }
        for (ix, class) in self.classes.iter() {
            self.audit_class(ix, class, &mut faults);
        }
        for (ix, group) in self.groups.iter() {
            self.audit_line(ix, group, &mut faults);
        }
        for (ix, desk) in self.desks.iter() {
            self.audit_desk(ix, desk, &mut faults);
        }
        for (ix, workflow) in self.workflows.iter() {
            self.audit_workflow(ix, workflow, &mut faults);
        }
        faults
    }

    /// Slots and places in line, counted from the jobs.
    fn audit_counts(&self, faults: &mut Faults) {
        let mut counts: BTreeMap<_, (u64, u64)> = BTreeMap::new();
        let mut claimed: BTreeMap<Ix<Group>, u64> = BTreeMap::new();
        let mut due = 0;
        for (ix, job) in self.jobs.iter() {
            let (used, live) = match job.phase() {
                Phase::Pending | Phase::Claimed(_) => (0, 1),
                Phase::Running(_) => (1, 1),
            };
            due += u64::from(self.is_next(ix) && *job.phase() == Phase::Pending && job.run_at <= self.now);
            for (group, need) in self.needs(job.lane) {
                let count = counts.entry(group).or_default();
                count.0 += used * u64::from(need);
                count.1 += live * u64::from(need);
                *claimed.entry(group).or_default() += u64::from(job.claimed().is_some()) * u64::from(need);
            }
        }
        for (group, need) in self.programs.iter().flat_map(|(_, program)| &program.needs) {
            let count = counts.entry(*group).or_default();
            count.0 += u64::from(*need);
            count.1 += u64::from(*need);
        }
        claimed.retain(|_, slots| *slots > 0);
        let counted: BTreeMap<_, _> =
            self.claimed_slots.iter().map(|(&group, &slots)| (group, slots)).collect();
        check(faults, counted == claimed, || format!("claimed slots: {counted:?}, not {claimed:?}"));
        for (ix, group) in self.groups.iter() {
            let counted = counts.get(&ix).copied().unwrap_or_default();
            let label = &group.label;
            check(faults, (group.used, group.live) == counted, || {
                format!("{label:?}: used, live: {counted:?}")
            });
            let limit = self.limit_of(label).map(|(limit, _)| limit);
            check(faults, limit == group.limit, || {
                format!("{label:?}: limit {:?}, not {limit:?}", group.limit)
            });
        }
        let in_lanes: u64 = self.lanes.iter().map(|(_, lane)| lane.jobs.iter().count() as u64).sum();
        check(faults, in_lanes == due, || format!("{in_lanes} jobs stand in lanes, {due} are due"));
    }

    /// Reference counts, from the rows. A wrong count frees a row too early or never.
    fn audit_refs(&self, faults: &mut Faults) {
        let (mut lanes, mut classes, mut desks) = (BTreeMap::new(), BTreeMap::new(), BTreeMap::new());
        let (mut queues, mut tasks, mut groups) = (BTreeMap::new(), BTreeMap::new(), BTreeMap::new());
        let jobs = self.jobs.iter().map(|(_, job)| job.lane);
        jobs.for_each(|lane| *lanes.entry(lane).or_insert(0) += 1);
        *groups.entry(Self::CLUSTER).or_insert(0) += 1;
        for (_, lane) in self.lanes.iter() {
            *classes.entry(lane.class).or_insert(0) += 1;
            lane.key.into_iter().for_each(|key| *groups.entry(key).or_insert(0) += 1);
        }
        for (_, class) in self.classes.iter() {
            *desks.entry(class.desk).or_insert(0) += 1;
            class.shared().for_each(|(group, _)| *groups.entry(group).or_insert(0) += 1);
        }
        for (_, desk) in self.desks.iter() {
            *queues.entry(desk.queue).or_insert(0) += 1;
            *tasks.entry(desk.task).or_insert(0) += 1;
        }
        for (_, session) in self.sessions.iter() {
            let serves = &session.row.serves;
            serves.queues.iter().flatten().for_each(|&queue| *queues.entry(queue).or_insert(0) += 1);
            serves.tasks.iter().for_each(|&task| *tasks.entry(task).or_insert(0) += 1);
        }
        let programs = self.programs.iter().flat_map(|(_, program)| &program.needs);
        programs.for_each(|(group, _)| *groups.entry(*group).or_insert(0) += 1);
        self.queues.iter().for_each(|(_, queue)| *groups.entry(queue.group).or_insert(0) += 1);
        for (_, group) in self.groups.iter() {
            if let Label::Key(parent, _) = group.label {
                *groups.entry(parent).or_insert(0) += 1;
            }
        }
        compare(faults, "lane", self.lanes.iter().map(|(ix, row)| (ix, row.refs)), &lanes);
        compare(faults, "class", self.classes.iter().map(|(ix, row)| (ix, row.refs)), &classes);
        compare(faults, "desk", self.desks.iter().map(|(ix, row)| (ix, row.refs)), &desks);
        compare(faults, "queue", self.queues.iter().map(|(ix, row)| (ix, row.refs)), &queues);
        compare(faults, "task", self.tasks.iter().map(|(ix, row)| (ix, row.refs)), &tasks);
        compare(faults, "group", self.groups.iter().map(|(ix, row)| (ix, row.refs)), &groups);
        let vacant = self.lanes.iter().any(|(_, lane)| lane.refs == 0)
            || self.queues.iter().any(|(_, queue)| queue.is_vacant())
            || self.tasks.iter().any(|(_, task)| task.is_vacant())
            || self.workflows.iter().any(|(_, workflow)| workflow.steps.is_empty());
        check(faults, !vacant || self.journal.is_some(), || {
            "a row that nothing refers to was not freed".into()
        });
    }

    fn audit_timers(&self, faults: &mut Faults) {
        let jobs = || self.jobs.iter().map(|(_, job)| job);
        let pending = || jobs().filter(|job| *job.phase() == Phase::Pending);
        let is_next = self.jobs.iter().filter(|&(ix, _)| self.is_next(ix)).map(|(_, job)| job);
        let scheduled = is_next.filter(|job| *job.phase() == Phase::Pending && job.run_at > self.now).count();
        let claimed: usize = self.sessions.iter().map(|(_, session)| session.claimed.len()).sum();
        let waited_for = self.workflows.iter().filter(|(_, workflow)| workflow.live > 0);
        let halting = waited_for.flat_map(|(_, workflow)| workflow.open.values());
        let halting = halting.filter(|at| matches!(at, At::Past(_))).count();
        let running: usize = self.sessions.iter().map(|(_, session)| session.running.len()).sum();
        let submitted = self.limits.values().filter(|limits| limits.submit.is_some()).count();
        let timeouts = jobs().filter(|job| job.run().is_some_and(|run| run.timeout_at.is_some())).count();
        for (what, have, should) in [
            ("running", running, jobs().filter(|job| job.run().is_some()).count()),
            ("timeouts", self.timeouts.len(), timeouts),
            ("expiries", self.expiries.len(), pending().filter(|job| job.good_until().is_some()).count()),
            ("scheduled", self.scheduled.len(), scheduled),
            ("claims", self.claims.len(), jobs().filter(|job| job.claimed().is_some()).count()),
            ("claimed", claimed, self.claims.len()),
            ("retained", self.retained.len() + halting, self.past.iter().count()),
            ("past by number", self.past_by_number.len(), self.past.iter().count()),
            ("lease ends", self.program_ends.len(), self.programs.iter().count()),
            ("leases by id", self.program_by_id.len(), self.programs.iter().count()),
            ("ticks", self.ticks.len(), self.schedules.values().filter(|row| row.next.is_some()).count()),
            ("ended sessions", self.ended_order.len(), self.ended_sessions.len()),
            ("session ends", self.session_ends.len(), self.sessions.iter().count()),
            ("submit-side limits", self.submit_limits, submitted),
        ] {
            check(faults, have == should, || format!("{what}: {have}, should be {should}"));
        }
    }

    /// Which settings of the apps count, from their configurations.
    pub(super) fn audit_apps(&self, faults: &mut Faults) {
        let mut limits = BTreeMap::new();
        let (mut schedules, mut priorities) = (BTreeMap::new(), BTreeMap::new());
        // The later one overwrites the earlier.
        for said in &self.apps {
            limits.extend(said.limits.iter().map(|(group, limit)| (group, (*limit, &said.app))));
            schedules.extend(&said.schedules);
            priorities.extend(&said.queue_priorities);
        }
        let counted = self
            .limits
            .iter()
            .filter_map(|(group, limits)| Some((group, (limits.config?, limits.config_app.as_ref()?))));
        let counted: BTreeMap<_, _> = counted.collect();
        check(faults, counted == limits, || format!("configured limits: {counted:?}, not {limits:?}"));
        let counted: BTreeMap<_, _> = self.schedules.iter().map(|(name, row)| (name, &row.spec)).collect();
        check(faults, counted == schedules, || format!("schedules: {counted:?}, not {schedules:?}"));
        let queues = self.queues.iter();
        let counted: BTreeMap<_, _> =
            queues.filter_map(|(_, queue)| Some((&queue.name, queue.priority.as_ref()?))).collect();
        check(faults, counted == priorities, || format!("priorities: {counted:?}, not {priorities:?}"));
        let code = self.tasks.iter().flat_map(|(_, task)| &task.registered);
        let code = code.filter(|task| task.max_concurrent.is_some()).count();
        let counted: usize = self.limits.values().map(|limits| limits.code.len()).sum();
        check(faults, counted == code, || format!("limits of code: {counted}, not {code}"));
    }

    fn is_next(&self, ix: Ix<Job>) -> bool {
        self.jobs[ix].membership().is_none_or(|at| self.workflows[at.workflow].next == Some(ix))
    }

    /// Which step is next, from the steps.
    fn audit_workflow(&self, ix: Ix<Workflow>, workflow: &Workflow, faults: &mut Faults) {
        let of = |record: &Record| record.membership().filter(|at| at.workflow == ix).map(|at| at.step);
        let live = self.jobs.iter().filter_map(|(ix, job)| Some((of(job)?, At::Live(ix))));
        let past = self.past.iter().filter_map(|(ix, past)| Some((of(past)?, At::Past(ix))));
        let steps: BTreeMap<u32, At> = live.chain(past).collect();
        let name = &workflow.name;
        check(faults, steps == workflow.steps, || format!("workflow {name}: steps"));
        let is_open = |at: &At| match *at {
            At::Live(_) => true,
            At::Past(past) => !workflow.passes(&self.past[past]),
        };
        let open: BTreeMap<u32, At> =
            steps.iter().filter(|(_, at)| is_open(at)).map(|(&s, &at)| (s, at)).collect();
        check(faults, open == workflow.open, || format!("workflow {name}: open {:?}", workflow.open));
        let runs = |at: &At| matches!(*at, At::Live(job) if self.jobs[job].run().is_some());
        let running: Vec<u32> = steps.iter().filter(|(_, at)| runs(at)).map(|(&step, _)| step).collect();
        check(faults, running.len() <= 1, || format!("G6: workflow {name}: {running:?} run at once"));
        check(faults, running.first() == workflow.running.as_ref(), || format!("workflow {name}: running"));
        let live = steps.values().filter(|at| matches!(at, At::Live(_))).count() as u32;
        check(faults, live == workflow.live, || format!("workflow {name}: live {}", workflow.live));
        let next = match open.first_key_value() {
            Some((step, &At::Live(job))) if running.iter().all(|at| at == step) => Some(job),
            Some(_) | None => None,
        };
        check(faults, workflow.next == next, || format!("workflow {name}: next {:?}", workflow.next));
    }

    /// Invariant 1: the key of a parked lane has no room for it.
    fn audit_lane(&self, ix: Ix<Lane>, lane: &Lane, faults: &mut Faults) {
        let class = &self.classes[lane.class];
        let key_full = lane.key.is_some_and(|key| !self.groups[key].has_room(class.cost));
        check(faults, !lane.parked || key_full, || {
            format!("lane {ix:?} is parked although its key has room")
        });
        let head = lane.jobs.first().map(|(rank, _)| rank);
        let seat = class.lanes.iter().find(|&(_, at)| at == ix).map(|(rank, _)| rank);
        check(faults, seat == head.filter(|_| !lane.parked), || format!("lane {ix:?} is seated at {seat:?}"));
        let listed = lane.key.is_some_and(|key| self.groups[key].lanes.iter().any(|at| at == ix));
        let should = lane.key.is_some() && head.is_some();
        check(faults, listed == should, || format!("lane {ix:?}: listed with its key: {listed}"));
    }

    /// Invariant 2: a class is ready on its desk, or at a gate that is on that desk while the gate's group has a free
    /// slot.
    fn audit_class(&self, ix: Ix<Class>, class: &Class, faults: &mut Faults) {
        let head = class.lanes.first().map(|(rank, _)| rank);
        let on_desk = self.desk(class).ready.iter().find(|&(_, at)| at == ix).map(|(rank, _)| rank);
        let line = class.gate.and_then(|gate| self.groups[gate].line.as_ref());
        let at_gate = line.and_then(|line| line.waiting.iter().find(|at| at.2 == ix)).map(|at| at.1);
        let seats = if class.gate.is_some() { (None, head) } else { (head, None) };
        check(faults, (on_desk, at_gate) == seats, || format!("class {ix:?} is at {on_desk:?}, {at_gate:?}"));
    }

    fn audit_line(&self, ix: Ix<Group>, group: &Group, faults: &mut Faults) {
        let Some(line) = &group.line else { return };
        let label = &group.label;
        let open = group.free() > 0;
        check(faults, line.open == open, || format!("{label:?}: open is {}", line.open));
        let mut first: BTreeMap<Ix<Desk>, Rank> = BTreeMap::new();
        for &(desk, rank, class) in &line.waiting {
            first.entry(desk).or_insert(rank);
            let here = self.classes.get(class).is_some_and(|class| class.gate == Some(ix));
            check(faults, here, || format!("{label:?}: class {class:?} waits elsewhere"));
        }
        check(faults, line.open_at == if open { first } else { BTreeMap::new() }, || {
            format!("{label:?}: gates")
        });
        for (&desk, &rank) in &line.open_at {
            let there = self.desks[desk].open.get(rank) == Some(ix);
            check(faults, there, || format!("{label:?}: its gate is not on desk {desk:?} at {rank:?}"));
        }
        let found: BTreeSet<_> = line.big.values().flatten().copied().collect();
        let (mut big, mut needs) = (BTreeSet::new(), BTreeMap::new());
        for (class_ix, class) in self.classes.iter() {
            let need = class.shared().find(|&(at, need)| at == ix && need >= 2);
            if let (Some((_, need)), Some((rank, _))) = (need, class.lanes.first()) {
                big.insert((rank, class_ix));
                *needs.entry(need).or_insert(0) += 1;
            }
        }
        check(faults, found == big && line.big_needs == needs, || {
            format!("{label:?}: big {found:?}, not {big:?}")
        });
    }

    fn audit_desk(&self, ix: Ix<Desk>, desk: &Desk, faults: &mut Faults) {
        let queue = &self.queues[desk.queue];
        let stands = desk.ready.first().is_some() || desk.open.first().is_some();
        let listed = stands && !queue.paused && self.groups[queue.group].has_room(1);
        let is =
            (desk.stands, queue.desks.contains(&ix), desk.listed, self.tasks[desk.task].desks.contains(&ix));
        check(faults, is == (stands, stands, listed, listed), || {
            format!("desk {ix:?}: stands, listed: {is:?}")
        });
        for (rank, group) in desk.open.iter() {
            let line = self.groups.get(group).and_then(|group| group.line.as_ref());
            let is_open = line.is_some_and(|line| line.open_at.get(&ix) == Some(&rank));
            check(faults, is_open, || format!("desk {ix:?}: the gate of {group:?} is not open at {rank:?}"));
        }
    }
}

fn check(faults: &mut Faults, holds: bool, fault: impl FnOnce() -> String) {
    if !holds {
        faults.push(fault());
    }
}

fn compare<T>(
    faults: &mut Faults,
    what: &str,
    rows: impl Iterator<Item = (Ix<T>, u32)>,
    counted: &BTreeMap<Ix<T>, u32>,
) {
    for (ix, refs) in rows {
        let should = counted.get(&ix).copied().unwrap_or(0);
        check(faults, refs == should, || format!("{what} {ix:?} has {refs} references, not {should}"));
    }
}
