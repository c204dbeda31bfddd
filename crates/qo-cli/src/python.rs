//! A worker that runs a Python app. This crate reads its command line; the host, which has Python, runs it.

use crate::place;
use qo::Settings;
use serde::Serialize;
use std::collections::BTreeMap;
use std::path::PathBuf;

/// What the command line `qo worker MODULE:OBJECT` says.
///
/// It is serialized as an object with these fields. That fails if the path of `config` is not UTF-8.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct PythonWorker {
    /// The app: `MODULE:OBJECT`, such as `shop.jobs:app`. Both parts are identifiers, the module's with dots between.
    pub target: String,
    /// The flags that are settings, `--store` included, with their values as they were given; `--processes` without a
    /// value has the number of CPUs. The settings check them.
    pub flags: BTreeMap<&'static str, String>,
    /// `--config`
    pub config: Option<PathBuf>,
    /// `--quiet`
    pub quiet: bool,
    /// The names and command lines of `--task`, for [`programs`](crate::programs).
    pub tasks: Vec<(String, String)>,
    /// `--reload`: restart when a source file changes.
    pub reload: bool,
    /// `--recycle-jobs`: replace a child process after this many jobs.
    pub recycle_jobs: Option<u32>,
    /// `--recycle-mib`: replace a child process that uses more memory than this.
    pub recycle_mib: Option<u32>,
    /// Whether the command line has `--processes`, so that jobs run in child processes.
    pub processes: bool,
}

impl PythonWorker {
    /// Reads the settings as the commands do: these flags, the environment of the process, and the file that `--config`
    /// or `QO_CONFIG` names, else the one that is found upwards.
    pub fn settings(&self) -> qo::Result<Settings> {
        place::settings(self.config.clone(), self.flags.clone())
    }
}
