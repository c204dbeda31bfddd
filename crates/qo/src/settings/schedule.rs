//! Schedules as a configuration file declares them.

use super::reading::{Raw, Section};
use qo_core::{Json, Missed, Name, Schedule, caps};

/// A schedule; none if it is wrong, or switched off (`enabled = false`), which is as if it were not in the file.
pub(super) fn read(mut section: Section<'_>) -> Option<Schedule> {
    let name = |raw: &Raw<'_>| Name::parse("name", &raw.text()?).map_err(|error| error.rule().to_owned());
    let (in_file, has_task) = (section.take("cron"), section.take("task"));
    if in_file.is_none() {
        section.missing("cron", "must be given: when it fires, as in \"0 3 * * *\"");
    }
    if has_task.is_none() {
        section.missing("task", "must be given: the task that it submits");
    }
    let cron = in_file.and_then(|entry| entry.note(read_cron));
    let task = has_task.and_then(|entry| entry.note(name));
    let timezone = section.take("timezone").and_then(|entry| entry.note(read_timezone));
    let payload = section.take("payload").and_then(|entry| entry.note(read_payload));
    let queue = section.take("queue").and_then(|entry| entry.note(name));
    let priority = |raw: &Raw<'_>| {
        raw.integer(i32::MIN.into()..=i32::MAX.into()).map(|priority| i32::try_from(priority).unwrap_or(0))
    };
    let priority = section.take("priority").and_then(|entry| entry.note(priority));
    let attempts = |raw: &Raw<'_>| raw.number(1..=caps::ATTEMPTS);
    let max_attempts = section.take("max_attempts").and_then(|entry| entry.note(attempts));
    let timeout = |raw: &Raw<'_>| raw.seconds_as_ms(1..=caps::DURATION_MS);
    let timeout_ms = section.take("timeout_secs").and_then(|entry| entry.note(timeout));
    let missed = section.take("missed").and_then(|entry| entry.note(read_missed));
    let overlap = section.take("overlap").and_then(|entry| entry.note(|raw| raw.boolean()));
    let enabled = section.take("enabled").and_then(|entry| entry.note(|raw| raw.boolean()));
    let (line, field, reading) = (section.line, section.field.clone(), section.reading);
    // Before the early return, so that mistakes in the other keys are listed too.
    section.finish();
    let default = Schedule::new(cron?, task?);
    let schedule = Schedule {
        timezone: timezone.unwrap_or(default.timezone),
        payload: payload.unwrap_or_else(Json::null),
        queue: queue.unwrap_or(default.queue),
        priority: priority.unwrap_or(default.priority),
        max_attempts: max_attempts.unwrap_or(default.max_attempts),
        timeout_ms,
        missed: missed.unwrap_or_default(),
        overlap: overlap.unwrap_or_default(),
        ..default
    };
    if let Err(error) = schedule.check() {
        reading.error_at(line, &field, &error);
        return None;
    }
    enabled.unwrap_or(true).then_some(schedule)
}

/// What a schedule's own check says of one part of it, independent of the others.
fn checked(change: impl FnOnce(&mut Schedule)) -> Result<(), String> {
    let any = Name::parse("task", "any").map_err(|error| error.rule().to_owned())?;
    let mut schedule = Schedule::new("@daily", any);
    change(&mut schedule);
    schedule.check().map_err(|error| error.rule().to_owned())
}

fn read_cron(raw: &Raw<'_>) -> Result<String, String> {
    let text = raw.text()?;
    checked(|schedule| schedule.cron.clone_from(&text)).map(|()| text)
}

fn read_timezone(raw: &Raw<'_>) -> Result<String, String> {
    let text = raw.text()?;
    checked(|schedule| schedule.timezone.clone_from(&text)).map(|()| text)
}

fn read_payload(raw: &Raw<'_>) -> Result<Json, String> {
    let json = raw.json()?;
    checked(|schedule| schedule.payload = json.clone()).map(|()| json)
}

fn read_missed(raw: &Raw<'_>) -> Result<Missed, String> {
    match raw.text()?.as_str() {
        "latest" => Ok(Missed::Latest),
        "all" => Ok(Missed::All),
        "skip" => Ok(Missed::Skip),
        _ => Err("must be \"latest\", \"all\" or \"skip\"".into()),
    }
}
