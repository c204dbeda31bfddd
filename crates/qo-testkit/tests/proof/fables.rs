//! The checkers of claims, starts and programs object to a bad history made by hand, and accept a good one that differs
//! from it in one value.

use crate::fable::{ANNA, BERT, BOUND_MS, Fable, LEASE_MS, Talk, group, id, job, name, step, told};
use qo_core::{
    Answer, Command, FenceToken, JobState, Json, LeaseId, Outcome, SlotLease, Started, Stop, StopReason,
    Swept,
};
use qo_testkit::checker;
use qo_testkit::history::{Audit, What};
use uuid::Uuid;

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
fn a_start_with_the_claim_of_another_session_is_noticed() {
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

// G4

#[test]
fn a_claimed_job_is_given_to_no_other_worker() {
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
        // The claim is renewed again and again, so that it is never over.
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
fn a_step_that_is_next_is_stuck_and_one_that_waits_is_not() {
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
fn a_program_whose_lease_is_over_holds_no_slot() {
    let tell = |fable: &mut Fable, late_ms: u64| {
        let holders = vec![crate::fable::held_by_program(fable.now())];
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
