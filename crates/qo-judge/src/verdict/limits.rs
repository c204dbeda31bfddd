//! How many slots were taken at once, against how many there are.

use super::{Verdict, at};
use crate::case::{Case, Claimed, Limit, Reach};
use crate::run::Run;
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

/// A limit, and how well it was kept under one of its values.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Kept {
    /// The group that it limits.
    pub group: String,
    /// How it came to its value.
    pub phase: Phase,
    /// How many slots there are.
    pub limit: u32,
    /// Most slots that were taken at once. Where each key has a limit: by the key with the fewest.
    pub reached: u32,
    /// Most slots that were taken at once, by any key. A claim near a change counts under the higher value.
    pub peak: u32,
    /// How often a job began that should have waited.
    pub exceeded: usize,
    /// Keys that it was counted for; none if it is not a limit for each key.
    pub keys: Option<usize>,
}

/// The runs that took slots of one group, and how many.
type Takers<'a> = Vec<(u32, &'a Run)>;

impl Limit {
    /// The limit in a phase, 0 for the first.
    fn in_phase(&self, phase: usize) -> u32 {
        phase
            .checked_sub(1)
            .and_then(|change| self.changes.get(change))
            .map_or(self.limit, |change| change.limit)
    }

    fn phase(&self, phase: usize) -> Phase {
        match phase {
            0 => Phase::First,
            _ if self.in_phase(phase) < self.in_phase(phase - 1) => Phase::Lowered,
            _ => Phase::Raised,
        }
    }

    /// The phases in which a claim between two marks may have been: the first, and the last.
    fn phases(&self, from: u64, to: u64) -> (usize, usize) {
        let first = self.changes.iter().take_while(|change| change.until <= from).count();
        let last = self.changes.iter().take_while(|change| change.from <= to).count();
        (first, last.max(first))
    }
}

impl Verdict {
    /// No limit was exceeded, and each was used as much as the case demands.
    pub(super) fn judge_limits(&mut self, case: &Case, runs: &[Run]) {
        let mut groups: BTreeMap<&str, Takers<'_>> = BTreeMap::new();
        for run in runs {
            for (group, slots) in case.jobs.get(&*run.planned).into_iter().flat_map(|job| &job.needs) {
                groups.entry(group).or_default().push((*slots, run));
            }
        }
        for limit in &case.limits {
            let takers = takers(case, limit, &groups);
            let keys = limit.group.ends_with("/*").then_some(takers.len());
            let mut kept: Vec<Kept> = (0..=limit.changes.len())
                .map(|phase| Kept {
                    group: limit.group.clone(),
                    phase: limit.phase(phase),
                    limit: limit.in_phase(phase),
                    reached: if takers.is_empty() { 0 } else { u32::MAX },
                    peak: 0,
                    exceeded: 0,
                    keys,
                })
                .collect();
            for (group, takers) in &takers {
                self.count(case, limit, group, takers, &mut kept);
                self.judge_idle(case, group, takers);
            }
            self.judge_reach(case, &kept);
            self.limits.extend(kept);
        }
    }

    /// Counts the slots of one group, or of one key of it.
    fn count(&mut self, case: &Case, limit: &Limit, group: &str, takers: &Takers<'_>, kept: &mut [Kept]) {
        // At the same moment ends come before starts: a recorded end is over.
        let mut moments: Vec<(u64, bool, u32, &Run)> = takers
            .iter()
            .flat_map(|(slots, run)| [(run.from_ns, true, *slots, *run), (run.to_ns, false, *slots, *run)])
            .collect();
        moments.sort_by_key(|(at_ns, begins, _, run)| (*at_ns, *begins, run.token));
        let (mut held, mut reached) = (0_u32, vec![0_u32; kept.len()]);
        for (at_ns, begins, slots, run) in moments {
            // A run that was killed right after its first line counts at that moment, and at no other.
            let stays = run.to_ns > run.from_ns;
            if !begins {
                held -= if stays { slots } else { 0 };
                continue;
            }
            let used = held + slots;
            held += if stays { slots } else { 0 };
            let (first, last) = match case.claimed {
                Claimed::ByToken => limit.phases(run.token, run.token),
                Claimed::Within(ns) => limit.phases(at_ns.saturating_sub(ns), at_ns),
            };
            // Near a change either value may have been in force: the run is judged by the higher one.
            let phase = (first..=last).max_by_key(|phase| limit.in_phase(*phase)).unwrap_or(first);
            let allowed = limit.in_phase(phase);
            kept[phase].peak = used.max(kept[phase].peak);
            if first == last {
                reached[first] = used.max(reached[first]);
            }
            if used > allowed {
                kept[phase].exceeded += 1;
                self.over_limit += 1;
                let is_beside = |other: &Run| other.from_ns <= at_ns && other.to_ns > at_ns;
                let beside: Vec<&Run> =
                    takers.iter().map(|(_, other)| *other).filter(|other| is_beside(other)).collect();
                let of_key = if group == limit.group { String::new() } else { format!(" of {group}") };
                let (when, job) = (at(case, at_ns), &run.job);
                let how = format_args!(
                    "{used}{of_key} at once where {allowed} may, when job {job} began at {when}"
                );
                self.violates_with(&limit.group, how, &beside);
            }
        }
        for (kept, reached) in kept.iter_mut().zip(reached) {
            kept.reached = kept.reached.min(reached);
        }
    }

    fn judge_reach(&mut self, case: &Case, kept: &[Kept]) {
        let Some(Kept { group, .. }) = kept.first() else { return };
        match case.reach {
            Reach::Used if case.is_over && kept.iter().all(|kept| kept.peak == 0) => {
                self.violates(group, "no job took a slot: nothing was shown");
            }
            Reach::Full if case.is_over => {
                for Kept { reached, limit, .. } in kept.iter().filter(|kept| kept.reached < kept.limit) {
                    let how = format_args!(
                        "never more than {reached} at once although {limit} may, with work waiting"
                    );
                    self.violates(group, how);
                }
            }
            _ => {}
        }
    }

    /// Once the faults are over, a group does not stand still while jobs of it are still to run.
    fn judge_idle(&mut self, case: &Case, group: &str, takers: &Takers<'_>) {
        let Some((healed_ns, most_ns)) = case.healed else { return };
        let mut runs: Vec<&Run> = takers.iter().map(|(_, run)| *run).collect();
        runs.sort_by_key(|run| run.from_ns);
        let (mut idle_ns, mut busy_until_ns) = (0, healed_ns);
        for run in runs {
            idle_ns = run.from_ns.saturating_sub(busy_until_ns).max(idle_ns);
            busy_until_ns = run.to_ns.max(busy_until_ns);
        }
        self.idle_ns = self.idle_ns.max(idle_ns);
        if idle_ns > most_ns {
            let ms = idle_ns / 1_000_000;
            self.violates(
                group,
                format_args!("stood still for {ms} ms after the last fault, with work waiting"),
            );
        }
    }
}

/// The runs that a limit applies to: those of its group, or by key.
fn takers<'a>(
    case: &Case,
    limit: &Limit,
    groups: &BTreeMap<&'a str, Takers<'a>>,
) -> Vec<(&'a str, Takers<'a>)> {
    let has_its_own = |group: &str| case.limits.iter().any(|other| other.group == group);
    let is_of = |group: &str| match limit.group.strip_suffix('*') {
        Some(start) => group.starts_with(start) && !has_its_own(group),
        None => group == limit.group,
    };
    groups.iter().filter(|(group, _)| is_of(group)).map(|(group, takers)| (*group, takers.clone())).collect()
}
