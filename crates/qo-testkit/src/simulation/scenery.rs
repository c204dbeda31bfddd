//! The names of a simulated world, and random settings, schedules and jobs made of them.

use crate::random::Random;
use qo_core::{
    Configuration, GroupRef, JobId, Json, Key, LeaseId, Missed, Name, NewJob, OnFailure, OnLimit, Retention,
};
use qo_core::{RetryPolicy, Schedule, SlotRequest, TaskOptions, Time};

pub(super) const TASKS: [&str; 6] = ["resize", "email", "report", "charge", "index", "train"];
pub(super) const QUEUES: [&str; 3] = ["default", "fast", "slow"];
const GROUPS: [&str; 3] = ["api", "db", "email"];
const KEYS: [&str; 4] = ["anna", "bert", "user:1/x", "ключ"];
pub(super) const SCHEDULES: [&str; 4] = ["cleanup", "nightly", "sync", "watch"];
const WORKFLOWS: u64 = 20;
const EXTRAS: [&str; 4] = ["openai", "gpu", "gpu/a", "gpu/b"];

/// A name of the scenery.
pub(super) fn name(text: &str) -> Name {
    Name::parse("name", text).expect("the scenery has good names")
}

/// All of some names.
pub(super) fn names(texts: &[&str]) -> Vec<Name> {
    texts.iter().map(|text| name(text)).collect()
}

fn key(text: &str) -> Key {
    Key::parse("key", text).expect("the scenery has good keys")
}

fn group(text: &str) -> GroupRef {
    text.parse().expect("the scenery has good groups")
}

/// Some of the names, at least one.
pub(super) fn some_names(random: &mut Random, texts: &[&str]) -> Vec<Name> {
    let some: Vec<Name> = texts.iter().filter(|_| random.percent(60)).map(|text| name(text)).collect();
    if some.is_empty() { vec![name(random.pick(texts))] } else { some }
}

/// Any group that jobs of the scenery may share, or a pattern.
pub(super) fn any_group(random: &mut Random) -> GroupRef {
    match random.below(10) {
        0 => GroupRef::Cluster,
        1 | 2 => GroupRef::Queue(name(random.pick(&QUEUES))),
        3 => GroupRef::EveryKey(name(random.pick(&GROUPS))),
        4 => GroupRef::Key(name(random.pick(&GROUPS)), key(random.pick(&KEYS))),
        5 => group(random.pick(&EXTRAS)),
        6 | 7 => GroupRef::Group(name(random.pick(&TASKS))),
        _ => GroupRef::Group(name(random.pick(&GROUPS))),
    }
}

/// A random limit for a group.
pub(super) fn any_limit(random: &mut Random, group: &GroupRef) -> u32 {
    let most = if matches!(group, GroupRef::Cluster | GroupRef::Queue(_)) { 12 } else { 5 };
    if random.percent(10) { 0 } else { random.within(1..=most) as u32 }
}

/// A random configuration file.
pub(super) fn any_configuration(random: &mut Random) -> Configuration {
    let app = ["default", "default", "shop"];
    let mut configuration = Configuration::of(name(random.pick(&app)));
    for _ in 0..random.below(7) {
        let group = any_group(random);
        let limit = any_limit(random, &group).max(1);
        configuration.limits.insert(group, limit);
    }
    for queue in QUEUES {
        if random.percent(40) {
            configuration.queue_priorities.insert(name(queue), random.within(1..=300) as u32);
        }
    }
    for schedule in SCHEDULES {
        if random.percent(45) {
            configuration.schedules.insert(name(schedule), any_schedule(random));
        }
    }
    if random.percent(40) {
        configuration.retention = any_retention(random).into();
    }
    configuration
}

/// A schedule whose ticks come often, so that a short history has many.
fn any_schedule(random: &mut Random) -> Schedule {
    let missed = random.pick(&[Missed::Latest, Missed::Latest, Missed::All, Missed::Skip]);
    let overlap = random.percent(20);
    // Ticks that wait for each other must not come faster than workers run them.
    let often = if missed == Missed::All || overlap { 5 } else { random.pick(&[1, 2, 3]) };
    // Only a tick that is rare enough can be more than a minute late.
    let rare = missed == Missed::Skip && random.percent(60);
    let cron = if rare { "0 */2 * * * *".into() } else { format!("*/{often} * * * * *") };
    Schedule {
        timezone: random.pick(&["UTC", "Europe/Berlin", "Asia/Kolkata"]).into(),
        queue: name(random.pick(&QUEUES)),
        max_attempts: random.within(1..=3) as u32,
        timeout_ms: random.percent(15).then(|| random.within(200..=4_000)),
        missed,
        overlap,
        ..Schedule::new(cron, name(random.pick(&TASKS)))
    }
}

