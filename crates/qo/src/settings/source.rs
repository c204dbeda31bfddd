//! Where a setting comes from.

use serde::{Serialize, Serializer};
use std::collections::BTreeMap;
use std::ffi::OsString;
use std::fmt;

/// The source of a setting, the strongest last.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Source {
    /// No source gave a value.
    Default,
    /// The configuration file, in this line.
    File {
        /// The file, as it was found.
        file: String,
        /// The line, 1 for the first.
        line: usize,
    },
    /// A variable of the environment.
    Environment(&'static str),
    /// A flag of the command line.
    Flag(&'static str),
}

impl fmt::Display for Source {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Default => f.write_str("default"),
            Self::File { file, line } => write!(f, "{file}:{line}"),
            Self::Environment(name) => f.write_str(name),
            Self::Flag(flag) => f.write_str(flag),
        }
    }
}

/// `default`, or an object that names the file and line, the variable or the flag.
impl Serialize for Source {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        #[derive(Serialize)]
        #[serde(rename_all = "snake_case", tag = "source")]
        enum Named<'a> {
            Default,
            File { file: &'a str, line: usize },
            Environment { variable: &'a str },
            Flag { flag: &'a str },
        }
        match self {
            Self::Default => Named::Default,
            Self::File { file, line } => Named::File { file, line: *line },
            Self::Environment(variable) => Named::Environment { variable },
            Self::Flag(flag) => Named::Flag { flag },
        }
        .serialize(serializer)
    }
}

/// A setting that file, environment and flags can give.
#[derive(Debug, Clone, Copy)]
pub(super) struct Known {
    /// Its place in the file.
    pub field: &'static str,
    /// The variable that is looked at first.
    pub variable: &'static str,
    /// The variable without `QO_`, where other systems use that name, too.
    pub bare: Option<&'static str>,
    /// Its flag.
    pub flag: &'static str,
}

const fn both(field: &'static str, variable: &'static str, bare: &'static str, flag: &'static str) -> Known {
    Known { field, variable, bare: Some(bare), flag }
}

const fn ours(field: &'static str, variable: &'static str, flag: &'static str) -> Known {
    Known { field, variable, bare: None, flag }
}

pub(super) const STORE: Known = ours("store", "QO_STORE", "--store");
pub(super) const APP: Known = ours("app", "QO_APP", "--app");
pub(super) const LEASE: Known = both(
    "concurrency.default_lease_duration_secs",
    "QO_DEFAULT_LEASE_DURATION_SECS",
    "DEFAULT_LEASE_DURATION_SECS",
    "--default-lease-duration-secs",
);
pub(super) const CLUSTER: Known =
    both("concurrency.cluster_wide_cap", "QO_CLUSTER_WIDE_CAP", "CLUSTER_WIDE_CAP", "--cluster-wide-cap");
// `NAME` and `QUEUES` without `QO_` may belong to any program.
pub(super) const NAME: Known = ours("worker.name", "QO_WORKER_NAME", "--name");
pub(super) const QUEUES: Known = ours("worker.queues", "QO_QUEUES", "--queues");
pub(super) const TASKS: Known = both(
    "worker.max_concurrent_tasks",
    "QO_MAX_CONCURRENT_TASKS",
    "MAX_CONCURRENT_TASKS",
    "--max-concurrent-tasks",
);
pub(super) const PROCESSES: Known = both("worker.processes", "QO_PROCESSES", "PROCESSES", "--processes");
pub(super) const BATCH: Known =
    both("worker.claim_batch_size", "QO_CLAIM_BATCH_SIZE", "CLAIM_BATCH_SIZE", "--claim-batch-size");
pub(super) const PER_QUEUE: Known =
    both("worker.max_claim_batch", "QO_MAX_CLAIM_BATCH", "MAX_CLAIM_BATCH", "--max-claim-batch");
pub(super) const PER_WORKER: Known = both(
    "worker.max_claim_per_worker",
    "QO_MAX_CLAIM_PER_WORKER",
    "MAX_CLAIM_PER_WORKER",
    "--max-claim-per-worker",
);
pub(super) const PREFETCH: Known =
    both("worker.prefetch_buffer", "QO_PREFETCH_BUFFER", "PREFETCH_BUFFER", "--prefetch-buffer");
pub(super) const CLAIM_LEASE: Known =
    both("worker.claim_lease_ms", "QO_CLAIM_LEASE_MS", "CLAIM_LEASE_MS", "--claim-lease-ms");
pub(super) const POLL: Known =
    both("worker.poll_interval_ms", "QO_POLL_INTERVAL_MS", "POLL_INTERVAL_MS", "--poll-interval-ms");
pub(super) const LATENCY: Known = both(
    "worker.latency_threshold_ms",
    "QO_LATENCY_THRESHOLD_MS",
    "LATENCY_THRESHOLD_MS",
    "--latency-threshold-ms",
);

pub(super) const GRACE: Known =
    both("worker.cancel_grace_ms", "QO_CANCEL_GRACE_MS", "CANCEL_GRACE_MS", "--cancel-grace-ms");
pub(super) const MEMORY: Known = both(
    "worker.memory_threshold_percent",
    "QO_MEMORY_THRESHOLD_PERCENT",
    "MEMORY_THRESHOLD_PERCENT",
    "--memory-threshold-percent",
);

pub(super) const METRICS: Known = ours("worker.metrics_addr", "QO_METRICS_ADDR", "--metrics-addr");
pub(super) const METRICS_INSECURE: Known =
    ours("worker.metrics_insecure", "QO_METRICS_INSECURE", "--metrics-insecure");

/// Every setting that the environment and flags can give.
pub(super) const ALL: [Known; 19] = [
    STORE,
    APP,
    LEASE,
    CLUSTER,
    NAME,
    QUEUES,
    TASKS,
    PROCESSES,
    BATCH,
    PER_QUEUE,
    PER_WORKER,
    PREFETCH,
    CLAIM_LEASE,
    POLL,
    LATENCY,
    GRACE,
    MEMORY,
    METRICS,
    METRICS_INSECURE,
];

/// Variables that begin with `QO_` and are no settings.
const OTHERS: [&str; 9] = [
    "QO_CONFIG",
    "QO_LOG",
    "QO_JOB_ID",
    "QO_ATTEMPT",
    "QO_FENCE_TOKEN",
    "QO_TASK",
    "QO_KEY",
    "QO_GROUP",
    "QO_SEED",
];

/// The variables of a process. An empty one is none.
#[derive(Debug, Clone, Default)]
pub struct Environment {
    variables: BTreeMap<String, String>,
    /// Settings whose value is not UTF-8.
    not_text: Vec<String>,
}

impl Environment {
    /// Those of this process.
    pub fn of_process() -> Self {
        Self::of(std::env::vars_os())
    }

