//! The verdict, from the records of the jobs, from what the checkers say about the history, and from what the store
//! says in the end.

use crate::fault::Faults;
use crate::history::{Findings, TRACE};
use crate::plan::{LIMITS, Plan};
use crate::run::{Run, Runs};
use crate::worker::{LEASE, THREADS};
use qo::core::{GroupRef, JobId, JobView};
use std::collections::BTreeMap;
use std::fmt;
use std::time::Duration;

/// Longest that a group with work waiting may stand still once the faults are over: the lease of the worker that was
/// killed last, and the sweep that finds it over.
const IDLE: Duration = LEASE.saturating_mul(2);

/// What the store says when all is over.
pub struct Found {
    pub jobs: Vec<JobView>,
    /// Groups whose count of slots differs from that of their holders, as JSON.
    pub drift: String,
    /// Groups of which slots are still taken.
    pub slots_left: Vec<GroupRef>,
    pub deadlocks: i64,
    /// When the last fault was over.
    pub healed_us: u64,
    pub history: Findings,
}

/// The findings of a run.
#[derive(Default)]
pub struct Verdict {
    jobs: usize,
    runs: usize,
    faults: Faults,
    takeovers: usize,
    dropped: usize,
    half_written: usize,
    over_limit: usize,
    lost: usize,
    stuck: usize,
    disorder: usize,
    drift: String,
    deadlocks: i64,
    /// From the last fault to the last job.
    drained: Duration,
    /// Longest that a group with work waiting stood still after the last fault.
    idle: Duration,
    highest: BTreeMap<String, usize>,
    history: Findings,
    /// Everything that broke a rule.
    violations: Vec<String>,
}

impl Verdict {
    pub fn of(plan: &Plan, runs: &Runs, faults: Faults, found: Found) -> Self {
        let mut verdict = Self {
            jobs: plan.jobs.len(),
            runs: runs.all.len(),
            dropped: runs.all.iter().filter(|run| run.dropped).count(),
            faults,
            half_written: runs.half_written.iter().sum(),
            drift: found.drift,
            deadlocks: found.deadlocks,
            drained: micros_between(found.healed_us, runs.all.iter().map(|run| run.to_us).max()),
            violations: runs.strange.iter().chain(&found.history.violations).cloned().collect(),
            ..Self::default()
        };
        let mut by_job: BTreeMap<JobId, Vec<&Run>> = BTreeMap::new();
        runs.all.iter().for_each(|run| by_job.entry(run.job).or_default().push(run));
        verdict.judge_limits(plan, runs, found.healed_us);
        verdict.judge_jobs(plan, &by_job, &found.jobs);
        verdict.judge_workflows(plan, &by_job);
        for (group, limit) in LIMITS {
            let reached = verdict.highest.get(group).copied().unwrap_or(0);
            verdict
                .demand(reached == limit as usize, || format!("{group}: {reached} of {limit} were reached"));
        }
        let idle = verdict.idle;
        verdict.demand(idle <= IDLE, || format!("a group with work stood still for {idle:?}"));
        let half_written = runs.half_written.iter().max().copied().unwrap_or(0);
        verdict.demand(half_written <= THREADS, || format!("{half_written} handlers went on after a stop"));
        let left = &found.slots_left;
        verdict.demand(left.is_empty(), || format!("slots without a holder: {left:?}"));
        let (drift, deadlocks) = (verdict.drift.clone(), verdict.deadlocks);
        verdict.demand(drift == "[]", || format!("drift: {drift}"));
        verdict.demand(deadlocks == 0, || format!("{deadlocks} deadlocks"));
        let granted = &found.history.granted;
        let never_granted = runs.all.iter().filter(|run| granted.get(&run.token) != Some(&run.job));
        verdict.violations.extend(never_granted.map(|run| format!("never granted: {run:?}")));
        let faults = verdict.faults.clone();
        let tally = |what| found.history.tally.of(what) as usize;
        let all = [
            faults.kills,
            faults.stops,
            faults.cuts,
            faults.shut_outs,
            faults.restarts,
            verdict.takeovers,
            verdict.dropped,
            found.history.never_heard,
            tally("limits set to 0"),
            tally("end: lease ended"),
            tally("exchanges with work behind a full limit"),
        ];
        verdict.demand(!all.contains(&0), || format!("too little happened: {all:?}"));
        verdict.history = found.history;
        verdict
    }

    pub fn holds(&self) -> bool {
        self.violations.is_empty()
    }

    fn demand(&mut self, holds: bool, otherwise: impl FnOnce() -> String) {
        if !holds {
            self.violations.push(otherwise());
        }
    }

    fn judge_limits(&mut self, plan: &Plan, runs: &Runs, healed_us: u64) {
        let mut groups: BTreeMap<String, (usize, Vec<&Run>)> = BTreeMap::new();
        for run in &runs.all {
            let Some(job) = plan.jobs.get(&run.job) else {
                self.violations.push(format!("a job that was never submitted: {run:?}"));
                continue;
            };
            if let Some((group, limit)) = job.limit() {
                groups.entry(group).or_insert((limit, Vec::new())).1.push(run);
            }
        }
        for (group, (limit, runs)) in groups {
            let (most, over) = at_once(&runs, limit);
            self.over_limit += over.len();
            self.idle = self.idle.max(longest_idle(&runs, healed_us));
            self.violations.extend(over.into_iter().take(3).map(|run| {
                let beside: Vec<_> = runs
                    .iter()
                    .filter(|other| other.from_us <= run.from_us && other.to_us > run.from_us)
                    .collect();
                format!("{group}: over its limit {limit}: {beside:?}")
            }));
            let shown = group.split_once('/').map_or(group.clone(), |(group, _)| format!("{group}/*"));
            let highest = self.highest.entry(shown).or_default();
            *highest = most.max(*highest);
        }
    }

