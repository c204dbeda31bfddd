//! The checkers of workflows, claims, programs, schedules and history object to a bad history made by hand, and accept a
//! good one that differs from it in one word.

mod fable;

use fable::{
    ANNA, BERT, BOUND_MS, Fable, LEASE_MS, Talk, group, id, job, name, names, number, refused, step,
};
use qo_core::{Answer, Attempt, AttemptOutcome, Change, Changed, Command, ErrorKind, FenceToken, JobDetail};
use qo_core::{Configuration, Started, Steer, Stop, StopReason, Submitted, Swept};
use qo_core::{
    JobFilter, JobState, Json, LeaseId, Missed, NewJob, OnFailure, Outcome, Retention, Schedule, SlotLease,
};
use qo_testkit::checker::{self, Violation};
use qo_testkit::history::{Audit, History, What};
use uuid::Uuid;

/// The same fable, told with a word that is right and one that is wrong.
fn told<W>(
    check: fn(&History) -> Vec<Violation>,
    tell: impl Fn(&mut Fable, W),
    right: W,
    wrong: W,
    object: &str,
) {
    let of = |word: W| {
        let mut fable = Fable::new();
        tell(&mut fable, word);
        let found = check(&fable.end());
        (names(&found).join(" "), found)
    };
    let (found, all) = of(right);
    assert_eq!(found, "", "a good history is objected to: {all:?}");
    let (found, all) = of(wrong);
    assert!(found.starts_with(object), "due was {object}, found {all:?}");
}

// G6

#[test]
fn a_step_before_its_turn_is_noticed() {
    let tell = |fable: &mut Fable, first: Talk| {
        fable.submit(&[step(1), step(2)]);
        fable.exchange(ANNA, Talk::claims(&[(1, 1)]));
        fable.exchange(ANNA, first);
        fable.exchange(BERT, Talk::claims(&[(2, 2)]));
    };
    told(checker::order::check, tell, Talk::succeeds(1, 1), Talk::default(), "G6");
    told(checker::order::check, tell, Talk::succeeds(1, 1), Talk::fails(1, 1), "G6");
}

#[test]
fn where_failures_do_not_halt_the_next_step_may_run() {
    let tell = |fable: &mut Fable, on_failure: OnFailure| {
        fable.submit(&[NewJob { on_failure: Some(on_failure), ..step(1) }, step(2)]);
        fable.exchange(ANNA, Talk::claims(&[(1, 1)]));
        fable.exchange(ANNA, Talk::fails(1, 1));
        fable.exchange(ANNA, Talk::claims(&[(2, 2)]));
    };
    told(checker::order::check, tell, OnFailure::Continue, OnFailure::Halt, "G6");
}

#[test]
fn a_skipped_step_is_passed_and_one_that_was_not_halted_cannot_be_skipped() {
    let tell = |fable: &mut Fable, first: Talk| {
        fable.submit(&[step(1), step(2)]);
        fable.exchange(ANNA, Talk::claims(&[(1, 1)]));
        fable.exchange(ANNA, first);
        fable.done(Command::SteerWorkflow(name("flow"), Steer::Skip(1)));
        fable.exchange(ANNA, Talk::claims(&[(2, 2)]));
    };
    told(checker::order::check, tell, Talk::fails(1, 1), Talk::default(), "G6");
}

#[test]
fn a_head_that_was_reopened_waits_for_the_step_that_runs() {
    let tell = |fable: &mut Fable, second: Talk| {
        fable.submit(&[NewJob { on_failure: Some(OnFailure::Continue), ..step(1) }, step(2)]);
        fable.exchange(ANNA, Talk::claims(&[(1, 1)]));
        fable.exchange(ANNA, Talk::fails(1, 1));
        fable.exchange(ANNA, Talk::claims(&[(2, 2)]));
        fable.applied(Command::Retry(vec![id(1)]), Ok(Answer::Retried(vec![Ok(JobState::Pending)])));
        fable.exchange(ANNA, second);
        fable.exchange(BERT, Talk::claims(&[(1, 3)]));
    };
    told(checker::order::check, tell, Talk::succeeds(2, 2), Talk::default(), "G6");
}

#[test]
fn a_start_out_of_turn_is_noticed() {
    let tell = |fable: &mut Fable, reopens: bool| {
        fable.submit(&[NewJob { on_failure: Some(OnFailure::Continue), ..step(1) }, step(2)]);
        fable.exchange(ANNA, Talk::claims(&[(1, 1)]));
        fable.exchange(ANNA, Talk::fails(1, 1));
        fable.exchange(ANNA, Talk::prefetches(&[(2, 2)]));
        if reopens {
            fable.applied(Command::Retry(vec![id(1)]), Ok(Answer::Retried(vec![Ok(JobState::Pending)])));
        }
        fable.exchange(ANNA, Talk::starts(2, 2, 3));
    };
    told(checker::order::check, tell, false, true, "G6");
    told(checker::requests::check, tell, false, true, "start");
}

