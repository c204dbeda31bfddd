//! qo on the command line, as a library: the program `qo` and the Python package both hold it.
//!
//! | module | what it holds |
//! |---|---|
//! | `cli` | the commands, and what every one of them takes |
//! | `command` | one file per command |
//! | `host` | what the process around the command line can do, and how it is started again |
//! | `python` | a worker that runs a Python app, for a host that has Python |
//! | `place` | the settings, and the way to the store |
//! | `output` | tables for people, JSON for programs, times, colours |
//! | `logging` | what a command logs |
//! | `telemetry` | spans to a collector of OpenTelemetry |
//! | `machine` | the machine's clocks and signals |
//! | `trouble` | what can go wrong, exit codes, hints |

mod cli;
mod command;
mod host;
mod logging;
mod machine;
mod output;
mod place;
mod python;
#[cfg(feature = "otlp")]
mod telemetry;
mod trouble;

pub use command::worker::programs;
pub use host::Host;
pub use python::PythonWorker;

use clap::Parser;
use qo::core::{Explanation, Time};
use std::ffi::OsString;
use std::io::Write;

/// How a command line ended.
#[derive(Debug)]
pub enum Outcome {
    /// The command is done. This is the exit code.
    Exit(u8),
    /// The command is a worker for a Python app, and the host runs it. Logging has started; nothing else has. Only a
    /// host with [`Host::python`] gets this.
    Python(PythonWorker),
}

/// Runs a command line: the arguments after the name of the program, which is always `qo` in messages.
///
/// The process belongs to the command. It writes to stdout and stderr, it logs, and an interrupted bulk submit ends the
/// process. Commands that handle no signals rely on the default action of SIGINT and SIGTERM: a host that installed
/// handlers of its own, as Python does for SIGINT, restores the default first.
///
/// `qo guard` is no command of this function: a process that guards calls [`qo::guard::main`] before anything else.
pub fn main(arguments: Vec<OsString>, host: Host) -> Outcome {
    let json = trouble::speaks_json(&arguments);
    let name = OsString::from("qo");
    match cli::Cli::try_parse_from([name].into_iter().chain(arguments)) {
        Ok(cli) => cli.run(host, json),
        Err(error) if error.use_stderr() && json => {
            let message = error.to_string();
            let message = message.trim_end().strip_prefix("error: ").unwrap_or(&message);
            let told = qo::Error::new(qo::ErrorKind::Invalid, message);
            // As below: the reader of stderr may be gone.
            let _ = writeln!(std::io::stderr(), "{}", trouble::as_json(&told, &[]));
            Outcome::Exit(trouble::USAGE)
        }
        Err(error) => {
            // The reader of the pipe may be gone.
            let _ = error.print();
            Outcome::Exit(u8::try_from(error.exit_code()).unwrap_or(trouble::USAGE))
        }
    }
}

/// The reasons why a job does not run, as `qo explain` words them at this moment of store time: each a sentence, and what
/// to do about it. `worker` is the command that starts a worker.
pub fn explained(explanation: &Explanation, now: Time, worker: &str) -> Vec<(String, Option<String>)> {
    let times = output::Times::new(now);
    let told = |reason| command::explain::told(reason, explanation.job, &times, |_| worker.to_owned());
    explanation.reasons.iter().map(told).collect()
}

/// Waits a moment until the lines that were logged are written, and the spans are sent.
pub fn finish_logging() {
    #[cfg(feature = "otlp")]
    telemetry::finish();
    logging::finish();
}

/// Prints an error as a command prints it, with hints, on stderr. Returns the exit code for it.
///
/// For an error of a [`PythonWorker`], which its host runs.
pub fn report(error: qo::Error) -> u8 {
    trouble::Trouble::from(error).tell(&mut output::Screen::new(output::Colour::Auto), false)
}
