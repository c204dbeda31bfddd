//! Proptest strategies: how often which step comes, and with which values.

use super::{BulkSpec, ConfigurationSpec, ProgramPick, ScheduleSpec, SlotSpec};
use super::{
    ExchangeStep, JobSpec, Number, OutcomeSpec, Owner, Script, SessionSpec, SettleSpec, Step, TaskSpec,
    TokenSpec, Whose,
};
use proptest::collection::vec;
use proptest::option::{of, weighted};
use proptest::prelude::*;
use qo_core::{Change, Missed, OnFailure, OnLimit, Steer};
use std::ops::RangeInclusive;

/// A script of so many steps, after a configuration was pushed and two workers have opened sessions.
pub fn scripts(steps_in_it: RangeInclusive<usize>) -> impl Strategy<Value = Script> {
    (configuration(), vec(session(), 2), vec(steps(), steps_in_it)).prop_map(
        |(configuration, sessions, steps)| {
            let before =
                [Step::Configure(configuration)].into_iter().chain(sessions.into_iter().map(Step::Open));
            Script { steps: before.chain(steps).collect() }
        },
    )
}

/// One step.
pub fn steps() -> impl Strategy<Value = Step> {
    prop_oneof![
        10 => advance().prop_map(Step::Advance),
        20 => vec(job(), 1..5).prop_map(Step::Submit),
        1 => any::<u8>().prop_map(Step::SubmitAgain),
        3 => vec(any::<u8>(), 1..4).prop_map(Step::Cancel),
        2 => vec(task(), 1..3).prop_map(Step::Register),
        4 => configuration().prop_map(Step::Configure),
        6 => (any::<u8>(), limit()).prop_map(|(group, limit)| Step::SetLimit(group, limit)),
        3 => any::<u8>().prop_map(Step::UnsetLimit),
        2 => (any::<u8>(), prop::bool::weighted(0.4)).prop_map(|(queue, paused)| Step::Pause(queue, paused)),
        8 => session().prop_map(Step::Open),
        2 => (any::<u8>(), owner()).prop_map(|(session, owner)| Step::OpenAgain(session, owner)),
        52 => exchange().prop_map(Step::Exchange),
        1 => any::<u8>().prop_map(Step::Close),
        1 => (any::<u8>(), any::<u8>()).prop_map(|(group, token)| Step::ReleaseSlot(group, token)),
        1 => any::<u8>().prop_map(Step::ReleaseOwnSlot),
        5 => Just(Step::Sweep),
        5 => vec(any::<u8>(), 1..4).prop_map(Step::Retry),
        3 => bulk().prop_map(Step::ChangeMatching),
        6 => (0..3_u8, steer()).prop_map(|(workflow, steer)| Step::Steer(workflow, steer)),
        7 => request().prop_map(Step::Acquire),
        2 => (program(), lease()).prop_map(|(whose, lease_ms)| Step::Extend(whose, lease_ms)),
        2 => program().prop_map(Step::Return),
        2 => (any::<u8>(), prop::bool::weighted(0.6)).prop_map(|(schedule, on)| Step::Enable(schedule, on)),
        3 => (any::<u8>(), weighted(0.2, any::<u8>())).prop_map(|(schedule, old)| Step::Trigger(schedule, old)),
        4 => token().prop_map(Step::CreateToken),
        2 => (0..4_u8).prop_map(Step::RevokeToken),
        1 => any::<u8>().prop_map(Step::Record),
    ]
}

/// Few ids and names, so that they meet.
fn token() -> impl Strategy<Value = TokenSpec> {
    let queues = weighted(0.3, vec(any::<u8>(), 0..3));
    let expires_at = weighted(0.6, -1_000..20_000_i64);
    (0..3_u8, 0..3_u8, queues, weighted(0.2, any::<u8>()), expires_at)
        .prop_map(|(id, name, queues, app, expires_at)| TokenSpec { id, name, queues, app, expires_at })
}

