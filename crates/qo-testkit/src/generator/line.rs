//! Scripts about long lines.

use super::strategy::{exchange, job, limit};
use super::{
    ConfigurationSpec, ExchangeStep, JobSpec, Number, OutcomeSpec, Script, SessionSpec, SettleSpec, Step,
    Whose,
};
use proptest::collection::{btree_map, vec};
use proptest::option::weighted;
use proptest::prelude::*;
use qo_core::OnLimit;
use std::ops::RangeInclusive;

/// A script about long lines: jobs come by the dozen, in runs of one kind, and workers that serve some of them claim
/// many at once. A store that reads a line in windows goes wrong where a window ends; so there must be more jobs than
/// fit into one.
pub fn lines(steps_in_it: RangeInclusive<usize>) -> impl Strategy<Value = Script> {
    let limits = vec((0..17_u8, 1..40_u32).prop_map(|(group, limit)| Step::SetLimit(group, limit)), 0..4);
    (priorities(), limits, vec(submit(), 2..4), vec(step(), steps_in_it)).prop_map(
        |(priorities, limits, submits, steps)| Script {
            steps: workers()
                .into_iter()
                .chain([priorities])
                .chain(limits)
                .chain(submits)
                .chain(steps)
                .collect(),
        },
    )
}

/// A worker that serves all tasks, and two that serve some, each with permits for all jobs.
fn workers() -> [Step; 3] {
    [vec![0, 1, 2], vec![0], vec![1, 2]].map(|tasks| {
        Step::Open(SessionSpec {
            worker: 0,
            queues: vec![],
            tasks,
            lease_ms: 60_000,
            permits: 500,
            owner: None,
        })
    })
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        6 => submit(),
        20 => claim().prop_map(Step::Exchange),
        2 => (0..17_u8, limit()).prop_map(|(group, limit)| Step::SetLimit(group, limit)),
        1 => any::<u8>().prop_map(Step::UnsetLimit),
        1 => vec(any::<u8>(), 1..20).prop_map(Step::Cancel),
        1 => vec(any::<u8>(), 1..10).prop_map(Step::Retry),
        1 => (any::<u8>(), prop::bool::weighted(0.3)).prop_map(|(queue, paused)| Step::Pause(queue, paused)),
        1 => priorities(),
        1 => (0..2_000_u64).prop_map(Step::Advance),
    ]
}

/// Some queues have priorities of their own, some share one and so are one line.
fn priorities() -> impl Strategy<Value = Step> {
    vec((any::<u8>(), 1..4_u32), 0..3).prop_map(|priorities| {
        Step::Configure(ConfigurationSpec { priorities, ..ConfigurationSpec::default() })
    })
}

/// Runs of jobs that are alike.
fn submit() -> impl Strategy<Value = Step> {
    let stretch = (kind(), 1..60_usize).prop_map(|(job, count)| vec![job; count]);
    vec(stretch, 1..6).prop_map(|stretches| Step::Submit(stretches.concat()))
}

/// Few have a queue of their own, hardly any a priority or a date: those would leave the run.
fn kind() -> impl Strategy<Value = JobSpec> {
    let apart = (prop::bool::weighted(0.3), weighted(0.1, -1..2), weighted(0.05, 0..1_000_i64));
    let needs =
        (weighted(0.3, any::<u8>()), weighted(0.3, any::<u8>()), vec((any::<u8>(), Just(1_u32)), 0..2));
    (job(), apart, needs).prop_map(|(job, (own_queue, priority, run_at), (group, key, extras))| JobSpec {
        queue: if own_queue { job.queue } else { 0 },
        priority: priority.unwrap_or(0),
        run_at,
        group,
        key,
        extras,
        good_until: None,
        timeout_ms: None,
        cost: 1,
        limit: None,
        clear_limit: false,
        idempotency: None,
        on_limit: OnLimit::Wait,
        old_id: None,
        workflow: None,
        on_failure: None,
        ..job
    })
}

/// An exchange that settles many and wants many.
fn claim() -> impl Strategy<Value = ExchangeStep> {
    let outcome = prop_oneof![
        12 => Just(OutcomeSpec::Succeed),
        1 => Just(OutcomeSpec::Release),
        1 => Just(OutcomeSpec::Retry(0)),
        1 => Just(OutcomeSpec::Fail),
    ];
    // Each job at most once: on PostgreSQL an exchange that settles a job twice takes the unusual path.
    let settles = btree_map(0..120_u8, outcome, 0..60).prop_map(|settles| {
        settles.into_iter().map(|(place, outcome)| SettleSpec { whose: Whose::Nth(place), outcome }).collect()
    });
    let max = prop_oneof![1 => 1..6_u32, 2 => 6..60_u32, 3 => 60..200_u32];
    let per_queue = weighted(0.05, 1..60_u32);
    (exchange(), settles, max, per_queue).prop_map(|(exchange, settles, max, max_claim_batch)| ExchangeStep {
        session: exchange.session,
        number: Number::Next,
        settles,
        max,
        max_claim_batch,
        starts: vec![],
        reports: vec![],
        prefetch: None,
        free_permits: 500,
        draining: false,
        idle_ms: None,
    })
}
