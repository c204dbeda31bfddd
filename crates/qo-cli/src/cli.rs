//! The commands, and what every one of them takes.

use crate::Outcome;
use crate::command::{
    audit, completions, concurrency, config, demo, doctor, explain, jobs, migrate, queues, schedules,
};
use crate::command::{serve, slot, submit, token, wait, worker, workers, workflows};
use crate::host::Host;
use crate::logging::{self, Speaker};
use crate::output::{Colour, Screen};
use crate::place::Place;
use crate::python::PythonWorker;
use crate::trouble::{Done, FAILED, Trouble};
use clap::{Args, Parser, Subcommand};
use qo::{Error, ErrorKind};
use std::collections::BTreeMap;
use std::os::fd::OwnedFd;
use std::path::PathBuf;

/// A job queue that decides exactly how much may run at once, across a whole fleet.
#[derive(Debug, Parser)]
#[command(name = "qo", version, propagate_version = true, arg_required_else_help = true)]
#[command(after_help = "\
Examples:
  qo demo                                                  why qo exists, in half a minute
  qo submit resize '{\"image\": \"cat.png\"}' --key user-7   submit a job
  qo worker --task resize=./resize.sh                      run jobs by a program
  qo worker shop.jobs:app                                  run jobs of a Python app
  qo explain JOB                                           why is it not running?
  qo concurrency set resize --limit 4                      how many at once

Exit codes: 0 ok, 1 failed, 2 usage, 3 not found, 4 limit reached, 75 unavailable.
With --json a command prints one JSON document: an array for a listing, an object for one thing. An error is then one line
of JSON on stderr: {\"error\": {\"kind\": …, \"message\": …}}, with \"hints\" if there are any.")]
pub struct Cli {
    #[command(flatten)]
    global: Global,
    #[command(subcommand)]
    command: Command,
}

/// What every command takes.
#[derive(Debug, Args)]
struct Global {
    /// The store: file:DIR, s3://BUCKET/PREFIX, postgres://USER@HOST/DATABASE?schema=NAME, http://HOST:PORT (a qo serve) or memory: [default: QO_STORE, else the configuration's, else file:.qo].
    #[arg(long, value_name = "URL", global = true, help_heading = "Global options")]
    store: Option<String>,
    /// The configuration [default: QO_CONFIG, else .qo.toml here or in a directory above].
    #[arg(long, value_name = "FILE", global = true, help_heading = "Global options")]
    config: Option<PathBuf>,
    /// When to use colours.
    #[arg(long, value_name = "WHEN", global = true, default_value = "auto", help_heading = "Global options")]
    color: Colour,
}

#[derive(Debug, Subcommand)]
enum Command {
    Demo(demo::Demo),
    #[command(hide = true)]
    DemoWorker(demo::DemoWorker),
    Submit(Box<submit::Submit>),
    Worker(Box<worker::Worker>),
    Wait(wait::Wait),
    Serve(serve::Serve),
    Explain(explain::Explain),
    #[command(subcommand)]
    Jobs(jobs::Jobs),
    #[command(subcommand)]
    Concurrency(concurrency::Concurrency),
    Queues(queues::Queues),
    Workers(workers::Workers),
    Workflows(workflows::Workflows),
    Schedules(schedules::Schedules),
    #[command(subcommand)]
    Slot(slot::Slot),
    #[command(subcommand, name = "token")]
    Tokens(token::Tokens),
    Audit(audit::Audit),
    Doctor(doctor::Doctor),
    #[command(subcommand)]
    Migrate(migrate::Migrate),
    #[command(subcommand)]
    Config(config::Config),
    #[cfg(feature = "bench")]
    Bench(crate::command::bench::BenchArgs),
    #[cfg(feature = "bench")]
    #[command(hide = true)]
    BenchWorker(crate::command::bench::BenchWorker),
    #[cfg(feature = "bench")]
    #[command(hide = true)]
    BenchServer(crate::command::bench::BenchServer),
    Completions(completions::Completions),
}

impl Cli {
    /// Runs the command. `json` says whether its errors are printed for programs.
    pub fn run(self, host: Host, json: bool) -> Outcome {
        let mut screen = Screen::new(self.global.color);
        let speaker = match &self.command {
            Command::Worker(worker) => Speaker::Worker { quiet: worker.quiet },
            Command::Serve(_) => Speaker::Worker { quiet: false },
            _ => Speaker::Command,
        };
        logging::start(speaker, screen.colours_on_stderr());
        #[cfg(feature = "otlp")]
        crate::telemetry::start();
        let done = match self.python_worker(&host) {
            Ok(Some(worker)) => return Outcome::Python(worker),
            Ok(None) => self.start(host, &mut screen).and_then(|()| screen.flush()),
            Err(trouble) => Err(trouble),
        };
        crate::finish_logging();
        Outcome::Exit(done.map_or_else(|trouble| trouble.tell(&mut screen, json), |()| 0))
    }

