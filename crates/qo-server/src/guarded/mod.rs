//! The store as one caller may use it: every method says what it needs, and shows nothing of foreign queues.
//!
//! | scope | may |
//! |---|---|
//! | `read` | look at jobs, their logs, groups, queues, workers, workflows, schedules, configurations |
//! | `submit` | submit jobs; look at a job by its id and ask why it waits, so that it can wait for its end |
//! | `work` | open sessions and use its own, keep logs of its own attempts, take and return slots, register and configure its own app, sweep |
//! | `admin` | all of these, and what operators do: cancel, retry, limits, pauses, slots, workflows, schedules, tokens, the audit log |
//!
//! **A token bound to queues** sees, submits, works and cancels in these alone. A foreign job is `NotFound`. Lists of jobs,
//! queues, schedules and workers leave out what is foreign. What belongs to several queues at once is refused: the list of
//! groups, workflows, configurations, all tokens, the audit log, limits but those of its own queues.
//!
//! **What proves ownership.** A session belongs to the token that opened it, whatever its scopes: see [`owners`]. The id of
//! a lease on slots is 128 random bits that its program made; views show it to admins alone, so it proves itself.
//!
//! **Errors** of the store that are not the caller's fault may name hosts, paths or SQL. They go to the log; the caller gets
//! their kind, their cause and the id of its request.

mod hide;
mod narrow;
pub(crate) mod owners;
mod store;

use crate::request_id::RequestId;
use crate::rights::Rights;
use crate::tokens::LiveTokens;
use owners::{Owners, not_owned};
use qo_core::{Cause, Deed, Error, ErrorKind, Operator, Result, SessionId, Store};
use std::sync::Arc;

/// The store of one caller, for one request.
pub(crate) struct Guarded {
    store: Arc<dyn Store>,
    rights: Arc<Rights>,
    owners: Arc<Owners>,
    tokens: Arc<LiveTokens>,
    request: RequestId,
}

impl Guarded {
    pub fn new(
        store: Arc<dyn Store>,
        rights: Arc<Rights>,
        owners: Arc<Owners>,
        tokens: Arc<LiveTokens>,
        request: RequestId,
    ) -> Self {
        Self { store, rights, owners, tokens, request }
    }

    /// What a call of the store answered, as the caller is told.
    fn told<T>(&self, answer: Result<T>) -> Result<T> {
        answer.map_err(|error| self.said(error))
    }

    /// What the store answered for each item of a call.
    fn told_each<T>(&self, answer: Result<Vec<Result<T>>>) -> Result<Vec<Result<T>>> {
        Ok(self.told(answer)?.into_iter().map(|item| self.told(item)).collect())
    }

    /// An error as the caller is told.
    fn said(&self, error: Error) -> Error {
        let kind = error.kind();
        let is_safe = match kind {
            ErrorKind::Invalid => error.cause() != Some(Cause::Refused),
            ErrorKind::NotFound | ErrorKind::Conflict | ErrorKind::LimitReached | ErrorKind::Fenced => true,
            ErrorKind::Unavailable | ErrorKind::Unknown | ErrorKind::Data | ErrorKind::Internal => false,
        };
        if is_safe {
            return error;
        }
        tracing::warn!(request = %self.request, "the store: {error}");
        let what = match kind {
            ErrorKind::Unavailable => "the store behind the server does not answer",
            ErrorKind::Unknown => "the store behind the server did not say whether it happened",
            ErrorKind::Data => "what the store behind the server has is damaged",
            _ => "the store behind the server failed",
        };
        let told =
            Error::new(kind, format!("{what}; the server's log has more, at request {}", self.request));
        match error.cause() {
            Some(cause) => told.with_cause(cause),
            None => told,
        }
    }

    /// The store in the hands of this caller as an operator.
    fn operator(&self) -> Operator<'_> {
        Operator::new(&*self.store, self.rights.by(), missed)
    }

    /// An error unless the session is the caller's. Without tokens every session is.
    pub async fn need_session(&self, session: SessionId) -> Result<()> {
        let Some(token) = self.rights.token() else { return Ok(()) };
        match self.told(self.owners.owns(token, session).await)? {
            Some(true) => Ok(()),
            Some(false) | None => Err(not_owned(session)),
        }
    }
}

fn missed(deed: &Deed, error: &Error) {
    tracing::error!("not in the audit log: {} {} {}: {error}", deed.by, deed.what, deed.on);
}
