//! A job as a JSON object: a line of a file of jobs, the body of a request.

use crate::fields::{Fields, choice, duration, number, plain, text, truth};
use crate::moment::{Moment, Zone};
use crate::word;
use qo_core::{
    Error, GroupRef, JobId, Json, Key, Name, NewJob, OnFailure, OnLimit, Result, Time, Traceparent,
};
use serde_json::value::RawValue;
use std::collections::BTreeMap;
use uuid::Uuid;

/// The names that a job may use: those of the options of `qo submit`, and `task`, `payload` and `id`.
pub const NAMES: [&str; 21] = [
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

const ON_LIMIT: [(&str, OnLimit); 3] =
    [("wait", OnLimit::Wait), ("reject", OnLimit::Reject), ("skip", OnLimit::Skip)];
const ON_FAILURE: [(&str, OnFailure); 2] = [("halt", OnFailure::Halt), ("continue", OnFailure::Continue)];

/// A job in the making: what its writer said of it.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct JobText {
    /// The id. Defaults to a new one.
    pub id: Option<JobId>,
    /// The task.
    pub task: Option<Name>,
    /// The payload. Defaults to `null`.
    pub payload: Option<Json>,
    /// Divides the group. Defaults to none.
    pub key: Option<Key>,
    /// The group it shares slots in. Defaults to the task's.
    pub group: Option<Name>,
    /// Slots it takes in its group and key. Defaults to 1.
    pub cost: Option<u32>,
    /// A limit for its group (with a key: for that key) where no other source has set one. Defaults to none.
    pub limit: Option<u32>,
    /// Clears the limit that earlier submits brought. Defaults to no.
    pub clear_limit: bool,
    /// Slots it takes in other groups. Defaults to none.
    pub limits: Option<BTreeMap<GroupRef, u32>>,
    /// Its queue. Defaults to `default`.
    pub queue: Option<Name>,
    /// Lower runs first. Defaults to 0.
    pub priority: Option<i32>,
    /// Milliseconds before it may start. Defaults to none.
    pub delay: Option<u64>,
    /// The moment from which on it may start. Defaults to now.
    pub at: Option<Moment>,
    /// It expires if it has not started by this moment. Defaults to never.
    pub good_until: Option<Moment>,
    /// How long one attempt may run, in milliseconds. Defaults to the task's.
    pub timeout: Option<u64>,
    /// Tries until it fails for good. Defaults to 3.
    pub max_attempts: Option<u32>,
    /// The workflow that it is the next step of. Defaults to none.
    pub workflow: Option<Name>,
    /// What its workflow does when a step does not succeed. Defaults to `halt`.
    pub on_failure: Option<OnFailure>,
    /// A second submission with the same key is the same job. Defaults to none.
    pub idempotency_key: Option<Key>,
    /// What to do when the live jobs of its group leave no room. Defaults to `wait`.
    pub on_limit: Option<OnLimit>,
    /// The trace that it belongs to. Defaults to none.
    pub traceparent: Option<Traceparent>,
}

impl JobText {
    /// Reads a job.
    pub fn parse(text: &str, zone: Zone) -> Result<Self> {
        Self::read(Fields::parse("job", "a job", text)?, zone)
    }

    fn read(mut fields: Fields, zone: Zone) -> Result<Self> {
        let moment = |text: &str| Moment::parse(text, zone);
        let job = Self {
            id: fields.take("id", text(word::job))?,
            task: fields.take("task", text(word::name))?,
            // A payload of null is a payload.
            payload: fields.take_raw("payload").map(|raw| Json::parse("payload", raw.get())).transpose()?,
            key: fields.take::<Option<Key>>("key", key)?.flatten(),
            group: fields.take("group", text(word::name))?,
            cost: fields.take("cost", number)?,
            limit: fields.take("limit", number)?,
            clear_limit: fields.take("clear_limit", truth)?.unwrap_or(false),
            limits: fields.take("limits", limits)?,
            queue: fields.take("queue", text(word::name))?,
            priority: fields.take("priority", number)?,
            delay: fields.take("delay", duration)?,
            at: fields.take("at", text(moment))?,
            good_until: fields.take("good_until", text(moment))?,
            timeout: fields.take("timeout", duration)?,
            max_attempts: fields.take("max_attempts", number)?,
            workflow: fields.take("workflow", text(word::name))?,
            on_failure: fields.take("on_failure", choice(&ON_FAILURE))?,
            idempotency_key: fields.take::<Option<Key>>("idempotency_key", key)?.flatten(),
            on_limit: fields.take("on_limit", choice(&ON_LIMIT))?,
            traceparent: fields.take("traceparent", text(word::traceparent))?,
        };
        if job.delay.is_some() && job.at.is_some() {
            return Err(Error::invalid("delay", "", "is given, and so is at: say one of them"));
        }
        fields.finish()?;
        Ok(job)
    }

