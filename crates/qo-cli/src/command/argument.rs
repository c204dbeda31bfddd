//! Arguments as people type them.

pub use qo::text::word::{group, id_prefix, job, key, name, state, state_name, traceparent};
pub use qo::text::{Moment, Past};

use qo::text::{Zone, parse_ms};

/// A length of time, in milliseconds.
pub fn duration(text: &str) -> Result<u64, String> {
    parse_ms(text)
}

/// How many things to show.
pub fn count(text: &str) -> Result<usize, String> {
    text.parse().ok().filter(|count| *count > 0).ok_or_else(|| "must be a whole number, 1 or more".into())
}

/// A moment.
pub fn moment(text: &str) -> Result<Moment, String> {
    Moment::parse(text, Zone::Machine)
}

/// A moment that has passed.
pub fn past(text: &str) -> Result<Past, String> {
    Past::parse(text, Zone::Machine)
}
