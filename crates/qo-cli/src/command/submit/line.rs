//! A line of a file of jobs.

use super::options::{Limits, Options, Template, WhenFailed, WhenTaken};
use crate::command::argument::{self, Moment};
use clap::ValueEnum;
use qo::core::{Json, Key, Name};
use qo::settings::nearest;
use qo::{Error, Result};
use serde::de::DeserializeOwned;
use serde_json::value::RawValue;
use std::collections::BTreeMap;

/// The names that a line may use: those of the options, and `task`, `payload` and `id`.
const NAMES: [&str; 21] = [
    "id",
    "task",
    "payload",
    "key",
    "group",
    "cost",
    "limit",
    "clear_limit",
    "limits",
    "queue",
    "priority",
    "delay",
    "at",
    "good_until",
    "timeout",
    "max_attempts",
    "workflow",
    "on_failure",
    "idempotency_key",
    "on_limit",
    "traceparent",
];

/// Reads a line.
pub fn parse(line: &str) -> Result<Template> {
    let fields: BTreeMap<String, Box<RawValue>> = serde_json::from_str(line)
        .map_err(|error| Error::invalid("job", line, format_args!("must be a JSON object: {error}")))?;
    let mut fields = Fields(fields);
    let template = Template {
        id: fields.take("id", |raw| text(raw, argument::job))?,
        task: fields.take("task", |raw| text(raw, argument::name))?,
        payload: fields
            .take("payload", |raw| Json::parse("payload", raw.get()).map_err(|e| e.message().into()))?,
        options: Options {
            key: fields.take::<Option<Key>>("key", key)?.flatten(),
            group: fields.take("group", |raw| text::<Name>(raw, argument::name))?,
            cost: fields.take("cost", number)?,
            limit: fields.take("limit", number)?,
            clear_limit: fields.take("clear_limit", truth)?.unwrap_or(false),
            limits: fields.take("limits", |raw| serde_json::from_str::<Limits>(raw.get()).map_err(shown))?,
            queue: fields.take("queue", |raw| text(raw, argument::name))?,
            priority: fields.take("priority", number)?,
            delay: fields.take("delay", duration)?,
            at: fields.take("at", |raw| text::<Moment>(raw, argument::moment))?,
            good_until: fields.take("good_until", |raw| text(raw, argument::moment))?,
            timeout: fields.take("timeout", duration)?,
            max_attempts: fields.take("max_attempts", number)?,
            workflow: fields.take("workflow", |raw| text(raw, argument::name))?,
            on_failure: fields.take("on_failure", choice::<WhenFailed>)?,
            idempotency_key: fields.take::<Option<Key>>("idempotency_key", key)?.flatten(),
            on_limit: fields.take("on_limit", choice::<WhenTaken>)?,
            traceparent: fields.take("traceparent", |raw| text(raw, argument::traceparent))?,
        },
    };
    if template.options.delay.is_some() && template.options.at.is_some() {
        return Err(Error::invalid("delay", "", "is given, and so is at: say one of them"));
    }
    fields.finish()?;
    Ok(template)
}

struct Fields(BTreeMap<String, Box<RawValue>>);

impl Fields {
    /// Takes a field, in either spelling; `null` is none.
    fn take<T>(
        &mut self,
        name: &'static str,
        read: impl Fn(&RawValue) -> Result<T, String>,
    ) -> Result<Option<T>> {
        let dashed = name.replace('_', "-");
        let found = self.0.remove(name).or_else(|| self.0.remove(&dashed));
        // A payload of null is a payload.
        let found = found.filter(|raw| name == "payload" || raw.get() != "null");
        let read = |raw: Box<RawValue>| read(&raw).map_err(|rule| Error::invalid(name, raw.get(), rule));
        found.map(read).transpose()
    }

    fn finish(self) -> Result<()> {
        let Some(name) = self.0.keys().next() else { return Ok(()) };
        let rule = match nearest(name, NAMES) {
            Some(near) => format!("is not an option of a job; did you mean {near}?"),
            None => format!("is not an option of a job; there are: {}", NAMES.join(", ")),
        };
        Err(Error::invalid(name, name, rule))
    }
}

fn shown(error: serde_json::Error) -> String {
    error.to_string()
}

fn plain(raw: &RawValue) -> Result<String, String> {
    serde_json::from_str(raw.get()).map_err(|_| "must be a text".into())
}

