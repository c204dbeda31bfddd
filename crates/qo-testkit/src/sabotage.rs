//! The sabotage museum: a store for every bug that another system really had. A suite that passes one of them says
//! nothing about qo either.

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
    /// The conformance case that is there to catch it, `area::name`; others may catch it too.
    pub case: &'static str,
}

const fn exhibit(
    flaw: Flaw,
    origin: &'static str,
    breaks: &'static str,
    what: &'static str,
    case: &'static str,
) -> Exhibit {
    Exhibit { flaw, origin, breaks, what, case }
}

/// Every exhibit. One that names no other system is a bug that this design invites.
#[rustfmt::skip]
pub fn museum() -> Vec<Exhibit> {
    use Flaw::*;
    vec![
        exhibit(DoubleRelease, "Solid Queue #761", "G1", "a zombie's late settle frees the slots again", "fence::a_slot_is_not_released_twice"),
        exhibit(SettleByJob, "Oban, graphile, River, pg-boss, Procrastinate", "G2", "a settle is matched by job id", "fence::a_settle_is_matched_by_attempt_and_not_by_job"),
        exhibit(SettleByWorker, "horsies 0.2.9", "G2", "a settle is matched by worker, not by claim", "fence::a_worker_that_claims_its_own_lost_job_again_has_a_new_token"),
        exhibit(SettleAfterLeaseEnd, "River, Oban", "G2", "a lost claim settles the job that waits for its next try", "fence::a_token_that_lost_its_lease_is_fenced_even_if_the_job_still_waits"),
        exhibit(CrashLeaksSlots, "Solid Queue #546, Prefect #17415, Dagster #32560, pgconductor 0.1.0", "G5", "a dead worker's slots stay taken", "crash::a_slot_is_back_after_one_lease_and_a_sweep"),
        exhibit(RestartForgetsHolders, "Solid Queue #735, Hatchet #4778", "G1", "holders from before the newest worker started are forgotten", "crash::a_worker_or_program_that_starts_again_finds_its_slots_held"),
        exhibit(LimitPerWorker, "horsies < 0.1.7", "G1", "two views of the fleet, two limits: each counts its own", "limits::a_limit_counts_across_the_fleet"),
        exhibit(BatchCheckedOnce, "this design", "G1", "room is looked up once for a whole batch", "limits::a_limit_is_reached_and_not_exceeded"),
        exhibit(CapacityByInsertOrder, "Hatchet #4778", "G5", "jobs that cannot run yet own the slots by their age", "slots::a_job_that_waits_for_its_retry_holds_nothing"),
        exhibit(FullGroupBlocks, "pg-boss #756, Airflow #45636, Procrastinate #1599", "G7", "a full group at the head blocks every other job", "passing::a_full_group_delays_no_other_job"),
        exhibit(MissingHandlerBlocks, "this design", "G7", "a task that this worker lacks blocks the line", "passing::a_missing_handler_delays_no_other_job"),
        exhibit(FutureDateBlocks, "this design", "G7", "a future date blocks the line", "passing::a_future_date_delays_no_other_job"),
        exhibit(UnknownTaskDiscarded, "River #1105", "G3", "a job of an unknown task is thrown away", "passing::an_unknown_task_is_left_for_a_worker_that_has_it"),
        exhibit(LoweringKills, "pgconductor 0.1.0", "lowering drains", "lowering a limit takes running jobs away", "slots::a_lowered_limit_stops_no_running_job"),
        exhibit(ZeroIsUnlimited, "Inngest", "0 holds", "a limit of 0 lets everything through", "limits::a_limit_of_zero_holds_jobs_and_loses_none"),
        exhibit(RaiseWakesNoJob, "Prefect #23183", "raising wakes", "waiters do not notice a higher limit", "slots::a_raised_limit_lets_waiting_jobs_go_at_once"),
        exhibit(BigJobStarved, "Airflow #29474", "big jobs", "small jobs take every slot before a big one has enough", "reservation::a_big_job_is_not_starved_by_small_ones"),
        exhibit(UnservedBigJobReserves, "this design", "G5", "a big job that no worker can run keeps slots idle", "reservation::a_big_job_that_no_worker_serves_reserves_nothing"),
        exhibit(BusyWorkerServesNothing, "this design", "big jobs", "a big job is starved whenever its workers are busy", "reservation::a_big_job_is_not_starved_while_its_workers_are_busy"),
        exhibit(BlockedBigJobReserves, "this design", "G5", "a big job that waits elsewhere keeps slots idle", "reservation::a_big_job_that_misses_two_groups_reserves_nothing"),
        exhibit(RepeatClaimsAnew, "this design", "G5", "a repeated exchange grants again; the first grant runs nowhere", "exchange::a_lost_reply_gives_the_same_answer_again"),
        exhibit(RepeatIsEmpty, "Hatchet #4494", "G5", "a repeated exchange answers with nothing; the grant is lost", "exchange::a_lost_reply_gives_the_same_answer_again"),
        exhibit(LateRenewalRefused, "this design", "G9", "a late renewal is refused although nothing ended the lease", "session::until_the_event_a_late_session_may_renew_and_settle"),
        exhibit(FastClock, "this design", "G9", "a clock that runs ahead ends live sessions", "session::a_session_is_over_at_its_end_and_not_before"),
        exhibit(SweepStopsAfterPage, "River #1318", "G5", "recovery does not get to the end of what is over", "scale::one_sweep_ends_any_backlog_of_sessions"),
        exhibit(SweepStarved, "River #1318", "G5", "the reaper's page is full of rows that it may not reap", "scale::a_sweep_is_not_starved_by_leases_that_it_may_not_end"),
        exhibit(ReopenRevives, "this design", "G2", "a session that has ended comes back to life", "session::a_session_that_ended_cannot_be_opened_again"),
        exhibit(KeyLimitIgnored, "this design", "key limits", "a group's limit hides that of its keys", "limits::group_and_key_both_count"),
        exhibit(ExtraLimitsIgnored, "this design", "extra limits", "extra limits are stored and not looked at", "limits::extra_limits_take_as_many_slots_as_listed"),
        exhibit(SlotsOneByOne, "this design", "all or none", "the first slot leaks when the second is not to be had", "passing::a_job_waiting_for_two_groups_runs_when_both_have_room"),
        exhibit(RetryAfterCancel, "this design", "cancel", "a cancelled job that retries runs again", "cancel::any_other_end_of_a_cancelled_job_is_cancelled"),
        exhibit(CancelFreesSlots, "this design", "cancel", "a cancelled handler runs on without its slots", "cancel::a_running_job_keeps_its_slots_until_settled"),
        exhibit(InvalidStoresHalf, "this design", "batches", "a refused call leaves half of its jobs behind", "submit::a_rule_that_needs_the_state_refuses_the_whole_call_by_its_index"),
        exhibit(IdempotencyIgnored, "this design", "G3", "the same key is accepted twice", "idempotency::the_same_idempotency_key_again_is_the_first_job"),
        exhibit(OnLimitCountsRunning, "this design", "on_limit", "waiting jobs are not counted before a submit", "on_limit::all_live_jobs_count"),
        exhibit(LimitForNewJobsOnly, "this design", "G8", "a limit holds only for jobs submitted after it", "slots::a_limit_binds_workers_that_were_there_before_it"),
        exhibit(SubmitLimitWins, "this design", "which limit counts", "a submit overrules the operator", "sources::operator_beats_config_beats_code_beats_submit"),
        exhibit(ConfigurationMerges, "this design", "which limit counts", "a limit that left the file stays", "sources::a_configuration_replaces_the_last_one_whole"),
        exhibit(PushReplacesAllApps, "this design", "which limit counts", "a second service wipes the limits of the first", "apps::a_push_replaces_nothing_of_another_app"),
        exhibit(PauseSeenLate, "this design", "G8", "a claim leaks through after a pause", "queues::nothing_is_claimed_from_a_paused_queue"),
        exhibit(PriorityReversed, "this design", "claim order", "higher numbers run first", "order::a_lower_priority_runs_first"),
        exhibit(LostLeaseIsFree, "this design", "attempts", "a job that kills its worker is tried for ever", "crash::a_lost_lease_uses_an_attempt_and_says_so"),
        exhibit(SnoozeUsesAttempt, "this design", "outcomes", "snoozing uses attempts up", "settle::a_snooze_waits_for_its_delay_and_uses_no_attempt"),
        exhibit(TimeoutNeverEnforced, "this design", "timeouts", "a hung handler that renews holds its slot for ever", "timeout::a_timeout_ends_a_lease_after_ten_seconds_though_its_worker_renews"),
        exhibit(GoodUntilEndsRunning, "this design", "good_until", "good_until ends a job that runs", "time::good_until_is_never_checked_during_a_run"),
        exhibit(TokenPerJob, "this design", "fence tokens", "tokens do not grow across the namespace", "fence::one_counter_gives_the_tokens_of_claims_starts_and_programs"),
        exhibit(ClaimBeforeSettle, "Prefect #23183", "the exchange", "a freed slot idles until the next exchange", "slots::a_freed_slot_goes_to_the_next_job_in_the_same_exchange"),
        exhibit(StepsById, "Hatchet #4778", "G6", "steps run in the order of their ids, not of their acceptance", "workflow::steps_are_numbered_in_the_order_of_their_acceptance"),
        exhibit(TwoStepsAtOnce, "this design", "G6", "a reopened step runs beside the later one that runs already", "steer::a_reopened_step_waits_for_the_one_that_runs"),
        exhibit(RetryPassesStep, "this design", "G6", "the next step overtakes one that waits for its retry", "workflow::a_step_waits_through_the_retries_and_delays_of_the_one_before_it"),
        exhibit(HaltedGoesOn, "this design", "workflows", "the steps behind a failure run as if nothing had happened", "workflow::any_end_but_success_halts_the_rest"),
        exhibit(StartExceedsLimit, "horsies, soft mode", "G1", "a claimed job starts although its group is full by now", "start::a_start_that_finds_no_room_goes_back_to_its_place"),
        exhibit(PrefetchByCount, "horsies, soft mode", "prefetch", "more is claimed than could run, out of reach of other workers", "prefetch::no_more_is_claimed_than_there_is_room_for"),
        exhibit(ClaimHoldsSlots, "this design", "G5", "slots idle because a worker has claimed a job for them", "start::a_claimed_job_keeps_no_slot_from_one_that_could_run"),
        exhibit(StartOvertakes, "this design", "big jobs", "claimed jobs start past a big job that waits for their slots", "start::a_start_does_not_overtake_a_big_job"),
        exhibit(StartByJob, "horsies 0.2.9", "G2", "a claim that ended starts the next claim of the same worker", "fence::a_start_with_a_token_that_has_not_claimed_the_job_is_fenced"),
        exhibit(StartKeepsToken, "this design", "fence tokens", "an old claim's token owns the run", "start::a_start_takes_every_slot_with_a_new_token"),
        exhibit(ExpiredClaimStarts, "this design", "G5", "a claim that is never started is never over", "prefetch::a_claim_is_over_at_its_time_and_not_before"),
        exhibit(DeadWorkersClaimsStay, "Hatchet #4494", "G5", "what a dead worker had claimed is claimed for ever", "crash::claimed_jobs_of_a_dead_worker_go_back_and_use_no_attempt"),
        exhibit(ParkedStartUsesAttempt, "GoodJob #838", "attempts", "finding the group full uses attempts up", "start::a_start_that_finds_no_room_goes_back_to_its_place"),
        exhibit(DrainKeepsClaims, "this design", "G5", "a draining worker sits on jobs that it will not start", "start::a_draining_worker_gives_its_claims_back_after_its_starts"),
        exhibit(ProgramLeaseNeverEnds, "graphile (4 h), Prefect #17415", "G5", "a dead program's slots stay taken", "standalone::a_programs_lease_is_over_at_its_time_and_not_before"),
        exhibit(ExtendRevives, "this design", "G1", "a program whose slots were given to another takes them again", "standalone::a_programs_lease_is_over_at_its_time_and_not_before"),
        exhibit(ReturnByPosition, "this design", "G1", "giving slots back frees those of another program", "standalone::a_program_gives_back_its_own_slots_and_no_others"),
        exhibit(ProgramsNotCounted, "this design", "on_limit", "slots of programs are not counted before a submit", "standalone::slots_of_programs_count_at_submit"),
        exhibit(ProgramsOvertake, "this design", "big jobs", "programs take every slot before a big job has enough", "standalone::a_program_never_takes_what_a_big_job_waits_for"),
        exhibit(TickFiresTwice, "this design", "schedules", "two workers that come at one tick submit it twice", "schedule::a_tick_runs_once_across_the_fleet"),
        exhibit(MissedTicksAllRun, "this design", "schedules", "after a night off every missed tick runs", "tick::of_missed_ticks_the_latest_one_runs"),
        exhibit(TickInGapLost, "this design", "schedules", "the night without a 02:30 goes without its job", "tick::a_fixed_time_that_does_not_exist_fires_once_after_the_jump"),
        exhibit(FailedForgottenEarly, "this design", "retention", "failed jobs are gone after a day", "history::each_outcome_has_its_own_retention"),
        exhibit(KeyForgottenEarly, "this design", "G3", "a key is forgotten with its job, however soon that is", "history::an_idempotency_key_is_remembered_a_day_at_least"),
        exhibit(HaltingStepForgotten, "this design", "G6", "the steps behind a failure run once it is forgotten", "history::the_step_that_halts_is_not_forgotten_while_others_wait"),
        exhibit(BulkStopsAfterPage, "River #1318", "in bulk", "a change of all jobs ends after its first page", "reopen::a_filter_is_cancelled_page_by_page"),
        exhibit(ReopenKeepsAttempts, "this design", "retry", "a reopened job fails at its first error", "reopen::failed_cancelled_and_expired_jobs_may_be_reopened"),
        exhibit(SteerHitsTheNext, "our own review", "workflows", "a skip that is sent again skips the next failure too", "steer::a_repeated_steer_does_nothing_to_the_next_step"),
        exhibit(ProgressByJob, "this design", "G2", "a worker that lost the job reports over its new owner", "progress::a_report_with_an_old_token_is_passed_over"),
        exhibit(ProgressOutlivesAttempt, "this design", "progress", "a new attempt begins at 90 percent", "progress::progress_is_gone_when_the_attempt_ends"),
        exhibit(WorkUsesTokens, "our own review", "G2", "a look at what there is uses up fence tokens", "work::a_look_for_work_changes_nothing"),
        exhibit(LogKeepsItsBeginning, "this design", "logs", "of a long log the end, with the error, is cut off", "log::of_a_long_log_the_end_is_kept"),
        exhibit(ViewsCountTheDead, "our own review", "views", "a full group is blamed on a worker that was killed", "views::a_session_whose_lease_has_passed_is_gone_in_every_view"),
        exhibit(RetryLeavesTheWait, "our own review", "retry", "an operator's retry waits for the backoff all the same", "reopen::a_job_that_waits_for_its_next_attempt_runs_now"),
        exhibit(LastAttemptIsRetried, "our own review", "attempts", "a job failed, and its log says that it was retried", "settle::the_retry_of_the_last_attempt_fails"),
        exhibit(ExpiredTokenLives, "this design", "tokens", "a token's date is stored and not looked at", "token::an_expired_token_is_gone_and_its_name_is_free"),
        exhibit(RevokedTokenLives, "this design", "tokens", "a revoked token goes on opening doors", "token::a_revoked_token_is_gone_and_its_name_is_free"),
        exhibit(SessionIsAnyones, "this design", "tokens", "who guesses a session's id may use it", "session::a_session_of_another_owner_cannot_be_opened_again"),
    ]
}
