//! How a worker claims, as configured, and the rules for these settings.

use crate::{Claim, Configuration, Error, GroupRef, Prefetch, Result, caps, job::within};
use serde::{Deserialize, Serialize};

/// How many jobs a worker takes, and whether ahead of time.
///
/// `prefetch_buffer = 0` is hard mode: claiming is starting. Above 0 is soft mode: the worker also holds claimed jobs
/// that have not started. Running jobs never exceed a limit in either mode.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct ClaimSettings {
    /// Most jobs that one exchange starts. Defaults to 50.
    pub claim_batch_size: u32,
    /// Most jobs that one exchange takes from any one queue. Defaults to no such limit.
    pub max_claim_batch: Option<u32>,
    /// Most jobs that the worker holds, running and claimed. Defaults to 0: its permits plus its prefetch buffer.
    pub max_claim_per_worker: u32,
    /// Claimed jobs that it holds beyond those that run. Defaults to 0: none.
    pub prefetch_buffer: u32,
    /// How long it may hold a claimed job that has not started. Required with a prefetch buffer, and an error without
    /// one.
    pub claim_lease_ms: Option<u64>,
}

impl Default for ClaimSettings {
    fn default() -> Self {
        Self {
            claim_batch_size: 50,
            max_claim_batch: None,
            max_claim_per_worker: 0,
            prefetch_buffer: 0,
            claim_lease_ms: None,
        }
    }
}

impl ClaimSettings {
    /// Checks these settings together with the configuration that goes with them, and lists every mistake.
    pub fn check(&self, configuration: &Configuration) -> Result<()> {
        let mut mistakes = configuration.mistakes();
        let most = u64::from(caps::CLAIM);
        mistakes.extend(within("claim_batch_size", self.claim_batch_size.into(), 1, most).err());
        if let Some(batch) = self.max_claim_batch {
            mistakes.extend(within("max_claim_batch", batch.into(), 1, most).err());
        }
        let held = self.max_claim_per_worker.into();
        mistakes.extend(within("max_claim_per_worker", held, 0, caps::LIMIT.into()).err());
        mistakes.extend(within("prefetch_buffer", self.prefetch_buffer.into(), 0, most).err());
        if let Some(lease_ms) = self.claim_lease_ms {
            let (least, most) = (caps::LEASE_MIN_MS, caps::LEASE_MAX_MS);
            mistakes.extend(within("claim_lease_ms", lease_ms, least, most).err());
        }
        match (self.prefetch_buffer, self.claim_lease_ms) {
            (0, Some(lease_ms)) => {
                let rule = "is only for jobs that are claimed ahead of time: set prefetch_buffer too";
                mistakes.push(Error::invalid("claim_lease_ms", lease_ms, rule));
            }
            (buffer @ 1.., None) => {
                let rule = "needs claim_lease_ms: how long a claimed job may wait for its start";
                mistakes.push(Error::invalid("prefetch_buffer", buffer, rule));
            }
            (0, None) | (1.., Some(_)) => {}
        }
        if let (1.., Some(cap)) = (self.prefetch_buffer, configuration.limits.get(&GroupRef::Cluster)) {
            let rule = format_args!(
                "goes with hard mode only: set prefetch_buffer, which is {}, to 0",
                self.prefetch_buffer
            );
            mistakes.push(Error::invalid("cluster_wide_cap", cap, rule));
        }
        Error::all(mistakes)
    }

    /// What to ask for in the next exchange of a worker.
    ///
    /// The worker has `permits` permits, of which `free_permits` are free after the starts of that exchange, and holds
    /// `held` jobs, running and claimed.
    pub fn claim(&self, permits: u32, free_permits: u32, held: u32) -> Claim {
        let most_held = match self.max_claim_per_worker {
            0 => permits.saturating_add(self.prefetch_buffer),
            most => most,
        };
        let room = most_held.saturating_sub(held);
        let max = free_permits.min(self.claim_batch_size).min(room);
        // It may hold ahead of time what it holds so already, plus the room that is left after the new starts.
        let claimed = held.saturating_sub(permits.saturating_sub(free_permits));
        let ahead = self.prefetch_buffer.min(claimed + (room - max));
        let prefetch = self.claim_lease_ms.filter(|_| ahead > 0);
        let prefetch = prefetch.map(|lease_ms| Prefetch { buffer: ahead, lease_ms });
        Claim { max, max_claim_batch: self.max_claim_batch, prefetch }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_mistake_is_listed() {
        let mut configuration = Configuration::default();
        configuration.limits.insert(GroupRef::Cluster, 15);
        configuration.limits.insert("api".parse().expect("a group"), 1_000_001);
        let settings = ClaimSettings { prefetch_buffer: 4, claim_batch_size: 0, ..ClaimSettings::default() };
        let error = settings.check(&configuration).expect_err("four mistakes").to_string();
        for part in ["limits[api]", "claim_batch_size", "prefetch_buffer", "cluster_wide_cap"] {
            assert!(error.contains(part), "{error}");
        }
    }

    #[test]
    fn prefetch_and_its_lease_come_together_or_not_at_all() {
        let check = |prefetch_buffer, claim_lease_ms| {
            ClaimSettings { prefetch_buffer, claim_lease_ms, ..ClaimSettings::default() }
                .check(&Configuration::default())
                .map_err(|error| error.to_string())
        };
        assert_eq!((check(0, None), check(4, Some(5_000))), (Ok(()), Ok(())));
        assert!(check(0, Some(5_000)).is_err_and(|error| error.contains("claim_lease_ms: \"5000\"")));
        assert!(check(4, None).is_err_and(|error| error.contains("prefetch_buffer: \"4\"")));
        assert!(
            check(4, Some(1)).is_err_and(|error| error.contains("claim_lease_ms: \"1\": must be 100 to"))
        );
    }

    #[test]
    fn a_claim_keeps_to_permits_batch_and_what_a_worker_may_hold() {
        let hard = ClaimSettings::default();
        assert_eq!(hard.claim(100, 80, 20), Claim { max: 50, max_claim_batch: None, prefetch: None });
        assert_eq!(hard.claim(100, 5, 95).max, 5);
        assert_eq!(ClaimSettings { max_claim_per_worker: 21, ..hard.clone() }.claim(100, 80, 20).max, 1);
        let soft = ClaimSettings { prefetch_buffer: 10, claim_lease_ms: Some(5_000), ..hard };
        // Four of ten permits are free, three jobs are claimed: four jobs start, and ten may be held beside them.
        let claim = soft.claim(10, 4, 9);
        assert_eq!((claim.max, claim.prefetch), (4, Some(Prefetch { buffer: 10, lease_ms: 5_000 })));
        let tight = ClaimSettings { max_claim_per_worker: 12, ..soft };
        let claim = tight.claim(10, 0, 11);
        assert_eq!((claim.max, claim.prefetch), (0, Some(Prefetch { buffer: 2, lease_ms: 5_000 })));
    }
}
