//! Proof for any qo store.

pub mod conformance;
pub mod fixture;
pub mod generator;
pub mod sabotage;
pub mod toy;

pub use fixture::{Fixture, Fixtures, MemoryFixtures, START, TestClock};
pub use sabotage::{Exhibit, museum};
pub use toy::{Flaw, ToyFixtures, ToyStore};
