//! Requests that wait for the end of a job, and streams of events: how many there may be, and what they cost.
//!
//! Waiting requests do not ask the store by themselves:
//!
//! 1. A request enters its job here, then looks at it. If the job has not ended, the request waits.
//! 2. One task ([`Waits::look`]) looks at each awaited job once after a change of the store, however many requests wait
//!    for it, and wakes them if it has ended.
//! 3. After a round the task pauses for as long as the round took, so waiting takes at most half of one caller's share
//!    of the store, also while the store changes all the time.
//!
//! Invariants:
//! - A request enters its job before it looks, so no end is missed between the two.
//! - The task only wakes. What the caller may see is decided when it looks for itself, in its own store.

use super::problem::Problem;
use crate::wake::Wakes;
use qo_core::{ErrorKind, JobId, Store};
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tokio::sync::{Notify, OwnedSemaphorePermit, Semaphore, watch};
use tokio::time::{Instant, sleep};

/// Most requests and streams that wait at once. More of them are refused.
const PLACES: usize = 2_000;
/// The pause between two rounds of looks, at least and at most.
const PAUSE: (Duration, Duration) = (Duration::from_millis(10), Duration::from_secs(2));
/// How often it looks although it has heard of no change: where the store tells of changes, and where it cannot.
const LOOK_ANYWAY: (Duration, Duration) = (Duration::from_secs(5), Duration::from_secs(1));

/// What waits on this server.
pub(crate) struct Waits {
    store: Arc<dyn Store>,
    places: Arc<Semaphore>,
    /// Becomes true when the job has ended, or is gone.
    jobs: Mutex<BTreeMap<JobId, watch::Sender<bool>>>,
    /// A request has begun to wait.
    began: Notify,
}

impl Waits {
    pub fn new(store: Arc<dyn Store>) -> Arc<Self> {
        Arc::new(Self {
            store,
            places: Arc::new(Semaphore::new(PLACES)),
            jobs: Mutex::default(),
            began: Notify::new(),
        })
    }

    /// A place for a request that waits.
    pub fn place(&self) -> Result<OwnedSemaphorePermit, Problem> {
        let place = Arc::clone(&self.places).try_acquire_owned();
        place.map_err(|_| Problem::busy("too many requests wait: ask without waiting, or another server"))
    }

    /// Becomes true soon after the job has ended. Call it before looking at the job.
    pub fn end_of(&self, job: JobId) -> watch::Receiver<bool> {
        let end = self.jobs().entry(job).or_insert_with(|| watch::Sender::new(false)).subscribe();
        self.began.notify_one();
        end
    }

    /// Looks at the awaited jobs until it is dropped.
    pub async fn look(self: Arc<Self>, wakes: Arc<Wakes>) {
        let mut changes = wakes.of_all();
        loop {
            let began = self.began.notified();
            if self.jobs().is_empty() {
                began.await;
            }
            // Before the round: a change during it asks for another round.
            changes.borrow_and_update();
            let started = Instant::now();
            self.round().await;
            sleep(started.elapsed().clamp(PAUSE.0, PAUSE.1)).await;
            let anyway = if self.store.tells_changes() { LOOK_ANYWAY.0 } else { LOOK_ANYWAY.1 };
            tokio::select! {
                changed = changes.changed() => if changed.is_err() { return },
                () = sleep(anyway) => {}
            }
        }
    }

    async fn round(&self) {
        for job in self.awaited() {
            let ended = match self.store.job(job).await {
                Ok(detail) => detail.view.state.is_terminal(),
                Err(error) => error.kind() == ErrorKind::NotFound,
            };
            if ended && let Some(waiting) = self.jobs().remove(&job) {
                waiting.send_replace(true);
            }
        }
    }

    /// The jobs for which a request waits. Those of requests that have gone are forgotten.
    fn awaited(&self) -> Vec<JobId> {
        let mut jobs = self.jobs();
        jobs.retain(|_, waiting| waiting.receiver_count() > 0);
        jobs.keys().copied().collect()
    }

    fn jobs(&self) -> MutexGuard<'_, BTreeMap<JobId, watch::Sender<bool>>> {
        self.jobs.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use qo_core::MemoryStore;

    #[test]
    fn there_are_places_for_so_many_requests_and_no_more() {
        let waits = Waits::new(Arc::new(MemoryStore::new()));
        let mut places: Vec<_> = (0..PLACES).map(|_| waits.place().expect("a place")).collect();
        assert!(waits.place().is_err(), "one more is refused");
        places.pop();
        assert!(waits.place().is_ok(), "a place is free again");
    }

    #[test]
    fn a_job_for_which_no_request_waits_is_forgotten() {
        let waits = Waits::new(Arc::new(MemoryStore::new()));
        let job = qo_text::new_id();
        let (first, second) = (waits.end_of(job), waits.end_of(job));
        drop(first);
        assert_eq!(waits.awaited(), [job]);
        drop(second);
        assert_eq!(waits.awaited(), []);
    }
}
