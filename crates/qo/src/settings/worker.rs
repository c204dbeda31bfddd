//! How a worker works, as configured.

use super::reading::{Entry, Raw, Reading, Section};
use super::source::{self, Known};
use crate::worker::WorkerOptions;
use qo_core::millis;
use qo_core::{ClaimSettings, Name, caps};
use std::net::SocketAddr;
use std::ops::RangeInclusive;
use std::time::Duration;

pub(super) fn read(reading: &Reading, section: Option<Section<'_>>) -> WorkerOptions {
    let mut from = From { reading, section };
    let default = WorkerOptions::default();
    let any_ms = 1..=caps::DURATION_MS;
    let (name, queues) = (from.name(), from.queues());
    let permits = from.optional_number(source::TASKS, 1..=caps::LIMIT);
    let options = WorkerOptions {
        name,
        queues,
        // If both are given, the number of processes counts.
        max_concurrent_tasks: from.optional_number(source::PROCESSES, 1..=caps::LIMIT).or(permits),
        claim: read_claim(&mut from),
        poll_interval: from.optional_ms(source::POLL, any_ms.clone()).map(Duration::from_millis),
        latency_threshold: from.optional_ms(source::LATENCY, any_ms).map(Duration::from_millis),
        cancel_grace: Duration::from_millis(from.ms(
            source::GRACE,
            millis(default.cancel_grace),
            0..=caps::LEASE_MAX_MS,
        )),
        memory_threshold_percent: from.number(source::MEMORY, default.memory_threshold_percent, 1..=100),
        metrics_addr: from.address(source::METRICS),
        metrics_insecure: from.boolean(source::METRICS_INSECURE),
        ..default
    };
    if let Some(section) = from.section {
        section.finish();
    }
    options
}

fn read_claim(from: &mut From<'_, '_>) -> ClaimSettings {
    let default = ClaimSettings::default();
    let leases = caps::LEASE_MIN_MS..=caps::LEASE_MAX_MS;
    ClaimSettings {
        claim_batch_size: from.number(source::BATCH, default.claim_batch_size, 1..=caps::CLAIM),
        max_claim_batch: from.optional_number(source::PER_QUEUE, 1..=caps::CLAIM),
        max_claim_per_worker: from.number(source::PER_WORKER, default.max_claim_per_worker, 0..=caps::LIMIT),
        prefetch_buffer: from.number(source::PREFETCH, default.prefetch_buffer, 0..=caps::CLAIM),
        claim_lease_ms: from.optional_ms(source::CLAIM_LEASE, leases),
    }
}

/// Where the settings of a worker come from: `[worker]`, the environment, flags.
struct From<'r, 's> {
    reading: &'r Reading,
    section: Option<Section<'s>>,
}

impl<'s> From<'_, 's> {
    fn entry(&mut self, known: Known) -> Option<Entry<'s>> {
        let key = known.field.rsplit('.').next().unwrap_or(known.field);
        self.section.as_mut().and_then(|section| section.take(key))
    }

    fn number(&mut self, known: Known, default: u32, range: RangeInclusive<u32>) -> u32 {
        let entry = self.entry(known);
        self.reading.settle(known, entry, default, |raw| raw.number(range.clone()))
    }

    fn optional_number(&mut self, known: Known, range: RangeInclusive<u32>) -> Option<u32> {
        let entry = self.entry(known);
        self.reading.settle_optional(known, entry, |raw| raw.number(range.clone()))
    }

    fn ms(&mut self, known: Known, default: u64, range: RangeInclusive<u64>) -> u64 {
        let entry = self.entry(known);
        self.reading.settle(known, entry, default, |raw| raw.milliseconds(range.clone()))
    }

    fn optional_ms(&mut self, known: Known, range: RangeInclusive<u64>) -> Option<u64> {
        let entry = self.entry(known);
        self.reading.settle_optional(known, entry, |raw| raw.milliseconds(range.clone()))
    }

    fn boolean(&mut self, known: Known) -> bool {
        let entry = self.entry(known);
        self.reading.settle(known, entry, false, |raw| raw.boolean())
    }

    fn address(&mut self, known: Known) -> Option<SocketAddr> {
        let entry = self.entry(known);
        let read = |raw: &Raw<'_>| match raw.text()?.parse::<SocketAddr>() {
            Ok(address) => Ok(address.to_string()),
            Err(_) => Err("must be an IP address and a port, such as 127.0.0.1:9464".to_owned()),
        };
        self.reading.settle_optional(known, entry, read)?.parse().ok()
    }

    fn name(&mut self) -> Option<Name> {
        let entry = self.entry(source::NAME);
        let read = |raw: &Raw<'_>| checked(&raw.text()?).map(String::from);
        let name = self.reading.settle_optional(source::NAME, entry, read)?;
        Name::parse("name", &name).ok()
    }

    fn queues(&mut self) -> Vec<Name> {
        let entry = self.entry(source::QUEUES);
        let read = |raw: &Raw<'_>| {
            raw.texts()?.iter().map(|queue| checked(queue).map(String::from)).collect::<Result<Vec<_>, _>>()
        };
        let queues = self.reading.settle(source::QUEUES, entry, Vec::new(), read);
        queues.iter().filter_map(|queue| Name::parse("queue", queue).ok()).collect()
    }
}

fn checked(name: &str) -> Result<Name, String> {
    Name::parse("name", name).map_err(|error| error.rule().to_owned())
}
