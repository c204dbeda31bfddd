//! The one public error type. Its kind says what the caller must do.

use serde::{Deserialize, Serialize};
use std::fmt;

/// What the caller must do about an [`Error`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ErrorKind {
    /// Fix the call: a value breaks a rule. Nothing happened.
    Invalid,
    /// No such job, session, group or slot.
    NotFound,
    /// The call contradicts what is stored: read again, then decide.
    Conflict,
    /// A limit refused the submit. Nothing was stored.
    LimitReached,
    /// The token or session no longer owns anything: stop, do not retry.
    Fenced,
    /// The store cannot be reached and nothing happened: retry later.
    Unavailable,
    /// It may or may not have happened: retry with the same id or number.
    Unknown,
    /// Stored bytes are bad.
    Data,
    /// A bug in qo.
    Internal,
}

impl fmt::Display for ErrorKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Invalid => "invalid",
            Self::NotFound => "not found",
            Self::Conflict => "conflict",
            Self::LimitReached => "limit reached",
            Self::Fenced => "fenced",
            Self::Unavailable => "unavailable",
            Self::Unknown => "unknown outcome",
            Self::Data => "bad data",
            Self::Internal => "internal",
        })
    }
}

/// An error of qo: a [kind](ErrorKind) for code and a message for people.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Error {
    kind: ErrorKind,
    message: String,
}

/// The result of anything in qo that can fail.
pub type Result<T, E = Error> = std::result::Result<T, E>;

impl Error {
    /// An error of any kind. The message says what is wrong in the caller's terms.
    pub fn new(kind: ErrorKind, message: impl Into<String>) -> Self {
        Self { kind, message: message.into() }
    }

    /// `Invalid`, in its one form: field, value, rule.
    pub fn invalid(field: impl fmt::Display, value: impl fmt::Display, rule: impl fmt::Display) -> Self {
        Self::new(ErrorKind::Invalid, format!("{field}: {}: {rule}", Shown(&value.to_string())))
    }

    /// `Ok` without mistakes, else one error that lists them all, so that a user can fix a file in one go.
    pub fn all(mistakes: Vec<Self>) -> Result<()> {
        let mut mistakes = mistakes.into_iter();
        let Some(first) = mistakes.next() else { return Ok(()) };
        let message = mistakes.fold(first.message, |all, next| format!("{all}; {}", next.message));
        Err(Self { kind: first.kind, message })
    }

    /// What the caller must do.
    pub fn kind(&self) -> ErrorKind {
        self.kind
    }

    /// The message, without the kind.
    pub fn message(&self) -> &str {
        &self.message
    }

    /// The same error, with the place in front: `jobs[3]`.
    #[must_use]
    pub fn at(self, place: impl fmt::Display) -> Self {
        Self { kind: self.kind, message: format!("{place}.{}", self.message) }
    }

    pub(crate) fn not_found(message: impl Into<String>) -> Self {
        Self::new(ErrorKind::NotFound, message)
    }

    pub(crate) fn conflict(message: impl Into<String>) -> Self {
        Self::new(ErrorKind::Conflict, message)
    }

    pub(crate) fn fenced(message: impl Into<String>) -> Self {
        Self::new(ErrorKind::Fenced, message)
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.kind, self.message)
    }
}

impl std::error::Error for Error {}

/// A caller's value inside a message: quoted, escaped, and cut so that a huge value cannot flood a log.
struct Shown<'a>(&'a str);

impl fmt::Display for Shown<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        const MOST: usize = 80;
        let mut cut = self.0.len().min(MOST);
        while !self.0.is_char_boundary(cut) {
            cut -= 1;
        }
        write!(f, "{:?}", &self.0[..cut])?;
        if cut < self.0.len() { write!(f, "… ({} bytes)", self.0.len()) } else { Ok(()) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_invalid_names_field_value_and_rule() {
        let error = Error::invalid("cost", 0, "must be 1 to 1000000").at("jobs[3]");
        assert_eq!(error.to_string(), "invalid: jobs[3].cost: \"0\": must be 1 to 1000000");
    }

    #[test]
    fn a_huge_or_binary_value_is_shown_short_and_escaped() {
        let long = format!("a\u{7}{}", "ü".repeat(500));
        let message = Error::invalid("task", long, "rule").to_string();
        assert!(message.contains("\\u{7}") && message.contains("(1002 bytes)"), "{message}");
        assert!(message.len() < 200);
    }
}
