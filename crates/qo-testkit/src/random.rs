//! Seeded dice.
//!
//! Twenty lines of SplitMix64 instead of a crate: a seed printed today must replay the same trace after
//! any `cargo update`, and no crate of random numbers promises that across its versions.

use std::ops::RangeInclusive;
use uuid::Uuid;

/// A stream of numbers that is always the same for the same seed.
#[derive(Debug, Clone)]
pub struct Random(u64);

impl Random {
    /// The stream of this seed.
    pub fn new(seed: u64) -> Self {
        // Neighbouring seeds must not give streams that are shifts of each other.
        let mut mixed = Self(seed ^ 0x6A09_E667_F3BC_C909);
        Self(mixed.draw())
    }

    /// The next 64 bits.
    pub fn draw(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        z ^ (z >> 31)
    }

    /// A separate stream, so that the dice of one part do not move those of another.
    pub fn fork(&mut self) -> Self {
        Self::new(self.draw())
    }

    /// A number of the range, all equally likely (but for a bias of no consequence here).
    pub fn within(&mut self, range: RangeInclusive<u64>) -> u64 {
        let (low, high) = range.into_inner();
        low + self.draw() % (high - low + 1)
    }

    /// An index below `len`.
    pub fn below(&mut self, len: usize) -> usize {
        (self.draw() % len as u64) as usize
    }

    /// True in this many of a hundred cases.
    pub fn percent(&mut self, percent: u64) -> bool {
        self.draw() % 100 < percent
    }

    /// True in this many of a thousand cases.
    pub fn per_mille(&mut self, per_mille: u32) -> bool {
        self.draw() % 1_000 < u64::from(per_mille)
    }

    /// One of the items.
    pub fn pick<T: Copy>(&mut self, items: &[T]) -> T {
        items[self.below(items.len())]
    }

    /// A number from 0.0 to 1.0.
    pub fn unit(&mut self) -> f64 {
        (self.draw() >> 11) as f64 / (1_u64 << 53) as f64
    }

    /// An id as a client with this wall clock makes it: UUIDv7.
    pub fn uuid(&mut self, wall_ms: u64) -> Uuid {
        let random = (u128::from(self.draw()) << 64) | u128::from(self.draw());
        let bits = (u128::from(wall_ms & 0xFFFF_FFFF_FFFF) << 80) | (random & ((1 << 80) - 1));
        let version = (bits & !(0xF << 76)) | (7 << 76);
        Uuid::from_u128((version & !(0b11 << 62)) | (0b10 << 62))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_same_seed_gives_the_same_stream_and_another_seed_another() {
        let stream = |seed| {
            let mut random = Random::new(seed);
            [random.draw(), random.draw(), random.within(3..=9), random.below(5) as u64]
        };
        assert_eq!(stream(7), stream(7));
        assert_ne!(stream(7), stream(8));
    }

    #[test]
    fn an_id_is_a_uuid_of_version_seven() {
        let id = Random::new(1).uuid(1_800_000_000_000);
        assert_eq!((id.get_version_num(), id.get_variant()), (7, uuid::Variant::RFC4122));
    }
}