    /// The worker for a Python app, if this is the command line of one; an error if the host has no Python.
    pub fn python_worker(&self, host: &Host) -> Done<Option<PythonWorker>> {
        let Command::Worker(worker) = &self.command else { return Ok(None) };
        let Some(target) = &worker.target else { return Ok(None) };
        if !host.python {
            let error =
                Error::invalid("MODULE:OBJECT", target, "needs the Python package, and this qo has none");
            return Err(Trouble::from(error).hint("pip install qo-queue, and run the qo that it installs"));
        }
        Ok(Some(worker.for_python(target, self.flags(), self.global.config.clone())))
    }

    /// The flags that are settings.
    fn flags(&self) -> BTreeMap<&'static str, String> {
        let mut flags = match &self.command {
            Command::Worker(worker) => worker.flags(),
            Command::Config(config) => config.flags(),
            _ => BTreeMap::new(),
        };
        flags.extend(self.global.store.clone().map(|store| ("--store", store)));
        flags
    }

    fn start(self, host: Host, screen: &mut Screen) -> Done {
        let flags = self.flags();
        let Self { global, command } = self;
        // These commands need no configuration, or bring their own store.
        let command = match command {
            Command::Completions(command) => return command.run(screen),
            Command::Demo(command) => {
                return runtime(true)?.block_on(command.run(&host, global.store, screen));
            }
            Command::DemoWorker(command) => return runtime(true)?.block_on(command.run()),
            #[cfg(feature = "bench")]
            Command::Bench(command) => return runtime(true)?.block_on(command.run(global.store, screen)),
            #[cfg(feature = "bench")]
            Command::BenchWorker(command) => return runtime(true)?.block_on(command.run()),
            #[cfg(feature = "bench")]
            Command::BenchServer(command) => return runtime(true)?.block_on(command.run()),
            command => command,
        };
        let place = Place::find(host, global.config, flags)?;
        for warning in &place.settings.warnings {
            screen.warn(warning);
        }
        if place.settings.store.starts_with("memory:") && command.keeps_something() {
            screen.warn("memory: ends with this command, and everything in it");
        }
        // While the low descriptor numbers are free.
        let stdin = matches!(command, Command::Slot(_)).then(slot::keep_stdin).flatten();
        // Workers and servers do many things at once. For every other command one thread is enough, and starts faster.
        let runtime = runtime(matches!(command, Command::Worker(_) | Command::Serve(_)))?;
        let done = runtime.block_on(async {
            let done = command.run(&place, screen, stdin).await;
            if done.is_ok() {
                place.finish().await;
            }
            done
        });
        // A thread may still be blocked in a read from the terminal, for ever.
        runtime.shutdown_background();
        done
    }
}

impl Command {
    /// Whether the command keeps something beyond its own end.
    fn keeps_something(&self) -> bool {
        !matches!(self, Self::Config(config::Config::Show(_)) | Self::Completions(_))
    }

    async fn run(self, place: &Place, screen: &mut Screen, stdin: Option<OwnedFd>) -> Done {
        match self {
            Self::Submit(command) => command.run(place, screen).await,
            Self::Worker(command) => command.run(place, screen).await,
            Self::Wait(command) => command.run(place, screen).await,
            Self::Serve(command) => command.run(place, screen).await,
            Self::Explain(command) => command.run(place, screen).await,
            Self::Jobs(command) => command.run(place, screen).await,
            Self::Concurrency(command) => command.run(place, screen).await,
            Self::Queues(command) => command.run(place, screen).await,
            Self::Workers(command) => command.run(place, screen).await,
            Self::Workflows(command) => command.run(place, screen).await,
            Self::Schedules(command) => command.run(place, screen).await,
            Self::Slot(command) => command.run(place, screen, stdin).await,
            Self::Tokens(command) => command.run(place, screen).await,
            Self::Audit(command) => command.run(place, screen).await,
            Self::Doctor(command) => command.run(place, screen).await,
            Self::Migrate(command) => command.run(place, screen).await,
            Self::Config(command) => command.run(place, screen).await,
            Self::Completions(_) | Self::Demo(_) | Self::DemoWorker(_) => Err(Trouble::Exit(FAILED)),
            #[cfg(feature = "bench")]
            Self::Bench(_) | Self::BenchWorker(_) | Self::BenchServer(_) => Err(Trouble::Exit(FAILED)),
        }
    }
}

fn runtime(many_threads: bool) -> Done<tokio::runtime::Runtime> {
    let mut builder = match many_threads {
        true => tokio::runtime::Builder::new_multi_thread(),
        false => tokio::runtime::Builder::new_current_thread(),
    };
    builder.enable_all().build().map_err(|error| {
        Error::new(ErrorKind::Unavailable, format!("the runtime does not start: {error}")).into()
    })
}

/// Whether a command prints for a program.
#[derive(Debug, Clone, Copy, Args)]
pub struct Format {
    /// Print JSON, for programs.
    #[arg(long)]
    pub json: bool,
}
