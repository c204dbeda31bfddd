//! Randomness of the runtime: jitter, and the ids of sessions. It is seeded, so that a simulated worker repeats itself
//! exactly.

use std::time::Duration;
use uuid::Uuid;

/// A small generator (SplitMix64). It must not make secrets.
#[derive(Debug, Clone)]
pub(crate) struct Dice(u64);

impl Dice {
    /// The same seed gives the same numbers.
    pub fn seeded(seed: u64) -> Self {
        Self(seed)
    }

    /// A generator with a random seed.
    pub fn new() -> Self {
        Self(Uuid::new_v4().as_u64_pair().0)
    }

    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    /// A number from 0 to 1.
    pub fn unit(&mut self) -> f64 {
        (self.next() >> 11) as f64 / (1_u64 << 53) as f64
    }

    /// A random id.
    pub fn uuid(&mut self) -> Uuid {
        let bytes = (u128::from(self.next()) << 64 | u128::from(self.next())).to_le_bytes();
        uuid::Builder::from_random_bytes(bytes).into_uuid()
    }

    /// The pause before try number `tries` (1 for the second one): from `least`, doubling, up to `most`. Half of it is
    /// jitter, so that workers that failed together do not come back together.
    pub fn backoff(&mut self, tries: u32, least: Duration, most: Duration) -> Duration {
        let whole = least.saturating_mul(1 << tries.saturating_sub(1).min(16)).min(most);
        whole.mul_f64(0.5 + self.unit() / 2.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_backoff_doubles_to_its_most_and_half_of_it_is_random() {
        let (least, most) = (Duration::from_millis(50), Duration::from_secs(1));
        let mut dice = Dice::seeded(7);
        for (tries, whole_ms) in [(1, 50), (2, 100), (3, 200), (6, 1_000), (u32::MAX, 1_000)] {
            let pause = dice.backoff(tries, least, most).as_millis();
            assert!((whole_ms / 2..=whole_ms).contains(&pause), "{tries}: {pause}");
        }
        assert_ne!(dice.uuid(), dice.uuid());
    }
}