    /// Fills in from another text what this one leaves out.
    pub fn or(self, other: &Self) -> Self {
        let (a, b) = (self, other.clone());
        // `delay` and `at` exclude each other: if this one has either, neither is filled in.
        let dated = a.delay.is_some() || a.at.is_some();
        Self {
            id: a.id,
            task: a.task.or(b.task),
            payload: a.payload.or(b.payload),
            key: a.key.or(b.key),
            group: a.group.or(b.group),
            cost: a.cost.or(b.cost),
            limit: if a.clear_limit { a.limit } else { a.limit.or(b.limit) },
            clear_limit: a.clear_limit || (a.limit.is_none() && b.clear_limit),
            limits: a.limits.or(b.limits),
            queue: a.queue.or(b.queue),
            priority: a.priority.or(b.priority),
            delay: if dated { a.delay } else { b.delay },
            at: if dated { a.at } else { b.at },
            good_until: a.good_until.or(b.good_until),
            timeout: a.timeout.or(b.timeout),
            max_attempts: a.max_attempts.or(b.max_attempts),
            workflow: a.workflow.or(b.workflow),
            on_failure: a.on_failure.or(b.on_failure),
            idempotency_key: a.idempotency_key.or(b.idempotency_key),
            on_limit: a.on_limit.or(b.on_limit),
            traceparent: a.traceparent.or(b.traceparent),
        }
    }

    /// Whether the job can only be made once the store's time is known.
    pub fn needs_now(&self) -> bool {
        let is_relative = |moment: Option<Moment>| matches!(moment, Some(Moment::In(_)));
        self.delay.is_some() || is_relative(self.at) || is_relative(self.good_until)
    }

    /// The job, with an id.
    pub fn job(self, now: Time) -> Result<NewJob> {
        let task = self.task.ok_or_else(|| Error::invalid("task", "", "must be given"))?;
        let default = NewJob::new(self.id.unwrap_or_else(new_id), task);
        let run_at = self.at.or(self.delay.map(Moment::In)).map(|moment| moment.from(now));
        Ok(NewJob {
            payload: self.payload.unwrap_or_else(Json::null),
            queue: self.queue.unwrap_or(default.queue),
            priority: self.priority.unwrap_or(default.priority),
            run_at,
            good_until: self.good_until.map(|moment| moment.from(now)),
            max_attempts: self.max_attempts.unwrap_or(default.max_attempts),
            timeout_ms: self.timeout,
            group: self.group,
            key: self.key,
            cost: self.cost.unwrap_or(default.cost),
            limits: self.limits.unwrap_or_default(),
            limit: self.limit,
            clear_limit: self.clear_limit,
            idempotency_key: self.idempotency_key,
            on_limit: self.on_limit.unwrap_or_default(),
            workflow: self.workflow,
            on_failure: self.on_failure,
            traceparent: self.traceparent,
            ..default
        })
    }
}

/// A new id of a job.
pub fn new_id() -> JobId {
    JobId(Uuid::now_v7())
}

/// A key; an empty one is none.
fn key(raw: &RawValue) -> Result<Option<Key>, String> {
    let text = plain(raw)?;
    if text.is_empty() { Ok(None) } else { word::key(&text).map(Some) }
}

fn limits(raw: &RawValue) -> Result<BTreeMap<GroupRef, u32>, String> {
    serde_json::from_str(raw.get()).map_err(|error| error.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(text: &str) -> Result<JobText> {
        JobText::parse(text, Zone::Machine)
    }

    #[test]
    fn a_job_may_use_every_option_in_either_spelling() {
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
    fn a_bad_job_says_which_field_and_why() {
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
    fn the_list_of_names_has_each_name_that_is_read() {
        let mut fields = Fields::parse("job", "a job", "{\"x\": 1}").expect("an object");
        for name in NAMES {
            fields.take_raw(name);
        }
        let listed = fields.finish().expect_err("x is not taken").to_string();
        assert_eq!(parse("{\"x\": 1}").expect_err("x is no name").to_string(), listed);
    }

    #[test]
    fn a_job_beats_the_one_that_fills_it_in() {
        let line = parse(r#"{"task": "a", "queue": "x", "delay": "1s"}"#).expect("a line");
        let other = parse(r#"{"task": "b", "queue": "y", "at": "2026-01-01T00:00:00Z", "key": "k"}"#)
            .expect("a line");
        let job = line.or(&other).job(Time::from_millis(0)).expect("a job");
        assert_eq!((&*job.task, &*job.queue, job.run_at), ("a", "x", Some(Time::from_millis(1_000))));
        assert_eq!(job.key.as_deref(), Some("k"));
    }
}
