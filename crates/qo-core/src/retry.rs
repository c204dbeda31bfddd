//! Backoff between attempts. The worker that settles computes it; the rule book only sees the delay.

use crate::{Error, Result, caps, job::within};
use serde::{Deserialize, Serialize};

/// How long a job waits before its next attempt: `base × factor^(attempt − 1)`, at most `max`, ± jitter.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(default)]
pub struct RetryPolicy {
    /// Delay after the first attempt. Defaults to 1 s.
    pub base_ms: u64,
    /// Growth from one attempt to the next, in hundredths. Defaults to 200: twice as long each time.
    pub factor_percent: u32,
    /// Longest delay, before jitter. Defaults to 60 s.
    pub max_ms: u64,
    /// Random shift of the delay, either way, in hundredths of it. Defaults to 25.
    pub jitter_percent: u32,
}

impl Default for RetryPolicy {
    fn default() -> Self {
        Self { base_ms: 1_000, factor_percent: 200, max_ms: 60_000, jitter_percent: 25 }
    }
}

impl RetryPolicy {
    /// The delay after `attempt` (1 for the first). `random`, 0.0 to 1.0, comes from the caller, because the rule book
    /// uses no randomness.
    pub fn delay_ms(&self, attempt: u32, random: f64) -> u64 {
        if self.base_ms == 0 {
            // 0 stays 0. With a growth of infinity the product would be NaN.
            return 0;
        }
        let growth =
            (f64::from(self.factor_percent) / 100.0).powi(attempt.saturating_sub(1).min(1_000) as i32);
        let delay = (self.base_ms as f64 * growth).min(self.max_ms as f64);
        let swing = f64::from(self.jitter_percent) / 100.0 * (2.0 * random.clamp(0.0, 1.0) - 1.0);
        ((delay * (1.0 + swing)).round() as u64).min(caps::DURATION_MS)
    }

    /// Checks the policy's own values.
    pub fn check(&self) -> Result<()> {
        within("base_ms", self.base_ms, 0, caps::DURATION_MS)?;
        within("factor_percent", self.factor_percent.into(), 100, 10_000)?;
        within("max_ms", self.max_ms, 0, caps::DURATION_MS)?;
        within("jitter_percent", self.jitter_percent.into(), 0, 100)?;
        if self.max_ms < self.base_ms {
            let rule = format_args!("must be at least base_ms, {}", self.base_ms);
            return Err(Error::invalid("max_ms", self.max_ms, rule));
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_default_doubles_from_one_second_to_sixty_give_or_take_a_quarter() {
        let policy = RetryPolicy::default();
        let middle: Vec<u64> = [1, 2, 3, 6, 7, 1_000_000].map(|attempt| policy.delay_ms(attempt, 0.5)).into();
        assert_eq!(middle, [1_000, 2_000, 4_000, 32_000, 60_000, 60_000]);
        assert_eq!((policy.delay_ms(1, 0.0), policy.delay_ms(1, 1.0)), (750, 1_250));
        let at_once = RetryPolicy { base_ms: 0, factor_percent: 10_000, ..policy };
        assert_eq!(at_once.delay_ms(1_000, 0.5), 0);
        assert_eq!(policy.delay_ms(0, f64::NAN).clamp(0, 2_000), policy.delay_ms(0, f64::NAN));
    }

    #[test]
    fn contradictory_policies_are_refused() {
        assert!(RetryPolicy::default().check().is_ok());
        for bad in [
            RetryPolicy { max_ms: 1, ..RetryPolicy::default() },
            RetryPolicy { factor_percent: 99, ..RetryPolicy::default() },
            RetryPolicy { jitter_percent: 101, ..RetryPolicy::default() },
            RetryPolicy { base_ms: u64::MAX, max_ms: u64::MAX, ..RetryPolicy::default() },
        ] {
            assert!(bad.check().is_err(), "{bad:?}");
        }
    }
}
