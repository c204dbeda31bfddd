//! Bad jobs at every door: command line, NDJSON, SQL functions, Rust.
