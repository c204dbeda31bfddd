//! A stored record with a job in it that breaks a rule. Everything else of the record is read; the job stands alone and
//! fails when it is claimed.

use super::{mend_fields, name_like};
use crate::job::{bounded, default_queue};
use crate::{JobId, Json, Key, Name, NewJob, OnFailure, OnLimit, Time, caps};
use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::{Map, Value};

/// The prefix of the payload of a job that stands in for an unreadable one. No JSON begins like this.
const MARK: &str = "unreadable: ";
/// The group of every such job, and its queue if its own is no name. It must share slots with no other job.
const APART: &str = "unreadable";
/// How many bytes of a value are quoted.
const QUOTED: usize = 200;

/// What is wrong with a job, if it stands in for an unreadable one. [`read_record`] puts that in place of its payload.
pub fn said(payload: &Json) -> Option<&str> {
    payload.as_str().strip_prefix(MARK)
}

/// Reads a stored record in which a job breaks a rule. None if the record cannot be read for another reason.
///
/// - The job stands alone: it has no workflow, key, idempotency key or limits, and its group is `unreadable`, because a
///   stand-in for a name could be the name of other work.
/// - Its payload is replaced by what is wrong with it, which is no JSON. So a worker that claims it fails it, for that
///   reason.
/// - Everything else in the record is as it was stored.
/// - Every process that reads the record reads the same.
pub fn read_record<T: DeserializeOwned>(bytes: &[u8]) -> Option<T> {
    let mut value: Value = serde_json::from_slice(bytes).ok()?;
    mend_jobs(&mut value, &mut StandInIds { seed: fnv(bytes), given: 0 });
    serde_json::from_value(value).ok()
}

/// Ids for jobs without one. They depend on the record alone, so that all readers make the same.
struct StandInIds {
    seed: u128,
    given: u128,
}

impl StandInIds {
    fn next(&mut self) -> JobId {
        self.given += 1;
        let bytes = self.seed.wrapping_add(self.given).to_be_bytes();
        JobId(uuid::Builder::from_custom_bytes(bytes).into_uuid())
    }
}

/// FNV-1a. It need not resist forgery, only be the same everywhere.
fn fnv(bytes: &[u8]) -> u128 {
    const OFFSET: u128 = 0x6c62_272e_07bb_0142_62b8_2175_6295_c58d;
    const PRIME: u128 = 0x0000_0000_0100_0000_0000_0000_0000_013b;
    bytes.iter().fold(OFFSET, |hash, byte| (hash ^ u128::from(*byte)).wrapping_mul(PRIME))
}

fn mend_jobs(value: &mut Value, ids: &mut StandInIds) {
    match value {
        Value::Array(items) => items.iter_mut().for_each(|item| mend_jobs(item, ids)),
        Value::Object(fields) if fields.contains_key("id") && fields.contains_key("task") => {
            mend_kept(fields)
        }
        Value::Object(fields) => {
            for (field, value) in fields {
                match (field.as_str(), value) {
                    ("accepted", job @ Value::Object(_)) => mend_new(job, ids),
                    ("offered", Value::Array(jobs)) => {
                        jobs.iter_mut().filter(|job| job.is_object()).for_each(|job| mend_new(job, ids));
                    }
                    (_, value) => mend_jobs(value, ids),
                }
            }
        }
        _ => {}
    }
}

/// A job as it was submitted. Of one that cannot be read, only what decides its place in line is kept.
fn mend_new(value: &mut Value, ids: &mut StandInIds) {
    let Err(error) = NewJob::deserialize(&*value) else { return };
    let Some(fields) = value.as_object() else { return };
    let mut bad = faults_of_new(fields);
    if bad.is_empty() {
        bad.push(error.to_string());
    }
    let task = fields.get("task").and_then(Value::as_str).map(name_like);
    let Some(task) = name(&task.unwrap_or_else(|| APART.into())) else { return };
    let queue = match fields.get("queue") {
        None => Some(default_queue()),
        Some(queue) => part(queue).or_else(|| name(APART)),
    };
    let id = fields.get("id").and_then(part).unwrap_or_else(|| ids.next());
    let is_a_date = |at: &Time| (0..=caps::TIME_MS).contains(&at.as_millis());
    let job = NewJob {
        payload: marked(&bad),
        queue: queue.unwrap_or_else(default_queue),
        priority: fields.get("priority").and_then(part).unwrap_or_default(),
        run_at: fields.get("run_at").and_then(part).filter(is_a_date),
        group: name(APART),
        ..NewJob::new(id, task)
    };
    if let Ok(mended) = serde_json::to_value(job) {
        *value = mended;
    }
}

