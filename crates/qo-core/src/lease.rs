//! Sessions and the exchange: how a worker holds jobs, settles them and gets the next ones.
//!
//! 1. A worker opens a session.
//! 2. It repeats one call, the **exchange**: it settles ended attempts, starts jobs that it claimed ahead of time,
//!    renews the session and claims new jobs, in one atomic step. A slot that a settle frees is granted in the same
//!    commit.
//! 3. Exchanges of a session are numbered 1, 2, 3, …, and one is in flight at a time. If a reply is lost, the worker
//!    sends the *same number* again and gets the *same answer*, so a lost reply loses no grant.
//! 4. When it ends, the worker closes its session.

use crate::{
    Error, ErrorText, FenceToken, JobId, JobState, Json, Key, Name, Progress, Result, RetryPolicy, SessionId,
    Time, TokenId, Traceparent,
};
use crate::{caps, job::is_default, job::within};
use serde::{Deserialize, Serialize};

/// A worker's request for a session: its registration with the store, under a lease that it renews.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct NewSession {
    /// Random, made by the worker. Opening the same id again is the same session.
    pub id: SessionId,
    /// The worker's name: a label, not an identity.
    pub worker: Name,
    /// The queues it serves. Empty means all of them.
    #[serde(default)]
    pub queues: Vec<Name>,
    /// The tasks it has handlers for. It gets jobs of no other task.
    pub tasks: Vec<Name>,
    /// How long the session lives after each exchange.
    pub lease_ms: u64,
    /// How many jobs it can run at once.
    pub permits: u32,
    /// The token that opened it. A server sets it; a client need not. Defaults to none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub owner: Option<TokenId>,
}

impl NewSession {
    /// Checks every rule that needs no state. A store calls it before anything else.
    pub fn check(&self) -> Result<()> {
        within("lease_ms", self.lease_ms, caps::LEASE_MIN_MS, caps::LEASE_MAX_MS)?;
        within("queues", self.queues.len() as u64, 0, caps::SERVED as u64)?;
        within("tasks", self.tasks.len() as u64, 1, caps::SERVED as u64)?;
        within("permits", self.permits.into(), 1, caps::LIMIT.into())
    }
}

/// One numbered exchange of a session.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Exchange {
    /// The session that it renews.
    pub session: SessionId,
    /// 1 for the first of a session, then one more each time. The same number again gets the same answer.
    pub number: u64,
    /// Attempts that ended, and claimed jobs that the worker gives back.
    #[serde(default)]
    pub settles: Vec<Settle>,
    /// Claimed jobs to start now, in this order.
    #[serde(default)]
    pub starts: Vec<Start>,
    /// The progress of the jobs that it runs. Reports on other jobs, and on jobs that it settles here, are ignored.
    #[serde(default)]
    pub progress: Vec<Progress>,
    /// How many jobs it wants.
    pub claim: Claim,
    /// Permits that are free when this is sent, including those of the jobs it settles. The store subtracts what it
    /// claims; operators and `explain` see the rest.
    pub free_permits: u32,
    /// The worker takes no more jobs and closes its session when the last one is settled.
    pub draining: bool,
    /// How full the worker's memory is, in percent: of its control group if that has a limit, else of its machine.
    /// Operators see it. Defaults to unknown.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub memory_percent: Option<u8>,
    /// How long to renew a session that has nothing to do. Defaults to its lease.
    ///
    /// It applies if the session then holds no job, and it is allowed only if the exchange asks for no jobs. Where a
    /// renewal costs something, an idle worker can so renew seldom.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub idle_ms: Option<u64>,
}

impl Exchange {
    /// An exchange that only renews the session. It reports no free permits and no draining; the worker fills those in.
    pub fn renew(session: SessionId, number: u64) -> Self {
        Self {
            session,
            number,
            settles: Vec::new(),
            starts: Vec::new(),
            progress: Vec::new(),
            claim: Claim::default(),
            free_permits: 0,
            draining: false,
            memory_percent: None,
            idle_ms: None,
        }
    }

    /// Whether it only asks for jobs: it settles, starts and reports nothing.
    pub fn only_asks(&self) -> bool {
        let says_nothing = self.settles.is_empty() && self.starts.is_empty() && self.progress.is_empty();
        says_nothing && !self.draining && self.idle_ms.is_none()
    }

