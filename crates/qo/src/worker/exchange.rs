//! The exchange: what it asks for, and what the worker does with the answer.
//!
//! An exchange settles finished attempts, starts jobs that were claimed ahead, renews the session and claims, in one
//! numbered step. One exchange is under way at a time.
//!
//! After `Unknown` the worker sends the same number again with the same content, and the lease counts from the first
//! sending. Attempts that finish meanwhile go with the next exchange. If every try ended with `Unavailable`, nothing
//! can have happened: the number is still free for newer content.

use crate::context::CancelReason;
use crate::worker::attempt::Claimed;
use crate::worker::fetch::{Fetcher, passes};
use crate::worker::run::run;
use crate::worker::session::Session;
use crate::worker::shutdown::Phase;
use crate::worker::voice;
use qo_core::millis;
use qo_core::{Claim, ClaimedJob, ErrorKind, Exchange, ExchangeReply, Granted, JobState, Outcome};
use qo_core::{Result, Settle, Start, Started, Stop, StopReason, caps};
use std::sync::Arc;
use std::time::Duration;
use tokio::time::Instant;

/// The session of an idle worker lives this many times as long as usual, where renewals cost something.
const IDLE_LEASES: u64 = 10;

/// How often progress alone is a reason to exchange.
const REPORT_EVERY: Duration = Duration::from_secs(1);

/// The result of an exchange.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Brought {
    /// It was made. It brought jobs, starts or stops.
    News,
    /// It was made, and brought nothing.
    Nothing,
    /// It was not made: the work that it was to fetch is gone.
    NotMade,
}

impl Fetcher {
    /// One exchange, repeated until it is answered. With `only_for_work` it is not made if it has nothing to report and
    /// there is no work left.
    pub(super) async fn exchange(&mut self, session: &mut Session, only_for_work: bool) -> Result<Brought> {
        let mut exchange = self.compose(session);
        let mut sent = Instant::now();
        let mut may_have_happened = false;
        for tries in 1.. {
            let error =
                match self.answer(tries, self.send(&exchange, only_for_work && !may_have_happened)).await {
                    Ok(Some(reply)) => {
                        self.refusals = 0;
                        session.looks.due = true;
                        let news = self.absorb(session, &exchange, reply, sent);
                        return Ok(if news { Brought::News } else { Brought::Nothing });
                    }
                    Ok(None) => return Ok(Brought::NotMade),
                    Err(error) if passes(&error) => error,
                    Err(error) => return Err(error),
                };
            may_have_happened |= error.kind() == ErrorKind::Unknown;
            if self.phase() == Phase::Releasing && session.lease.is_over() {
                // Nothing here runs any more, and the session has ended or soon will.
                return Err(error);
            }
            self.pause(tries, &error).await;
            if !may_have_happened {
                self.collect();
                exchange = self.compose(session);
                sent = Instant::now();
            }
        }
        unreachable!("it is tried until it is answered")
    }

    /// Sends an exchange. None if it was only for work and there was none.
    async fn send(&self, exchange: &Exchange, only_for_work: bool) -> Result<Option<ExchangeReply>> {
        if only_for_work && exchange.only_asks() {
            self.shared.store.fetch(exchange.clone()).await
        } else {
            self.shared.store.exchange(exchange.clone()).await.map(Some)
        }
    }

    /// Permits that no handler uses.
    pub(super) fn free_permits(&self) -> u32 {
        let running = u32::try_from(self.shared.attempts.len()).unwrap_or(u32::MAX);
        self.shared.permits.saturating_sub(running)
    }

    fn starts(&self, session: &Session) -> Vec<Start> {
        if self.phase() != Phase::Working {
            return Vec::new();
        }
        let buffered = session.buffer.iter().take(self.free_permits() as usize);
        buffered.map(|(&token, job)| Start { job: job.id, token }).collect()
    }

    /// What to claim when this many claimed jobs start with the same exchange.
    pub(super) fn claim(&mut self, session: &Session, starts: usize) -> Claim {
        if self.phase() != Phase::Working {
            return Claim::default();
        }
        let options = &self.shared.options;
        let permits = self.shared.permits;
        let running = u32::try_from(self.shared.attempts.len()).unwrap_or(u32::MAX);
        let starts = u32::try_from(starts).unwrap_or(u32::MAX);
        let free = permits.saturating_sub(running).saturating_sub(starts);
        let held = running.saturating_add(u32::try_from(session.buffer.len()).unwrap_or(u32::MAX));
        let claim = options.claim.claim(permits, free, held);
        self.pressure.ease(claim, Instant::now())
    }

    /// The next exchange of a session, with everything that the worker has to report now.
    fn compose(&mut self, session: &Session) -> Exchange {
        let starts = self.starts(session);
        let idle_ms = self.idle_ms(session);
        let memory_percent = self.pressure.memory_percent(Instant::now());
        self.shared.metrics.pressed(memory_percent, self.pressure.capacity_percent());
        Exchange {
            session: session.id,
            number: session.number,
            settles: self.settles.batch(),
            // Looks find the work of an idle worker: its renewal does not claim.
            claim: if idle_ms.is_some() { Claim::default() } else { self.claim(session, starts.len()) },
            starts,
            progress: self.shared.attempts.untold(),
            free_permits: self.free_permits(),
            memory_percent,
            draining: self.phase() != Phase::Working,
            idle_ms,
        }
    }

