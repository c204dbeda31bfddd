//! The counters as metrics.

use super::{CLAIM_BUCKETS, Counts, DURATION_BUCKETS_SECONDS, Metrics};
use crate::worker::WorkerOptions;
use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, NoLabelSet};
use prometheus_client::metrics::MetricType;
use prometheus_client::registry::Registry;
use qo_core::{Error, ErrorKind, Name, Result};
use qo_metrics::Endpoint;
use std::fmt;
use std::sync::Arc;

/// Where the worker shows its metrics, if it does, and what it shows there.
pub(crate) fn endpoint(
    worker: &Name,
    options: &WorkerOptions,
    metrics: &Arc<Metrics>,
) -> Result<Option<(Endpoint, Arc<Registry>)>> {
    let Some(addr) = options.metrics_addr else { return Ok(None) };
    let endpoint = Endpoint::bind(addr).map_err(|error| {
        Error::new(ErrorKind::Unavailable, format!("metrics_addr: listen on {addr}: {error}"))
    })?;
    let mut registry = Registry::default();
    metrics.waits.register(&mut registry);
    registry.register_collector(Box::new(Shown(Arc::clone(metrics))));
    tracing::info!(%worker, "metrics are at http://{}/metrics", endpoint.address());
    Ok(Some((endpoint, Arc::new(registry))))
}

#[derive(Debug)]
struct Shown(Arc<Metrics>);

impl Collector for Shown {
    fn encode(&self, mut encoder: DescriptorEncoder) -> fmt::Result {
        let counts = self.0.counts();
        gauges(&mut encoder, &counts)?;
        for (name, help, value) in [
            (
                "worker_tasks_completed",
                "Attempts that have ended, whatever their outcome.",
                counts.tasks_completed_total,
            ),
            ("worker_claims", "Exchanges that brought jobs.", counts.claims_total),
            ("worker_fenced", "Outcomes that came too late: the lease was lost.", counts.fenced_total),
        ] {
            let mut metric = encoder.encode_descriptor(name, help, None, MetricType::Counter)?;
            metric.encode_counter::<NoLabelSet, _, u64>(&value, None)?;
        }
        let help = "Jobs that an exchange brought.";
        let sum = counts.claim_size_sum as f64;
        histogram(&mut encoder, ("worker_claim_size", help), sum, &CLAIM_BUCKETS, &counts.claim_size)?;
        let name = ("worker_task_duration_seconds", "How long attempts took.");
        let sum = counts.task_duration_seconds_sum;
        histogram(&mut encoder, name, sum, &DURATION_BUCKETS_SECONDS, &counts.task_duration_seconds)
    }
}

fn gauges(encoder: &mut DescriptorEncoder, counts: &Counts) -> fmt::Result {
    let ratio = |percent: u64| percent as f64 / 100.0;
    let gauges = [
        ("worker_in_flight_tasks", "Handlers that run.", Some(counts.in_flight_tasks as f64)),
        ("worker_permits", "Jobs that the worker can run at once.", Some(counts.permits as f64)),
        (
            "worker_saturated",
            "Whether fewer than a tenth of the permits are free.",
            Some(f64::from(u8::from(counts.is_saturated()))),
        ),
        (
            "worker_memory_ratio",
            "How full the memory of the worker's control group, or machine, is.",
            counts.memory_percent.map(ratio),
        ),
        (
            "worker_capacity_factor",
            "How much of a claim the worker asks for: 1, or less under pressure.",
            Some(ratio(counts.capacity_percent)),
        ),
    ];
    for (name, help, value) in gauges {
        let Some(value) = value else { continue };
        encoder.encode_descriptor(name, help, None, MetricType::Gauge)?.encode_gauge(&value)?;
    }
    Ok(())
}

fn histogram(
    encoder: &mut DescriptorEncoder,
    (name, help): (&str, &str),
    sum: f64,
    bounds: &[f64],
    counts: &[u64],
) -> fmt::Result {
    // The last bucket has no bound.
    let bounds = bounds.iter().copied().chain([f64::MAX]);
    let buckets: Vec<(f64, u64)> = bounds.zip(counts.iter().copied()).collect();
    let count = counts.iter().sum();
    let mut metric = encoder.encode_descriptor(name, help, None, MetricType::Histogram)?;
    metric.encode_histogram::<NoLabelSet>(sum, count, &buckets, None)
}
