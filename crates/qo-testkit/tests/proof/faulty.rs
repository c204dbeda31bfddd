//! What the faulty network does, one fault at a time.

use futures::executor::block_on;
use qo_core::{
    Answer, Change, Changed, Command, Configuration, ErrorKind, FenceToken, JobFilter, JobId, JobState,
    LeaseId,
};
use qo_core::{Name, NewJob, Schedule, SlotRequest, Steer, Store, Submitted};
use qo_testkit::generator::call;
use qo_testkit::{Fault, FaultRates, FaultyStore, Fixture, Fixtures, Flaw, START, ToyFixtures};
use uuid::Uuid;

fn network(rates: FaultRates) -> (FaultyStore, Fixture) {
    let fixture = block_on(ToyFixtures(Flaw::None).fresh());
    (FaultyStore::new(fixture.store.clone(), 1, rates), fixture)
}

fn job() -> NewJob {
    NewJob::new(JobId(Uuid::from_u128(1)), Name::parse("task", "email").expect("a name"))
}

fn submit(store: &dyn Store) -> Result<Submitted, ErrorKind> {
    let results = block_on(store.submit(vec![job()])).map_err(|error| error.kind())?;
    results.into_iter().next().expect("one job").map_err(|error| error.kind())
}

fn jobs(store: &dyn Store) -> usize {
    block_on(store.jobs(JobFilter::default(), None, 10)).expect("it answers").jobs.len()
}

#[test]
fn a_call_that_fails_before_did_not_happen() {
    let (store, _) = network(FaultRates { before: 1_000, ..FaultRates::NONE });
    assert_eq!((submit(&store), jobs(&store)), (Err(ErrorKind::Unavailable), 0));
    assert_eq!(store.take_fault(), Some(Fault::Before));
}

#[test]
fn a_call_that_fails_after_happened_and_can_be_repeated_once_healed() {
    let (store, _) = network(FaultRates { after: 1_000, ..FaultRates::NONE });
    assert_eq!((submit(&store), jobs(&store)), (Err(ErrorKind::Unknown), 1));
    store.heal();
    assert_eq!((submit(&store), jobs(&store)), (Ok(Submitted::Existing(job().id)), 1));
}

#[test]
fn a_late_call_lands_at_its_time_though_its_caller_gave_up() {
    let (store, _) = network(FaultRates { late: 1_000, late_ms: 50, ..FaultRates::NONE });
    assert_eq!((submit(&store), jobs(&store)), (Err(ErrorKind::Unknown), 0));
    let landing = store.next_landing().expect("it is under way");
    assert!(landing > START && landing <= START.plus_ms(50));
    block_on(store.land_due(START));
    assert_eq!(jobs(&store), 0);
    block_on(store.land_due(landing));
    assert_eq!((jobs(&store), store.next_landing()), (1, None));
}

#[test]
fn a_call_that_lands_twice_is_answered_once() {
    let (store, _) = network(FaultRates { twice: 1_000, ..FaultRates::NONE });
    assert_eq!(submit(&store), Ok(Submitted::Accepted(job().id)));
    block_on(store.land_due(START.plus_ms(1)));
    assert_eq!((jobs(&store), store.next_landing()), (1, None));
}

fn name(text: &str) -> Name {
    Name::parse("name", text).expect("a name")
}

/// A halted workflow (its first step was cancelled, the second waits), a schedule, and a program that holds a slot.
fn everything(store: &dyn Store) -> (LeaseId, FenceToken) {
    let step = |number| NewJob {
        workflow: Some(name("flow")),
        ..NewJob::new(JobId(Uuid::from_u128(number)), name("email"))
    };
    let schedules = [(name("nightly"), Schedule::new("0 3 * * *", name("email")))].into();
    let lease = LeaseId(Uuid::from_u128(9));
    block_on(async {
        store.submit(vec![step(1), step(2)]).await.expect("it takes steps");
        store.cancel(vec![step(1).id]).await.expect("it cancels");
        let configuration = Configuration { schedules, ..Configuration::default() };
        store.configure(configuration).await.expect("it takes schedules");
        let request = SlotRequest::new(lease, "api".parse().expect("a group"), name("script"), 5_000);
        let held = store.acquire_slots(request).await.expect("it grants").expect("there is room");
        (lease, held.token)
    })
}

/// Sends a command whose reply is lost, and then again; returns the second answer.
fn repeated(command: impl FnOnce(LeaseId, FenceToken) -> Command) -> Result<Answer, ErrorKind> {
    let (store, fixture) = network(FaultRates { after: 1_000, ..FaultRates::NONE });
    let (lease, token) = everything(&*fixture.store);
    let command = command(lease, token);
    let first = block_on(call(&store, command.clone()));
    assert_eq!(first.map_err(|error| error.kind()), Err(ErrorKind::Unknown));
    store.heal();
    block_on(call(&store, command)).map_err(|error| error.kind())
}

/// After a lost reply every command may be sent again, and the second answer is true.
#[test]
fn every_command_can_be_repeated_after_a_lost_reply() {
    let (first, trigger) = (JobId(Uuid::from_u128(1)), JobId(Uuid::from_u128(3)));
    let again = repeated(|_, _| Command::Retry(vec![first]));
    assert_eq!(again, Ok(Answer::Retried(vec![Ok(JobState::Pending)])), "it is open already");
    let cancel = |_, _| {
        let filter = JobFilter { task: Some(name("email")), ..JobFilter::default() };
        Command::ChangeMatching { change: Change::Cancel, filter, after: None, limit: 10 }
    };
    assert_eq!(repeated(cancel), Ok(Answer::Changed(Changed { jobs: 0, next: None })));
    let steer = |steer| repeated(move |_, _| Command::SteerWorkflow(name("flow"), steer));
    assert_eq!(steer(Steer::Retry(1)), Ok(Answer::Done));
    assert_eq!(steer(Steer::Skip(1)), Ok(Answer::Done));
    assert_eq!(steer(Steer::Cancel), Ok(Answer::Done));
    let extended = repeated(|lease, token| Command::ExtendSlots { lease, token, lease_ms: 700 });
    let Ok(Answer::Extended(extended)) = extended else { panic!("not extended: {extended:?}") };
    assert_eq!(extended.lease_until, START.plus_ms(700));
    let again = repeated(Command::ReturnSlots);
    assert_eq!(again, Err(ErrorKind::Fenced), "the first call did it");
    let acquire = |_, _| {
        let id = LeaseId(Uuid::from_u128(10));
        Command::AcquireSlots(SlotRequest::new(id, "api".parse().expect("a group"), name("script"), 5_000))
    };
    let Ok(Answer::Acquired(Some(lease))) = repeated(acquire) else { panic!("it is held") };
    assert_eq!(lease.token, FenceToken(2), "one token, though it was asked twice");
    let enable = |enabled| repeated(move |_, _| Command::EnableSchedule(name("nightly"), enabled));
    assert_eq!((enable(false), enable(true)), (Ok(Answer::Done), Ok(Answer::Done)));
    let again = repeated(|_, _| Command::TriggerSchedule(name("nightly"), trigger));
    assert_eq!(again, Ok(Answer::Triggered(Ok(Submitted::Existing(trigger)))));
}
