//! Proptest strategies: how often which step comes, and with which values.

use super::{
    ExchangeStep, JobSpec, Number, OutcomeSpec, Script, SessionSpec, SettleSpec, Step, TaskSpec, Whose,
};
use proptest::collection::vec;
use proptest::option::{of, weighted};
use proptest::prelude::*;
use qo_core::OnLimit;
use std::ops::RangeInclusive;

/// A script of so many steps, after two workers have come up.
pub fn scripts(steps_in_it: RangeInclusive<usize>) -> impl Strategy<Value = Script> {
    (vec(session(), 2), vec(steps(), steps_in_it)).prop_map(|(sessions, steps)| Script {
        steps: sessions.into_iter().map(Step::Open).chain(steps).collect(),
    })
}

/// A script about the line itself: three workers that serve different tasks, limits on most groups, and jobs that
/// could all run now if it were not for each other. Where jobs stand, and what is kept for whom, goes wrong here
/// first if it does.
pub fn crowds(steps_in_it: RangeInclusive<usize>) -> impl Strategy<Value = Script> {
    let serving = |tasks: &[u8]| {
        let spec =
            SessionSpec { worker: 0, queues: vec![], tasks: tasks.to_vec(), lease_ms: 30_000, permits: 9 };
        Step::Open(spec)
    };
    let workers = [serving(&[0, 1, 2]), serving(&[0]), serving(&[1, 2])];
    let limits = vec((0..17_u8, 1..5_u32).prop_map(|(group, limit)| Step::SetLimit(group, limit)), 4..10);
    (limits, vec(crowd_step(), steps_in_it)).prop_map(move |(limits, steps)| Script {
        steps: workers.iter().cloned().chain(limits).chain(steps).collect(),
    })
}

fn crowd_step() -> impl Strategy<Value = Step> {
    prop_oneof![
        20 => vec(crowd_job(), 1..5).prop_map(Step::Submit),
        40 => crowd_exchange().prop_map(Step::Exchange),
        2 => (0..17_u8, limit()).prop_map(|(group, limit)| Step::SetLimit(group, limit)),
        1 => any::<u8>().prop_map(Step::UnsetLimit),
        2 => vec(any::<u8>(), 1..3).prop_map(Step::Cancel),
        1 => vec((any::<u8>(), 1..4_u32), 0..3).prop_map(|priorities| Step::Configure(vec![], priorities)),
        1 => (any::<u8>(), prop::bool::weighted(0.3)).prop_map(|(queue, paused)| Step::Pause(queue, paused)),
        1 => session().prop_map(Step::Open),
        1 => any::<u8>().prop_map(Step::ReleaseOwnSlot),
        1 => (0..2_000_u64).prop_map(Step::Advance),
    ]
}

fn crowd_job() -> impl Strategy<Value = JobSpec> {
    let cost = prop_oneof![5 => Just(1_u32), 3 => Just(2_u32), 2 => 3..5_u32];
    (job(), cost, vec((any::<u8>(), 1..4_u32), 0..4), prop::bool::weighted(0.7)).prop_map(
        |(job, cost, extras, same_queue)| JobSpec {
            queue: if same_queue { 0 } else { job.queue },
            run_at: None,
            good_until: None,
            timeout_ms: None,
            limit: None,
            idempotency: None,
            on_limit: OnLimit::Wait,
            old_id: None,
            cost,
            extras,
            ..job
        },
    )
}

fn crowd_exchange() -> impl Strategy<Value = ExchangeStep> {
    let outcome = prop_oneof![4 => Just(OutcomeSpec::Succeed), 1 => Just(OutcomeSpec::Release)];
    let held = (any::<u8>(), outcome);
    let settle = held.prop_map(|(job, outcome)| SettleSpec { whose: Whose::Held(job), outcome });
    (exchange(), vec(settle, 0..4)).prop_map(|(exchange, settles)| ExchangeStep {
        number: Number::Next,
        settles,
        ..exchange
    })
}

/// One step.
pub fn steps() -> impl Strategy<Value = Step> {
    prop_oneof![
        10 => advance().prop_map(Step::Advance),
        14 => vec(job(), 1..5).prop_map(Step::Submit),
        1 => any::<u8>().prop_map(Step::SubmitAgain),
        3 => vec(any::<u8>(), 1..4).prop_map(Step::Cancel),
        2 => vec(task(), 1..3).prop_map(Step::Register),
        2 => (vec((any::<u8>(), limit()), 0..4), vec((any::<u8>(), 1..4_u32), 0..3))
            .prop_map(|(limits, priorities)| Step::Configure(limits, priorities)),
        6 => (any::<u8>(), limit()).prop_map(|(group, limit)| Step::SetLimit(group, limit)),
        3 => any::<u8>().prop_map(Step::UnsetLimit),
        2 => (any::<u8>(), prop::bool::weighted(0.4)).prop_map(|(queue, paused)| Step::Pause(queue, paused)),
        4 => session().prop_map(Step::Open),
        1 => any::<u8>().prop_map(Step::OpenAgain),
        34 => exchange().prop_map(Step::Exchange),
        1 => any::<u8>().prop_map(Step::Close),
        1 => (any::<u8>(), any::<u8>()).prop_map(|(group, token)| Step::ReleaseSlot(group, token)),
        1 => any::<u8>().prop_map(Step::ReleaseOwnSlot),
        3 => Just(Step::Sweep),
    ]
}

