//! Jobs: what a client submits, the states of a job, and what is remembered of each attempt.

use crate::{
    Error, FenceToken, GroupRef, JobId, Key, Name, OnFailure, Result, RetryPolicy, SessionId, Time,
    Traceparent, caps,
};
use serde::{Deserialize, Serialize};
use std::sync::{Arc, LazyLock};
use std::{collections::BTreeMap, fmt};

/// A JSON text.
///
/// A text from [`parse`](Self::parse) is JSON. A text that was read from a store or from a caller's message is taken as
/// it is, because one payload that is no JSON must not make a whole record unreadable. [`check`](Self::check) tells. A
/// store calls it on what clients send, and a worker on what it is about to run.
#[derive(Clone)]
pub struct Json(
    /// A mark, [`PARSED`] or [`STORED`], followed by the text. A field for the mark would make every row of the state
    /// larger.
    Arc<str>,
);

const PARSED: char = '+';
const STORED: char = '?';

impl Json {
    /// Parses a text that must be JSON. `field` is its name in the error.
    pub fn parse(field: impl fmt::Display, text: &str) -> Result<Self> {
        if text == "null" {
            return Ok(Self::null());
        }
        // A full parse, because a quick scan misses errors such as a lone surrogate, and the next reader of the text
        // would fail.
        match serde_json::from_str::<serde_json::Value>(text) {
            Ok(_) => Ok(Self::marked(PARSED, text)),
            Err(error) if error.to_string().starts_with("recursion limit") => {
                let rule = format_args!("must be nested at most {} deep", caps::JSON_DEPTH);
                Err(Error::invalid(field, text, rule))
            }
            Err(error) => Err(Error::invalid(field, text, format_args!("must be JSON: {error}"))),
        }
    }

    /// The JSON `null`.
    pub fn null() -> Self {
        static NULL: LazyLock<Json> = LazyLock::new(|| Json::marked(PARSED, "null"));
        NULL.clone()
    }

    fn marked(mark: char, text: &str) -> Self {
        let mut marked = String::with_capacity(text.len() + mark.len_utf8());
        marked.push(mark);
        marked.push_str(text);
        Self(marked.into())
    }

    /// A text as it is stored, JSON or not.
    pub fn as_stored(text: &str) -> Self {
        if text == "null" { Self::null() } else { Self::marked(STORED, text) }
    }

    /// Whether it is the JSON `null`.
    pub fn is_null(&self) -> bool {
        self.as_str() == "null"
    }

    /// The text itself.
    pub fn as_str(&self) -> &str {
        &self.0[PARSED.len_utf8()..]
    }

    /// `Invalid` if it is too large or no JSON. `field` is its name in the error.
    ///
    /// It parses the text unless [`parse`](Self::parse) has done so.
    pub fn check(&self, field: &str) -> Result<()> {
        let size = self.as_str().len();
        if size > caps::PAYLOAD_BYTES {
            let rule = format_args!("must be at most {} bytes, has {size}", caps::PAYLOAD_BYTES);
            return Err(Error::invalid(field, self.as_str(), rule));
        }
        if self.0.starts_with(PARSED) { Ok(()) } else { Self::parse(field, self.as_str()).map(drop) }
    }
}

impl PartialEq for Json {
    fn eq(&self, other: &Self) -> bool {
        self.as_str() == other.as_str()
    }
}

impl Eq for Json {}

impl std::hash::Hash for Json {
    fn hash<H: std::hash::Hasher>(&self, state: &mut H) {
        self.as_str().hash(state);
    }
}

impl Serialize for Json {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> std::result::Result<S::Ok, S::Error> {
        serializer.serialize_str(self.as_str())
    }
}

impl<'de> Deserialize<'de> for Json {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> std::result::Result<Self, D::Error> {
        struct Text;
        impl serde::de::Visitor<'_> for Text {
            type Value = Json;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a string")
            }
            fn visit_str<E: serde::de::Error>(self, text: &str) -> std::result::Result<Json, E> {
                Ok(Json::as_stored(text))
            }
        }
        deserializer.deserialize_str(Text)
    }
}