    /// Checks every rule that needs no state. A store calls it before anything else.
    pub fn check(&self) -> Result<()> {
        within("number", self.number, 1, u64::MAX)?;
        within("settles", self.settles.len() as u64, 0, caps::SETTLES as u64)?;
        let bytes: usize = self.settles.iter().map(|settle| settle.outcome.bytes()).sum();
        if bytes > caps::SETTLE_BYTES {
            let rule = format_args!("must carry at most {} bytes of output and errors", caps::SETTLE_BYTES);
            return Err(Error::invalid("settles", bytes, rule));
        }
        within("starts", self.starts.len() as u64, 0, caps::CLAIM.into())?;
        within("progress", self.progress.len() as u64, 0, caps::PROGRESS as u64)?;
        for (index, report) in self.progress.iter().enumerate() {
            report.check().map_err(|error| error.at_item("progress", index))?;
        }
        within("claim.max", self.claim.max.into(), 0, caps::CLAIM.into())?;
        if let Some(most) = self.claim.max_claim_batch {
            within("claim.max_claim_batch", most.into(), 1, caps::CLAIM.into())?;
        }
        if self.draining && self.claim.max > 0 {
            let rule = "must be 0 while draining";
            return Err(Error::invalid("claim.max", self.claim.max, rule));
        }
        if let Some(Prefetch { buffer, lease_ms }) = self.claim.prefetch {
            within("claim.prefetch.buffer", buffer.into(), 1, caps::CLAIM.into())?;
            within("claim.prefetch.lease_ms", lease_ms, caps::LEASE_MIN_MS, caps::LEASE_MAX_MS)?;
            if self.draining {
                return Err(Error::invalid(
                    "claim.prefetch.buffer",
                    buffer,
                    "must not be asked for while draining",
                ));
            }
        }
        if let Some(idle_ms) = self.idle_ms {
            within("idle_ms", idle_ms, caps::LEASE_MIN_MS, caps::LEASE_MAX_MS)?;
            if self.claim.max > 0 || self.claim.prefetch.is_some() || !self.starts.is_empty() {
                return Err(Error::invalid("idle_ms", idle_ms, "must not be asked for together with jobs"));
            }
        }
        if let Some(memory_percent) = self.memory_percent {
            within("memory_percent", memory_percent.into(), 0, 100)?;
        }
        within("free_permits", self.free_permits.into(), 0, caps::LIMIT.into())
    }
}

/// How many jobs an exchange wants.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Claim {
    /// At most this many in all. Defaults to 0: none.
    pub max: u32,
    /// At most this many from any one queue. Defaults to no such limit.
    pub max_claim_batch: Option<u32>,
    /// Also claim jobs ahead of time. Defaults to none: claiming is starting.
    pub prefetch: Option<Prefetch>,
}

/// Jobs to claim ahead of time: they hold no slot until they start.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Prefetch {
    /// The session may hold this many claimed jobs in all; the exchange tops them up.
    pub buffer: u32,
    /// How long it may hold each of them before it starts it.
    pub lease_ms: u64,
}

/// A claimed job to start.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Start {
    /// The job.
    pub job: JobId,
    /// The token that came with the claim.
    pub token: FenceToken,
}

/// What became of a [`Start`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Started {
    /// `Running`; `Pending` if it could not start and is back in line, no attempt used; or `Expired`.
    pub then: JobState,
    /// Its new token, timeout and backoff, if it runs.
    pub run: Option<Granted>,
}

/// A grant: what a worker needs to know about a claim beyond the job itself.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Granted {
    /// The claim's token.
    pub token: FenceToken,
    /// The timeout of this attempt.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub timeout_ms: Option<u64>,
    /// The backoff of this attempt.
    #[serde(default, skip_serializing_if = "is_default")]
    pub retry: RetryPolicy,
}

/// The end of an attempt, as its worker reports it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Settle {
    /// The job.
    pub job: JobId,
    /// The token that came with the claim.
    pub token: FenceToken,
    /// How the attempt ended.
    pub outcome: Outcome,
}

/// How an attempt ended.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Outcome {
    /// The job is done, with a result.
    Succeed {
        /// What the handler returned.
        output: Json,
    },
    /// Try again after a delay, if attempts are left.
    Retry {
        /// What went wrong.
        error: ErrorText,
        /// How long to wait. The worker computes it from the job's [`RetryPolicy`].
        delay_ms: u64,
    },
    /// The job fails now.
    Fail {
        /// What went wrong.
        error: ErrorText,
    },
    /// Run again after a delay. No attempt is used.
    Snooze {
        /// How long to wait.
        delay_ms: u64,
    },
    /// Give the job back as it was. No attempt is used. It is the only outcome of a claimed job that has not started.
    Release,
    /// The handler stopped because the job was cancelled.
    Cancelled,
}

