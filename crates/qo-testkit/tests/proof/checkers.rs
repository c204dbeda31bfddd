//! Each checker must object to a history that is broken in its own way, made by a toy with one flaw or by hand: a
//! checker that never objects proves nothing.

use crate::flawed::{missed, runs};
use crate::scene::{BOUND_MS, JOB, LEASE_MS, Scene};
use futures::executor::block_on;
use qo_core::{Answer, Command, ExchangeReply, GroupRef, JobId, Name, NewJob, Outcome, Reason, Settle};
use qo_testkit::checker::{self, Violation};
use qo_testkit::history::{Audit, History, What};
use qo_testkit::simulation::{Profile, Trust, run};
use qo_testkit::{Flaw, MemoryFixtures};
use std::sync::Arc;
use uuid::Uuid;

#[test]
fn every_flaw_of_the_toy_is_noticed_under_the_name_of_its_guarantee() {
    let flaws = [
        (Flaw::LimitPerWorker, "G1"),
        (Flaw::RestartForgetsHolders, "G1"),
        (Flaw::DoubleRelease, "G1"),
        (Flaw::BatchCheckedOnce, "G1"),
        (Flaw::ZeroIsUnlimited, "G1"),
        (Flaw::KeyLimitIgnored, "G1"),
        (Flaw::ExtraLimitsIgnored, "G1"),
        (Flaw::LimitForNewJobsOnly, "G1"),
        (Flaw::SubmitLimitWins, "G1"),
        (Flaw::ConfigurationMerges, "views"),
        (Flaw::PushReplacesAllApps, "views"),
        (Flaw::SettleByJob, "G2"),
        (Flaw::SettleByWorker, "G2"),
        (Flaw::SettleAfterLeaseEnd, "G2"),
        (Flaw::RepeatClaimsAnew, "G2"),
        (Flaw::RepeatIsEmpty, "G2"),
        (Flaw::LateRenewalRefused, "G2"),
        (Flaw::RetryAfterCancel, "G2"),
        (Flaw::TokenPerJob, "G2"),
        (Flaw::IdempotencyIgnored, "G3"),
        (Flaw::UnknownTaskDiscarded, "G3"),
        (Flaw::LoweringKills, "G4"),
        (Flaw::FastClock, "G4"),
        (Flaw::RepeatClaimsAnew, "G1′"),
        (Flaw::FullGroupBlocks, "G7"),
        (Flaw::MissingHandlerBlocks, "G7"),
        (Flaw::FutureDateBlocks, "G7"),
        (Flaw::CapacityByInsertOrder, "G7"),
        (Flaw::CrashLeaksSlots, "G7"),
        (Flaw::SlotsOneByOne, "G7"),
        (Flaw::PriorityReversed, "G7"),
        (Flaw::ClaimBeforeSettle, "G7"),
        (Flaw::UnservedBigJobReserves, "G7"),
        (Flaw::BigJobStarved, "reserved"),
        (Flaw::PauseSeenLate, "G8"),
        (Flaw::LimitPerWorker, "G8"),
        (Flaw::OnLimitCountsRunning, "on_limit"),
        (Flaw::LostLeaseIsFree, "views"),
        (Flaw::SnoozeUsesAttempt, "views"),
        (Flaw::TimeoutNeverEnforced, "views"),
        (Flaw::GoodUntilEndsRunning, "views"),
        (Flaw::StepsById, "G6"),
        (Flaw::TwoStepsAtOnce, "G6"),
        (Flaw::RetryPassesStep, "G6"),
        (Flaw::HaltedGoesOn, "G6"),
        (Flaw::StartExceedsLimit, "G1"),
        (Flaw::StartExceedsLimit, "G8"),
        (Flaw::StartExceedsLimit, "start"),
        (Flaw::StartOvertakes, "start"),
        (Flaw::StartByJob, "G2"),
        (Flaw::StartKeepsToken, "G2"),
        (Flaw::PrefetchByCount, "prefetch"),
        (Flaw::ClaimHoldsSlots, "G7"),
        (Flaw::ExpiredClaimStarts, "views"),
        (Flaw::ExpiredClaimStarts, "stop"),
        (Flaw::DeadWorkersClaimsStay, "views"),
        (Flaw::ParkedStartUsesAttempt, "views"),
        (Flaw::DrainKeepsClaims, "views"),
        (Flaw::ProgramLeaseNeverEnds, "views"),
        (Flaw::ProgramLeaseNeverEnds, "G5"),
        (Flaw::ExtendRevives, "G2"),
        (Flaw::ReturnByPosition, "G2"),
        (Flaw::ProgramsNotCounted, "on_limit"),
        (Flaw::ProgramsOvertake, "slots"),
        (Flaw::TickFiresTwice, "schedule"),
        (Flaw::MissedTicksAllRun, "schedule"),
        (Flaw::FailedForgottenEarly, "views"),
        (Flaw::KeyForgottenEarly, "views"),
        (Flaw::HaltingStepForgotten, "views"),
        (Flaw::BulkStopsAfterPage, "G3"),
        (Flaw::ReopenKeepsAttempts, "views"),
    ];
    assert_eq!(missed(flaws, |run| run.violations.clone()), []);
}

