//! The shapes of answers: the same documents as those of the command line (docs/reference/json.md).
//!
//! Moments are RFC 3339 in UTC. Numbers of 64 bits that name something (fence tokens, cursors, change counters) are
//! strings, because many programs read JSON numbers as floating-point. The OpenAPI document is made from these types.

mod explanation;
mod group;
mod job;
mod operator;
mod outcome;
mod place;
mod workflow;

pub(crate) use explanation::Explanation;
pub(crate) use group::{GroupPage, Limit, Release, WholeGroup};
pub(crate) use job::{Job, JobPage, Log, State, WholeJob};
pub(crate) use operator::{Audit, ConfigurationPage, CreatedToken, PushList, RevokedToken, TokenPage};
pub(crate) use outcome::{Batch, Change, Changes, Line, NewJob, Submitted};
pub(crate) use place::{
    Enabled, Paused, QueuePage, SchedulePage, SlotLease, Status, StatusJobs, StatusWorkers, WorkerPage,
};
pub(crate) use workflow::{WholeWorkflow, Workflow, WorkflowPage};

use qo_core::{FenceToken, Json, Time};
use serde::{Serialize, Serializer};
use serde_json::value::{RawValue, to_raw_value};
use utoipa::ToSchema;

/// A moment of store time: RFC 3339, in UTC.
#[derive(Debug, Clone, Copy, ToSchema)]
#[schema(value_type = String, format = DateTime, example = "2026-11-18T02:31:05.123Z")]
pub(crate) struct Moment(pub Time);

impl Serialize for Moment {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(&self.0)
    }
}

impl From<Time> for Moment {
    fn from(time: Time) -> Self {
        Self(time)
    }
}

/// A number of 64 bits, as a string.
#[derive(Debug, Clone, Copy, ToSchema)]
#[schema(value_type = String, pattern = "^[0-9]{1,20}$", example = "1042")]
pub(crate) struct Wide(pub u64);

impl Serialize for Wide {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(&self.0)
    }
}

impl From<FenceToken> for Wide {
    fn from(token: FenceToken) -> Self {
        Self(token.0)
    }
}

/// Any JSON value, as it was submitted. Its numbers stay as they were written.
#[derive(Debug, Clone, Serialize, ToSchema)]
#[serde(transparent)]
#[schema(value_type = serde_json::Value)]
pub(crate) struct Any(Box<RawValue>);

impl From<&Json> for Any {
    fn from(json: &Json) -> Self {
        let text = || to_raw_value(json.as_str()).unwrap_or_else(|_| RawValue::NULL.to_owned());
        // A stored text that is no JSON, or has a number that programs cannot read, is shown as a string.
        Self(match json.check("json") {
            Ok(()) => RawValue::from_string(json.as_str().trim().to_owned()).unwrap_or_else(|_| text()),
            Err(_) => text(),
        })
    }
}
