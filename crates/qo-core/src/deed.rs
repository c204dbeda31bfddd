//! The audit log: what operators did. No rule depends on it.

use crate::{Time, caps};
use serde::{Deserialize, Serialize};
use std::{fmt, sync::Arc};

/// One thing that an operator did.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Deed {
    /// Who did it: `ada@laptop`, or the name of a token.
    pub by: AuditText,
    /// What was done, such as `set limit`.
    pub what: AuditText,
    /// What it was done to, such as `resize/ada`.
    pub on: AuditText,
    /// The value before it, where there is one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub before: Option<AuditText>,
    /// The value after it, where there is one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub after: Option<AuditText>,
}

impl Deed {
    /// A deed without values.
    pub fn new(by: impl Into<AuditText>, what: impl Into<AuditText>, on: impl Into<AuditText>) -> Self {
        Self { by: by.into(), what: what.into(), on: on.into(), before: None, after: None }
    }
}

/// An entry of the audit log.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(not(feature = "testkit"), non_exhaustive)]
pub struct AuditEntry {
    /// Its number: one more than that of the entry before it.
    pub number: u64,
    /// Store time at which it was recorded.
    pub at: Time,
    /// What was done.
    #[serde(flatten)]
    pub deed: Deed,
}

/// A text in the audit log, at most [`caps::AUDIT_BYTES`] long. A longer one is cut. A control character is replaced,
/// because the text is shown on terminals.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(from = "String", into = "String")]
pub struct AuditText(Arc<str>);

impl AuditText {
    /// The text itself.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl From<&str> for AuditText {
    fn from(text: &str) -> Self {
        let is_plain = text.len() <= caps::AUDIT_BYTES && !text.contains(char::is_control);
        if is_plain {
            return Self(text.into());
        }
        let text = text.replace(char::is_control, "\u{fffd}");
        Self(text[..text.floor_char_boundary(caps::AUDIT_BYTES)].into())
    }
}

impl From<String> for AuditText {
    fn from(text: String) -> Self {
        text.as_str().into()
    }
}

impl From<AuditText> for String {
    fn from(text: AuditText) -> Self {
        text.0.as_ref().into()
    }
}

impl fmt::Display for AuditText {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_long_or_wild_text_is_cut_and_made_plain() {
        assert_eq!(AuditText::from("a\u{1b}[2J\nb\0").as_str(), "a\u{fffd}[2J\u{fffd}b\u{fffd}");
        let long = AuditText::from("ü".repeat(caps::AUDIT_BYTES));
        assert_eq!(long.as_str().len(), caps::AUDIT_BYTES);
        let wild = AuditText::from("\n".repeat(caps::AUDIT_BYTES));
        assert!(wild.as_str().len() <= caps::AUDIT_BYTES && wild.as_str().ends_with('\u{fffd}'));
    }
}
