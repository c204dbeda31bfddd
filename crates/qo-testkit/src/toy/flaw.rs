//! The ways in which a [`ToyStore`](super::ToyStore) may be broken, one at a time.

/// One broken rule. Exactly one place of the toy reads each flaw; [`museum`](crate::museum) says where the bug really
/// happened.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Flaw {
    /// Every rule holds.
    #[default]
    None,
    /// A settle that comes too late frees the job's slots a second time.
    DoubleRelease,
    /// A settle is matched by job alone.
    SettleByJob,
    /// A settle is matched by job and worker name.
    SettleByWorker,
    /// A settle is matched by the job's state: a token that lost its lease still settles the waiting job.
    SettleAfterLeaseEnd,
    /// Slots stay taken when a session ends with running jobs.
    CrashLeaksSlots,
    /// Holders from before the newest worker came up are not counted.
    RestartForgetsHolders,
    /// Each worker counts only the jobs that it runs itself.
    LimitPerWorker,
    /// The limit is read once per claim, not once per job.
    BatchCheckedOnce,
    /// The first jobs by insert order own the slots, whether they can run or not.
    CapacityByInsertOrder,
    /// A job whose group is full ends the walk.
    FullGroupBlocks,
    /// A job whose task the worker lacks ends the walk.
    MissingHandlerBlocks,
    /// A job whose date has not come ends the walk.
    FutureDateBlocks,
    /// A job whose task the worker lacks is thrown away.
    UnknownTaskDiscarded,
    /// Lowering a limit ends the attempts that are over it.
    LoweringKills,
    /// A limit of 0 is no limit.
    ZeroIsUnlimited,
    /// A job that met a full group is looked at again when a slot is freed, not when the limit is raised.
    RaiseWakesNoJob,
    /// No slots are kept for a big job.
    BigJobStarved,
    /// A big job that no worker serves keeps slots all the same.
    UnservedBigJobReserves,
    /// A big job keeps slots only while a worker that serves it has a permit free.
    BusyWorkerServesNothing,
    /// A big job that another group holds back keeps slots all the same.
    BlockedBigJobReserves,
    /// A repeated exchange is carried out again.
    RepeatClaimsAnew,
    /// A repeated exchange is answered with nothing.
    RepeatIsEmpty,
    /// A renewal after the lease's end is refused although nothing ended the session.
    LateRenewalRefused,
    /// Sessions are ended by a clock that runs ahead.
    FastClock,
    /// The sweeper ends its first page of what is over and stops.
    SweepStopsAfterPage,
    /// The sweeper's page is full of running jobs that it may not end, and it reads no further.
    SweepStarved,
    /// An ended session can be opened again.
    ReopenRevives,
    /// Where a group has a limit, the limits of its keys are ignored.
    KeyLimitIgnored,
    /// Extra limits are stored, shown and ignored.
    ExtraLimitsIgnored,
    /// Slots are taken one by one, and the first is not given back when the second is full.
    SlotsOneByOne,
    /// A retry of a cancelled job runs again.
    RetryAfterCancel,
    /// Cancelling a running job frees its slots while the handler still runs.
    CancelFreesSlots,
    /// A call is refused for one job after the jobs before it are stored.
    InvalidStoresHalf,
    /// An idempotency key is stored and not looked up.
    IdempotencyIgnored,
    /// `on_limit` counts running jobs only.
    OnLimitCountsRunning,
    /// A limit holds for jobs that were submitted after it.
    LimitForNewJobsOnly,
    /// A limit of the submit side beats the operator's.
    SubmitLimitWins,
    /// A configuration adds to the last one instead of replacing it.
    ConfigurationMerges,
    /// A configuration replaces that of every app.
    PushReplacesAllApps,
    /// A worker learns of a pause with its next exchange.
    PauseSeenLate,
    /// Higher priorities run first.
    PriorityReversed,
    /// A lost lease uses no attempt.
    LostLeaseIsFree,
    /// A snooze uses an attempt.
    SnoozeUsesAttempt,
    /// Timeouts are stored and not enforced.
    TimeoutNeverEnforced,
    /// `good_until` ends a job that runs.
    GoodUntilEndsRunning,
    /// Tokens are counted per job.
    TokenPerJob,
    /// An exchange claims before it settles, so freed slots idle until the next one.
    ClaimBeforeSettle,
    /// The head of a workflow is the step with the lowest id.
    StepsById,
    /// A reopened step does not wait for the later one that runs.
    TwoStepsAtOnce,
    /// A step that waits for its retry counts as passed.
    RetryPassesStep,
    /// A step that ended in any way counts as passed.
    HaltedGoesOn,
    /// A start does not check for room: what was claimed runs.
    StartExceedsLimit,
    /// Claims ahead of time do not count each other.
    PrefetchByCount,
    /// A claimed job takes its slots from jobs that could run.
    ClaimHoldsSlots,
    /// A start ignores the big jobs ahead of it.
    StartOvertakes,
    /// A start is matched by job and session, not by token.
    StartByJob,
    /// A start brings no new token.
    StartKeepsToken,
    /// Claims are stored with an end that is ignored.
    ExpiredClaimStarts,
    /// The claims of a session that ended stay.
    DeadWorkersClaimsStay,
    /// A start of a job that cannot start uses an attempt.
    ParkedStartUsesAttempt,
    /// A draining session keeps its claims.
    DrainKeepsClaims,
    /// The leases of programs are not ended.
    ProgramLeaseNeverEnds,
    /// A lease that has ended can be extended.
    ExtendRevives,
    /// Slots are given back by their place in the group, not by token.
    ReturnByPosition,
    /// `on_limit` counts jobs only.
    ProgramsNotCounted,
    /// Programs ignore the big jobs in line.
    ProgramsOvertake,
    /// A tick has no identity, and firing it does not move the next tick.
    TickFiresTwice,
    /// The policy for missed ticks is stored and ignored.
    MissedTicksAllRun,
    /// A tick whose time the clock jumps over is lost.
    TickInGapLost,
    /// A failed job is remembered as long as a succeeded one.
    FailedForgottenEarly,
    /// An idempotency key lives as long as its job's retention.
    KeyForgottenEarly,
    /// The step that halts a workflow is forgotten while other steps wait.
    HaltingStepForgotten,
    /// A bulk change never returns where to continue.
    BulkStopsAfterPage,
    /// A reopened job has used its attempts.
    ReopenKeepsAttempts,
    /// An operator's retry or skip applies to the step that halts the workflow when it arrives, not to the one it
    /// names.
    SteerHitsTheNext,
    /// A report of progress is matched by job.
    ProgressByJob,
    /// Progress of one attempt is shown in the next.
    ProgressOutlivesAttempt,
    /// `work` draws the tokens of the jobs that the worker would get.
    WorkUsesTokens,
    /// Of a long log the beginning is kept.
    LogKeepsItsBeginning,
    /// Views count sessions and leases as live until a command ends them.
    ViewsCountTheDead,
    /// A retry does not change a job that waits for its next attempt.
    RetryLeavesTheWait,
    /// The last attempt is remembered as retried.
    LastAttemptIsRetried,
    /// The date at which a token expires is stored and ignored.
    ExpiredTokenLives,
    /// Revoking a token is recorded and does nothing.
    RevokedTokenLives,
    /// A session that another token opened can be opened again.
    SessionIsAnyones,
}
