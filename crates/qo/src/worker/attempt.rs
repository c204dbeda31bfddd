//! An attempt while it runs in this process: its claim, its lease, and whether it must stop.

use crate::context::CancelReason;
use crate::log::Tail;
use crate::trace::AttemptSpan;
use crate::worker::lease::Lease;
use crate::worker::shutdown::Phase;
use qo_core::{
    ClaimedJob, FenceToken, JobId, Key, Name, Progress, RetryPolicy, SessionId, Traceparent, caps,
};
use std::collections::BTreeMap;
use std::future::pending;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::Duration;
use tokio::sync::{Notify, watch};
use tokio::time::{Instant, timeout};

/// A claim without its payload.
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
    pub traceparent: Option<Traceparent>,
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
            traceparent: job.traceparent,
        }
    }
}

/// An attempt that was told to stop.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Stopping {
    /// The reason that it was told first.
    pub reason: CancelReason,
    /// When the worker drops its handler, if that has not ended by then.
    pub drop_at: Instant,
    /// Since when its lease is lost or its claim ended, if so: another worker may run the job.
    pub lost_at: Option<Instant>,
}

/// How far the handler says it is.
#[derive(Debug)]
struct Report {
    progress: Progress,
    /// The store has it.
    told: bool,
}

/// An attempt that runs.
#[derive(Debug)]
pub(crate) struct Attempt {
    pub claim: Claimed,
    /// Its span, for a collector.
    pub span: AttemptSpan,
    /// The lease of the session that claimed it.
    pub lease: Arc<Lease>,
    /// When the exchange that claimed it was first sent: the store's clock for it started later.
    pub sent: Instant,
    pub started: Instant,
    stop: watch::Sender<Option<Stopping>>,
    /// `Unfinished` marks that are alive.
    unfinished: watch::Sender<usize>,
    /// It runs under a guard, which ends it when its lease is over.
    guarded: AtomicBool,
    report: Mutex<Option<Report>>,
    /// What its handler has logged, from the first line on.
    logged: OnceLock<Tail>,
    /// Tells that there is a first line.
    begun_to_log: Notify,
    /// Some attempt of the worker has unreported progress.
    news: Arc<AtomicBool>,
    /// Nothing of it runs any more. The loop may not have collected it yet.
    over: AtomicBool,
    /// Whether its worker is shutting down.
    phase: watch::Receiver<Phase>,
}

impl Attempt {
    fn new(
        claim: Claimed,
        lease: Arc<Lease>,
        sent: Instant,
        news: Arc<AtomicBool>,
        phase: watch::Receiver<Phase>,
    ) -> Self {
        Self {
            span: AttemptSpan::begin(&claim),
            claim,
            lease,
            sent,
            started: Instant::now(),
            stop: watch::Sender::new(None),
            unfinished: watch::Sender::new(0),
            guarded: AtomicBool::new(false),
            report: Mutex::default(),
            logged: OnceLock::new(),
            begun_to_log: Notify::new(),
            news,
            over: AtomicBool::new(false),
            phase,
        }
    }

    /// Waits until its worker shuts down.
    pub async fn worker_stops(&self) {
        // The sender outlives every attempt except those of a dropped worker.
        if self.phase.clone().wait_for(|phase| *phase != Phase::Working).await.is_err() {
            pending().await
        }
    }

    /// Whether its worker shuts down within this time.
    pub async fn worker_stops_within(&self, patience: Duration) -> bool {
        timeout(patience, self.worker_stops()).await.is_ok()
    }