impl fmt::Debug for Json {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

impl TryFrom<String> for Json {
    type Error = Error;
    fn try_from(text: String) -> Result<Self> {
        Self::parse("json", &text)
    }
}

impl From<Json> for String {
    fn from(json: Json) -> Self {
        json.as_str().into()
    }
}

/// What went wrong in an attempt, at most [`caps::ERROR_BYTES`] long.
///
/// A longer text is cut and a NUL is replaced, because a worker must always be able to settle.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(from = "String", into = "String")]
pub struct ErrorText(Arc<str>);

impl ErrorText {
    /// The text itself.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl From<&str> for ErrorText {
    fn from(text: &str) -> Self {
        Self(bounded(text, caps::ERROR_BYTES))
    }
}

impl From<String> for ErrorText {
    fn from(text: String) -> Self {
        text.as_str().into()
    }
}

impl From<ErrorText> for String {
    fn from(text: ErrorText) -> Self {
        text.0.as_ref().into()
    }
}

impl fmt::Display for ErrorText {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// At most `most` bytes of a text, without NUL, which not every store can keep.
pub(crate) fn bounded(text: &str, most: usize) -> Arc<str> {
    let text = &text[..text.floor_char_boundary(most)];
    if text.contains('\0') { text.replace('\0', "\u{1a}").into() } else { text.into() }
}

/// What a submit does when the first limited group of a job has no room for it beside its live jobs.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum OnLimit {
    /// Accept the job. It waits in line for its slots.
    #[default]
    Wait,
    /// Refuse it with `LimitReached`.
    Reject,
    /// Do not store it, and say so.
    Skip,
}

/// A job as a client submits it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct NewJob {
    /// Made by the client. Submitting the same id again is the same job.
    pub id: JobId,
    /// The handler that runs it.
    pub task: Name,
    /// What the handler gets. Defaults to `null`.
    #[serde(default = "Json::null", skip_serializing_if = "Json::is_null")]
    pub payload: Json,
    /// Its queue. Defaults to `default`.
    #[serde(default = "default_queue", skip_serializing_if = "is_default_queue")]
    pub queue: Name,
    /// Lower runs first. Defaults to 0.
    #[serde(default, skip_serializing_if = "is_default")]
    pub priority: i32,
    /// It does not run before this time. Defaults to now.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub run_at: Option<Time>,
    /// It expires if it has not started by then. Defaults to never.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub good_until: Option<Time>,
    /// How many attempts it has. Defaults to 3.
    #[serde(default = "default_max_attempts", skip_serializing_if = "is_default_max_attempts")]
    pub max_attempts: u32,
    /// Backoff between attempts. Defaults to the task's, else [`RetryPolicy::default`].
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub retry: Option<RetryPolicy>,
    /// How long one attempt may run. Defaults to the task's, else no limit.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub timeout_ms: Option<u64>,
    /// The group whose slots it takes. Defaults to the task's registered group, else the task's name.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub group: Option<Name>,
    /// Divides the group. Defaults to none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub key: Option<Key>,
    /// Slots it takes in its group and key. Defaults to 1.
    #[serde(default = "default_cost", skip_serializing_if = "is_one")]
    pub cost: u32,
    /// Further groups and the slots it takes there. Defaults to none.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub limits: BTreeMap<GroupRef, u32>,
    /// A limit for its group (with a key: for that key) where no other source sets one. Defaults to none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub limit: Option<u32>,
    /// Clears the submit-side limit of its group (with a key: of that key), which an earlier job brought. A limit of
    /// another source stays. Defaults to no.
    #[serde(default, skip_serializing_if = "is_default")]
    pub clear_limit: bool,
    /// The same key again, anywhere in the namespace, is the same job. Defaults to none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub idempotency_key: Option<Key>,
    /// What to do when its group has no room. Defaults to `wait`.
    #[serde(default, skip_serializing_if = "is_default")]
    pub on_limit: OnLimit,
    /// The workflow that it joins as the last step. Defaults to none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub workflow: Option<Name>,
    /// What its workflow does when a step does not succeed. The first step decides for all. Defaults to what the
    /// workflow does already, else `halt`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub on_failure: Option<OnFailure>,
    /// The trace that it belongs to, for the spans of its attempts. Defaults to none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub traceparent: Option<Traceparent>,
}

const DEFAULT_QUEUE: &str = "default";

pub(crate) fn default_queue() -> Name {
    static NAME: LazyLock<Name> = LazyLock::new(|| {
        Name::parse("queue", DEFAULT_QUEUE).unwrap_or_else(|_| unreachable!("\"default\" is a name"))
    });
    NAME.clone()
}

pub(crate) fn default_max_attempts() -> u32 {
    3
}

pub(crate) fn default_cost() -> u32 {
    1
}

// Defaults are not written: most jobs of a log use them.

fn is_default_queue(queue: &Name) -> bool {
    **queue == *DEFAULT_QUEUE
}

fn is_default_max_attempts(max_attempts: &u32) -> bool {
    *max_attempts == default_max_attempts()
}

pub(crate) fn is_one(cost: &u32) -> bool {
    *cost == default_cost()
}

pub(crate) fn is_default<T: Default + PartialEq>(value: &T) -> bool {
    *value == T::default()
}

