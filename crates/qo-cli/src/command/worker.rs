//! `qo worker`

use super::argument;
use crate::output::Screen;
use crate::place::Place;
use crate::python::PythonWorker;
use crate::trouble::{Done, Trouble};
use clap::Args;
use qo::core::{Name, TaskOptions};
use qo::settings::{Command, TaskSettings, current_directory};
use qo::{Error, Result, Settings, TaskConfig};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

/// Run jobs: those of a Python app, of the program tasks in .qo.toml, and of --task.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  qo worker                                     the [tasks.NAME] of .qo.toml that have a command
  qo worker --task resize=./resize.sh --task 'mail=sendmail -t'
  qo worker --queues stripe,default --processes 8
  qo worker shop.jobs:app --processes=8         a Python app, and the programs of .qo.toml

A program gets the payload on stdin; its stdout is the output. Exit code 0 succeeds, 75 tries again, 100 fails for good,
any other tries again. The environment has QO_JOB_ID, QO_ATTEMPT, QO_FENCE_TOKEN, QO_TASK and QO_KEY, and
TRACEPARENT if the job was submitted with one.
Output that is JSON is kept as JSON, other text as a string, and bytes that are not UTF-8 as {\"base64\": \"…\"}, without loss.
The last 64 KiB of stderr are the attempt's log, also while it runs: qo jobs logs JOB --follow.
A program that does not exist is an error at the start; for a command that the shell reads, only the shell is looked for.
The worker logs a line to stderr when a job starts and one when it ends, failures and retries as warnings; never a payload.
QO_LOG says how much: warn, debug, or qo::job=off,info for everything except these lines.
The first Ctrl-C or SIGTERM drains: running jobs finish, no job starts. The second gives the running jobs back.")]
pub struct Worker {
    /// A Python app and the module that has it, as in shop.jobs:app; needs the Python package.
    #[arg(value_name = "MODULE:OBJECT", value_parser = target)]
    pub target: Option<String>,
    /// A task and the command that runs its jobs, read by the shell; may be repeated.
    #[arg(long = "task", value_name = "NAME=COMMAND", value_parser = task)]
    tasks: Vec<(String, String)>,
    /// Show warnings and errors only, and no line for each job that goes well; beats QO_LOG.
    #[arg(long, short)]
    pub quiet: bool,
    /// The name of the worker [default: the host's name and the process id].
    #[arg(long, value_name = "NAME")]
    name: Option<String>,
    /// The service whose configuration and tasks it pushes; those of other apps stay [default: default].
    #[arg(long, value_name = "NAME")]
    app: Option<String>,
    /// The queues it serves, separated by commas [default: all].
    #[arg(long, value_name = "NAMES")]
    queues: Option<String>,
    /// Jobs that it runs at once [default: 100 with a Python app, else as many as there are CPUs].
    #[arg(long, value_name = "N", allow_negative_numbers = true)]
    max_concurrent_tasks: Option<String>,
    /// Run the jobs of a Python app in this many child processes, one at a time in each; for programs, the same as
    /// --max-concurrent-tasks, which it beats. Without N as many as there are CPUs.
    #[arg(long, value_name = "N", value_parser = processes, allow_negative_numbers = true)]
    processes: Option<Option<String>>,
    /// Most jobs that one claim starts [default: 50].
    #[arg(long, value_name = "N", allow_negative_numbers = true)]
    claim_batch_size: Option<String>,
    /// Most jobs that one claim takes from a queue [default: no limit].
    #[arg(long, value_name = "N", allow_negative_numbers = true)]
    max_claim_batch: Option<String>,
    /// Most jobs that it holds, running and claimed; 0 for as many as it can run and prefetch [default: 0].
    #[arg(long, value_name = "N", allow_negative_numbers = true)]
    max_claim_per_worker: Option<String>,
    /// Jobs that it holds ahead of time; needs --claim-lease-ms [default: 0].
    #[arg(long, value_name = "N", allow_negative_numbers = true)]
    prefetch_buffer: Option<String>,
    /// How long it may hold a job that has not started.
    #[arg(long, value_name = "MS", allow_negative_numbers = true)]
    claim_lease_ms: Option<String>,
    /// How often it looks for work [default: 100, or 5000 where the store reports changes].
    #[arg(long, value_name = "MS", allow_negative_numbers = true)]
    poll_interval_ms: Option<String>,
    /// Claim less while the slowest hundredth of jobs takes longer than this [default: off].
    #[arg(long, value_name = "MS", allow_negative_numbers = true)]
    latency_threshold_ms: Option<String>,
    /// How long a job may take to stop after it was told to [default: 10000].
    #[arg(long, value_name = "MS", allow_negative_numbers = true)]
    cancel_grace_ms: Option<String>,
    /// Claim half as much above this share of memory; 100 turns that off [default: 80].
    #[arg(long, value_name = "N", allow_negative_numbers = true)]
    memory_threshold_percent: Option<String>,
    /// Where it shows its metrics, at /metrics, such as 127.0.0.1:9464; port 0 takes a free one [default: nowhere].
    #[arg(long, value_name = "IP:PORT")]
    metrics_addr: Option<String>,
    /// Let --metrics-addr be an address that other machines reach, without encryption or tokens.
    #[arg(long)]
    metrics_insecure: bool,
    /// How long its session lives without renewal [default: 30].
    #[arg(long, value_name = "SECONDS", allow_negative_numbers = true)]
    default_lease_duration_secs: Option<String>,
    /// Most jobs that run at once in the whole fleet; part of the configuration that it pushes.
    #[arg(long, value_name = "N", allow_negative_numbers = true)]
    cluster_wide_cap: Option<String>,
    /// Restart when a source file of the app changes, for development.
    #[arg(long, requires = "target", help_heading = "Python apps")]
    reload: bool,
    /// Replace a child process after this many jobs [default: never].
    #[arg(long, value_name = "N", requires_all = ["target", "processes"], help_heading = "Python apps",
        value_parser = clap::value_parser!(u32).range(1..), allow_negative_numbers = true)]
    recycle_jobs: Option<u32>,
    /// Replace a child process that uses more memory than this many MiB, when its job is done [default: never].
    #[arg(long, value_name = "N", requires_all = ["target", "processes"], help_heading = "Python apps",
        value_parser = clap::value_parser!(u32).range(1..), allow_negative_numbers = true)]
    recycle_mib: Option<u32>,
}

