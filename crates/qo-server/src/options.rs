//! What a server may use, and what it waits for.

use std::time::Duration;

/// How a server works.
#[derive(Debug, Clone)]
pub struct Options {
    /// Most connections at once. More of them wait until another one ends. Defaults to 4,000.
    pub connections: usize,
    /// Most calls and streams at once on one connection. Defaults to 1,000.
    pub calls_per_connection: u32,
    /// How long calls that run may go on once the server was told to stop. Defaults to 10 s.
    pub drain: Duration,
    /// How often it ends what is over and fires schedules, where a look costs nothing. Defaults to 1 s.
    pub sweep_every: Duration,
    /// How old what the store says may be when `/metrics` shows it. Defaults to 5 s.
    pub sample_every: Duration,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            connections: 4_000,
            calls_per_connection: 1_000,
            drain: Duration::from_secs(10),
            sweep_every: Duration::from_secs(1),
            sample_every: Duration::from_secs(5),
        }
    }
}
