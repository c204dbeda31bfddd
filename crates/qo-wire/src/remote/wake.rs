//! Wake-ups: what a server says about changes, as the change counter of the `Store` trait.
//!
//! The numbers are this client's own: those of one server mean nothing to another. There are two counters in one:
//!
//! - An even number stands for changes of any kind. A stream tells of them while a caller waits.
//! - An odd number stands for work of this client's sessions. Each session that looked for work and found none has a
//!   stream, on which the server tells it when to look again.
//!
//! A counter grows with every wake-up, and once whenever a stream begins, because wake-ups may have been missed before.

use super::link::Link;
use crate::{methods, pb};
use qo_core::{ErrorKind, SessionId};
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tokio::sync::watch;
use tokio::task::AbortHandle;
use tokio::time::sleep;

/// First pause before a stream is opened again; the longest one.
const PAUSES: (Duration, Duration) = (Duration::from_millis(50), Duration::from_secs(2));
/// Most streams of one client. The sessions beyond it poll. A server allows 1,000 streams and calls for each connection:
/// streams must leave room for calls.
const STREAMS: usize = 500;

pub(crate) struct Wakes {
    link: Arc<Link>,
    any: watch::Sender<u64>,
    work: watch::Sender<u64>,
    /// Where the counter of work was when a server last said that there are jobs.
    jobs: AtomicU64,
    /// A stream has broken off and is not back yet.
    is_deaf: AtomicBool,
    streams: Mutex<BTreeMap<Option<SessionId>, AbortHandle>>,
}

impl Wakes {
    pub fn new(link: Arc<Link>) -> Arc<Self> {
        Arc::new(Self {
            link,
            any: watch::Sender::new(0),
            work: watch::Sender::new(0),
            jobs: AtomicU64::new(0),
            is_deaf: AtomicBool::new(false),
            streams: Mutex::default(),
        })
    }

    /// Where the counter of work is. Read it before a look, so that no wake-up is missed.
    pub fn work_seen(&self) -> u64 {
        *self.work.borrow() * 2 + 1
    }

    /// Where the counter of changes is.
    pub fn any_seen(&self) -> u64 {
        *self.any.borrow() * 2
    }

    /// Waits until the counter that a number belongs to has passed it.
    pub async fn past(self: &Arc<Self>, seen: u64) -> u64 {
        let is_work = seen % 2 == 1;
        let sender = if is_work { &self.work } else { &self.any };
        let mut counter = sender.subscribe();
        if !is_work {
            self.listen(None);
        }
        // The sender is in `self`, so it is not gone.
        match counter.wait_for(|now| *now > seen / 2).await {
            Ok(now) => *now * 2 + u64::from(is_work),
            Err(_) => seen,
        }
    }

    /// Whether a server has said that there are jobs, after that number.
    pub fn told_of_jobs(&self, seen: u64) -> bool {
        seen % 2 == 1 && self.jobs.load(Ordering::Acquire) > seen / 2
    }

    /// Whether the servers can be heard.
    pub fn hears(&self) -> bool {
        !self.is_deaf.load(Ordering::Acquire)
    }

    /// Opens the stream of a session that waits for work.
    pub fn listen(self: &Arc<Self>, session: Option<SessionId>) {
        let mut streams = self.streams();
        if streams.contains_key(&session) || streams.len() >= STREAMS {
            return;
        }
        let wakes = Arc::downgrade(self);
        let link = Arc::clone(&self.link);
        let task = tokio::spawn(async move {
            let mut pause = PAUSES.0;
            loop {
                let outcome = stream(&link, &wakes, session, &mut pause).await;
                let Some(wakes) = wakes.upgrade() else { return };
                if let Outcome::Over = outcome
                    && wakes.ends(session)
                {
                    return;
                }
                if let Outcome::Broke = outcome {
                    wakes.is_deaf.store(true, Ordering::Release);
                }
                drop(wakes);
                sleep(pause).await;
                pause = (pause * 2).min(PAUSES.1);
            }
        });
        streams.insert(session, task.abort_handle());
    }

    /// Whether a stream that is over may end: a caller may have begun to wait for changes meanwhile.
    fn ends(&self, session: Option<SessionId>) -> bool {
        // A caller subscribes before it asks for a stream, and asks under this lock.
        let mut streams = self.streams();
        let ends = session.is_some() || self.any.receiver_count() == 0;
        if ends {
            streams.remove(&session);
        }
        ends
    }

    /// Ends the stream of a session.
    pub fn forget(&self, session: SessionId) {
        if let Some(task) = self.streams().remove(&Some(session)) {
            task.abort();
        }
    }

    fn woken(&self, session: Option<SessionId>, jobs: bool) {
        let sender = if session.is_some() { &self.work } else { &self.any };
        sender.send_modify(|counter| {
            *counter += 1;
            if jobs {
                self.jobs.store(*counter, Ordering::Release);
            }
        });
    }

    fn streams(&self) -> MutexGuard<'_, BTreeMap<Option<SessionId>, AbortHandle>> {
        self.streams.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Wakes {
    fn drop(&mut self) {
        self.streams().values().for_each(AbortHandle::abort);
    }
}

/// How a stream ended.
enum Outcome {
    /// The server is not reached.
    Broke,
    /// Another server is the current one.
    Moved,
    /// It is not needed any more: the session has ended, or no caller waits for changes.
    Over,
}

/// Hears wake-ups until the stream ends.
async fn stream(
    link: &Link,
    wakes: &std::sync::Weak<Wakes>,
    session: Option<SessionId>,
    pause: &mut Duration,
) -> Outcome {
    let Some(method) = methods::method("Watch") else { return Outcome::Over };
    let Some((at, mut client)) = link.current().await else { return Outcome::Broke };
    let request = link.request(pb::WatchRequest { session: session.map(|id| id.to_string()) });
    let broke = |status: &tonic::Status| match link.broke(at, method, status).kind() {
        ErrorKind::Fenced | ErrorKind::NotFound | ErrorKind::Conflict => Outcome::Over,
        _ => Outcome::Broke,
    };
    let mut stream = match client.watch(request).await {
        Ok(response) => response.into_inner(),
        Err(status) => return broke(&status),
    };
    let Some(known) = wakes.upgrade() else { return Outcome::Over };
    *pause = PAUSES.0;
    known.is_deaf.store(false, Ordering::Release);
    known.woken(session, false);
    drop(known);
    loop {
        let message = tokio::select! {
            message = stream.message() => message,
            () = link.moved_from(at) => return Outcome::Moved,
        };
        let Some(wakes) = wakes.upgrade() else { return Outcome::Over };
        match message {
            Ok(Some(pb::WakeUp { jobs })) => {
                wakes.woken(session, jobs);
                if session.is_none() && wakes.any.receiver_count() == 0 {
                    return Outcome::Over;
                }
            }
            // The server ends streams before it ends itself.
            Ok(None) => {
                link.leave(at);
                return Outcome::Broke;
            }
            Err(status) => {
                let outcome = broke(&status);
                if let Outcome::Over = outcome {
                    // The session has ended, which its worker learns from its next look.
                    wakes.woken(session, false);
                }
                return outcome;
            }
        }
    }
}
