//! Listening: one connection of its own that hears when something has changed.
//!
//! It is a hint and nothing more: whoever misses one looks a little later. A pooler that gives every transaction another
//! connection swallows notifications, so a listener first listens for its own call, and says that it hears nothing if
//! that does not come.

use crate::Url;
use std::future::poll_fn;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::watch;
use tokio_postgres::{AsyncMessage, Connection, NoTls, Socket, tls::NoTlsStream};

/// Pauses between two attempts to connect: the first, and the longest.
const PAUSES: (Duration, Duration) = (Duration::from_millis(100), Duration::from_secs(5));
/// How long it waits for its own call.
const ECHO: Duration = Duration::from_secs(2);

/// What has been heard.
#[derive(Debug, Clone, Copy, Default)]
struct Heard {
    /// Counts changes, and the times when some may have been missed.
    changes: u64,
    /// Whether somebody listens.
    listens: bool,
}

/// Hears changes for one store, as long as that is there.
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

    /// Where the changes are now.
    pub fn changes(&self) -> u64 {
        self.heard.borrow().changes
    }

    /// Whether changes are heard at the moment.
    pub fn listens(&self) -> bool {
        self.heard.borrow().listens
    }

    /// Waits until there is one after `seen`.
    pub async fn after(&self, seen: u64) -> u64 {
        let mut heard = self.heard.clone();
        let changes = heard.wait_for(|heard| heard.changes > seen).await.map(|heard| heard.changes);
        match changes {
            Ok(changes) => changes,
            // The task ends with the store alone.
            Err(_) => std::future::pending().await,
        }
    }
}

/// Listens, and connects again whenever the connection is lost.
async fn listen(url: Url, tell: Arc<watch::Sender<Heard>>) {
    let mut pause = PAUSES.0;
    loop {
        let heard_something = hear(&url, &tell).await;
        // Whatever came while nobody listened counts as one change.
        tell.send_modify(|heard| *heard = Heard { changes: heard.changes + 1, listens: false });
        pause = if heard_something { PAUSES.0 } else { (pause * 2).min(PAUSES.1) };
        tokio::time::sleep(pause).await;
    }
}

/// Listens on one connection until it is lost; says whether anything was heard.
async fn hear(url: &Url, tell: &Arc<watch::Sender<Heard>>) -> bool {
    let Ok((client, connection)) = url.config.connect(NoTls).await else { return false };
    let channel = format!("qo.{}", url.schema());
    let pump = tokio::spawn(pump(connection, Arc::clone(tell)));
    let before = tell.borrow().changes;
    let echo = async {
        // Two transactions: a pooler may give them two connections.
        client.batch_execute(&format!("LISTEN \"{channel}\"")).await.ok()?;
        client.batch_execute(&format!("NOTIFY \"{channel}\"")).await.ok()?;
        tell.subscribe().wait_for(|heard| heard.changes > before).await.ok().map(|_| ())
    };
    let hears = tokio::time::timeout(ECHO, echo).await.ok().flatten().is_some();
    if hears {
        tell.send_modify(|heard| heard.listens = true);
        // It ends with the connection.
        drop(pump.await);
    } else {
        tracing::warn!(
            "no notifications from this server: a pooler between? Workers look more often instead"
        );
        pump.abort();
    }
    drop(client);
    hears
}

/// Reads the connection to its end and counts notifications.
async fn pump(mut connection: Connection<Socket, NoTlsStream>, tell: Arc<watch::Sender<Heard>>) {
    while let Some(Ok(message)) = poll_fn(|context| connection.poll_message(context)).await {
        if matches!(message, AsyncMessage::Notification(_)) {
            tell.send_modify(|heard| heard.changes += 1);
        }
    }
}
