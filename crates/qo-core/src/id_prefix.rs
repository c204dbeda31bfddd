//! The beginning of a job's id, by which people look for a job.

use crate::{Error, JobId, Result};
use serde::{Deserialize, Serialize};
use std::fmt;
use uuid::Uuid;

/// Hexadecimal digits of an id.
const DIGITS: usize = 32;

/// The beginning of a job's id: 1 to 32 hexadecimal digits. Dashes may stand where an id has them.
///
/// The ids that begin with it are one range, so a store can look for them in an index.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct IdPrefix {
    /// The digits, followed by zeros.
    first: u128,
    digits: usize,
}

impl IdPrefix {
    /// Parses a prefix. `field` is its name in the error.
    pub fn parse(field: impl fmt::Display, text: &str) -> Result<Self> {
        let invalid = || Error::invalid(&field, text, "must be the beginning of a job's id, as in 019a8a5e");
        let digits = text.replace('-', "");
        // `from_str_radix` would accept a sign.
        if !(1..=DIGITS).contains(&digits.len()) || !digits.bytes().all(|digit| digit.is_ascii_hexdigit()) {
            return Err(invalid());
        }
        let number = u128::from_str_radix(&digits, 16).map_err(|_| invalid())?;
        let prefix = Self { first: number << (4 * (DIGITS - digits.len())), digits: digits.len() };
        let has_dashes_of_an_id = text.trim_end_matches('-').eq_ignore_ascii_case(&prefix.to_string());
        if text == digits || has_dashes_of_an_id { Ok(prefix) } else { Err(invalid()) }
    }

    /// The first id that may begin with it.
    pub fn first(&self) -> JobId {
        JobId(Uuid::from_u128(self.first))
    }

    /// The last id that may begin with it.
    pub fn last(&self) -> JobId {
        let rest = u128::MAX.checked_shr(4 * self.digits as u32).unwrap_or(0);
        JobId(Uuid::from_u128(self.first | rest))
    }

    /// Whether an id begins with it.
    pub fn matches(&self, job: JobId) -> bool {
        (self.first()..=self.last()).contains(&job)
    }
}

/// With dashes where an id has them.
impl fmt::Display for IdPrefix {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let id = self.first().to_string();
        // A dash stands before the digits 9, 13, 17 and 21.
        let dashes = [8, 12, 16, 20].iter().filter(|before| self.digits > **before).count();
        f.write_str(&id[..self.digits + dashes])
    }
}

impl TryFrom<String> for IdPrefix {
    type Error = Error;
    fn try_from(text: String) -> Result<Self> {
        Self::parse("id_prefix", &text)
    }
}

impl From<IdPrefix> for String {
    fn from(prefix: IdPrefix) -> Self {
        prefix.to_string()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn prefix(text: &str) -> Option<String> {
        IdPrefix::parse("id_prefix", text).ok().map(|prefix| prefix.to_string())
    }

    #[test]
    fn an_id_prefix_reads_back_with_the_dashes_of_an_id() {
        let id = "019a8a5e-7c1b-7a10-9d43-3e2a6f0c9b11";
        for length in 1..=id.len() {
            let text = &id[..length];
            assert_eq!(prefix(text).as_deref(), Some(text.trim_end_matches('-')), "{text}");
        }
        assert_eq!(prefix("019A8A5E7C").as_deref(), Some("019a8a5e-7c"));
    }

    #[test]
    fn what_begins_no_id_is_no_prefix() {
        for bad in ["", "-", "g", "+1", "0x1", "01-9", "019a8a5e--7c", "é", &"0".repeat(33)] {
            assert_eq!(prefix(bad), None, "{bad:?}");
        }
    }

    #[test]
    fn a_prefix_matches_the_ids_that_begin_with_it() {
        let id = JobId("019a8a5e-7c1b-7a10-9d43-3e2a6f0c9b11".parse().expect("an id"));
        for (text, matches) in
            [("0", true), ("019a8a5e-7c1b", true), (&id.to_string(), true), ("019b", false)]
        {
            let prefix = IdPrefix::parse("id_prefix", text).expect("a prefix");
            assert_eq!(prefix.matches(id), matches, "{text}");
        }
    }
}