fn owner() -> impl Strategy<Value = Owner> {
    prop_oneof![Just(Owner::Same), weighted(0.7, 0..3_u8).prop_map(Owner::Other)]
}

/// From [`START`](crate::START) to 02:00 in Berlin, which is 03:00, in the night that has no 02:30.
const TO_THE_GAP_MS: u64 = 1_806_195_600_000 - 1_800_000_000_000;

fn advance() -> impl Strategy<Value = u64> {
    prop_oneof![
        24 => 0..3_000_u64,
        8 => prop::sample::select(vec![1_000_u64, 5_000, 10_000, 15_000, 30_000]),
        6 => 3_000..40_000_u64,
        1 => Just(25 * 3_600_000_u64),
        1 => Just(15 * 86_400_000_u64),
        1 => prop::sample::select(vec![60_000_u64, 61_000, 120_000, 3_600_000]),
        1 => prop::sample::select(vec![TO_THE_GAP_MS - 60_000, TO_THE_GAP_MS + 30_000]),
    ]
}

pub(super) fn limit() -> impl Strategy<Value = u32> {
    prop_oneof![1 => Just(0_u32), 8 => 1..6_u32]
}

pub(super) fn job() -> impl Strategy<Value = JobSpec> {
    let what = (any::<u8>(), any::<u8>(), prop_oneof![9 => Just(0_u8), 1 => Just(1_u8)], -1..2_i32);
    let when = (
        weighted(0.25, prop_oneof![Just(-2_000_i64), Just(0), Just(5_000), 1..20_000_i64]),
        weighted(
            0.15,
            prop_oneof![1 => Just(-1_000_i64), 1 => Just(15_000), 2 => 100..4_000_i64, 1 => 1..60_000_i64],
        ),
        1..4_u32,
        weighted(0.2, prop::sample::select(vec![1_u64, 1_000, 5_000, 20_000])),
    );
    let cost = prop_oneof![7 => Just(1_u32), 2 => Just(2_u32), 1 => 3..5_u32];
    let groups = (of(any::<u8>()), of(any::<u8>()), cost, vec((any::<u8>(), 1..4_u32), 0..3));
    let on_limit =
        prop_oneof![8 => Just(OnLimit::Wait), 1 => Just(OnLimit::Reject), 1 => Just(OnLimit::Skip)];
    let limits = (weighted(0.2, limit()), prop::bool::weighted(0.1));
    let rest = (limits, weighted(0.12, 0..6_u8), on_limit, weighted(0.03, any::<u8>()));
    let flow = (flow(0.25), weighted(0.1, any::<u8>()));
    (what, when, groups, rest, flow).prop_map(|(what, when, groups, rest, (flow, trace))| JobSpec {
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
        limit: rest.0.0,
        clear_limit: rest.0.1,
        idempotency: rest.1,
        on_limit: rest.2,
        old_id: rest.3,
        workflow: flow.0,
        on_failure: flow.1,
        trace,
    })
}

fn task() -> impl Strategy<Value = TaskSpec> {
    let timeout = weighted(0.3, prop::sample::select(vec![1_000_u64, 8_000]));
    (app(), any::<u8>(), of(any::<u8>()), of(limit()), timeout, of(0..5_000_u64)).prop_map(
        |(app, task, group, limit, timeout_ms, retry_base_ms)| TaskSpec {
            app,
            task,
            group,
            limit,
            timeout_ms,
            retry_base_ms,
        },
    )
}

pub(super) fn session() -> impl Strategy<Value = SessionSpec> {
    let queues = prop_oneof![2 => Just(vec![]), 1 => vec(any::<u8>(), 1..3)];
    let tasks = prop_oneof![2 => Just(vec![0, 1, 2]), 1 => vec(any::<u8>(), 1..3)];
    let lease = prop::sample::select(vec![1_000_u64, 30_000, 30_000, 60_000, 60_000]);
    let owner = weighted(0.3, 0..3_u8);
    (any::<u8>(), queues, tasks, lease, 1..20_u32, owner).prop_map(
        |(worker, queues, tasks, lease_ms, permits, owner)| SessionSpec {
            worker,
            queues,
            tasks,
            lease_ms,
            permits,
            owner,
        },
    )
}

