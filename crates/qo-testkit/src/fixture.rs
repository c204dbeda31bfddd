//! What a test needs of a store: a fresh one, and control of its clock.

use async_trait::async_trait;
use futures::future::BoxFuture;
use qo_core::{ManualClock, MemoryStore, Store};
use std::sync::Arc;

/// A fresh, empty store and the clock that it reads.
pub struct Fixture {
    /// The store under test.
    pub store: Arc<dyn Store>,
    /// The clock that its time comes from.
    pub clock: Arc<dyn TestClock>,
}

/// Makes fresh stores of one kind. Implement this and the whole suite runs against your store.
#[async_trait]
pub trait Fixtures: Send + Sync {
    /// An empty store of its own, at the time [`START`].
    async fn fresh(&self) -> Fixture;

    /// Runs a test to its end. A store that needs a runtime of its own enters it here.
    fn block_on(&self, test: BoxFuture<'_, ()>) {
        futures::executor::block_on(test);
    }
}

/// Store time at which every fixture starts: far from 0, so that no test passes because a date is 0.
pub const START: qo_core::Time = qo_core::Time::from_millis(1_800_000_000_000);

/// Control of a store's clock.
#[async_trait]
pub trait TestClock: Send + Sync {
    /// Moves store time forward.
    async fn advance_ms(&self, ms: u64);
}

#[async_trait]
impl TestClock for ManualClock {
    async fn advance_ms(&self, ms: u64) {
        Self::advance_ms(self, ms);
    }
}

/// Makes stores of the rule book itself, in memory.
#[derive(Debug, Clone, Copy, Default)]
pub struct MemoryFixtures;

#[async_trait]
impl Fixtures for MemoryFixtures {
    async fn fresh(&self) -> Fixture {
        let clock = Arc::new(ManualClock::new(START));
        Fixture { store: Arc::new(MemoryStore::with_clock(clock.clone())), clock }
    }
}
