//! Looking for work: when the worker looks, and what a look finds.
//!
//! A worker that has nothing to report first asks the store whether an exchange would bring anything. That changes
//! nothing and is cheap, so an idle worker writes nothing but its renewals.

use crate::worker::exchange::Brought;
use crate::worker::fetch::{Fetcher, passes};
use crate::worker::session::Session;
use qo_core::{Result, caps};
use std::future::pending;
use std::time::Duration;
use tokio::time::{Instant, sleep_until};

/// Shortest time between a look that found nothing and the next one.
const LOOK_GAP: Duration = Duration::from_millis(1);
/// First pause after a look that failed; the longest one.
const PAUSES: (Duration, Duration) = (Duration::from_millis(20), Duration::from_secs(1));
/// How often to look whether handlers report progress.
const REPORT_LOOK: Duration = Duration::from_secs(1);

/// When to look for work.
pub(crate) struct Looks {
    /// There is a reason to look.
    pub due: bool,
    /// It must not happen before this.
    pub not_before: Instant,
    /// It happens at this time in any case.
    pub poll_at: Instant,
    /// Something becomes due by itself at this time.
    pub date: Option<Instant>,
    /// Where the store's changes were at the last look.
    pub seen: Option<u64>,
    /// Exchanges in a row that brought nothing although the store said that there was work.
    pub barren: u32,
    /// Whether the last exchange for work brought some. Where the store wakes many workers for every job, most of them
    /// come too late. A worker that came too late looks first, which costs the store less than an exchange.
    pub lucky: bool,
}

impl Looks {
    /// There is a reason to look at once.
    pub fn new(now: Instant) -> Self {
        Self { due: true, not_before: now, poll_at: now, date: None, seen: None, barren: 0, lucky: true }
    }
}

impl Fetcher {
    /// If a look is due, asks whether an exchange would bring anything.
    pub(super) async fn finds_work(&mut self, session: &mut Session) -> Result<bool> {
        let now = Instant::now();
        if !session.looks.due || now < session.looks.not_before {
            return Ok(false);
        }
        let claim = self.claim(session, 0);
        if self.is_told_of_jobs(session) && claim.max > 0 {
            // The exchange that follows makes the next look due, which finds the dates.
            session.looks.due = false;
            session.looks.seen = Some(self.shared.store.changed(None).await?);
            return Ok(true);
        }
        let date_passed = session.looks.date.is_some_and(|date| date <= now);
        let work = match self.answer(1, self.shared.store.work(session.id, claim)).await {
            Ok(work) => work,
            Err(error) if passes(&error) => {
                // The look stays due. A date that has passed must not make the worker look again at once.
                let looks = &mut session.looks;
                looks.barren += 1;
                let pause = self.jitter.backoff(looks.barren, PAUSES.0, PAUSES.1);
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
                // Something was due, but not for this worker: perhaps the lease of a dead worker.
                self.sweep().await?;
            }
        }
        Ok(work.now)
    }

    /// Whether jobs have come, and this worker is likely to get some.
    fn is_told_of_jobs(&self, session: &Session) -> bool {
        let looks = &session.looks;
        looks.lucky && looks.seen.is_some_and(|seen| self.shared.store.told_of_jobs(seen))
    }

    /// Ends what is over. Where nothing is over, a sweep costs the store nothing.
    async fn sweep(&mut self) -> Result<()> {
        self.sweep_at = Instant::now() + self.lease_length() / 2;
        match self.answer(1, self.shared.store.sweep()).await {
            Err(error) if !passes(&error) => Err(error),
            Ok(swept) if swept.forgotten >= caps::FORGOTTEN as u64 => {
                // A sweep forgets a bounded number of jobs, so there are more. Sweep again at once, or they pile up.
                self.sweep_at = Instant::now();
                Ok(())
            }
            // A later sweep does it, of this worker or another.
            Err(_) | Ok(_) => Ok(()),
        }
    }

    /// Waits until something happens or is due.
    pub(super) async fn wait(&mut self, session: &mut Session) {
        let looks = &session.looks;
        let look_at = if looks.due { looks.not_before } else { looks.poll_at };
        let date = looks.date.map(|date| date.max(looks.not_before));
        // Handlers do not wake the loop when they report progress: while some run, the loop looks every second.
        let report_at =
            (!self.shared.attempts.is_empty()).then(|| session.report_at.max(Instant::now() + REPORT_LOOK));
        let dates =
            [Some(session.renew_at), Some(look_at), Some(self.sweep_at), date, report_at, self.give_up_at];
        let until = dates.into_iter().flatten().min().unwrap_or(look_at);
        let store = &self.shared.store;
        let changed = async {
            match looks.seen.filter(|_| !looks.due) {
                Some(seen) if store.changed(Some(seen)).await.is_ok() => {}
                // There is nothing to wait for, or the store does not report changes.
                Some(_) | None => pending().await,
            }
        };
        // In a fixed order, so that the same seed does the same twice.
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
            // The next exchange meets the same error.
            self.sweep().await.ok();
        }
    }

    /// Exchanges because the store said that there is work. After several that brought nothing, the next one waits a
    /// little.
    pub(super) async fn fetch(&mut self, session: &mut Session) -> Result<()> {
        match self.exchange(session, true).await? {
            Brought::News => (session.looks.barren, session.looks.lucky) = (0, true),
            Brought::NotMade | Brought::Nothing => {
                // Another worker was faster, or is claiming now. Not every store reports a claim, and there may be more
                // jobs than that worker took.
                session.looks.due = true;
                session.looks.lucky = false;
                session.looks.barren += 1;
                let pause = Duration::from_millis(1 << session.looks.barren.min(10));
                let most = self.poll_interval().min(Duration::from_millis(100));
                session.looks.not_before = Instant::now() + pause.min(most);
            }
        }
        Ok(())
    }
}
