//! The one loop of a worker: it exchanges when there is something to say or to get, and waits when there is not.
//!
//! An exchange settles what has finished, starts what was claimed ahead, renews the session and claims, in one numbered
//! step; one is under way at a time. After `Unknown` the same number is sent again with the same content, and its lease
//! counts from the first sending; what finishes meanwhile goes with the next one. After `Unavailable` alone nothing can
//! have happened, and the number is still free for a newer content.
//!
//! A worker that has nothing to say asks the store first whether an exchange would bring anything, which changes nothing
//! and is cheap. So an idle worker writes nothing but its renewals.

use crate::context::CancelReason;
use crate::dice::Dice;
use crate::worker::Shared;
use crate::worker::finish::{Settles, settle};
use crate::worker::lease::Lease;
use crate::worker::pressure::Pressure;
use crate::worker::run::{End, Ended};
use crate::worker::session::Session;
use crate::worker::shutdown::{Phase, ShutdownHandle};
use qo_core::{Error, ErrorKind, NewSession, Result, SessionId};
use std::future::pending;
use std::sync::Arc;
use std::time::Duration;
use tokio::runtime::Handle;
use tokio::sync::{mpsc, watch};
use tokio::time::{Instant, sleep, sleep_until, timeout};

/// Shortest time between a look that found nothing and the next one.
const LOOK_GAP: Duration = Duration::from_millis(1);
/// How often to look whether handlers report progress.
const REPORT_LOOK: Duration = Duration::from_secs(1);
/// First pause after a call that failed.
const PAUSE: Duration = Duration::from_millis(20);
/// Sessions in a row that the store refuses before the worker gives up.
const REFUSALS: u32 = 5;

pub(crate) struct Fetcher {
    pub(super) shared: Arc<Shared>,
    /// Where handlers run.
    pub(super) runtime: Handle,
    pub(super) report: mpsc::UnboundedSender<Ended>,
    pub(super) settles: Settles,
    pub(super) pressure: Pressure,
    dice: Dice,
    ended: mpsc::UnboundedReceiver<Ended>,
    phase: watch::Receiver<Phase>,
    sweep_at: Instant,
    /// When a worker that was released ends, whatever still runs.
    give_up_at: Option<Instant>,
    /// Sessions in a row that were lost before their first exchange.
    refusals: u32,
}

/// How a session was left.
enum Left {
    /// Closed: the worker is done.
    Done,
    /// Lost: another one is needed.
    Lost,
}