    /// How long to renew an idle session for; none for the usual lease. Idle means that the session is renewed only
    /// because its lease needs it.
    fn idle_ms(&self, session: &Session) -> Option<u64> {
        let is_idle = self.phase() == Phase::Working
            && self.settles.is_empty()
            && self.shared.attempts.is_empty()
            && session.buffer.is_empty()
            && Instant::now() >= session.renew_at;
        let lease_ms = millis(self.shared.options.lease);
        (is_idle && self.shared.store.renewals_cost())
            .then(|| lease_ms.saturating_mul(IDLE_LEASES).min(caps::LEASE_MAX_MS))
    }

    /// Acts on the answer to an exchange that was first sent at `sent`. Returns whether it brought anything.
    fn absorb(
        &mut self,
        session: &mut Session,
        exchange: &Exchange,
        reply: ExchangeReply,
        sent: Instant,
    ) -> bool {
        session.number += 1;
        let lease = Duration::from_millis(reply.lease_until.ms_since(reply.now));
        session.renew_at = sent + lease / 3;
        session.told_draining |= exchange.draining;
        if session.lease.renew(sent, lease, reply.lease_until) {
            self.shared.watch.look();
        }
        self.shared.attempts.told(&exchange.progress);
        session.report_at = sent + REPORT_EVERY;
        self.settles.acknowledge(exchange.settles.len());
        for (settle, result) in exchange.settles.iter().zip(&reply.settled) {
            self.settled(settle, result);
        }
        let mut news = false;
        for stop in &reply.stop {
            news |= session.buffer.remove(&stop.token).is_some() | self.stop(session, stop);
        }
        let mut jobs = reply.claimed;
        self.shared.metrics.claimed(jobs.len() + reply.prefetched.len());
        // A server measures the waits of its clients itself.
        if !self.shared.store.is_served() {
            let ahead = reply.prefetched.iter().map(|ahead| &ahead.job);
            for job in jobs.iter().chain(ahead) {
                let waited = job.due_at.map(|due_at| reply.now.ms_since(due_at));
                waited.into_iter().for_each(|ms| self.shared.metrics.waited(&job.group, ms));
            }
        }
        for (start, result) in exchange.starts.iter().zip(reply.started) {
            news = true;
            let job = session.buffer.remove(&start.token);
            if let (Some(job), Ok(Started { run: Some(granted), .. })) = (job, result) {
                let Granted { token, timeout_ms, retry } = granted;
                jobs.push(ClaimedJob { token, timeout_ms, retry, ..job });
            }
        }
        if exchange.draining {
            session.buffer.clear();
        }
        news |= !jobs.is_empty() || !reply.prefetched.is_empty();
        let ahead = reply.prefetched.into_iter().map(|ahead| (ahead.job.token, ahead.job));
        session.buffer.extend(ahead);
        jobs.into_iter().for_each(|job| self.start(session, job, sent));
        news
    }

    fn settled(&mut self, settle: &Settle, result: &Result<JobState>) {
        let Err(error) = result else { return };
        let (job, token) = (settle.job, settle.token);
        match error.kind() {
            ErrorKind::Fenced => {
                self.shared.metrics.fenced();
                tracing::warn!(%job, %token, "the outcome came too late, its claim has ended: {error}");
            }
            // The worker checked it before sending. A job that is never settled would hold its slots for ever, so it
            // fails.
            ErrorKind::Invalid if !matches!(settle.outcome, Outcome::Fail { .. }) => {
                tracing::error!(%job, %token, "the store refuses the outcome, the job fails instead: {error}");
                let outcome = Outcome::Fail { error: error.message().into() };
                self.settles.push(Settle { job, token, outcome });
            }
            _ => tracing::error!(%job, %token, "the job cannot be settled: {error}"),
        }
    }

    /// Stops a handler because the store says so. Returns whether that is news.
    fn stop(&self, session: &Session, stop: &Stop) -> bool {
        let Some(attempt) = self.shared.attempts.get(stop.token) else { return false };
        let news = attempt.stopping().is_none();
        let grace = self.cancel_grace();
        let (reason, grace) = match stop.reason {
            StopReason::Cancelled => (CancelReason::Cancelled, grace),
            // Another job may hold its slots by now.
            StopReason::LeaseEnded => (CancelReason::LeaseEnded, grace.min(session.lease.margin())),
        };
        attempt.cancel(reason, Instant::now() + grace);
        self.shared.watch.look();
        news
    }

    /// Runs a job that this worker owns, unless the answer took so long that the lease may be over, or the worker shuts
    /// down.
    fn start(&mut self, session: &Session, job: ClaimedJob, sent: Instant) {
        let handler = self.shared.handlers.get(&job.task);
        let (Some(handler), true, Phase::Working) = (handler, session.lease.is_trusted(), self.phase())
        else {
            self.settles.push(Settle { job: job.id, token: job.token, outcome: Outcome::Release });
            return;
        };
        // The store checked it at submission. What is stored may still be damaged, and no handler may get such a
        // payload.
        if let Err(error) = job.payload.check("payload") {
            tracing::error!(job = %job.id, task = %job.task, "the job cannot be read, and fails: {error}");
            let outcome = Outcome::Fail { error: error.to_string().into() };
            self.settles.push(Settle { job: job.id, token: job.token, outcome });
            return;
        }
        let lease = Arc::clone(&session.lease);
        let attempt = self.shared.attempts.begin(Claimed::of(&job), lease, sent);
        self.shared.metrics.started();
        voice::started(&attempt.claim);
        let (handler, report) = (Arc::clone(handler), self.report.clone());
        let logs = Arc::clone(&self.shared.logs);
        self.runtime.spawn(run(attempt, handler, job.payload, self.cancel_grace(), logs, report));
    }
}
