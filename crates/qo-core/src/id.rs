//! Names, keys, ids and tokens, and the spellings that are refused.

use crate::{Error, Result, caps};
use serde::{Deserialize, Serialize};
use std::{borrow::Borrow, fmt, ops::Deref, sync::Arc};
use uuid::Uuid;

/// A job's id: a UUIDv7 made by the client, so that a client can repeat its submit after `Unknown` without an
/// idempotency key.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(transparent)]
pub struct JobId(pub Uuid);

/// A session's id: random, made by the worker when it opens the session.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(transparent)]
pub struct SessionId(pub Uuid);

/// The id of a program's lease on slots: random, made by the program when it asks for them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(transparent)]
pub struct LeaseId(pub Uuid);

/// A number that grows with every claim in the namespace. The newest token of a job owns it.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(transparent)]
pub struct FenceToken(pub u64);

/// The name of a task, queue, group, workflow, schedule or worker.
///
/// It matches `[A-Za-z0-9_][A-Za-z0-9_.-]{0,127}` and is not `cluster`.
#[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Name(Arc<str>);

/// A key, which divides a group: 1 to 256 bytes of UTF-8 without control characters, and not `*`.
#[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Key(Arc<str>);

impl Name {
    /// Parses a name. `field` is its name in the error.
    pub fn parse(field: impl fmt::Display, text: &str) -> Result<Self> {
        let mut bytes = text.bytes();
        let first = bytes.next().is_some_and(|b| b.is_ascii_alphanumeric() || b == b'_');
        let rest = bytes.all(|b| b.is_ascii_alphanumeric() || matches!(b, b'_' | b'.' | b'-'));
        if !first || !rest || text.len() > caps::NAME_BYTES {
            let rule = "must match [A-Za-z0-9_][A-Za-z0-9_.-]{0,127}";
            return Err(Error::invalid(field, text, rule));
        }
        if text == "cluster" {
            return Err(Error::invalid(
                field,
                text,
                "\"cluster\" is the group of all jobs; choose another name",
            ));
        }
        Ok(Self(text.into()))
    }
}

impl Key {
    /// Parses a key. `field` is its name in the error.
    pub fn parse(field: impl fmt::Display, text: &str) -> Result<Self> {
        if text.is_empty() || text.len() > caps::KEY_BYTES {
            return Err(Error::invalid(field, text, "must be 1 to 256 bytes"));
        }
        if text.chars().any(char::is_control) {
            return Err(Error::invalid(field, text, "must not contain control characters"));
        }
        if text == "*" {
            return Err(Error::invalid(field, text, "\"*\" stands for every key and cannot be one"));
        }
        Ok(Self(text.into()))
    }
}

macro_rules! text {
    ($type:ty, $field:literal) => {
        impl AsRef<str> for $type {
            fn as_ref(&self) -> &str {
                self
            }
        }

        impl Deref for $type {
            type Target = str;
            fn deref(&self) -> &str {
                &self.0
            }
        }
        impl Borrow<str> for $type {
            fn borrow(&self) -> &str {
                &self.0
            }
        }
        impl fmt::Display for $type {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(&self.0)
            }
        }
        impl fmt::Debug for $type {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                fmt::Debug::fmt(&*self.0, f)
            }
        }
        impl TryFrom<String> for $type {
            type Error = Error;
            fn try_from(text: String) -> Result<Self> {
                Self::parse($field, &text)
            }
        }
        impl From<$type> for String {
            fn from(value: $type) -> String {
                value.0.as_ref().into()
            }
        }
    };
}
text!(Name, "name");
text!(Key, "key");

/// A type that is serialized as its text, and checked when it is read. (`serde(try_from = "String")` would allocate a
/// string each way, and logs are full of names.)
macro_rules! written_as_text {
    ($type:ident, $field:literal) => {
        impl serde::Serialize for $type {
            fn serialize<S: serde::Serializer>(&self, serializer: S) -> std::result::Result<S::Ok, S::Error> {
                serializer.serialize_str(&self.0)
            }
        }
        impl<'de> serde::Deserialize<'de> for $type {
            fn deserialize<D: serde::Deserializer<'de>>(
                deserializer: D,
            ) -> std::result::Result<Self, D::Error> {
                struct Text;
                impl serde::de::Visitor<'_> for Text {
                    type Value = $type;
                    fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                        f.write_str("a string")
                    }
                    fn visit_str<E: serde::de::Error>(self, text: &str) -> std::result::Result<$type, E> {
                        $type::parse($field, text).map_err(E::custom)
                    }
                }
                deserializer.deserialize_str(Text)
            }
        }
    };
}
written_as_text!(Name, "name");
written_as_text!(Key, "key");

macro_rules! shown {
    ($($type:ty),*) => {$(
        impl fmt::Display for $type {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                self.0.fmt(f)
            }
        }
    )*};
}
shown!(JobId, SessionId, LeaseId, FenceToken);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_follow_the_pattern_and_are_not_cluster() {
        for good in ["a", "_", "9", "send_email", "v1.2-x", &"n".repeat(128)] {
            assert!(Name::parse("task", good).is_ok(), "{good}");
        }
        for bad in ["", ".a", "-a", "a b", "a/b", "ä", "a\n", "cluster", "queue:x", &"n".repeat(129)] {
            assert!(Name::parse("task", bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn keys_may_hold_almost_anything_but_star_and_control_characters() {
        for good in ["a/b:c", "ключ", " ", "**", &"k".repeat(256)] {
            assert!(Key::parse("key", good).is_ok(), "{good}");
        }
        for bad in ["", "*", "a\nb", "\u{7f}", &"k".repeat(257)] {
            assert!(Key::parse("key", bad).is_err(), "{bad:?}");
        }
    }
}
