//! What the store says about groups, queues and workers.
//!
//! 1. A scrape asks for a sample that is at most [`Options::sample_every`](crate::Options::sample_every) old.
//! 2. If the newest one is older, one scrape reads the store and the others wait for it, so that ten scrapers cost as
//!    much as one. Where reading takes long the sample may be older: reading takes a tenth of the time at most.
//! 3. If the store does not answer within [`LONGEST`], the newest sample is shown once more, and says that it is old and
//!    that the store is down.

use super::LABELS;
use qo_core::{GroupRef, GroupStatus, Key, Name, QueueStatus, Result, Store, Time, WorkerStatus, caps};
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
use tokio::sync::Mutex as Turn;
use tokio::time::{Instant, timeout};

/// How many times as long as the last reading took the next one waits, if that is longer.
const SELDOM: u32 = 10;
/// How long the store may take.
const LONGEST: Duration = Duration::from_secs(3);
/// Most pages of groups of a sample: a hundred thousand groups.
const PAGES: usize = 100;

/// What a group shows. Of all groups beyond the cap, and of all keys of a group, the sums.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct OfGroup {
    /// The limit. For the keys of a group that of each key, if they have one in common.
    pub limit: Option<u32>,
    pub used: u64,
    /// Slots that jobs which do not run would take.
    pub waiting: u64,
    /// Jobs and programs that have taken slots.
    pub acquired: u64,
    /// Submits and programs that were refused.
    pub rejected: u64,
}

impl OfGroup {
    fn add(&mut self, more: Self) {
        self.used += more.used;
        self.waiting += more.waiting;
        self.acquired += more.acquired;
        self.rejected += more.rejected;
    }
}

/// What a store said at one moment.
#[derive(Debug, Default)]
pub(super) struct Sample {
    /// By label.
    pub groups: BTreeMap<String, OfGroup>,
    pub other_groups: OfGroup,
    pub queues: Vec<QueueStatus>,
    pub workers: Vec<WorkerStatus>,
    pub now: Option<Time>,
    /// The group whose keys come at present, and what has been added of them.
    keys: Option<(Name, OfGroup)>,
}

/// The newest sample, and whether the store answered the last time.
#[derive(Debug, Default)]
pub(super) struct Newest {
    pub sample: Arc<Sample>,
    /// When it was taken.
    pub at: Option<Instant>,
    /// Whether the store answered when it was asked last.
    pub up: bool,
}

pub(super) type Shelf = Arc<Mutex<Newest>>;

/// Reads the store now and then.
pub(super) struct Samples {
    store: Arc<dyn Store>,
    newest: Shelf,
    /// How old a sample may be before the store is asked again.
    every: Duration,
    /// When the next reading may begin. The scrape that reads holds it.
    turn: Turn<Option<Instant>>,
}

impl Samples {
    pub fn new(store: Arc<dyn Store>, every: Duration) -> Self {
        Self { store, newest: Shelf::default(), every, turn: Turn::new(None) }
    }

    /// Where the newest sample is.
    pub fn newest(&self) -> Shelf {
        Arc::clone(&self.newest)
    }

    /// Reads the store unless the newest sample is fresh. It returns within a bound, whatever the store does.
    pub async fn refresh(&self) {
        let Ok(mut turn) = timeout(LONGEST, self.turn.lock()).await else { return };
        let began = Instant::now();
        if turn.is_some_and(|next| began < next) {
            return;
        }
        let read = timeout(LONGEST, read(&*self.store)).await;
        let ended = Instant::now();
        *turn = Some(began + self.every.max((ended - began) * SELDOM));
        let mut newest = self.newest.lock().unwrap_or_else(PoisonError::into_inner);
        match read {
            Ok(Ok(sample)) => *newest = Newest { sample: Arc::new(sample), at: Some(ended), up: true },
            Ok(Err(error)) => {
                tracing::warn!("no metrics of the store: {error}");
                newest.up = false;
            }
            Err(_) => {
                tracing::warn!("no metrics of the store: it did not answer within {LONGEST:?}");
                newest.up = false;
            }
        }
    }
}

