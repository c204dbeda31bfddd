//! Values at and beyond the caps, and meaningless texts, for workflows, prefetch, programs, schedules and history.

use super::bad::{group, json, millis, name, number};
use proptest::collection::{btree_map, vec};
use proptest::option::of;
use proptest::prelude::*;
use qo_core::caps;
use qo_core::{Change, Command, Configuration, Cursor, FenceToken, GroupRef, JobFilter, JobId, JobState};
use qo_core::{
    LeaseId, Missed, Name, OnFailure, Prefetch, Progress, Retention, Schedule, SlotRequest, Start, Steer,
};
use uuid::Uuid;

/// The program that holds slots before the bad commands come.
pub(super) fn program() -> SlotRequest {
    SlotRequest::new(lease(1), GroupRef::Group(name("mail")), name("backup"), 30_000)
}

fn lease(n: u128) -> LeaseId {
    LeaseId(Uuid::from_u128(n))
}

fn token() -> impl Strategy<Value = FenceToken> {
    prop::sample::select(vec![0, 1, 2, 3, u64::MAX]).prop_map(FenceToken)
}

fn job() -> impl Strategy<Value = JobId> {
    (0..9_u128).prop_map(|n| JobId(Uuid::from_u128(n)))
}

fn workflow() -> impl Strategy<Value = Name> {
    prop::sample::select(["import", "absent"].map(name).to_vec())
}

fn schedule_name() -> impl Strategy<Value = Name> {
    let long = "s".repeat(caps::NAME_BYTES);
    prop::sample::select(["nightly", "absent", &long].map(name).to_vec())
}

/// A workflow and its `on_failure`, each with or without the other.
pub(super) fn flow() -> impl Strategy<Value = (Option<Name>, Option<OnFailure>)> {
    (of(workflow()), of(prop_oneof![Just(OnFailure::Halt), Just(OnFailure::Continue)]))
}

pub(super) fn prefetch() -> impl Strategy<Value = Prefetch> {
    (number(), lease_ms()).prop_map(|(buffer, lease_ms)| Prefetch { buffer, lease_ms })
}

pub(super) fn start() -> impl Strategy<Value = Start> {
    (job(), token()).prop_map(|(job, token)| Start { job, token })
}

pub(super) fn report() -> impl Strategy<Value = Progress> {
    let percent = prop::sample::select(vec![0_u8, 100, 100, 100, 101, u8::MAX]);
    let note = prop::sample::select(vec![String::new(), "\0".into(), "ü".repeat(caps::NOTE_BYTES)]);
    (job(), token(), percent, note).prop_map(|(job, token, percent, note)| Progress {
        job,
        token,
        percent,
        note: note.into(),
    })
}

fn lease_ms() -> impl Strategy<Value = u64> {
    let (least, most) = (caps::LEASE_MIN_MS, caps::LEASE_MAX_MS);
    prop::sample::select(vec![0, least - 1, least, 30_000, most, most + 1, u64::MAX])
}

fn request() -> impl Strategy<Value = SlotRequest> {
    (0..3_u128, group(), number(), lease_ms(), of(number())).prop_map(
        |(id, group, slots, lease_ms, limit)| SlotRequest {
            slots,
            limit,
            ..SlotRequest::new(lease(id), group, name("backup"), lease_ms)
        },
    )
}

/// Cron expressions that are invalid, that never tick, that tick every second, and some that look valid.
fn cron() -> impl Strategy<Value = String> {
    let texts = [
        "",
        " ",
        "* * * *",
        "* * * * *",
        "* * * * * *",
        "* * * * * * * *",
        "60 * * * *",
        "*/0 * * * *",
        "5-1 * * * *",
        "0 0 31 2 *",
        "0 0 29 2 *",
        "@daily",
        "@nonsense",
        "L * * * *",
        "0 0 L * *",
        "0 0 * * 8",
        "0 0 * * mon#9",
        "a b c d e",
        "\u{0}",
        "🦀 * * * *",
        "99999999999999999999 * * * *",
        "-1 * * * *",
        "30 2 * * *",
    ];
    let long = [format!("{}0 * * * *", "0,".repeat(5_000)), "*".repeat(10_000)];
    prop::sample::select(texts.map(String::from).into_iter().chain(long).collect::<Vec<_>>())
}

