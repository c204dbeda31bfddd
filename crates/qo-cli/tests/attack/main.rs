//! Attacks on qo from outside: real processes, real signals, damaged stores and wrong clocks.
//!
//! Each module is one way in. A test states what an attacker or an accident does, and what must hold all the same. The
//! jobs of a test record themselves when they ran; verdicts come from these records, not from what qo says.

mod apps;
mod clocks;
mod doors;
#[path = "../command_line/fixture.rs"]
#[allow(dead_code)]
mod fixture;
mod fleet;
mod fuzz;
mod logs;
mod namespaces;
mod programs;
mod refusals;
mod views;
