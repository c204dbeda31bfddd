//! The pools that the symbols of a script are picked from: so small that jobs meet in the same groups.

use super::Pick;
use crate::START;
use qo_core::{
    AuditText, GroupRef, IdPrefix, JobFilter, JobState, Key, Name, Note, Schedule, TokenId, Traceparent,
};

/// Every state, for filters.
pub(super) const STATES: [JobState; 7] = [
    JobState::Pending,
    JobState::Claimed,
    JobState::Running,
    JobState::Succeeded,
    JobState::Failed,
    JobState::Cancelled,
    JobState::Expired,
];

const TASKS: [&str; 3] = ["mail", "resize", "report"];
const APPS: [&str; 3] = ["default", "shop", "billing"];
const QUEUES: [&str; 3] = ["default", "slow", "stripe"];
const GROUPS: [&str; 3] = ["api", "mail", "gpu"];
const KEYS: [&str; 2] = ["ann", "bob/1"];
const EXTRAS: [&str; 7] = ["gpu", "disk", "disk/ann", "disk/zoe", "api/ann", "mail/ann", "api"];
const WORKFLOWS: [&str; 3] = ["import", "deploy", "absent"];
const SCHEDULES: [&str; 3] = ["nightly", "often", "mail"];
const WORKERS: [&str; 2] = ["w1", "w2"];
const LIMITED: [&str; 17] = [
    "cluster",
    "queue:default",
    "queue:slow",
    "api",
    "mail",
    "gpu",
    "disk",
    "resize",
    "api/*",
    "mail/*",
    "disk/*",
    "api/ann",
    "mail/ann",
    "mail/bob/1",
    "resize/ann",
    "disk/zoe",
    "absent",
];

fn pick<'a>(pool: &[&'a str], k: Pick) -> &'a str {
    pool[usize::from(k) % pool.len()]
}

fn name(pool: &[&str], k: Pick) -> Name {
    Name::parse("name", pick(pool, k)).expect("the pools hold names")
}

pub(super) fn task(k: Pick) -> Name {
    name(&TASKS, k)
}

pub(super) fn trace(k: Pick) -> Traceparent {
    let text = format!("00-{:032x}-{:016x}-{k:02x}", u128::MAX - u128::from(k), u64::from(k) + 1);
    Traceparent::parse("traceparent", &text).expect("it keeps the format")
}

pub(super) fn app(k: Pick) -> Name {
    name(&APPS, k)
}

pub(super) fn queue(k: Pick) -> Name {
    name(&QUEUES, k)
}

pub(super) fn group(k: Pick) -> Name {
    name(&GROUPS, k)
}

pub(super) fn token(k: Pick) -> TokenId {
    TokenId::from_random([k % 4; 8])
}

/// Who does what an operator does.
pub(super) fn operator(k: Pick) -> AuditText {
    pick(&WORKERS, k).into()
}

pub(super) fn worker(k: Pick) -> Name {
    name(&WORKERS, k)
}

pub(super) fn workflow(k: Pick) -> Name {
    name(&WORKFLOWS, k)
}

pub(super) fn schedule(k: Pick) -> Name {
    name(&SCHEDULES, k)
}

/// Every workflow that a script may name.
pub(super) fn all_workflows() -> Vec<Name> {
    (0..WORKFLOWS.len()).map(|k| workflow(k as Pick)).collect()
}

/// Expressions and zones: every ten seconds, every minute, every hour, daily at a time that one day of the year does
/// not have, and in leap years only.
const TICKS: [(&str, &str); 5] = [
    ("*/10 * * * * *", "UTC"),
    ("* * * * *", "UTC"),
    ("0 * * * *", "America/Sao_Paulo"),
    ("30 2 * * *", "Europe/Berlin"),
    ("0 0 29 2 *", "UTC"),
];

/// A schedule with this expression. One that runs every missed tick ticks once an hour or less often, because a script
/// may jump by a fortnight.
pub(super) fn ticking(k: Pick, seldom: bool, task: Name) -> Schedule {
    let ticks = if seldom { &TICKS[2..] } else { &TICKS[..] };
    let (cron, timezone) = ticks[usize::from(k) % ticks.len()];
    Schedule { timezone: timezone.into(), ..Schedule::new(cron, task) }
}

/// How some ids of a script's jobs begin.
const SOME_IDS: &str = "00000000-0000-0000-0000-00000000001";

/// Filters of a bulk change.
pub(super) fn filter(k: Pick) -> JobFilter {
    let any = JobFilter::default();
    match k % 10 {
        0 => any,
        1 => JobFilter { states: vec![JobState::Pending, JobState::Claimed], ..any },
        2 => JobFilter { states: vec![JobState::Failed, JobState::Cancelled], ..any },
        3 => JobFilter { states: vec![JobState::Running], ..any },
        4 => JobFilter { queue: Some(queue(0)), ..any },
        5 => JobFilter { workflow: Some(workflow(0)), ..any },
        6 => JobFilter { task: Some(task(1)), key: Some(key(0)), ..any },
        7 => JobFilter { submitted_before: Some(START.plus_ms(10_000)), ..any },
        8 => JobFilter { id_prefix: IdPrefix::parse("id_prefix", SOME_IDS).ok(), ..any },
        _ => JobFilter { group: Some(group(1)), workflow: Some(workflow(1)), ..any },
    }
}

pub(super) fn key(k: Pick) -> Key {
    Key::parse("key", pick(&KEYS, k)).expect("the pools hold keys")
}

/// The progress that a handler reports: mostly none.
pub(super) fn note(k: Pick) -> Note {
    if k == 7 { "nearly there".into() } else { Note::default() }
}

pub(super) fn extra(k: Pick) -> GroupRef {
    pick(&EXTRAS, k).parse().expect("the pools hold groups")
}

/// Groups that programs take slots of.
const PROGRAMS: [&str; 8] = ["api", "mail", "gpu", "disk", "api/ann", "mail/ann", "disk/zoe", "absent"];

pub(super) fn program(k: Pick) -> GroupRef {
    pick(&PROGRAMS, k).parse().expect("the pools hold groups")
}

pub(super) fn limited(k: Pick) -> GroupRef {
    pick(&LIMITED, k).parse().expect("the pools hold groups")
}

/// Every group that a script may name, whether or not it is there.
pub(super) fn all_limited() -> Vec<GroupRef> {
    LIMITED.iter().chain(&EXTRAS).map(|text| text.parse().expect("the pools hold groups")).collect()
}