    /// Tells the handler to stop. The first reason counts, and the earliest date.
    pub fn cancel(&self, reason: CancelReason, drop_at: Instant) {
        let is_lost = matches!(reason, CancelReason::LeaseLost | CancelReason::LeaseEnded);
        let lost_at = is_lost.then(Instant::now);
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

    pub fn unfinished(self: &Arc<Self>) -> Unfinished {
        self.unfinished.send_modify(|unfinished| *unfinished += 1);
        Unfinished(Arc::clone(self))
    }

    pub fn unfinished_under_guard(self: &Arc<Self>) -> Unfinished {
        self.guarded.store(true, Ordering::SeqCst);
        self.unfinished()
    }

    pub fn is_guarded(&self) -> bool {
        self.guarded.load(Ordering::SeqCst)
    }

    /// Waits until no mark is left.
    pub async fn let_go(&self) {
        // The sender is in `self`, so it exists.
        let _ = self.unfinished.subscribe().wait_for(|unfinished| *unfinished == 0).await;
    }

    /// Takes what the handler logs.
    pub fn log(&self, text: &str) {
        let is_first = self.logged.get().is_none();
        self.logged.get_or_init(Tail::default).write(text.as_bytes());
        if is_first {
            self.begun_to_log.notify_one();
        }
    }

    /// What the handler has logged; none if it has logged nothing.
    pub fn logged(&self) -> Option<&Tail> {
        self.logged.get()
    }

    /// Waits until the handler logs something.
    pub async fn begins_to_log(&self) -> &Tail {
        loop {
            if let Some(logged) = self.logged.get() {
                return logged;
            }
            self.begun_to_log.notified().await;
        }
    }

    /// Takes the handler's report. The next exchange that there is time for carries it.
    pub fn report(&self, fraction: f64, note: &str) {
        let percent = (fraction * 100.0).round().clamp(0.0, 100.0) as u8;
        let (job, token) = (self.claim.job, self.claim.token);
        let progress = Progress { job, token, percent, note: note.into() };
        let mut report = self.report.lock().unwrap_or_else(PoisonError::into_inner);
        if report.as_ref().is_none_or(|last| last.progress != progress) {
            *report = Some(Report { progress, told: false });
            self.news.store(true, Ordering::SeqCst);
        }
    }

    /// Progress that the store does not know yet.
    fn untold(&self) -> Option<Progress> {
        let report = self.report.lock().unwrap_or_else(PoisonError::into_inner);
        report.as_ref().filter(|report| !report.told).map(|report| report.progress.clone())
    }

    fn told(&self, progress: &Progress) {
        let mut report = self.report.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(report) = report.as_mut().filter(|report| report.progress == *progress) {
            report.told = true;
        }
    }
}

/// While it lives, the worker counts the attempt as running.
#[derive(Debug)]
pub struct Unfinished(Arc<Attempt>);

impl Drop for Unfinished {
    fn drop(&mut self) {
        self.0.unfinished.send_modify(|unfinished| *unfinished -= 1);
    }
}

/// All attempts that run in a worker, of all its sessions.
#[derive(Debug)]
pub(crate) struct Attempts {
    by_token: Mutex<BTreeMap<FenceToken, Arc<Attempt>>>,
    /// One of them has unreported progress.
    news: Arc<AtomicBool>,
    phase: watch::Receiver<Phase>,
}

impl Attempts {
    /// No attempts yet, of a worker whose phase this is.
    pub fn new(phase: watch::Receiver<Phase>) -> Self {
        Self { by_token: Mutex::default(), news: Arc::default(), phase }
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<FenceToken, Arc<Attempt>>> {
        self.by_token.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Begins an attempt under a lease. The exchange that claimed it was first sent at `sent`.
    pub fn begin(&self, claim: Claimed, lease: Arc<Lease>, sent: Instant) -> Arc<Attempt> {
        let attempt = Arc::new(Attempt::new(claim, lease, sent, Arc::clone(&self.news), self.phase.clone()));
        self.lock().insert(attempt.claim.token, Arc::clone(&attempt));
        attempt
    }

    /// Whether one of them has unreported progress.
    pub fn has_news(&self) -> bool {
        self.news.load(Ordering::SeqCst)
    }

    /// Progress that the store does not know yet, as much as one exchange may carry.
    pub fn untold(&self) -> Vec<Progress> {
        if !self.has_news() {
            return Vec::new();
        }
        self.all().iter().filter_map(|attempt| attempt.untold()).take(caps::PROGRESS).collect()
    }

    /// The store has acknowledged this progress.
    pub fn told(&self, progress: &[Progress]) {
        if progress.is_empty() && !self.has_news() {
            return;
        }
        self.news.store(false, Ordering::SeqCst);
        for report in progress {
            self.get(report.token).iter().for_each(|attempt| attempt.told(report));
        }
        // A handler may have reported since the exchange was composed.
        if self.all().iter().any(|attempt| attempt.untold().is_some()) {
            self.news.store(true, Ordering::SeqCst);
        }
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

    /// Attempts of which something still runs.
    pub fn running(&self) -> Vec<Arc<Attempt>> {
        let mut all = self.all();
        all.retain(|attempt| !attempt.over.load(Ordering::SeqCst));
        all
    }

    /// Tells all of them to stop.
    pub fn cancel_all(&self, reason: CancelReason, drop_at: Instant) {
        self.all().iter().for_each(|attempt| attempt.cancel(reason, drop_at));
    }

    /// Tells the attempts of a session whose lease is lost to stop.
    pub fn lose(&self, session: SessionId, drop_at: Instant) {
        let all = self.all();
        let lost = all.iter().filter(|attempt| attempt.lease.session == session);
        lost.for_each(|attempt| attempt.cancel(CancelReason::LeaseLost, drop_at));
    }
}