fn task(text: &str) -> std::result::Result<(String, String), String> {
    let (name, command) = text.split_once('=').ok_or("must be NAME=COMMAND, as in resize=./resize.sh")?;
    let name = argument::name(name).map_err(|rule| format!("the name {name:?} {rule}"))?;
    match command.trim() {
        "" => Err("must name a command after the =".into()),
        command => Ok((name.into(), command.to_owned())),
    }
}

/// A Python app: the module that `import` takes, and the name of the app in it.
fn target(text: &str) -> std::result::Result<String, String> {
    let (module, object) = text.split_once(':').ok_or("must be MODULE:OBJECT, as in shop.jobs:app")?;
    if module.contains('/') || module.ends_with(".py") {
        return Err(
            "must name a module as import does, not a file: shop.jobs:app, not shop/jobs.py:app".into()
        );
    }
    let wrong = module.split('.').chain([object]).find(|part| !is_identifier(part));
    match wrong {
        Some("") => Err("must be MODULE:OBJECT, as in shop.jobs:app, and no part may be empty".into()),
        Some(part) => {
            Err(format!("must be MODULE:OBJECT, as in shop.jobs:app: {part:?} is no name in Python"))
        }
        None => Ok(text.to_owned()),
    }
}

/// Whether Python could read this as a name. Python itself decides about the rarer letters.
fn is_identifier(text: &str) -> bool {
    let may_follow = |letter: char| letter == '_' || letter.is_alphanumeric();
    !text.starts_with(char::is_numeric) && !text.is_empty() && text.chars().all(may_follow)
}

/// The settings check the number. `--processes` takes the next argument as its value, which may be meant as the app.
fn processes(text: &str) -> std::result::Result<String, String> {
    match target(text) {
        Ok(app) => Err(format!("must be a number; name the app first: qo worker {app} --processes")),
        Err(_) => Ok(text.to_owned()),
    }
}

