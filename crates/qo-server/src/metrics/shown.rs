//! A sample as metrics.

use super::LABELS;
use super::sample::{OfGroup, Sample, Shelf};
use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, NoLabelSet};
use prometheus_client::metrics::MetricType;
use qo_core::{QueueStatus, Time};
use qo_metrics::OTHER;
use std::fmt;
use std::sync::{Arc, PoisonError};
use tokio::time::Instant;

/// Shows the newest sample.
#[derive(Debug)]
pub(super) struct Shown(pub Shelf);

/// A label set and a value.
type Point<'a> = (Vec<(&'static str, &'a str)>, f64);

impl Collector for Shown {
    fn encode(&self, mut encoder: DescriptorEncoder) -> fmt::Result {
        let (sample, at, up) = {
            let newest = self.0.lock().unwrap_or_else(PoisonError::into_inner);
            (Arc::clone(&newest.sample), newest.at, newest.up)
        };
        let encoder = &mut encoder;
        let up = f64::from(u8::from(up));
        gauge(
            encoder,
            "qo_store_up",
            "Whether the store answered when it was asked last.",
            [(Vec::new(), up)],
        )?;
        let age = at.map(|at| (Vec::new(), Instant::now().saturating_duration_since(at).as_secs_f64()));
        let help = "How old the metrics are that the store itself tells.";
        gauge(encoder, "qo_store_sample_age_seconds", help, age)?;
        groups(encoder, &sample)?;
        queues(encoder, &sample)?;
        workers(encoder, &sample)
    }
}

fn gauge<'a>(
    encoder: &mut DescriptorEncoder,
    name: &str,
    help: &str,
    points: impl IntoIterator<Item = Point<'a>>,
) -> fmt::Result {
    let mut metric = encoder.encode_descriptor(name, help, None, MetricType::Gauge)?;
    for (labels, value) in points {
        match labels.is_empty() {
            true => metric.encode_gauge(&value)?,
            false => metric.encode_family(&labels)?.encode_gauge(&value)?,
        }
    }
    Ok(())
}

fn groups(encoder: &mut DescriptorEncoder, sample: &Sample) -> fmt::Result {
    let groups = || {
        let named = sample.groups.iter().map(|(label, of_group)| (label.as_str(), of_group));
        let other = (sample.other_groups != OfGroup::default()).then_some((OTHER, &sample.other_groups));
        named.chain(other)
    };
    let of = |value: fn(&OfGroup) -> u64| {
        groups().map(move |(label, of_group)| (vec![("group", label)], value(of_group) as f64))
    };
    let help = "Slots in use of each group that has a limit; of its keys together under GROUP/*.";
    gauge(encoder, "qo_concurrency_slots_active", help, of(|of_group| of_group.used))?;
    let limits =
        groups().filter_map(|(label, of_group)| Some((vec![("group", label)], f64::from(of_group.limit?))));
    let help = "The limit of each group; of GROUP/* that of each key.";
    gauge(encoder, "qo_concurrency_slots_limit", help, limits)?;
    let help = "Slots that live jobs of each group would take that do not run.";
    gauge(encoder, "qo_concurrency_slots_waiting", help, of(|of_group| of_group.waiting))?;
    let help = "Jobs and programs that have taken slots of a group that has a limit, and submits and programs that it refused.";
    let name = "qo_concurrency_acquisition";
    let mut metric = encoder.encode_descriptor(name, help, None, MetricType::Counter)?;
    for (label, of_group) in groups() {
        for (result, count) in [("acquired", of_group.acquired), ("rejected", of_group.rejected)] {
            let labels = [("group", label), ("result", result)];
            metric.encode_family(&labels)?.encode_counter::<NoLabelSet, _, u64>(&count, None)?;
        }
    }
    Ok(())
}

fn queues(encoder: &mut DescriptorEncoder, sample: &Sample) -> fmt::Result {
    let (shown, rest) = sample.queues.split_at(sample.queues.len().min(LABELS));
    let help = "Live jobs by queue and state; due ones could run now.";
    let mut points = Vec::new();
    for queue in shown {
        points.extend(
            states(queue).map(|(state, jobs)| (vec![("queue", &*queue.queue), ("state", state)], jobs)),
        );
    }
    let mut other = [0; STATES.len()];
    for queue in rest {
        states(queue).zip(&mut other).for_each(|((_, jobs), sum)| *sum += jobs);
    }
    if !rest.is_empty() {
        let other = STATES.iter().zip(other);
        points.extend(other.map(|(state, jobs)| (vec![("queue", OTHER), ("state", *state)], jobs)));
    }
    let points = points.into_iter().map(|(labels, jobs)| (labels, jobs as f64));
    gauge(encoder, "qo_queue_jobs", help, points)?;
    let of = |value: fn(&Sample, &QueueStatus) -> f64| {
        let point = move |queue: &QueueStatus| value(sample, queue);
        let shown = shown.iter().map(move |queue| (vec![("queue", &*queue.queue)], point(queue)));
        let most = rest.iter().map(point).reduce(f64::max);
        shown.chain(most.map(|most| (vec![("queue", OTHER)], most)))
    };
    let help = "How long the oldest job has been due that could run now, by queue; 0 if there is none.";
    gauge(encoder, "qo_queue_oldest_due_age_seconds", help, of(oldest))?;
    let help = "Whether a queue is paused.";
    gauge(encoder, "qo_queue_paused", help, of(|_, queue| f64::from(u8::from(queue.paused))))?;
    let help = "Live workers that serve a queue and take jobs.";
    gauge(encoder, "qo_queue_workers", help, of(serving))
}

/// The states of live jobs, as a queue counts them.
const STATES: [&str; 5] = ["due", "scheduled", "waiting", "claimed", "running"];

fn states(queue: &QueueStatus) -> impl Iterator<Item = (&'static str, u64)> {
    let counts = [queue.due, queue.scheduled, queue.waiting, queue.claimed, queue.running];
    STATES.into_iter().zip(counts)
}

fn oldest(sample: &Sample, queue: &QueueStatus) -> f64 {
    let since = |(now, due): (Time, Time)| now.ms_since(due) as f64 / 1e3;
    sample.now.zip(queue.oldest_due).map_or(0.0, since)
}

fn serving(sample: &Sample, queue: &QueueStatus) -> f64 {
    let serves = sample.workers.iter().filter(|worker| {
        !worker.draining && (worker.queues.is_empty() || worker.queues.contains(&queue.queue))
    });
    serves.count() as f64
}

fn workers(encoder: &mut DescriptorEncoder, sample: &Sample) -> fmt::Result {
    let count = |counts: fn(&qo_core::WorkerStatus) -> u64| {
        sample.workers.iter().map(counts).fold(0, u64::saturating_add) as f64
    };
    let states = [
        (vec![("state", "alive")], count(|_| 1)),
        (vec![("state", "saturated")], count(|worker| worker.saturated.into())),
        (vec![("state", "draining")], count(|worker| worker.draining.into())),
    ];
    let help = "Live sessions of workers; saturated and draining ones are alive, too.";
    gauge(encoder, "qo_workers", help, states)?;
    let permits = [(Vec::new(), count(|worker| worker.permits.into()))];
    gauge(encoder, "qo_worker_permits", "Jobs that all live workers can run at once.", permits)?;
    let free = [(Vec::new(), count(|worker| worker.free_permits.into()))];
    gauge(
        encoder,
        "qo_worker_permits_free",
        "Of these, those that were free when the workers last said.",
        free,
    )
}