impl NewJob {
    /// A job of `task` with every option at its default.
    pub fn new(id: JobId, task: Name) -> Self {
        Self {
            id,
            task,
            payload: Json::null(),
            queue: default_queue(),
            priority: 0,
            run_at: None,
            good_until: None,
            max_attempts: default_max_attempts(),
            retry: None,
            timeout_ms: None,
            group: None,
            key: None,
            cost: default_cost(),
            limits: BTreeMap::new(),
            limit: None,
            clear_limit: false,
            idempotency_key: None,
            on_limit: OnLimit::Wait,
            workflow: None,
            on_failure: None,
            traceparent: None,
        }
    }

    /// Checks every rule that needs no state. A store calls it before anything else.
    pub fn check(&self) -> Result<()> {
        self.payload.check("payload")?;
        self.check_options()
    }

    fn check_options(&self) -> Result<()> {
        within("max_attempts", self.max_attempts.into(), 1, caps::ATTEMPTS.into())?;
        within("cost", self.cost.into(), 1, caps::LIMIT.into())?;
        for (field, time) in [("run_at", self.run_at), ("good_until", self.good_until)] {
            if let Some(time) = time.filter(|t| !(0..=caps::TIME_MS).contains(&t.as_millis())) {
                return Err(Error::invalid(field, time, "must lie between the years 1970 and 9999"));
            }
        }
        if let (Some(run_at), Some(good_until)) = (self.run_at, self.good_until)
            && good_until <= run_at
        {
            return Err(Error::invalid(
                "good_until",
                good_until,
                format_args!("must be after run_at, {run_at}"),
            ));
        }
        if let Some(timeout_ms) = self.timeout_ms {
            within("timeout_ms", timeout_ms, 1, caps::DURATION_MS)?;
        }
        if let Some(limit) = self.limit {
            within("limit", limit.into(), 0, caps::LIMIT.into())?;
            if self.clear_limit {
                let rule = format_args!("must not be set together with limit, {limit}");
                return Err(Error::invalid("clear_limit", self.clear_limit, rule));
            }
        }
        if let Some(retry) = &self.retry {
            retry.check().map_err(|e| e.at("retry"))?;
        }
        if let (Some(on_failure), None) = (self.on_failure, &self.workflow) {
            return Err(Error::invalid("on_failure", on_failure, "is for the steps of a workflow: name one"));
        }
        self.check_extra_limits()
    }

    /// Whether it may be offered: submitted without an answer that depends on the state.
    pub fn can_be_offered(&self) -> bool {
        self.check_offer().is_ok()
    }

    /// Checks it as an offer.
    ///
    /// A client that offers a job holds no state and hears no answer. So beyond [`check`](Self::check), a job that
    /// needs an answer is `Invalid`, and the message names the field.
    pub fn check_offer(&self) -> Result<()> {
        self.payload.check("payload")?;
        self.check_admission()
    }

    /// Checks a stored offer, which was acknowledged to its client. One whose payload is no JSON is admitted, and fails
    /// when it is claimed.
    pub(crate) fn check_admission(&self) -> Result<()> {
        self.check_options()?;
        let needs_an_answer = |field, value: &dyn fmt::Display| {
            Err(Error::invalid(field, value, "needs an answer: such a job can be submitted, but not offered"))
        };
        if let Some(limit) = self.limit {
            return needs_an_answer("limit", &limit);
        }
        if self.clear_limit {
            return needs_an_answer("clear_limit", &self.clear_limit);
        }
        if let Some(key) = &self.idempotency_key {
            return needs_an_answer("idempotency_key", key);
        }
        if self.on_limit != OnLimit::Wait {
            return needs_an_answer("on_limit", &format_args!("{:?}", self.on_limit));
        }
        if let Some(workflow) = &self.workflow {
            return needs_an_answer("workflow", workflow);
        }
        match (&self.group, self.limits.keys().next()) {
            (None, Some(extra)) => {
                // The task's registered group may be one of the extra limits, and would then count twice.
                let rule = "a job with extra limits must name its group to be offered";
                Err(Error::invalid("limits", extra, rule))
            }
            (Some(group), _) => self.check_own_group(group),
            (None, None) => Ok(()),
        }
    }

    /// `Invalid` if an extra limit names the job's own group.
    pub(crate) fn check_own_group(&self, own: &Name) -> Result<()> {
        let is_own = |extra: &&GroupRef| matches!(extra, GroupRef::Group(name) | GroupRef::Key(name, _) if name == own);
        match self.limits.keys().find(is_own) {
            Some(extra) => {
                Err(Error::invalid("limits", extra, "is the job's own group; use cost and key for that"))
            }
            None => Ok(()),
        }
    }

