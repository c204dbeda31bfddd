//! The trace that a job belongs to, by the format of W3C Trace Context.

use crate::{Error, Result};
use serde::{Deserialize, Serialize};
use std::fmt;

/// How long its text is: version, trace, span and flags with the dashes between them.
const LENGTH: usize = 55;

/// Which trace a job belongs to, and the span that submitted it: `00-TRACE-SPAN-FLAGS`, in 2, 32, 16 and 2 hexadecimal
/// digits.
///
/// No rule depends on it. A store keeps it with the job and hands it to the worker with every attempt, so that the spans of
/// the attempts can be children of the span that submitted the job.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Traceparent {
    trace: u128,
    span: u64,
    flags: u8,
}

impl Traceparent {
    /// Parses the text of a `traceparent` header of version `00`. `field` is its name in the error.
    pub fn parse(field: impl fmt::Display, text: &str) -> Result<Self> {
        Self::read(text).ok_or_else(|| {
            let rule = "must be 00-TRACE-SPAN-FLAGS, with 32, 16 and 2 hexadecimal digits in lower case, and neither \
                        TRACE nor SPAN all zeros";
            Error::invalid(field, text, rule)
        })
    }

    fn read(text: &str) -> Option<Self> {
        let is_digit = |byte: u8| matches!(byte, b'0'..=b'9' | b'a'..=b'f' | b'-');
        if text.len() != LENGTH || !text.bytes().all(is_digit) {
            return None;
        }
        let mut parts = text.split('-');
        let ("00", trace, span, flags, None) =
            (parts.next()?, parts.next()?, parts.next()?, parts.next()?, parts.next())
        else {
            return None;
        };
        if (trace.len(), span.len()) != (32, 16) {
            return None;
        }
        let trace = u128::from_str_radix(trace, 16).ok().filter(|trace| *trace != 0)?;
        let span = u64::from_str_radix(span, 16).ok().filter(|span| *span != 0)?;
        Some(Self { trace, span, flags: u8::from_str_radix(flags, 16).ok()? })
    }

    /// The trace's id.
    pub fn trace_id(&self) -> u128 {
        self.trace
    }

    /// The id of the span that submitted the job.
    pub fn span_id(&self) -> u64 {
        self.span
    }

    /// Its flags. The lowest bit says whether the trace is recorded.
    pub fn flags(&self) -> u8 {
        self.flags
    }
}

impl fmt::Display for Traceparent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "00-{:032x}-{:016x}-{:02x}", self.trace, self.span, self.flags)
    }
}

impl fmt::Debug for Traceparent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{self}")
    }
}

impl TryFrom<String> for Traceparent {
    type Error = Error;
    fn try_from(text: String) -> Result<Self> {
        Self::parse("traceparent", &text)
    }
}

impl From<Traceparent> for String {
    fn from(traceparent: Traceparent) -> Self {
        traceparent.to_string()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const GOOD: &str = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";

    #[test]
    fn a_traceparent_is_written_as_it_was_read() {
        let read = Traceparent::parse("traceparent", GOOD).expect("it keeps the format");
        assert_eq!(read.to_string(), GOOD);
        assert_eq!(
            (read.trace_id(), read.span_id(), read.flags()),
            (0x4bf9_2f35_77b3_4da6_a3ce_929d_0e0e_4736, 0x00f0_67aa_0ba9_02b7, 1)
        );
    }

    #[test]
    fn what_breaks_the_format_is_refused_by_name() {
        let bad = [
            String::new(),
            GOOD.to_uppercase(),
            GOOD.replacen("00", "01", 1),
            GOOD.replacen("00", "ff", 1),
            GOOD.replace('-', "_"),
            GOOD.replace("4736", "473g"),
            GOOD.replace("4bf92f3577b34da6a3ce929d0e0e4736", &"0".repeat(32)),
            GOOD.replace("00f067aa0ba902b7", &"0".repeat(16)),
            format!("{GOOD}-00"),
            format!(" {GOOD}"),
            GOOD[..54].to_owned(),
            // The right length, with a dash in a wrong place.
            GOOD.replacen("36-0", "3-60", 1),
            GOOD.replacen("4bf9", "+bf9", 1),
            "ü".repeat(27) + "0",
        ];
        for text in bad {
            let error = Traceparent::parse("traceparent", &text).expect_err(&text);
            assert!(error.message().starts_with("traceparent: "), "{error}");
            assert!(error.message().contains("must be 00-TRACE-SPAN-FLAGS"), "{error}");
        }
    }
}