fn advance() -> impl Strategy<Value = u64> {
    prop_oneof![
        16 => 0..3_000_u64,
        8 => prop::sample::select(vec![1_000_u64, 5_000, 10_000, 15_000, 30_000]),
        6 => 3_000..40_000_u64,
        1 => Just(25 * 3_600_000_u64),
        1 => Just(15 * 86_400_000_u64),
    ]
}

fn limit() -> impl Strategy<Value = u32> {
    prop_oneof![1 => Just(0_u32), 8 => 1..6_u32]
}

fn job() -> impl Strategy<Value = JobSpec> {
    let what = (any::<u8>(), any::<u8>(), prop_oneof![9 => Just(0_u8), 1 => Just(1_u8)], -1..2_i32);
    let when = (
        weighted(0.25, prop_oneof![Just(-2_000_i64), Just(0), Just(5_000), 1..20_000_i64]),
        weighted(0.15, prop_oneof![Just(-1_000_i64), Just(15_000), 1..60_000_i64]),
        1..4_u32,
        weighted(0.2, prop::sample::select(vec![1_u64, 1_000, 5_000, 20_000])),
    );
    let cost = prop_oneof![7 => Just(1_u32), 2 => Just(2_u32), 1 => 3..5_u32];
    let groups = (of(any::<u8>()), of(any::<u8>()), cost, vec((any::<u8>(), 1..4_u32), 0..3));
    let on_limit =
        prop_oneof![8 => Just(OnLimit::Wait), 1 => Just(OnLimit::Reject), 1 => Just(OnLimit::Skip)];
    let rest = (weighted(0.2, limit()), weighted(0.1, 0..4_u8), on_limit, weighted(0.03, any::<u8>()));
    (what, when, groups, rest).prop_map(|(what, when, groups, rest)| JobSpec {
        task: what.0,
        queue: what.1,
        payload: what.2,
        priority: what.3,
        run_at: when.0,
        good_until: when.1,
        max_attempts: when.2,
        timeout_ms: when.3,
        group: groups.0,
        key: groups.1,
        cost: groups.2,
        extras: groups.3,
        limit: rest.0,
        idempotency: rest.1,
        on_limit: rest.2,
        old_id: rest.3,
    })
}

fn task() -> impl Strategy<Value = TaskSpec> {
    let timeout = weighted(0.3, prop::sample::select(vec![1_000_u64, 8_000]));
    (any::<u8>(), of(any::<u8>()), of(limit()), timeout, of(0..5_000_u64)).prop_map(
        |(task, group, limit, timeout_ms, retry_base_ms)| TaskSpec {
            task,
            group,
            limit,
            timeout_ms,
            retry_base_ms,
        },
    )
}

fn session() -> impl Strategy<Value = SessionSpec> {
    let queues = prop_oneof![2 => Just(vec![]), 1 => vec(any::<u8>(), 1..3)];
    let tasks = prop_oneof![2 => Just(vec![0, 1, 2]), 1 => vec(any::<u8>(), 1..3)];
    let lease = prop::sample::select(vec![1_000_u64, 10_000, 30_000, 30_000]);
    (any::<u8>(), queues, tasks, lease, 1..20_u32).prop_map(|(worker, queues, tasks, lease_ms, permits)| {
        SessionSpec { worker, queues, tasks, lease_ms, permits }
    })
}

fn exchange() -> impl Strategy<Value = ExchangeStep> {
    let number = prop_oneof![
        40 => Just(Number::Next),
        4 => Just(Number::Last),
        1 => Just(Number::Old),
        1 => Just(Number::Ahead),
    ];
    let max = prop_oneof![1 => Just(0_u32), 6 => 1..8_u32];
    let report = (0..10_u32, prop::bool::weighted(0.05));
    (any::<u8>(), number, vec(settle(), 0..4), max, weighted(0.2, 1..3_u32), report).prop_map(
        |(session, number, settles, max, max_per_queue, (free_permits, draining))| ExchangeStep {
            session,
            number,
            settles,
            max: if draining { 0 } else { max },
            max_per_queue,
            free_permits,
            draining,
        },
    )
}

fn settle() -> impl Strategy<Value = SettleSpec> {
    let whose = prop_oneof![
        8 => any::<u8>().prop_map(Whose::Held),
        2 => any::<u8>().prop_map(Whose::Any),
        1 => (any::<u8>(), any::<u8>()).prop_map(|(job, token)| Whose::Mixed(job, token)),
    ];
    let delay = || prop_oneof![Just(0_u64), 1..15_000_u64];
    let outcome = prop_oneof![
        4 => Just(OutcomeSpec::Succeed),
        3 => delay().prop_map(OutcomeSpec::Retry),
        1 => Just(OutcomeSpec::Fail),
        1 => delay().prop_map(OutcomeSpec::Snooze),
        1 => Just(OutcomeSpec::Release),
        1 => Just(OutcomeSpec::Cancelled),
    ];
    (whose, outcome).prop_map(|(whose, outcome)| SettleSpec { whose, outcome })
}