/// What is wrong with a submitted job, field by field.
fn faults_of_new(fields: &Map<String, Value>) -> Vec<String> {
    let mut mended = fields.clone();
    // Fields that are known by name fail their own rule. The others fail by their type.
    let mut bad = mend_fields(&mut mended, true);
    for (field, value) in &mended {
        let read = match field.as_str() {
            "id" => why_not::<JobId>(value),
            "task" | "queue" => why_not::<Name>(value),
            "payload" => why_not::<Json>(value),
            "priority" => why_not::<i32>(value),
            "run_at" | "good_until" => why_not::<Option<Time>>(value),
            "max_attempts" | "cost" => why_not::<u32>(value),
            "limit" => why_not::<Option<u32>>(value),
            "timeout_ms" => why_not::<Option<u64>>(value),
            "group" | "workflow" => why_not::<Option<Name>>(value),
            "key" | "idempotency_key" => why_not::<Option<Key>>(value),
            "on_limit" => why_not::<OnLimit>(value),
            "clear_limit" => why_not::<bool>(value),
            "on_failure" => why_not::<Option<OnFailure>>(value),
            _ => None,
        };
        bad.extend(read.map(|why| format!("{field}: {}: {why}", quoted(value))));
    }
    bad.extend(
        ["id", "task"]
            .iter()
            .filter(|field| !fields.contains_key(**field))
            .map(|f| format!("{f}: is missing")),
    );
    bad
}

/// A job in a snapshot, or in the reply to a worker.
fn mend_kept(fields: &mut Map<String, Value>) {
    let payload = fields.get("payload").cloned().unwrap_or_else(|| "null".into());
    if !payload.is_string() {
        fields.remove("payload");
    }
    let mut bad = mend_fields(fields, true);
    if !payload.is_string() {
        bad.push(format!("payload: {}: must be a text", quoted(&payload)));
    }
    if bad.is_empty() {
        return;
    }
    for shared in ["key", "idempotency_key", "limit", "limits", "cost"] {
        fields.remove(shared);
    }
    fields.insert("group".into(), APART.into());
    fields.insert("payload".into(), marked(&bad).as_str().into());
}

fn marked(bad: &[String]) -> Json {
    Json::as_stored(&bounded(&format!("{MARK}{}", bad.join("; ")), caps::ERROR_BYTES))
}

fn name(text: &str) -> Option<Name> {
    Name::parse("name", text).ok()
}

fn part<T: DeserializeOwned>(value: &Value) -> Option<T> {
    T::deserialize(value).ok()
}

fn why_not<T: DeserializeOwned>(value: &Value) -> Option<String> {
    T::deserialize(value).err().map(|error| error.to_string())
}

