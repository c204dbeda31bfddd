//! Histories of concurrent calls: the checkers allow what cannot be avoided there, and object to the rest.

use crate::fable::{
    ANNA, BERT, BOUND_MS, Fable, LEASE_MS, NO_OBJECTION, Talk, group, job, names, refused, step, told,
};
use crate::flawed::missed;
use crate::scene::{JOB, Scene};
use qo_core::{Command, ErrorKind, JobId, JobState, Name, NewJob, Outcome, Result};
use qo_testkit::Flaw;
use qo_testkit::checker::{self, Violation};
use qo_testkit::history::{Audit, History, What};
use std::sync::Arc;
use uuid::Uuid;

fn check(history: &History) -> Vec<Violation> {
    checker::check_concurrent(history).0
}

#[test]
fn flaws_of_the_toy_are_noticed_under_the_name_of_their_guarantee() {
    let flaws = [
        (Flaw::LimitPerWorker, "G1"),
        (Flaw::RestartForgetsHolders, "G1"),
        (Flaw::DoubleRelease, "G1"),
        (Flaw::KeyLimitIgnored, "G1"),
        (Flaw::ZeroIsUnlimited, "G1"),
        (Flaw::SettleByJob, "G2"),
        (Flaw::SettleByWorker, "G2"),
        (Flaw::SettleAfterLeaseEnd, "G2"),
        (Flaw::RepeatClaimsAnew, "G2"),
        (Flaw::TokenPerJob, "G2"),
        (Flaw::UnknownTaskDiscarded, "G3"),
        (Flaw::FastClock, "G4"),
        (Flaw::CrashLeaksSlots, "G5"),
        (Flaw::FullGroupBlocks, "G5"),
        (Flaw::RetryPassesStep, "G6"),
        (Flaw::TwoStepsAtOnce, "G6"),
        (Flaw::LimitPerWorker, "G8"),
        (Flaw::PauseSeenLate, "G8"),
        (Flaw::OnLimitCountsRunning, "on_limit"),
        (Flaw::LostLeaseIsFree, "views"),
    ];
    assert_eq!(missed(flaws, |run| check(&run.history)), []);
}

#[test]
fn a_checker_notices_a_limit_or_an_acknowledged_limit_exceeded() {
    let tell = |limit: u32| {
        let mut fable = Fable::new();
        fable.submit(&[job(1), job(2)]);
        fable.done(Command::SetLimit(group("email"), limit));
        fable.exchange(ANNA, Talk::claims(&[(1, 1)]));
        fable.exchange(BERT, Talk::claims(&[(2, 2)]));
        fable.end()
    };
    assert_eq!(names(&check(&tell(2))), NO_OBJECTION);
    assert_eq!(names(&check(&tell(1))), ["G1", "G8"]);
}

#[test]
fn a_stale_token_that_settles_is_noticed() {
    let tell = |fable: &mut Fable, result: Result<JobState>| {
        fable.submit(&[job(1)]);
        fable.exchange(ANNA, Talk::claims(&[(1, 1)]));
        fable.wait(LEASE_MS);
        fable.exchange(BERT, Talk::default());
        fable.exchange(BERT, Talk::settles(1, 1, Outcome::Release, result));
    };
    told(check, tell, refused(ErrorKind::Fenced), Ok(JobState::Pending), "G2");
}

#[test]
fn a_session_that_is_answered_after_its_end_is_noticed() {
    let tell = |fable: &mut Fable, session| {
        fable.done(Command::CloseSession(ANNA));
        fable.exchange(session, Talk::default());
    };
    told(check, tell, BERT, ANNA, "G2");
}

#[test]
fn tokens_of_a_job_grow() {
    let tell = |fable: &mut Fable, token: u64| {
        fable.submit(&[job(1)]);
        fable.exchange(ANNA, Talk::claims(&[(1, 5)]));
        fable.exchange(ANNA, Talk::settles(1, 5, Outcome::Release, Ok(JobState::Pending)));
        fable.exchange(BERT, Talk::claims(&[(1, token)]));
    };
    told(check, tell, 6, 4, "G2");
}

#[test]
fn tokens_grow_in_a_group_of_one_slot_and_need_not_in_others() {
    let tell = |fable: &mut Fable, limit: u32| {
        fable.submit(&[job(1), job(2)]);
        fable.done(Command::SetLimit(group("email"), limit));
        fable.exchange(ANNA, Talk::claims(&[(1, 5)]));
        fable.exchange(ANNA, Talk::succeeds(1, 5));
        fable.exchange(BERT, Talk::claims(&[(2, 4)]));
    };
    told(check, tell, 2, 1, "G2");
}

#[test]
fn no_token_comes_twice() {
    let tell = |fable: &mut Fable, token: u64| {
        fable.submit(&[job(1), job(2)]);
        fable.exchange(ANNA, Talk::claims(&[(1, 7)]));
        fable.exchange(BERT, Talk::claims(&[(2, token)]));
    };
    told(check, tell, 3, 7, "G2");
}

