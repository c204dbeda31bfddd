//! Admission: jobs that light clients [offered](crate::offer) and that no record has admitted yet.
//!
//! 1. A record offers jobs; they wait here, in the order of the log.
//! 2. The next record that a writer with the state creates begins with their admission, as many as
//!    [fit](crate::request::fitting_jobs). Commands that came later wait until all offers are admitted.
//! 3. If no writer creates one, an idle writer admits them when [`Admission::is_due`] says so.
//!
//! Invariants: offers are admitted in the order of the log. A snapshot is taken only when none waits, because a
//! snapshot holds the state alone.

use crate::jitter::Jitter;
use crate::medium::Medium;
use crate::record::Record;
use crate::request::fitting_jobs;
use crate::store::Options;
use qo_core::{Command, NewJob, State};
use std::time::Duration;
use tokio::time::Instant;

/// Workers that count for how late an idle writer admits offers, at most.
const MANY: usize = 16;

/// Offered jobs that wait to be admitted.
pub(crate) struct Admission {
    offers: Vec<NewJob>,
    /// When an idle writer admits them.
    due: Instant,
    poll: Duration,
    /// The more workers could claim the offers, the later an idle one admits them, so that not all of them do.
    waits_for_workers: bool,
    jitter: Jitter,
}

impl Admission {
    pub(crate) fn new(medium: &Medium, options: &Options) -> Self {
        Self {
            offers: Vec::new(),
            due: Instant::now(),
            poll: options.poll,
            waits_for_workers: medium.policy().requests_cost,
            jitter: Jitter::new(),
        }
    }

    /// A record was read, and this is the state after it.
    pub(crate) fn saw(&mut self, record: &Record, state: &State) {
        self.offers.drain(..record.admitted.min(self.offers.len()));
        if self.offers.is_empty() && !record.offered.is_empty() {
            let workers = if self.waits_for_workers { state.workers().len().min(MANY) } else { 0 };
            self.due = Instant::now() + self.poll.mul_f64(1.0 + workers as f64 * self.jitter.unit());
        }
        self.offers.extend(record.offered.iter().cloned());
    }

    /// The process begins again at a snapshot, which covers no offers.
    pub(crate) fn clear(&mut self) {
        self.offers.clear();
    }

    /// A record of this writer admitted the first so many.
    pub(crate) fn admitted(&mut self, count: usize) {
        self.offers.drain(..count);
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.offers.is_empty()
    }

    /// Whether offers wait that no worker has claimed in time.
    pub(crate) fn is_due(&self) -> bool {
        !self.offers.is_empty() && Instant::now() >= self.due
    }

    /// How many of them go into the next record.
    pub(crate) fn fitting(&self) -> usize {
        fitting_jobs(&self.offers)
    }

    /// Whether all of them go into the next record.
    pub(crate) fn all_fit(&self) -> bool {
        self.fitting() == self.offers.len()
    }

    /// The command that admits the first so many; none for 0.
    pub(crate) fn command(&self, count: usize) -> Option<Command> {
        (count > 0).then(|| Command::Admit(self.offers[..count].to_vec()))
    }

    /// The command that admits all of them; none if there are none.
    pub(crate) fn command_for_all(&self) -> Option<Command> {
        self.command(self.offers.len())
    }
}
