//! Commands: everything that may be asked of the rule book, and the answers.

use crate::{Configuration, Exchange, ExchangeReply, FenceToken, GroupRef, JobId, JobState, Name, NewJob};
use crate::{NewSession, Result, SessionId, Submitted, TaskOptions, Time};
use serde::{Deserialize, Serialize};

/// A request that may change the state. Each is one atomic step.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Command {
    /// Store jobs. See [`Store::submit`](crate::Store::submit).
    Submit(Vec<NewJob>),
    /// Call jobs off. See [`Store::cancel`](crate::Store::cancel).
    Cancel(Vec<JobId>),
    /// Declare tasks. See [`Store::register`](crate::Store::register).
    Register(Vec<TaskOptions>),
    /// Push a configuration file. See [`Store::configure`](crate::Store::configure).
    Configure(Configuration),
    /// An operator's limit. See [`Store::set_limit`](crate::Store::set_limit).
    SetLimit(GroupRef, u32),
    /// Take an operator's limit back. See [`Store::unset_limit`](crate::Store::unset_limit).
    UnsetLimit(GroupRef),
    /// Stop or resume claims from a queue. See [`Store::pause_queue`](crate::Store::pause_queue).
    PauseQueue(Name, bool),
    /// Open a session. See [`Store::open_session`](crate::Store::open_session).
    OpenSession(NewSession),
    /// Settle, renew, claim. See [`Store::exchange`](crate::Store::exchange).
    Exchange(Exchange),
    /// End a session early. See [`Store::close_session`](crate::Store::close_session).
    CloseSession(SessionId),
    /// Take a slot away from its holder. See [`Store::release_slot`](crate::Store::release_slot).
    ReleaseSlot(GroupRef, FenceToken),
    /// End what is over. See [`Store::sweep`](crate::Store::sweep).
    Sweep,
}

/// The answer to a [`Command`], variant by variant.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Answer {
    /// Per job, in the order of the call.
    Submitted(Vec<Result<Submitted>>),
    /// Per job, in the order of the call: its state now. A running job stays running until it is settled.
    Cancelled(Vec<Result<JobState>>),
    /// The session is open.
    Opened(OpenedSession),
    /// The exchange's reply.
    Exchanged(Box<ExchangeReply>),
    /// What a sweep ended.
    Swept(Swept),
    /// Done; there is nothing else to say.
    Done,
}

/// A session as it was opened.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct OpenedSession {
    /// Store time at which it was opened, also when it is opened again: a worker counts its lease from the
    /// moment it *first* sent the request.
    pub now: Time,
    /// Store time at which it ends unless it is renewed before.
    pub lease_until: Time,
}

/// What a sweep ended.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Swept {
    /// Sessions whose lease was over.
    pub sessions: u64,
    /// Attempts that ended with their session or by their timeout.
    pub attempts: u64,
    /// Jobs that expired.
    pub expired: u64,
    /// Finished jobs whose time to be remembered was over.
    pub forgotten: u64,
}