pub(super) fn exchange() -> impl Strategy<Value = ExchangeStep> {
    let number = prop_oneof![
        40 => Just(Number::Next),
        4 => Just(Number::Last),
        1 => Just(Number::Old),
        1 => Just(Number::Ahead),
    ];
    let max = prop_oneof![1 => Just(0_u32), 6 => 1..8_u32];
    let report = (0..10_u32, prop::bool::weighted(0.05), weighted(0.1, lease()));
    let ahead = (vec(start(), 0..3), weighted(0.4, (2..8_u32, lease())));
    let claim = (max, weighted(0.2, 1..3_u32));
    let reports = prop_oneof![2 => Just(vec![]), 1 => vec((reporter(), 0..8_u8), 1..4)];
    (any::<u8>(), number, vec(settle(), 0..4), claim, report, ahead, reports).prop_map(
        |(
            session,
            number,
            settles,
            (max, max_claim_batch),
            (free_permits, draining, idle_ms),
            ahead,
            reports,
        )| {
            let (starts, prefetch) = ahead;
            let asks = idle_ms.is_none();
            ExchangeStep {
                session,
                number,
                settles,
                // A job that can run at once is not claimed ahead of time, so most exchanges that prefetch ask for no
                // job to run.
                max: if draining || !asks || prefetch.is_some() && free_permits < 5 { 0 } else { max },
                max_claim_batch,
                starts: if asks { starts } else { Vec::new() },
                reports,
                prefetch: prefetch.filter(|_| !draining && asks),
                free_permits,
                draining,
                idle_ms,
            }
        },
    )
}

/// The job whose progress a worker reports: mostly one that it runs.
fn reporter() -> impl Strategy<Value = Whose> {
    prop_oneof![
        6 => any::<u8>().prop_map(Whose::Held),
        1 => any::<u8>().prop_map(Whose::Claimed),
        2 => any::<u8>().prop_map(Whose::Any),
        1 => (any::<u8>(), any::<u8>()).prop_map(|(job, token)| Whose::Mixed(job, token)),
    ]
}

/// How long a claim or a program's lease lasts.
fn lease() -> impl Strategy<Value = u64> {
    prop::sample::select(vec![1_000_u64, 5_000, 10_000, 30_000, 60_000])
}

pub(super) fn start() -> impl Strategy<Value = Whose> {
    prop_oneof![
        12 => any::<u8>().prop_map(Whose::Claimed),
        1 => any::<u8>().prop_map(Whose::Any),
        1 => any::<u8>().prop_map(Whose::Held),
        1 => (any::<u8>(), any::<u8>()).prop_map(|(job, token)| Whose::Mixed(job, token)),
    ]
}

/// Which workflow, how often, and its `on_failure`: mostly the first one continues and the second halts.
pub(super) fn flow(often: f64) -> impl Strategy<Value = (Option<u8>, Option<OnFailure>)> {
    let said = (weighted(0.4, Just(())), prop::bool::weighted(0.1));
    (weighted(often, 0..2_u8), said).prop_map(|(workflow, (said, contrary))| {
        let goes_on = (workflow == Some(0)) != contrary;
        (workflow, said.map(|()| if goes_on { OnFailure::Continue } else { OnFailure::Halt }))
    })
}

/// A step's number: most workflows halt early.
fn step() -> impl Strategy<Value = u32> {
    prop_oneof![3 => 1..4_u32, 1 => 4..9_u32]
}

pub(super) fn steer() -> impl Strategy<Value = Steer> {
    prop_oneof![
        3 => step().prop_map(Steer::Retry),
        3 => step().prop_map(Steer::Skip),
        1 => Just(Steer::Cancel)
    ]
}

