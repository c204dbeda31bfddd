//! Scripts about workflows.

use super::strategy::{start, steer};
use super::{
    BulkSpec, ExchangeStep, JobSpec, Number, OutcomeSpec, Script, SessionSpec, SettleSpec, Step, Whose,
};
use proptest::collection::vec;
use proptest::option::weighted;
use proptest::prelude::*;
use qo_core::{Change, OnFailure, OnLimit};
use std::ops::RangeInclusive;

/// A script about workflows: two workers that serve everything, two workflows, one of which goes on whatever happens,
/// and steps that end in every way, are opened again, skipped and called off while others run.
pub fn flows(steps_in_it: RangeInclusive<usize>) -> impl Strategy<Value = Script> {
    let worker = || {
        let (queues, tasks) = (vec![], vec![0, 1, 2]);
        Step::Open(SessionSpec { worker: 0, queues, tasks, lease_ms: 30_000, permits: 9 })
    };
    let first =
        |workflow, on_failure| Step::Submit(vec![JobSpec { on_failure: Some(on_failure), ..job(workflow) }]);
    let begin = [worker(), worker(), first(0, OnFailure::Continue), first(1, OnFailure::Halt)];
    vec(step(), steps_in_it)
        .prop_map(move |steps| Script { steps: begin.iter().cloned().chain(steps).collect() })
}

fn step() -> impl Strategy<Value = Step> {
    let again = |filter| BulkSpec { change: Change::Retry, filter, go_on: false, limit: 100 };
    prop_oneof![
        10 => vec(any_job(), 1..4).prop_map(Step::Submit),
        30 => exchange().prop_map(Step::Exchange),
        2 => vec(any::<u8>(), 1..3).prop_map(Step::Cancel),
        2 => vec(any::<u8>(), 1..3).prop_map(Step::Retry),
        2 => (0..8_u8).prop_map(move |filter| Step::ChangeMatching(again(filter))),
        6 => (0..2_u8, steer()).prop_map(|(workflow, steer)| Step::Steer(workflow, steer)),
        1 => (0..3_000_u64).prop_map(Step::Advance),
        1 => Just(Step::Advance(40_000)),
        1 => Just(Step::Sweep),
    ]
}

fn any_job() -> impl Strategy<Value = JobSpec> {
    let when = (weighted(0.1, 1..2_000_i64), weighted(0.1, 1_000..50_000_i64));
    (0..2_u8, -1..2_i32, when, 1..3_u32).prop_map(
        |(workflow, priority, (run_at, good_until), max_attempts)| JobSpec {
            priority,
            run_at,
            good_until,
            max_attempts,
            ..job(workflow)
        },
    )
}

fn job(workflow: u8) -> JobSpec {
    JobSpec {
        task: 0,
        queue: 0,
        payload: 0,
        priority: 0,
        run_at: None,
        good_until: None,
        max_attempts: 1,
        timeout_ms: None,
        group: None,
        key: None,
        cost: 1,
        extras: vec![],
        limit: None,
        idempotency: None,
        on_limit: OnLimit::Wait,
        old_id: None,
        workflow: Some(workflow),
        on_failure: None,
    }
}

fn exchange() -> impl Strategy<Value = ExchangeStep> {
    let outcome = prop_oneof![
        4 => Just(OutcomeSpec::Succeed),
        4 => Just(OutcomeSpec::Fail),
        1 => Just(OutcomeSpec::Release),
        1 => (0..2_000_u64).prop_map(OutcomeSpec::Retry),
    ];
    let settle =
        (any::<u8>(), outcome).prop_map(|(job, outcome)| SettleSpec { whose: Whose::Held(job), outcome });
    let prefetch = weighted(0.2, (1..3_u32, Just(30_000_u64)));
    (0..2_u8, vec(settle, 0..2), vec(start(), 0..2), 0..3_u32, prefetch).prop_map(
        |(session, settles, starts, max, prefetch)| ExchangeStep {
            session,
            number: Number::Next,
            settles,
            max,
            max_per_queue: None,
            starts,
            prefetch,
            free_permits: 9,
            draining: false,
        },
    )
}
