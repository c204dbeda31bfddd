//! The handlers of a simulated worker, which end in every possible way.

use super::stage::{Alarm, Stage};
use super::worker::{Session, Worker};
use crate::history::What;
use qo_core::{
    ClaimedJob, FenceToken, Granted, JobId, Json, Outcome, Progress, RetryPolicy, Settle, Stop, StopReason,
};

/// A job that a worker is given to run.
#[derive(Debug, Clone, Copy)]
pub(super) struct Run {
    job: JobId,
    token: FenceToken,
    attempt: u32,
    retry: RetryPolicy,
    timeout_ms: Option<u64>,
}

impl Run {
    /// One that starts as it is claimed.
    pub fn claimed(job: &ClaimedJob) -> Self {
        let &ClaimedJob { id: job, token, attempt, retry, timeout_ms, .. } = job;
        Self { job, token, attempt, retry, timeout_ms }
    }

    /// One that was claimed ahead of time: the start brought its token, timeout and backoff.
    pub fn started(job: &ClaimedJob, granted: Granted) -> Self {
        let Granted { token, timeout_ms, retry } = granted;
        Self { token, timeout_ms, retry, ..Self::claimed(job) }
    }
}

/// A handler that physically runs.
pub(super) struct Handler {
    job: JobId,
    attempt: u32,
    retry: RetryPolicy,
}

impl Handler {
    pub fn settle_released(&self, token: FenceToken) -> Settle {
        Settle { job: self.job, token, outcome: Outcome::Release }
    }

    fn report(&self, token: FenceToken, percent: u8) -> Progress {
        Progress { job: self.job, token, percent, note: "so far".into() }
    }

    fn retry(&self, stage: &mut Stage, error: &str) -> Outcome {
        Outcome::Retry {
            error: error.into(),
            delay_ms: self.retry.delay_ms(self.attempt, stage.random.unit()),
        }
    }

    fn any_outcome(&self, stage: &mut Stage) -> Outcome {
        // Once faults are over a handler neither snoozes nor releases: these have no last attempt, and the world could
        // not come to rest.
        let kinds = if stage.healed { 90 } else { 100 };
        match stage.random.below(kinds) {
            0..70 => Outcome::Succeed { output: Json::null() },
            70..85 => self.retry(stage, "it did not work"),
            85..90 => Outcome::Fail { error: "it never will".into() },
            90..95 => Outcome::Snooze { delay_ms: stage.random.within(0..=5_000) },
            _ => Outcome::Release,
        }
    }
}

impl Session {
    /// Progress of some of its handlers; now and then of a job that it does not run.
    pub fn progress(&self, stage: &mut Stage) -> Vec<Progress> {
        let mut reports = Vec::new();
        for (&token, handler) in &self.handlers {
            if stage.random.percent(20) {
                let forged = u64::from(stage.random.percent(10));
                let token = FenceToken(token.0.saturating_sub(forged));
                reports.push(handler.report(token, stage.random.below(101) as u8));
            }
        }
        reports
    }
}

impl Worker {
    /// Starts a job that it was given, unless the answer took so long that the lease may be over.
    pub fn start(&mut self, stage: &mut Stage, run: &Run) {
        let handler = Handler { job: run.job, attempt: run.attempt, retry: run.retry };
        if !self.trusts(stage) {
            let release = handler.settle_released(run.token);
            return self.session.iter_mut().for_each(|session| session.finished.push(release.clone()));
        }
        stage.write(self.actor(), What::HandlerStarted(run.job, run.token));
        let runs_ms = match stage.random.below(100) {
            _ if stage.healed => stage.random.within(20..=300),
            0..4 => 60_000,
            4..12 => stage.random.within(3_000..=9_000),
            _ => stage.random.within(10..=1_500),
        };
        self.alarm_in(stage, runs_ms, Alarm::Done(run.token));
        if let Some(timeout_ms) = run.timeout_ms {
            self.alarm_in(stage, timeout_ms, Alarm::Timeout(run.token));
        }
        if let Some(session) = &mut self.session {
            session.handlers.insert(run.token, handler);
        }
    }

    pub fn handler_done(&mut self, stage: &mut Stage, token: FenceToken) {
        self.stop(stage, token, Handler::any_outcome);
        self.tick_soon(stage);
    }

    pub fn handler_timed_out(&mut self, stage: &mut Stage, token: FenceToken) {
        // Some handlers cannot be stopped; then the store ends the claim ten seconds later.
        if stage.random.percent(80) {
            self.stop(stage, token, |handler, stage| handler.retry(stage, "timed out"));
            self.tick_soon(stage);
        }
    }

    /// Cancels all handlers, because the lease can no longer be trusted.
    pub fn stop_all(&mut self, stage: &mut Stage) {
        let tokens: Vec<_> =
            self.session.iter().flat_map(|session| session.handlers.keys().copied()).collect();
        for token in tokens {
            self.stop(stage, token, |handler, stage| handler.retry(stage, "the lease is no longer trusted"));
        }
    }

    /// The store says that a handler must stop.
    pub fn told_to_stop(&mut self, stage: &mut Stage, stop: &Stop) {
        match stop.reason {
            // A handler may be past the point where it can be cancelled.
            StopReason::Cancelled if stage.random.percent(70) => {
                self.stop(stage, stop.token, |_, _| Outcome::Cancelled);
            }
            StopReason::Cancelled => {}
            StopReason::LeaseEnded => {
                self.stop(stage, stop.token, Handler::any_outcome);
                let settles_anyway = stage.random.percent(40);
                let session = self.session.as_mut().expect("it was told so by its session");
                session.finished.retain(|settle| settles_anyway || settle.token != stop.token);
            }
        }
    }

    fn stop(
        &mut self,
        stage: &mut Stage,
        token: FenceToken,
        how: impl FnOnce(&Handler, &mut Stage) -> Outcome,
    ) {
        let actor = self.actor();
        let Some(session) = &mut self.session else { return };
        if let Some(handler) = session.handlers.remove(&token) {
            stage.write(actor, What::HandlerStopped(handler.job, token));
            let outcome = how(&handler, stage);
            session.finished.push(Settle { job: handler.job, token, outcome });
        }
    }

    fn tick_soon(&mut self, stage: &mut Stage) {
        let ms = stage.random.within(0..=50);
        self.tick_in(stage, ms);
    }

    /// The process dies with all its handlers.
    pub fn crash(&mut self, stage: &mut Stage) {
        stage.write(self.actor(), What::Crashed);
        self.stop_all(stage);
        self.stale.clear();
        self.stale_starts.clear();
        (self.session, self.up) = (None, false);
        self.life += 1;
        self.forget_ticks();
        let down_ms = stage.random.within(100..=20_000);
        self.alarm_in(stage, down_ms, Alarm::Restart);
    }

    /// The process is paused and does not know it.
    pub fn pause(&mut self, stage: &mut Stage) {
        let ms = stage.random.within(200..=2 * self.lease_ms);
        self.paused_until_ms = stage.now_ms + ms;
        stage.write(self.actor(), What::Paused { ms, beyond_margin: ms > self.margin_ms() });
    }

    /// Handlers that hang end soon, and the process is up and awake.
    pub fn heal(&mut self, stage: &mut Stage) {
        self.paused_until_ms = 0;
        let tokens: Vec<_> =
            self.session.iter().flat_map(|session| session.handlers.keys().copied()).collect();
        for token in tokens {
            let ms = stage.random.within(20..=300);
            self.alarm_in(stage, ms, Alarm::Done(token));
        }
        if !self.up {
            self.alarm_in(stage, 0, Alarm::Restart);
        }
    }
}
