//! What the attack itself did: the jobs that it submitted and the answers, the limits that it set, its faults.

use super::attacker::Fault;
use super::plan::{self, Job};
use std::collections::{BTreeMap, BTreeSet};

/// A limit that was set.
#[derive(Debug, Clone, Copy)]
pub struct Change {
    /// When it was asked for: it may have been in force from then on.
    pub asked_us: u64,
    /// When it was acknowledged: since then it alone is in force.
    pub acknowledged_us: u64,
    pub limit: u32,
}

/// A worker that was stopped with its guards and programs: its runs may go on for a moment when it continues (G1′).
#[derive(Debug, Clone, Copy)]
pub struct Excuse {
    pub worker: u32,
    pub since_us: u64,
}

#[derive(Debug, Default)]
pub struct Ledger {
    /// Every job that was ever sent, by its number.
    pub jobs: BTreeMap<u64, Job>,
    /// Numbers of jobs whose submit was acknowledged.
    pub acknowledged: BTreeSet<u64>,
    /// Numbers of jobs that were refused or skipped: they must never run.
    pub refused: BTreeSet<u64>,
    pub changes: BTreeMap<String, Vec<Change>>,
    pub excuses: Vec<Excuse>,
    pub faults: BTreeMap<Fault, usize>,
    /// What the attack saw and must not be.
    pub complaints: Vec<String>,
}

impl Ledger {
    pub fn count(&mut self, fault: Fault) {
        *self.faults.entry(fault).or_default() += 1;
    }

    /// The highest limit of a group that may have been in force between two moments.
    pub fn highest(&self, group: &str, from_us: u64, to_us: u64) -> u32 {
        let usual = plan::limit(group);
        let Some(changes) = self.changes.get(group) else { return usual };
        let first = changes.first().is_none_or(|first| first.acknowledged_us > from_us).then_some(usual);
        let in_force = changes.iter().enumerate().filter(|(index, change)| {
            let replaced = changes.get(index + 1).map_or(u64::MAX, |next| next.acknowledged_us);
            change.asked_us <= to_us && replaced > from_us
        });
        in_force.map(|(_, change)| change.limit).chain(first).max().unwrap_or(usual)
    }
}
