//! The clients of the bucket, by their access key: which dates each gets, and what it may do.

use super::ACCESS_KEY;
use super::request::Kind;
use crate::random::Random;
use std::collections::HashMap;
use std::ops::Range;

/// Wrong dates of answers. The default is none.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct DateLies {
    /// Which answers to the client may be wrong, counted from 0 when this is set.
    pub answers: Range<u64>,
    /// How many of them are, in percent.
    pub percent: u32,
    /// By how much, in milliseconds.
    pub wrong_ms: i64,
    /// Whether the dice also give the direction.
    pub either_way: bool,
}

impl DateLies {
    /// Every answer is wrong by so much.
    pub fn always(wrong_ms: i64) -> Self {
        Self { answers: 0..u64::MAX, percent: 100, wrong_ms, either_way: false }
    }

    /// One answer is wrong by so much, counted from 0.
    pub fn once(answer: u64, wrong_ms: i64) -> Self {
        Self { answers: answer..answer + 1, ..Self::always(wrong_ms) }
    }

    /// So many answers in a hundred are wrong by so much, in either direction.
    pub fn sometimes(percent: u32, wrong_ms: i64) -> Self {
        Self { percent, either_way: true, ..Self::always(wrong_ms) }
    }

    /// By how much the date of this answer is wrong.
    pub fn of(&self, answer: u64, dice: &mut Random) -> i64 {
        if !self.answers.contains(&answer) || !dice.percent(self.percent.into()) {
            return 0;
        }
        if self.either_way && dice.percent(50) { -self.wrong_ms } else { self.wrong_ms }
    }
}

/// The server's settings for its clients.
pub(super) struct Clients {
    by_key: HashMap<String, Client>,
    dice: Random,
}

#[derive(Default)]
struct Client {
    lies: DateLies,
    answers: u64,
    may_only_read: bool,
}

impl Clients {
    pub fn new(dice: Random) -> Self {
        Self { by_key: HashMap::new(), dice }
    }

    pub fn set_lies(&mut self, key: &str, lies: DateLies) {
        let client = self.by_key.entry(key.to_owned()).or_default();
        (client.lies, client.answers) = (lies, 0);
    }

    pub fn set_may_only_read(&mut self, key: &str, may_only_read: bool) {
        self.by_key.entry(key.to_owned()).or_default().may_only_read = may_only_read;
    }

    /// Whether a request of a kind is refused to a client.
    pub fn refuses(&self, key: &str, kind: Kind) -> bool {
        let writes = matches!(kind, Kind::Put | Kind::Delete);
        writes && self.by_key.get(key).is_some_and(|client| client.may_only_read)
    }

    /// By how much the date of the next answer to a client is wrong, in milliseconds.
    pub fn wrong_ms(&mut self, key: &str) -> i64 {
        let Some(client) = self.by_key.get_mut(key) else { return 0 };
        client.answers += 1;
        client.lies.of(client.answers - 1, &mut self.dice)
    }
}

/// The key that a request is signed with: `Authorization: AWS4-HMAC-SHA256 Credential=KEY/…`.
pub(super) fn key_of(authorization: Option<&str>) -> Option<String> {
    let (_, credential) = authorization?.split_once("Credential=")?;
    credential.split_once('/').map(|(key, _)| key.to_owned())
}

/// Whether a key is one of the tests': [`ACCESS_KEY`], or one that begins with it and a dash.
pub(super) fn is_known(key: &str) -> bool {
    key.strip_prefix(ACCESS_KEY).is_some_and(|rest| rest.is_empty() || rest.starts_with('-'))
}
