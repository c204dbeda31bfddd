//! Builders for what a case sends: jobs, tasks, outcomes and the names in them.

use crate::START;
use qo_core::{GroupRef, JobId, Json, Key, Name, NewJob, OnFailure, OnLimit, Outcome, RetryPolicy, Schedule};
use qo_core::{TaskOptions, Time, Traceparent};

/// A builder of a job. The world gives it an id unless the case does.
#[derive(Debug, Clone)]
pub struct JobSpec {
    pub(super) id: Option<JobId>,
    pub(super) new: NewJob,
}

/// A job of `task` with every option at its default.
pub fn job(task: &str) -> JobSpec {
    JobSpec { id: None, new: NewJob::new(JobId(uuid::Uuid::nil()), name(task)) }
}

macro_rules! options {
    ($($(#[$doc:meta])* $method:ident($($arg:ident: $type:ty),*) |$new:ident| $set:expr;)*) => {
        impl JobSpec {$(
            $(#[$doc])*
            #[must_use]
            pub fn $method(mut self, $($arg: $type),*) -> Self {
                let $new = &mut self.new;
                $set;
                self
            }
        )*}
    };
}

options! {
    /// What the handler gets.
    payload(json: &str) |new| new.payload = Json::parse("payload", json).expect("a case sends JSON");
    /// What the handler gets, JSON or not.
    raw_payload(text: &str) |new| new.payload = Json::as_stored(text);
    /// Its queue.
    queue(queue: &str) |new| new.queue = name(queue);
    /// Lower runs first.
    priority(priority: i32) |new| new.priority = priority;
    /// Not before this time.
    run_at(time: Time) |new| new.run_at = Some(time);
    /// It expires unless it starts before this time.
    good_until(time: Time) |new| new.good_until = Some(time);
    /// Attempts until it fails for good.
    attempts(most: u32) |new| new.max_attempts = most;
    /// Its own backoff.
    backoff(retry: RetryPolicy) |new| new.retry = Some(retry);
    /// How long one attempt may run.
    timeout(ms: u64) |new| new.timeout_ms = Some(ms);
    /// The group it shares slots in.
    group(group: &str) |new| new.group = Some(name(group));
    /// Divides the group.
    key(text: &str) |new| new.key = Some(key(text));
    /// Slots it takes in its group and key.
    cost(cost: u32) |new| new.cost = cost;
    /// The limit that the submit brings.
    limit(limit: u32) |new| new.limit = Some(limit);
    /// It clears the limit that earlier submits brought.
    clears_limit() |new| new.clear_limit = true;
    /// The same key again is the same job.
    once(text: &str) |new| new.idempotency_key = Some(key(text));
    /// `LimitReached` if its group is full.
    or_reject() |new| new.on_limit = OnLimit::Reject;
    /// Skipped if its group is full.
    or_skip() |new| new.on_limit = OnLimit::Skip;
    /// The workflow that it is the next step of.
    workflow(workflow: &str) |new| new.workflow = Some(name(workflow));
    /// The trace that it belongs to.
    trace(text: &str) |new| new.traceparent = Some(traceparent(text));
    /// What its workflow does when a step does not succeed.
    on_failure(on_failure: OnFailure) |new| new.on_failure = Some(on_failure);
}

impl JobSpec {
    /// Extra limits: slots it takes in further groups.
    pub fn limits<G: AsRef<str>>(mut self, limits: impl IntoIterator<Item = (G, u32)>) -> Self {
        self.new.limits.extend(limits.into_iter().map(|(group, slots)| (group_ref(group.as_ref()), slots)));
        self
    }

    /// With this id instead of the world's next one.
    #[must_use]
    pub fn id(mut self, id: JobId) -> Self {
        self.id = Some(id);
        self
    }
}

/// A step of a workflow, of the task `step`.
pub(super) fn step(workflow: &str) -> JobSpec {
    job("step").workflow(workflow)
}

/// A schedule of a task, with every option at its default.
pub(super) fn cron(expression: &str, task: &str) -> Schedule {
    Schedule::new(expression, name(task))
}

/// That many milliseconds after the start of the world.
pub(super) fn at(ms: u64) -> Time {
    START.plus_ms(ms)
}

pub(super) fn name(text: &str) -> Name {
    Name::parse("name", text).expect("a case uses valid names")
}

pub(super) fn key(text: &str) -> Key {
    Key::parse("key", text).expect("a case uses valid keys")
}

pub(super) fn traceparent(text: &str) -> Traceparent {
    Traceparent::parse("traceparent", text).expect("a case uses valid traces")
}

pub(super) fn group_ref(text: &str) -> GroupRef {
    text.parse().expect("a case uses valid groups")
}

/// A task with every option at its default.
pub(super) fn task(text: &str) -> TaskOptions {
    TaskOptions::new(name(text))
}

pub(super) fn success() -> Outcome {
    Outcome::Succeed { output: Json::null() }
}

pub(super) fn retry(delay_ms: u64) -> Outcome {
    Outcome::Retry { error: "try again".into(), delay_ms }
}

pub(super) fn failure() -> Outcome {
    Outcome::Fail { error: "no use".into() }
}

pub(super) fn snooze(delay_ms: u64) -> Outcome {
    Outcome::Snooze { delay_ms }
}
