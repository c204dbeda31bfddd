//! A deterministic world of workers, clients, programs, an operator and a bad network around a store.
//!
//! One thread, simulated time, and a seed that decides everything: the same seed gives the same history.
//!
//! 1. Actors put events on an agenda. The world takes the next one, moves the store's clock, and lets it happen.
//! 2. Calls take time in the network, get lost, land late or twice ([`FaultyStore`](crate::FaultyStore)). Workers
//!    crash, pause for longer than their lease and settle late. Wall clocks are wrong. Limits rise, fall to 0 and go;
//!    workflows halt and are steered; schedules come, change and go.
//! 3. After [`Profile::operations`] calls faults end, and the world must come to rest within the bounds of G5.
//! 4. Then the [checkers](crate::checker) read its history.

mod audit;
mod buffer;
mod handler;
mod operator;
mod profile;
mod program;
mod scenery;
mod stage;
mod submitter;
mod worker;
mod world;

pub use audit::audit;
pub use profile::{Profile, Trust};

use crate::checker::{self, Violation, tally::Tally};
use crate::fixture::Fixtures;
use crate::history::History;
use futures::executor::block_on;
use world::World;

/// The result of one seed.
#[derive(Debug, Clone)]
pub struct Outcome {
    /// The seed.
    pub seed: u64,
    /// Everything that happened.
    pub history: History,
    /// What the checkers object to.
    pub violations: Vec<Violation>,
    /// What the history was made of.
    pub tally: Tally,
}

/// Simulates one seed on a fresh store and checks its history.
pub fn run(seed: u64, profile: &Profile, fixtures: &dyn Fixtures) -> Outcome {
    let fixture = block_on(fixtures.fresh());
    let history = World::new(seed, profile, fixture).live();
    let (violations, tally) = checker::check_all(&history);
    Outcome { seed, history, violations, tally }
}

impl Outcome {
    /// The trace as text, with a line for each objection of a checker.
    pub fn trace(&self) -> String {
        let mut text = String::new();
        let mut violations = self.violations.iter().peekable();
        for (index, entry) in self.history.entries.iter().enumerate() {
            text.push_str(&format!("{index:>6} {entry}\n"));
            while let Some(violation) = violations.next_if(|violation| violation.entry <= index) {
                text.push_str(&format!("       >>>>>> {violation}\n"));
            }
        }
        text
    }
}
