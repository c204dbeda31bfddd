//! The monitor: when a process that holds a namespace in a bucket looks for slots there whose lease is over, and frees
//! them.
//!
//! A look is a listing, and a listing costs as much as a write. So the workers of a fleet share the looks:
//!
//! 1. About every quarter of an hour, with jitter, each process that holds the state decides by chance whether it
//!    looks.
//! 2. The chance is one in the number of workers, so one of them looks, on average.
//!
//! No process depends on another, and it does not matter which one dies.

use crate::jitter::Jitter;
use std::time::Duration;
use tokio::time::Instant;

/// How much the pause between two looks varies, of itself.
const SPREAD: f64 = 0.5;

/// When this process may look next.
#[derive(Debug)]
pub(crate) struct Monitor {
    every: Duration,
    next: Instant,
    jitter: Jitter,
    /// When it last looked, if it has.
    last: Option<Instant>,
}

impl Monitor {
    /// Looks about once in `every`, not before half of it has passed.
    pub fn new(every: Duration) -> Self {
        let mut jitter = Jitter::new();
        Self { every, next: Instant::now() + jitter.around(every, SPREAD), jitter, last: None }
    }

    /// Whether it is time, and chance chose this process of `workers`.
    pub fn is_due(&mut self, workers: impl FnOnce() -> usize) -> bool {
        if Instant::now() < self.next {
            return false;
        }
        self.next = Instant::now() + self.jitter.around(self.every, SPREAD);
        let looks = self.jitter.one_in(workers());
        if looks {
            self.last = Some(Instant::now());
        }
        looks
    }

    /// Whether this process has looked since then.
    pub fn has_looked_since(&self, then: Instant) -> bool {
        self.last.is_some_and(|last| last > then)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const QUARTER: Duration = Duration::from_secs(900);

    /// Looks of a fleet in ten days.
    async fn looks(workers: usize) -> usize {
        let mut fleet: Vec<_> = (0..workers).map(|_| Monitor::new(QUARTER)).collect();
        let mut looks = 0;
        for _ in 0..10 * 24 * 60 {
            tokio::time::advance(Duration::from_secs(60)).await;
            looks += fleet.iter_mut().filter_map(|monitor| monitor.is_due(|| workers).then_some(())).count();
        }
        looks
    }

    #[tokio::test(start_paused = true)]
    async fn a_fleet_of_any_size_looks_about_every_quarter_of_an_hour() {
        for workers in [1, 4, 50] {
            let looks = looks(workers).await;
            // 960, and some less because the time of this test jumps by minutes.
            assert!((650..=1_150).contains(&looks), "{workers} workers: {looks}");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn no_process_looks_soon_after_its_start() {
        let mut monitor = Monitor::new(QUARTER);
        tokio::time::advance(QUARTER / 2 - Duration::from_millis(1)).await;
        assert!(!monitor.is_due(|| 1));
        tokio::time::advance(QUARTER + Duration::from_millis(2)).await;
        assert!(monitor.is_due(|| 0), "without workers every process looks");
    }
}
