//! Proof for any qo store.

pub mod conformance;
pub mod fixture;

pub use fixture::{Fixture, Fixtures, START, TestClock};
