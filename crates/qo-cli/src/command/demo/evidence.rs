//! What a verdict is based on: what was submitted, and what the jobs recorded.

use super::plan::Payload;
use super::record::{self, Record, unusable};
use qo::core::{ErrorKind, FenceToken, GroupRef, JobId, Key, Name, NewJob};
use qo::{Error, Result};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::path::Path;

/// The name of the file that says what was submitted.
const FILE: &str = "evidence.json";
/// The extension of the files that the jobs wrote to; the rest of the name is that of the worker.
const RECORDS: &str = "ndjson";

/// What was submitted: jobs and limits, and what was done to them on the way.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Evidence {
    /// What every name of the run begins with.
    pub prefix: String,
    /// When the first job was submitted, on the machine's monotonic clock.
    pub began_ns: u64,
    /// How long a session lives after each exchange.
    pub lease_ms: u64,
    /// Every job that was acknowledged.
    pub jobs: Vec<Expected>,
    /// Every limit that the jobs were under.
    pub limits: Vec<Declared>,
    /// The worker that was killed.
    pub kill: Option<Kill>,
    /// Whether all jobs had the time that they needed.
    pub finished: bool,
}

/// A job that was acknowledged.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Expected {
    /// The job.
    pub id: JobId,
    /// Its task.
    pub task: Name,
    /// Its queue.
    pub queue: Name,
    /// Its key.
    pub key: Option<Key>,
    /// Its workflow.
    pub workflow: Option<Name>,
    /// Its number in the workflow.
    pub step: Option<u32>,
}

impl From<&NewJob> for Expected {
    fn from(job: &NewJob) -> Self {
        let payload = serde_json::from_str::<Payload>(job.payload.as_str()).ok();
        Self {
            step: payload.and_then(|payload| payload.step),
            id: job.id,
            task: job.task.clone(),
            queue: job.queue.clone(),
            key: job.key.clone(),
            workflow: job.workflow.clone(),
        }
    }
}

/// A limit, and how it was changed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Declared {
    /// What it is for.
    pub group: GroupRef,
    /// The limit before the first job.
    pub limit: u32,
    /// Its changes, in order.
    #[serde(default)]
    pub changes: Vec<Change>,
}

/// A change of a limit. The store's counter of fence tokens shows which claims came before and which after: the demo
/// reads it before it asks for the change, and again after the change is acknowledged.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Change {
    /// The new limit.
    pub limit: u32,
    /// No claim up to this token was under the new limit.
    pub before: FenceToken,
    /// Every claim from this token on was.
    pub after: FenceToken,
}

/// A worker was killed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Kill {
    /// The worker.
    pub worker: String,
    /// When it was gone.
    pub at_ns: u64,
}

impl Evidence {
    /// Writes it to a folder, beside the records.
    pub fn write(&self, folder: &Path) -> Result<()> {
        let path = folder.join(FILE);
        let text = serde_json::to_string_pretty(self)
            .map_err(|error| Error::new(ErrorKind::Internal, format!("{}: {error}", path.display())))?;
        std::fs::write(&path, text).map_err(|error| unusable(&path, &error))
    }

    /// Reads what was left in a folder. `NotFound` if it is not there, `Data` if it cannot be understood.
    pub fn read(folder: &Path) -> Result<Self> {
        let path = folder.join(FILE);
        let text = std::fs::read_to_string(&path).map_err(|error| {
            let what = format!("{}: no demo has left its records there: {error}", path.display());
            Error::new(ErrorKind::NotFound, what)
        })?;
        serde_json::from_str(&text)
            .map_err(|error| Error::new(ErrorKind::Data, format!("{}: {error}", path.display())))
    }
}

/// What the jobs of each worker recorded.
pub type Records = BTreeMap<String, Vec<Record>>;

/// The file that the jobs of a worker write to.
pub fn records_file(folder: &Path, worker: &str) -> std::path::PathBuf {
    folder.join(format!("{worker}.{RECORDS}"))
}

/// Reads the records of all workers in a folder.
pub fn read_records(folder: &Path) -> Result<Records> {
    let mut records = Records::new();
    for entry in std::fs::read_dir(folder).map_err(|error| unusable(folder, &error))? {
        let path = entry.map_err(|error| unusable(folder, &error))?.path();
        let worker = path.file_stem().and_then(|stem| stem.to_str());
        if let (Some(worker), true) = (worker, path.extension().is_some_and(|end| end == RECORDS)) {
            records.insert(worker.to_owned(), record::read(&path)?);
        }
    }
    Ok(records)
}
