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

/// Every exhibit. Where nobody else's name stands, the bug is one that our own design invites.
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
        exhibit(BatchCheckedOnce, "our own review", "G1", "room is looked up once for a whole batch"),
        exhibit(CapacityByInsertOrder, "Hatchet #4778", "G5", "jobs that cannot run yet own the slots by their age"),
        exhibit(FullGroupBlocks, "pg-boss #756, Airflow #45636, Procrastinate #1599", "G7", "a full group at the head blocks everybody"),
        exhibit(MissingHandlerBlocks, "our own review", "G7", "a task that this worker lacks blocks the line"),
        exhibit(FutureDateBlocks, "our own review", "G7", "a future date blocks the line"),
        exhibit(UnknownTaskDiscarded, "River #1105", "G3", "a job of an unknown task is thrown away"),
        exhibit(LoweringKills, "pgconductor 0.1.0", "lowering drains", "lowering a limit takes running jobs away"),
        exhibit(ZeroIsUnlimited, "Inngest", "0 holds", "a limit of 0 lets everything through"),
        exhibit(RaiseWakesNobody, "Prefect #23183", "raising wakes", "waiters do not notice a higher limit"),
        exhibit(BigJobStarved, "Airflow #29474", "big jobs", "small jobs take every slot before a big one has enough"),
        exhibit(UnservedBigJobReserves, "our own review", "G5", "a big job that nobody can run keeps slots idle"),
        exhibit(SaturatedReserves, "our own review", "G5", "a big job freezes free slots while its workers are busy"),
        exhibit(BlockedBigJobReserves, "our own review", "G5", "a big job that waits elsewhere keeps slots idle"),
        exhibit(RepeatClaimsAnew, "our own review", "G5", "a repeated exchange grants again; the first grant runs nowhere"),
        exhibit(RepeatIsEmpty, "Hatchet #4494", "G5", "a repeated exchange answers with nothing; the grant is lost"),
        exhibit(LateRenewalRefused, "our own review", "G9", "a late renewal is refused although nothing ended the lease"),
        exhibit(FastClock, "our own review", "G9", "a clock that runs ahead ends live sessions"),
        exhibit(SweepStopsAfterPage, "River #1318", "G5", "recovery does not get to the end of what is over"),
        exhibit(SweepStarved, "River #1318", "G5", "the reaper's page is full of rows that it may not reap"),
        exhibit(ReopenRevives, "our own review", "G2", "a session that has ended comes back to life"),
        exhibit(KeyLimitIgnored, "our own review", "key limits", "a group's limit hides that of its keys"),
        exhibit(ExtraLimitsIgnored, "our own review", "extra limits", "extra limits are stored and not looked at"),
        exhibit(SlotsOneByOne, "our own review", "all or none", "the first slot leaks when the second is not to be had"),
        exhibit(RetryAfterCancel, "our own review", "cancel", "a cancelled job that retries runs again"),
        exhibit(CancelFreesSlots, "our own review", "cancel", "a cancelled handler runs on without its slots"),
        exhibit(InvalidStoresHalf, "our own review", "batches", "a refused call leaves half of its jobs behind"),
        exhibit(IdempotencyIgnored, "our own review", "G3", "the same key is accepted twice"),
        exhibit(OnLimitCountsRunning, "our own review", "on_limit", "waiting jobs are not counted before a submit"),
        exhibit(LimitForNewJobsOnly, "our own review", "G8", "a limit holds only for jobs submitted after it"),
        exhibit(SubmitLimitWins, "our own review", "which limit counts", "a submit overrules the operator"),
        exhibit(ConfigurationMerges, "our own review", "which limit counts", "a limit that left the file stays"),
        exhibit(PauseSeenLate, "our own review", "G8", "a claim leaks through after a pause"),
        exhibit(PriorityReversed, "our own review", "claim order", "higher numbers run first"),
        exhibit(LostLeaseIsFree, "our own review", "attempts", "a job that kills its worker is tried for ever"),
        exhibit(SnoozeUsesAttempt, "our own review", "outcomes", "snoozing uses attempts up"),
        exhibit(TimeoutNeverEnforced, "our own review", "timeouts", "a hung handler that renews holds its slot for ever"),
        exhibit(GoodUntilEndsRunning, "our own review", "good_until", "good_until ends a job that runs"),
        exhibit(TokenPerJob, "our own review", "fence tokens", "tokens do not grow across the namespace"),
        exhibit(ClaimBeforeSettle, "Prefect #23183", "the exchange", "a freed slot idles until the next exchange"),
    ]
}