#[test]
fn a_workflow_that_was_cancelled_takes_no_more() {
    let tell = |fable: &mut Fable, answer: qo_core::Result<Submitted>| {
        fable.submit(&[step(1)]);
        fable.done(Command::SteerWorkflow(name("flow"), Steer::Cancel));
        fable.applied(Command::Submit(vec![step(2)]), Ok(Answer::Submitted(vec![answer])));
    };
    let accepted = Ok(Submitted::Accepted(id(2)));
    told(checker::order::check, tell, refused(ErrorKind::Conflict), accepted, "G6");
}

#[test]
fn a_workflow_that_is_open_refuses_nothing() {
    let tell = |fable: &mut Fable, answer: qo_core::Result<Submitted>| {
        fable.submit(&[step(1)]);
        fable.applied(Command::Submit(vec![step(2)]), Ok(Answer::Submitted(vec![answer])));
    };
    let accepted = Ok(Submitted::Accepted(id(2)));
    told(checker::order::check, tell, accepted, refused(ErrorKind::Conflict), "G6");
}

#[test]
fn attempts_of_two_steps_that_overlap_are_noticed() {
    let tell = |fable: &mut Fable, ended_ms: u64| {
        let attempt = |token, from_ms, to_ms| Attempt {
            number: 1,
            token: FenceToken(token),
            worker: name("host"),
            session: ANNA,
            started_at: qo_testkit::START.plus_ms(from_ms),
            ended_at: qo_testkit::START.plus_ms(to_ms),
            outcome: AttemptOutcome::Succeeded,
            error: None,
            then: JobState::Succeeded,
        };
        let scene = fable::toy_with(&[step(1), step(2)]);
        let detail = |job, attempt| JobDetail {
            attempts: vec![attempt],
            ..futures::executor::block_on(scene.job(id(job))).expect("the toy has it")
        };
        let details = vec![detail(1, attempt(1, 0, ended_ms)), detail(2, attempt(2, 500, 900))];
        fable.audit(Audit { details, ..Audit::default() });
    };
    told(checker::order::check, tell, 500, 501, "G6");
}

// G1, G8

#[test]
fn a_start_that_exceeds_a_limit_is_noticed() {
    let tell = |fable: &mut Fable, limit: u32| {
        fable.submit(&[job(1), job(2)]);
        fable.exchange(BERT, Talk::prefetches(&[(1, 1), (2, 2)]));
        fable.exchange(BERT, Talk::starts(1, 1, 3));
        fable.done(Command::SetLimit(group("email"), limit));
        fable.exchange(BERT, Talk::starts(2, 2, 4));
    };
    told(checker::slots::check, tell, 2, 1, "G1");
    told(checker::live_limits::check, tell, 2, 1, "G8");
    told(checker::requests::check, tell, 2, 1, "start");
}

#[test]
fn a_program_that_exceeds_a_limit_is_noticed() {
    let tell = |fable: &mut Fable, slots: u32| {
        fable.submit(&[job(1)]);
        fable.exchange(ANNA, Talk::claims(&[(1, 1)]));
        fable.done(Command::SetLimit(group("email"), 3));
        fable.acquire(9, group("email/anna"), slots, Some(2));
    };
    told(checker::slots::check, tell, 2, 3, "G1");
    told(checker::live_limits::check, tell, 2, 3, "G8");
    told(checker::requests::check, tell, 2, 3, "slots");
}

#[test]
fn a_job_counts_the_slots_of_programs() {
    let tell = |fable: &mut Fable, returned: bool| {
        fable.submit(&[job(1)]);
        fable.done(Command::SetLimit(group("email"), 1));
        fable.acquire(9, group("email"), 1, Some(1));
        if returned {
            fable.done(Command::ReturnSlots(LeaseId(Uuid::from_u128(9)), FenceToken(1)));
        }
        fable.exchange(ANNA, Talk::claims(&[(1, 2)]));
    };
    told(checker::slots::check, tell, true, false, "G1");
}

#[test]
fn a_start_from_a_paused_queue_is_noticed() {
    let tell = |fable: &mut Fable, paused: bool| {
        fable.submit(&[job(1)]);
        fable.exchange(ANNA, Talk::prefetches(&[(1, 1)]));
        fable.done(Command::PauseQueue(name("default"), paused));
        fable.exchange(ANNA, Talk::starts(1, 1, 2));
    };
    told(checker::live_limits::check, tell, false, true, "G8");
    told(checker::requests::check, tell, false, true, "start");
}

