//! How a worker works.

use super::reading::{Raw, Reading, Section};
use super::source;
use qo_core::{ClaimSettings, Name, caps};

/// How a worker works, as configured.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WorkerSettings {
    /// The worker's name: a label for people. Defaults to the machine's name and the process's number.
    pub name: Option<Name>,
    /// The queues that it serves. Defaults to all.
    pub queues: Vec<Name>,
    /// How many jobs it runs at once. Defaults to 100.
    pub max_concurrent_tasks: u32,
    /// How many processes it runs at once; counts instead of `max_concurrent_tasks` where it is given. Defaults to none.
    pub processes: Option<u32>,
    /// How many jobs it takes, and whether ahead of time.
    pub claim: ClaimSettings,
    /// How often it looks for work. Defaults to 100 ms, or to 5 s where the store tells of changes.
    pub poll_interval_ms: Option<u64>,
    /// While the slowest hundredth of its jobs takes longer than this it takes fewer. Defaults to none: off.
    pub latency_threshold_ms: Option<u64>,
}

impl WorkerSettings {
    /// How many jobs it runs at once.
    pub fn permits(&self) -> u32 {
        self.processes.unwrap_or(self.max_concurrent_tasks)
    }
}

pub(super) fn read(reading: &Reading, mut section: Option<Section<'_>>) -> WorkerSettings {
    let mut take = |key| section.as_mut().and_then(|section| section.take(key));
    let default = ClaimSettings::default();
    let claims = 1..=caps::CLAIM;
    let interval = 1..=caps::DURATION_MS;
    let name = reading
        .settle_optional(source::NAME, take("name"), |raw| name(&raw.text()?).map(|name| name.to_string()));
    let queues = reading.settle(source::QUEUES, take("queues"), Vec::new(), |raw| {
        let queues = raw.texts()?;
        queues.iter().map(|queue| name_of(queue)).collect::<Result<Vec<String>, _>>()
    });
    let settings = WorkerSettings {
        name: name.and_then(|text| Name::parse("name", &text).ok()),
        queues: queues.iter().filter_map(|queue| Name::parse("queue", queue).ok()).collect(),
        max_concurrent_tasks: reading
            .settle(source::TASKS, take("max_concurrent_tasks"), 100, |raw| raw.number(1..=caps::LIMIT)),
        processes: reading
            .settle_optional(source::PROCESSES, take("processes"), |raw| raw.number(1..=caps::LIMIT)),
        claim: ClaimSettings {
            claim_batch_size: reading.settle(
                source::BATCH,
                take("claim_batch_size"),
                default.claim_batch_size,
                |raw| raw.number(claims.clone()),
            ),
            max_claim_batch: reading.settle_optional(source::PER_QUEUE, take("max_claim_batch"), |raw| {
                raw.number(claims.clone())
            }),
            max_claim_per_worker: reading.settle(
                source::PER_WORKER,
                take("max_claim_per_worker"),
                default.max_claim_per_worker,
                |raw| raw.number(0..=caps::LIMIT),
            ),
            prefetch_buffer: reading.settle(
                source::PREFETCH,
                take("prefetch_buffer"),
                default.prefetch_buffer,
                |raw| raw.number(0..=caps::CLAIM),
            ),
            claim_lease_ms: reading.settle_optional(source::CLAIM_LEASE, take("claim_lease_ms"), |raw| {
                raw.milliseconds(caps::LEASE_MIN_MS..=caps::LEASE_MAX_MS)
            }),
        },
        poll_interval_ms: reading.settle_optional(source::POLL, take("poll_interval_ms"), |raw| {
            raw.milliseconds(interval.clone())
        }),
        latency_threshold_ms: reading.settle_optional(
            source::LATENCY,
            take("latency_threshold_ms"),
            |raw: &Raw<'_>| raw.milliseconds(interval.clone()),
        ),
    };
    if let Some(section) = section {
        section.finish();
    }
    settings
}

fn name(text: &str) -> Result<Name, String> {
    Name::parse("name", text).map_err(|error| error.message().to_owned())
}

fn name_of(text: &str) -> Result<String, String> {
    name(text).map(|name| name.to_string())
}
