//! An attempt while it runs in this process: who owns it, and whether it shall stop.

use crate::context::CancelReason;
use crate::worker::lease::Lease;
use qo_core::{ClaimedJob, FenceToken, JobId, Key, Name, RetryPolicy, SessionId};
use std::collections::BTreeMap;
use std::future::pending;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use tokio::sync::watch;
use tokio::time::Instant;

/// What is known of a claim, but for the payload.
#[derive(Debug, Clone)]
pub(crate) struct Claimed {
    pub job: JobId,
    pub token: FenceToken,
    pub attempt: u32,
    pub max_attempts: u32,
    pub queue: Name,
    pub task: Name,
    pub group: Name,
    pub key: Option<Key>,
    pub timeout_ms: Option<u64>,
    pub retry: RetryPolicy,
}

impl Claimed {
    pub fn of(job: &ClaimedJob) -> Self {
        Self {
            job: job.id,
            token: job.token,
            attempt: job.attempt,
            max_attempts: job.max_attempts,
            queue: job.queue.clone(),
            task: job.task.clone(),
            group: job.group.clone(),
            key: job.key.clone(),
            timeout_ms: job.timeout_ms,
            retry: job.retry,
        }
    }
}

/// An attempt was told to stop.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Stopping {
    /// What it was told first.
    pub reason: CancelReason,
    /// When its handler is dropped, if it has not come to an end.
    pub drop_at: Instant,
    /// Since when its lease is lost, if it is.
    pub lost_at: Option<Instant>,
}

/// What a handler said of itself.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Progress {
    pub fraction: f64,
    pub note: String,
}

/// An attempt that runs.
#[derive(Debug)]
pub(crate) struct Attempt {
    pub claim: Claimed,
    /// The lease of the session that claimed it.
    pub lease: Arc<Lease>,
    /// When the exchange that claimed it was first sent: the store's clock for it started later.
    pub sent: Instant,
    pub started: Instant,
    stop: watch::Sender<Option<Stopping>>,
    /// Holds that are alive.
    holds: watch::Sender<usize>,
    progress: Mutex<Option<Progress>>,
    /// Nothing of it runs any more; the loop may not have taken note of it yet.
    over: AtomicBool,
}

impl Attempt {
    pub fn new(claim: Claimed, lease: Arc<Lease>, sent: Instant, started: Instant) -> Self {
        Self {
            claim,
            lease,
            sent,
            started,
            stop: watch::Sender::new(None),
            holds: watch::Sender::new(0),
            progress: Mutex::default(),
            over: AtomicBool::new(false),
        }
    }

    /// Tells the handler to stop. What it is told first is the reason that counts; the earliest date counts.
    pub fn cancel(&self, reason: CancelReason, drop_at: Instant) {
        let lost_at = (reason == CancelReason::LeaseLost).then(Instant::now);
        self.stop.send_if_modified(|stop| {
            let now = Stopping { reason, drop_at, lost_at };
            let then = match *stop {
                None => now,
                Some(old) => Stopping {
                    reason: old.reason,
                    drop_at: old.drop_at.min(drop_at),
                    lost_at: old.lost_at.or(lost_at),
                },
            };
            let news = stop.is_none_or(|old| old.drop_at != then.drop_at || old.lost_at != then.lost_at);
            *stop = Some(then);
            news
        });
    }

    /// Nothing of it runs any more.
    pub fn end(&self) {
        self.over.store(true, Ordering::SeqCst);
    }

    pub fn stopping(&self) -> Option<Stopping> {
        *self.stop.borrow()
    }

    /// Waits until it is told to stop.
    pub async fn told_to_stop(&self) -> Stopping {
        let mut stop = self.stop.subscribe();
        match stop.wait_for(Option::is_some).await.map(|stop| *stop) {
            Ok(Some(stopping)) => stopping,
            Ok(None) | Err(_) => pending().await,
        }
    }

    /// Waits until its handler is to be dropped.
    pub async fn time_is_up(&self) {
        let mut stop = self.stop.subscribe();
        loop {
            let drop_at = match stop.wait_for(Option::is_some).await.map(|stop| *stop) {
                Ok(Some(stopping)) => stopping.drop_at,
                Ok(None) | Err(_) => pending().await,
            };
            tokio::select! {
                biased;
                () = tokio::time::sleep_until(drop_at) => return,
                _ = stop.changed() => {}
            }
        }
    }

    pub fn hold(self: &Arc<Self>) -> Hold {
        self.holds.send_modify(|holds| *holds += 1);
        Hold(Arc::clone(self))
    }

    /// Waits until nothing of it goes on elsewhere.
    pub async fn let_go(&self) {
        // The sender is in `self`: it cannot be gone.
        let _ = self.holds.subscribe().wait_for(|holds| *holds == 0).await;
    }

    pub fn report_progress(&self, fraction: f64, note: &str) {
        let fraction = if fraction.is_finite() { fraction.clamp(0.0, 1.0) } else { 0.0 };
        let mut progress = self.progress.lock().unwrap_or_else(PoisonError::into_inner);
        *progress = Some(Progress { fraction, note: note.to_owned() });
    }
}

/// Keeps an attempt running, as far as the worker is concerned.
#[derive(Debug)]
pub struct Hold(Arc<Attempt>);

impl Drop for Hold {
    fn drop(&mut self) {
        self.0.holds.send_modify(|holds| *holds -= 1);
    }
}

/// All attempts that run in a worker, of all its sessions.
#[derive(Debug, Default)]
pub(crate) struct Attempts(Mutex<BTreeMap<FenceToken, Arc<Attempt>>>);

impl Attempts {
    fn lock(&self) -> MutexGuard<'_, BTreeMap<FenceToken, Arc<Attempt>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub fn insert(&self, attempt: Arc<Attempt>) {
        self.lock().insert(attempt.claim.token, attempt);
    }

    pub fn remove(&self, token: FenceToken) -> Option<Arc<Attempt>> {
        self.lock().remove(&token)
    }

    pub fn get(&self, token: FenceToken) -> Option<Arc<Attempt>> {
        self.lock().get(&token).cloned()
    }

    pub fn len(&self) -> usize {
        self.lock().len()
    }

    pub fn is_empty(&self) -> bool {
        self.lock().is_empty()
    }

    fn all(&self) -> Vec<Arc<Attempt>> {
        self.lock().values().cloned().collect()
    }

    /// Those of which something still runs.
    pub fn running(&self) -> Vec<Arc<Attempt>> {
        let mut all = self.all();
        all.retain(|attempt| !attempt.over.load(Ordering::SeqCst));
        all
    }

    /// Tells all of them to stop.
    pub fn cancel_all(&self, reason: CancelReason, drop_at: Instant) {
        self.all().iter().for_each(|attempt| attempt.cancel(reason, drop_at));
    }

    /// Tells those of a session, whose lease is lost, to stop.
    pub fn lose(&self, session: SessionId, drop_at: Instant) {
        let all = self.all();
        let lost = all.iter().filter(|attempt| attempt.lease.session == session);
        lost.for_each(|attempt| attempt.cancel(CancelReason::LeaseLost, drop_at));
    }
}
