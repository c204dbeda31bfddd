//! Commands: every request to the rule book, and the answers.

use crate::{AuditText, Deed, NewToken, TaskOptions, Time, TokenId};
use crate::{
    Configuration, Cursor, Exchange, ExchangeReply, FenceToken, GroupRef, JobFilter, JobId, JobState,
};
use crate::{
    LeaseId, Name, NewJob, NewSession, Pushed, Result, SessionId, SlotLease, SlotRequest, Steer, Submitted,
};
use serde::{Deserialize, Serialize};

/// A request that may change the state. Each is one atomic step.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Command {
    /// Store jobs. See [`Store::submit`](crate::Store::submit).
    Submit(Vec<NewJob>),
    /// Store jobs that were [offered](NewJob::check_offer).
    ///
    /// Their client heard that they are safe before any process looked at the state, so none of them is refused any
    /// more. Not a method of [`Store`](crate::Store): a store that takes offers sends it.
    Admit(Vec<NewJob>),
    /// Cancel jobs. See [`Store::cancel`](crate::Store::cancel).
    Cancel(Vec<JobId>),
    /// Declare tasks. See [`Store::register`](crate::Store::register).
    Register(Vec<TaskOptions>),
    /// Push a configuration file. See [`Store::configure`](crate::Store::configure).
    Configure(Configuration),
    /// Set an operator's limit. See [`Store::set_limit`](crate::Store::set_limit).
    SetLimit(GroupRef, u32),
    /// Take an operator's limit back. See [`Store::unset_limit`](crate::Store::unset_limit).
    UnsetLimit(GroupRef),
    /// Stop or resume claims from a queue. See [`Store::pause_queue`](crate::Store::pause_queue).
    PauseQueue(Name, bool),
    /// Open a session. See [`Store::open_session`](crate::Store::open_session).
    OpenSession(NewSession),
    /// Settle, start, renew and claim. See [`Store::exchange`](crate::Store::exchange).
    Exchange(Exchange),
    /// End a session early. See [`Store::close_session`](crate::Store::close_session).
    CloseSession(SessionId),
    /// Take a slot away from its holder. See [`Store::release_slot`](crate::Store::release_slot).
    ReleaseSlot(GroupRef, FenceToken),
    /// End what is over. See [`Store::sweep`](crate::Store::sweep).
    Sweep,
    /// Reopen ended jobs. See [`Store::retry`](crate::Store::retry).
    Retry(Vec<JobId>),
    /// Remove jobs that succeeded from the state, because the store archives [them](crate::State::archivable).
    ///
    /// Jobs that are not there, or may not be archived, stay as they are. Not a method of [`Store`](crate::Store): a
    /// store that archives sends it.
    Archive {
        /// The jobs.
        jobs: Vec<JobId>,
    },
    /// Cancel or retry the jobs that match a filter. See [`Store::change_matching`](crate::Store::change_matching).
    ChangeMatching {
        /// What to do.
        change: Change,
        /// Which jobs.
        filter: JobFilter,
        /// Only those after this place.
        after: Option<Cursor>,
        /// At most this many.
        limit: usize,
    },
    /// Retry or skip a step, or cancel a workflow. See [`Store::steer_workflow`](crate::Store::steer_workflow).
    SteerWorkflow(Name, Steer),
    /// Take slots for a program. See [`Store::acquire_slots`](crate::Store::acquire_slots).
    AcquireSlots(SlotRequest),
    /// Extend a program's lease on its slots. See [`Store::extend_slots`](crate::Store::extend_slots).
    ExtendSlots {
        /// The lease.
        lease: LeaseId,
        /// The token that came with it.
        token: FenceToken,
        /// How long from now.
        lease_ms: u64,
    },
    /// Return a program's slots. See [`Store::return_slots`](crate::Store::return_slots).
    ReturnSlots(LeaseId, FenceToken),
    /// Enable or disable a schedule. See [`Store::enable_schedule`](crate::Store::enable_schedule).
    EnableSchedule(Name, bool),
    /// Submit a schedule's job now, with this id. See [`Store::trigger_schedule`](crate::Store::trigger_schedule).
    TriggerSchedule(Name, JobId),
    /// Create a token, and record who did. See [`Store::create_token`](crate::Store::create_token).
    CreateToken(NewToken, AuditText),
    /// Revoke a token, and record who did. See [`Store::revoke_token`](crate::Store::revoke_token).
    RevokeToken(TokenId, AuditText),
    /// Record what an operator did. See [`Store::record`](crate::Store::record).
    Record(Deed),
}

/// The answer to a [`Command`].
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Answer {
    /// Of a submit or an admission: the outcome of each job, in the order of the call.
    Submitted(Vec<Result<Submitted>>),
    /// The state of each job, in the order of the call. A running job stays running until it is settled.
    Cancelled(Vec<Result<JobState>>),
    /// The session is open.
    Opened(OpenedSession),
    /// The exchange's reply.
    Exchanged(Box<ExchangeReply>),
    /// What a sweep ended.
    Swept(Swept),
    /// The state of each job, in the order of the call.
    Retried(Vec<Result<JobState>>),
    /// What a bulk change did.
    Changed(Changed),
    /// The slots that a program holds now. None if there was no room.
    Acquired(Option<SlotLease>),
    /// A program's lease, extended.
    Extended(SlotLease),
    /// A schedule's job, triggered.
    Triggered(Result<Submitted>),
    /// What a configuration or registration changed.
    Pushed(Pushed),
    /// Done, without more to say.
    Done,
}

/// What a bulk change does to each job that it finds.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Change {
    /// Cancel it, unless it has ended.
    Cancel,
    /// Reopen it if it ended without success; make it due now if it waits for its next attempt.
    Retry,
}

/// What a bulk change did.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Changed {
    /// Jobs that it changed, or asked to stop.
    pub jobs: u64,
    /// Where to go on. None if no other job matches.
    pub next: Option<Cursor>,
}

/// A session as it was opened.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct OpenedSession {
    /// Store time at which it was opened, also when it is opened again.
    ///
    /// A worker counts its lease from the moment it *first* sent the request.
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
    /// Claims that ended before their job started, with their session or by their lease.
    pub claims: u64,
    /// Programs whose lease on slots was over.
    pub slots: u64,
    /// Jobs of schedules that were submitted.
    pub fired: u64,
    /// Jobs that expired.
    pub expired: u64,
    /// Ended jobs that were forgotten. If that is [`FORGOTTEN`](crate::caps::FORGOTTEN), there may be more: sweep
    /// again.
    pub forgotten: u64,
}
