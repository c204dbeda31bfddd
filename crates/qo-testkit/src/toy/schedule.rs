//! Schedules: when they fire, and what happens to missed ticks.

use super::state::Toy;
use super::{Flaw, not_found};
use qo_core::{
    JobId, LastTick, Missed, Name, Result, Schedule, ScheduleStatus, Submitted, TickOutcome, Time,
};
use qo_core::{NewJob, caps};
use std::collections::BTreeMap;
use uuid::Uuid;

impl Toy {
    /// A configuration brings its schedules; those that it does not name are gone.
    pub fn set_schedules(&mut self, specs: BTreeMap<Name, Schedule>) {
        let mut before = std::mem::take(&mut self.schedules);
        for (schedule, spec) in specs {
            let old = before.remove(&schedule);
            let same_ticks = old.as_ref().is_some_and(|old| {
                old.spec.cron == spec.cron && old.spec.timezone == spec.timezone && old.next.is_some()
            });
            let enabled = old.as_ref().is_none_or(|old| old.enabled);
            let kept = old.as_ref().and_then(|old| old.next).filter(|_| same_ticks);
            let next = if same_ticks { kept } else { tick_after(&spec, self.now).filter(|_| enabled) };
            let (last, last_job) = old.map_or((None, None), |old| (old.last, old.last_job));
            let row = ScheduleStatus { schedule: schedule.clone(), spec, enabled, next, last, last_job };
            self.schedules.insert(schedule, row);
        }
    }

    pub fn enable_schedule(&mut self, schedule: &Name, enabled: bool) -> Result<()> {
        let now = self.now;
        let row = self.schedules.get_mut(schedule).ok_or_else(|| not_found(schedule))?;
        if row.enabled != enabled {
            row.enabled = enabled;
            row.next = tick_after(&row.spec, now).filter(|_| enabled);
        }
        Ok(())
    }

    pub fn trigger_schedule(&mut self, schedule: &Name, job: JobId) -> Result<Submitted> {
        let row = self.schedules.get(schedule).ok_or_else(|| not_found(schedule))?;
        let job = row.spec.triggered(schedule, job)?;
        self.submit(vec![job])?.remove(0)
    }

    /// Fires what is due, by next tick, then name; returns how many jobs were accepted.
    pub fn fire_schedules(&mut self) -> u64 {
        let due = self.schedules.values().filter_map(|row| Some((row.next?, row.schedule.clone())));
        let mut due: Vec<(Time, Name)> = due.filter(|(next, _)| *next <= self.now).collect();
        due.sort();
        due.into_iter().map(|(next, schedule)| self.fire(&schedule, next)).sum()
    }

    fn fire(&mut self, schedule: &Name, from: Time) -> u64 {
        let spec = self.schedules[schedule].spec.clone();
        let (mut ticks, next) = self.ticks(&spec, from);
        ticks.retain(|&tick| !self.is_lost(&spec, tick));
        let mut fired = 0;
        for tick in ticks {
            let earlier = self.row(schedule).last_job;
            let is_live = earlier.and_then(|job| self.find(job)).is_some_and(|job| job.is_live());
            let must_wait = is_live && !spec.overlap && spec.missed != Missed::All;
            let outcome = match must_wait && self.flaw != Flaw::TickFiresTwice {
                true => Ok(Submitted::Skipped),
                false => spec.job(schedule, tick).and_then(|job| self.submit_tick(job)),
            };
            let outcome = match outcome {
                Ok(Submitted::Accepted(job)) => TickOutcome::Accepted(job),
                Ok(Submitted::Existing(job)) => TickOutcome::Existing(job),
                Ok(Submitted::Skipped) => TickOutcome::Skipped,
                Err(error) => TickOutcome::Refused(error.to_string()),
            };
            fired += u64::from(matches!(outcome, TickOutcome::Accepted(_)));
            if let TickOutcome::Accepted(job) | TickOutcome::Existing(job) = outcome {
                self.row(schedule).last_job = Some(job);
            }
            self.row(schedule).last = Some(LastTick { tick, outcome });
        }
        // If the next tick does not move, the next exchange fires it again.
        self.row(schedule).next = if self.flaw == Flaw::TickFiresTwice { Some(from) } else { next };
        fired
    }

    fn row(&mut self, schedule: &Name) -> &mut ScheduleStatus {
        self.schedules.get_mut(schedule).expect("it fires")
    }

    fn submit_tick(&mut self, mut job: NewJob) -> Result<Submitted> {
        if self.flaw == Flaw::TickFiresTwice {
            job.id = JobId(Uuid::from_u128(job.id.0.as_u128() + u128::from(self.last_acceptance)));
            job.idempotency_key = None;
        }
        self.submit(vec![job])?.remove(0)
    }

    /// The ticks that run now, and the next tick after that.
    fn ticks(&self, spec: &Schedule, from: Time) -> (Vec<Time>, Option<Time>) {
        if spec.missed == Missed::All || self.flaw == Flaw::MissedTicksAllRun {
            let mut ticks = Vec::new();
            let mut next = Some(from);
            while let Some(tick) = next.filter(|&tick| tick <= self.now && ticks.len() < caps::TICKS) {
                ticks.push(tick);
                next = tick_after(spec, tick);
            }
            return (ticks, next);
        }
        let latest = spec.last_until(from, self.now).ok().flatten().unwrap_or(from);
        let too_late = spec.missed == Missed::Skip && self.now.ms_since(latest) > caps::TICK_GRACE_MS;
        let ticks = if too_late { vec![] } else { vec![latest] };
        (ticks, tick_after(spec, self.now))
    }

    /// The flaw `TickInGapLost`: of a schedule for a fixed minute, a tick at another minute is one that the clock
    /// jumped over.
    fn is_lost(&self, spec: &Schedule, tick: Time) -> bool {
        let minute = spec.cron.split(' ').next().and_then(|minute| minute.parse::<i64>().ok());
        let fixed = minute.filter(|_| spec.cron.split(' ').count() == 5);
        self.flaw == Flaw::TickInGapLost
            && fixed.is_some_and(|minute| tick.as_millis() / 60_000 % 60 != minute)
    }
}

/// A configured schedule has a valid expression, so there is a next tick unless the calendar ends first.
fn tick_after(spec: &Schedule, after: Time) -> Option<Time> {
    spec.first_after(after).ok().flatten()
}
