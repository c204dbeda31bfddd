//! Properties of `decide` and `evolve` that no store can show from outside.

use futures::executor::block_on;
use proptest::prelude::*;
use qo_core::{
    Command, Decision, ErrorKind, Event, ManualClock, MemoryStore, NewJob, OnLimit, Place, SnapshotRow,
    State, Time, decide,
};
use qo_testkit::generator::{Script, Seen, crowds, flows, scripts};
use qo_testkit::{Fixture, START};
use std::sync::Arc;

/// The commands that a script means, each with the time at which it comes.
fn commands(script: &Script) -> Vec<(Time, Command)> {
    let clock = Arc::new(ManualClock::new(START));
    let fixture = Fixture { store: Arc::new(MemoryStore::with_clock(clock.clone())), clock };
    let mut now = START;
    let mut commands = Vec::new();
    for entry in block_on(script.run(&fixture)).entries {
        match (entry.seen, entry.command) {
            (Seen::Advanced(ms), _) => now = now.plus_ms(ms),
            (_, Some(command)) => commands.push((now, command)),
            (_, None) => {}
        }
    }
    commands
}

/// A job without the options that need an answer.
fn offerable(job: NewJob) -> NewJob {
    let group = job.group.clone().unwrap_or_else(|| job.task.clone());
    let mut job = NewJob {
        group: Some(group.clone()),
        limit: None,
        clear_limit: false,
        idempotency_key: None,
        on_limit: OnLimit::Wait,
        workflow: None,
        on_failure: None,
        ..job
    };
    job.limits.retain(|extra, _| extra.to_string().split('/').next() != Some(&*group));
    job
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 128, failure_persistence: None, ..ProptestConfig::default() })]

    /// A writer that lost the race relies on this.
    #[test]
    fn a_decision_can_be_taken_back(script in prop_oneof![scripts(1..=100), crowds(1..=60), flows(1..=60)]) {
        let mut state = State::new();
        for (now, command) in commands(&script) {
            let before = state.picture();
            state.speculate();
            let first = decide(&mut state, now, &command);
            state.take_back();
            prop_assert_eq!(state.picture(), before);
            prop_assert_eq!(state.audit(), Vec::<String>::new());
            prop_assert_eq!(decide(&mut state, now, &command), first);
        }
    }

    /// Several decisions can be one speculation: a store commits batches.
    #[test]
    fn a_batch_of_decisions_can_be_taken_back(script in prop_oneof![scripts(20..=120), crowds(20..=60), flows(20..=60)], batch in 2usize..20) {
        let mut state = State::new();
        for batch in commands(&script).chunks(batch) {
            let before = state.picture();
            state.speculate();
            let first: Vec<_> = batch.iter().map(|(now, command)| decide(&mut state, *now, command)).collect();
            state.take_back();
            prop_assert_eq!(state.picture(), before);
            state.speculate();
            let again: Vec<_> = batch.iter().map(|(now, command)| decide(&mut state, *now, command)).collect();
            state.keep();
            prop_assert_eq!(again, first);
            prop_assert_eq!(state.audit(), Vec::<String>::new());
        }
    }

    /// A reader of a log relies on this; the events go through JSON on their way.
    #[test]
    fn a_replica_that_evolves_reaches_the_same_state(script in prop_oneof![scripts(1..=100), crowds(1..=60), flows(1..=60)]) {
        let (mut leader, mut replica) = (State::new(), State::new());
        for (now, command) in commands(&script) {
            let Ok(Decision { events, .. }) = decide(&mut leader, now, &command) else { continue };
            let written = serde_json::to_string(&events).expect("events are data");
            for event in serde_json::from_str::<Vec<Event>>(&written).expect("and read back") {
                replica.evolve(&event);
            }
            prop_assert_eq!(replica.picture(), leader.picture());
            prop_assert_eq!(replica.audit(), Vec::<String>::new());
        }
    }

    /// No leader: the process that wins the next record decides, and the others follow.
    #[test]
    fn replicas_that_take_turns_decide_like_one(script in prop_oneof![scripts(1..=100), crowds(1..=60), flows(1..=60)], turns in any::<u64>()) {
        let (mut alone, mut replicas) = (State::new(), [State::new(), State::new()]);
        for (number, (now, command)) in commands(&script).into_iter().enumerate() {
            let decider = (turns >> (number % 64) & 1) as usize;
            let decision = decide(&mut replicas[decider], now, &command);
            prop_assert_eq!(&decision, &decide(&mut alone, now, &command));
            for event in decision.map_or(Vec::new(), |decision| decision.events) {
                replicas[1 - decider].evolve(&event);
            }
        }
        prop_assert_eq!(replicas[0].picture(), alone.picture());
        prop_assert_eq!(replicas[1].picture(), alone.picture());
    }

    /// A reader that begins at a snapshot relies on this; the rows go through JSON on their way.
    #[test]
    fn a_state_comes_back_from_its_snapshot(script in prop_oneof![scripts(1..=100), crowds(1..=60), flows(1..=60)], every in 1usize..10) {
        let (mut state, mut restored) = (State::new(), State::new());
        for (number, (now, command)) in commands(&script).into_iter().enumerate() {
            prop_assert_eq!(decide(&mut restored, now, &command), decide(&mut state, now, &command));
            if number % every == 0 {
                let rows = state.snapshot().map(|row| serde_json::to_string(&row).expect("rows are data"));
                let rows = rows.map(|row| serde_json::from_str::<SnapshotRow>(&row).expect("and read back"));
                restored = State::restore(rows).expect("a snapshot");
                prop_assert_eq!(restored.picture(), state.picture());
                prop_assert_eq!(restored.audit(), Vec::<String>::new());
            }
        }
    }

    /// Rows that were lost, doubled or mixed up are refused as bad data, or give another state; they never panic.
    #[test]
    fn a_damaged_snapshot_is_refused_or_makes_sense(script in prop_oneof![scripts(20..=100), flows(20..=60)], damage in prop::collection::vec((0u8..3, any::<prop::sample::Index>(), any::<prop::sample::Index>()), 1..4)) {
        let mut state = State::new();
        for (now, command) in commands(&script) {
            decide(&mut state, now, &command).ok();
        }
        let mut rows: Vec<_> = state.snapshot().collect();
        for (how, one, other) in damage {
            let (one, other) = (one.index(rows.len()), other.index(rows.len()));
            match how {
                0 if rows.len() > 1 => drop(rows.remove(one)),
                1 => rows.insert(other, rows[one].clone()),
                _ => rows.swap(one, other),
            }
        }
        match State::restore(rows) {
            Ok(restored) => prop_assert_eq!(restored.audit(), Vec::<String>::new()),
            Err(error) => prop_assert_eq!(error.kind(), ErrorKind::Data),
        }
    }

    /// An offer is acknowledged before a process looks at the state. So admission accepts what a submit would accept,
    /// with the same result, and accepts the rest too.
    #[test]
    fn offers_are_admitted_like_submits_and_never_refused(script in prop_oneof![scripts(1..=100), crowds(1..=60)]) {
        let mut state = State::new();
        for (now, command) in commands(&script) {
            let Command::Submit(jobs) = command else {
                decide(&mut state, now, &command).ok();
                continue;
            };
            let jobs: Vec<_> = jobs.into_iter().map(offerable).filter(|job| job.check().is_ok()).collect();
            prop_assert!(jobs.iter().all(NewJob::can_be_offered));
            let before = state.picture();
            state.speculate();
            let submitted = decide(&mut state, now, &Command::Submit(jobs.clone()));
            state.take_back();
            state.speculate();
            let admitted = decide(&mut state, now, &Command::Admit(jobs.clone())).expect("it is not refused");
            state.take_back();
            prop_assert_eq!(state.picture(), before);
            if let Ok(submitted) = submitted {
                prop_assert_eq!(&admitted, &submitted);
            }
            prop_assert_eq!(&decide(&mut state, now, &Command::Admit(jobs.clone())), &Ok(admitted));
            prop_assert!(jobs.iter().all(|job| state.job(job.id).is_ok()));
            prop_assert_eq!(state.audit(), Vec::<String>::new());
        }
    }

    /// An archived job is shown as if it were still in the state.
    #[test]
    fn what_may_be_archived_shows_the_job_as_the_state_does(script in prop_oneof![scripts(1..=100), flows(1..=60)], keep in 0usize..3) {
        let mut state = State::new();
        for (now, command) in commands(&script) {
            decide(&mut state, now, &command).ok();
            for row in state.snapshot() {
                let SnapshotRow::Job(row) = row else { continue };
                prop_assert_eq!(row.detail().is_some(), matches!(row.place, Place::Ended { .. }));
                prop_assert!(row.detail().is_none_or(|detail| state.job(row.id) == Ok(detail)));
            }
            let rows = state.archivable(keep, 10);
            let jobs: Vec<_> = rows.iter().map(|row| row.id).collect();
            let before = state.picture();
            state.speculate();
            decide(&mut state, now, &Command::Archive { jobs: jobs.clone() }).expect("it is not refused");
            prop_assert!(jobs.iter().all(|&job| !state.has_job(job)));
            prop_assert_eq!(state.archivable(keep, 10).len(), 0);
            prop_assert_eq!(state.audit(), Vec::<String>::new());
            state.take_back();
            prop_assert_eq!(state.picture(), before);
        }
    }

    #[test]
    fn a_refused_command_leaves_no_trace(script in scripts(1..=100)) {
        let mut state = State::new();
        for (now, command) in commands(&script) {
            let before = state.picture();
            if decide(&mut state, now, &command).is_err() {
                prop_assert_eq!(state.picture(), before);
            }
            prop_assert_eq!(state.audit(), Vec::<String>::new());
        }
    }
}
