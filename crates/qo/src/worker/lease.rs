//! Whether a worker still owns the jobs that it runs, and what it does when it cannot be sure.
//!
//! A worker trusts its lease until the moment at which it *first sent* the renewal, plus the lease, minus a margin, on
//! its own monotonic clock. The store cannot have ended the lease by then, however long the answer took.
//!
//! 1. When trust ends, the watch tells all handlers to stop.
//! 2. A handler that has not stopped is dropped after the cancel grace, at the latest half a margin later. That is
//!    still before the lease can be over.
//! 3. A handler that blocks a thread cannot be dropped. The watch ends the process a moment after it should have been
//!    dropped (exit code 70), before the lease can be over. It does the same when the store has ended the claim of such
//!    a handler, because of its timeout or an operator: another job may hold its slot. A process under a guard is left
//!    to its guard, and the watch waits for the cancel grace first.
//!
//! The margin is max(1 s, lease / 10), but at most a third of the lease: otherwise a worker would never trust a lease
//! of one second. On a store with a coarse clock, such as a bucket, trust ends earlier by that coarseness.
//!
//! This watch runs on a thread of its own, so neither the user's event loop nor the store can hold it up. After a stall
//! of the whole process the watch is overdue and acts at once. A handler whose lease is over is not polled again, even
//! if the watch has not acted yet.

use crate::exit;
use crate::guard::Control;
use crate::worker::attempt::{Attempt, Attempts, Stopping};
use qo_core::{FenceToken, SessionId, Time};
use std::fmt;
use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::time::Duration;
use tokio::sync::Notify;
use tokio::time::Instant;

/// How long it may take to drop a handler whose time is up; under a short lease a third of the margin.
const DROPPING: Duration = Duration::from_millis(250);
/// How long the process may take to end when a handler was not dropped in time. Then it is killed.
const ENDING: Duration = Duration::from_millis(100);

/// How much earlier than the store a worker stops trusting a lease.
pub fn margin(lease: Duration) -> Duration {
    Duration::from_secs(1).max(lease / 10).min(lease / 3)
}

/// How long a lease of this length is trusted after it was first asked for, on a store that may end it earlier than
/// agreed by `coarseness`. The sessions of workers and the slots of programs share this rule.
pub fn trusted_for(lease: Duration, coarseness: Duration) -> Duration {
    lease.saturating_sub(margin(lease) + coarseness.min(lease / 3))
}

/// The lease of one session.
#[derive(Debug)]
pub(crate) struct Lease {
    pub session: SessionId,
    origin: Instant,
    /// Its usual length.
    length: Duration,
    margin: Duration,
    /// How much earlier than agreed the store may end it.
    coarseness: Duration,
    /// Microseconds after the origin.
    trusted_until: AtomicU64,
    /// Store time, in milliseconds.
    lease_until: AtomicI64,
    /// The watch has told the attempts to stop.
    lost: AtomicBool,
    /// Programs that must not outlive it, and the deadline that they were told last, in microseconds after the origin.
    guards: Mutex<(u64, Vec<Weak<Control>>)>,
}

impl Lease {
    /// A lease that was first asked for at `sent`.
    pub fn new(
        session: SessionId,
        sent: Instant,
        length: Duration,
        coarseness: Duration,
        lease_until: Time,
    ) -> Self {
        let lease = Self {
            session,
            origin: sent,
            length,
            margin: margin(length),
            coarseness,
            trusted_until: AtomicU64::new(0),
            lease_until: AtomicI64::new(0),
            lost: AtomicBool::new(false),
            guards: Mutex::default(),
        };
        lease.renew(sent, length, lease_until);
        lease
    }

    /// Renews the lease for `length`, by an exchange that was first sent at `sent`. A lease that was renewed for longer
    /// because the worker was idle gets shorter again when a job runs.
    ///
    /// Returns whether the watch has to look: the lease was lost meanwhile, or it now ends before the watch wakes up.
    pub fn renew(&self, sent: Instant, length: Duration, lease_until: Time) -> bool {
        let until = sent.duration_since(self.origin) + self.trusted_for(length);
        let before = self.trusted_until.swap(micros(until), Ordering::SeqCst);
        self.lease_until.store(lease_until.as_millis(), Ordering::SeqCst);
        self.tell_guards();
        self.lost.swap(false, Ordering::SeqCst) || micros(until) < before
    }

    /// How long it is trusted after a renewal for `length`: a longer lease has the margin of the usual one.
    fn trusted_for(&self, length: Duration) -> Duration {
        length.saturating_sub(self.length - trusted_for(self.length, self.coarseness))
    }

