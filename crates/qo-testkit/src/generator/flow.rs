//! Scripts about the order of steps.

use super::crowd::workers;
use super::strategy::{exchange, flow, job, start, steer};
use super::{ExchangeStep, JobSpec, Number, OutcomeSpec, Script, SettleSpec, Step, Whose};
use proptest::collection::vec;
use proptest::option::weighted;
use proptest::prelude::*;
use qo_core::OnLimit;
use std::ops::RangeInclusive;

/// A script about the order of steps: nearly every job is one, of two workflows, and most of them do not succeed. They
/// are retried, reopened, skipped and cancelled while other steps run or are claimed ahead of time.
pub fn flows(steps_in_it: RangeInclusive<usize>) -> impl Strategy<Value = Script> {
    vec(flow_step(), steps_in_it)
        .prop_map(|steps| Script { steps: workers().into_iter().chain(steps).collect() })
}

fn flow_step() -> impl Strategy<Value = Step> {
    prop_oneof![
        14 => vec(flow_job(), 1..5).prop_map(Step::Submit),
        44 => flow_exchange().prop_map(Step::Exchange),
        12 => vec(any::<u8>(), 1..4).prop_map(Step::Retry),
        10 => (0..2_u8, steer()).prop_map(|(workflow, steer)| Step::Steer(workflow, steer)),
        5 => vec(any::<u8>(), 1..3).prop_map(Step::Cancel),
        3 => (0..17_u8, 0..3_u32).prop_map(|(group, limit)| Step::SetLimit(group, limit)),
        2 => any::<u8>().prop_map(Step::UnsetLimit),
        2 => (any::<u8>(), prop::bool::weighted(0.3)).prop_map(|(queue, paused)| Step::Pause(queue, paused)),
        6 => (0..3_000_u64).prop_map(Step::Advance),
        1 => Just(Step::Advance(25 * 3_600_000)),
        3 => Just(Step::Sweep),
        1 => any::<u8>().prop_map(Step::Close),
        1 => prop::sample::select(workers().to_vec()),
    ]
}

fn flow_job() -> impl Strategy<Value = JobSpec> {
    (job(), flow(0.95)).prop_map(|(job, (workflow, on_failure))| JobSpec {
        task: 0,
        run_at: job.run_at.filter(|_| job.priority == 0),
        good_until: job.good_until.filter(|_| job.priority == 0),
        extras: Vec::new(),
        limit: None,
        clear_limit: false,
        idempotency: None,
        on_limit: OnLimit::Wait,
        old_id: None,
        cost: 1,
        workflow,
        on_failure,
        ..job
    })
}

fn flow_exchange() -> impl Strategy<Value = ExchangeStep> {
    let outcome = prop_oneof![
        4 => Just(OutcomeSpec::Succeed),
        4 => Just(OutcomeSpec::Fail),
        2 => (0..2_000_u64).prop_map(OutcomeSpec::Retry),
        1 => Just(OutcomeSpec::Release),
        1 => Just(OutcomeSpec::Cancelled),
    ];
    let settle =
        (any::<u8>(), outcome).prop_map(|(job, outcome)| SettleSpec { whose: Whose::Held(job), outcome });
    let ahead =
        (vec(start(), 0..3), weighted(0.4, (1..4_u32, prop::sample::select(vec![1_000_u64, 30_000]))));
    (exchange(), vec(settle, 0..4), ahead).prop_map(|(exchange, settles, (starts, prefetch))| ExchangeStep {
        number: Number::Next,
        settles,
        starts,
        max: if prefetch.is_some() && exchange.free_permits < 7 { 0 } else { exchange.max },
        prefetch: prefetch.filter(|_| !exchange.draining),
        idle_ms: None,
        ..exchange
    })
}
