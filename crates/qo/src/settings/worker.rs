//! How a worker works, as configured.

use super::reading::{Raw, Reading, Section};
use super::source;
use crate::worker::WorkerOptions;
use qo_core::{ClaimSettings, Name, caps};

pub(super) fn read(reading: &Reading, mut section: Option<Section<'_>>) -> WorkerOptions {
    let mut take = |key| section.as_mut().and_then(|section| section.take(key));
    let (defaults, default) = (WorkerOptions::default(), ClaimSettings::default());
    let claims = 1..=caps::CLAIM;
    let interval = 1..=caps::DURATION_MS;
    let name = reading
        .settle_optional(source::NAME, take("name"), |raw| name(&raw.text()?).map(|name| name.to_string()));
    let queues = reading.settle(source::QUEUES, take("queues"), Vec::new(), |raw| {
        let queues = raw.texts()?;
        queues.iter().map(|queue| name_of(queue)).collect::<Result<Vec<String>, _>>()
    });
    let permits =
        reading.settle(source::TASKS, take("max_concurrent_tasks"), defaults.max_concurrent_tasks, |raw| {
            raw.number(1..=caps::LIMIT)
        });
    let processes =
        reading.settle_optional(source::PROCESSES, take("processes"), |raw| raw.number(1..=caps::LIMIT));
    let options = WorkerOptions {
        name: name.and_then(|text| Name::parse("name", &text).ok()),
        queues: queues.iter().filter_map(|queue| Name::parse("queue", queue).ok()).collect(),
        // Whoever counts processes means them.
        max_concurrent_tasks: processes.unwrap_or(permits),
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
        cancel_grace_ms: reading.settle(
            source::GRACE,
            take("cancel_grace_ms"),
            defaults.cancel_grace_ms,
            |raw| raw.milliseconds(0..=caps::LEASE_MAX_MS),
        ),
        memory_threshold_percent: reading.settle(
            source::MEMORY,
            take("memory_threshold_percent"),
            defaults.memory_threshold_percent,
            |raw| raw.number(1..=100),
        ),
        ..defaults
    };
    if let Some(section) = section {
        section.finish();
    }
    options
}

fn name(text: &str) -> Result<Name, String> {
    Name::parse("name", text).map_err(|error| error.message().to_owned())
}

fn name_of(text: &str) -> Result<String, String> {
    name(text).map(|name| name.to_string())
}