fn bulk() -> impl Strategy<Value = BulkSpec> {
    let change = prop_oneof![1 => Just(Change::Cancel), 2 => Just(Change::Retry)];
    let limit = prop_oneof![8 => 1..4_usize, 2 => Just(100_usize), 1 => prop::sample::select(vec![0, 1_001])];
    (change, any::<u8>(), any::<bool>(), limit).prop_map(|(change, filter, go_on, limit)| BulkSpec {
        change,
        filter,
        go_on,
        limit,
    })
}

pub(super) fn request() -> impl Strategy<Value = SlotSpec> {
    let slots = prop_oneof![4 => Just(1_u32), 2 => 2..5_u32];
    (any::<u8>(), slots, lease(), weighted(0.3, limit()), weighted(0.15, any::<u8>())).prop_map(
        |(group, slots, lease_ms, limit, old_id)| SlotSpec { group, slots, lease_ms, limit, old_id },
    )
}

pub(super) fn program() -> impl Strategy<Value = ProgramPick> {
    prop_oneof![
        5 => any::<u8>().prop_map(ProgramPick::Granted),
        1 => (any::<u8>(), any::<u8>()).prop_map(|(lease, token)| ProgramPick::Mixed(lease, token)),
    ]
}

/// Nearly always the same app, which replaces what it said. The limits of several apps add up until hardly a job runs.
fn app() -> impl Strategy<Value = u8> {
    prop_oneof![12 => Just(0_u8), 2 => Just(1_u8), 1 => Just(2_u8)]
}

fn configuration() -> impl Strategy<Value = ConfigurationSpec> {
    let limits = vec((any::<u8>(), limit()), 0..3);
    let priorities = vec((any::<u8>(), 1..4_u32), 0..3);
    (app(), limits, priorities, vec(schedule(), 0..4), retention()).prop_map(
        |(app, limits, priorities, schedules, retention)| ConfigurationSpec {
            app,
            limits,
            priorities,
            schedules,
            retention,
        },
    )
}

fn schedule() -> impl Strategy<Value = ScheduleSpec> {
    let missed = prop_oneof![3 => Just(Missed::Latest), 2 => Just(Missed::Skip), 2 => Just(Missed::All)];
    let ticks = prop_oneof![6 => 0..3_u8, 4 => Just(3_u8), 1 => Just(4_u8)];
    (any::<u8>(), ticks, any::<u8>(), 0..2_u8, missed, prop::bool::weighted(0.3)).prop_map(
        |(schedule, ticks, task, payload, missed, overlap)| ScheduleSpec {
            schedule,
            ticks,
            task,
            payload,
            missed,
            overlap,
        },
    )
}

/// Each by itself: what an app does not say of one state, another app may.
fn retention() -> impl Strategy<Value = [Option<u64>; 4]> {
    let ms = || weighted(0.15, prop::sample::select(vec![0_u64, 1_000, 20_000, 3_600_000, 26 * 3_600_000]));
    [ms(), ms(), ms(), ms()]
}

fn settle() -> impl Strategy<Value = SettleSpec> {
    let whose = prop_oneof![
        10 => any::<u8>().prop_map(Whose::Held),
        1 => any::<u8>().prop_map(Whose::Claimed),
        2 => any::<u8>().prop_map(Whose::Any),
        1 => (any::<u8>(), any::<u8>()).prop_map(|(job, token)| Whose::Mixed(job, token)),
    ];
    let delay = || prop_oneof![Just(0_u64), 1..15_000_u64];
    let outcome = prop_oneof![
        4 => Just(OutcomeSpec::Succeed),
        3 => delay().prop_map(OutcomeSpec::Retry),
        2 => Just(OutcomeSpec::Fail),
        1 => delay().prop_map(OutcomeSpec::Snooze),
        2 => Just(OutcomeSpec::Release),
        1 => Just(OutcomeSpec::Cancelled),
    ];
    (whose, outcome).prop_map(|(whose, outcome)| SettleSpec { whose, outcome })
}
