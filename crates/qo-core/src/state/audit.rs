//! The audit: counts everything again from the rows, and checks the two promises of [`lane`](crate::lane).
//! For tests and for `doctor`: it looks at every row.

use super::State;
use super::row::{Label, Phase};
use crate::lane::{Class, Lane};
use crate::state::table::Ix;
use std::collections::BTreeMap;

impl State {
    /// Everything in which the indexes do not follow from the rows; empty if all is well.
    pub fn audit(&self) -> Vec<String> {
        let mut faults = Vec::new();
        self.audit_counts(&mut faults);
        for (ix, lane) in self.lanes.iter() {
            self.audit_lane(ix, lane, &mut faults);
        }
        for (ix, class) in self.classes.iter() {
            self.audit_class(ix, class, &mut faults);
        }
        faults
    }

    fn audit_counts(&self, faults: &mut Vec<String>) {
        let mut counts: BTreeMap<_, (u64, u64)> = BTreeMap::new();
        let (mut due, mut refs) = (0, BTreeMap::<_, u32>::new());
        for (_, job) in self.jobs.iter() {
            *refs.entry(job.lane).or_default() += 1;
            let (used, live) = match job.phase() {
                Phase::Pending => (0, 1),
                Phase::Running(_) => (1, 1),
                Phase::Finished { .. } => (0, 0),
            };
            due += u64::from(*job.phase() == Phase::Pending && job.run_at <= self.now);
            for (group, need) in self.needs(job.lane) {
                let count = counts.entry(group).or_default();
                count.0 += used * u64::from(need);
                count.1 += live * u64::from(need);
            }
        }
        for (ix, group) in self.groups.iter() {
            let counted = counts.get(&ix).copied().unwrap_or_default();
            if counted != (group.used, group.live) {
                faults.push(format!(
                    "{:?}: used, live {:?}, counted {counted:?}",
                    group.label,
                    (group.used, group.live)
                ));
            }
            let limit = self.limit_of(&group.label).map(|(limit, _)| limit);
            if limit != group.limit {
                faults.push(format!("{:?}: limit {:?}, should be {limit:?}", group.label, group.limit));
            }
            if group.refs == 0 && matches!(group.label, Label::Key(..)) {
                faults.push(format!("{:?}: nothing refers to it", group.label));
            }
        }
        let in_lanes: u64 = self.lanes.iter().map(|(_, lane)| lane.jobs.iter().count() as u64).sum();
        if in_lanes != due {
            faults.push(format!("{in_lanes} jobs stand in lanes, {due} are due"));
        }
        for (ix, lane) in self.lanes.iter() {
            if refs.get(&ix).copied().unwrap_or(0) != lane.refs {
                faults.push(format!("lane {ix:?} counts {} jobs", lane.refs));
            }
        }
    }

    fn audit_lane(&self, ix: Ix<Lane>, lane: &Lane, faults: &mut Vec<String>) {
        let class = &self.classes[lane.class];
        if lane.parked && lane.key.is_none_or(|key| self.groups[key].has_room(class.cost)) {
            faults.push(format!("lane {ix:?} is parked although its key has room"));
        }
        let seat = class.lanes.iter().find(|&(_, at)| at == ix).map(|(turn, _)| turn);
        let head = lane.jobs.first().map(|(turn, _)| turn).filter(|_| !lane.parked);
        if seat != head {
            faults.push(format!("lane {ix:?} is seated at {seat:?}, its first job is {head:?}"));
        }
    }

    fn audit_class(&self, ix: Ix<Class>, class: &Class, faults: &mut Vec<String>) {
        let head = class.lanes.first().map(|(turn, _)| turn);
        let desk = &self.desks[class.desk];
        let on_desk = desk.ready.iter().find(|&(_, at)| at == ix).map(|(turn, _)| turn);
        let Some(group) = class.gate else {
            if on_desk != head {
                faults.push(format!("class {ix:?} is on its desk at {on_desk:?}, its first job is {head:?}"));
            }
            return;
        };
        let row = &self.groups[group];
        let at_gate =
            row.line.as_ref().and_then(|line| line.waiting.iter().find(|at| at.2 == ix)).map(|at| at.1);
        if on_desk.is_some() || at_gate != head {
            faults.push(format!("class {ix:?} is at its gate at {at_gate:?}, its first job is {head:?}"));
        }
        let should_be_open = row.free() > 0 && head.is_some();
        if should_be_open && !desk.open.contains(&group) || row.free() == 0 && desk.open.contains(&group) {
            faults.push(format!("class {ix:?}: its gate at {:?} is not as open as the group", row.label));
        }
    }
}
