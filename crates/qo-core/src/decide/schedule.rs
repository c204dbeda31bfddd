//! Which ticks of a schedule run, and that each runs once. The `schedule` module does the calendar arithmetic.

use super::Decider;
use crate::app::Apps;
use crate::state::row::ScheduleRow;
use crate::{Answer, Configuration, Error, Event, JobId, Missed, Name, Result, Submitted, TickOutcome, Time};
use crate::{caps, schedule::Schedule};
use std::collections::BTreeSet;
use std::sync::Arc;

impl Decider<'_> {
    /// Applies a configuration, if it changes anything, and finds the next ticks of the schedules that it concerns:
    /// those that the app names, and those that it named before and another app names.
    pub(super) fn configure_schedules(&mut self, configuration: &Configuration, changes: bool) -> Result<()> {
        let now = self.now.max(self.state.now);
        let apps = match changes {
            true => self.state.apps_with(&Arc::new(configuration.clone())),
            false => self.state.apps.clone(),
        };
        let before = self.state.configuration(&configuration.app);
        let before = before.into_iter().flat_map(|said| said.schedules.keys());
        let names: BTreeSet<&Name> = before.chain(configuration.schedules.keys()).collect();
        let mut moved = Vec::new();
        for name in names {
            let Some(spec) = apps.newest(|app| app.schedules.get(name).cloned()) else { continue };
            let old = self.state.schedules.get(name);
            let same =
                old.is_some_and(|old| (&old.spec.cron, &old.spec.timezone) == (&spec.cron, &spec.timezone));
            let has_next = old.is_some_and(|old| old.next.is_some());
            if (!same || !has_next) && old.is_none_or(|old| old.enabled) {
                moved.push((name.clone(), spec.first_after(now)?));
            }
        }
        // A push that changes nothing must not cost a log a record, nor make its app the newest.
        if !changes {
            moved.retain(|(_, next)| next.is_some());
        }
        if changes || !moved.is_empty() {
            self.tick();
        }
        if changes {
            self.happen(Event::Configured(Arc::new(configuration.clone())));
        }
        for (schedule, next) in moved {
            self.happen(Event::ScheduleMoved { schedule, next });
        }
        Ok(())
    }

    pub(super) fn enable_schedule(&mut self, name: &Name, enabled: bool) -> Result<Answer> {
        let row = self.schedule(name)?;
        if row.enabled != enabled {
            let now = self.now.max(self.state.now);
            let next = if enabled { row.spec.first_after(now)? } else { None };
            self.tick();
            self.happen(Event::ScheduleEnabled { schedule: name.clone(), enabled });
            self.happen(Event::ScheduleMoved { schedule: name.clone(), next });
        }
        Ok(Answer::Done)
    }

    pub(super) fn trigger_schedule(&mut self, name: &Name, id: JobId) -> Result<Answer> {
        let job = self.schedule(name)?.spec.triggered(name, id)?;
        self.check(&job)?;
        let admission = self.admit(&job)?;
        self.tick();
        Ok(Answer::Triggered(self.accept(admission)))
    }

    /// Submits the jobs of ticks that are due. Returns how many were accepted.
    pub(super) fn fire_schedules(&mut self) -> u64 {
        let now = self.state.now;
        let due: Vec<_> = self.state.ticks.iter().take_while(|(at, _)| *at <= now).cloned().collect();
        due.into_iter().map(|(next, name)| self.fire(&name, next, now)).sum()
    }

    fn fire(&mut self, name: &Name, next: Time, now: Time) -> u64 {
        let spec = self.state.schedules[name].spec.clone();
        // The cron expression was parsed when it was configured. If this release cannot parse it, the schedule stops
        // firing, and every other command goes on.
        let ticks = ticks(&spec, next, now).unwrap_or_else(|error| {
            let outcome = TickOutcome::Refused(error.to_string());
            self.happen(Event::ScheduleFired { schedule: name.clone(), tick: next, outcome });
            Vec::new()
        });
        let from = ticks.last().copied().filter(|_| spec.missed == Missed::All).unwrap_or(now);
        let mut accepted = 0;
        for tick in ticks {
            let submitted = if self.overlaps(name, &spec) {
                Ok(Submitted::Skipped)
            } else {
                spec.job(name, tick).and_then(|job| {
                    self.check(&job)?;
                    self.submit_one(&job)
                })
            };
            let outcome = match submitted {
                Ok(Submitted::Accepted(job)) => TickOutcome::Accepted(job),
                Ok(Submitted::Existing(job)) => TickOutcome::Existing(job),
                Ok(Submitted::Skipped) => TickOutcome::Skipped,
                Err(error) => TickOutcome::Refused(error.to_string()),
            };
            accepted += u64::from(matches!(outcome, TickOutcome::Accepted(_)));
            self.happen(Event::ScheduleFired { schedule: name.clone(), tick, outcome });
        }
        let next = spec.first_after(from).unwrap_or_default();
        self.happen(Event::ScheduleMoved { schedule: name.clone(), next });
        accepted
    }

    /// Whether the job of an earlier tick is live and may not overlap with the next one. The limit 1 of its key says
    /// the same, unless another source sets a limit for it.
    fn overlaps(&self, name: &Name, spec: &Schedule) -> bool {
        let last_job = self.state.schedules[name].last_job;
        let is_live = last_job.is_some_and(|job| self.state.find_job(job).is_some());
        is_live && !spec.overlap && spec.missed != Missed::All
    }

    fn schedule(&self, name: &Name) -> Result<&ScheduleRow> {
        self.state.schedules.get(name).ok_or_else(|| Error::not_found(format!("schedule {name}")))
    }
}

/// The ticks from `next` to `now` that run.
fn ticks(spec: &Schedule, next: Time, now: Time) -> Result<Vec<Time>> {
    if spec.missed == Missed::All {
        let mut ticks = vec![next];
        while ticks.len() < caps::TICKS
            && let Some(tick) = spec.first_after(ticks[ticks.len() - 1])?.filter(|tick| *tick <= now)
        {
            ticks.push(tick);
        }
        return Ok(ticks);
    }
    let last = spec.last_until(next, now)?;
    let too_late = |tick: Time| spec.missed == Missed::Skip && now.ms_since(tick) > caps::TICK_GRACE_MS;
    Ok(last.filter(|&tick| !too_late(tick)).into_iter().collect())
}
