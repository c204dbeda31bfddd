//! The checkers of workflows, of reopened jobs, and of schedules object to a bad history made by hand, and accept a
//! good one that differs from it in one value.

use crate::fable::{ANNA, BERT, Fable, Talk, id, job, name, number, refused, step, told};
use qo_core::{
    Answer, Attempt, AttemptOutcome, Change, Changed, Command, Configuration, Cursor, ErrorKind, FenceToken,
    JobDetail, JobFilter,
};
use qo_core::{JobState, Missed, NewJob, OnFailure, Result, Retention, Schedule, Steer, Submitted, Swept};
use qo_testkit::START;
use qo_testkit::checker;
use qo_testkit::history::Audit;

// G6

#[test]
fn a_step_that_runs_before_it_is_next_is_noticed() {
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
fn a_skip_that_is_repeated_skips_no_other_step() {
    let tell = |fable: &mut Fable, second: u32| {
        fable.submit(&[step(1), step(2), step(3)]);
        for (job, token) in [(1, 1), (2, 2)] {
            fable.exchange(ANNA, Talk::claims(&[(job, token)]));
            fable.exchange(ANNA, Talk::fails(job, token));
            let skipped = if job == 1 { 1 } else { second };
            fable.done(Command::SteerWorkflow(name("flow"), Steer::Skip(skipped)));
        }
        fable.exchange(ANNA, Talk::claims(&[(3, 3)]));
    };
    told(checker::order::check, tell, 2, 1, "G6");
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
fn a_start_of_a_step_that_is_not_next_is_noticed() {
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
    let tell = |fable: &mut Fable, answer: Result<Submitted>| {
        fable.submit(&[step(1)]);
        fable.done(Command::SteerWorkflow(name("flow"), Steer::Cancel));
        fable.applied(Command::Submit(vec![step(2)]), Ok(Answer::Submitted(vec![answer])));
    };
    let accepted = Ok(Submitted::Accepted(id(2)));
    told(checker::order::check, tell, refused(ErrorKind::Conflict), accepted, "G6");
}

#[test]
fn a_workflow_that_is_open_refuses_nothing() {
    let tell = |fable: &mut Fable, answer: Result<Submitted>| {
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
            started_at: START.plus_ms(from_ms),
            ended_at: START.plus_ms(to_ms),
            outcome: AttemptOutcome::Succeeded,
            error: None,
            then: JobState::Succeeded,
        };
        let scene = crate::fable::toy_with(&[step(1), step(2)]);
        let detail = |job, attempt| JobDetail {
            attempts: vec![attempt],
            ..futures::executor::block_on(scene.job(id(job))).expect("the toy has it")
        };
        let details = vec![detail(1, attempt(1, 0, ended_ms)), detail(2, attempt(2, 500, 900))];
        fable.audit(Audit { details, ..Audit::default() });
    };
    told(checker::order::check, tell, 500, 501, "G6");
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
    let tell = |fable: &mut Fable, answer: Result<JobState>| {
        fable.submit(&[job(1)]);
        fable.exchange(ANNA, Talk::claims(&[(1, 1)]));
        fable.exchange(ANNA, Talk::succeeds(1, 1));
        fable.applied(Command::Retry(vec![id(1)]), Ok(Answer::Retried(vec![answer])));
    };
    told(checker::lost::check, tell, refused(ErrorKind::Conflict), Ok(JobState::Pending), "G3");
}

#[test]
fn a_bulk_change_that_misses_a_job_is_noticed() {
    let tell = |fable: &mut Fable, (jobs, next): (u64, Option<Cursor>)| {
        fable.submit(&[job(1), job(2), NewJob { task: name("report"), ..job(3) }, job(4)]);
        let filter = JobFilter { task: Some(name("email")), ..JobFilter::default() };
        let change = Command::ChangeMatching { change: Change::Cancel, filter, after: None, limit: 2 };
        fable.applied(change, Ok(Answer::Changed(Changed { jobs, next })));
    };
    let cursor = Some(Cursor(7));
    told(checker::lost::check, tell, (2, cursor), (1, cursor), "G3");
    told(checker::lost::check, tell, (2, cursor), (2, None), "G3");
}

#[test]
fn a_job_that_is_forgotten_too_early_is_noticed() {
    let tell = |fable: &mut Fable, waited_ms: u64| {
        let retention = Retention { failed_ms: 5_000, ..Retention::default() };
        fable.done(Command::Configure(Configuration {
            retention: retention.into(),
            ..Configuration::default()
        }));
        fable.submit(&[job(1)]);
        fable.exchange(ANNA, Talk::claims(&[(1, 1)]));
        fable.exchange(ANNA, Talk::fails(1, 1));
        fable.wait(waited_ms);
        fable.applied(Command::Sweep, Ok(Answer::Swept(Swept { forgotten: 1, ..Swept::default() })));
    };
    told(checker::views::check, tell, 5_000, 4_999, "views");
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
            let job = spec.job(&name("nightly"), START.plus_ms(ms)).expect("a tick has a job");
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
    let tell = |fable: &mut Fable, answer: Result<Answer>| {
        fable.applied(Command::EnableSchedule(name("nightly"), true), answer);
    };
    told(checker::schedules::check, tell, refused(ErrorKind::NotFound), Ok(Answer::Done), "schedule");
}
