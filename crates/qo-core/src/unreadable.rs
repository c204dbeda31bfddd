//! Stand-ins for stored values that break a rule.
//!
//! A store refuses such a value at submit. If one is stored all the same, one bad job must not hide all others from the
//! views. So each value that cannot be read gets a stand-in, and its job says so:
//! [`JobView::unreadable`](crate::JobView::unreadable).
//!
//! The kind of a value is known by the name of its field, which means the same in everything that is written as JSON. A
//! store uses stand-ins to show jobs, after a plain read has failed. A store of whole records also uses them to read
//! the rest of a record with such a job. There the job stands alone, so that no stand-in joins other work.

mod record;

pub use record::{read_record, said};

use crate::{
    Attempt, GroupRef, JobProgress, JobState, Json, Key, Name, OnFailure, Result, RetryPolicy, Traceparent,
    caps,
};
use serde::de::DeserializeOwned;
use serde_json::{Map, Value};

/// Reads JSON as it is or, if that fails, with stand-ins for values that break a rule.
///
/// None if it cannot be read even so.
pub fn read<T: DeserializeOwned>(text: &str) -> Option<T> {
    if let Ok(value) = serde_json::from_str(text) {
        return Some(value);
    }
    let mut value: Value = serde_json::from_str(text).ok()?;
    mend(&mut value);
    serde_json::from_value(value).ok()
}

/// [`read`] for a list, item by item. Items that cannot be read even so are left out and counted.
pub fn read_list<T: DeserializeOwned>(text: &str) -> Option<(Vec<T>, usize)> {
    if let Ok(list) = serde_json::from_str(text) {
        return Some((list, 0));
    }
    let Ok(Value::Array(mut values)) = serde_json::from_str(text) else { return None };
    let all = values.len();
    values.iter_mut().for_each(|value| drop(mend(value)));
    let read: Vec<T> = values.into_iter().filter_map(|value| serde_json::from_value(value).ok()).collect();
    let left_out = all - read.len();
    Some((read, left_out))
}

/// Replaces what cannot be read by stand-ins. Returns what that was, except what a job reports itself.
fn mend(value: &mut Value) -> Vec<String> {
    match value {
        Value::Array(items) => items.iter_mut().flat_map(mend).collect(),
        Value::Object(fields) => {
            let is_job = fields.contains_key("submitted_at");
            let bad = mend_fields(fields, is_job);
            if !is_job || bad.is_empty() {
                return bad;
            }
            fields.insert("unreadable".into(), bad.join("; ").into());
            Vec::new()
        }
        _ => Vec::new(),
    }
}

fn mend_fields(fields: &mut Map<String, Value>, is_job: bool) -> Vec<String> {
    let has_state = is_job || fields.contains_key("reasons") || fields.contains_key("step");
    let has_ended = fields.get("finished_at").is_some_and(|at| !at.is_null());
    let mut bad = Vec::new();
    for (field, value) in fields.iter_mut() {
        if value.is_null() {
            continue;
        }
        match field.as_str() {
            "queue" | "task" | "worker" | "workflow" => {
                mend_text(value, &mut bad, |text| Name::parse(field, text), name_like)
            }
            "group" if is_job => mend_text(value, &mut bad, |text| Name::parse(field, text), name_like),
            "group" => mend_text(value, &mut bad, |text| GroupRef::parse(field, text), name_like),
            "key" | "idempotency_key" => mend_text(value, &mut bad, |text| Key::parse(field, text), key_like),
            "queues" | "tasks" => {
                for item in value.as_array_mut().into_iter().flatten() {
                    mend_text(item, &mut bad, |text| Name::parse(field, text), name_like);
                }
            }
            "state" if has_state && !is::<JobState>(value) => {
                bad.push(format!("state: {value}: is unknown to this release"));
                *value = if has_ended { "failed" } else { "pending" }.into();
            }
            "payload" | "output" => {
                if let Some(text) = value.as_str()
                    && let Err(error) = Json::parse(field, text)
                {
                    // The text itself can be shown, as a JSON string.
                    bad.push(error.message().into());
                    *value = Value::String(Value::String(text.into()).to_string());
                }
            }
            "cost" | "limit" | "attempts_used" | "max_attempts" | "slots" | "used" | "live" | "step" => {
                mend_number(field, value, &mut bad)
            }
            "timeout_ms" if value.as_u64().is_none() => {
                bad.push(format!("timeout_ms: {value}: must be 1 to {}", caps::DURATION_MS));
                *value = Value::Null;
            }
            "on_failure" if !is::<OnFailure>(value) => {
                bad.push(format!("on_failure: {value}: must be halt or continue"));
                *value = "halt".into();
            }
            "retry" if !is::<RetryPolicy>(value) => {
                bad.push("retry: is no backoff".into());
                *value = Value::Null;
            }
            "traceparent" if !is::<Traceparent>(value) => {
                bad.push(format!("traceparent: {value}: is none"));
                *value = Value::Null;
            }
            "progress" if !is::<JobProgress>(value) => {
                bad.push("progress: is no report".into());
                *value = Value::Null;
            }
            "limits" if is_job => mend_limits(value, &mut bad),
            "attempts" if is_job => mend_attempts(value, &mut bad),
            _ => bad.extend(mend(value)),
        }
    }
    bad
}

fn is<T: DeserializeOwned>(value: &Value) -> bool {
    T::deserialize(value).is_ok()
}

fn mend_text<T>(
    value: &mut Value,
    bad: &mut Vec<String>,
    parse: impl Fn(&str) -> Result<T>,
    stand_in: impl Fn(&str) -> String,
) {
    let Some(text) = value.as_str() else { return };
    if let Err(error) = parse(text) {
        bad.push(error.message().into());
        *value = stand_in(text).into();
    }
}

