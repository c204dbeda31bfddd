//! A driver keeps one child: it starts it, gives it jobs, and replaces it.

use super::Described;
use super::child::Child;
use super::lobby::{Lobby, Ready};
use futures::FutureExt;
use qo::Failure;
use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::time::Duration;
use tokio::time::{Instant, timeout_at};

/// Pauses between starts that fail: the first and the longest.
const PAUSES: [Duration; 2] = [Duration::from_millis(200), Duration::from_secs(10)];

/// Keeps one child.
pub struct Driver {
    pub described: Arc<Described>,
    pub tasks: Arc<Vec<String>>,
    pub lobby: Arc<Lobby>,
}

impl Driver {
    /// Keeps a child until no more jobs come. After a panic, which ends the child, it begins again.
    pub async fn keep(self, mut first: Option<Child>) {
        while AssertUnwindSafe(self.run(first.take())).catch_unwind().await.is_err() {
            tracing::error!(
                "the thread that drives a child process has panicked: another child takes its place"
            );
        }
    }

    async fn run(&self, first: Option<Child>) {
        let mut child = first;
        let mut pause = PAUSES[0];
        loop {
            let running = match child.take() {
                Some(child) => child,
                None => match Child::start(&self.described, &self.tasks).await {
                    Ok(child) => child,
                    Err(why) => {
                        tracing::error!("a child process does not start: {why}");
                        if !self.refuse(pause).await {
                            return;
                        }
                        pause = (pause * 2).min(PAUSES[1]);
                        continue;
                    }
                },
            };
            pause = PAUSES[0];
            if !self.drive(running).await {
                return;
            }
        }
    }

    /// Waits before the next start. If no driver has a child, it gives jobs back meanwhile; no attempt is used. Returns
    /// whether more may come.
    async fn refuse(&self, pause: Duration) -> bool {
        let until = Instant::now() + pause;
        while !self.lobby.is_closed() && Instant::now() < until {
            let is_alone = self.lobby.is_deserted();
            let wait = async {
                if is_alone {
                    return self.lobby.call().await;
                }
                self.lobby.until_closed().await;
                None
            };
            // In short waits: a driver may lose its child meanwhile.
            let look = until.min(Instant::now() + PAUSES[0]);
            if let Ok(Some(job)) = timeout_at(look, wait).await {
                let _ = job.tell.send(Err(Failure::snooze(pause)));
            }
        }
        !self.lobby.is_closed()
    }

    /// Runs jobs on a child until it ends. Returns whether another one is needed.
    async fn drive(&self, mut child: Child) -> bool {
        let _ready = Ready::new(&self.lobby);
        loop {
            let Ok(job) = child.idle(self.lobby.call()).await else { return true };
            let Some(job) = job else {
                child.end().await;
                return false;
            };
            // After a stall both may have happened.
            if child.has_ended() {
                self.lobby.enter(job);
                return true;
            }
            if !child.run(job, &self.tasks).await {
                return true;
            }
            if let Some(why) = child.is_worn(&self.described) {
                tracing::debug!("a child process is replaced: {why}");
                child.end().await;
                return true;
            }
        }
    }
}
