//! Which token opened a session, and which session an attempt belongs to.
//!
//! A session belongs to the token that opened it. Its id stands in views, and a fence token is a number that can be
//! guessed, so neither proves anything. The owner of a session never changes, and the store keeps it; so what is
//! remembered here may be forgotten, and is looked up again.

use qo_core::{Error, ErrorKind, ExchangeReply, FenceToken, JobDetail, JobFilter, JobState, Name};
use qo_core::{Result, SessionId, Start, Store, TokenId, caps};
use std::collections::{HashMap, VecDeque};
use std::hash::Hash;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tokio::time::{Instant, sleep_until};

/// Most sessions that are remembered.
const SESSIONS: usize = 100_000;
/// Most attempts that are remembered.
const ATTEMPTS: usize = 100_000;
/// Least time between two looks at all sessions or running jobs, however many ids are guessed.
const PAUSE: Duration = Duration::from_millis(500);
/// Pages of running jobs that one look reads.
const PAGES: usize = 10;

/// What is known of sessions and attempts.
pub(crate) struct Owners {
    store: Arc<dyn Store>,
    sessions: Mutex<Bounded<SessionId, Option<TokenId>>>,
    attempts: Mutex<Bounded<FenceToken, Attempt>>,
    /// When the store was last asked for all sessions, and for running jobs.
    looked: [tokio::sync::Mutex<Option<Instant>>; 2],
}

/// An attempt of a job.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Attempt {
    /// The queue of its job.
    pub queue: Name,
    /// The session that owns or owned it.
    pub session: SessionId,
}

impl Owners {
    pub fn new(store: Arc<dyn Store>) -> Self {
        let (sessions, attempts) = (Bounded::new(SESSIONS), Bounded::new(ATTEMPTS));
        let (sessions, attempts) = (Mutex::new(sessions), Mutex::new(attempts));
        Self { store, sessions, attempts, looked: Default::default() }
    }

    /// A session was opened.
    pub fn opened(&self, session: SessionId, owner: Option<TokenId>) {
        locked(&self.sessions).insert(session, owner);
    }

    /// Whether the session is the token's, by what is remembered, else by the store. None if there is no such session.
    pub async fn owns(&self, token: TokenId, session: SessionId) -> Result<Option<bool>> {
        let known = || locked(&self.sessions).get(&session).map(|owner| *owner == Some(token));
        if let Some(owns) = known() {
            return Ok(Some(owns));
        }
        let mut looked = self.looked[0].lock().await;
        // Another call may have looked meanwhile.
        if let Some(owns) = known() {
            return Ok(Some(owns));
        }
        spaced(&mut looked).await;
        let workers = self.store.workers().await?;
        let mut sessions = locked(&self.sessions);
        for worker in workers {
            sessions.insert(worker.session, worker.owner);
        }
        drop(sessions);
        Ok(known())
    }

    /// An exchange with these starts has granted jobs.
    pub fn granted(&self, session: SessionId, starts: &[Start], reply: &ExchangeReply) {
        let mut attempts = locked(&self.attempts);
        let prefetched = reply.prefetched.iter().map(|prefetched| &prefetched.job);
        for job in reply.claimed.iter().chain(prefetched) {
            attempts.insert(job.token, Attempt { queue: job.queue.clone(), session });
        }
        // A start has another token than its claim.
        for (start, started) in starts.iter().zip(&reply.started) {
            let run = started.as_ref().ok().and_then(|started| started.run);
            if let (Some(run), Some(attempt)) = (run, attempts.get(&start.token).cloned()) {
                attempts.insert(run.token, attempt);
            }
        }
    }

    /// A caller was shown a job, and may ask for its logs.
    pub fn shown(&self, job: &JobDetail) {
        let mut attempts = locked(&self.attempts);
        let queue = &job.view.queue;
        for attempt in &job.attempts {
            attempts.insert(attempt.token, Attempt { queue: queue.clone(), session: attempt.session });
        }
        if let Some(running) = &job.view.running {
            attempts.insert(running.token, Attempt { queue: queue.clone(), session: running.session });
        }
    }

    /// The attempt with this token, if a caller of this server was granted or shown it.
    pub fn attempt(&self, token: FenceToken) -> Option<Attempt> {
        locked(&self.attempts).get(&token).cloned()
    }

    /// The attempt with this token, also if another server granted it and it still runs.
    pub async fn running(&self, token: FenceToken) -> Result<Option<Attempt>> {
        if let Some(attempt) = self.attempt(token) {
            return Ok(Some(attempt));
        }
        let mut looked = self.looked[1].lock().await;
        if let Some(attempt) = self.attempt(token) {
            return Ok(Some(attempt));
        }
        spaced(&mut looked).await;
        let filter =
            JobFilter { states: vec![JobState::Running], newest_first: true, ..JobFilter::default() };
        let mut after = None;
        for _ in 0..PAGES {
            let page = self.store.jobs(filter.clone(), after, caps::PAGE).await?;
            let mut attempts = locked(&self.attempts);
            for job in page.jobs {
                if let Some(running) = job.running {
                    attempts.insert(running.token, Attempt { queue: job.queue, session: running.session });
                }
            }
            let found = attempts.get(&token).cloned();
            after = page.next;
            if found.is_some() || after.is_none() {
                return Ok(found);
            }
        }
        Ok(None)
    }
}

/// The error of a caller whose session this is not. It does not say whether there is such a session.
pub(super) fn not_owned(session: SessionId) -> Error {
    Error::new(ErrorKind::Fenced, format!("session {session} has ended, or another caller opened it"))
}

/// Waits until the last look is long enough ago.
async fn spaced(looked: &mut Option<Instant>) {
    if let Some(last) = *looked {
        sleep_until(last + PAUSE).await;
    }
    *looked = Some(Instant::now());
}

fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A map that forgets its oldest entry when it is full.
struct Bounded<K, V> {
    entries: HashMap<K, V>,
    order: VecDeque<K>,
    most: usize,
}

impl<K: Copy + Eq + Hash, V> Bounded<K, V> {
    fn new(most: usize) -> Self {
        Self { entries: HashMap::new(), order: VecDeque::new(), most }
    }

    fn get(&self, key: &K) -> Option<&V> {
        self.entries.get(key)
    }

    fn insert(&mut self, key: K, value: V) {
        if self.entries.insert(key, value).is_some() {
            return;
        }
        self.order.push_back(key);
        if self.order.len() > self.most
            && let Some(oldest) = self.order.pop_front()
        {
            self.entries.remove(&oldest);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_full_map_forgets_its_oldest_entry() {
        let mut map = Bounded::new(2);
        for key in [1, 2, 1, 3] {
            map.insert(key, key * 10);
        }
        assert_eq!([map.get(&1), map.get(&2), map.get(&3)], [None, Some(&20), Some(&30)]);
        assert_eq!(map.order.len(), map.entries.len());
    }
}
