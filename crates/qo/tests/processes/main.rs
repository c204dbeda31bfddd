//! Real processes.
fn main() {}
