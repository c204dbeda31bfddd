//! Jitter: the randomness of qo, for pauses, for choices by chance, and for ids of sessions. A seed makes a simulated
//! process repeat itself exactly.

use std::time::Duration;
use uuid::Uuid;

/// A small generator (SplitMix64). It must not make secrets.
#[derive(Debug, Clone)]
pub struct Jitter(u64);

impl Default for Jitter {
    fn default() -> Self {
        Self::new()
    }
}

impl Jitter {
    /// The same seed gives the same numbers.
    pub fn seeded(seed: u64) -> Self {
        Self(seed)
    }

    /// A generator with a random seed.
    pub fn new() -> Self {
        Self(Uuid::new_v4().as_u64_pair().0)
    }

    /// A number of 64 random bits.
    pub fn bits(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    /// A number from 0 to 1.
    pub fn unit(&mut self) -> f64 {
        (self.bits() >> 11) as f64 / (1_u64 << 53) as f64
    }

    /// True once in `count` times, on average; always for 0 and 1.
    pub fn one_in(&mut self, count: usize) -> bool {
        self.bits().is_multiple_of(count.max(1) as u64)
    }

    /// A duration that differs from `mean` by at most this fraction of it.
    pub fn around(&mut self, mean: Duration, spread: f64) -> Duration {
        mean.mul_f64(1.0 - spread + 2.0 * spread * self.unit())
    }

    /// A random id.
    pub fn uuid(&mut self) -> Uuid {
        let bytes = (u128::from(self.bits()) << 64 | u128::from(self.bits())).to_le_bytes();
        uuid::Builder::from_random_bytes(bytes).into_uuid()
    }

    /// The pause before try number `tries` (1 for the second one): from `least`, doubling, up to `most`. Half of it is
    /// jitter, so that workers that failed together do not come back together.
    pub fn backoff(&mut self, tries: u32, least: Duration, most: Duration) -> Duration {
        let whole = least.saturating_mul(1 << tries.saturating_sub(1).min(16)).min(most);
        whole.mul_f64(0.5 + self.unit() / 2.0)
    }

    /// Puts items into an order by chance.
    pub fn shuffle<T>(&mut self, items: &mut [T]) {
        items.sort_by_cached_key(|_| self.bits());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_backoff_doubles_to_its_most_and_half_of_it_is_random() {
        let (least, most) = (Duration::from_millis(50), Duration::from_secs(1));
        let mut jitter = Jitter::seeded(7);
        for (tries, whole_ms) in [(1, 50), (2, 100), (3, 200), (6, 1_000), (u32::MAX, 1_000)] {
            let pause = jitter.backoff(tries, least, most).as_millis();
            assert!((whole_ms / 2..=whole_ms).contains(&pause), "{tries}: {pause}");
        }
        assert_ne!(jitter.uuid(), jitter.uuid());
    }

    #[test]
    fn a_pause_varies_by_its_spread_and_no_more() {
        let (mut jitter, mean) = (Jitter::seeded(7), Duration::from_millis(1_000));
        let pauses: Vec<_> = (0..1_000).map(|_| jitter.around(mean, 0.25).as_millis()).collect();
        assert!(pauses.iter().all(|ms| (750..=1_250).contains(ms)));
        assert!(pauses.iter().any(|ms| *ms < 800) && pauses.iter().any(|ms| *ms > 1_200));
    }
}
