//! How many requests a caller may make: a bucket of them that fills up again by the second.
//!
//! A caller is a token, or an address while it shows none. Wrong tokens are counted apart, by address and far more
//! strictly, so that no caller can try many, and so that a fleet with a good token is not held up by one with a bad one.

use qo_core::TokenId;
use std::collections::HashMap;
use std::hash::Hash;
use std::net::IpAddr;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;
use tokio::time::Instant;

/// Most callers that are counted. The fullest buckets are forgotten first: it makes no difference to their callers.
const CALLERS: usize = 10_000;

/// Who is counted.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum Counted {
    Token(TokenId),
    Address(IpAddr),
}

/// The buckets of all callers.
pub(crate) struct Rates {
    requests: Mutex<Buckets<Counted>>,
    wrong: Mutex<Buckets<IpAddr>>,
}

impl Rates {
    /// Each caller may make so many requests a second, and twice as many at once; each address may show so many wrong
    /// tokens a second, and ten times as many at once.
    pub fn new(per_second: u32, wrong_per_second: u32) -> Self {
        let (rate, wrong) = (f64::from(per_second), f64::from(wrong_per_second));
        Self {
            requests: Mutex::new(Buckets::new(rate, rate * 2.0)),
            wrong: Mutex::new(Buckets::new(wrong, wrong * 10.0)),
        }
    }

    /// Counts a request. An error says how long to wait.
    pub fn request(&self, by: Counted) -> Result<(), Duration> {
        self.requests.lock().unwrap_or_else(PoisonError::into_inner).take(by)
    }

    /// Counts a wrong token.
    pub fn wrong(&self, from: IpAddr) -> Result<(), Duration> {
        self.wrong.lock().unwrap_or_else(PoisonError::into_inner).take(network(from))
    }
}

/// An address of IPv6 stands for its network of 64 bits: one machine has all of these.
fn network(address: IpAddr) -> IpAddr {
    match address.to_canonical() {
        IpAddr::V6(address) => {
            let mut octets = address.octets();
            octets[8..].fill(0);
            IpAddr::V6(octets.into())
        }
        address @ IpAddr::V4(_) => address,
    }
}

struct Buckets<K> {
    per_second: f64,
    most: f64,
    left: HashMap<K, (f64, Instant)>,
}

impl<K: Copy + Eq + Hash> Buckets<K> {
    fn new(per_second: f64, most: f64) -> Self {
        Self { per_second, most, left: HashMap::new() }
    }

    fn take(&mut self, key: K) -> Result<(), Duration> {
        let now = Instant::now();
        if self.left.len() >= CALLERS && !self.left.contains_key(&key) {
            self.forget(now);
        }
        let (per_second, most) = (self.per_second, self.most);
        let (left, at) = self.left.entry(key).or_insert((most, now));
        *left = (*left + now.duration_since(*at).as_secs_f64() * per_second).min(most);
        *at = now;
        if *left >= 1.0 {
            *left -= 1.0;
            return Ok(());
        }
        Err(Duration::from_secs_f64((1.0 - *left) / per_second))
    }

    fn forget(&mut self, now: Instant) {
        let (per_second, most) = (self.per_second, self.most);
        let filled = |(left, at): &(f64, Instant)| left + now.duration_since(*at).as_secs_f64() * per_second;
        self.left.retain(|_, bucket| filled(bucket) < most);
        if self.left.len() >= CALLERS {
            // All are in use. Their callers begin anew.
            self.left.clear();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_caller_that_asks_too_often_is_told_when_to_come_back() {
        let mut buckets = Buckets::new(10.0, 20.0);
        for _ in 0..20 {
            assert_eq!(buckets.take(1), Ok(()));
        }
        let wait = buckets.take(1).expect_err("it has used up its requests");
        assert_eq!(buckets.take(2), Ok(()), "others have their own");
        tokio::time::advance(wait + Duration::from_millis(1)).await;
        assert_eq!(buckets.take(1), Ok(()));
        assert!(buckets.take(1).is_err());
    }

    #[tokio::test(start_paused = true)]
    async fn the_memory_for_callers_is_bounded() {
        let mut buckets = Buckets::new(1.0, 2.0);
        for caller in 0..(3 * CALLERS) {
            buckets.take(caller).expect("its first request");
        }
        assert!(buckets.left.len() <= CALLERS);
    }
}
