//! Schedules in the ledger: which ticks come, and what becomes of their jobs.
//!
//! No answer says that, so the ledger derives it. Only the cron arithmetic is the rule book's own.

use super::{Fact, Ledger, Tell};
use qo_core::{
    Answer, ErrorKind, JobId, LastTick, Missed, Name, NewJob, OnLimit, Result, Schedule, Submitted,
};
use qo_core::{TickOutcome, Time, caps};
use std::collections::BTreeMap;

/// A schedule that is configured.
#[derive(Debug, Clone)]
pub struct Planned {
    /// As configured.
    pub spec: Schedule,
    /// Whether it fires.
    pub enabled: bool,
    /// Its next tick.
    pub next: Option<Time>,
    /// The last tick that came.
    pub last: Option<LastTick>,
    /// The job of the newest tick that had one.
    pub last_job: Option<JobId>,
}

const ARITHMETIC: &str = "a schedule that the store took has ticks";

/// The ticks that run now, and the next one.
fn ticks(spec: &Schedule, next: Time, now: Time) -> (Vec<Time>, Option<Time>) {
    let after = |tick| spec.first_after(tick).expect(ARITHMETIC);
    let latest = || spec.last_until(next, now).expect(ARITHMETIC);
    match spec.missed {
        Missed::Latest => (latest().into_iter().collect(), after(now)),
        Missed::Skip => {
            let in_time = latest().filter(|tick| now.ms_since(*tick) <= caps::TICK_GRACE_MS);
            (in_time.into_iter().collect(), after(now))
        }
        Missed::All => {
            let ticks = std::iter::successors(Some(next), |tick| after(*tick));
            let ticks: Vec<Time> = ticks.take_while(|tick| *tick <= now).take(caps::TICKS).collect();
            let then = ticks.last().copied().and_then(after);
            (ticks, then)
        }
    }
}

impl Ledger {
    pub(super) fn plan(&mut self, schedules: &BTreeMap<Name, Schedule>) {
        self.schedules.retain(|name, _| schedules.contains_key(name));
        for (name, spec) in schedules {
            let first = spec.first_after(self.now).expect(ARITHMETIC);
            let planned = self.schedules.entry(name.clone()).or_insert_with(|| Planned {
                spec: spec.clone(),
                enabled: true,
                next: first,
                last_job: None,
                last: None,
            });
            if (&planned.spec.cron, &planned.spec.timezone) != (&spec.cron, &spec.timezone) && planned.enabled
            {
                planned.next = first;
            }
            planned.spec = spec.clone();
        }
    }

    pub(super) fn enable(
        &mut self,
        name: &Name,
        enabled: bool,
        answer: &Result<Answer>,
        tell: &mut Tell<'_>,
    ) {
        tell(self, &Fact::ScheduleAsked(name, answer, self.schedules.contains_key(name)));
        let now = self.now;
        if let Some(planned) = self.schedules.get_mut(name).filter(|planned| planned.enabled != enabled) {
            planned.enabled = enabled;
            planned.next = if enabled { planned.spec.first_after(now).expect(ARITHMETIC) } else { None };
        }
    }

    pub(super) fn trigger(&mut self, name: &Name, id: JobId, answer: &Result<Answer>, tell: &mut Tell<'_>) {
        tell(self, &Fact::ScheduleAsked(name, answer, self.schedules.contains_key(name)));
        let Some(spec) = self.schedules.get(name).map(|planned| planned.spec.clone()) else { return };
        let said = match answer {
            Ok(Answer::Triggered(submitted)) => submitted.clone(),
            Ok(_) => return,
            Err(error) => Err(error.clone()),
        };
        let job = spec.triggered(name, id).expect("a schedule that the store took has jobs");
        tell(self, &Fact::Submitted(&job, &said));
        if let Ok(Submitted::Accepted(_)) = said {
            self.accept(&job, Some((name.clone(), spec.overlap)));
        }
    }

    /// Fires what is due, by next tick, then name; how many jobs were accepted.
    pub(super) fn fire(&mut self, tell: &mut Tell<'_>) -> u64 {
        let next = |(name, planned): (&Name, &Planned)| Some((planned.next?, name.clone()));
        let mut due: Vec<(Time, Name)> =
            self.schedules.iter().filter_map(next).filter(|(tick, _)| *tick <= self.now).collect();
        due.sort_unstable();
        let mut accepted = 0;
        for (next, name) in due {
            let spec = self.schedules[&name].spec.clone();
            let (ticks, then) = ticks(&spec, next, self.now);
            if ticks.is_empty() {
                tell(self, &Fact::Missed(&name));
            }
            for tick in ticks {
                let job = spec.job(&name, tick).expect("a schedule that the store took has jobs");
                let earlier = self.schedules[&name].last_job.and_then(|job| self.find(job));
                let is_live = earlier.is_some_and(|job| !self.jobs[job].state.is_terminal());
                let outcome = match is_live && !spec.overlap && spec.missed != Missed::All {
                    true => TickOutcome::Skipped,
                    false => self.outcome_of_tick(&job),
                };
                tell(self, &Fact::Ticked(&name, tick, &job, &outcome));
                if let TickOutcome::Accepted(_) = outcome {
                    accepted += 1;
                    self.accept(&job, Some((name.clone(), spec.overlap)));
                }
                let planned = self.schedules.get_mut(&name).expect("it fires");
                if let TickOutcome::Accepted(job) | TickOutcome::Existing(job) = outcome {
                    planned.last_job = Some(job);
                }
                planned.last = Some(LastTick { tick, outcome });
            }
            self.schedules.get_mut(&name).expect("it fires").next = then;
        }
        accepted
    }

    fn outcome_of_tick(&self, job: &NewJob) -> TickOutcome {
        if let Some(known) = self.find_like(job) {
            let known = &self.jobs[known].new;
            return match (&known.task, &known.payload) == (&job.task, &job.payload) {
                true => TickOutcome::Existing(known.id),
                false => TickOutcome::Refused(ErrorKind::Conflict.to_string()),
            };
        }
        let taken = self.first_limited(job).is_some_and(|(live, need, limit)| live + need > limit);
        if job.on_limit != OnLimit::Wait && taken {
            TickOutcome::Skipped
        } else {
            TickOutcome::Accepted(job.id)
        }
    }
}
