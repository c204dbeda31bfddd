//! `qo._qo`: what the Python package calls.
//!
//! The seam is small, so that the package is Python where users look and Rust where it must not wait for Python:
//!
//! | module | what it holds |
//! |---|---|
//! | [`runtime`] | the process's threads, and the refusal to use them after a fork |
//! | [`pending`] | the answer to a call: waited for by a thread, or told to an event loop |
//! | [`connection`] | a store, and the calls that clients make, as JSON |
//! | [`bridge`] | jobs on their way to Python handlers and back, in batches |
//! | [`context`] | an attempt, as its handler sees it |
//! | [`worker`] | a worker whose handlers are in Python |
//!
//! Invariant: no thread that renews, claims, settles or watches leases takes the interpreter's lock. They put jobs into
//! the bridge and write to a file descriptor; Python takes from it when it can.

mod bridge;
mod connection;
mod context;
mod pending;
mod runtime;
mod worker;

use pyo3::prelude::*;

#[pymodule]
mod _qo {
    #[pymodule_export]
    use super::connection::{Connection, connect};
    #[pymodule_export]
    use super::context::Context;
    #[pymodule_export]
    use super::pending::Pending;
    #[pymodule_export]
    use super::worker::Worker;
}
