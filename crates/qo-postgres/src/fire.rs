//! Schedules that are due. The server finds them; their ticks are computed here, because SQL knows no cron.

use qo_core::{
    Configuration, Error, ErrorKind, Missed, Name, NewJob, Result, Schedule, ScheduleStatus, Time, caps,
};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use std::collections::BTreeMap;

/// An answer that lists due schedules: the client must call again and say what they fire. Nothing has changed.
#[derive(Deserialize)]
pub(crate) struct Due {
    due: Vec<Value>,
    now: Time,
}

/// What a schedule fires, if its next tick is still `from`.
#[derive(Serialize)]
struct Fire {
    // Both as they are stored: a row that cannot be read must be named too.
    schedule: Value,
    from: Value,
    /// Skip a tick while the job of the tick before it is live.
    alone: bool,
    ticks: Vec<Tick>,
    next: Option<Time>,
    /// Why this release cannot compute its ticks. It then has no next tick: a schedule that stayed due would make
    /// every exchange of the namespace run alone.
    #[serde(skip_serializing_if = "Option::is_none")]
    refused: Option<String>,
}

#[derive(Serialize)]
struct Tick {
    tick: Time,
    job: NewJob,
}

impl Due {
    /// Reads an answer; `None` if it is another one.
    pub fn read(answer: &str) -> Option<Result<Self>> {
        // The server writes the keys of an object in order of length, so no other answer begins like this.
        answer.starts_with("{\"due\"").then(|| crate::store::read(answer))
    }

    /// What the schedules fire, as JSON.
    pub fn fires(&self) -> Result<String> {
        let computed = self.due.iter().map(|row| {
            let read = ScheduleStatus::deserialize(row);
            let read = read.map_err(|error| Error::new(ErrorKind::Data, error.to_string()));
            read.and_then(|status| fire(row, &status, self.now)).unwrap_or_else(|error| {
                tracing::warn!(schedule = %row["schedule"], "this release cannot compute its ticks, and the schedule stops: {error}");
                Fire { refused: Some(error.to_string()), ..Fire::of(row) }
            })
        });
        let fires: Vec<Fire> = computed.collect();
        crate::store::written(&fires)
    }
}

impl Fire {
    /// Fires nothing.
    fn of(row: &Value) -> Self {
        let (schedule, from) = (row["schedule"].clone(), row["next"].clone());
        Self { schedule, from, alone: false, ticks: Vec::new(), next: None, refused: None }
    }
}

fn fire(row: &Value, status: &ScheduleStatus, now: Time) -> Result<Fire> {
    let Some(from) = status.next else { return Ok(Fire::of(row)) };
    let spec = &status.spec;
    let (ticks, next) = ticks(spec, from, now)?;
    let tick = |tick| Ok(Tick { tick, job: spec.job(&status.schedule, tick)? });
    Ok(Fire {
        alone: !spec.overlap && spec.missed != Missed::All,
        ticks: ticks.into_iter().map(tick).collect::<Result<_>>()?,
        next,
        ..Fire::of(row)
    })
}

/// The first tick of a schedule after now, and the expression that gives it.
#[derive(Serialize)]
pub(crate) struct FirstTick {
    cron: Option<String>,
    timezone: Option<String>,
    next: Option<Time>,
}

impl FirstTick {
    /// Of a schedule as another app has stored it. One that cannot be read has no tick, and does not make a push
    /// fail.
    fn stored(spec: &Value, now: Time) -> Self {
        let text = |field: &str| match &spec[field] {
            Value::Null => None,
            Value::String(text) => Some(text.clone()),
            other => Some(other.to_string()),
        };
        let read = Schedule::deserialize(spec).ok();
        let next = read.and_then(|spec| spec.first_after(now).ok()).flatten();
        Self { cron: text("cron"), timezone: text("timezone"), next }
    }
}

/// The first ticks of the schedules that a push concerns: those that its app names, and those that it named before
/// and another app names too, as the newest of these has them. `said` has all configurations as they are stored, the
/// newest last.
pub(crate) fn first_ticks(
    new: &Configuration,
    said: &[Value],
    now: Time,
) -> Result<BTreeMap<String, FirstTick>> {
    let is_own = |said: &&Value| said["app"].as_str() == Some(&*new.app);
    let before = said.iter().filter(is_own).filter_map(|said| said["schedules"].as_object());
    let dropped = before.flat_map(|schedules| schedules.keys());
    let dropped = dropped.filter(|name| !new.schedules.keys().any(|kept| **kept == ***name));
    let others = |name: &String| {
        said.iter().rev().filter(|said| !is_own(said)).find_map(|said| said["schedules"].get(name))
    };
    let others = dropped.filter_map(|name| Some((name.clone(), FirstTick::stored(others(name)?, now))));
    let first = |(name, spec): (&Name, &Schedule)| {
        let (cron, timezone) = (Some(spec.cron.clone()), Some(spec.timezone.clone()));
        Ok((name.to_string(), FirstTick { cron, timezone, next: spec.first_after(now)? }))
    };
    new.schedules.iter().map(first).chain(others.map(Ok)).collect()
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