#[test]
fn checkers_find_nothing_in_a_toy_without_a_flaw() {
    for run in runs(Flaw::None) {
        assert_eq!(names(&run.violations), [""; 0], "seed {}", run.seed);
        let concurrent = checker::check_concurrent(&run.history).0;
        assert_eq!(names(&concurrent), [""; 0], "seed {}, read as concurrent calls", run.seed);
    }
}

#[test]
fn a_worker_that_trusts_its_lease_too_long_runs_one_handler_too_many() {
    for trust in [Trust::LastSent, Trust::Heard] {
        // A bad network loses replies for long enough.
        let usual = Profile::default();
        let profile = Profile { trust, faults: usual.faults.times(3), ..usual };
        let runs = (1..=200).map(|seed| run(seed, &profile, &MemoryFixtures).violations);
        let first = runs.into_iter().find(|violations| !violations.is_empty()).unwrap_or_default();
        assert_eq!(names(&first).first(), Some(&"G1′"), "{trust:?}: {first:?}");
    }
}

fn names(violations: &[Violation]) -> Vec<&str> {
    violations.iter().map(|violation| violation.guarantee).collect()
}

#[test]
fn a_handler_that_outlives_its_lease_is_one_too_many() {
    let mut scene = Scene::new();
    let token = scene.claim();
    scene.write(What::HandlerStarted(JOB, token));
    scene.wait(LEASE_MS);
    scene.call(Command::Sweep);
    assert_eq!(names(&checker::handlers::check(&scene.end())), ["G1′"]);
}

#[test]
fn a_handler_that_starts_after_its_lease_is_one_too_many() {
    let mut scene = Scene::new();
    let token = scene.claim();
    scene.wait(LEASE_MS);
    scene.call(Command::Sweep);
    scene.write(What::HandlerStarted(JOB, token));
    assert_eq!(names(&checker::handlers::check(&scene.end())), ["G1′"]);
}

#[test]
fn a_handler_of_a_process_that_slept_over_its_margin_is_excused() {
    let mut scene = Scene::new();
    let token = scene.claim();
    scene.write(What::HandlerStarted(JOB, token));
    scene.write(What::Paused { ms: 2 * LEASE_MS, beyond_margin: true });
    scene.wait(LEASE_MS);
    scene.call(Command::Sweep);
    assert_eq!(names(&checker::handlers::check(&scene.end())), [] as [&str; 0]);
}

#[test]
fn a_slot_without_a_handler_whose_session_renews_is_stuck() {
    let mut scene = Scene::new();
    scene.heal();
    scene.claim();
    for _ in 0..=BOUND_MS / 1_000 {
        scene.wait(1_000);
        scene.exchange(Vec::new(), 0);
    }
    assert_eq!(names(&checker::stuck::check(&scene.end())), ["G5"]);
}