/// A name that resembles a text.
fn name_like(text: &str) -> String {
    let fits = |c: char| if c.is_ascii_alphanumeric() || "_.-".contains(c) { c } else { '_' };
    let like: String = text.chars().take(caps::NAME_BYTES).map(fits).collect();
    if Name::parse("name", &like).is_ok() { like } else { "unreadable".into() }
}

/// A key that resembles a text.
fn key_like(text: &str) -> String {
    let like: String = text.chars().map(|c| if c.is_control() { '\u{fffd}' } else { c }).collect();
    let like = &like[..like.floor_char_boundary(caps::KEY_BYTES)];
    if Key::parse("key", like).is_ok() { like.into() } else { "unreadable".into() }
}

fn mend_number(field: &str, value: &mut Value, bad: &mut Vec<String>) {
    if value.as_u64().is_some_and(|number| u32::try_from(number).is_ok()) || !value.is_number() {
        return;
    }
    let (least, most) = match field {
        "cost" => (1, caps::LIMIT),
        "limit" => (0, caps::LIMIT),
        "max_attempts" => (1, caps::ATTEMPTS),
        _ => (0, u32::MAX),
    };
    bad.push(format!("{field}: {value}: must be {least} to {most}"));
    *value = if value.as_f64().is_some_and(|number| number < 0.0) { least } else { most }.into();
}

fn mend_limits(value: &mut Value, bad: &mut Vec<String>) {
    let Some(limits) = value.as_object_mut() else {
        bad.push("limits: must be an object".into());
        *value = Value::Object(Map::new());
        return;
    };
    limits.retain(|group, slots| {
        let is_fine = GroupRef::parse("limits", group).is_ok() && is::<u32>(slots);
        if !is_fine {
            bad.push(format!("limits: {group:?}: {slots}: is no extra limit"));
        }
        is_fine
    });
}

fn mend_attempts(value: &mut Value, bad: &mut Vec<String>) {
    let Some(attempts) = value.as_array_mut() else {
        bad.push("attempts: must be an array".into());
        *value = Value::Array(Vec::new());
        return;
    };
    let all = attempts.len();
    for attempt in attempts.iter_mut().filter(|attempt| !is::<Attempt>(attempt)) {
        bad.extend(mend(attempt));
    }
    attempts.retain(is::<Attempt>);
    if attempts.len() < all {
        bad.push(format!("attempts: {} of {all} cannot be read", all - attempts.len()));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{JobDetail, JobPage};

    const GOOD: &str = r#"{"id": "00000000-0000-0000-0000-000000000001", "state": "pending", "queue": "default", "task": "t",
        "group": "t", "key": null, "cost": 1, "limits": {}, "priority": 0, "submitted_at": 1, "run_at": 1, "good_until": null,
        "idempotency_key": null, "attempts_used": 0, "max_attempts": 3, "cancel_requested": false, "running": null,
        "claimed": null, "workflow": null, "step": null, "skipped": false, "finished_at": null}"#;

    fn with(field: &str, value: Value) -> Value {
        let mut job: Value = serde_json::from_str(GOOD).expect("JSON");
        job[field] = value;
        job
    }

    #[test]
    fn one_bad_job_is_shown_with_a_stand_in_and_the_others_as_they_are() {
        for (field, value, part) in [
            ("task", "bad name!".into(), "task: \"bad name!\": must match"),
            ("queue", "".into(), "queue: \"\": must match"),
            ("group", "cluster".into(), "group: \"cluster\""),
            ("key", "a\u{1}".into(), "key: \"a\\u{1}\": must not contain control"),
            ("cost", (-5).into(), "cost: -5: must be"),
            ("state", "weird".into(), "state: \"weird\": is unknown"),
            ("timeout_ms", (-1).into(), "timeout_ms: -1"),
            ("retry", 7.into(), "retry"),
            ("traceparent", "00-0".into(), "traceparent: \"00-0\": is none"),
            ("limits", serde_json::json!({"gpu": -1, "cpu": 1}), "limits: \"gpu\": -1"),
            ("max_attempts", (-1).into(), "max_attempts: -1"),
        ] {
            let page =
                serde_json::json!({ "jobs": [with("task", "t".into()), with(field, value)], "next": null });
            let page: JobPage = read(&page.to_string()).expect(field);
            assert_eq!((page.jobs.len(), &page.jobs[0].unreadable), (2, &None), "{field}");
            let said = page.jobs[1].unreadable.as_deref().expect(field);
            assert!(said.contains(part), "{field}: {said}");
        }
    }

    #[test]
    fn a_workflow_whose_policy_is_unknown_is_shown_with_a_stand_in() {
        let page = r#"{"workflows": [{"workflow": "w", "state": "active", "on_failure": "wat", "steps": 1, "live": 1,
            "head": null}], "next": null}"#;
        let page: crate::WorkflowPage = read(page).expect("it is shown");
        assert_eq!(page.workflows[0].on_failure, OnFailure::Halt);
    }

    #[test]
    fn a_payload_that_is_no_json_is_shown_as_a_text() {
        let mut job = with("task", "a b".into());
        job["payload"] = "{\"a\":".into();
        job["output"] = Value::Null;
        job["attempts"] = serde_json::json!([7]);
        let detail: JobDetail = read(&job.to_string()).expect("it is shown");
        assert_eq!(detail.payload.as_str(), r#""{\"a\":""#);
        let said = detail.view.unreadable.expect("it says so");
        for part in ["task: \"a b\"", "payload: ", "attempts: 1 of 1 cannot be read"] {
            assert!(said.contains(part), "{said}");
        }
    }
}