// G2

#[test]
fn a_start_with_somebody_elses_claim_is_noticed() {
    let tell = |fable: &mut Fable, by| {
        fable.submit(&[job(1)]);
        fable.exchange(ANNA, Talk::prefetches(&[(1, 1)]));
        fable.exchange(by, Talk::starts(1, 1, 2));
    };
    told(checker::fence::check, tell, ANNA, BERT, "G2");
}

#[test]
fn a_claim_that_has_not_started_can_only_be_released() {
    let tell = |fable: &mut Fable, outcome: Outcome| {
        fable.submit(&[job(1)]);
        fable.exchange(ANNA, Talk::prefetches(&[(1, 1)]));
        let then = if outcome == Outcome::Release { JobState::Pending } else { JobState::Succeeded };
        fable.exchange(ANNA, Talk::settles(1, 1, outcome, Ok(then)));
    };
    let succeed = Outcome::Succeed { output: Json::null() };
    told(checker::fence::check, tell, Outcome::Release, succeed, "G2");
}

#[test]
fn tokens_of_claims_starts_and_programs_are_one_counter() {
    let tell = |fable: &mut Fable, token: u64| {
        fable.submit(&[job(1)]);
        fable.exchange(ANNA, Talk::prefetches(&[(1, 5)]));
        fable.acquire(9, group("email"), 1, Some(token));
    };
    told(checker::fence::check, tell, 6, 5, "G2");
    let tell = |fable: &mut Fable, token: u64| {
        fable.submit(&[job(1)]);
        fable.acquire(9, group("email"), 1, Some(5));
        fable.exchange(ANNA, Talk::prefetches(&[(1, token)]));
        fable.exchange(ANNA, Talk::starts(1, token, 9));
    };
    told(checker::fence::check, tell, 6, 4, "G2");
}

#[test]
fn a_lease_that_is_over_cannot_be_extended() {
    let tell = |fable: &mut Fable, late_ms: u64| {
        fable.acquire(9, group("email"), 1, Some(1));
        let since = fable.now();
        fable.wait(late_ms);
        let swept = Swept { slots: u64::from(late_ms >= LEASE_MS), sessions: 2, ..Swept::default() };
        fable.applied(Command::Sweep, Ok(Answer::Swept(swept)));
        let (lease, token, lease_ms) = (LeaseId(Uuid::from_u128(9)), FenceToken(1), 500);
        let extended = SlotLease { token, since, lease_until: fable.now().plus_ms(lease_ms) };
        fable.applied(Command::ExtendSlots { lease, token, lease_ms }, Ok(Answer::Extended(extended)));
    };
    told(checker::fence::check, tell, LEASE_MS - 1, LEASE_MS, "G2");
}

#[test]
fn slots_are_returned_once() {
    let tell = |fable: &mut Fable, again: bool| {
        fable.acquire(9, group("email"), 1, Some(1));
        for _ in 0..=u32::from(again) {
            fable.done(Command::ReturnSlots(LeaseId(Uuid::from_u128(9)), FenceToken(1)));
        }
    };
    told(checker::fence::check, tell, false, true, "G2");
}

#[test]
fn the_same_request_again_gets_the_same_lease() {
    let tell = |fable: &mut Fable, token: u64| {
        fable.acquire(9, group("email"), 1, Some(1));
        fable.acquire(9, group("email"), 1, Some(token));
    };
    told(checker::fence::check, tell, 1, 2, "G2");
}

// G3

#[test]
fn a_job_that_ended_runs_again_only_if_an_operator_opened_it() {
    let tell = |fable: &mut Fable, reopened: bool| {
        fable.submit(&[job(1)]);
        fable.exchange(ANNA, Talk::claims(&[(1, 1)]));
        fable.exchange(ANNA, Talk::fails(1, 1));
        if reopened {
            fable.applied(Command::Retry(vec![id(1)]), Ok(Answer::Retried(vec![Ok(JobState::Pending)])));
        }
        fable.exchange(ANNA, Talk::claims(&[(1, 2)]));
    };
    told(checker::lost::check, tell, true, false, "G3");
}

#[test]
fn a_job_that_succeeded_is_not_opened_again() {
    let tell = |fable: &mut Fable, answer: qo_core::Result<JobState>| {
        fable.submit(&[job(1)]);
        fable.exchange(ANNA, Talk::claims(&[(1, 1)]));
        fable.exchange(ANNA, Talk::succeeds(1, 1));
        fable.applied(Command::Retry(vec![id(1)]), Ok(Answer::Retried(vec![answer])));
    };
    told(checker::lost::check, tell, refused(ErrorKind::Conflict), Ok(JobState::Pending), "G3");
}

