//! Tests for any qo store.

pub mod bucket;
pub mod checker;
pub mod conformance;
pub mod dated;
pub mod faulty;
pub mod fixture;
pub mod generator;
pub mod history;
pub mod intercept;
pub mod objects;
pub mod random;
pub mod sabotage;
pub mod simulation;
pub mod toy;

pub use bucket::{Bucket, DateLies};
pub use dated::DatedObjects;
pub use faulty::{Fault, FaultRates, FaultyStore};
pub use fixture::{Fixture, Fixtures, MemoryFixtures, START, TestClock};
pub use history::History;
pub use objects::{FaultyObjects, ObjectFaults};
pub use sabotage::{Exhibit, museum};
pub use toy::{Flaw, ToyFixtures, ToyStore};