    /// Until when it is trusted.
    pub fn trusted_until(&self) -> Instant {
        self.origin + Duration::from_micros(self.trusted_until.load(Ordering::SeqCst))
    }

    /// From then on nothing of a handler may run. It is before the store can end the lease.
    pub fn over_at(&self) -> Instant {
        self.trusted_until() + self.margin / 2
    }

    pub fn is_trusted(&self) -> bool {
        Instant::now() < self.trusted_until()
    }

    pub fn is_over(&self) -> bool {
        Instant::now() >= self.over_at()
    }

    /// The end of the lease, in store time.
    pub fn lease_until(&self) -> Time {
        Time::from_millis(self.lease_until.load(Ordering::SeqCst))
    }

    /// How long a handler that has lost its claim may take to stop.
    pub fn margin(&self) -> Duration {
        self.margin
    }

    /// How long it may take to drop a handler. The lease is not over by then.
    fn dropping(&self) -> Duration {
        DROPPING.min(self.margin / 3)
    }

    /// Adds a program that must be killed when the lease is over: its guard is told of every renewal from now on.
    pub fn guard(&self, control: &Arc<Control>) {
        let mut guards = self.guards.lock().unwrap_or_else(PoisonError::into_inner);
        control.until(self.over_at());
        guards.1.push(Arc::downgrade(control));
    }

    /// Takes a program out that runs nothing under this lease any more, and its deadline away.
    pub fn unguard(&self, control: &Arc<Control>) {
        let mut guards = self.guards.lock().unwrap_or_else(PoisonError::into_inner);
        guards.1.retain(|guard| guard.as_ptr() != Arc::as_ptr(control));
        // Under the lock: a renewal on another thread sets no deadline after this.
        control.never();
    }

    fn tell_guards(&self) {
        let until = self.trusted_until.load(Ordering::SeqCst);
        let mut guards = self.guards.lock().unwrap_or_else(PoisonError::into_inner);
        // A busy worker renews with every exchange; the guards need not hear of each renewal.
        let is_much_the_same = until >= guards.0 && until < guards.0 + micros(self.length / 12);
        if guards.1.is_empty() || is_much_the_same {
            return;
        }
        guards.0 = until;
        let over_at = self.over_at();
        guards.1.retain(|guard| guard.upgrade().map(|control| control.until(over_at)).is_some());
    }
}

fn micros(duration: Duration) -> u64 {
    u64::try_from(duration.as_micros()).unwrap_or(u64::MAX)
}

/// What a worker does when a handler does not stop: see [`WorkerBuilder::on_stuck`](crate::WorkerBuilder::on_stuck).
#[derive(Clone)]
pub(crate) enum OnStuck {
    /// End the process with this exit code.
    Exit(i32),
    /// Call this.
    Call(Arc<dyn Fn(FenceToken) + Send + Sync>),
}

/// The watch over a worker's leases.
pub(crate) struct Watch {
    attempts: Arc<Attempts>,
    lease: Mutex<Option<Arc<Lease>>>,
    /// The watch has to look.
    news: Notify,
    /// The worker is done.
    ended: AtomicBool,
    cancel_grace: Duration,
    on_stuck: OnStuck,
}

impl fmt::Debug for Watch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Watch").field("lease", &self.lease).finish_non_exhaustive()
    }
}

impl Watch {
    pub fn new(attempts: Arc<Attempts>, cancel_grace: Duration, on_stuck: OnStuck) -> Self {
        let (lease, news, ended) = (Mutex::default(), Notify::new(), AtomicBool::new(false));
        Self { attempts, lease, news, ended, cancel_grace, on_stuck }
    }

    /// Sets the lease of the open session; none if no session is open.
    pub fn set_lease(&self, lease: Option<Arc<Lease>>) {
        *self.lease.lock().unwrap_or_else(PoisonError::into_inner) = lease;
        self.news.notify_one();
    }

    /// Wakes the watch: attempts were told that their lease is lost, or a lost lease was renewed.
    pub fn look(&self) {
        self.news.notify_one();
    }

    /// The worker is done: the watch ends when no handler is left.
    pub fn end(&self) {
        self.ended.store(true, Ordering::SeqCst);
        self.news.notify_one();
    }

