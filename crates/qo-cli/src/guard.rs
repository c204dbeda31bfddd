//! `qo-guard`: the guard alone, for the Python package, whose guards must start without Python.

use std::process::ExitCode;

fn main() -> ExitCode {
    qo::guard::main()
}