impl Worker {
    /// Its flags that are settings. The settings check them.
    pub fn flags(&self) -> BTreeMap<&'static str, String> {
        let cpus = || std::thread::available_parallelism().map_or(1, usize::from).to_string();
        let processes = self.processes.as_ref().map(|given| given.clone().unwrap_or_else(cpus));
        let insecure = self.metrics_insecure.then(|| "true".to_owned());
        let flags = [
            ("--name", &self.name),
            ("--app", &self.app),
            ("--queues", &self.queues),
            ("--max-concurrent-tasks", &self.max_concurrent_tasks),
            ("--processes", &processes),
            ("--claim-batch-size", &self.claim_batch_size),
            ("--max-claim-batch", &self.max_claim_batch),
            ("--max-claim-per-worker", &self.max_claim_per_worker),
            ("--prefetch-buffer", &self.prefetch_buffer),
            ("--claim-lease-ms", &self.claim_lease_ms),
            ("--poll-interval-ms", &self.poll_interval_ms),
            ("--latency-threshold-ms", &self.latency_threshold_ms),
            ("--cancel-grace-ms", &self.cancel_grace_ms),
            ("--memory-threshold-percent", &self.memory_threshold_percent),
            ("--metrics-addr", &self.metrics_addr),
            ("--metrics-insecure", &insecure),
            ("--default-lease-duration-secs", &self.default_lease_duration_secs),
            ("--cluster-wide-cap", &self.cluster_wide_cap),
        ];
        flags.into_iter().filter_map(|(flag, value)| Some((flag, value.clone()?))).collect()
    }

    /// The same command line for a host that runs Python apps, with all flags that are settings.
    pub fn for_python(
        &self,
        target: &str,
        flags: BTreeMap<&'static str, String>,
        config: Option<PathBuf>,
    ) -> PythonWorker {
        PythonWorker {
            target: target.to_owned(),
            flags,
            config,
            quiet: self.quiet,
            tasks: self.tasks.clone(),
            reload: self.reload,
            recycle_jobs: self.recycle_jobs,
            recycle_mib: self.recycle_mib,
            processes: self.processes.is_some(),
        }
    }

    /// Works until it is told to stop.
    pub async fn run(self, place: &Place, screen: &mut Screen) -> Done {
        let tasks = programs(&place.settings, &self.tasks)?;
        if tasks.is_empty() {
            let trouble = Trouble::usage("tasks: there is no task that a program runs");
            return Err(trouble.hint(
                "name one: qo worker --task NAME=COMMAND, or [tasks.NAME] with a command in .qo.toml; a Python app is run by qo worker MODULE:OBJECT",
            ));
        }
        let store = place.open().await?;
        place.tell_hold(&store, screen).await?;
        let mut builder = qo::Worker::builder(store).options(place.settings.worker.clone());
        if let Ok(executable) = place.host.guard() {
            builder = builder.guard(executable);
        }
        let names: Vec<String> = tasks.iter().map(|(options, _)| options.task.to_string()).collect();
        for (options, command) in tasks {
            let task = options.task.clone();
            builder = builder.program(&task, TaskConfig::from(options), command);
        }
        let worker = builder.build()?;
        tracing::info!(worker = %worker.name(), store = %place.shown(), tasks = %names.join(","), "starts");
        let name = worker.name().clone();
        worker.run_until_signal().await?;
        tracing::info!(worker = %name, "stopped");
        screen.flush()
    }
}

/// The tasks that programs run, and their commands, for [`WorkerBuilder::program`](qo::WorkerBuilder::program): those
/// of the settings, and those of `--task` (a name and a line for the shell), which win. An error, with every mistake, if
/// one of the programs does not exist.
pub fn programs(settings: &Settings, tasks: &[(String, String)]) -> Result<Vec<(TaskOptions, Vec<String>)>> {
    let here = current_directory()?;
    let mut all = settings.tasks.clone();
    for (index, (name, line)) in tasks.iter().enumerate() {
        if tasks[..index].iter().any(|(earlier, _)| earlier == name) {
            return Err(Error::invalid("--task", name, "is given twice"));
        }
        let name = Name::parse("--task", name)?;
        let command = Command::line(line, &here).map_err(|rule| Error::invalid("--task", line, rule))?;
        let default = || TaskSettings { options: TaskOptions::new(name.clone()), command: None };
        all.entry(name.clone()).or_insert_with(default).command = Some(command);
    }
    let programs: Vec<(TaskOptions, Command)> =
        all.into_values().filter_map(|task| Some((task.options, task.command?))).collect();
    Error::all(programs.iter().filter_map(|(options, command)| missing(&options.task, command)).collect())?;
    programs.into_iter().map(|(options, command)| Ok((options, started_in(command, &here)?))).collect()
}

/// What is wrong with the program of a task, as far as that can be known before its first job.
fn missing(task: &Name, command: &Command) -> Option<Error> {
    let rule = command.check().err()?;
    let program = command.arguments.first().map(String::as_str).unwrap_or_default();
    Some(Error::invalid(format!("tasks.{task}.command"), program, rule))
}

/// The arguments that start a command in its directory.
fn started_in(command: Command, here: &Path) -> Result<Vec<String>> {
    if command.directory == here {
        return Ok(command.arguments);
    }
    let change = ["sh", "-c", "cd -- \"$0\" && exec \"$@\""].map(str::to_owned);
    let Some(directory) = command.directory.to_str().map(str::to_owned) else {
        let rule = "must be in a directory whose path is UTF-8";
        return Err(Error::invalid("command", command.arguments.join(" "), rule));
    };
    Ok(change.into_iter().chain([directory]).chain(command.arguments).collect())
}