fn any_retention(random: &mut Random) -> Retention {
    let mut any = || random.within(0..=60_000);
    Retention { succeeded_ms: any(), failed_ms: any(), cancelled_ms: any(), expired_ms: any() }
}

/// A random request of a program.
pub(super) fn any_slot_request(random: &mut Random, id: LeaseId, holder: Name) -> SlotRequest {
    let group = match random.below(10) {
        0..4 => GroupRef::Group(name(random.pick(&GROUPS))),
        4..7 => GroupRef::Key(name(random.pick(&GROUPS)), key(random.pick(&KEYS))),
        7 => GroupRef::Group(name(random.pick(&TASKS))),
        _ => group(random.pick(&EXTRAS)),
    };
    let mut request = SlotRequest::new(id, group, holder, random.within(400..=6_000));
    request.slots = if random.percent(75) { 1 } else { random.within(2..=3) as u32 };
    request.limit = random.percent(25).then(|| random.within(1..=4) as u32);
    request
}

/// A workflow that several clients submit to.
pub(super) fn any_workflow(random: &mut Random) -> Name {
    name(&format!("flow-{}", random.within(1..=WORKFLOWS)))
}

/// A step of a workflow. Most clients give the same `on_failure`.
pub(super) fn any_step(random: &mut Random, wall: Time, workflow: &Name) -> NewJob {
    let agreed = if workflow.ends_with(['1', '5', '9']) { OnFailure::Continue } else { OnFailure::Halt };
    let on_failure = match random.below(20) {
        0 => Some(random.pick(&[OnFailure::Halt, OnFailure::Continue])),
        1..4 => None,
        _ => Some(agreed),
    };
    NewJob { workflow: Some(workflow.clone()), on_failure, ..any_job(random, wall) }
}

/// A random registration of a task.
pub(super) fn any_task(random: &mut Random) -> TaskOptions {
    let mut task = TaskOptions::new(name(random.pick(&TASKS)));
    task.group = random.percent(30).then(|| name(random.pick(&GROUPS)));
    task.max_concurrent = random.percent(50).then(|| random.within(1..=4) as u32);
    task.timeout_ms = random.percent(25).then(|| random.within(500..=5_000));
    task.retry = random.percent(50).then(|| any_retry(random));
    task
}

fn any_retry(random: &mut Random) -> RetryPolicy {
    let base_ms = random.within(0..=1_500);
    RetryPolicy {
        base_ms,
        factor_percent: 200,
        max_ms: base_ms + random.within(0..=6_000),
        jitter_percent: 25,
    }
}

/// A random job of a client with this wall clock.
pub(super) fn any_job(random: &mut Random, wall: Time) -> NewJob {
    let id = JobId(random.uuid(u64::try_from(wall.as_millis()).unwrap_or(0)));
    let mut job = NewJob::new(id, name(random.pick(&TASKS)));
    job.payload = Json::parse("payload", &format!("{{\"n\":{}}}", random.below(3))).expect("this is JSON");
    job.queue = name(random.pick(&QUEUES));
    job.priority = if random.percent(80) { 0 } else { random.within(0..=4) as i32 - 2 };
    job.max_attempts = random.within(1..=4) as u32;
    job.group = random.percent(30).then(|| name(random.pick(&GROUPS)));
    job.key = random.percent(35).then(|| key(random.pick(&KEYS)));
    job.cost = if random.percent(85) { 1 } else { random.within(2..=4) as u32 };
    for extra in EXTRAS {
        if random.percent(8) {
            job.limits.insert(group(extra), random.within(1..=2) as u32);
        }
    }
    job.limit = random.percent(10).then(|| random.within(job.cost.into()..=5) as u32);
    job.retry = random.percent(60).then(|| any_retry(random));
    job.timeout_ms = random.percent(15).then(|| random.within(200..=4_000));
    job.idempotency_key = random.percent(8).then(|| key(&format!("order-{}", random.below(60))));
    job.on_limit = match random.below(10) {
        0 => OnLimit::Reject,
        1 => OnLimit::Skip,
        _ => OnLimit::Wait,
    };
    add_dates(random, &mut job, wall);
    job
}

fn add_dates(random: &mut Random, job: &mut NewJob, wall: Time) {
    if random.percent(20) {
        job.run_at = Some(wall.plus_ms(random.within(0..=8_000)));
    }
    if random.percent(10) {
        let first = job.run_at.unwrap_or(wall);
        job.good_until = Some(first.plus_ms(random.within(500..=20_000)));
    }
}