#[test]
fn an_acknowledged_job_that_is_gone_is_lost() {
    let tell = |change: fn(&mut Audit)| {
        let mut scene = Scene::new();
        let second = NewJob::new(JobId(Uuid::from_u128(2)), Name::parse("task", "email").expect("a name"));
        let command = Arc::new(Command::Submit(vec![second]));
        let answer = scene.call((*command).clone());
        scene.write(What::Heard(command, Arc::new(Ok(answer))));
        scene.audit(change);
        check(&scene.end())
    };
    assert_eq!(names(&tell(|_| {})), NO_OBJECTION);
    let found = tell(|audit| audit.jobs.retain(|view| view.id == JOB));
    let lost = |violation: &Violation| violation.message.contains("acknowledged and is lost");
    assert!(found.iter().any(lost), "{found:?}");
}

#[test]
fn two_owners_at_once_are_noticed() {
    let tell = |fable: &mut Fable, then: Talk| {
        fable.submit(&[job(1)]);
        fable.exchange(ANNA, Talk::claims(&[(1, 1)]));
        fable.exchange(ANNA, then);
        fable.exchange(BERT, Talk::claims(&[(1, 2)]));
    };
    let given_back = Talk::settles(1, 1, Outcome::Release, Ok(JobState::Pending));
    told(check, tell, given_back, Talk::default(), "G4");
}

#[test]
fn steps_at_once_are_noticed() {
    let tell = |fable: &mut Fable, first: Talk| {
        fable.submit(&[step(1), step(2)]);
        fable.exchange(ANNA, Talk::claims(&[(1, 1)]));
        fable.exchange(ANNA, first);
        fable.exchange(BERT, Talk::claims(&[(2, 2)]));
    };
    told(check, tell, Talk::succeeds(1, 1), Talk::default(), "G6");
}

#[test]
fn a_job_that_idle_workers_leave_in_line_is_stuck() {
    let tell = |fable: &mut Fable, claimed: &[(u128, u64)]| {
        fable.submit(&[job(1)]);
        fable.heal();
        fable.exchange(ANNA, Talk::claims(claimed));
        for _ in 0..=BOUND_MS / 1_000 + 1 {
            fable.wait(1_000);
            fable.exchange(ANNA, Talk::default());
            fable.exchange(BERT, Talk::default());
        }
    };
    told(check, tell, &[(1, 1)], &[], "G5");
}

#[test]
fn a_job_before_its_date_is_noticed() {
    let tell = |fable: &mut Fable, late_ms: u64| {
        fable.submit(&[NewJob { run_at: Some(fable.now().plus_ms(50)), ..job(1) }]);
        fable.wait(late_ms);
        fable.exchange(ANNA, Talk::claims(&[(1, 1)]));
    };
    told(check, tell, 50, 49, "G7");
}

/// Objections that apply only to calls that are made one by one.
fn only_one_by_one(tell: impl Fn(&mut Fable), object: &str) {
    let mut fable = Fable::new();
    tell(&mut fable);
    let history = fable.end();
    assert_eq!(names(&check(&history)), NO_OBJECTION);
    assert!(names(&checker::check_all(&history).0).contains(&object));
}

#[test]
fn a_call_that_read_the_clock_first_may_commit_second() {
    let tell = |fable: &mut Fable| {
        fable.wait(10);
        fable.submit(&[job(1)]);
        fable.exchange(ANNA, Talk::default());
        fable.set_back(3);
        fable.exchange(BERT, Talk::claims(&[(1, 1)]));
    };
    only_one_by_one(tell, "G9");
}

#[test]
fn a_lease_is_over_by_the_time_of_the_call_that_ends_it() {
    let tell = |fable: &mut Fable| {
        fable.wait(LEASE_MS);
        fable.submit(&[job(1)]);
        fable.set_back(1);
        fable.exchange(BERT, Talk::default());
        fable.exchange(ANNA, Talk::claims(&[(1, 1)]));
    };
    only_one_by_one(tell, "G2");
}

#[test]
fn a_claim_may_pass_over_a_job_and_come_back_for_it() {
    let tell = |fable: &mut Fable| {
        fable.submit(&[job(1), job(2), job(3)]);
        fable.exchange(ANNA, Talk::claims(&[(3, 1), (2, 2)]));
    };
    only_one_by_one(tell, "G7");
}

#[test]
fn a_claim_takes_no_more_than_it_asked_for() {
    let tell = |asked: u32| {
        let mut fable = Fable::new();
        fable.submit(&[job(1)]);
        fable.exchange(ANNA, Talk::claims(&[(1, 1)]));
        let mut history = fable.end();
        for entry in &mut history.entries {
            if let What::Applied(command, _) = &mut entry.what
                && let Command::Exchange(exchange) = Arc::make_mut(command)
            {
                exchange.claim.max = asked;
            }
        }
        check(&history)
    };
    assert_eq!(names(&tell(1)), NO_OBJECTION);
    assert_eq!(names(&tell(0)), ["G7"]);
}
