//! Views that differ from what happened: the checkers object to each, and accept the history without that change.

use crate::fable::{group, id, job, name, names, step};
use crate::scene::{JOB, LEASE_MS, Scene};
use qo_core::{Answer, Command, Configuration, JobState, LeaseId, Missed, NewJob, Outcome, Reason, Schedule};
use qo_core::{Settle, SlotRequest, Submitted};
use qo_testkit::checker::{self, Violation};
use qo_testkit::history::{Audit, History};
use uuid::Uuid;

/// The store's views as they are, and with one value changed.
fn forged(play: fn(&mut Scene), check: fn(&History) -> Vec<Violation>, forge: fn(&mut Audit), object: &str) {
    let of = |forge: fn(&mut Audit)| {
        let mut scene = Scene::new();
        play(&mut scene);
        scene.audit(forge);
        scene.end()
    };
    let (all, _) = checker::check_all(&of(|_| {}));
    assert_eq!(names(&all), crate::fable::NO_OBJECTION, "{all:?}");
    let found = check(&of(forge));
    assert_eq!(names(&found).first(), Some(&object), "{found:?}");
}

/// Step 2 fails; step 3 waits for it; step 4 is of another workflow and waits for its date.
fn halted(scene: &mut Scene) {
    scene.call(Command::Cancel(vec![JOB]));
    scene.call(Command::Submit(vec![step(2), step(3)]));
    let token = scene.claim();
    scene.exchange(vec![Settle { job: id(2), token, outcome: Outcome::Fail { error: "no".into() } }], 0);
}

fn claimed(scene: &mut Scene) {
    scene.prefetch(1);
}

fn held(scene: &mut Scene) {
    let request =
        SlotRequest::new(LeaseId(Uuid::from_u128(9)), group("email/anna"), name("script"), LEASE_MS);
    scene.call(Command::AcquireSlots(request));
}

/// Two ticks came, the first has run.
fn scheduled(scene: &mut Scene) {
    scene.call(Command::Cancel(vec![JOB]));
    let spec = Schedule { missed: Missed::All, ..Schedule::new("* * * * * *", name("email")) };
    let schedules = [(name("nightly"), spec)].into();
    scene.call(Command::Configure(Configuration { schedules, ..Configuration::default() }));
    scene.wait(2_500);
    scene.call(Command::Sweep);
}

#[test]
fn a_workflow_with_another_head_is_noticed() {
    forged(halted, checker::views::check, |audit| audit.workflows[0].head = None, "views");
    forged(halted, checker::views::check, |audit| audit.workflows[0].live += 1, "views");
    forged(halted, checker::views::check, |audit| audit.workflows.clear(), "views");
}

#[test]
fn a_step_that_waits_is_not_in_line() {
    let forge = |audit: &mut Audit| {
        let queue = &mut audit.queues[0];
        (queue.due, queue.waiting) = (queue.due + 1, queue.waiting - 1);
    };
    forged(halted, checker::views::check, forge, "views");
    forged(halted, checker::views::check, |audit| audit.jobs[2].step = Some(1), "views");
}

#[test]
fn a_step_behind_a_halt_is_explained_by_it() {
    let forge = |audit: &mut Audit| {
        let waiting = audit.explanations.iter_mut().find(|explanation| explanation.job == id(3));
        waiting.expect("step 3 is explained").reasons = vec![Reason::OnlyWaitingForClaim { position: 1 }];
    };
    forged(halted, checker::explained::check, forge, "explain");
}

#[test]
fn a_claimed_job_is_shown_and_explained_as_claimed() {
    let forge = |audit: &mut Audit| {
        (audit.jobs[0].state, audit.jobs[0].claimed) = (JobState::Pending, None);
    };
    forged(claimed, checker::views::check, forge, "views");
    forged(claimed, checker::views::check, |audit| audit.workers[0].claimed = 0, "views");
    forged(claimed, checker::explained::check, |audit| audit.explanations[0].reasons.clear(), "explain");
}

#[test]
fn a_program_is_shown_among_the_holders() {
    let forge = |audit: &mut Audit| audit.holders.iter_mut().for_each(|detail| detail.holders.clear());
    forged(held, checker::views::check, forge, "views");
    let forge = |audit: &mut Audit| audit.groups.iter_mut().for_each(|status| status.used = 0);
    forged(held, checker::views::check, forge, "views");
}

#[test]
fn a_tick_that_ran_twice_is_noticed() {
    let forge = |audit: &mut Audit| {
        let mut again = audit.jobs[1].clone();
        again.id = id(77);
        audit.jobs.push(again);
    };
    forged(scheduled, checker::schedules::check, forge, "schedule");
}

#[test]
fn a_tick_that_never_came_is_noticed() {
    let forge = |audit: &mut Audit| {
        let key = qo_core::Key::parse("key", "nightly:2027-01-15T08:00:09Z").expect("a key");
        audit.jobs[1].idempotency_key = Some(key);
    };
    forged(scheduled, checker::schedules::check, forge, "schedule");
}

#[test]
fn a_schedule_with_another_next_or_last_tick_is_noticed() {
    let late = |audit: &mut Audit| {
        audit.schedules[0].next = audit.schedules[0].next.map(|next| next.plus_ms(1_000));
    };
    forged(scheduled, checker::schedules::check, late, "schedule");
    forged(scheduled, checker::schedules::check, |audit| audit.schedules[0].last = None, "schedule");
    forged(scheduled, checker::schedules::check, |audit| audit.schedules.clear(), "schedule");
}

#[test]
fn a_sweep_that_counts_ticks_wrong_is_noticed() {
    let mut scene = Scene::new();
    scheduled(&mut scene);
    let mut history = scene.end();
    for entry in &mut history.entries {
        if let qo_testkit::history::What::Applied(_, answer) = &mut entry.what
            && let Ok(Answer::Swept(swept)) = std::sync::Arc::make_mut(answer)
        {
            assert_eq!(swept.fired, 2);
            swept.fired = 1;
        }
    }
    assert_eq!(names(&checker::views::check(&history)), ["views"]);
}

#[test]
fn a_job_that_was_forgotten_may_come_again_and_another_may_not() {
    let of = |forgets: bool| {
        let mut scene = Scene::new();
        let token = scene.claim();
        scene.exchange(vec![Settle { job: JOB, token, outcome: Outcome::Cancelled }], 0);
        if forgets {
            let retention = qo_core::Retention { cancelled_ms: 100, ..qo_core::Retention::default() };
            scene.call(Command::Configure(Configuration {
                retention: retention.into(),
                ..Configuration::default()
            }));
            scene.wait(100);
            scene.call(Command::Sweep);
        }
        let again = Command::Submit(vec![NewJob { id: JOB, ..job(1) }]);
        let answer = scene.call(again);
        (answer, scene.end())
    };
    let (answer, history) = of(true);
    assert_eq!(answer, Answer::Submitted(vec![Ok(Submitted::Accepted(JOB))]));
    assert_eq!(names(&checker::check_all(&history).0), crate::fable::NO_OBJECTION);
    let (_, mut history) = of(false);
    let last = history.entries.last_mut().expect("the second submit");
    if let qo_testkit::history::What::Applied(_, answer) = &mut last.what {
        *answer = std::sync::Arc::new(Ok(Answer::Submitted(vec![Ok(Submitted::Accepted(JOB))])));
    }
    assert_eq!(names(&checker::lost::check(&history)), ["G3"]);
}
