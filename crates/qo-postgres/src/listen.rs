//! Listening: one connection that gets notifications of changes.
//!
//! A notification is a hint: a process that misses one polls a little later. A pooler that gives every transaction
//! another connection swallows notifications. So a listener first waits for a notification of its own, and reports
//! that it hears nothing if that does not come.

use crate::Url;
use crate::connect::TlsStream;
use crate::migrate::open;
use std::future::poll_fn;
use std::hash::{BuildHasher, RandomState};
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::watch;
use tokio::task::JoinHandle;
use tokio_postgres::{AsyncMessage, Client, Connection, Socket};

/// Pauses between two attempts to connect: the first, and the longest.
const PAUSES: (Duration, Duration) = (Duration::from_millis(100), Duration::from_secs(5));
/// How long it waits for its own notification, or for any answer.
const ECHO: Duration = Duration::from_secs(2);
/// How often it asks whether the server is still there: a server that has vanished sends nothing.
const CHECK: Duration = Duration::from_secs(10);
/// The pause after a server that answers but sends no notifications: that does not change by itself.
const DEAF: Duration = Duration::from_secs(300);

/// How listening on a connection ended.
enum Ended {
    /// There was no connection.
    NotConnected,
    /// It listened until the connection was lost.
    Lost,
    /// Its own notification did not come.
    Deaf,
}

/// What has been heard.
#[derive(Debug, Clone, Copy, Default)]
struct Heard {
    /// Counts changes, and each time during which some may have been missed.
    changes: u64,
    /// The latest of them that said that jobs were submitted.
    jobs_at: u64,
    /// Whether a connection listens.
    listens: bool,
}

/// Listens for one store, until that is dropped.
pub(crate) struct Listener {
    heard: watch::Receiver<Heard>,
    task: tokio::task::AbortHandle,
}

impl Drop for Listener {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl Listener {
    pub fn start(url: Url) -> Self {
        let (tell, heard) = watch::channel(Heard::default());
        let task = tokio::spawn(listen(url, Arc::new(tell))).abort_handle();
        Self { heard, task }
    }

    /// How many changes there have been.
    pub fn changes(&self) -> u64 {
        self.heard.borrow().changes
    }

    /// Whether it listens at the moment.
    pub fn listens(&self) -> bool {
        self.heard.borrow().listens
    }

    /// Whether a change after `seen` said that jobs were submitted.
    pub fn told_of_jobs(&self, seen: u64) -> bool {
        self.heard.borrow().jobs_at > seen
    }

    /// Waits for a change after `seen`.
    pub async fn after(&self, seen: u64) -> u64 {
        let mut heard = self.heard.clone();
        let changes = heard.wait_for(|heard| heard.changes > seen).await.map(|heard| heard.changes);
        match changes {
            Ok(changes) => changes,
            // The task ends only with the store.
            Err(_) => std::future::pending().await,
        }
    }
}

/// Listens, and reconnects whenever the connection is lost.
async fn listen(url: Url, tell: Arc<watch::Sender<Heard>>) {
    let mut pause = PAUSES.0;
    let mut warned = false;
    loop {
        let ended = hear(&url, &tell).await;
        // All changes that were missed meanwhile count as one.
        tell.send_modify(|heard| *heard = Heard { changes: heard.changes + 1, listens: false, ..*heard });
        pause = match ended {
            Ended::Lost => PAUSES.0,
            Ended::NotConnected => (pause * 2).min(PAUSES.1),
            Ended::Deaf => {
                if !warned {
                    tracing::warn!(
                        "no notifications from this server: a pooler between? Workers look every 100 ms instead; \
                         notify=off in the URL says that this is meant"
                    );
                    warned = true;
                }
                DEAF
            }
        };
        tokio::time::sleep(jittered(pause)).await;
    }
}

/// Adds jitter: half of the pause is random, so that processes that lost a server together do not reconnect together.
fn jittered(pause: Duration) -> Duration {
    let unit = RandomState::new().hash_one(()) as f64 / u64::MAX as f64;
    pause.mul_f64(0.5 + unit / 2.0)
}

/// Listens on one connection until it is lost.
async fn hear(url: &Url, tell: &Arc<watch::Sender<Heard>>) -> Ended {
    let Ok((client, connection)) = open(url).await else { return Ended::NotConnected };
    let channel = format!("qo.{}", url.schema());
    let mut pump = tokio::spawn(pump(connection, Arc::clone(tell)));
    let before = tell.borrow().changes;
    let echo = async {
        // Two transactions: a pooler may give them two connections.
        client.batch_execute(&format!("LISTEN \"{channel}\"")).await?;
        client.batch_execute(&format!("NOTIFY \"{channel}\"")).await?;
        // This task owns a sender, so the channel does not close.
        drop(tell.subscribe().wait_for(|heard| heard.changes > before).await);
        Ok::<_, tokio_postgres::Error>(())
    };
    let ended = match tokio::time::timeout(ECHO, echo).await {
        Ok(Ok(())) => {
            tell.send_modify(|heard| heard.listens = true);
            lost(&client, &mut pump).await;
            Ended::Lost
        }
        Ok(Err(error)) => {
            tracing::debug!(%error, "the listener lost its connection");
            Ended::NotConnected
        }
        Err(_) => Ended::Deaf,
    };
    pump.abort();
    ended
}

/// Waits until a connection has ended, or does not answer.
async fn lost(client: &Client, pump: &mut JoinHandle<()>) {
    let silent = async {
        loop {
            tokio::time::sleep(CHECK).await;
            let answer = tokio::time::timeout(ECHO, client.check_connection()).await;
            if !matches!(answer, Ok(Ok(()))) {
                return;
            }
        }
    };
    tokio::select! {
        _ = pump => {}
        () = silent => tracing::debug!("the listener's server does not answer"),
    }
}

/// Reads the connection to its end and counts notifications.
async fn pump(mut connection: Connection<Socket, TlsStream>, tell: Arc<watch::Sender<Heard>>) {
    while let Some(Ok(message)) = poll_fn(|context| connection.poll_message(context)).await {
        if let AsyncMessage::Notification(notification) = message {
            tell.send_modify(|heard| {
                heard.changes += 1;
                if notification.payload() == "job" {
                    heard.jobs_at = heard.changes;
                }
            });
        }
    }
}
