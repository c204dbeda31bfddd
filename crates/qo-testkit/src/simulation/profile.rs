//! How many faults a simulated world has.

use crate::faulty::FaultRates;

/// The settings of a simulation. The seed decides everything that they leave open.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Profile {
    /// Calls until faults end. Defaults to 2,000.
    pub operations: u64,
    /// Most workers; a seed has between one and so many. Defaults to 6.
    pub workers: usize,
    /// Submitters. Defaults to 3.
    pub submitters: usize,
    /// Programs that take standalone slots. Defaults to 2.
    pub programs: usize,
    /// What the network does to calls. Defaults to 2–4 % of each kind, up to 15 s late.
    pub faults: FaultRates,
    /// Time between two process faults (crash, pause, restart), in milliseconds. Defaults to 5 s.
    pub trouble_ms: u64,
    /// Time between two sweeps, in milliseconds. Defaults to 2 s.
    pub sweep_ms: u64,
    /// Longest time between two exchanges of an idle worker, in milliseconds. Defaults to 1 s.
    pub poll_ms: u64,
    /// Longest time of a call or reply in the network, in milliseconds. Defaults to 40 ms; one in fifty takes a hundred
    /// times as long while faults last.
    pub network_ms: u64,
    /// Simulated time after which a world that has not come to rest is given up, in milliseconds. Defaults
    /// to 10 minutes.
    pub rest_ms: u64,
    /// The moment from which workers trust a renewed lease. Defaults to the contract's rule, [`Trust::FirstSent`].
    pub trust: Trust,
}

/// The moment from which a worker counts its lease. Only one of them is right; the others are here to show
/// that the checkers notice.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Trust {
    /// When it first sent the exchange: the store cannot have renewed the lease before that.
    #[default]
    FirstSent,
    /// When it last sent it. Wrong: the answer may be the recorded one of an earlier sending.
    LastSent,
    /// When it got the answer. Wrong: the lease was renewed some time before.
    Heard,
}

impl Default for Profile {
    fn default() -> Self {
        Self {
            operations: 2_000,
            workers: 6,
            submitters: 3,
            programs: 2,
            faults: FaultRates { before: 30, after: 40, late: 30, twice: 20, late_ms: 15_000 },
            trouble_ms: 5_000,
            sweep_ms: 2_000,
            poll_ms: 1_000,
            network_ms: 40,
            rest_ms: 600_000,
            trust: Trust::FirstSent,
        }
    }
}

/// Longest session lease of a simulated worker, in milliseconds.
pub(super) const LONGEST_LEASE_MS: u64 = 15_000;

impl Profile {
    /// The bound of G5: session lease + sweep + poll, and the round trips in between.
    pub fn bound_ms(&self) -> u64 {
        LONGEST_LEASE_MS + self.sweep_ms + self.poll_ms + 10 * self.network_ms
    }
}