    fn of(variables: impl Iterator<Item = (OsString, OsString)>) -> Self {
        let mut environment = Self::default();
        for (name, value) in variables {
            // A variable whose name is not UTF-8 is none of qo's.
            let Ok(name) = name.into_string() else { continue };
            match value.into_string() {
                Ok(value) => drop(environment.variables.insert(name, value)),
                Err(_) if is_ours(&name) => environment.not_text.push(name),
                Err(_) => {}
            }
        }
        environment.not_text.sort();
        environment
    }

    /// Variables of qo whose value is not UTF-8. Leaving them out would ignore what the user asked for.
    pub(super) fn not_text(&self) -> &[String] {
        &self.not_text
    }

    /// The value of a variable.
    pub fn get(&self, name: &str) -> Option<&str> {
        self.variables.get(name).map(String::as_str).filter(|value| !value.is_empty())
    }

    /// Variables that look like misspelled settings, each with what it probably means.
    pub(super) fn suspects(&self) -> Vec<String> {
        let known = || ALL.iter().map(|known| known.variable).chain(OTHERS);
        let unknown =
            self.variables.keys().filter(|name| name.starts_with("QO_") && !known().any(|k| k == *name));
        let near = unknown.filter_map(|name| {
            let near = super::nearest(name, known())?;
            Some(format!("{name} is not a setting and was ignored; did you mean {near}?"))
        });
        near.collect()
    }
}

/// Whether a variable is a setting, by either of its names, or looks like one.
fn is_ours(name: &str) -> bool {
    name.starts_with("QO_") || ALL.iter().any(|known| known.bare == Some(name))
}

impl FromIterator<(String, String)> for Environment {
    fn from_iter<I: IntoIterator<Item = (String, String)>>(variables: I) -> Self {
        Self { variables: variables.into_iter().collect(), not_text: Vec::new() }
    }
}