fn schedule() -> impl Strategy<Value = Schedule> {
    let zones = ["UTC", "Europe/Berlin", "", "europe/berlin", "Mars/Base", "../../etc/passwd", "Etc/GMT+14"];
    let zone = prop_oneof![3 => Just("UTC"), 1 => prop::sample::select(zones.to_vec())];
    let missed = prop_oneof![Just(Missed::Latest), Just(Missed::All), Just(Missed::Skip)];
    (cron(), zone, json(), number(), of(millis()), missed, any::<bool>()).prop_map(
        |(cron, timezone, payload, max_attempts, timeout_ms, missed, overlap)| Schedule {
            timezone: timezone.into(),
            payload,
            max_attempts: if max_attempts == 0 { 3 } else { max_attempts },
            timeout_ms,
            missed,
            overlap,
            ..Schedule::new(cron, name("mail"))
        },
    )
}

/// A schedule with just one thing wrong, or none.
fn nearly_good_schedule() -> impl Strategy<Value = Schedule> {
    (schedule(), 0..5_u8).prop_map(|(bad, field)| {
        let good = Schedule::new("* * * * *", name("mail"));
        match field {
            0 => Schedule { cron: bad.cron, ..good },
            1 => Schedule { timezone: bad.timezone, ..good },
            2 => Schedule { max_attempts: bad.max_attempts, ..good },
            3 => Schedule { timeout_ms: bad.timeout_ms, payload: bad.payload, ..good },
            _ => Schedule { missed: bad.missed, overlap: bad.overlap, ..good },
        }
    })
}

pub(super) fn configuration() -> impl Strategy<Value = Configuration> {
    let retention = [millis(), millis(), millis(), millis()].prop_map(
        |[succeeded_ms, failed_ms, cancelled_ms, expired_ms]| Retention {
            succeeded_ms,
            failed_ms,
            cancelled_ms,
            expired_ms,
        },
    );
    let schedule = prop_oneof![3 => nearly_good_schedule(), 1 => schedule()];
    (btree_map(schedule_name(), schedule, 0..2), of(retention)).prop_map(|(schedules, retention)| {
        Configuration {
            schedules,
            retention: retention.map(Into::into).unwrap_or_default(),
            ..Configuration::default()
        }
    })
}

fn filter() -> impl Strategy<Value = JobFilter> {
    let states =
        vec(prop_oneof![Just(JobState::Pending), Just(JobState::Claimed), Just(JobState::Failed)], 0..3);
    let newest_first = prop::bool::weighted(0.1);
    (states, of(workflow()), newest_first).prop_map(|(states, workflow, newest_first)| JobFilter {
        states,
        workflow,
        newest_first,
        ..JobFilter::default()
    })
}

pub(super) fn commands() -> impl Strategy<Value = Command> {
    let change = prop_oneof![Just(Change::Cancel), Just(Change::Retry)];
    let after = of(prop::sample::select(vec![0, 1, 2, u64::MAX]).prop_map(Cursor));
    let limit = prop::sample::select(vec![0, 1, caps::PAGE, caps::PAGE + 1, usize::MAX]);
    let bulk = (change, filter(), after, limit)
        .prop_map(|(change, filter, after, limit)| Command::ChangeMatching { change, filter, after, limit });
    let steer =
        prop_oneof![number().prop_map(Steer::Retry), number().prop_map(Steer::Skip), Just(Steer::Cancel)];
    prop_oneof![
        vec(job(), 0..3).prop_map(Command::Retry),
        bulk,
        (workflow(), steer).prop_map(|(workflow, steer)| Command::SteerWorkflow(workflow, steer)),
        request().prop_map(Command::AcquireSlots),
        (0..3_u128, token(), lease_ms()).prop_map(|(id, token, lease_ms)| Command::ExtendSlots {
            lease: lease(id),
            token,
            lease_ms
        }),
        (0..3_u128, token()).prop_map(|(id, token)| Command::ReturnSlots(lease(id), token)),
        (schedule_name(), any::<bool>()).prop_map(|(schedule, on)| Command::EnableSchedule(schedule, on)),
        (schedule_name(), job()).prop_map(|(schedule, job)| Command::TriggerSchedule(schedule, job)),
        configuration().prop_map(Command::Configure),
    ]
}
