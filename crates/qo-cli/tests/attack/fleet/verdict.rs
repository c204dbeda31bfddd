//! The judge: compares what the jobs recorded with what they were allowed to do.

use super::diary::{Book, Run};
use super::ledger::Ledger;
use super::plan::{self, LIMITS, SCRIPTS, TICK};
use std::collections::BTreeMap;
use std::fmt;
use std::time::Duration;

/// A job starts at most a lease and this much after it was claimed.
pub const START_SLACK: Duration = Duration::from_secs(2);
/// Violations that are printed one by one.
const TOLD: usize = 12;

/// The result of an attack.
#[derive(Debug, Default)]
pub struct Verdict {
    pub attempts: usize,
    pub ticks: usize,
    pub scripts: usize,
    pub jobs: usize,
    pub acknowledged: usize,
    pub over_limit: usize,
    pub overlaps: usize,
    pub disorder: usize,
    pub twice: usize,
    pub lost: usize,
    /// Jobs that did not end in time, once the faults were over.
    pub stuck: usize,
    /// Most slots that were taken at once.
    pub peaks: BTreeMap<String, u32>,
    /// Everything that broke a rule.
    pub violations: Vec<String>,
}

impl Verdict {
    /// Judges the diary. Whether jobs are lost is only known at the end.
    pub fn of(book: &Book, ledger: &Ledger, lease: Duration, is_over: bool) -> Self {
        let mut verdict = Self {
            attempts: book.runs.len(),
            ticks: book.runs.values().filter(|run| run.number == 0).count(),
            scripts: book.runs.values().filter(|run| run.number >= SCRIPTS).count(),
            jobs: ledger.jobs.range(..SCRIPTS).count(),
            acknowledged: ledger.acknowledged.len(),
            violations: book.strange.iter().chain(&ledger.complaints).cloned().collect(),
            ..Self::default()
        };
        let runs: Vec<Run> = book.runs.values().filter_map(|run| excused(run, ledger)).collect();
        verdict.judge_limits(&runs, ledger, lease);
        verdict.judge_attempts(&runs, ledger);
        verdict.judge_workflows(&runs, ledger);
        if is_over {
            verdict.judge_ends(book, ledger);
        }
        verdict
    }

    pub fn holds(&self) -> bool {
        self.violations.is_empty()
    }

    fn judge_limits(&mut self, runs: &[Run], ledger: &Ledger, lease: Duration) {
        let mut groups: BTreeMap<&str, Vec<(u32, &Run)>> = BTreeMap::new();
        let tick = plan::needs_of_a_tick();
        for run in runs {
            let planned = ledger.jobs.get(&run.number).map(|job| &job.needs);
            let needs = if run.number == 0 { Some(&tick) } else { planned };
            let Some(needs) = needs else {
                self.violations.push(format!("a job that was never submitted: {run:?}"));
                continue;
            };
            for (group, slots) in needs {
                groups.entry(group).or_default().push((*slots, run));
            }
        }
        let window_us = (lease + START_SLACK).as_micros() as u64;
        for (group, taken) in groups {
            // At the same moment ends come before starts: a recorded end is over.
            let mut moments: Vec<(u64, bool, u32, &Run)> = taken
                .iter()
                .flat_map(|(slots, run)| {
                    [(run.from_us, true, *slots, *run), (run.to_us, false, *slots, *run)]
                })
                .collect();
            moments.sort_by_key(|(at_us, begins, _, run)| (*at_us, *begins, run.token));
            let (mut held, mut most) = (0_u32, 0);
            for (at_us, begins, slots, run) in moments {
                // A run that was killed right after its first line counts at that moment, and at no other.
                let stays = run.to_us > run.from_us;
                if !begins {
                    held -= if stays { slots } else { 0 };
                    continue;
                }
                let used = held + slots;
                held += if stays { slots } else { 0 };
                most = most.max(used);
                // A run that starts now was claimed within the window, under a limit that was in force then.
                let allowed = ledger.highest(group, at_us.saturating_sub(window_us), at_us);
                if used > allowed {
                    self.over_limit += 1;
                    let beside: Vec<String> = taken
                        .iter()
                        .filter(|(_, other)| other.from_us <= at_us && other.to_us > at_us)
                        .map(|(slots, other)| format!("{slots} by {}", shown(other)))
                        .collect();
                    let why = format!("{group}: {used} slots of {allowed} with {}: {beside:?}", shown(run));
                    self.violations.push(why);
                }
            }
            let shown = if group.starts_with("keyed/") { "keyed/*" } else { group };
            let peak = self.peaks.entry(shown.to_owned()).or_default();
            *peak = most.max(*peak);
        }
    }

