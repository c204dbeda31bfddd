//! Polling: how often a process looks for records of others where no bell wakes it.
//!
//! Soon after a record that means work, another one is likely, so a process polls often; otherwise seldom. Where
//! requests cost money each pause varies by a quarter: otherwise workers that saw the same record would look for the
//! next one at the same time, and race.

use crate::jitter::Jitter;
use crate::medium::Medium;
use crate::record::Record;
use crate::store::Options;
use std::time::Duration;
use tokio::time::Instant;

/// How long after a record that means work more is expected.
const BUSY: Duration = Duration::from_secs(11);
/// How much a pause varies, of itself.
const SPREAD: f64 = 0.25;

/// When this process looks next.
pub(crate) struct Polling {
    idle: Duration,
    busy: Duration,
    jitter: Option<Jitter>,
    /// When the last record that means work was seen.
    worked: Option<Instant>,
}

impl Polling {
    pub(crate) fn new(medium: &Medium, options: &Options) -> Self {
        let busy = options.poll_without_bell;
        let jitter = medium.policy().requests_cost.then(Jitter::new);
        Self { idle: options.poll.max(busy), busy, jitter, worked: None }
    }

    /// A record was read or written.
    pub(crate) fn saw(&mut self, record: &Record) {
        if record.is_work() {
            self.worked = Some(Instant::now());
        }
    }

    /// How long until the next look.
    pub(crate) fn pause(&mut self) -> Duration {
        let is_busy = self.worked.is_some_and(|at| at.elapsed() < BUSY);
        let pause = if is_busy { self.busy } else { self.idle };
        self.jitter.as_mut().map_or(pause, |jitter| jitter.around(pause, SPREAD))
    }
}