#[test]
fn a_bulk_change_that_misses_a_job_is_noticed() {
    let tell = |fable: &mut Fable, (jobs, next): (u64, Option<qo_core::Cursor>)| {
        fable.submit(&[job(1), job(2), NewJob { task: name("report"), ..job(3) }, job(4)]);
        let filter = JobFilter { task: Some(name("email")), ..JobFilter::default() };
        let change = Command::ChangeMatching { change: Change::Cancel, filter, after: None, limit: 2 };
        fable.applied(change, Ok(Answer::Changed(Changed { jobs, next })));
    };
    let cursor = Some(qo_core::Cursor(7));
    told(checker::lost::check, tell, (2, cursor), (1, cursor), "G3");
    told(checker::lost::check, tell, (2, cursor), (2, None), "G3");
}

#[test]
fn a_job_that_is_forgotten_too_early_is_noticed() {
    let tell = |fable: &mut Fable, waited_ms: u64| {
        let retention = Retention { failed_ms: 5_000, ..Retention::default() };
        fable.done(Command::Configure(Configuration { retention, ..Configuration::default() }));
        fable.submit(&[job(1)]);
        fable.exchange(ANNA, Talk::claims(&[(1, 1)]));
        fable.exchange(ANNA, Talk::fails(1, 1));
        fable.wait(waited_ms);
        fable.applied(Command::Sweep, Ok(Answer::Swept(Swept { forgotten: 1, ..Swept::default() })));
    };
    told(checker::views::check, tell, 5_000, 4_999, "views");
}

// G4

#[test]
fn a_claimed_job_is_given_to_nobody_else() {
    let tell = |fable: &mut Fable, given_back: bool| {
        fable.submit(&[job(1)]);
        fable.exchange(ANNA, Talk::prefetches(&[(1, 1)]));
        fable.exchange(ANNA, Talk { draining: given_back, ..Talk::default() });
        fable.exchange(BERT, Talk::claims(&[(1, 2)]));
    };
    told(checker::owner::check, tell, true, false, "G4");
    let tell = |fable: &mut Fable, late_ms: u64| {
        fable.submit(&[job(1)]);
        fable.exchange(ANNA, Talk::prefetches(&[(1, 1)]));
        fable.wait(late_ms);
        fable.exchange(BERT, Talk::prefetches(&[(1, 2)]));
    };
    told(checker::owner::check, tell, LEASE_MS, LEASE_MS - 1, "G4");
}

// G5

#[test]
fn a_claimed_job_that_a_free_worker_does_not_start_is_stuck() {
    let tell = |fable: &mut Fable, starts: bool| {
        fable.submit(&[job(1)]);
        fable.heal();
        fable.exchange(ANNA, Talk::prefetches(&[(1, 1)]));
        if starts {
            fable.exchange(ANNA, Talk::starts(1, 1, 2));
            fable.write(What::HandlerStarted(id(1), FenceToken(2)));
        }
        // The claim is renewed over and over, so that it is never over.
        for round in 0..=BOUND_MS / 1_000 {
            fable.wait(1_000);
            fable.exchange(ANNA, Talk::default());
            fable.exchange(BERT, Talk::default());
            if !starts && round % 5 == 4 {
                fable.exchange(ANNA, Talk::prefetches(&[(1, 3 + round)]));
            }
        }
    };
    told(checker::stuck::check, tell, true, false, "G5");
}

#[test]
fn a_step_whose_turn_it_is_is_stuck_and_one_that_waits_is_not() {
    let tell = |fable: &mut Fable, first: Talk| {
        fable.submit(&[step(1), step(2)]);
        fable.exchange(ANNA, Talk::claims(&[(1, 1)]));
        fable.write(What::HandlerStarted(id(1), FenceToken(1)));
        fable.heal();
        fable.exchange(ANNA, first);
        for _ in 0..=BOUND_MS / 1_000 + 1 {
            fable.wait(1_000);
            fable.exchange(ANNA, Talk::default());
        }
    };
    told(checker::stuck::check, tell, Talk::default(), Talk::succeeds(1, 1), "G5");
}

#[test]
fn a_program_that_holds_slots_after_its_lease_is_nobody() {
    let tell = |fable: &mut Fable, late_ms: u64| {
        let holders = vec![fable::held_by_program(fable.now())];
        fable.heal();
        fable.wait(LEASE_MS + late_ms);
        fable.audit(Audit { holders, ..Audit::default() });
    };
    told(checker::stuck::check, tell, BOUND_MS, BOUND_MS + 1, "G5");
}

