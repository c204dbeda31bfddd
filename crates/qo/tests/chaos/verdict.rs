//! The verdict, from the records of the jobs, from what the checkers say about the history, and from what the store
//! says in the end.

use crate::fault::Faults;
use crate::fleet::{Fate, diary_of, name_of};
use crate::history::{Findings, TRACE};
use crate::plan::{LIMITS, Plan};
use crate::worker::{LEASE, THREADS};
use qo::core::{GroupRef, JobId, JobView};
use qo_judge::{Case, Diary, End, Limit, Reach, Stop};
use std::collections::BTreeMap;
use std::fmt;
use std::path::Path;
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
    pub healed_ns: u64,
    pub history: Findings,
}

/// The findings of a run.
pub struct Verdict {
    judged: qo_judge::Verdict,
    jobs: usize,
    faults: Faults,
    /// Handlers that their worker dropped, because it could no longer trust its lease.
    dropped: usize,
    drift: String,
    deadlocks: i64,
    /// From the last fault to the last job.
    drained: Duration,
    history: Findings,
}

impl Verdict {
    pub fn of(
        plan: &Plan,
        workers: &BTreeMap<usize, Fate>,
        folder: &Path,
        faults: Faults,
        found: Found,
    ) -> Self {
        let mut diary = Diary::default();
        for path in workers.keys().map(|worker| diary_of(folder, *worker)) {
            // A worker whose jobs never began wrote nothing.
            if path.exists() {
                diary.add_file(&path).expect("a diary");
            }
        }
        let judged = qo_judge::Verdict::of(&case(plan, workers, &found), &diary);
        let mut verdict = Self {
            judged,
            jobs: plan.jobs.len(),
            faults,
            dropped: diary.runs().filter(|run| run.end == End::Stopped).count(),
            drift: found.drift,
            deadlocks: found.deadlocks,
            drained: Duration::from_nanos(diary.last_ns().saturating_sub(found.healed_ns)),
            history: found.history,
        };
        verdict.judge_states(plan, &found.jobs);
        verdict.judge_store(&found.slots_left);
        verdict.judge_grants(&diary);
        verdict.judge_amount();
        verdict
    }

    pub fn holds(&self) -> bool {
        self.judged.holds()
    }

    fn demand(&mut self, holds: bool, what: &str, otherwise: impl FnOnce() -> String) {
        if !holds {
            self.judged.violates(what, otherwise());
        }
    }

    /// Every job that was submitted is stored, and has ended as planned.
    fn judge_states(&mut self, plan: &Plan, stored: &[JobView]) {
        let found: BTreeMap<JobId, &JobView> = stored.iter().map(|job| (job.id, job)).collect();
        for (id, planned) in &plan.jobs {
            let state = found.get(id).map(|job| job.state);
            let is_stuck = state.is_some_and(|state| !state.is_terminal());
            self.demand(is_stuck || state == Some(planned.ends), "jobs lost", || {
                format!("{state:?}: {planned:?}")
            });
        }
        self.demand(stored.len() == plan.jobs.len(), "store", || format!("{} jobs are stored", stored.len()));
    }

    /// The store has counted right, and its transactions did not block each other.
    fn judge_store(&mut self, slots_left: &[GroupRef]) {
        let (drift, deadlocks) = (self.drift.clone(), self.deadlocks);
        self.demand(slots_left.is_empty(), "store", || format!("slots without a holder: {slots_left:?}"));
        self.demand(drift == "[]", "store", || format!("drift: {drift}"));
        self.demand(deadlocks == 0, "store", || format!("{deadlocks} deadlocks"));
    }

    /// The checkers found nothing, and every run had a grant that was committed.
    fn judge_grants(&mut self, diary: &Diary) {
        for violation in self.history.violations.clone() {
            self.judged.violates("history", violation);
        }
        let granted: BTreeMap<u64, String> =
            self.history.granted.iter().map(|(token, job)| (token.0, job.to_string())).collect();
        for run in diary.runs().filter(|run| granted.get(&run.token).is_none_or(|job| **job != *run.job)) {
            self.judged.violates("grants", format_args!("never granted: {run}"));
        }
    }

    /// Every kind of fault happened.
    fn judge_amount(&mut self) {
        let Faults { kills, stops, cuts, shut_outs, restarts, .. } = self.faults;
        let tally = |what| self.history.tally.of(what) as usize;
        let all = [
            kills,
            stops,
            cuts,
            shut_outs,
            restarts,
            self.judged.takeovers,
            self.dropped,
            self.history.never_heard,
            tally("limits set to 0"),
            tally("end: lease ended"),
            tally("exchanges with work behind a full limit"),
        ];
        self.demand(!all.contains(&0), "amount", || format!("too little happened: {all:?}"));
    }
}

/// What the judge compares the records with.
fn case(plan: &Plan, workers: &BTreeMap<usize, Fate>, found: &Found) -> Case {
    let kill = |(worker, fate): (&usize, &Fate)| Some((name_of(*worker), fate.killed_ns?));
    let stops_of = |(worker, fate): (&usize, &Fate)| -> Vec<Stop> {
        let stop = |(at_ns, until_ns): &(u64, u64)| Stop {
            worker: name_of(*worker),
            at_ns: *at_ns,
            until_ns: Some(*until_ns),
            // Each thread finishes the step of a handler that it was stopped in.
            writes: Some(THREADS),
        };
        fate.stops.iter().map(stop).collect()
    };
    let limit = |(group, limit): &(&str, u32)| Limit {
        group: (*group).to_owned(),
        limit: *limit,
        changes: Vec::new(),
    };
    let stuck = found.jobs.iter().filter(|job| !job.state.is_terminal());
    Case {
        lease_ns: LEASE.as_nanos() as u64,
        jobs: plan.jobs.iter().map(|(id, planned)| (id.to_string(), planned.judged())).collect(),
        limits: LIMITS.iter().map(limit).collect(),
        kills: workers.iter().filter_map(kill).collect(),
        stops: workers.iter().flat_map(stops_of).collect(),
        is_over: true,
        reach: Reach::Full,
        healed: Some((found.healed_ns, IDLE.as_nanos() as u64)),
        stuck: stuck.map(|job| job.id.to_string()).collect(),
        ..Case::default()
    }
}

impl fmt::Display for Verdict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Faults { kills, stops, cuts, connections_cut, shut_outs, restarts } = self.faults;
        let Self { jobs, dropped, judged, .. } = self;
        writeln!(f, "jobs {jobs}, handlers dropped with their lease {dropped}")?;
        let written = judged.written_after_stops;
        writeln!(f, "kills {kills}, stops {stops} (lines written after one: {written})")?;
        writeln!(
            f,
            "cuts {cuts} ({connections_cut} connections), shut out {shut_outs}, restarts {restarts}"
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
        writeln!(f, "drift {}, deadlocks {}", self.drift, self.deadlocks)?;
        writeln!(
            f,
            "last job {:.1} s after the last fault, longest pause of a limited group until then {} ms",
            self.drained.as_secs_f64(),
            judged.idle_ns / 1_000_000
        )?;
        write!(f, "{judged}")?;
        if violations.is_empty() { Ok(()) } else { write!(f, "\nthe history is in {TRACE}") }
    }
}
