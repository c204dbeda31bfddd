//! qo on the command line.
//!
//! | module | what it holds |
//! |---|---|
//! | [`cli`] | the commands, and what every one of them takes |
//! | [`command`] | one file per command |
//! | [`output`] | tables for people, JSON for programs, times, colours |
//! | [`machine`] | the machine's clocks and signals |
//! | [`trouble`] | what can go wrong, exit codes, hints |

mod cli;
mod command;
mod logging;
mod machine;
mod output;
mod place;
mod trouble;

use clap::Parser;
use std::io::Write;
use std::process::ExitCode;

fn main() -> ExitCode {
    // A worker starts many guards: they skip the rest of the command line.
    if std::env::args_os().nth(1).is_some_and(|command| command == "guard") {
        return qo::guard::main();
    }
    match cli::Cli::try_parse() {
        Ok(cli) => cli.run(),
        Err(error) if error.use_stderr() && trouble::speaks_json() => {
            let message = error.to_string();
            let message = message.trim_end().strip_prefix("error: ").unwrap_or(&message);
            let told = qo::Error::new(qo::ErrorKind::Invalid, message);
            // As below: the reader of stderr may be gone.
            let _ = writeln!(std::io::stderr(), "{}", trouble::as_json(&told, &[]));
            ExitCode::from(trouble::USAGE)
        }
        Err(error) => {
            // The reader of the pipe may be gone.
            let _ = error.print();
            ExitCode::from(u8::try_from(error.exit_code()).unwrap_or(trouble::USAGE))
        }
    }
}
