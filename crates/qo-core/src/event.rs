//! Events: what was decided. Replaying them decides nothing, so it always reaches the same state.

use crate::{
    AttemptOutcome, Configuration, ErrorText, FenceToken, GroupRef, JobId, JobState, Json, Name, NewJob,
};
use crate::{NewSession, Result, RetryPolicy, SessionId, Stop, TaskOptions, Time};
use serde::{Deserialize, Serialize};
use std::sync::Arc;

/// One thing that happened. A command decides zero or more of them; they happen together.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Event {
    /// Store time went on. What becomes due by it stands in line from now on.
    Ticked(Time),
    /// A job was accepted. Its group and `run_at` are filled in.
    Accepted(Arc<NewJob>),
    /// A worker owns the job now, and the job holds all its slots.
    Started {
        /// The job.
        job: JobId,
        /// Its new owner.
        session: SessionId,
        /// The claim's token: one more than the namespace's last.
        token: FenceToken,
        /// When its timeout ends the claim, whatever the session does.
        timeout_at: Option<Time>,
    },
    /// An attempt is over, and the slots are free.
    AttemptEnded(Box<AttemptEnded>),
    /// A job was called off while it ran; its worker will be told.
    CancelRequested(JobId),
    /// A pending job reached a terminal state without running: cancelled or expired.
    Dropped {
        /// The job.
        job: JobId,
        /// Where it is now.
        state: JobState,
    },
    /// A finished job's time to be remembered was over.
    Forgotten(JobId),
    /// A task was declared.
    Registered(Arc<TaskOptions>),
    /// A configuration replaced the last one.
    Configured(Arc<Configuration>),
    /// An operator set (or, with none, took back) a limit.
    LimitSet {
        /// The group, or every key of one.
        group: GroupRef,
        /// The limit.
        limit: Option<u32>,
    },
    /// The last live job of a group was gone, and so the limit that submitted jobs had brought.
    LimitSpent(GroupRef),
    /// A queue was paused or resumed.
    QueuePaused {
        /// The queue.
        queue: Name,
        /// Whether it is paused now.
        paused: bool,
    },
    /// A worker opened a session.
    SessionOpened {
        /// As it asked for it.
        session: Arc<NewSession>,
        /// When it ends unless it is renewed.
        lease_until: Time,
    },
    /// A session was renewed: its lease begins anew.
    Renewed {
        /// The session.
        session: SessionId,
        /// When it ends unless it is renewed again.
        lease_until: Time,
        /// Permits that the worker had free.
        free_permits: u32,
        /// The worker takes no more jobs.
        draining: bool,
    },
    /// An exchange was answered.
    Exchanged(Box<Exchanged>),
    /// A session is over; its attempts ended before.
    SessionEnded(SessionId),
    /// A session ended so long ago that its id need not be remembered.
    SessionForgotten(SessionId),
}

/// The end of an attempt, and where it left the job.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct AttemptEnded {
    /// The job.
    pub job: JobId,
    /// The claim that is over.
    pub token: FenceToken,
    /// How it ended.
    pub outcome: AttemptOutcome,
    /// What the handler, or the rule that ended it, said.
    pub error: Option<ErrorText>,
    /// What the handler returned.
    pub output: Option<Json>,
    /// Where the job is now.
    pub then: JobState,
    /// When it runs again; none leaves it where it stood in line.
    pub run_at: Option<Time>,
    /// The owner did not do this itself and must be told to stop.
    pub tell_owner: bool,
}

/// A claim, as its exchange was answered.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Granted {
    /// The claim's token.
    pub token: FenceToken,
    /// The timeout of this attempt.
    pub timeout_ms: Option<u64>,
    /// The backoff of this attempt.
    pub retry: RetryPolicy,
}

/// What an exchange was answered, after its settles and claims: the same number again gets the same.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Exchanged {
    /// The session.
    pub session: SessionId,
    /// The number that was answered.
    pub number: u64,
    /// Results of its settles.
    pub settled: Vec<Result<JobState>>,
    /// The jobs it claimed, in order; the claims themselves were `Started`.
    pub claimed: Vec<Granted>,
    /// What it was told to stop.
    pub stop: Vec<Stop>,
}
