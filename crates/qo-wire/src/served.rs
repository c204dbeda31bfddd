//! What a server needs beside the messages: conversions that take more than one message, or none of their own.

use crate::{convert, pb};
use qo_core::{GroupDetail, GroupRef, JobId, LeaseId, Name, Over, Result, SessionId, TokenId};

/// A group as a stream: its status, then each holder.
pub fn group_parts(detail: GroupDetail) -> impl Iterator<Item = pb::GroupPart> {
    convert::parts_of(detail)
}

/// What is over, one message for each.
pub fn over_items(over: Over) -> impl Iterator<Item = pb::OverItem> {
    convert::items_of(over)
}

/// A job's id, named `field` in the error.
pub fn job_id(field: &str, text: &str) -> Result<JobId> {
    convert::job_id(field, text)
}

/// A session's id, named `field` in the error.
pub fn session_id(field: &str, text: &str) -> Result<SessionId> {
    convert::session_id(field, text)
}

/// The id of a lease on slots, named `field` in the error.
pub fn lease_id(field: &str, text: &str) -> Result<LeaseId> {
    convert::lease_id(field, text)
}

/// A token's id, named `field` in the error.
pub fn token_id(field: &str, text: &str) -> Result<TokenId> {
    convert::token_id(field, text)
}

/// A name, called `field` in the error.
pub fn name(field: &str, text: &str) -> Result<Name> {
    convert::name(field, text)
}

/// A group, called `field` in the error.
pub fn group(field: &str, text: &str) -> Result<GroupRef> {
    convert::group(field, text)
}

/// What to do to jobs that match a filter.
pub fn change(number: i32) -> Result<qo_core::Change> {
    convert::value::<pb::Change, _>("change", number)
}
