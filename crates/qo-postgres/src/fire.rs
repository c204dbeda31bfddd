//! Schedules that are due. The server finds them; what they fire is reckoned here, because SQL knows no cron.

use qo_core::{
    Configuration, Error, ErrorKind, Missed, Name, NewJob, Result, Schedule, ScheduleStatus, Time, caps,
};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use std::collections::BTreeMap;

/// An answer that says: schedules are due, call again and say what they fire. Nothing has happened.
#[derive(Deserialize)]
pub(crate) struct Due {
    due: Vec<Value>,
    now: Time,
}

/// What a schedule fires, if its next tick is still `from`.
#[derive(Serialize)]
struct Fire {
    schedule: Name,
    from: Time,
    /// A tick is left out while the job of the one before it is live.
    alone: bool,
    ticks: Vec<Tick>,
    next: Option<Time>,
}

#[derive(Serialize)]
struct Tick {
    tick: Time,
    job: NewJob,
}

impl Due {
    /// Reads an answer; none if it is another one.
    pub fn read(answer: &str) -> Option<Result<Self>> {
        // The server writes the keys of an object in order of length, so no other answer begins like this.
        answer.starts_with("{\"due\"").then(|| crate::store::read(answer))
    }

    /// What they fire, as JSON.
    pub fn fires(&self) -> Result<String> {
        // One that this release cannot reckon with must not hold up everybody's exchange.
        let reckoned = self.due.iter().filter_map(|row| {
            let read = ScheduleStatus::deserialize(row);
            let read = read.map_err(|error| Error::new(ErrorKind::Data, error.to_string()));
            read.and_then(|row| fire(&row, self.now))
                .inspect_err(|error| {
                    tracing::warn!(schedule = %row["schedule"], "this release cannot reckon with it: {error}");
                })
                .ok()
                .flatten()
        });
        let fires: Vec<Fire> = reckoned.collect();
        crate::store::written(&fires)
    }
}

fn fire(row: &ScheduleStatus, now: Time) -> Result<Option<Fire>> {
    let Some(from) = row.next else { return Ok(None) };
    let spec = &row.spec;
    let (ticks, next) = ticks(spec, from, now)?;
    let tick = |tick| Ok(Tick { tick, job: spec.job(&row.schedule, tick)? });
    Ok(Some(Fire {
        schedule: row.schedule.clone(),
        from,
        alone: !spec.overlap && spec.missed != Missed::All,
        ticks: ticks.into_iter().map(tick).collect::<Result<_>>()?,
        next,
    }))
}

/// The first tick of a schedule after now, and the expression that it was found by.
#[derive(Serialize)]
pub(crate) struct FirstTick {
    cron: String,
    timezone: String,
    next: Option<Time>,
}

/// The first ticks of the schedules that a push concerns: those that its app names, and those that it named and another app
/// names too, by the newest one.
pub(crate) fn first_ticks(
    new: &Configuration,
    said: &[Configuration],
    now: Time,
) -> Result<BTreeMap<Name, FirstTick>> {
    let before = said.iter().filter(|said| said.app == new.app).flat_map(|said| said.schedules.keys());
    let dropped = before.filter(|name| !new.schedules.contains_key(*name));
    let others = || said.iter().rev().filter(|said| said.app != new.app);
    let others = dropped.filter_map(|name| Some((name, others().find_map(|said| said.schedules.get(name))?)));
    let first = |(name, spec): (&Name, &Schedule)| {
        let (cron, timezone) = (spec.cron.clone(), spec.timezone.clone());
        Ok((name.clone(), FirstTick { cron, timezone, next: spec.first_after(now)? }))
    };
    new.schedules.iter().chain(others).map(first).collect()
}

/// The ticks that run now, and the next tick after that.
fn ticks(spec: &Schedule, from: Time, now: Time) -> Result<(Vec<Time>, Option<Time>)> {
    if spec.missed == Missed::All {
        let mut ticks = Vec::new();
        let mut next = Some(from);
        while let Some(tick) = next.filter(|tick| *tick <= now && ticks.len() < caps::TICKS) {
            ticks.push(tick);
            next = spec.first_after(tick)?;
        }
        return Ok((ticks, next));
    }
    let latest = spec.last_until(from, now)?.unwrap_or(from);
    let too_late = spec.missed == Missed::Skip && now.ms_since(latest) > caps::TICK_GRACE_MS;
    Ok((if too_late { vec![] } else { vec![latest] }, spec.first_after(now)?))
}
