//! Scripts about the line itself.

use super::strategy::{exchange, flow, job, limit, program, request, session, start, steer};
use super::{ConfigurationSpec, ExchangeStep, JobSpec, Number, OutcomeSpec, Script, SessionSpec, SettleSpec};
use super::{SlotSpec, Step, Whose};
use proptest::collection::vec;
use proptest::option::weighted;
use proptest::prelude::*;
use qo_core::OnLimit;
use std::ops::RangeInclusive;

/// A script about the line itself: three workers that serve different tasks, limits on most groups, and jobs that could
/// all run now but for each other. Some jobs are steps, some are claimed ahead of time, and programs take slots too. It
/// is aimed at mistakes in where jobs stand and what is kept for which job.
pub fn crowds(steps_in_it: RangeInclusive<usize>) -> impl Strategy<Value = Script> {
    let limits = vec((0..17_u8, 1..5_u32).prop_map(|(group, limit)| Step::SetLimit(group, limit)), 4..10);
    (limits, vec(crowd_step(), steps_in_it)).prop_map(|(limits, steps)| Script {
        steps: workers().into_iter().chain(limits).chain(steps).collect(),
    })
}

/// Three workers that serve different tasks.
pub(super) fn workers() -> [Step; 3] {
    [vec![0, 1, 2], vec![0], vec![1, 2]].map(|tasks| {
        Step::Open(SessionSpec {
            worker: 0,
            queues: vec![],
            tasks,
            lease_ms: 30_000,
            permits: 9,
            owner: None,
        })
    })
}

fn crowd_step() -> impl Strategy<Value = Step> {
    prop_oneof![
        20 => vec(crowd_job(), 1..5).prop_map(Step::Submit),
        44 => crowd_exchange().prop_map(Step::Exchange),
        2 => (0..17_u8, limit()).prop_map(|(group, limit)| Step::SetLimit(group, limit)),
        1 => any::<u8>().prop_map(Step::UnsetLimit),
        2 => vec(any::<u8>(), 1..3).prop_map(Step::Cancel),
        5 => vec(any::<u8>(), 1..4).prop_map(Step::Retry),
        2 => (0..2_u8, steer()).prop_map(|(workflow, steer)| Step::Steer(workflow, steer)),
        6 => (request(), 0..3_u8).prop_map(|(request, group)| {
            Step::Acquire(SlotSpec { group, limit: None, lease_ms: 60_000, ..request })
        }),
        3 => program().prop_map(Step::Return),
        1 => vec((any::<u8>(), 1..4_u32), 0..3).prop_map(|priorities| {
            Step::Configure(ConfigurationSpec { priorities, ..ConfigurationSpec::default() })
        }),
        1 => (any::<u8>(), prop::bool::weighted(0.3)).prop_map(|(queue, paused)| Step::Pause(queue, paused)),
        1 => session().prop_map(Step::Open),
        1 => any::<u8>().prop_map(Step::ReleaseOwnSlot),
        1 => (0..2_000_u64).prop_map(Step::Advance),
    ]
}

fn crowd_job() -> impl Strategy<Value = JobSpec> {
    let cost = prop_oneof![5 => Just(1_u32), 3 => Just(2_u32), 2 => 3..5_u32];
    let flow = flow(0.25);
    (job(), cost, vec((any::<u8>(), 1..4_u32), 0..4), prop::bool::weighted(0.7), flow).prop_map(
        |(job, cost, extras, same_queue, (workflow, on_failure))| JobSpec {
            queue: if same_queue { 0 } else { job.queue },
            run_at: None,
            good_until: None,
            timeout_ms: None,
            limit: None,
            clear_limit: false,
            idempotency: None,
            on_limit: OnLimit::Wait,
            old_id: None,
            cost,
            extras,
            workflow,
            on_failure,
            ..job
        },
    )
}

fn crowd_exchange() -> impl Strategy<Value = ExchangeStep> {
    let outcome = prop_oneof![
        8 => Just(OutcomeSpec::Succeed),
        2 => Just(OutcomeSpec::Release),
        3 => Just(OutcomeSpec::Fail),
    ];
    let held = (any::<u8>(), outcome);
    let settle = held.prop_map(|(job, outcome)| SettleSpec { whose: Whose::Held(job), outcome });
    // Half of the exchanges claim ahead of time: what they hold changes the line for other sessions.
    let ahead = (vec(start(), 0..4), weighted(0.5, (1..6_u32, Just(30_000_u64))));
    (exchange(), vec(settle, 0..4), ahead).prop_map(|(exchange, settles, (starts, prefetch))| ExchangeStep {
        number: Number::Next,
        settles,
        starts,
        max: if prefetch.is_some() && exchange.free_permits < 6 { 0 } else { exchange.max },
        prefetch: prefetch.filter(|_| !exchange.draining),
        idle_ms: None,
        ..exchange
    })
}
