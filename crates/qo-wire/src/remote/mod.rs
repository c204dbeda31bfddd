//! A store behind a server: every call of the [`Store`](qo_core::Store) trait as a call over the network.
//!
//! Its errors are those of the store behind the server, with all their parts. Beyond them a call may fail on its way:
//! see `link`. What a server says about changes is in `wake`.

mod link;
mod store;
mod told;
mod wake;

use crate::{Addresses, methods};
use link::Link;
use qo_core::{Error, ErrorKind, Result, SessionId, Time};
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicI64, Ordering};
use std::time::Duration;
use wake::Wakes;

/// How a client works with its servers.
#[derive(Debug, Clone)]
pub struct Options {
    /// How long one call may take, at all servers together. Defaults to 30 s.
    ///
    /// A call that takes longer is `Unknown` if it changes something, else `Unavailable`.
    pub deadline: Duration,
}

impl Default for Options {
    fn default() -> Self {
        Self { deadline: Duration::from_secs(30) }
    }
}

/// A namespace behind one or several `qo serve`.
pub struct RemoteStore {
    link: Arc<Link>,
    wakes: Arc<Wakes>,
    /// Whether the server hears of changes, by its last answer.
    tells_changes: AtomicBool,
    /// The latest store time that a server has told. Two servers of a directory may be a little apart.
    latest: AtomicI64,
}

impl fmt::Debug for RemoteStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RemoteStore").finish_non_exhaustive()
    }
}

impl RemoteStore {
    /// Connects to the first server that answers. `Unavailable` if none does, `Conflict` if its release and this one
    /// do not understand each other.
    ///
    /// The others are asked once they are needed. `Conflict` with [`OtherNamespace`](qo_core::Cause::OtherNamespace) if
    /// one then serves another namespace.
    ///
    /// Call it in the Tokio runtime in which the store is used.
    pub async fn connect(addresses: &Addresses, options: Options) -> Result<Self> {
        let link = Arc::new(Link::new(addresses, options.deadline)?);
        link.connect().await?;
        let wakes = Wakes::new(Arc::clone(&link));
        let tells_changes = AtomicBool::new(link.told().tells_changes);
        Ok(Self { link, wakes, tells_changes, latest: AtomicI64::new(i64::MIN) })
    }

    /// The release of the server that answered a handshake last.
    pub fn server_version(&self) -> String {
        self.link.told().version.clone()
    }

    /// Ends the stream of a session that has ended: it would count against the streams of the connection for good.
    fn of_session<T>(&self, session: SessionId, result: Result<T>) -> Result<T> {
        if result.as_ref().is_err_and(|error| error.kind() == ErrorKind::Fenced) {
            self.wakes.forget(session);
        }
        result
    }

    /// Store time that was told, so that it never falls: the latest one that any server has told.
    fn told(&self, now: Time) -> Time {
        let now = now.as_millis();
        Time::from_millis(self.latest.fetch_max(now, Ordering::AcqRel).max(now))
    }
}

fn method(name: &str) -> Result<&'static methods::Method> {
    methods::method(name).ok_or_else(|| Error::new(ErrorKind::Internal, format!("there is no method {name}")))
}

/// Reads a reply. A server of this level writes none that cannot be read.
fn read<T>(reply: impl TryInto<T, Error = Error>) -> Result<T> {
    reply.try_into().map_err(unreadable)
}

fn unreadable(error: Error) -> Error {
    let message = format!("the server's reply cannot be read: {}", error.message());
    Error::new(ErrorKind::Internal, message)
}