    /// Attempts of a job, by their tokens: each begins after the one before it ended.
    fn judge_attempts(&mut self, runs: &[Run], ledger: &Ledger) {
        let mut jobs: BTreeMap<&str, Vec<&Run>> = BTreeMap::new();
        runs.iter().for_each(|run| jobs.entry(&run.job).or_default().push(run));
        let mut numbers: BTreeMap<u64, &str> = BTreeMap::new();
        for (job, runs) in jobs {
            for pair in runs.windows(2).filter(|pair| pair[0].to_us > pair[1].from_us) {
                self.overlaps += 1;
                let why = format!("runs twice at once: {} and {}", shown(pair[0]), shown(pair[1]));
                self.violations.push(why);
            }
            let number = runs[0].number;
            if number != 0 && numbers.insert(number, job).is_some() {
                self.twice += 1;
                self.violations.push(format!("job {number} was submitted once and is there twice"));
            }
            if ledger.refused.contains(&number) {
                self.violations.push(format!("job {number} was refused and ran: {}", shown(runs[0])));
            }
        }
    }

    /// A step begins after the one before it has ended.
    fn judge_workflows(&mut self, runs: &[Run], ledger: &Ledger) {
        let mut steps: BTreeMap<(&str, u64), (u64, u64)> = BTreeMap::new();
        for run in runs {
            let Some(workflow) = ledger.jobs.get(&run.number).and_then(|job| job.workflow.as_deref()) else {
                continue;
            };
            let (from_us, to_us) = steps.entry((workflow, run.number)).or_insert((run.from_us, run.to_us));
            (*from_us, *to_us) = (run.from_us.min(*from_us), run.to_us.max(*to_us));
        }
        let steps: Vec<_> = steps.into_iter().collect();
        for pair in steps.windows(2) {
            let [((workflow, step), (_, to_us)), ((other, next), (from_us, _))] = pair else { continue };
            if workflow == other && to_us > from_us {
                self.disorder += 1;
                self.violations.push(format!("{workflow}: step {next} began before step {step} had ended"));
            }
        }
    }

    /// Every acknowledged job has ended, and so has every job that ever began.
    fn judge_ends(&mut self, book: &Book, ledger: &Ledger) {
        let began = book.runs.values().map(|run| run.number).filter(|number| (1..SCRIPTS).contains(number));
        let due: std::collections::BTreeSet<u64> = began.chain(ledger.acknowledged.iter().copied()).collect();
        for number in due.difference(&book.done) {
            self.lost += 1;
            let runs: Vec<String> =
                book.runs.values().filter(|run| run.number == *number).map(shown).collect();
            let line = ledger.jobs.get(number).map(|job| job.line.to_string()).unwrap_or_default();
            self.violations.push(format!("job {number} has no end: {runs:?}: {line}"));
        }
    }
}

/// A run as far as it counts. If its worker was stopped with all its processes, the run counts until the stop.
fn excused(run: &Run, ledger: &Ledger) -> Option<Run> {
    let since =
        ledger.excuses.iter().find(|excuse| excuse.worker == run.worker).map(|excuse| excuse.since_us);
    match since {
        Some(since_us) if run.from_us >= since_us => None,
        Some(since_us) => Some(Run { to_us: run.to_us.min(since_us), ..run.clone() }),
        None => Some(run.clone()),
    }
}

fn shown(run: &Run) -> String {
    let Run { number, attempt, token, worker, from_us, to_us, .. } = run;
    format!("job {number} attempt {attempt} token {token} worker {worker} {from_us}–{to_us}")
}

impl fmt::Display for Verdict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            attempts,
            ticks,
            scripts,
            jobs,
            acknowledged,
            over_limit,
            overlaps,
            disorder,
            twice,
            lost,
            stuck,
            ..
        } = self;
        writeln!(
            f,
            "attempts {attempts} ({ticks} by the schedule, {scripts} of scripts), jobs {jobs}, acknowledged {acknowledged}"
        )?;
        let peaks: Vec<String> = LIMITS
            .iter()
            .map(|(group, _)| *group)
            .chain([TICK])
            .map(|group| format!("{group} {}/{}", self.peaks.get(group).unwrap_or(&0), plan::limit(group)))
            .collect();
        writeln!(f, "peaks {}", peaks.join(", "))?;
        write!(
            f,
            "over-limit {over_limit}, overlaps {overlaps}, disorder {disorder}, twice {twice}, lost {lost}, \
             stuck {stuck}, violations {}",
            self.violations.len()
        )?;
        self.violations.iter().take(TOLD).try_for_each(|violation| write!(f, "\nVIOLATION {violation}"))
    }
}
