//! From the types of qo-core to messages and back, without loss.
//!
//! Requests, and the replies of the calls that workers make all the time, are converted field by field. The views of
//! qo-core may grow, so no other crate can build them: like those that PostgreSQL answers with, they are read through
//! serde (`built`).

mod error;
mod group;
mod job;
mod push;
mod reason;
mod schedule;
mod slot;
mod token;
mod view;
mod work;
mod workflow;

use crate::pb;
use qo_core::{
    Error, ErrorKind, GroupRef, JobId, Json, Key, LeaseId, Name, Result, SessionId, Time, Traceparent,
};
use serde::de::DeserializeOwned;
use std::collections::BTreeMap;
use uuid::Uuid;

pub(crate) use group::{detail_of, parts_of};
pub(crate) use token::token_id;
pub(crate) use view::{items_of, over_of};
pub(crate) use workflow::steering;

/// A message that stands for a value of qo-core.
pub(crate) fn all<T, M>(messages: Vec<M>, list: &str) -> Result<Vec<T>>
where
    T: TryFrom<M, Error = Error>,
{
    let read = |(index, message)| T::try_from(message).map_err(|error| error.at_item(list, index));
    messages.into_iter().enumerate().map(read).collect()
}

/// The messages for values.
pub(crate) fn messages<T, M: From<T>>(values: Vec<T>) -> Vec<M> {
    values.into_iter().map(M::from).collect()
}

/// A part of a message that must be there.
pub(crate) fn needed<T>(field: &str, part: Option<T>) -> Result<T> {
    part.ok_or_else(|| Error::from_parts(ErrorKind::Invalid, field, None, "must be given"))
}

/// A number of an enumeration that this release does not know, or the zero that stands for it.
pub(crate) fn unknown(field: &str, number: i32) -> Error {
    Error::invalid(field, number, "is not a value that this release knows")
}

/// A view, from its parts by name.
pub(crate) fn built<T: DeserializeOwned>(parts: serde_json::Value) -> Result<T> {
    serde_json::from_value(parts).map_err(|error| Error::new(ErrorKind::Invalid, error.to_string()))
}

pub(crate) fn uuid(field: &str, text: &str) -> Result<Uuid> {
    Uuid::parse_str(text).map_err(|_| Error::invalid(field, text, "must be a UUID"))
}

pub(crate) fn job_id(field: &str, text: &str) -> Result<JobId> {
    uuid(field, text).map(JobId)
}

pub(crate) fn session_id(field: &str, text: &str) -> Result<SessionId> {
    uuid(field, text).map(SessionId)
}

pub(crate) fn lease_id(field: &str, text: &str) -> Result<LeaseId> {
    uuid(field, text).map(LeaseId)
}

pub(crate) fn name(field: &str, text: &str) -> Result<Name> {
    Name::parse(field, text)
}

pub(crate) fn name_if(field: &str, text: Option<String>) -> Result<Option<Name>> {
    text.map(|text| Name::parse(field, &text)).transpose()
}

pub(crate) fn key_if(field: &str, text: Option<String>) -> Result<Option<Key>> {
    text.map(|text| Key::parse(field, &text)).transpose()
}

pub(crate) fn traceparent_if(text: Option<String>) -> Result<Option<Traceparent>> {
    text.map(|text| Traceparent::parse("traceparent", &text)).transpose()
}

pub(crate) fn group(field: &str, text: &str) -> Result<GroupRef> {
    GroupRef::parse(field, text)
}

pub(crate) fn text(value: impl AsRef<str>) -> String {
    value.as_ref().to_owned()
}

pub(crate) fn texts<T: AsRef<str>>(values: &[T]) -> Vec<String> {
    values.iter().map(text).collect()
}

pub(crate) fn names(list: &str, texts: &[String]) -> Result<Vec<Name>> {
    let parse = |(index, text): (usize, &String)| Name::parse(format_args!("{list}[{index}]"), text);
    texts.iter().enumerate().map(parse).collect()
}

pub(crate) fn moment(ms: Option<i64>) -> Option<Time> {
    ms.map(Time::from_millis)
}

pub(crate) fn millis(time: Option<Time>) -> Option<i64> {
    time.map(Time::as_millis)
}

/// A JSON text; `null` is left out.
pub(crate) fn json_if(json: &Json) -> Option<String> {
    (!json.is_null()).then(|| json.as_str().to_owned())
}

pub(crate) fn json(text: Option<&str>) -> Json {
    text.map_or_else(Json::null, Json::as_stored)
}

/// Slots by group.
pub(crate) fn slots(limits: &BTreeMap<GroupRef, u32>) -> BTreeMap<String, u32> {
    limits.iter().map(|(group, &slots)| (group.to_string(), slots)).collect()
}

pub(crate) fn slots_by_group(field: &str, limits: BTreeMap<String, u32>) -> Result<BTreeMap<GroupRef, u32>> {
    limits.into_iter().map(|(text, slots)| Ok((group(field, &text)?, slots))).collect()
}

/// Both ways between an enumeration of qo-core and one of the protocol, with every value named once.
macro_rules! enumeration {
    ($core:ty, $wire:ty, $field:literal, { $($value:ident),* $(,)? }) => {
        impl From<$core> for $wire {
            fn from(value: $core) -> Self {
                match value {
                    $(<$core>::$value => Self::$value,)*
                }
            }
        }

        impl TryFrom<$wire> for $core {
            type Error = qo_core::Error;

            fn try_from(value: $wire) -> qo_core::Result<Self> {
                match value {
                    $(<$wire>::$value => Ok(Self::$value),)*
                    <$wire>::Unspecified => Err($crate::convert::unknown($field, 0)),
                }
            }
        }
    };
}
pub(crate) use enumeration;

/// A value of an enumeration, from its number in a message.
pub(crate) fn value<W, C>(field: &str, number: i32) -> Result<C>
where
    W: TryFrom<i32>,
    C: TryFrom<W, Error = Error>,
{
    let known = W::try_from(number).map_err(|_| unknown(field, number))?;
    C::try_from(known).map_err(|_| unknown(field, number))
}

/// The number of a value of an enumeration.
pub(crate) fn number<W: From<C> + Into<i32>, C>(value: C) -> i32 {
    W::from(value).into()
}

/// The state of a job, from its number.
pub(crate) fn state(field: &str, number: i32) -> Result<qo_core::JobState> {
    value::<pb::JobState, _>(field, number)
}
