//! Three hundred seeds of the simulator on the rule book, and a check that they reach what they are meant to reach.

use async_trait::async_trait;
use qo_core::{ManualClock, MemoryStore};
use qo_testkit::checker::tally::Tally;
use qo_testkit::simulation::{Outcome, Profile, run};
use qo_testkit::{Fixture, Fixtures, START};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

const SEEDS: u64 = 300;

/// One store, so that it can be audited after the run.
struct One(Arc<MemoryStore>, Arc<ManualClock>);

impl One {
    fn new() -> Self {
        let clock = Arc::new(ManualClock::new(START));
        Self(Arc::new(MemoryStore::with_clock(clock.clone())), clock)
    }
}

#[async_trait]
impl Fixtures for One {
    async fn fresh(&self) -> Fixture {
        Fixture { store: self.0.clone(), clock: self.1.clone() }
    }
}

fn simulate(seed: u64) -> Outcome {
    let one = One::new();
    let outcome = run(seed, &Profile::default(), &one);
    assert_eq!(one.0.audit(), Ok(Vec::new()), "counts and indexes of the rule book, seed {seed}");
    outcome
}

#[test]
fn three_hundred_seeds_break_no_guarantee() {
    let next = AtomicU64::new(1);
    let total = Mutex::new(Tally::default());
    std::thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| {
                while let Some(seed) = Some(next.fetch_add(1, Ordering::SeqCst)).filter(|seed| *seed <= SEEDS)
                {
                    let outcome = simulate(seed);
                    let first = outcome.violations.first();
                    assert!(
                        first.is_none(),
                        "{}; see it with: QO_SEED={seed} make sim",
                        first.expect("there is one")
                    );
                    *total.lock().expect("the other thread did not panic here") += &outcome.tally;
                }
            });
        }
    });
    assert_not_idle(&total.into_inner().expect("the threads are through"));
}

/// The seeds reached what they are there for: a run without faults and full groups would keep every guarantee.
#[allow(clippy::print_stdout)] // What happened in all seeds: `cargo test --test simulation -- --nocapture`.
fn assert_not_idle(tally: &Tally) {
    println!("{tally}");
    let at_least = [
        ("operations", 2_000 * SEEDS),
        ("grants", 200 * SEEDS),
        ("grants that reach a limit", 100 * SEEDS),
        ("grants of big jobs", 10 * SEEDS),
        ("claims that met a reservation", SEEDS),
        ("exchanges with work behind a full limit", 200 * SEEDS),
        ("exchanges answered again", 10 * SEEDS),
        ("exchanges refused", 10 * SEEDS),
        ("settles fenced", 10 * SEEDS),
        ("fault: before", 10 * SEEDS),
        ("fault: after", 10 * SEEDS),
        ("fault: late", 10 * SEEDS),
        ("fault: twice", 10 * SEEDS),
        ("crashes", 5 * SEEDS),
        ("pauses beyond the margin", 5 * SEEDS),
        ("end: lease ended", 10 * SEEDS),
        ("end: timed out", SEEDS),
        ("end: released by operator", SEEDS),
        ("end: retried", 10 * SEEDS),
        ("end: snoozed", 5 * SEEDS),
        ("end: released", 5 * SEEDS),
        ("end: cancelled", SEEDS),
        ("end: failed", 5 * SEEDS),
        ("expired in line", 5 * SEEDS),
        ("cancelled in line", 5 * SEEDS),
        ("exchanges that stop handlers", 5 * SEEDS),
        ("explanations", 100 * SEEDS),
        ("limit changes", 30 * SEEDS),
        ("limits set to 0", 2 * SEEDS),
        ("queues paused or resumed", 10 * SEEDS),
        ("submit: existing", 10 * SEEDS),
        ("submit: limit reached", 10 * SEEDS),
        ("submit: skipped", 10 * SEEDS),
        ("submit: conflict", SEEDS),
        ("steps run", 20 * SEEDS),
        ("workflows: halted", 3 * SEEDS),
        ("workflows: retried", SEEDS),
        ("workflows: skipped", SEEDS),
        ("workflows: cancelled", SEEDS / 2),
        ("workflows: not steered", SEEDS),
        ("claims", 20 * SEEDS),
        ("claims: started", 10 * SEEDS),
        ("claims: could not start", SEEDS),
        ("claims: released", SEEDS),
        ("claims: given back by draining", SEEDS / 10),
        ("claims: over", SEEDS),
        ("claims: ended with their session", SEEDS / 2),
        ("claims: cancelled", SEEDS / 10),
        ("starts fenced", SEEDS),
        ("programs: granted", 10 * SEEDS),
        ("programs: granted again", SEEDS),
        ("programs: refused", 5 * SEEDS),
        ("programs: extended", 10 * SEEDS),
        ("programs: gave back", 5 * SEEDS),
        ("programs: over", 5 * SEEDS),
        ("programs: fenced", 5 * SEEDS),
        ("programs: in error", SEEDS),
        ("programs: released by operator", SEEDS / 10),
        ("ticks: fired", 10 * SEEDS),
        ("ticks: fired late", SEEDS / 10),
        ("ticks: skipped", 10 * SEEDS),
        ("ticks: too late", SEEDS / 50),
        ("jobs of schedules run", 10 * SEEDS),
        ("jobs reopened", 5 * SEEDS),
        ("reopened jobs run", 5 * SEEDS),
        ("jobs forgotten", 10 * SEEDS),
        ("bulk changes", 5 * SEEDS),
        ("bulk changes with another page", SEEDS),
    ];
    let idle: Vec<_> = at_least.iter().filter(|(what, least)| tally.of(what) < *least).collect();
    assert!(idle.is_empty(), "too rare: {idle:?}\n{tally}");
}

#[test]
fn the_same_seed_gives_the_same_trace() {
    for seed in [1, 2, 3] {
        let (first, second) = (simulate(seed).trace(), simulate(seed).trace());
        assert!(first == second, "seed {seed}");
        assert!(first.lines().count() > 4_000);
    }
    assert_ne!(simulate(4).trace(), simulate(5).trace());
}

#[test]
fn a_world_comes_to_rest_long_before_it_is_given_up() {
    let outcome = simulate(6);
    let last = outcome.history.entries.last().expect("something happened").at;
    let healed = outcome.history.entries.iter().find(|entry| entry.to_string().contains("HEALED"));
    let rested_ms = last.ms_since(healed.expect("faults ended").at);
    assert!(rested_ms < Profile::default().rest_ms / 2, "{rested_ms} ms");
}