    fn judge_jobs(&mut self, plan: &Plan, by_job: &BTreeMap<JobId, Vec<&Run>>, found: &[JobView]) {
        let found: BTreeMap<JobId, &JobView> = found.iter().map(|job| (job.id, job)).collect();
        for (id, planned) in &plan.jobs {
            let runs = by_job.get(id).map(Vec::as_slice).unwrap_or_default();
            let state = found.get(id).map(|job| job.state);
            match state {
                Some(state) if !state.is_terminal() => self.stuck += 1,
                Some(state) if state == planned.ends && runs.iter().any(|run| run.done) => {}
                _ => {
                    self.lost += 1;
                    self.violations.push(format!("lost: {state:?}, {runs:?}: {planned:?}"));
                }
            }
            // In the order of their tokens, each run begins after the one before it ended.
            for pair in runs.windows(2) {
                self.takeovers += usize::from(!pair[0].done);
                self.demand(pair[0].to_us <= pair[1].from_us, || format!("runs twice at once: {pair:?}"));
            }
        }
        self.demand(self.stuck == 0, || "jobs are stuck".to_owned());
        self.demand(found.len() == plan.jobs.len(), || format!("{} jobs are stored", found.len()));
    }

    fn judge_workflows(&mut self, plan: &Plan, by_job: &BTreeMap<JobId, Vec<&Run>>) {
        let mut workflows: BTreeMap<_, BTreeMap<usize, &[&Run]>> = BTreeMap::new();
        for (id, planned) in &plan.jobs {
            if let (Some(workflow), Some(step)) = (&planned.new.workflow, planned.step) {
                let runs = by_job.get(id).map(Vec::as_slice).unwrap_or_default();
                workflows.entry(workflow).or_default().insert(step, runs);
            }
        }
        for (workflow, steps) in workflows {
            let steps: Vec<&[&Run]> = steps.into_values().collect();
            for (number, pair) in steps.windows(2).enumerate() {
                let ended = pair[0].iter().map(|run| run.to_us).max();
                let began = pair[1].iter().map(|run| run.from_us).min();
                if ended > began {
                    self.disorder += 1;
                    self.violations.push(format!("{workflow}: steps {number} and the next: {pair:?}"));
                }
            }
        }
    }
}

/// From one moment to another, if that is later.
fn micros_between(from_us: u64, to_us: Option<u64>) -> Duration {
    Duration::from_micros(to_us.unwrap_or(from_us).saturating_sub(from_us))
}

/// The longest time after the last fault in which none of these ran, although one was still to come.
fn longest_idle(runs: &[&Run], healed_us: u64) -> Duration {
    let mut runs = runs.to_vec();
    runs.sort_by_key(|run| run.from_us);
    let (mut longest, mut busy_until_us) = (Duration::ZERO, healed_us);
    for run in runs {
        longest = longest.max(micros_between(busy_until_us, Some(run.from_us)));
        busy_until_us = busy_until_us.max(run.to_us);
    }
    longest
}

/// How many ran at once at most, and those that began while the limit was already reached.
fn at_once<'a>(runs: &[&'a Run], limit: usize) -> (usize, Vec<&'a Run>) {
    // At the same moment ends come before starts: a recorded end is over.
    let mut moments: Vec<(u64, bool, &Run)> =
        runs.iter().flat_map(|run| [(run.from_us, true, *run), (run.to_us, false, *run)]).collect();
    moments.sort_by_key(|(at_us, begins, _)| (*at_us, *begins));
    let (mut now, mut most, mut over) = (0_usize, 0, Vec::new());
    for (_, begins, run) in moments {
        now = if begins { now + 1 } else { now.saturating_sub(1) };
        most = most.max(now);
        if begins && now > limit {
            over.push(run);
        }
    }
    (most, over)
}

impl fmt::Display for Verdict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Faults { kills, stops, cuts, connections_cut, shut_outs, restarts } = self.faults;
        let Self { jobs, runs, takeovers, dropped, .. } = self;
        writeln!(
            f,
            "jobs {jobs}, runs {runs}, takeovers {takeovers}, handlers dropped with their lease {dropped}"
        )?;
        writeln!(f, "kills {kills}, stops {stops} (steps finished after one: {})", self.half_written)?;
        writeln!(
            f,
            "cuts {cuts} ({connections_cut} connections), shut out {shut_outs}, restarts {restarts}"
        )?;
        writeln!(f, "most at once: {:?}", self.highest)?;
        writeln!(
            f,
            "over-limit {}, lost {}, stuck {}, workflow disorder {}, drift {}, deadlocks {}",
            self.over_limit, self.lost, self.stuck, self.disorder, self.drift, self.deadlocks
        )?;
        let Findings {
            entries, exchanges, submits, limit_changes, heard_again, never_heard, violations, ..
        } = &self.history;
        writeln!(
            f,
            "history: entries {entries}, exchanges applied {exchanges}, submits {submits}, limit changes {limit_changes}, \
             replies lost and found again {heard_again}, never heard {never_heard}, violations {}",
            violations.len()
        )?;
        write!(
            f,
            "last job {:.1} s after the last fault, longest pause of a limited group until then {} ms",
            self.drained.as_secs_f64(),
            self.idle.as_millis()
        )?;
        self.violations.iter().take(20).try_for_each(|violation| write!(f, "\nVIOLATION {violation}"))?;
        if violations.is_empty() { Ok(()) } else { write!(f, "\nthe history is in {TRACE}") }
    }
}