#[test]
fn a_job_that_idle_workers_leave_in_line_is_stuck() {
    let mut scene = Scene::new();
    scene.heal();
    for _ in 0..=BOUND_MS / 1_000 {
        scene.wait(1_000);
        scene.exchange(Vec::new(), 0);
    }
    scene.wait(1_000);
    scene.exchange(Vec::new(), 0);
    assert_eq!(names(&checker::stuck::check(&scene.end())), ["G5"]);
}

#[test]
fn a_job_behind_a_limit_of_0_is_not_stuck() {
    let mut scene = Scene::new();
    scene.call(Command::SetLimit(GroupRef::Cluster, 0));
    scene.heal();
    for _ in 0..=2 * BOUND_MS / 1_000 {
        scene.wait(1_000);
        scene.exchange(Vec::new(), 4);
    }
    assert_eq!(names(&checker::check_all(&scene.end()).0), [] as [&str; 0]);
}

/// The same history with other answers to its exchanges.
fn forge(mut history: History, how: impl Fn(&mut ExchangeReply)) -> History {
    for entry in &mut history.entries {
        if let What::Applied(_, answer) = &mut entry.what
            && let Ok(Answer::Exchanged(reply)) = Arc::make_mut(answer)
        {
            how(reply);
        }
    }
    history
}

#[test]
fn an_answer_with_a_workers_time_is_noticed() {
    let mut scene = Scene::new();
    scene.claim();
    let history = forge(scene.end(), |reply| reply.lease_until = reply.lease_until.plus_ms(1));
    assert_eq!(names(&checker::time::check(&history)), ["G9"]);
}

#[test]
fn a_worker_that_is_not_told_to_stop_is_noticed() {
    let mut scene = Scene::new();
    scene.claim();
    scene.call(Command::Cancel(vec![JOB]));
    scene.exchange(Vec::new(), 0);
    let history = scene.end();
    assert_eq!(names(&checker::stops::check(&history)), [] as [&str; 0]);
    let silent = forge(history, |reply| reply.stop.clear());
    assert_eq!(names(&checker::stops::check(&silent)), ["stop"]);
}

#[test]
fn a_wrong_explanation_is_noticed() {
    let mut scene = Scene::new();
    scene.call(Command::SetLimit(GroupRef::Cluster, 0));
    let explain = |scene: &Scene| block_on(scene.fixture.store.explain(JOB)).expect("the toy explains");
    let mut explanation = explain(&scene);
    let audit = |explanation| Box::new(Audit { explanations: vec![explanation], ..Audit::default() });
    scene.write(What::Audited(audit(explanation.clone())));
    explanation.reasons = vec![Reason::OnlyWaitingForClaim { position: 1 }];
    scene.write(What::Audited(audit(explanation)));
    assert_eq!(names(&checker::explained::check(&scene.end())), ["explain"]);
}

#[test]
fn a_job_that_never_ends_is_lost() {
    let mut scene = Scene::new();
    scene.heal();
    let token = scene.claim();
    let settle = Settle { job: JOB, token, outcome: Outcome::Snooze { delay_ms: 0 } };
    scene.exchange(vec![settle], 0);
    let (jobs, complete) = (block_on(scene.fixture.store.jobs(Default::default(), None, 10)), true);
    let jobs = jobs.expect("the toy answers").jobs;
    scene.write(What::Audited(Box::new(Audit { jobs, complete, ..Audit::default() })));
    assert_eq!(names(&checker::lost::check(&scene.end())), ["G3"]);
}

#[test]
fn an_acknowledged_job_that_is_gone_is_lost() {
    let mut scene = Scene::new();
    let second = NewJob::new(JobId(Uuid::from_u128(2)), Name::parse("task", "email").expect("a name"));
    let command = Arc::new(Command::Submit(vec![second]));
    let answer = scene.call((*command).clone());
    scene.write(What::Heard(command, Arc::new(Ok(answer))));
    scene.write(What::Audited(Box::new(Audit { complete: true, ..Audit::default() })));
    let found = checker::lost::check(&scene.end());
    assert!(
        found.iter().any(|violation| violation.message.contains("acknowledged and is lost")),
        "{found:?}"
    );
}
