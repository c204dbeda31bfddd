//! The sabotage museum: a store for every bug that others really had. A suite that lets one of them pass
//! proves nothing about qo either.

use crate::Flaw;

/// One bug on show.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Exhibit {
    /// The toy that has it.
    pub flaw: Flaw,
    /// Where it really happened.
    pub origin: &'static str,
    /// The guarantee, or the rule, that it breaks.
    pub breaks: &'static str,
    /// What goes wrong, in one line.
    pub what: &'static str,
}

const fn exhibit(flaw: Flaw, origin: &'static str, breaks: &'static str, what: &'static str) -> Exhibit {
    Exhibit { flaw, origin, breaks, what }
}

/// Every exhibit. Where nobody else's name stands, the bug is one that this design invites.
#[rustfmt::skip]
pub fn museum() -> Vec<Exhibit> {
    use Flaw::*;
    vec![
        exhibit(DoubleRelease, "Solid Queue #761", "G1", "a zombie's late settle frees the slots again"),
        exhibit(SettleByJob, "Oban, graphile, River, pg-boss, Procrastinate", "G2", "a settle is matched by job id"),
        exhibit(SettleByWorker, "horsies 0.2.9", "G2", "a settle is matched by worker, not by claim"),
        exhibit(SettleAfterLeaseEnd, "River, Oban", "G2", "a lost claim settles the job that waits for its next try"),
        exhibit(CrashLeaksSlots, "Solid Queue #546, Prefect #17415, Dagster #32560, pgconductor 0.1.0", "G5", "a dead worker's slots stay taken"),
        exhibit(RestartForgetsHolders, "Solid Queue #735, Hatchet #4778", "G1", "who held slots before the newcomer is forgotten"),
        exhibit(LimitPerWorker, "horsies < 0.1.7", "G1", "two views of the fleet, two limits: each counts its own"),
        exhibit(BatchCheckedOnce, "this design", "G1", "room is looked up once for a whole batch"),
        exhibit(CapacityByInsertOrder, "Hatchet #4778", "G5", "jobs that cannot run yet own the slots by their age"),
        exhibit(FullGroupBlocks, "pg-boss #756, Airflow #45636, Procrastinate #1599", "G7", "a full group at the head blocks everybody"),
        exhibit(MissingHandlerBlocks, "this design", "G7", "a task that this worker lacks blocks the line"),
        exhibit(FutureDateBlocks, "this design", "G7", "a future date blocks the line"),
        exhibit(UnknownTaskDiscarded, "River #1105", "G3", "a job of an unknown task is thrown away"),
        exhibit(LoweringKills, "pgconductor 0.1.0", "lowering drains", "lowering a limit takes running jobs away"),
        exhibit(ZeroIsUnlimited, "Inngest", "0 holds", "a limit of 0 lets everything through"),
        exhibit(RaiseWakesNobody, "Prefect #23183", "raising wakes", "waiters do not notice a higher limit"),
        exhibit(BigJobStarved, "Airflow #29474", "big jobs", "small jobs take every slot before a big one has enough"),
        exhibit(UnservedBigJobReserves, "this design", "G5", "a big job that nobody can run keeps slots idle"),
        exhibit(BusyServeNobody, "this design", "big jobs", "a big job is starved whenever its workers are busy"),
        exhibit(BlockedBigJobReserves, "this design", "G5", "a big job that waits elsewhere keeps slots idle"),
        exhibit(RepeatClaimsAnew, "this design", "G5", "a repeated exchange grants again; the first grant runs nowhere"),
        exhibit(RepeatIsEmpty, "Hatchet #4494", "G5", "a repeated exchange answers with nothing; the grant is lost"),
        exhibit(LateRenewalRefused, "this design", "G9", "a late renewal is refused although nothing ended the lease"),
        exhibit(FastClock, "this design", "G9", "a clock that runs ahead ends live sessions"),
        exhibit(SweepStopsAfterPage, "River #1318", "G5", "recovery does not get to the end of what is over"),
        exhibit(SweepStarved, "River #1318", "G5", "the reaper's page is full of rows that it may not reap"),
        exhibit(ReopenRevives, "this design", "G2", "a session that has ended comes back to life"),
        exhibit(KeyLimitIgnored, "this design", "key limits", "a group's limit hides that of its keys"),
        exhibit(ExtraLimitsIgnored, "this design", "extra limits", "extra limits are stored and not looked at"),
        exhibit(SlotsOneByOne, "this design", "all or none", "the first slot leaks when the second is not to be had"),
        exhibit(RetryAfterCancel, "this design", "cancel", "a cancelled job that retries runs again"),
        exhibit(CancelFreesSlots, "this design", "cancel", "a cancelled handler runs on without its slots"),
        exhibit(InvalidStoresHalf, "this design", "batches", "a refused call leaves half of its jobs behind"),
        exhibit(IdempotencyIgnored, "this design", "G3", "the same key is accepted twice"),
        exhibit(OnLimitCountsRunning, "this design", "on_limit", "waiting jobs are not counted before a submit"),
        exhibit(LimitForNewJobsOnly, "this design", "G8", "a limit holds only for jobs submitted after it"),
        exhibit(SubmitLimitWins, "this design", "which limit counts", "a submit overrules the operator"),
        exhibit(ConfigurationMerges, "this design", "which limit counts", "a limit that left the file stays"),
        exhibit(PauseSeenLate, "this design", "G8", "a claim leaks through after a pause"),
        exhibit(PriorityReversed, "this design", "claim order", "higher numbers run first"),
        exhibit(LostLeaseIsFree, "this design", "attempts", "a job that kills its worker is tried for ever"),
        exhibit(SnoozeUsesAttempt, "this design", "outcomes", "snoozing uses attempts up"),
        exhibit(TimeoutNeverEnforced, "this design", "timeouts", "a hung handler that renews holds its slot for ever"),
        exhibit(GoodUntilEndsRunning, "this design", "good_until", "good_until ends a job that runs"),
        exhibit(TokenPerJob, "this design", "fence tokens", "tokens do not grow across the namespace"),
        exhibit(ClaimBeforeSettle, "Prefect #23183", "the exchange", "a freed slot idles until the next exchange"),
        exhibit(StepsById, "Hatchet #4778", "G6", "steps run in the order of their ids, not of their acceptance"),
        exhibit(TwoStepsAtOnce, "this design", "G6", "a reopened step runs beside the later one that runs already"),
        exhibit(RetryPassesStep, "this design", "G6", "the next step overtakes one that waits for its retry"),
        exhibit(HaltedGoesOn, "this design", "workflows", "the steps behind a failure run as if nothing had happened"),
        exhibit(StartExceedsLimit, "horsies, soft mode", "G1", "a claimed job starts although its group is full by now"),
        exhibit(PrefetchByCount, "horsies, soft mode", "prefetch", "more is claimed than could run, out of everybody's reach"),
        exhibit(ClaimHoldsSlots, "this design", "G5", "slots idle because somebody has claimed a job for them"),
        exhibit(StartOvertakes, "this design", "big jobs", "claimed jobs start past a big job that waits for their slots"),
        exhibit(StartByJob, "horsies 0.2.9", "G2", "a claim that ended starts the next claim of the same worker"),
        exhibit(StartKeepsToken, "this design", "fence tokens", "an old claim's token owns the run"),
        exhibit(ExpiredClaimStarts, "this design", "G5", "a claim that nobody starts is never over"),
        exhibit(DeadWorkersClaimsStay, "Hatchet #4494", "G5", "what a dead worker had claimed is claimed for ever"),
        exhibit(ParkedStartUsesAttempt, "GoodJob #838", "attempts", "finding the group full uses attempts up"),
        exhibit(DrainKeepsClaims, "this design", "G5", "a draining worker sits on jobs that it will not start"),
        exhibit(ProgramLeaseNeverEnds, "graphile (4 h), Prefect #17415", "G5", "a dead program's slots stay taken"),
        exhibit(ExtendRevives, "this design", "G1", "a program whose slots are somebody else's takes them again"),
        exhibit(ReturnByPosition, "this design", "G1", "giving slots back frees those of another program"),
        exhibit(ProgramsNotCounted, "this design", "on_limit", "slots of programs are not counted before a submit"),
        exhibit(ProgramsOvertake, "this design", "big jobs", "programs take every slot before a big job has enough"),
        exhibit(TickFiresTwice, "this design", "schedules", "two workers that come at one tick submit it twice"),
        exhibit(MissedTicksAllRun, "this design", "schedules", "after a night off every missed tick runs"),
        exhibit(TickInGapLost, "this design", "schedules", "the night without a 02:30 goes without its job"),
        exhibit(FailedForgottenEarly, "this design", "retention", "failed jobs are gone after a day"),
        exhibit(KeyForgottenEarly, "this design", "G3", "a key is forgotten with its job, however soon that is"),
        exhibit(HaltingStepForgotten, "this design", "G6", "the steps behind a failure run once it is forgotten"),
        exhibit(BulkStopsAfterPage, "River #1318", "in bulk", "a change of all jobs ends after its first page"),
        exhibit(ReopenKeepsAttempts, "this design", "retry", "a reopened job fails at its first error"),
    ]
}