    fn check_extra_limits(&self) -> Result<()> {
        if self.limits.len() > caps::EXTRA_LIMITS {
            return Err(Error::invalid(
                "limits",
                self.limits.len(),
                format_args!("a job may have at most {} extra limits", caps::EXTRA_LIMITS),
            ));
        }
        for (group, &slots) in &self.limits {
            if !matches!(group, GroupRef::Group(_) | GroupRef::Key(..)) {
                return Err(Error::invalid("limits", group, "an extra limit must be NAME or NAME/KEY"));
            }
            within(format_args!("limits[{group}]"), slots.into(), 1, caps::LIMIT.into())?;
        }
        Ok(())
    }
}

pub(crate) fn within(field: impl fmt::Display, value: u64, least: u64, most: u64) -> Result<()> {
    if (least..=most).contains(&value) {
        return Ok(());
    }
    Err(Error::invalid(field, value, format_args!("must be {least} to {most}")))
}

/// What became of one job of a submit.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", tag = "outcome", content = "job")]
pub enum Submitted {
    /// It is stored, and will reach exactly one terminal state.
    Accepted(JobId),
    /// The same id or idempotency key was submitted before. This is its job.
    Existing(JobId),
    /// Its group had no room, and it asked for `skip`. Nothing was stored.
    Skipped,
}

/// The state of a job.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum JobState {
    /// In line, or waiting for its date or for an earlier step of its workflow.
    Pending,
    /// A worker has claimed it ahead of time. It holds no slot and has not started.
    Claimed,
    /// A worker owns it, and it holds its slots.
    Running,
    /// It is done.
    Succeeded,
    /// Its last attempt failed, or its handler gave up.
    Failed,
    /// It was cancelled.
    Cancelled,
    /// `good_until` passed while it waited.
    Expired,
}

impl JobState {
    /// Whether a job in this state never changes again by itself.
    pub fn is_terminal(self) -> bool {
        !matches!(self, Self::Pending | Self::Claimed | Self::Running)
    }
}

/// How an attempt ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum AttemptOutcome {
    /// The handler succeeded.
    Succeeded,
    /// The handler asked for another attempt.
    Retried,
    /// The handler gave up.
    Failed,
    /// The handler asked to run later. No attempt was used.
    Snoozed,
    /// The worker gave the job back. No attempt was used.
    Released,
    /// The handler stopped because the job was cancelled.
    Cancelled,
    /// The session's lease ended.
    LeaseEnded,
    /// The job's timeout passed, and its worker did not settle in time.
    TimedOut,
    /// An operator took the slot away.
    ReleasedByOperator,
}

impl AttemptOutcome {
    /// Whether the worker settled it. Otherwise the store or an operator ended it.
    pub fn is_settled(self) -> bool {
        !matches!(self, Self::LeaseEnded | Self::TimedOut | Self::ReleasedByOperator)
    }

    /// Whether it counts against `max_attempts`.
    pub fn uses_attempt(self) -> bool {
        !matches!(self, Self::Snoozed | Self::Released)
    }
}

/// One attempt of a job, as it is remembered.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(not(feature = "testkit"), non_exhaustive)]
pub struct Attempt {
    /// 1 for the first. A snoozed or released attempt does not count, so the next one has the same number.
    pub number: u32,
    /// The token that owned the job during this attempt.
    pub token: FenceToken,
    /// The worker's name.
    pub worker: Name,
    /// The worker's session.
    pub session: SessionId,
    /// When it was claimed.
    pub started_at: Time,
    /// When it ended.
    pub ended_at: Time,
    /// How it ended.
    pub outcome: AttemptOutcome,
    /// What the handler, or the rule that ended it, said.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<ErrorText>,
    /// The state in which it left the job.
    pub then: JobState,
}

impl Attempt {
    /// How long it took.
    pub fn duration_ms(&self) -> u64 {
        self.ended_at.ms_since(self.started_at)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn json_is_read_up_to_its_depth_and_its_largest_number() {
        let nested = |deep: usize| format!("{}{}", "[".repeat(deep), "]".repeat(deep));
        assert!(Json::parse("payload", &nested(caps::JSON_DEPTH)).is_ok());
        let error = Json::parse("payload", &nested(caps::JSON_DEPTH + 1)).expect_err("too deep").to_string();
        assert!(error.ends_with("must be nested at most 127 deep"), "{error}");
        for good in ["1.7e308", "-1.7e308", "1e-400", "0e999", "12345678901234567890123", "\"\\u0000\""] {
            assert!(Json::parse("payload", good).is_ok(), "{good}");
        }
        let stored: Json = serde_json::from_str("\"{\"").expect("a text is read as it is stored");
        assert!(
            stored
                .check("payload")
                .is_err_and(|error| error.message().starts_with("payload: \"{\": must be JSON"))
        );
        for bad in ["1e400", "1.8e308", "\"\\ud800\"", "{\"a\":1", "[1,]", "NaN", ""] {
            assert!(Json::parse("payload", bad).is_err(), "{bad}");
        }
    }
}
