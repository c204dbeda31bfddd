//! What a ledger finds out.

use super::{GroupIndex, Ledger};
use qo_core::{
    Answer, AttemptOutcome, Changed, ClaimedJob, ErrorKind, Exchange, ExchangeReply, FenceToken, GroupRef,
};
use qo_core::{JobId, JobState, LeaseId, Name, NewJob, PrefetchedJob, Result, SessionId, Settle, SlotLease};
use qo_core::{SlotRequest, SlotsFreedBy, Start, Started, Steer, Submitted, Swept, TickOutcome, Time};

/// Receives every fact, with the ledger as it was before the fact.
pub type Tell<'a> = dyn FnMut(&Ledger, &Fact<'_>) + 'a;

/// What a ledger derived. Watches get it before the ledger changes.
#[derive(Debug)]
pub enum Fact<'a> {
    /// A job of a submit, or of a schedule that was triggered, and what became of it.
    Submitted(&'a NewJob, &'a Result<Submitted>),
    /// A settle, its answer, and what the rules say about it.
    Settled(SessionId, &'a Settle, &'a Result<JobState>, Verdict),
    /// The start of a claimed job, its answer, and what the rules say about it.
    Started(SessionId, &'a Start, &'a Result<Started>, StartVerdict),
    /// An attempt is over.
    Ended {
        /// Index of the job.
        job: usize,
        /// The claim that is over.
        token: FenceToken,
        /// How it ended.
        outcome: AttemptOutcome,
        /// Where that leaves the job.
        then: JobState,
    },
    /// A claim is over whose job has not started.
    ClaimEnded {
        /// Index of the job.
        job: usize,
        /// The claim that is over.
        token: FenceToken,
        /// How it ended.
        how: ClaimEnd,
        /// Where that leaves the job.
        then: JobState,
    },
    /// A job was given to a session, to run.
    Granted(&'a Grant<'a>),
    /// A job was claimed ahead of time. The index is missing if no client ever submitted it.
    Prefetched(SessionId, &'a PrefetchedJob, Option<usize>),
    /// A walk of a claim is complete: the ledger has the jobs that it took as taken.
    Walked(&'a Walked<'a>),
    /// The last number of a session was answered again; whether with the same answer.
    Repeated(&'a Exchange, bool),
    /// An exchange was answered although its session does not exist or its number is wrong.
    Unfenced(&'a Exchange),
    /// An exchange is complete. This fact comes *after* those of its settles, starts, ends and grants.
    Exchanged(&'a Exchange, &'a ExchangeReply),
    /// A sweep's own count, and what was over by the ledger.
    Swept(Swept, Swept),
    /// A cancel, its answer, and what the rules say.
    Cancelled(JobId, &'a Result<JobState>, Option<JobState>),
    /// A running job was cancelled for the first time: its worker must be told.
    StopAsked(usize),
    /// A retry, its answer, and what the rules say.
    Retried(JobId, &'a Result<JobState>, Result<JobState, ErrorKind>),
    /// A finished job is reopened.
    Reopened(usize),
    /// A bulk change's own count, how many jobs it should have changed, and whether there are more.
    Changed(Changed, u64, bool),
    /// A workflow was steered, or not; and what the rules say.
    Steered(&'a Name, Steer, &'a Result<Answer>, Result<(), ErrorKind>),
    /// An operator released a slot by force; whether that token held it by the ledger.
    Released(&'a GroupRef, FenceToken, &'a Result<Answer>, bool),
    /// A program asked for slots, the answer, and what the rules say.
    Acquired(&'a SlotRequest, &'a Result<Option<SlotLease>>, AcquireVerdict),
    /// A program takes slots: its token and what it takes. The ledger has its own limit already.
    SlotsTaken(&'a SlotRequest, FenceToken, &'a [(GroupIndex, u32)]),
    /// A program extended its lease or gave its slots back; the lease that is due, none if it is fenced.
    Held(LeaseId, FenceToken, &'a Result<Answer>, Option<Option<SlotLease>>),
    /// A program's slots are free again.
    SlotsFreed(LeaseId, SlotsFreedBy),
    /// A schedule was changed or triggered; whether there is one of that name.
    ScheduleAsked(&'a Name, &'a Result<Answer>, bool),
    /// A tick came; what became of its job by the ledger.
    Ticked(&'a Name, Time, &'a NewJob, &'a TickOutcome),
    /// A schedule was due, and its ticks came too late to run.
    Missed(&'a Name),
    /// A pending job reached a terminal state.
    Dropped(usize, JobState),
    /// A finished job's time to be remembered is over.
    Forgotten(usize),
}

/// A job that was given to a session, to run.
#[derive(Debug, Clone, Copy)]
pub struct Grant<'a> {
    /// The session.
    pub session: SessionId,
    /// The job.
    pub id: JobId,
    /// The token that owns it from now on.
    pub token: FenceToken,
    /// Its index; missing if no client ever submitted it.
    pub job: Option<usize>,
    /// The job as the answer shows it; none if it was claimed before and starts now.
    pub claimed: Option<&'a ClaimedJob>,
}

/// One walk of a claim along the line.
#[derive(Debug, Clone, Copy)]
pub struct Walked<'a> {
    /// The exchange that claims.
    pub exchange: &'a Exchange,
    /// What it took, in its order.
    pub taken: &'a [usize],
    /// What the walk before it took.
    pub before: &'a [usize],
    /// Whether it claimed ahead of time.
    pub ahead: bool,
    /// Whether a claim of the session was over: it claims nothing ahead of time then.
    pub held_too_long: bool,
}

/// What the rules say about a settle.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Verdict {
    /// The token owns the job; this is where the job goes.
    Owner(JobState),
    /// The token has claimed the job and gives it back; this is where the job goes.
    GivesBack(JobState),
    /// The token has claimed the job, which has not started: it has no such outcome.
    NotStarted,
    /// The token settled the job before: the recorded state. A new session of the same worker may be
    /// refused.
    Again(JobState, SessionId),
    /// The token owns nothing.
    Stale,
}

/// What the rules say about a start.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum StartVerdict {
    /// The token has not claimed the job for that session.
    Stale,
    /// `good_until` is over.
    Expires,
    /// It is given back, for this reason.
    GivenBack(&'static str),
    /// It runs.
    Runs,
}

/// How a claim ended whose job has not started.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ClaimEnd {
    /// It could not start.
    CouldNotStart,
    /// Its worker released it.
    Released,
    /// Its worker drains.
    Drained,
    /// It was not started in time.
    Over,
    /// Its session ended.
    SessionEnded,
    /// The job was cancelled.
    Cancelled,
}

/// What the rules say about a request for slots.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AcquireVerdict {
    /// It is held already: that lease.
    Same(SlotLease),
    /// The id is held, with another group or another number of slots.
    Conflict,
    /// It asks for more than the limit.
    Invalid,
    /// It gets them.
    Granted,
    /// It does not, for this reason.
    Refused(&'static str),
}
