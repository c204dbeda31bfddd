//! Backoff between the attempts of a job.

use std::time::Duration;

/// How long a job waits before its next attempt: `base × factor^(attempt − 1)`, at most `max`, ± jitter.
///
/// ```
/// use qo::RetryPolicy;
/// use std::time::Duration;
///
/// let patient = RetryPolicy::new().base(Duration::from_secs(10)).max(Duration::from_secs(3600));
/// let steady = RetryPolicy::new().base(Duration::from_secs(5)).factor(1.0).jitter(0.0);
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct RetryPolicy(qo_core::RetryPolicy);

impl RetryPolicy {
    /// The policy with every value at its default.
    pub fn new() -> Self {
        Self::default()
    }

    /// The delay after the first attempt. Defaults to 1 s. A base above [`max`](Self::max) raises that, too.
    #[must_use]
    pub fn base(mut self, base: Duration) -> Self {
        self.0.base_ms = qo_core::millis(base);
        self.0.max_ms = self.0.max_ms.max(self.0.base_ms);
        self
    }

    /// The longest delay, before jitter. Defaults to 60 s. A max below [`base`](Self::base) lowers that, too.
    #[must_use]
    pub fn max(mut self, max: Duration) -> Self {
        self.0.max_ms = qo_core::millis(max);
        self.0.base_ms = self.0.base_ms.min(self.0.max_ms);
        self
    }

    /// How much longer each delay is than the one before, to the hundredth: 1.0 to 100.0. Defaults to 2.0.
    #[must_use]
    pub fn factor(mut self, factor: f64) -> Self {
        self.0.factor_percent = hundredths(factor);
        self
    }

    /// The share of the delay by which it is moved at random, either way, to the hundredth: 0.0 to 1.0. Defaults to
    /// 0.25.
    #[must_use]
    pub fn jitter(mut self, share: f64) -> Self {
        self.0.jitter_percent = hundredths(share);
        self
    }

    /// No delay at all.
    pub fn immediately() -> Self {
        Self::new().max(Duration::ZERO)
    }
}

/// The check at submit refuses what is out of range, also what was negative or no number.
fn hundredths(value: f64) -> u32 {
    if value.is_nan() || value < 0.0 { u32::MAX } else { (value * 100.0).round() as u32 }
}

impl From<RetryPolicy> for qo_core::RetryPolicy {
    fn from(policy: RetryPolicy) -> Self {
        policy.0
    }
}

impl From<qo_core::RetryPolicy> for RetryPolicy {
    fn from(policy: qo_core::RetryPolicy) -> Self {
        Self(policy)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_policy_in_durations_is_the_stores_policy() {
        let core = qo_core::RetryPolicy { base_ms: 7, factor_percent: 150, max_ms: 90, jitter_percent: 10 };
        let policy = RetryPolicy::new()
            .base(Duration::from_millis(7))
            .max(Duration::from_millis(90))
            .factor(1.5)
            .jitter(0.1);
        assert_eq!(qo_core::RetryPolicy::from(policy), core);
        assert_eq!(RetryPolicy::from(core), policy);
        assert_eq!(qo_core::RetryPolicy::from(RetryPolicy::new()), qo_core::RetryPolicy::default());
    }

    #[test]
    fn a_policy_out_of_range_is_refused_and_never_rounded_into_range() {
        let check = |policy: RetryPolicy| qo_core::RetryPolicy::from(policy).check();
        assert_eq!(check(RetryPolicy::immediately()), Ok(()));
        assert_eq!(check(RetryPolicy::new().base(Duration::from_secs(600))), Ok(()));
        for wrong in [RetryPolicy::new().factor(0.5), RetryPolicy::new().factor(f64::NAN)] {
            assert_eq!(check(wrong).expect_err("too small").path().as_deref(), Some("factor_percent"));
        }
        for wrong in [RetryPolicy::new().jitter(1.5), RetryPolicy::new().jitter(-0.1)] {
            assert_eq!(check(wrong).expect_err("not a share").path().as_deref(), Some("jitter_percent"));
        }
    }
}