impl Fetcher {
    pub fn new(shared: Arc<Shared>, runtime: Handle, dice: Dice) -> Self {
        let (report, ended) = mpsc::unbounded_channel();
        let phase = shared.phase.subscribe();
        let options = &shared.options;
        let pressure = Pressure::new(options.memory_threshold_percent, options.latency_threshold_ms);
        Self {
            runtime,
            report,
            settles: Settles::default(),
            pressure,
            dice,
            ended,
            phase,
            sweep_at: Instant::now(),
            give_up_at: None,
            refusals: 0,
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
        Duration::from_millis(self.shared.options.lease_ms)
    }

    pub(super) fn cancel_grace(&self) -> Duration {
        Duration::from_millis(self.shared.options.cancel_grace_ms)
    }

    fn poll_interval(&self) -> Duration {
        let usual = if self.shared.store.tells_changes() { 5_000 } else { 100 };
        Duration::from_millis(self.shared.options.poll_interval_ms.unwrap_or(usual))
    }

    /// Declares tasks and pushes the configuration. Says whether the worker is still wanted.
    async fn introduce(&mut self) -> Result<bool> {
        for tries in 1.. {
            if self.phase() != Phase::Working {
                return Ok(false);
            }
            match self.declare().await {
                Err(error) if passes(&error) => self.pause(tries, &error).await,
                result => return result.map(|()| true),
            }
        }
        unreachable!("it is tried until it is done")
    }

    async fn declare(&self) -> Result<()> {
        if let Some(configuration) = &self.shared.options.configuration {
            self.shared.store.configure(configuration.clone()).await?;
        }
        self.shared.store.register(self.shared.tasks.clone()).await
    }

    async fn pause(&mut self, tries: u32, error: &Error) {
        tracing::warn!(worker = %self.shared.name, tries, "the store does not answer: {error}");
        let most = (self.lease_length() / 6).min(Duration::from_secs(1));
        let pause = self.dice.backoff(tries, PAUSE.min(most), most);
        sleep(pause).await;
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

    /// Exchanges if there is something to say or to get, else waits until there may be.
    async fn step(&mut self, session: &mut Session) -> Result<()> {
        if self.has_something_to_say(session) {
            self.exchange(session).await?;
        } else if self.finds_work(session).await? {
            self.fetch(session).await?;
        } else {
            self.wait(session).await;
        }
        Ok(())
    }

    fn has_something_to_say(&self, session: &Session) -> bool {
        let ending = self.phase() != Phase::Working;
        !self.settles.is_empty()
            || Instant::now() >= session.renew_at
            || (self.shared.attempts.has_news() && Instant::now() >= session.report_at)
            || (ending && !session.told_draining)
            || (!ending && !session.buffer.is_empty() && self.free_permits() > 0)
    }

    /// Nothing runs, everything is settled, and no more is wanted.
    fn is_done(&self) -> bool {
        self.phase() != Phase::Working && self.shared.attempts.is_empty() && self.settles.is_empty()
    }

    /// A worker that was released does not wait for handlers that do not stop.
    fn give_up(&mut self) -> Result<()> {
        if self.phase() != Phase::Releasing {
            return Ok(());
        }
        let grace = self.cancel_grace();
        let now = Instant::now();
        // What was started at the same moment as the worker was released has not been told.
        self.shared.attempts.cancel_all(CancelReason::ShuttingDown, now + grace);
        let at = *self.give_up_at.get_or_insert(now + grace + Duration::from_secs(1));
        let running = self.shared.attempts.len();
        if now < at || running == 0 {
            return Ok(());
        }
        // The session is left to end by itself: until then nobody else runs what is still running here.
        let message = format!("{running} handlers did not stop within the cancel grace");
        Err(Error::new(ErrorKind::Unavailable, message))
    }

    async fn open(&mut self) -> Result<Option<Session>> {
        let mut id = SessionId(self.dice.uuid());
        let mut sent = Instant::now();
        for tries in 1.. {
            self.collect();
            self.give_up()?;
            if self.phase() != Phase::Working && self.shared.attempts.is_empty() {
                return Ok(None);
            }
            let new = NewSession {
                id,
                worker: self.shared.name.clone(),
                queues: self.shared.options.queues.clone(),
                tasks: self.shared.handlers.keys().cloned().collect(),
                lease_ms: self.shared.options.lease_ms,
                permits: self.shared.options.max_concurrent_tasks,
            };
            let opening = self.shared.store.open_session(new);
            match self.answer(tries, opening).await {
                Ok(opened) => {
                    let lease = Lease::new(id, sent, self.lease_length(), opened.lease_until);
                    let lease = Arc::new(lease);
                    self.shared.watch.set_lease(Some(Arc::clone(&lease)));
                    return Ok(Some(Session::new(id, lease, sent, self.lease_length())));
                }
                Err(error) if passes(&error) => self.pause(tries, &error).await,
                // It took so long that it has ended already.
                Err(error) if error.kind() == ErrorKind::Fenced => {
                    self.pause(tries, &error).await;
                    (id, sent) = (SessionId(self.dice.uuid()), Instant::now());
                }
                Err(error) => return Err(error),
            }
        }
        unreachable!("it is tried until it is open")
    }

    /// The answer to a call; one that does not come in time is `Unknown`. Nobody waits for longer than a lease.
    async fn answer<T>(&self, tries: u32, call: impl Future<Output = Result<T>>) -> Result<T> {
        let lease = self.lease_length();
        let patience =
            (lease / 3 * (1 << tries.saturating_sub(1).min(2))).min(lease).max(Duration::from_secs(1));
        let late = |_| Err(Error::new(ErrorKind::Unknown, format!("no answer within {patience:?}")));
        timeout(patience, call).await.unwrap_or_else(late)
    }

    /// An exchange because there is said to be work. If it brings nothing again and again the next one waits a little.
    async fn fetch(&mut self, session: &mut Session) -> Result<()> {
        if self.exchange(session).await? {
            session.looks.barren = 0;
        } else {
            session.looks.barren += 1;
            let pause = Duration::from_millis(1 << session.looks.barren.min(10));
            let most = self.poll_interval().min(Duration::from_millis(100));
            session.looks.not_before = Instant::now() + pause.min(most);
        }
        Ok(())
    }

    /// One exchange, repeated until it is answered. Says whether it brought anything.
    async fn exchange(&mut self, session: &mut Session) -> Result<bool> {
        let mut exchange = self.compose(session);
        let mut sent = Instant::now();
        let mut may_have_happened = false;
        for tries in 1.. {
            let error = match self.answer(tries, self.shared.store.exchange(exchange.clone())).await {
                Ok(reply) => {
                    self.refusals = 0;
                    session.looks.due = true;
                    return Ok(self.absorb(session, &exchange, reply, sent));
                }
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

    /// Looks whether an exchange would bring anything, if there is a reason to look.
    async fn finds_work(&mut self, session: &mut Session) -> Result<bool> {
        let now = Instant::now();
        if !session.looks.due || now < session.looks.not_before {
            return Ok(false);
        }
        let claim = self.claim(session, 0);
        let date_passed = session.looks.date.is_some_and(|date| date <= now);
        let work = match self.answer(1, self.shared.store.work(session.id, claim)).await {
            Ok(work) => work,
            Err(error) if passes(&error) => {
                // It stays due. A date that has passed must not make it look again at once.
                let looks = &mut session.looks;
                looks.barren += 1;
                let pause = self.dice.backoff(looks.barren, PAUSE, Duration::from_secs(1));
                (looks.not_before, looks.date) = (Instant::now() + pause, None);
                return Ok(false);
            }
            Err(error) => return Err(error),
        };
        let looks = &mut session.looks;
        looks.due = false;
        looks.seen = Some(work.seen);
        looks.date = work.next.map(|next| now + Duration::from_millis(next.ms_since(work.at)));
        looks.poll_at = now + self.poll_interval();
        if !work.now {
            looks.barren = 0;
            looks.not_before = Instant::now() + LOOK_GAP;
            if date_passed {
                // Something was due, but not for this worker: perhaps the end of somebody who is gone.
                self.sweep().await?;
            }
        }
        Ok(work.now)
    }

    /// Ends what is over. Where nothing is, this costs a store nothing.
    async fn sweep(&mut self) -> Result<()> {
        self.sweep_at = Instant::now() + self.lease_length() / 2;
        match self.answer(1, self.shared.store.sweep()).await {
            Err(error) if !passes(&error) => Err(error),
            // Somebody will sweep later.
            Err(_) | Ok(_) => Ok(()),
        }
    }

    /// Waits until something happens or is due.
    async fn wait(&mut self, session: &mut Session) {
        let looks = &session.looks;
        let look_at = if looks.due { looks.not_before } else { looks.poll_at };
        let date = looks.date.map(|date| date.max(looks.not_before));
        // Handlers do not wake the loop when they report progress: while some run it looks every second.
        let report_at =
            (!self.shared.attempts.is_empty()).then(|| session.report_at.max(Instant::now() + REPORT_LOOK));
        let dates =
            [Some(session.renew_at), Some(look_at), Some(self.sweep_at), date, report_at, self.give_up_at];
        let until = dates.into_iter().flatten().min().unwrap_or(look_at);
        let store = &self.shared.store;
        let changed = async {
            match looks.seen.filter(|_| !looks.due) {
                Some(seen) if store.changed(Some(seen)).await.is_ok() => {}
                // There is nothing to wait for, or nobody who would tell.
                Some(_) | None => pending().await,
            }
        };
        // In this order, and not by dice: the same seed must do the same twice.
        let ended = tokio::select! {
            biased;
            ended = self.ended.recv() => ended,
            _ = self.phase.changed() => None,
            () = changed => {
                session.looks.due = true;
                None
            }
            () = sleep_until(until) => None,
        };
        if let Some(ended) = ended {
            self.finish(ended);
        }
        let now = Instant::now();
        let looks = &mut session.looks;
        looks.due |= now >= looks.poll_at || looks.date.is_some_and(|date| now >= date);
        if now >= self.sweep_at {
            // An error here is found again by the next exchange.
            self.sweep().await.ok();
        }
    }

    /// Takes note of all attempts that have come to an end.
    fn collect(&mut self) {
        while let Ok(ended) = self.ended.try_recv() {
            self.finish(ended);
        }
    }

    fn finish(&mut self, ended: Ended) {
        let Some(attempt) = self.shared.attempts.remove(ended.token) else { return };
        let took = attempt.started.elapsed();
        self.shared.metrics.ended(took);
        self.pressure.took(took);
        if matches!(ended.end, End::Vanished) {
            // The runtime that handlers run on is gone: whatever else is claimed could not run either.
            ShutdownHandle(Arc::clone(&self.shared)).release();
        }
        match settle(&attempt, ended.end, &mut self.dice) {
            Some(settle) => self.settles.push(settle),
            None => {
                tracing::warn!(job = %attempt.claim.job, token = %ended.token, "stopped: the store ended its claim")
            }
        }
    }

    /// A session is over, or the store refuses it: nothing of it may run on.
    async fn lose(&mut self, session: &Session, error: Error) -> Result<Left> {
        self.shared.attempts.lose(session.id, Instant::now());
        self.shared.watch.set_lease(None);
        match error.kind() {
            ErrorKind::Data | ErrorKind::Internal | ErrorKind::Unavailable | ErrorKind::Unknown => {
                return Err(error);
            }
            ErrorKind::Fenced => tracing::warn!(session = %session.id, "the session has ended: {error}"),
            _ => tracing::error!(session = %session.id, "the store refuses the session: {error}"),
        }
        self.refusals += 1;
        if error.kind() != ErrorKind::Fenced {
            if self.refusals >= REFUSALS {
                return Err(error);
            }
            self.close(session.id).await;
        }
        if self.refusals > 1 {
            self.pause(self.refusals, &error).await;
        }
        Ok(Left::Lost)
    }

    async fn close(&mut self, session: SessionId) {
        for tries in 1..=REFUSALS {
            let closing = self.shared.store.close_session(session);
            match self.answer(tries, closing).await {
                Err(error) if passes(&error) => self.pause(tries, &error).await,
                Err(error) => return tracing::warn!(%session, "cannot be closed, it ends by itself: {error}"),
                Ok(()) => return,
            }
        }
    }
}

/// Whether the same call may go well a little later.
fn passes(error: &Error) -> bool {
    matches!(error.kind(), ErrorKind::Unknown | ErrorKind::Unavailable)
}
