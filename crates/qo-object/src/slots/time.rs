//! How late it is, as far as slots are concerned.

use crate::clock::StoreClock;
use crate::traffic::Traffic;
use qo_core::{Clock, Error, ErrorKind, Result, Time};
use std::sync::{Arc, OnceLock};

/// Where it is known from how late it is.
#[derive(Clone)]
pub(super) enum TimeSource {
    /// From the dates that a bucket's answers bear: none before the first.
    Answers(Arc<Traffic>, Arc<OnceLock<StoreClock>>),
    /// From a clock of the caller's.
    Given(Arc<dyn Clock>),
}

impl TimeSource {
    pub fn now(&self) -> Result<Time> {
        let (traffic, clock) = match self {
            Self::Given(clock) => return Ok(clock.now()),
            Self::Answers(traffic, clock) => (traffic, clock),
        };
        let dated = traffic.date().ok_or_else(undated)?;
        let clock = clock.get_or_init(|| StoreClock::of(&dated));
        clock.hear(&dated);
        Ok(clock.now())
    }

    /// What the newest answer said, as it said it: whoever asks twice and takes the earlier of two dates is not misled by one
    /// that is far ahead.
    pub fn heard(&self) -> Result<Time> {
        match self {
            Self::Given(clock) => Ok(clock.now()),
            Self::Answers(traffic, _) => traffic.date().map(|dated| dated.date).ok_or_else(undated),
        }
    }
}

fn undated() -> Error {
    Error::new(ErrorKind::Unavailable, "the bucket's answers bear no date: a proxy between?")
}