async fn read(store: &dyn Store) -> Result<Sample> {
    let mut sample = Sample {
        queues: store.queues().await?,
        workers: store.workers().await?,
        now: Some(store.now().await?),
        ..Sample::default()
    };
    let mut after = None;
    for _ in 0..PAGES {
        let page = store.groups(after.take(), caps::PAGE).await?;
        page.groups.iter().for_each(|status| sample.add(status));
        let Some(last) = page.next else { break };
        // The keys of a group come last. A group that fills a page with them may have a million: ask for their sum.
        after = Some(match last {
            GroupRef::Key(name, _) => {
                sample.sum_of_keys(store, &name).await?;
                GroupRef::Key(name, last_key())
            }
            last => last,
        });
    }
    Ok(sample)
}

/// No key comes after it.
fn last_key() -> Key {
    let text: String = std::iter::repeat_n(char::MAX, caps::KEY_BYTES / char::MAX.len_utf8()).collect();
    Key::parse("key", &text).unwrap_or_else(|_| unreachable!("it is no longer than a key may be"))
}

impl Sample {
    fn add(&mut self, status: &GroupStatus) {
        match &status.group {
            GroupRef::EveryKey(_) => {
                // What its keys hold is added key by key, so that a limit of one key counts, too.
                let (acquired, rejected) = (status.acquired, status.rejected);
                let of_keys = self.entry(status.group.to_string());
                of_keys.limit = of_keys.limit.or(status.limit);
                of_keys.add(OfGroup { acquired, rejected, ..OfGroup::default() });
            }
            GroupRef::Key(name, _) if status.limit.is_some() => {
                let label = GroupRef::EveryKey(name.clone()).to_string();
                self.entry(label).add(slots(status));
                match &mut self.keys {
                    Some((of, sum)) if of == name => sum.add(slots(status)),
                    keys => *keys = Some((name.clone(), slots(status))),
                }
            }
            group if status.limit.is_some() => {
                let (acquired, rejected) = (status.acquired, status.rejected);
                let of_group = self.entry(group.to_string());
                of_group.limit = status.limit;
                of_group.add(OfGroup { acquired, rejected, ..slots(status) });
            }
            _ => {}
        }
    }

    /// Where a label is counted.
    fn entry(&mut self, label: String) -> &mut OfGroup {
        if self.groups.len() >= LABELS && !self.groups.contains_key(&label) {
            // A sum over groups has no limit.
            self.other_groups.limit = None;
            return &mut self.other_groups;
        }
        self.groups.entry(label).or_default()
    }

    /// Adds the keys of a group that the pages so far do not have.
    async fn sum_of_keys(&mut self, store: &dyn Store, name: &Name) -> Result<()> {
        let Some((_, known)) = self.keys.take().filter(|(of, _)| of == name) else { return Ok(()) };
        let every_key = GroupRef::EveryKey(name.clone());
        let label = every_key.to_string();
        let all = slots(&store.group(every_key).await?.status);
        let (used, waiting) =
            (all.used.saturating_sub(known.used), all.waiting.saturating_sub(known.waiting));
        self.entry(label).add(OfGroup { used, waiting, ..OfGroup::default() });
        Ok(())
    }
}

fn slots(status: &GroupStatus) -> OfGroup {
    let waiting = status.live.saturating_sub(status.used);
    OfGroup { used: status.used, waiting, ..OfGroup::default() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_key_comes_after_the_last_one() {
        let longest = Key::parse("key", &"\u{10fffe}".repeat(64)).expect("a key");
        let all_bytes = Key::parse("key", &"z".repeat(256)).expect("a key");
        assert!(last_key() > longest && last_key() > all_bytes);
    }
}
