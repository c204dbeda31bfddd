//! `qo._qo`: what the Python package calls.
//!
//! The seam is small, so that the package is Python where users look and Rust where it must not wait for Python:
//!
//! | module | what it holds |
//! |---|---|
//! | `runtime` | the process's threads, and the refusal to use them after a fork |
//! | `pending` | the answer to a call: waited for by a thread, or told to an event loop |
//! | `connection` | a store, and the calls that clients make, as JSON |
//! | `settings` | what `.qo.toml`, the environment and flags say, as JSON |
//! | `worker` | a worker whose handlers are in Python |
//! | `bridge` | jobs on their way to Python handlers and back, in batches |
//! | `children`, `child`, `frame` | handlers in child processes: the worker's end, the child's, and what they say |
//! | `fault` | panics that tests ask for |
//! | `context` | an attempt, as its handler sees it |
//! | `logs` | what Rust logs, on its way to `logging` |
//! | `command` | the command line |
//!
//! Invariant: no thread that renews, claims, settles or watches leases takes the interpreter's lock. They put jobs into
//! the bridge and write to a file descriptor; Python takes from it when it can.

mod bridge;
mod child;
mod children;
mod command;
mod connection;
mod context;
mod fault;
mod frame;
mod logs;
mod pending;
mod runtime;
mod settings;
mod worker;

use pyo3::prelude::*;

#[pymodule]
mod _qo {
    #[pymodule_export]
    use super::child::Child;
    #[pymodule_export]
    use super::command::{finish_logging, main, report};
    #[pymodule_export]
    use super::connection::{Connection, connect, memory};
    #[pymodule_export]
    use super::context::Context;
    #[pymodule_export]
    use super::fault::panic_at;
    #[pymodule_export]
    use super::logs::log_to;
    #[pymodule_export]
    use super::pending::Pending;
    #[pymodule_export]
    use super::settings::settings;
    #[pymodule_export]
    use super::worker::Worker;
}