    /// Watches until the worker is done.
    pub async fn run(&self) {
        let mut stuck = Vec::new();
        loop {
            let next = self.step(&mut stuck);
            if self.ended.load(Ordering::SeqCst) && self.attempts.running().is_empty() {
                return;
            }
            match next {
                Some(next) => {
                    let _ = tokio::time::timeout_at(next, self.news.notified()).await;
                }
                None => self.news.notified().await,
            }
        }
    }

    /// Acts on everything that is overdue and returns when to look again.
    fn step(&self, stuck: &mut Vec<FenceToken>) -> Option<Instant> {
        let now = Instant::now();
        let lease = self.lease.lock().unwrap_or_else(PoisonError::into_inner).clone();
        let trust_ends = lease.as_ref().and_then(|lease| {
            let until = lease.trusted_until();
            if now < until {
                return Some(until);
            }
            let noticed = lease.lost.swap(true, Ordering::SeqCst);
            // A renewal may have come just before `lost` was set. A later renewal sees `lost` and wakes the watch.
            let until = lease.trusted_until();
            if now < until {
                lease.lost.store(false, Ordering::SeqCst);
                return Some(until);
            }
            self.attempts.lose(lease.session, lease.over_at().min(now + self.cancel_grace));
            if !noticed {
                let running = self.attempts.running().len();
                tracing::warn!(session = %lease.session, running, "the lease can no longer be trusted");
            }
            None
        });
        let lost: Vec<(Instant, Arc<Attempt>)> = self
            .attempts
            .running()
            .into_iter()
            .filter_map(|attempt| {
                let Stopping { drop_at, lost_at, .. } = attempt.stopping()?;
                let at = match attempt.is_guarded() {
                    true => lost_at? + self.cancel_grace + DROPPING,
                    false => drop_at.max(lost_at?) + attempt.lease.dropping(),
                };
                Some((at, attempt))
            })
            .filter(|(_, attempt)| !stuck.contains(&attempt.claim.token))
            .collect();
        for (at, attempt) in &lost {
            if *at <= now {
                let (job, token, task) = (attempt.claim.job, attempt.claim.token, &attempt.claim.task);
                if let OnStuck::Exit(_) = self.on_stuck {
                    // Before the log: it may wait for a reader.
                    exit::kill_within(ENDING);
                }
                tracing::error!(%job, %token, %task, "the handler still runs although its lease was lost");
                stuck.push(token);
                match &self.on_stuck {
                    OnStuck::Exit(code) => std::process::exit(*code),
                    OnStuck::Call(act) => act(token),
                }
            }
        }
        let stuck_at = lost.into_iter().map(|(at, _)| at).filter(|at| *at > now).min();
        // No event tells the watch that an attempt has ended.
        let end = self.ended.load(Ordering::SeqCst).then(|| now + Duration::from_millis(50));
        trust_ends.into_iter().chain(stuck_at).chain(end).min()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use uuid::Uuid;

    #[test]
    fn the_watch_looks_when_an_idle_lease_becomes_a_usual_one() {
        let (sent, until) = (Instant::now(), Time::from_millis(0));
        let [usual, idle] = [4, 40].map(Duration::from_secs);
        let lease = Lease::new(SessionId(Uuid::nil()), sent, usual, Duration::ZERO, until);
        assert!(!lease.renew(sent, idle, until), "it ends later: the watch finds that when it wakes up");
        assert!(lease.renew(sent + usual, usual, until), "it ends sooner than the watch knows");
        assert!(!lease.renew(sent + 2 * usual, usual, until));
    }

    #[test]
    fn a_lease_is_trusted_for_less_where_the_store_tells_time_coarsely() {
        let (sent, until) = (Instant::now(), Time::from_millis(0));
        let trusted = |length_ms, coarse_ms| {
            let [length, coarseness] = [length_ms, coarse_ms].map(Duration::from_millis);
            let lease = Lease::new(SessionId(Uuid::nil()), sent, length, coarseness, until);
            (lease.trusted_until() - sent, lease.over_at() - sent)
        };
        let ms = Duration::from_millis;
        assert_eq!(trusted(30_000, 0), (ms(27_000), ms(28_500)));
        assert_eq!(trusted(5_000, 0), (ms(4_000), ms(4_500)));
        // The store may end it after 3.75 s: nothing runs by then.
        assert_eq!(trusted(5_000, 1_250), (ms(2_750), ms(3_250)));
        // The same rule for the slots of programs.
        assert_eq!(trusted_for(ms(5_000), ms(1_250)), ms(2_750));
        assert_eq!(trusted_for(ms(1_000), ms(1_250)).as_millis(), 333);
    }
}