fn quoted(value: &Value) -> String {
    let mut text = value.to_string();
    text.truncate(text.floor_char_boundary(QUOTED));
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    fn events(record: &str) -> Vec<crate::Event> {
        read_record(record.as_bytes()).expect("it is read")
    }

    fn accepted(record: &str) -> Vec<std::sync::Arc<NewJob>> {
        let accepted = |event| match event {
            crate::Event::Accepted(job) => Some(job),
            _ => None,
        };
        events(record).into_iter().filter_map(accepted).collect()
    }

    #[test]
    fn a_record_with_a_bad_job_is_read_and_only_that_job_is_bad() {
        let record = r#"[{"accepted": {"id": "00000000-0000-0000-0000-000000000001", "task": "t", "payload": "1"}},
            {"accepted": {"id": "00000000-0000-0000-0000-000000000002", "task": "a b", "cost": -5, "payload": "2"}}]"#;
        let [good, bad] = &accepted(record)[..] else { panic!("two jobs") };
        assert_eq!((good.check(), good.payload.as_str(), said(&good.payload)), (Ok(()), "1", None));
        assert_eq!((&*bad.task, bad.cost), ("a_b", 1));
        let error = bad.payload.check("payload").expect_err("no handler may get it").to_string();
        assert!(error.contains("unreadable: ") && error.contains("cost: -5"), "{error}");
        assert!(said(&bad.payload).is_some_and(|said| said.starts_with("cost: -5")), "{bad:?}");
        assert!(read_record::<Vec<crate::Event>>(br#"[{"accepted": 7}]"#).is_none(), "that is no job");
    }

    #[test]
    fn a_bad_job_stands_alone_whatever_of_it_is_bad() {
        let good = serde_json::json!({
            "id": "00000000-0000-0000-0000-000000000001", "task": "t", "payload": "1", "queue": "q", "group": "g",
            "key": "k", "idempotency_key": "i", "workflow": "w", "on_failure": "halt", "limit": 1, "cost": 2,
            "limits": {"gpu": 1}, "run_at": 5, "good_until": 6, "priority": 3,
        });
        for (field, value) in [
            ("id", 7.into()),
            ("id", "x".into()),
            ("task", 7.into()),
            ("task", "a b".into()),
            ("task", Value::Null),
            ("queue", "a b".into()),
            ("queue", Value::Null),
            ("group", "a b".into()),
            ("group", serde_json::json!([1])),
            ("key", "a\u{1}".into()),
            ("key", 7.into()),
            ("idempotency_key", "a\u{1}".into()),
            ("workflow", "a b".into()),
            ("on_failure", "explode".into()),
            ("priority", 3_000_000_000_u64.into()),
            ("priority", "high".into()),
            ("run_at", "soon".into()),
            ("good_until", 1e300.into()),
            ("on_limit", "drop".into()),
            ("max_attempts", "3".into()),
            ("retry", 7.into()),
            ("timeout_ms", (-1).into()),
            ("limit", (-1).into()),
            ("limits", 7.into()),
            ("cost", (-5).into()),
            ("payload", serde_json::json!({"a": 1})),
        ] {
            let mut bad = good.clone();
            bad[field] = value;
            let record = serde_json::json!([{ "accepted": bad }]).to_string();
            let [job] = &accepted(&record)[..] else { panic!("{field}: one job") };
            assert_eq!(job.check_admission(), Ok(()), "{field}: it can be offered");
            let shared =
                (&job.key, &job.idempotency_key, &job.workflow, job.limit, job.cost, job.limits.len());
            assert_eq!(shared, (&None, &None, &None, None, 1, 0), "{field}");
            assert_eq!(job.group.as_deref(), Some("unreadable"), "{field}");
            let said = said(&job.payload).expect(field);
            assert!(said.contains(&format!("{field}: ")), "{field}: {said}");
            assert_eq!(events(&record), events(&record), "{field}: all readers read the same");
        }
    }

    #[test]
    fn jobs_without_an_id_get_different_ones() {
        let jobs =
            accepted(r#"[{"accepted": {"task": "t"}}, {"accepted": {"task": "t"}}, {"accepted": {}}]"#);
        let ids: std::collections::BTreeSet<_> = jobs.iter().map(|job| job.id).collect();
        assert_eq!(ids.len(), 3, "{jobs:?}");
        assert!(said(&jobs[2].payload).is_some_and(|said| said.contains("task: is missing")), "{jobs:?}");
    }

    #[test]
    fn what_bad_jobs_share_in_a_record_makes_a_state_that_can_be_snapshot() {
        let job = |id: u32, key: &str| {
            let id = format!("00000000-0000-0000-0000-{id:012}");
            serde_json::json!({"accepted": {"id": id, "task": "t", "idempotency_key": key, "workflow": "a b"}})
        };
        let record = serde_json::json!([{"ticked": 1}, job(1, "a\u{1}"), job(2, "a\u{2}")]).to_string();
        let mut state = crate::State::new();
        events(&record).iter().for_each(|event| state.evolve(event));
        crate::State::restore(state.snapshot()).expect("its snapshot is one");
        let id = JobId(uuid::Uuid::from_u128(1));
        let said = state.job(id).expect("it is there").view.unreadable.expect("it is marked");
        assert!(said.contains("idempotency_key"), "{said}");
    }
}
