//! The time that slots go by.

use crate::traffic::Traffic;
use qo_core::{Clock, Error, ErrorKind, Result, Time};
use std::sync::Arc;

/// Where the time comes from.
#[derive(Clone)]
pub(super) enum SlotTime {
    /// The dates of a bucket's answers; none before the first. They are written and shown, and end nothing.
    Answers(Arc<Traffic>),
    /// A clock of the caller's.
    Given(Arc<dyn Clock>),
}

impl SlotTime {
    pub fn now(&self) -> Result<Time> {
        match self {
            Self::Given(clock) => Ok(clock.now()),
            Self::Answers(traffic) => traffic.believed_now().ok_or_else(undated),
        }
    }
}

fn undated() -> Error {
    Error::new(ErrorKind::Unavailable, "the bucket's answers bear no date: a proxy between?")
}
