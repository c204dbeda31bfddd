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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cli::Cli;
    use crate::host::Host;
    use crate::trouble::Trouble;
    use clap::Parser;

    fn parsed(arguments: &[&str]) -> Result<Cli, clap::Error> {
        Cli::try_parse_from(["qo", "worker"].iter().chain(arguments))
    }

    fn worker(arguments: &[&str]) -> PythonWorker {
        let host = Host { python: true, ..Host::default() };
        let cli = parsed(arguments).unwrap_or_else(|error| panic!("{arguments:?}: {error}"));
        cli.python_worker(&host).expect("this host has Python").expect("a Python app")
    }

    #[test]
    fn the_host_gets_everything_that_the_command_line_says() {
        let arguments = "shop.jobs:app --store memory: --config a.toml --quiet --queues a,b --task mail=./mail.sh \
                         --processes=8 --recycle-jobs 100 --recycle-mib=512 --reload";
        let worker = worker(&arguments.split(' ').collect::<Vec<_>>());
        let expected = serde_json::json!({
            "target": "shop.jobs:app",
            "flags": { "--store": "memory:", "--queues": "a,b", "--processes": "8" },
            "config": "a.toml",
            "quiet": true,
            "tasks": [["mail", "./mail.sh"]],
            "reload": true,
            "recycle_jobs": 100,
            "recycle_mib": 512,
            "processes": true,
        });
        assert_eq!(serde_json::to_value(worker).expect("JSON"), expected);
    }

    #[test]
    fn an_app_alone_says_nothing_else() {
        let worker = worker(&["app:app"]);
        assert_eq!((worker.target.as_str(), worker.processes, worker.reload), ("app:app", false, false));
        assert!(worker.flags.is_empty() && worker.tasks.is_empty(), "{worker:?}");
        assert_eq!((worker.recycle_jobs, worker.recycle_mib, worker.config), (None, None, None));
    }

    #[test]
    fn processes_is_a_number_or_the_number_of_cpus() {
        let cpus = std::thread::available_parallelism().map_or(1, usize::from).to_string();
        for (arguments, expected) in [
            (&["a.b:c", "--processes"][..], cpus.as_str()),
            (&["a.b:c", "--processes", "--quiet"], &cpus),
            (&["--processes", "--quiet", "a.b:c"], &cpus),
            (&["a.b:c", "--processes=8"], "8"),
            (&["--processes=8", "a.b:c"], "8"),
            (&["--processes", "8", "a.b:c"], "8"),
            // The settings refuse these.
            (&["a.b:c", "--processes", "-1"], "-1"),
            (&["a.b:c", "--processes="], ""),
        ] {
            let worker = worker(arguments);
            assert!(worker.processes, "{arguments:?}");
            assert_eq!(worker.flags["--processes"], expected, "{arguments:?}");
        }
    }

    #[test]
    fn what_cannot_be_an_app_is_refused_with_the_reason() {
        for app in ["a:b", "_a._b1:C", "schön.jobs:über"] {
            assert_eq!(worker(&[app]).target, app);
        }
        for (app, reason) in [
            ("app", "must be MODULE:OBJECT"),
            ("", "must be MODULE:OBJECT"),
            (":app", "no part may be empty"),
            ("shop:", "no part may be empty"),
            ("shop..jobs:app", "no part may be empty"),
            (".jobs:app", "no part may be empty"),
            ("shop.1jobs:app", "\"1jobs\" is no name"),
            ("shop:app()", "\"app()\" is no name"),
            ("a:b:c", "\"b:c\" is no name"),
            ("shop:app.inner", "\"app.inner\" is no name"),
            ("shop/jobs.py:app", "not a file"),
            ("jobs.py:app", "not a file"),
        ] {
            let error = parsed(&[app]).expect_err(app).to_string();
            assert!(error.contains(reason), "{app}: {error}");
        }
    }

    #[test]
    fn a_host_without_python_refuses_an_app() {
        let refused = parsed(&["shop.jobs:app"]).expect("parsed").python_worker(&Host::default());
        let Err(Trouble::Error { error, hints }) = refused else { panic!("{refused:?}") };
        assert_eq!((error.kind(), error.value()), (qo::ErrorKind::Invalid, Some("\"shop.jobs:app\"")));
        assert!(hints[0].contains("pip install qo-queue"), "{hints:?}");
    }
}
