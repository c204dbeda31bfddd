//! What the bad network does, one fault at a time.

use futures::executor::block_on;
use qo_core::{ErrorKind, JobFilter, JobId, Name, NewJob, Store, Submitted};
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
