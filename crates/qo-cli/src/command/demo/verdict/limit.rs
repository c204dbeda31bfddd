//! How many jobs ran at once, against how many may.

use super::{Verdict, at};
use crate::command::demo::evidence::{Declared, Evidence, Run};
use qo::core::{FenceToken, GroupRef};
use std::collections::BTreeMap;

/// How a limit came to its value.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Phase {
    /// It has been so from the beginning.
    First,
    /// It was lowered while jobs ran.
    Lowered,
    /// It was raised while jobs ran.
    Raised,
}

/// A limit, and how well it was kept in one phase.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Kept {
    /// The group that it limits.
    pub group: GroupRef,
    /// How it came to its value.
    pub phase: Phase,
    /// How many may run at once.
    pub limit: u32,
    /// How many did. Where each key has a limit: with the key that had the fewest.
    pub reached: u32,
    /// How often a job began that should have waited.
    pub exceeded: u32,
    /// Keys that it was counted for; none if it is not a limit for each key.
    pub keys: Option<usize>,
}

/// Which value of a limit a claim was under.
enum Under {
    /// This one, the number of the phase.
    Phase(usize),
    /// The value before or after the change with this number: the tokens do not tell which.
    Either(usize),
}

impl Declared {
    fn under(&self, token: FenceToken) -> Under {
        let after = self.changes.iter().take_while(|change| change.after <= token).count();
        match self.changes.get(after) {
            Some(change) if change.before < token => Under::Either(after),
            _ => Under::Phase(after),
        }
    }

    /// The limit in a phase, 0 for the first.
    fn limit_in(&self, phase: usize) -> u32 {
        phase
            .checked_sub(1)
            .and_then(|change| self.changes.get(change))
            .map_or(self.limit, |change| change.limit)
    }

    fn phase(&self, phase: usize) -> Phase {
        match phase {
            0 => Phase::First,
            _ if self.limit_in(phase) < self.limit_in(phase - 1) => Phase::Lowered,
            _ => Phase::Raised,
        }
    }
}

impl Verdict {
    /// No limit was exceeded, and each was reached.
    pub(super) fn judge_limits(&mut self, evidence: &Evidence, runs: &[Run]) {
        for declared in &evidence.limits {
            let lines = lines(&declared.group, runs);
            let keys = matches!(declared.group, GroupRef::EveryKey(_)).then_some(lines.len());
            let mut kept: Vec<Kept> = (0..=declared.changes.len())
                .map(|phase| Kept {
                    group: declared.group.clone(),
                    phase: declared.phase(phase),
                    limit: declared.limit_in(phase),
                    reached: if lines.is_empty() { 0 } else { u32::MAX },
                    exceeded: 0,
                    keys,
                })
                .collect();
            for line in &lines {
                self.judge_line(evidence, declared, line, &mut kept);
            }
            for kept in &kept {
                if kept.reached < kept.limit {
                    let (group, limit, reached) = (&kept.group, kept.limit, kept.reached);
                    let how = format_args!(
                        "never more than {reached} at once although {limit} may, with work waiting"
                    );
                    self.violates(group, how);
                }
            }
            self.limits.extend(kept);
        }
    }

    /// Counts the jobs of one group, or of one key of it.
    fn judge_line(&mut self, evidence: &Evidence, declared: &Declared, line: &[&Run], kept: &mut [Kept]) {
        let mut reached = vec![0; kept.len()];
        for (run, at_once) in counted(line) {
            let (phase, limit) = match declared.under(run.record.token) {
                Under::Phase(phase) => {
                    reached[phase] = at_once.max(reached[phase]);
                    (phase, declared.limit_in(phase))
                }
                Under::Either(change) => {
                    (change, declared.limit_in(change).max(declared.limit_in(change + 1)))
                }
            };
            if at_once > limit {
                kept[phase].exceeded += 1;
                let (when, job) = (at(evidence, run.began_ns()), run.record.job);
                let how = format_args!("{at_once} at once where {limit} may, when job {job} began at {when}");
                self.violates(&declared.group, how);
            }
        }
        for (kept, reached) in kept.iter_mut().zip(reached) {
            kept.reached = kept.reached.min(reached);
        }
    }
}

/// The runs of a group, all together or by key.
fn lines<'a>(group: &GroupRef, runs: &'a [Run]) -> Vec<Vec<&'a Run>> {
    let of = |is_of: &dyn Fn(&Run) -> bool| {
        let all: Vec<&Run> = runs.iter().filter(|run| is_of(run)).collect();
        if all.is_empty() { Vec::new() } else { vec![all] }
    };
    match group {
        GroupRef::Cluster => of(&|_| true),
        GroupRef::Queue(queue) => of(&|run| run.record.queue == *queue),
        GroupRef::Group(group) => of(&|run| run.record.group == *group),
        GroupRef::Key(group, key) => {
            of(&|run| run.record.group == *group && run.record.key.as_ref() == Some(key))
        }
        GroupRef::EveryKey(group) => {
            let mut by_key: BTreeMap<_, Vec<&Run>> = BTreeMap::new();
            for run in runs.iter().filter(|run| run.record.group == *group) {
                by_key.entry(run.record.key.as_ref()).or_default().push(run);
            }
            by_key.into_iter().filter(|(key, _)| key.is_some()).map(|(_, line)| line).collect()
        }
    }
}

/// Each run, in the order in which they began, with how many ran at that moment, itself included.
fn counted<'a>(line: &[&'a Run]) -> Vec<(&'a Run, u32)> {
    let mut ends: Vec<u64> = line.iter().map(|run| run.ended_ns).collect();
    ends.sort_unstable();
    let counted = line.iter().enumerate().map(|(earlier, run)| {
        let ended = ends.partition_point(|&end| end <= run.began_ns());
        (*run, u32::try_from(earlier + 1 - ended.min(earlier)).unwrap_or(u32::MAX))
    });
    counted.collect()
}
