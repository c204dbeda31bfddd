//! A session: opened, closed, lost.

use crate::worker::fetch::{Fetcher, Left, passes};
use crate::worker::lease::Lease;
use crate::worker::look::Looks;
use crate::worker::shutdown::Phase;
use qo_core::millis;
use qo_core::{ClaimedJob, Error, ErrorKind, FenceToken, NewSession, Result, SessionId};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;
use tokio::time::{Instant, sleep, timeout};

/// First pause after a call that failed.
const PAUSE: Duration = Duration::from_millis(20);
/// Sessions in a row that the store refuses before the worker gives up.
const REFUSALS: u32 = 5;

/// A session that is open.
pub(crate) struct Session {
    pub id: SessionId,
    pub lease: Arc<Lease>,
    /// The number of the next exchange.
    pub number: u64,
    /// Jobs that were claimed ahead of time, the oldest first.
    pub buffer: BTreeMap<FenceToken, ClaimedJob>,
    /// When it must be renewed.
    pub renew_at: Instant,
    /// An exchange that only reports progress is not made before this.
    pub report_at: Instant,
    /// The store knows that the worker drains.
    pub told_draining: bool,
    /// When and why to look for work.
    pub looks: Looks,
}

impl Session {
    pub fn new(id: SessionId, lease: Arc<Lease>, sent: Instant, lease_length: Duration) -> Self {
        Self {
            id,
            lease,
            number: 1,
            buffer: BTreeMap::new(),
            renew_at: sent + lease_length / 3,
            report_at: sent,
            told_draining: false,
            looks: Looks::new(sent),
        }
    }
}

impl Fetcher {
    pub(super) async fn open(&mut self) -> Result<Option<Session>> {
        let mut id = SessionId(self.jitter.uuid());
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
                lease_ms: millis(self.shared.options.lease),
                permits: self.shared.permits,
                owner: None,
            };
            let opening = self.shared.store.open_session(new);
            match self.answer(tries, opening).await {
                Ok(opened) => {
                    let coarseness = self.shared.store.coarseness();
                    let lease = Lease::new(id, sent, self.lease_length(), coarseness, opened.lease_until);
                    let lease = Arc::new(lease);
                    self.shared.watch.set_lease(Some(Arc::clone(&lease)));
                    return Ok(Some(Session::new(id, lease, sent, self.lease_length())));
                }
                Err(error) if passes(&error) => self.pause(tries, &error).await,
                // Opening took so long that the session has ended already.
                Err(error) if error.kind() == ErrorKind::Fenced => {
                    self.pause(tries, &error).await;
                    (id, sent) = (SessionId(self.jitter.uuid()), Instant::now());
                }
                Err(error) => return Err(error),
            }
        }
        unreachable!("it is tried until it is open")
    }

    /// The answer to a call. One that does not come within a lease is `Unknown`.
    pub(super) async fn answer<T>(&self, tries: u32, call: impl Future<Output = Result<T>>) -> Result<T> {
        let lease = self.lease_length();
        let patience =
            (lease / 3 * (1 << tries.saturating_sub(1).min(2))).min(lease).max(Duration::from_secs(1));
        let late = |_| Err(Error::new(ErrorKind::Unknown, format!("no answer within {patience:?}")));
        timeout(patience, call).await.unwrap_or_else(late)
    }

    pub(super) async fn pause(&mut self, tries: u32, error: &Error) {
        tracing::warn!(worker = %self.shared.name, tries, "the store does not answer: {error}");
        let most = (self.lease_length() / 6).min(Duration::from_secs(1));
        let pause = self.jitter.backoff(tries, PAUSE.min(most), most);
        sleep(pause).await;
    }

    /// Stops everything that runs under a session that is over or that the store refuses.
    pub(super) async fn lose(&mut self, session: &Session, error: Error) -> Result<Left> {
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

    pub(super) async fn close(&mut self, session: SessionId) {
        for tries in 1..=REFUSALS {
            let closing = self.shared.store.close_session(session);
            match self.answer(tries, closing).await {
                Err(error) if passes(&error) => self.pause(tries, &error).await,
                Err(error) => return tracing::warn!(%session, "cannot be closed, it expires: {error}"),
                Ok(()) => return,
            }
        }
    }
}
