//! `make sim`: many seeds of the simulator, or one of them step by step.
//!
//! - `SEEDS=300 START=1 make sim`: so many seeds from there on, on two threads.
//! - `QO_SEED=42 make sim`: the trace of one seed, with a line for each objection of a checker.
//! - `OPERATIONS=20000`: longer worlds.
//! - `QO_STORE=toy`: the naive store instead of the rule book.
#![allow(clippy::print_stdout)] // A program for people: what it finds goes to the terminal.

use qo_testkit::checker::tally::Tally;
use qo_testkit::simulation::{Outcome, Profile, run};
use qo_testkit::{Fixtures, Flaw, MemoryFixtures, ToyFixtures};
use std::process::ExitCode;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};

const THREADS: usize = 2;

fn main() -> ExitCode {
    let fixtures: Box<dyn Fixtures> = match std::env::var("QO_STORE").as_deref() {
        Ok("toy") => Box::new(ToyFixtures(Flaw::None)),
        _ => Box::new(MemoryFixtures),
    };
    let clean = match setting("QO_SEED") {
        Some(seed) => replay(seed, &*fixtures),
        None => sweep(setting("START").unwrap_or(1), setting("SEEDS").unwrap_or(300), &*fixtures),
    };
    if clean { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

fn setting(name: &str) -> Option<u64> {
    std::env::var(name).ok().and_then(|text| text.parse().ok())
}

fn profile() -> Profile {
    let usual = Profile::default();
    Profile { operations: setting("OPERATIONS").unwrap_or(usual.operations), ..usual }
}

fn replay(seed: u64, fixtures: &dyn Fixtures) -> bool {
    let outcome = run(seed, &profile(), fixtures);
    println!("{}\n{}", outcome.trace(), outcome.tally);
    outcome.violations.iter().for_each(|violation| println!("{violation}"));
    println!("seed {seed}: {} violations", outcome.violations.len());
    outcome.violations.is_empty()
}

fn sweep(start: u64, seeds: u64, fixtures: &dyn Fixtures) -> bool {
    let next = AtomicU64::new(start);
    let total = Mutex::new((Tally::default(), Vec::<Outcome>::new()));
    std::thread::scope(|scope| {
        for _ in 0..THREADS {
            scope.spawn(|| {
                while let Some(seed) =
                    Some(next.fetch_add(1, Ordering::SeqCst)).filter(|seed| *seed < start + seeds)
                {
                    let mut outcome = run(seed, &profile(), fixtures);
                    outcome.history.entries.clear();
                    let mut total = total.lock().expect("no thread panics while it adds up");
                    total.0 += &outcome.tally;
                    if !outcome.violations.is_empty() {
                        total.1.push(outcome);
                    }
                }
            });
        }
    });
    let (tally, mut broken) = total.into_inner().expect("the threads are through");
    println!("{seeds} seeds from {start}\n{tally}");
    broken.sort_by_key(|outcome| outcome.seed);
    for outcome in &broken {
        println!(
            "seed {} has {} violations, the first: {}",
            outcome.seed,
            outcome.violations.len(),
            outcome.violations[0]
        );
        println!("  QO_SEED={} make sim", outcome.seed);
    }
    println!("violations in {} of {seeds} seeds", broken.len());
    broken.is_empty()
}
