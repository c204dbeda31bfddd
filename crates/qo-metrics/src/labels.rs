//! At most so many values of a label.
//!
//! A scraper keeps a series for each value for weeks, so names that users choose must not make series without bound.

use std::collections::BTreeSet;
use std::sync::{Mutex, PoisonError};

/// The value that stands for all beyond the cap.
pub const OTHER: &str = "other";

/// The first values of a label, and [`OTHER`] for the rest.
#[derive(Debug)]
pub struct Labels {
    most: usize,
    known: Mutex<BTreeSet<String>>,
}

impl Labels {
    /// At most so many values.
    pub fn new(most: usize) -> Self {
        Self { most, known: Mutex::default() }
    }

    /// The value under which this one is counted.
    pub fn value<'a>(&self, value: &'a str) -> &'a str {
        let mut known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        if known.contains(value) {
            return value;
        }
        if known.len() == self.most {
            return OTHER;
        }
        known.insert(value.to_owned());
        value
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_beyond_the_cap_are_counted_as_other() {
        let labels = Labels::new(2);
        let values: Vec<_> = ["a", "b", "c", "a", "d"].map(|value| labels.value(value)).into();
        assert_eq!(values, ["a", "b", OTHER, "a", OTHER]);
    }
}
