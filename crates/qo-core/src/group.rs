//! Groups: the names under which jobs share slots, and how a group is spelled.

use crate::{Error, Key, Name, Result};
use serde::{Deserialize, Serialize};
use std::{cmp::Ordering, fmt, str::FromStr};

/// A group, or (`EveryKey`) all groups of one name that have a key.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub enum GroupRef {
    /// `cluster`: all jobs of the namespace; each takes one slot.
    Cluster,
    /// `queue:NAME`: the queue's jobs; each takes one slot.
    Queue(Name),
    /// `GROUP`: the jobs of that group; each takes its cost.
    Group(Name),
    /// `GROUP/KEY`: the jobs of that group with that key; each takes its cost.
    Key(Name, Key),
    /// `GROUP/*`: not a group but a limit for every `GROUP/KEY` that has none of its own.
    EveryKey(Name),
}

impl GroupRef {
    /// Parses a group reference. `field` is its name in the error.
    pub fn parse(field: impl fmt::Display, text: &str) -> Result<Self> {
        if text == "cluster" {
            return Ok(Self::Cluster);
        }
        if let Some(queue) = text.strip_prefix("queue:") {
            return Ok(Self::Queue(Name::parse(field, queue)?));
        }
        match text.split_once('/') {
            None => Ok(Self::Group(Name::parse(field, text)?)),
            Some((group, "*")) => Ok(Self::EveryKey(Name::parse(field, group)?)),
            Some((group, key)) => Ok(Self::Key(Name::parse(&field, group)?, Key::parse(&field, key)?)),
        }
    }

    /// `GROUP/KEY`, or `GROUP` without a key.
    pub fn narrowest(group: &Name, key: Option<&Key>) -> Self {
        match key {
            Some(key) => Self::Key(group.clone(), key.clone()),
            None => Self::Group(group.clone()),
        }
    }

    fn rank(&self) -> (u8, &str, u8, &str) {
        match self {
            Self::Cluster => (0, "", 0, ""),
            Self::Queue(queue) => (1, queue, 0, ""),
            Self::Group(group) => (2, group, 0, ""),
            Self::EveryKey(group) => (2, group, 1, ""),
            Self::Key(group, key) => (2, group, 2, key),
        }
    }
}

/// By name, then key: `cluster`, the queues, then each group before its keys.
impl Ord for GroupRef {
    fn cmp(&self, other: &Self) -> Ordering {
        self.rank().cmp(&other.rank())
    }
}

impl PartialOrd for GroupRef {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl fmt::Display for GroupRef {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Cluster => f.write_str("cluster"),
            Self::Queue(queue) => write!(f, "queue:{queue}"),
            Self::Group(group) => write!(f, "{group}"),
            Self::Key(group, key) => write!(f, "{group}/{key}"),
            Self::EveryKey(group) => write!(f, "{group}/*"),
        }
    }
}

impl FromStr for GroupRef {
    type Err = Error;
    fn from_str(text: &str) -> Result<Self> {
        Self::parse("group", text)
    }
}

impl TryFrom<String> for GroupRef {
    type Error = Error;
    fn try_from(text: String) -> Result<Self> {
        text.parse()
    }
}

impl From<GroupRef> for String {
    fn from(group: GroupRef) -> Self {
        group.to_string()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_form_reads_back_as_it_was_written() {
        for text in ["cluster", "queue:stripe", "api", "api/user:1/x", "api/*"] {
            assert_eq!(text.parse::<GroupRef>().expect(text).to_string(), text);
        }
        assert_eq!(
            "api/a/b".parse::<GroupRef>().map(|g| matches!(g, GroupRef::Key(_, k) if &*k == "a/b")),
            Ok(true)
        );
        for bad in ["", "/", "api/", "/k", "queue:", "queue:cluster", "cluster/x", "a b", "a/\u{1}"] {
            assert!(bad.parse::<GroupRef>().is_err(), "{bad:?}");
        }
    }
}
