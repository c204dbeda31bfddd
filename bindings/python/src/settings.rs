//! What `.qo.toml`, the environment and flags say, as JSON.

use crate::pending::as_json;
use crate::worker::Program;
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use qo::core::millis;
use qo::settings::{Places, Source, current_directory};
use qo::{Error, ErrorKind, Result, Settings, WorkerOptions};
use serde::Deserialize;
use serde_json::{Map, Value, json};
use std::collections::BTreeMap;
use std::path::PathBuf;

/// Where to look.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
struct Asked {
    /// Defaults to the current directory.
    directory: Option<PathBuf>,
    /// The file, if the search is to be skipped.
    config: Option<PathBuf>,
    /// Flags of the command line, with their values.
    flags: BTreeMap<String, String>,
    /// The names and command lines of `--task`.
    tasks: Vec<(String, String)>,
}

/// Reads the settings. A mistake is a ValueError whose text is the error as JSON.
#[pyfunction]
pub fn settings(asked: &str) -> PyResult<String> {
    read(asked).map_err(|error| PyValueError::new_err(as_json(&error)))
}

fn read(asked: &str) -> Result<String> {
    let asked: Asked = serde_json::from_str(asked)
        .map_err(|error| Error::new(ErrorKind::Internal, format!("settings: {error}")))?;
    let directory = asked.directory.map_or_else(current_directory, Ok)?;
    let environment = qo::settings::Environment::of_process();
    let file = asked.config.or_else(|| environment.get("QO_CONFIG").map(PathBuf::from));
    // There are few flags, and each process reads its settings once or twice.
    let flags = asked.flags.into_iter().map(|(flag, value)| (&*flag.leak(), value)).collect();
    let settings = Settings::load(Places { directory, file, environment, flags })?;
    let programs = qo_cli::programs(&settings, &asked.tasks)?;
    let programs: Vec<_> =
        programs.into_iter().map(|(options, command)| Program { options, command }).collect();
    crate::connection::write(&json!({
        "file": settings.file,
        "store": settings.store,
        "app": settings.app,
        "configuration": settings.worker.configuration,
        "tasks": settings.tasks.values().map(|task| &task.options).collect::<Vec<_>>(),
        "programs": programs,
        "worker": worker(&settings.worker),
        "given": given(&settings),
        "warnings": settings.warnings,
    }))
}

/// The options of a worker, by the names of its description.
fn worker(options: &WorkerOptions) -> Value {
    json!({
        "name": options.name,
        "queues": options.queues,
        "max_concurrent_tasks": options.max_concurrent_tasks,
        "lease_ms": millis(options.lease),
        "cancel_grace_ms": millis(options.cancel_grace),
        "poll_interval_ms": options.poll_interval.map(millis),
        "claim_batch_size": options.claim.claim_batch_size,
        "max_claim_batch": options.claim.max_claim_batch,
        "max_claim_per_worker": options.claim.max_claim_per_worker,
        "prefetch_buffer": options.claim.prefetch_buffer,
        "claim_lease_ms": options.claim.claim_lease_ms,
        "memory_threshold_percent": options.memory_threshold_percent,
        "latency_threshold_ms": options.latency_threshold.map(millis),
        "metrics_addr": options.metrics_addr,
        "metrics_insecure": options.metrics_insecure,
    })
}

/// The settings that some source gave, with the source.
fn given(settings: &Settings) -> Map<String, Value> {
    let shown = settings.shown.iter().filter_map(|shown| {
        let kind = match shown.source {
            Source::Default => return None,
            Source::File { .. } => "file",
            Source::Environment(_) => "environment",
            Source::Flag(_) => "flag",
        };
        let given = json!({ "value": shown.value, "source": shown.source.to_string(), "kind": kind });
        Some((shown.setting.clone(), given))
    });
    shown.collect()
}
