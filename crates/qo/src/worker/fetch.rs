//! The one loop of a worker: it exchanges when it has something to report or to get, else it waits.

use crate::context::CancelReason;
use crate::worker::Shared;
use crate::worker::finish::{Settles, settle};
use crate::worker::pressure::Pressure;
use crate::worker::run::{End, Ended};
use crate::worker::session::Session;
use crate::worker::shutdown::{Phase, ShutdownHandle};
use crate::worker::voice;
use qo_core::{Error, ErrorKind, Name, Pushed, Result, caps};
use qo_object::Jitter;
use std::sync::Arc;
use std::time::Duration;
use tokio::runtime::Handle;
use tokio::sync::{mpsc, watch};
use tokio::time::Instant;

/// An attempt that is shorter than this is much shorter than an exchange.
const SHORT: Duration = Duration::from_micros(500);
/// How long to wait for such attempts before an exchange.
const GATHER: Duration = Duration::from_micros(200);

pub(crate) struct Fetcher {
    pub(super) shared: Arc<Shared>,
    /// Where handlers run.
    pub(super) runtime: Handle,
    pub(super) report: mpsc::UnboundedSender<Ended>,
    pub(super) settles: Settles,
    pub(super) pressure: Pressure,
    pub(super) jitter: Jitter,
    pub(super) ended: mpsc::UnboundedReceiver<Ended>,
    pub(super) phase: watch::Receiver<Phase>,
    pub(super) sweep_at: Instant,
    /// When a released worker ends, even if handlers still run.
    pub(super) give_up_at: Option<Instant>,
    /// Sessions in a row that were lost before their first exchange.
    pub(super) refusals: u32,
    /// How long an attempt takes, of late.
    usual: Duration,
}

/// How a session was left.
pub(super) enum Left {
    /// Closed: the worker is done.
    Done,
    /// Lost: the worker needs another session.
    Lost,
}

impl Fetcher {
    pub fn new(shared: Arc<Shared>, runtime: Handle, jitter: Jitter) -> Self {
        let (report, ended) = mpsc::unbounded_channel();
        let phase = shared.phase.subscribe();
        let options = &shared.options;
        let pressure = Pressure::new(options.memory_threshold_percent, options.latency_threshold);
        Self {
            runtime,
            report,
            settles: Settles::default(),
            pressure,
            jitter,
            ended,
            phase,
            sweep_at: Instant::now(),
            give_up_at: None,
            refusals: 0,
            usual: Duration::MAX,
            shared,
        }
    }

    /// Works until the worker is told to end.
    pub async fn run(mut self) -> Result<()> {
        let result = self.work().await;
        self.shared.watch.set_lease(None);
        if result.is_err() {
            self.shared.attempts.cancel_all(CancelReason::LeaseLost, Instant::now());
            self.shared.watch.look();
        }
        result
    }

    async fn work(&mut self) -> Result<()> {
        if !self.introduce().await? {
            return Ok(());
        }
        // Only now, so that the limits are in force when a reader sees this line in the log.
        tracing::info!(worker = %self.shared.name, "at work");
        loop {
            match self.serve().await? {
                Left::Done => return Ok(()),
                Left::Lost => {}
            }
        }
    }

    pub(super) fn phase(&self) -> Phase {
        *self.phase.borrow()
    }

    pub(super) fn lease_length(&self) -> Duration {
        self.shared.options.lease
    }

    pub(super) fn cancel_grace(&self) -> Duration {
        self.shared.options.cancel_grace
    }

    pub(super) fn poll_interval(&self) -> Duration {
        let usual = match self.shared.store.tells_changes() {
            // A look costs as much as a renewal.
            true if self.shared.store.renewals_cost() => Duration::from_secs(30),
            true => Duration::from_secs(5),
            false => Duration::from_millis(100),
        };
        self.shared.options.poll_interval.unwrap_or(usual)
    }

    /// Declares tasks and pushes the configuration. Returns whether the worker is still wanted.
    async fn introduce(&mut self) -> Result<bool> {
        for tries in 1.. {
            if self.phase() != Phase::Working {
                return Ok(false);
            }
            match self.answer(tries, self.declare()).await {
                Err(error) if passes(&error) => {
                    if error.kind() == ErrorKind::Unknown {
                        // The next try finds the push done, and has no changes to log.
                        tracing::info!("a push may have been done: qo config history shows what it changed");
                    }
                    self.pause(tries, &error).await;
                }
                result => return result.map(|()| true),
            }
        }
        unreachable!("it is tried until it is done")
    }

    async fn declare(&self) -> Result<()> {
        let (store, app) = (&self.shared.store, self.shared.options.app());
        if let Some(configuration) = &self.shared.options.configuration {
            tell_pushed(&app, &store.configure(configuration.clone()).await?);
        }
        tell_pushed(&app, &store.register(self.shared.tasks.clone()).await?);
        Ok(())
    }

