//! What is submitted, and what became of it.

use super::{Any, State, Wide};
use crate::api::problem::Document;
use qo_core::{Error, ErrorKind, JobState};
use serde::Serialize;
use std::collections::BTreeMap;
use utoipa::ToSchema;
use uuid::Uuid;

/// A job to submit: an object with the names of the options of `qo submit`, as a line of its `--file`. Moments need
/// their offset. A field may be null, which leaves it out.
#[derive(Serialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct NewJob {
    /// Its id, made by the client, so that a repeated request is the same job. Defaults to a new one.
    id: Option<Uuid>,
    /// The handler that runs it.
    #[schema(pattern = "^[A-Za-z0-9_][A-Za-z0-9_.-]{0,127}$", example = "resize")]
    task: String,
    /// What its handler gets. Defaults to null.
    #[schema(required = false, value_type = serde_json::Value)]
    payload: Option<Any>,
    /// Divides the group: jobs with the same key share its limit. Defaults to none.
    key: Option<String>,
    /// The group it shares slots in. Defaults to the task's.
    group: Option<String>,
    /// Slots it takes in its group and key. Defaults to 1.
    #[schema(minimum = 1, maximum = 1_000_000)]
    cost: Option<u32>,
    /// A limit for its group (with a key: for that key) where no other source has set one. Defaults to none.
    #[schema(maximum = 1_000_000)]
    limit: Option<u32>,
    /// Clears the limit that earlier submits brought for its group or key. Defaults to false.
    clear_limit: Option<bool>,
    /// Slots it takes in other groups, such as `{"openai": 1}`. Defaults to none.
    limits: Option<BTreeMap<String, u32>>,
    /// The queue it stands in. Defaults to `default`.
    queue: Option<String>,
    /// Lower runs first. Defaults to 0.
    priority: Option<i32>,
    /// It starts only after this much time, such as `10m`. Not together with `at`.
    delay: Option<String>,
    /// It starts only from this moment on: RFC 3339 with an offset, or a length of time from now.
    at: Option<String>,
    /// It expires if it has not started by this moment.
    good_until: Option<String>,
    /// How long one attempt may run, such as `60s`. Defaults to the task's.
    timeout: Option<String>,
    /// Tries until it fails for good. Defaults to 3.
    #[schema(minimum = 1, maximum = 1_000)]
    max_attempts: Option<u32>,
    /// The workflow that it is the next step of. Defaults to none.
    workflow: Option<String>,
    /// What its workflow does when a step does not succeed: `halt` or `continue`. Defaults to `halt`.
    on_failure: Option<String>,
    /// A second submission with the same key is the same job. Defaults to the header `Idempotency-Key`.
    idempotency_key: Option<String>,
    /// What to do when the live jobs of its group leave no room for it: `wait`, `reject` or `skip`. Defaults to `wait`.
    on_limit: Option<String>,
    /// The trace that it belongs to, as in the header `traceparent` of W3C Trace Context.
    traceparent: Option<String>,
}

/// What became of a submit.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct Submitted {
    /// `accepted`, `existing` (submitted before) or `skipped` (its group has no room).
    #[schema(value_type = String)]
    outcome: &'static str,
    /// The job; absent if it was skipped.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub id: Option<Uuid>,
}

impl From<qo_core::Submitted> for Submitted {
    fn from(submitted: qo_core::Submitted) -> Self {
        let (outcome, id) = match submitted {
            qo_core::Submitted::Accepted(id) => ("accepted", Some(id.0)),
            qo_core::Submitted::Existing(id) => ("existing", Some(id.0)),
            qo_core::Submitted::Skipped => ("skipped", None),
        };
        Self { outcome, id }
    }
}

/// What became of each job of a batch, in its order.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct Batch {
    /// Each job.
    pub jobs: Vec<Line>,
}

/// What became of one job of a batch.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct Line {
    /// Its line, or its place in the array: 1 for the first.
    pub line: usize,
    /// `accepted`, `existing`, `skipped` or `refused`.
    #[schema(value_type = String)]
    outcome: &'static str,
    /// The job; absent if it was skipped or refused.
    #[serde(skip_serializing_if = "Option::is_none")]
    id: Option<Uuid>,
    /// Why it was refused.
    #[serde(skip_serializing_if = "Option::is_none")]
    error: Option<Refused>,
}

impl Line {
    /// What became of the job of a line.
    pub fn new(line: usize, outcome: Result<qo_core::Submitted, Error>) -> Self {
        match outcome.map(Submitted::from) {
            Ok(Submitted { outcome, id }) => Self { line, outcome, id, error: None },
            Err(error) => Self { line, outcome: "refused", id: None, error: Some(error.into()) },
        }
    }
}

/// Why one thing of several was refused.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct Refused {
    /// The kind, as in a problem document.
    #[schema(value_type = String)]
    kind: ErrorKind,
    /// For people.
    message: String,
}

impl From<Error> for Refused {
    fn from(error: Error) -> Self {
        Self { kind: error.kind(), message: Document::shown(&error) }
    }
}

/// What a change did.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct Changes {
    /// How many jobs were changed, or asked to stop.
    pub changed: u64,
    /// Each job, if the request named them; null if a filter chose them.
    #[schema(required)]
    pub jobs: Option<Vec<Change>>,
    /// The cursor with which to go on; null if no other job matches.
    #[schema(required)]
    pub next: Option<Wide>,
}

/// What became of one job.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct Change {
    /// The job.
    id: Uuid,
    /// Its state now; `running` after a cancel means that it was asked to stop.
    #[serde(skip_serializing_if = "Option::is_none")]
    state: Option<State>,
    /// Why it was not changed.
    #[serde(skip_serializing_if = "Option::is_none")]
    error: Option<Refused>,
}

impl Change {
    /// What became of a job.
    pub fn new(id: qo_core::JobId, became: Result<JobState, Error>) -> Self {
        match became {
            Ok(state) => Self { id: id.0, state: Some(state.into()), error: None },
            Err(error) => Self { id: id.0, state: None, error: Some(error.into()) },
        }
    }

    /// Whether it was changed.
    pub fn is_done(&self) -> bool {
        self.error.is_none()
    }
}