// Starts, slots, prefetch

#[test]
fn a_start_that_is_given_back_for_nothing_is_noticed() {
    let tell = |fable: &mut Fable, limit: u32| {
        fable.submit(&[job(1)]);
        fable.exchange(ANNA, Talk::prefetches(&[(1, 1)]));
        fable.done(Command::SetLimit(group("email"), limit));
        let given_back = Started { then: JobState::Pending, run: None };
        fable.exchange(ANNA, Talk::start(1, 1, Ok(given_back)));
    };
    told(checker::requests::check, tell, 0, 1, "start");
}

#[test]
fn a_program_that_is_refused_for_nothing_is_noticed() {
    let tell = |fable: &mut Fable, limit: u32| {
        fable.done(Command::SetLimit(group("email"), limit));
        fable.acquire(9, group("email"), 1, None);
    };
    told(checker::requests::check, tell, 0, 1, "slots");
}

#[test]
fn no_more_is_claimed_ahead_of_time_than_there_is_room_for() {
    let tell = |fable: &mut Fable, limit: u32| {
        fable.submit(&[job(1), job(2)]);
        fable.done(Command::SetLimit(group("email"), limit));
        fable.exchange(ANNA, Talk::prefetches(&[(1, 1), (2, 2)]));
    };
    told(checker::blocking::check, tell, 2, 1, "prefetch");
}

#[test]
fn a_job_that_a_prefetch_passes_over_for_nothing_is_noticed() {
    let tell = |fable: &mut Fable, limit: u32| {
        fable.submit(&[job(1), job(2)]);
        fable.done(Command::SetLimit(group("email"), limit));
        fable.exchange(ANNA, Talk::prefetches(&[(1, 1)]));
    };
    told(checker::blocking::check, tell, 1, 2, "G7");
}

// Schedules

#[test]
fn two_jobs_of_a_schedule_at_once_are_noticed() {
    let tell = |fable: &mut Fable, overlap: bool| {
        let spec = Schedule { missed: Missed::All, overlap, ..Schedule::new("* * * * * *", name("email")) };
        let schedules = [(name("nightly"), spec.clone())].into();
        fable.done(Command::Configure(Configuration { schedules, ..Configuration::default() }));
        fable.wait(2_000);
        fable.exchange(ANNA, Talk::default());
        let ticks = [1_000, 2_000].map(|ms| {
            let job = spec.job(&name("nightly"), qo_testkit::START.plus_ms(ms)).expect("a tick has a job");
            fable.knows(&job);
            number(&job)
        });
        fable.exchange(ANNA, Talk::claims(&[(ticks[0], 1)]));
        fable.exchange(BERT, Talk::claims(&[(ticks[1], 2)]));
    };
    told(checker::schedules::check, tell, true, false, "schedule");
}

#[test]
fn a_schedule_that_is_not_there_cannot_be_enabled() {
    let tell = |fable: &mut Fable, answer: qo_core::Result<Answer>| {
        fable.applied(Command::EnableSchedule(name("nightly"), true), answer);
    };
    told(checker::schedules::check, tell, refused(ErrorKind::NotFound), Ok(Answer::Done), "schedule");
}

// Stops

#[test]
fn a_worker_that_is_not_told_that_its_claim_is_over_is_noticed() {
    let tell = |fable: &mut Fable, stop: Vec<Stop>| {
        fable.submit(&[job(1)]);
        fable.exchange(ANNA, Talk::prefetches(&[(1, 1)]));
        fable.wait(LEASE_MS - 1);
        fable.exchange(ANNA, Talk::default());
        fable.wait(1);
        fable.exchange(ANNA, Talk { stop, ..Talk::default() });
    };
    let stop = |reason| vec![Stop { job: id(1), token: FenceToken(1), reason }];
    told(checker::stops::check, tell, stop(StopReason::LeaseEnded), Vec::new(), "stop");
    let tell = |fable: &mut Fable, stop: Vec<Stop>| {
        fable.submit(&[job(1)]);
        fable.exchange(ANNA, Talk::prefetches(&[(1, 1)]));
        let cancelled = Ok(Answer::Cancelled(vec![Ok(JobState::Cancelled)]));
        fable.applied(Command::Cancel(vec![id(1)]), cancelled);
        fable.exchange(ANNA, Talk { stop, ..Talk::default() });
    };
    told(checker::stops::check, tell, stop(StopReason::Cancelled), stop(StopReason::LeaseEnded), "stop");
}
