//! What the attack itself did: the jobs that it submitted and the answers, the limits that it set, its faults.

use super::attacker::Fault;
use super::plan::{self, Job, LIMITS, SCRIPTS, TICK};
use qo_judge::{Case, Change, Claimed, Limit, OpenRuns, Promise, Reach, Stop};
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

/// A job starts at most a lease and this much after it was claimed.
pub const START_SLACK: Duration = Duration::from_secs(2);

#[derive(Debug, Default)]
pub struct Ledger {
    /// Every job that was ever sent, by its number.
    pub jobs: BTreeMap<u64, Job>,
    /// Numbers of jobs whose submit was acknowledged.
    pub acknowledged: BTreeSet<u64>,
    /// Numbers of jobs that were refused or skipped: they must never run.
    pub refused: BTreeSet<u64>,
    /// Limits that were set, by group: from when on each may have been in force, and from when on it was acknowledged.
    pub changes: BTreeMap<String, Vec<Change>>,
    /// Workers that were stopped with their guards and programs: their runs may go on for a moment when they continue
    /// (G1′).
    pub stops: Vec<Stop>,
    pub faults: BTreeMap<Fault, usize>,
    /// What the attack saw and must not be.
    pub complaints: Vec<String>,
}

impl Ledger {
    pub fn count(&mut self, fault: Fault) {
        *self.faults.entry(fault).or_default() += 1;
    }

    /// What the judge compares the diary with. What was promised must have been done only when all is over.
    pub fn case(&self, lease: Duration, is_over: bool) -> Case {
        let tick = qo_judge::Job {
            needs: plan::needs_of_a_tick(),
            promise: Promise::Nothing,
            is_many: true,
            ..qo_judge::Job::default()
        };
        let jobs = self.jobs.values().map(|job| (job.number.to_string(), self.judged(job)));
        let groups = LIMITS.iter().copied().chain([(TICK, 1)]);
        let limit = |(group, limit): (&str, u32)| {
            let changes = self.changes.get(group).cloned().unwrap_or_default();
            Limit { group: group.to_owned(), limit, changes }
        };
        Case {
            lease_ns: lease.as_nanos() as u64,
            jobs: jobs.chain([("0".to_owned(), tick)]).collect(),
            limits: groups.map(limit).collect(),
            claimed: Claimed::Within((lease + START_SLACK).as_nanos() as u64),
            open: OpenRuns::EndWithTheirLastLine,
            stops: self.stops.clone(),
            is_over,
            reach: Reach::Used,
            complaints: self.complaints.clone(),
            ..Case::default()
        }
    }

    fn judged(&self, job: &Job) -> qo_judge::Job {
        let text = |field: &str| job.line[field].as_str();
        qo_judge::Job {
            needs: job.needs.clone(),
            step: job.workflow.clone().map(|workflow| (workflow, job.number)),
            says: text("task").map(|task| format!("{task} {}", text("key").unwrap_or("-"))),
            promise: match job.number {
                // A killed script does not run again.
                SCRIPTS.. => Promise::Nothing,
                number if self.refused.contains(&number) => Promise::NeverBegins,
                number if self.acknowledged.contains(&number) => Promise::Ends,
                _ => Promise::EndsIfBegun,
            },
            is_many: false,
        }
    }
}
