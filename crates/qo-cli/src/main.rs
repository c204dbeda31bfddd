//! The program `qo`: the command line, and the guard of its own programs.

use qo_cli::{Host, Outcome};
use std::ffi::OsString;
use std::process::ExitCode;

fn main() -> ExitCode {
    let arguments: Vec<OsString> = std::env::args_os().skip(1).collect();
    // A worker starts many guards: they skip the rest of the command line.
    if arguments.first().is_some_and(|command| command == "guard") {
        return qo::guard::main();
    }
    match qo_cli::main(arguments, Host::default()) {
        Outcome::Exit(code) => ExitCode::from(code),
        // This host has no Python, so its command line refuses such a worker.
        Outcome::Python(_) => ExitCode::FAILURE,
    }
}
