//! Shutting a worker down: drain first, release when told again.

use crate::context::CancelReason;
use crate::exit;
use crate::worker::Shared;
use qo_core::{Error, ErrorKind, Result};
use std::convert::Infallible;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::time::Instant;

/// How far a worker's shutdown is.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Phase {
    /// It takes jobs.
    #[default]
    Working,
    /// It takes no more jobs and lets the running ones finish.
    Draining,
    /// It stops the running jobs and gives them back.
    Releasing,
}

/// Ends a worker, from anywhere. Cheap to clone.
#[derive(Clone)]
pub struct ShutdownHandle(pub(crate) Arc<Shared>);

impl fmt::Debug for ShutdownHandle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("ShutdownHandle").field(&*self.0.phase.borrow()).finish()
    }
}

impl ShutdownHandle {
    /// Makes the worker take no more jobs. It ends when the running ones have finished.
    pub fn drain(&self) {
        self.enter(Phase::Draining);
    }

    /// Tells all handlers to stop and gives their jobs back; no attempt is used. The worker ends when they have
    /// stopped, at the latest after the cancel grace.
    pub fn release(&self) {
        self.enter(Phase::Releasing);
        let grace = self.0.options.cancel_grace;
        self.0.attempts.cancel_all(CancelReason::ShuttingDown, Instant::now() + grace);
    }

    fn enter(&self, phase: Phase) {
        self.0.phase.send_if_modified(|now| std::mem::replace(now, phase.max(*now)) < phase);
    }
}

/// The exit code of a process that got three signals: that of an interrupted process.
const EXIT_IMPATIENT: i32 = 130;

/// SIGTERM and SIGINT: the first drains, the second releases.
pub(crate) struct Signals(Signal, Signal);

impl Signals {
    pub fn listen() -> Result<Self> {
        let listen = |kind| {
            signal(kind)
                .map_err(|e| Error::new(ErrorKind::Unavailable, format!("cannot listen to signals: {e}")))
        };
        Ok(Self(listen(SignalKind::terminate())?, listen(SignalKind::interrupt())?))
    }

    /// Waits for signals and acts on them.
    pub async fn obey(mut self, shutdown: ShutdownHandle) -> Infallible {
        self.next().await;
        tracing::info!("draining: running jobs finish, no more are taken; a second signal gives them back");
        shutdown.drain();
        self.next().await;
        tracing::info!("releasing: running jobs are stopped and given back");
        shutdown.release();
        self.next().await;
        exit::kill_within(Duration::from_secs(1));
        tracing::warn!("ending at once: the session expires, and its jobs run again");
        std::process::exit(EXIT_IMPATIENT)
    }

    async fn next(&mut self) {
        tokio::select! {
            _ = self.0.recv() => {}
            _ = self.1.recv() => {}
        }
    }
}