    /// Opens a session and works under it until it is closed or lost.
    async fn serve(&mut self) -> Result<Left> {
        let Some(mut session) = self.open().await? else { return Ok(Left::Done) };
        loop {
            self.collect();
            self.give_up()?;
            if self.is_done() {
                self.close(session.id).await;
                return Ok(Left::Done);
            }
            let step = self.step(&mut session).await;
            if let Err(error) = step {
                return self.lose(&session, error).await;
            }
        }
    }

    /// Exchanges if there is something to report or to get, else waits until there may be.
    async fn step(&mut self, session: &mut Session) -> Result<()> {
        if self.has_something_to_say(session) {
            self.gather().await;
            self.exchange(session, false).await?;
        } else if self.finds_work(session).await? {
            self.fetch(session).await?;
        } else {
            self.wait(session).await;
        }
        Ok(())
    }

    /// Where attempts are much shorter than an exchange, waits a moment for those that are about to end. Otherwise a
    /// worker with two permits would settle one attempt with each exchange, and then the other one with the next: both
    /// began with the same exchange, and end a hundredth of its time apart.
    async fn gather(&mut self) {
        // A simulation has its own clock, which stands still here.
        if !self.shared.own_threads || self.settles.is_empty() || self.usual > SHORT {
            return;
        }
        let until = Instant::now() + GATHER;
        while !self.shared.attempts.is_empty() && Instant::now() < until {
            match self.ended.try_recv() {
                Ok(ended) => self.finish(ended),
                Err(_) => {
                    // Timers count in milliseconds. This thread has nothing else to do, and lets others run.
                    std::thread::yield_now();
                    tokio::task::yield_now().await;
                }
            }
        }
    }

    fn has_something_to_say(&self, session: &Session) -> bool {
        let ending = self.phase() != Phase::Working;
        !self.settles.is_empty()
            || Instant::now() >= session.renew_at
            || (self.shared.attempts.has_news() && Instant::now() >= session.report_at)
            || (ending && !session.told_draining)
            || (!ending && !session.buffer.is_empty() && self.free_permits() > 0)
    }

    /// Nothing runs, everything is settled, and the worker takes no more jobs.
    fn is_done(&self) -> bool {
        self.phase() != Phase::Working && self.shared.attempts.is_empty() && self.settles.is_empty()
    }

    /// Ends a released worker whose handlers do not stop.
    pub(super) fn give_up(&mut self) -> Result<()> {
        if self.phase() != Phase::Releasing {
            return Ok(());
        }
        let grace = self.cancel_grace();
        let now = Instant::now();
        // A job that started at the moment of the release has not been told to stop.
        self.shared.attempts.cancel_all(CancelReason::ShuttingDown, now + grace);
        let at = *self.give_up_at.get_or_insert(now + grace + Duration::from_secs(1));
        // Not those that only wait for their log.
        let running = self.shared.attempts.running().len();
        if now < at || running == 0 {
            return Ok(());
        }
        // The session is left to expire: until then no other worker runs the jobs that still run here.
        let message = format!("{running} handlers did not stop within the cancel grace");
        Err(Error::new(ErrorKind::Unavailable, message))
    }

    /// Collects all attempts that have ended.
    pub(super) fn collect(&mut self) {
        while let Ok(ended) = self.ended.try_recv() {
            self.finish(ended);
        }
    }

    pub(super) fn finish(&mut self, ended: Ended) {
        let Some(attempt) = self.shared.attempts.remove(ended.token) else { return };
        let took = ended.at.saturating_duration_since(attempt.started);
        self.shared.metrics.ended(took);
        self.pressure.took(took);
        self.usual = if self.usual == Duration::MAX { took } else { (self.usual * 7 + took) / 8 };
        if matches!(ended.end, End::Vanished) {
            // The runtime of the handlers is gone: no other job could run on it either.
            ShutdownHandle(Arc::clone(&self.shared)).release();
        }
        let settle = settle(&attempt, ended.end, &mut self.jitter);
        let outcome = settle.as_ref().map(|settle| &settle.outcome);
        voice::ended(&attempt, outcome, took);
        attempt.span.end(outcome);
        if let Some(settle) = settle {
            self.settles.push(settle);
        }
    }
}

/// Whether the same call may succeed a little later.
pub(super) fn passes(error: &Error) -> bool {
    matches!(error.kind(), ErrorKind::Unknown | ErrorKind::Unavailable)
}

/// Logs each change of a push by name.
fn tell_pushed(app: &Name, pushed: &Pushed) {
    for change in pushed.changes.iter().take(caps::PUSH_CHANGES) {
        tracing::info!(%app, "{} {change}", change.verb());
    }
    if let more @ 1.. = pushed.changes.len().saturating_sub(caps::PUSH_CHANGES) {
        tracing::info!(%app, "and {more} more changes");
    }
}