impl Outcome {
    pub(crate) fn name(&self) -> &'static str {
        match self {
            Self::Succeed { .. } => "succeed",
            Self::Retry { .. } => "retry",
            Self::Fail { .. } => "fail",
            Self::Snooze { .. } => "snooze",
            Self::Release => "release",
            Self::Cancelled => "cancelled",
        }
    }

    fn bytes(&self) -> usize {
        match self {
            Self::Succeed { output } => output.as_str().len(),
            Self::Retry { error, .. } | Self::Fail { error } => error.as_str().len(),
            Self::Snooze { .. } | Self::Release | Self::Cancelled => 0,
        }
    }

    /// Checks every rule that needs no state.
    pub fn check(&self) -> Result<()> {
        match self {
            Self::Succeed { output } => output.check("output"),
            Self::Retry { delay_ms, .. } | Self::Snooze { delay_ms } => {
                within("delay_ms", *delay_ms, 0, caps::DURATION_MS)
            }
            Self::Fail { .. } | Self::Release | Self::Cancelled => Ok(()),
        }
    }
}

/// What an exchange of a session would find.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Work {
    /// An exchange would bring a job, or a stop.
    pub now: bool,
    /// The next moment of store time, after `at`, at which time alone may make `now` true: a date, a lease expiry, a
    /// tick.
    pub next: Option<Time>,
    /// Store time of this look.
    pub at: Time,
    /// The store's change counter before this look. [`Store::changed`](crate::Store::changed) waits until it is passed.
    pub seen: u64,
}

/// The answer to an [`Exchange`].
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ExchangeReply {
    /// The number that this answers.
    pub number: u64,
    /// For each settle, the state of the job after it, or why it changed nothing.
    pub settled: Vec<Result<JobState>>,
    /// For each start, what became of it. `Fenced` if the claim is over.
    #[serde(default)]
    pub started: Vec<Result<Started>>,
    /// Jobs that the worker owns and runs from now on. Each holds its slots.
    pub claimed: Vec<ClaimedJob>,
    /// Jobs that the worker has claimed ahead of time. It must start them before it runs them.
    #[serde(default)]
    pub prefetched: Vec<PrefetchedJob>,
    /// Jobs whose handler must stop.
    pub stop: Vec<Stop>,
    /// Store time of this exchange.
    pub now: Time,
    /// Store time at which the session ends unless it is renewed before.
    ///
    /// Sending the same number again renews nothing: a worker counts its lease from the moment it *first* sent the
    /// exchange.
    pub lease_until: Time,
}

/// A job that a worker owns.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ClaimedJob {
    /// The job.
    pub id: JobId,
    /// Proves ownership, until a newer claim of the job.
    pub token: FenceToken,
    /// 1 for the first attempt.
    pub attempt: u32,
    /// The attempt after which the job fails for good.
    pub max_attempts: u32,
    /// Its queue.
    pub queue: Name,
    /// Its task.
    pub task: Name,
    /// Its group.
    pub group: Name,
    /// Its key.
    pub key: Option<Key>,
    /// What the handler gets.
    pub payload: Json,
    /// The worker must stop the handler after this long.
    pub timeout_ms: Option<u64>,
    /// How the worker computes the delay of a retry.
    pub retry: RetryPolicy,
    /// The trace that the job belongs to, if it was submitted with one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub traceparent: Option<Traceparent>,
    /// Since when it could run: the date that it was submitted with, or that of its retry. The time from then to
    /// [`ExchangeReply::now`] is how long it waited. None in a reply that an older release recorded.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub due_at: Option<Time>,
}

/// A job that a worker has claimed ahead of time.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct PrefetchedJob {
    /// The job. Its timeout and backoff are those at the claim; the start may bring others.
    pub job: ClaimedJob,
    /// Store time at which the claim is over unless the job starts before.
    pub claim_until: Time,
}

/// A job whose handler must stop.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Stop {
    /// The job.
    pub job: JobId,
    /// The token of the claim that must stop.
    pub token: FenceToken,
    /// Why it must stop.
    pub reason: StopReason,
}

/// Why a handler must stop.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum StopReason {
    /// The job was cancelled. A running job keeps its slots until the worker settles it. A job that was only claimed
    /// has ended.
    Cancelled,
    /// The claim is over: its timeout passed, an operator released it, or it was not started in time. Settling or
    /// starting it is `Fenced`.
    LeaseEnded,
}
