//! The id of a request: in its answer, in the log, and in errors whose text stays in the log.

use crate::random::random;
use qo_core::Result;
use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};

/// The id of a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct RequestId(u64);

impl fmt::Display for RequestId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:016x}", self.0)
    }
}

/// Makes ids: they begin at random, so that those of two servers and of two starts differ.
pub(crate) struct RequestIds(AtomicU64);

impl RequestIds {
    pub fn new() -> Result<Self> {
        Ok(Self(AtomicU64::new(u64::from_le_bytes(random()?))))
    }

    pub fn next(&self) -> RequestId {
        RequestId(self.0.fetch_add(1, Ordering::Relaxed))
    }
}
