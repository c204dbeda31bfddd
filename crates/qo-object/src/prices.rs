//! What requests to a bucket cost: S3's list prices, in one table.

/// Dollars for a thousand requests (S3 Standard, us-east-1): writes and listings, reads. Deletions cost nothing.
const PUT_OR_LIST: f64 = 0.005;
const GET: f64 = 0.0004;

/// Requests by kind, as they are billed.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Requests {
    /// Writes of objects, also those that failed.
    pub puts: u64,
    /// Reads of objects or their metadata, also of absent ones.
    pub gets: u64,
    /// Pages of listings.
    pub lists: u64,
    /// Deletions; one may delete many objects.
    pub deletes: u64,
}

impl Requests {
    /// All of them.
    pub fn total(&self) -> u64 {
        self.puts + self.gets + self.lists + self.deletes
    }

    /// The requests since `before`.
    pub fn since(&self, before: &Self) -> Self {
        Self {
            puts: self.puts.saturating_sub(before.puts),
            gets: self.gets.saturating_sub(before.gets),
            lists: self.lists.saturating_sub(before.lists),
            deletes: self.deletes.saturating_sub(before.deletes),
        }
    }

    /// These and others.
    #[must_use]
    pub fn plus(&self, other: &Self) -> Self {
        Self {
            puts: self.puts + other.puts,
            gets: self.gets + other.gets,
            lists: self.lists + other.lists,
            deletes: self.deletes + other.deletes,
        }
    }

    /// What they cost, in dollars.
    pub fn dollars(&self) -> f64 {
        ((self.puts + self.lists) as f64 * PUT_OR_LIST + self.gets as f64 * GET) / 1_000.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_million_writes_cost_five_dollars_and_reads_forty_cents() {
        let million = 1_000_000;
        let puts = Requests { puts: million, ..Requests::default() };
        let gets = Requests { gets: million, ..Requests::default() };
        assert!((puts.dollars() - 5.0).abs() < 1e-9);
        assert!((gets.dollars() - 0.4).abs() < 1e-9);
        let both = Requests { puts: million, gets: million, lists: 1, deletes: 7 };
        assert_eq!(
            both.since(&puts),
            Requests { gets: million, lists: 1, deletes: 7, ..Requests::default() }
        );
        assert_eq!(both.total(), 2 * million + 8);
    }
}