fn text<T>(raw: &RawValue, read: impl Fn(&str) -> Result<T, String>) -> Result<T, String> {
    read(&plain(raw)?)
}

/// A key; an empty one is none.
fn key(raw: &RawValue) -> Result<Option<Key>, String> {
    let text = plain(raw)?;
    if text.is_empty() { Ok(None) } else { argument::key(&text).map(Some) }
}

fn number<T: DeserializeOwned>(raw: &RawValue) -> Result<T, String> {
    serde_json::from_str(raw.get()).map_err(|_| "must be a whole number that fits".into())
}

fn truth(raw: &RawValue) -> Result<bool, String> {
    serde_json::from_str(raw.get()).map_err(|_| "must be true or false".into())
}

/// A length of time: a text with its unit, or a number of seconds.
fn duration(raw: &RawValue) -> Result<u64, String> {
    match serde_json::from_str::<u64>(raw.get()) {
        Ok(seconds) => argument::duration(&format!("{seconds}s")),
        Err(_) => text(raw, argument::duration),
    }
}

fn choice<T: ValueEnum>(raw: &RawValue) -> Result<T, String> {
    T::from_str(&plain(raw)?, false).map_err(|_| {
        let names = T::value_variants().iter().filter_map(ValueEnum::to_possible_value);
        format!(
            "must be one of {}",
            names.map(|value| value.get_name().to_owned()).collect::<Vec<_>>().join(", ")
        )
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use qo::core::{OnLimit, Time};

    #[test]
    fn a_line_may_use_every_option_in_either_spelling() {
        let line = r#"{"task": "mail", "payload": {"n": 12345678901234567890123}, "key": "ann", "cost": 2,
            "limits": {"gpu": 2}, "delay": "10m", "timeout": 60, "max-attempts": 5, "on_limit": "skip",
            "workflow": "w", "on-failure": "continue", "priority": -3, "id": "019a8a5e-7c1b-7a10-9d43-3e2a6f0c9b11"}"#;
        let job = parse(line).expect("a line").job(Time::from_millis(1_000)).expect("a job");
        assert_eq!(job.payload.as_str(), r#"{"n": 12345678901234567890123}"#, "numbers stay as they are");
        assert_eq!((job.cost, job.priority, job.max_attempts), (2, -3, 5));
        assert_eq!(job.run_at, Some(Time::from_millis(601_000)));
        assert_eq!((job.timeout_ms, job.on_limit), (Some(60_000), OnLimit::Skip));
        assert_eq!(job.id.to_string(), "019a8a5e-7c1b-7a10-9d43-3e2a6f0c9b11");
        job.check().expect("it keeps the rules");
    }

    #[test]
    fn a_bad_line_says_which_field_and_why() {
        for (line, part) in [
            ("{", "must be a JSON object"),
            ("[1]", "must be a JSON object"),
            (r#"{"task": 7}"#, "task: \"7\": must be a text"),
            (r#"{"task": "a b"}"#, "must match"),
            (r#"{"task": "a", "cost": -1}"#, "cost: \"-1\": must be a whole number"),
            (r#"{"task": "a", "prioritty": 1}"#, "did you mean priority?"),
            (r#"{"task": "a", "delay": "soon"}"#, "must be a length of time"),
            (r#"{"task": "a", "traceparent": "00-1-2-3"}"#, "must be 00-TRACE-SPAN-FLAGS"),
            (r#"{"task": "a", "on_limit": "drop"}"#, "must be one of wait, reject, skip"),
            (r#"{"task": "a", "delay": "1s", "at": "2026-01-01T00:00:00Z"}"#, "say one of them"),
        ] {
            let error = parse(line).expect_err(line).to_string();
            assert!(error.contains(part), "{line}: {error}");
        }
    }

    #[test]
    fn a_line_beats_the_command_line() {
        let line = parse(r#"{"task": "a", "queue": "x", "delay": "1s"}"#).expect("a line");
        let other = parse(r#"{"task": "b", "queue": "y", "at": "2026-01-01T00:00:00Z", "key": "k"}"#)
            .expect("a line");
        let job = line.or(&other).job(Time::from_millis(0)).expect("a job");
        assert_eq!((&*job.task, &*job.queue, job.run_at), ("a", "x", Some(Time::from_millis(1_000))));
        assert_eq!(job.key.as_deref(), Some("k"));
    }
}
