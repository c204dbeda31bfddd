//! The last minutes of the busiest groups and queues, in the server's memory, for sparklines.
//!
//! 1. A page that is opened [wakes](History::wake) the history. One task then reads the store every few seconds.
//! 2. It ends when no page was opened for a while, so a server without an open page reads nothing.
//! 3. Where a reading takes long, or each call of the store costs something, it reads more seldom.
//!
//! It is bounded: so many names, so many samples. It knows all groups of the store, so a page shows only the samples of
//! groups and queues that its caller's own store has shown.

use super::recent::Recent;
use crate::shared::Shared;
use qo_core::{GroupPage, GroupRef, JobPage, QueueStatus, Result, Store};
use std::collections::{BTreeMap, VecDeque};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};
use tokio::time::sleep;

/// Between two readings.
const EVERY: Duration = Duration::from_secs(3);
/// The same where each call of the store costs something.
const WHERE_CALLS_COST: Duration = Duration::from_secs(15);
/// A reading takes at most this part of the time: the pause is so many times as long.
const SHARE: u32 = 20;
/// Samples of each name: six minutes.
const SAMPLES: usize = 120;
/// Names that are remembered.
const NAMES: usize = 300;
/// Groups that one reading looks at.
const GROUPS: usize = 1_000;
/// How long it goes on after a page was opened.
const PATIENCE: Duration = Duration::from_secs(600);

/// What one sample says.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Sample {
    /// Slots or permits taken.
    pub used: u64,
    /// Jobs or slots that wait.
    pub waiting: u64,
}

/// The last minutes.
#[derive(Default)]
pub(crate) struct History {
    lines: Mutex<Lines>,
    is_reading: AtomicBool,
    /// The views of the overview, which may take long.
    pub views: Views,
}

/// What the overview shows of the store.
#[derive(Default)]
pub(crate) struct Views {
    pub queues: Arc<Recent<Vec<QueueStatus>>>,
    pub groups: Arc<Recent<GroupPage>>,
    pub failed: Arc<Recent<JobPage>>,
}

#[derive(Default)]
struct Lines {
    by_name: BTreeMap<GroupRef, VecDeque<Sample>>,
    opened: Option<Instant>,
}

impl History {
    /// A page was opened: sampling goes on, or begins.
    pub fn wake(self: &Arc<Self>, shared: &Shared) {
        self.lines().opened = Some(Instant::now());
        if !self.is_reading.swap(true, Ordering::AcqRel) {
            let (history, store, mut ending) =
                (Arc::clone(self), Arc::clone(&shared.store), shared.ending.clone());
            tokio::spawn(async move {
                tokio::select! {
                    () = history.read_on(store) => {}
                    _ = ending.wait_for(|ending| *ending) => {}
                }
                history.is_reading.store(false, Ordering::Release);
            });
        }
    }

    async fn read_on(&self, store: Arc<dyn Store>) {
        let usual = if store.renewals_cost() { WHERE_CALLS_COST } else { EVERY };
        while self.lines().opened.is_some_and(|opened| opened.elapsed() < PATIENCE) {
            let began = Instant::now();
            match read(&*store).await {
                Ok(samples) => self.lines().add(samples),
                Err(error) => tracing::debug!("no sample for the page: {error}"),
            }
            sleep(usual.max(began.elapsed() * SHARE)).await;
        }
    }

    /// The samples of some names, added up, the newest last.
    pub fn of<'a>(
        &self,
        names: impl IntoIterator<Item = &'a GroupRef>,
        figure: fn(&Sample) -> u64,
    ) -> Vec<u64> {
        let lines = self.lines();
        let mut sum: Vec<u64> = Vec::new();
        for line in names.into_iter().filter_map(|name| lines.by_name.get(name)) {
            if line.len() > sum.len() {
                let missing = line.len() - sum.len();
                sum.splice(0..0, std::iter::repeat_n(0, missing));
            }
            let before = sum.len() - line.len();
            sum[before..].iter_mut().zip(line).for_each(|(sum, sample)| *sum += figure(sample));
        }
        sum
    }

    fn lines(&self) -> MutexGuard<'_, Lines> {
        self.lines.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Lines {
    /// Adds one sample to each line. A name that was not read has become idle.
    fn add(&mut self, samples: BTreeMap<GroupRef, Sample>) {
        for (name, line) in &mut self.by_name {
            if !samples.contains_key(name) {
                line.push_back(Sample::default());
            }
        }
        for (name, sample) in samples {
            self.by_name.entry(name).or_default().push_back(sample);
        }
        for line in self.by_name.values_mut() {
            while line.len() > SAMPLES {
                line.pop_front();
            }
        }
        self.by_name.retain(|_, line| line.iter().any(|sample| *sample != Sample::default()));
        if self.by_name.len() > NAMES {
            let busy = |line: &VecDeque<Sample>| line.iter().map(|at| at.used + at.waiting).sum::<u64>();
            let mut sums: Vec<_> = self.by_name.values().map(busy).collect();
            sums.sort_unstable_by(|a, b| b.cmp(a));
            let least = sums[NAMES - 1];
            let mut room = NAMES;
            self.by_name.retain(|_, line| {
                let stays = busy(line) >= least && room > 0;
                room -= usize::from(stays);
                stays
            });
        }
    }
}

async fn read(store: &dyn Store) -> Result<BTreeMap<GroupRef, Sample>> {
    let (queues, groups) = tokio::try_join!(store.queues(), store.groups(None, GROUPS))?;
    let mut samples: BTreeMap<_, _> = groups
        .groups
        .into_iter()
        .map(|group| (group.used, super::bar::wanted(&group), group.group))
        .map(|(used, waiting, group)| (group, Sample { used, waiting }))
        .collect();
    for queue in queues.into_iter().take(GROUPS) {
        let sample = Sample { used: queue.running, waiting: queue.due };
        samples.insert(GroupRef::Queue(queue.queue), sample);
    }
    Ok(samples)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn group(name: &str) -> GroupRef {
        name.parse().expect("a group")
    }

    fn sample(used: u64) -> Sample {
        Sample { used, waiting: 0 }
    }

    #[test]
    fn the_history_is_bounded_and_keeps_the_busiest() {
        let history = History::default();
        for round in 0..2 * SAMPLES as u64 {
            let samples = (0..2 * NAMES as u64).map(|n| (group(&format!("g{n}")), sample(n + round % 2)));
            history.lines().add(samples.collect());
        }
        assert_eq!(history.lines().by_name.len(), NAMES);
        let busiest = group(&format!("g{}", 2 * NAMES - 1));
        assert_eq!(history.of([&busiest], |sample| sample.used).len(), SAMPLES);
        assert!(history.of([&group("g0")], |sample| sample.used).is_empty());
    }

    #[test]
    fn a_group_that_is_gone_goes_on_at_zero_and_is_forgotten() {
        let history = History::default();
        history.lines().add([(group("a"), sample(3))].into());
        history.lines().add([(group("b"), sample(2))].into());
        let (a, b) = (group("a"), group("b"));
        assert_eq!(history.of([&a], |sample| sample.used), [3, 0]);
        assert_eq!(history.of([&a, &b], |sample| sample.used), [3, 2]);
        for _ in 0..SAMPLES {
            history.lines().add(BTreeMap::new());
        }
        assert!(history.lines().by_name.is_empty());
    }
}
