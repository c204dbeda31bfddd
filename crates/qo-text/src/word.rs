//! Names, keys, groups, ids and states. The error is the rule alone: the caller names the field and the value.

use crate::nearest;
pub use qo_core::words::state_name;
use qo_core::{Error, GroupRef, IdPrefix, JobId, JobState, Key, Name, Traceparent};
use uuid::Uuid;

/// The states of a job, as they are written.
pub const STATES: [(&str, JobState); 7] = [
    ("pending", JobState::Pending),
    ("claimed", JobState::Claimed),
    ("running", JobState::Running),
    ("succeeded", JobState::Succeeded),
    ("failed", JobState::Failed),
    ("cancelled", JobState::Cancelled),
    ("expired", JobState::Expired),
];

fn rule(error: Error) -> String {
    error.rule().to_owned()
}

/// A name of a task, queue, group, workflow or schedule.
pub fn name(text: &str) -> Result<Name, String> {
    Name::parse("name", text).map_err(rule)
}

/// A key.
pub fn key(text: &str) -> Result<Key, String> {
    Key::parse("key", text).map_err(rule)
}

/// The trace that a job belongs to.
pub fn traceparent(text: &str) -> Result<Traceparent, String> {
    Traceparent::parse("traceparent", text).map_err(rule)
}

/// A group.
pub fn group(text: &str) -> Result<GroupRef, String> {
    GroupRef::parse("group", text).map_err(rule)
}

/// A job's id.
pub fn job(text: &str) -> Result<JobId, String> {
    let id = Uuid::try_parse(text.trim());
    id.map(JobId)
        .map_err(|_| "must be the whole id of a job, as `qo submit` and `qo jobs list` print it".into())
}

/// How ids of jobs begin.
pub fn id_prefix(text: &str) -> Result<IdPrefix, String> {
    IdPrefix::parse("id", text).map_err(rule)
}

/// A state of a job.
pub fn state(text: &str) -> Result<JobState, String> {
    let found = STATES.iter().find(|(name, _)| *name == text);
    found.map(|&(_, state)| state).ok_or_else(|| {
        let near = nearest(text, STATES.iter().map(|(name, _)| *name));
        let near = near.map(|near| format!("; did you mean {near}?")).unwrap_or_default();
        format!("must be one of {}{near}", STATES.map(|(name, _)| name).join(", "))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_error_of_a_word_is_the_rule_alone() {
        assert_eq!(name("a b").expect_err("no name"), "must match [A-Za-z0-9_][A-Za-z0-9_.-]{0,127}");
        assert!(state("runing").expect_err("no state").ends_with("did you mean running?"));
    }
}
